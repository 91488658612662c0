"""`Trainer`: play, reward, credit, learn; look, write a line, keep a checkpoint; again.

A run is determined by its arguments and its seed. What is drawn in an iteration has its own stream, and a checkpoint
holds all else that matters, so a run that was killed and resumed ends with the same parameters, bit for bit, as one
that was not. Left out on purpose: callbacks beyond the two hooks, early stopping. For another order of things write
your own loop: `examples/first_proof.py` is one.
"""

from __future__ import annotations

import contextlib
import copy
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import polars as pl

from palaestra.algebra.schema import episode_failed
from palaestra.algebra.signals import Signal
from palaestra.algebra.turns import Turns
from palaestra.envs.protocol import EnvFactory
from palaestra.errors import EnvError, InputError
from palaestra.evaluation.audits import cheap
from palaestra.foundation.files import write_json
from palaestra.foundation.progress import Report, reporting
from palaestra.learning import checkpoints
from palaestra.learning.alarms import Line, alarms
from palaestra.learning.devices import leading
from palaestra.learning.folder import RunFolder
from palaestra.learning.iteration_metrics import measure, split, staleness
from palaestra.learning.journal import Journal
from palaestra.learning.pipelining import Ahead, Overlap, check_inflight, play, spent_by
from palaestra.learning.run_lock import locked
from palaestra.learning.speed import speed
from palaestra.learning.stages.stage import Context, Stage, Stages
from palaestra.learning.trackers import Tracker, Trackers
from palaestra.play.executors import Executor, Local, Plan
from palaestra.rewards import components

if TYPE_CHECKING:
    from palaestra.agents import Team
    from palaestra.agents.policy import Policy
    from palaestra.judges.kept_calls import KeptCalls
    from palaestra.learning.protocol import Learner

MINIBATCHES = 0
"""What an iteration's streams are drawn for; rollouts and stages have streams of their own."""


class Trainer:
    """Training loop of a team: play, rewards, credit and updates, with checkpoints and metrics in a `directory`.

    Args:
        env: makes a fresh env.
        team: who plays. Only policies of the learner change; opponents may be frozen.
        credit: advantage of every turn or token. reward: replaces the env's reward before that: a signal,
            or signals by name, which stay in the table as r_<name> and whose sum it is. The first batch is audited.
        learner: made for the same team.
        stages: texts ("replay(k=1)") or objects, in the order in which they run on the good episodes; see
            `learning.stages`. What they remember is part of a checkpoint, what they used is in the metrics;
            `added_rows` is how many rows they added.
        advisers: policies that stages ask by name, beside those of the team.
        kept_calls: where calls of these, and of endpoints that judge, are kept as they are answered; None: nowhere.
        executor: plays; default `play.executors.Local()`.
        iterations, groups, group_size: per iteration `groups` tasks are played `group_size` times each.
        seed: determines, with the arguments, all that happens.
        evaluate: called with (team, iteration) every `evaluate_every` iterations and after the last; what it returns
            ({"success", "low", "high", "score", "n"}) goes into the metrics. Must draw from its own seeds.
        after_iteration: called with (iteration, team) after every update; returns further numbers for the metrics.
        on_turns: called with (iteration, turns) after every update, with the turns that were trained on.
        should_stop: asked with every line so far after each update; if it says so, that iteration was the last.
        directory: metrics.jsonl, checkpoints/, turns/, tasks/ and contributions.json are written there; None: nothing.
        checkpoint_every, keep: a checkpoint every so many iterations; the last `keep` and the start are kept.
        files: patterns of further files there, which `evaluate` and `after_iteration` write; a checkpoint seals them,
            and a resume refuses to go on from it if one is not what it was. Only journals (.jsonl) may grow.
        save_turns: training turns on disk: "none", those of the "last" checkpoint, or of "all" iterations.
        lag: iteration i is played with the weights that iteration max(0, i - 1 - lag) left, while others are learned
            from; see `learning.pipelining`. 0: play and learning take turns.
        inflight: with a lag, what is played goes on with the weights of every update, in the middle of answers; all
            policies that learn have to be served. `lag` then only says how many iterations are under way.
        incomplete: what happens to groups with fewer than `group_size` good episodes: "drop" or "keep". Failed
            episodes never train anybody.
        track: called with the last iteration that stays, returns who is told the metrics; see `learning.trackers`.
        run: name of the run in the tables. progress: shown on stderr, or reported to whom is given.
    """

    def __init__(
        self,
        env: EnvFactory,
        team: Team,
        *,
        credit: Signal,
        learner: Learner,
        reward: Signal | Mapping[str, Signal] | None = None,
        stages: Iterable[str | Stage] = (),
        advisers: Mapping[str, Policy] | None = None,
        kept_calls: KeptCalls | None = None,
        executor: Executor | None = None,
        iterations: int,
        groups: int,
        group_size: int,
        seed: int = 0,
        evaluate: Callable[[Team, int], dict[str, Any] | None] | None = None,
        evaluate_every: int = 10,
        after_iteration: Callable[[int, Team], dict[str, float]] | None = None,
        on_turns: Callable[[int, Turns], None] | None = None,
        should_stop: Callable[[Sequence[Line]], bool] | None = None,
        directory: str | Path | None = None,
        checkpoint_every: int = 10,
        keep: int = 2,
        files: Iterable[str] = (),
        save_turns: Literal["none", "last", "all"] = "last",
        lag: int = 0,
        inflight: bool = False,
        incomplete: Literal["drop", "keep"] = "drop",
        run: str | None = None,
        track: Callable[[int], Sequence[Tracker]] | None = None,
        progress: bool | Report = False,
    ) -> None:
        counts = {"groups": groups, "group_size": group_size, "evaluate_every": evaluate_every}
        for name, value in (counts | {"checkpoint_every": checkpoint_every, "keep": keep}).items():
            if value < 1:
                raise InputError(f"Trainer: {name}={value}, expected at least 1")
        if lag < 0:
            raise InputError(f"Trainer: lag={lag}, expected 0 or more")
        check_inflight(inflight, lag, learner.policies)
        if lag and should_stop is not None:
            raise InputError(f"Trainer: lag={lag} plays iterations that should_stop= may not want; take lag=0")
        self.env, self.team, self.learner = env, team, learner
        self.credit, self.reward, self.stages = credit, reward, Stages(stages, seed=seed)
        if lag:
            self.stages.check_overlap()
        self.kept_calls = kept_calls
        for adviser in (advisers or {}).values():
            if kept_calls is not None:
                kept_calls.attach(adviser)
        self.advisers, self.executor = dict(advisers or {}), Local() if executor is None else executor
        self.iterations, self.groups, self.group_size, self.seed = iterations, groups, group_size, seed
        self.evaluate, self.evaluate_every, self.after_iteration = evaluate, evaluate_every, after_iteration
        self.on_turns, self.should_stop = on_turns, should_stop
        self.checkpoint_every, self.save_turns, self.track = checkpoint_every, save_turns, track
        self.incomplete, self.run_name, self.progress = incomplete, run, progress
        self.journal = Journal(None if directory is None else Path(directory) / "metrics.jsonl")
        self.folder = None if directory is None else RunFolder(Path(directory), self.journal, keep, tuple(files))
        self.wall = self.cpu = 0.0
        self.lag = lag
        self.inflight = inflight
        self.overlap = Overlap(env, team, self.executor, inflight=inflight) if lag else None
        self.start: dict[str, Any] | None = None
        self.audited = 1
        """The iteration whose reward is audited."""
        self.mismatch: dict[str, dict[str, float]] = {}
        self._untaught: int | None = None
        """Updates of the learner when this trainer wrote the start."""

    def run(self, *, resume: bool = False) -> list[Line]:
        """Train to the last iteration and return every line of the metrics, those before a resume included.

        resume: go on from the latest checkpoint that is whole; from the beginning if there is none yet.

        Raises:
            InputError: the directory holds a run and `resume` is False, or that run had other settings; or somebody
                else is training in it.
            StorageError: the directory cannot be written or is too small, or a file that the checkpoint was made with
                is no more what it was, before anything is played; or a disk ran full later, then the last checkpoint
                is whole.
            EnvError: no episode of the first iteration could be played; names the commonest error.
            RewardError, LearnerError: what was to be learned is not finite; names the rows.
        """
        with (
            leading(self.learner) as leads,
            locked(self.folder.path) if leads and self.folder is not None else contextlib.nullcontext(),
        ):
            if not leads:  # one process plays and writes; this one has learned with it
                return []
            trackers, planned = Trackers(), self.iterations
            try:
                begin = self._begin(resume)
                if self.should_stop is not None and self.journal.lines and self.should_stop(self.journal.lines):
                    self.iterations = begin - 1
                if self.track is not None and begin <= self.iterations:
                    trackers = Trackers(self.track(begin - 1))
                self._run(begin, trackers)
            finally:
                trackers.close()
                self.iterations = planned  # for whoever runs it again
                if self.overlap is not None:
                    self.overlap.close()
        return self.journal.lines

    def _run(self, begin: int, trackers: Trackers) -> None:
        with reporting(self.progress, "train") as report:
            if self.overlap is not None and not self.overlap.queue:
                self._look_ahead(range(begin, begin + self.lag + 1))
            for iteration in range(begin, self.iterations + 1):
                if iteration > self.iterations:  # fewer than were planned
                    break
                with self._clock():
                    self._enter(iteration)
                    plan, turns, waited = self._play(iteration)
                    trained, rest, turns, warnings = self._rewarded(turns, plan)
                    good = len(trained)
                    trained = self.stages.after_reward(trained, iteration, self._context(iteration))
                    trained = trained.with_column(advantage=self.credit)
                    updates, metrics = self.learner.updates, self.stages.metrics
                    began = time.perf_counter()
                    learned = self._learn(trained, iteration)
                    update_seconds = time.perf_counter() - began
                    if self.overlap is not None:
                        self._look_ahead(range(iteration + self.lag + 1, iteration + self.lag + 2))
                if self.on_turns is not None:
                    self.on_turns(iteration, trained)
                line: Line = {"iteration": iteration, "wall_seconds": self.wall, "cpu_seconds": self.cpu}
                line |= measure(turns, plan.group_size, learned, self.learner.policies)
                for name, found in self.mismatch.items():
                    line["policies"].get(name, {}).update(found)
                for name in line["policies"]:
                    line["policies"][name].update(staleness(trained.frame, name, updates))
                line |= {"added_rows": len(trained) - good, "stages": metrics}
                line |= {"version_lag": updates - plan.version, "waiting_seconds": waited} | self._of_now()
                if found := self._speed(trained, waited, update_seconds):
                    line["speed"] = found
                if self.should_stop is not None and self.should_stop([*self.journal.lines, line]):
                    self.iterations = iteration
                line |= self._look(iteration, line["policies"], trained)
                line["alarms"] = [*warnings, *alarms(line, self.journal.lines), *self._not_reached(line)]
                self.journal.append(line)
                trackers.log(self.journal.lines[-1])
                with self._clock():
                    self._keep(iteration, trained, rest)
                warned = [f"iteration {iteration}: {alarm}" for alarm in line["alarms"]]
                report("training", iteration, self.iterations, _note(line), warned)

    def _speed(self, trained: Turns, played: float, learned: float) -> dict[str, Any]:
        """Tokens per second and MFU of play and learning, where language models learn."""
        return speed(
            trained.frame,
            self.learner.policies,
            play=played if self.overlap is None else None,
            learn=learned,
            rows=getattr(self.learner, "rows", "turn"),
            epochs=getattr(self.learner, "epochs", 1),
        )

    # -- for trainers whose parts change between iterations; see `phases` ---------------------------------------------

    def _enter(self, iteration: int) -> None:
        """Get ready for an iteration."""

    def _of_now(self) -> Line:
        """Further fields of the metrics of an iteration."""
        return {}

    def _not_reached(self, line: Line) -> list[str]:
        """Further alarms about an iteration."""
        return []

    # -- one iteration ------------------------------------------------------------------------------------------------

    def _context(self, iteration: int) -> Callable[[np.random.Generator], Context]:
        """Context of the stages of this iteration, but for the random stream."""
        return lambda rng: Context(
            rng=rng,
            iteration=iteration,
            env=self.env,
            team=self.team,
            executor=self.executor,
            learner=self.learner,
            seed=self.seed,
            planned=self.iterations,
            advisers=self.advisers,
            kept_calls=self.kept_calls,
        )

    def _plan(self, iteration: int) -> Plan:
        plan = Plan(
            groups=self.groups,
            group_size=self.group_size,
            seed=self.seed,
            iteration=iteration,
            run=self.run_name,
            version=self.learner.updates,
        )
        return self.stages.plan(plan, self._context(iteration))

    def _look_ahead(self, iterations: range) -> None:
        """Plan these with what is known now, and have them played with the weights of now."""
        assert self.overlap is not None
        weights = {name: copy.deepcopy(policy.state_dict()) for name, policy in self.learner.policies.items()}
        if self.inflight:
            self.overlap.renew(weights, self.learner.updates)
        for iteration in iterations:
            ahead = Ahead(self._plan(iteration), self.stages.notes(), weights)
            self.overlap.add(ahead, play=iteration <= self.iterations)

    def _play(self, iteration: int) -> tuple[Plan, Turns, float]:
        """Plan of an iteration, its turns, and the seconds waited for them."""
        if self.overlap is None:
            plan, began = self._plan(iteration), time.perf_counter()
            turns, self.mismatch = play(self.executor, self.env, self.team, plan)
            waited = time.perf_counter() - began
        else:
            ahead, turns, waited, spent = self.overlap.next()
            self.stages.recall(ahead.notes)
            self.mismatch = ahead.mismatch
            plan, self.cpu = ahead.plan, self.cpu + spent
        if iteration == 1:
            _refuse_nothing(turns)
        return plan, turns, waited

    def _rewarded(self, turns: Turns, plan: Plan) -> tuple[Turns, Turns, Turns, list[str]]:
        """Rows that may train and the rest, with the reward of the recipe, and all of them.

        Of the first batch also what is wrong with that reward: loops and repetition that pay.

        Without a stage before it the reward is that of all episodes; with one, of those that the stages saw.
        """
        drop, early = self.incomplete == "drop", self.stages.reward_at == 0
        warnings: list[str] = []
        if early:
            turns, warnings = self._pay(turns, plan.iteration)
        trained, rest = split(turns, plan.group_size, drop_incomplete=drop)
        if not early:
            trained = self.stages.before_reward(trained, plan.iteration, self._context(plan.iteration))
            trained, warnings = self._pay(trained, plan.iteration)
            turns = Turns.concat([trained, rest])
        return trained, rest, turns, warnings

    def _pay(self, turns: Turns, iteration: int) -> tuple[Turns, list[str]]:
        if self.reward is None or not len(turns):
            return turns, []
        whole = self.reward if isinstance(self.reward, Signal) else reduce(Signal.__add__, self.reward.values())
        found = cheap(turns, whole) if iteration == self.audited else []
        warnings = [f"the reward can be farmed: {each.sentence} (palaestra audit shows the rows)" for each in found]
        if isinstance(self.reward, Signal):
            return turns.with_column(reward=self.reward), warnings
        return components(turns, self.reward), warnings

    def _learn(self, trained: Turns, iteration: int) -> dict[str, dict[str, Any]]:
        if not len(trained):
            return {}
        stream = np.random.SeedSequence(self.seed, spawn_key=(iteration, MINIBATCHES))
        return self.learner.update(trained, rng=np.random.default_rng(stream))

    def _look(self, iteration: int, policies: dict[str, dict[str, Any]], trained: Turns) -> Line:
        """Further metrics, held-out evaluation and the distance from the start; none of it is training time."""
        metrics = {} if self.after_iteration is None else self.after_iteration(iteration, self.team)
        evaluation = None
        if iteration % self.evaluate_every == 0 or iteration == self.iterations:
            evaluation = None if self.evaluate is None else self.evaluate(self.team, iteration)
            for name, divergence in self._divergence(trained, policies).items():
                policies[name]["kl"] = divergence
        return {"evaluation": evaluation, "metrics": metrics}

    def _divergence(self, trained: Turns, policies: dict[str, dict[str, Any]]) -> dict[str, float]:
        """From the start, of policies whose objective does not measure it; a start that is on disk is read there."""
        measure = getattr(self.learner, "divergence", None)
        if measure is None or all(policy.get("kl") is not None for policy in policies.values()):
            return {}
        found = measure(trained, start=self.start if self.folder is None else self.folder.start())
        return {name: value for name, value in found.items() if name in policies and policies[name].get("kl") is None}

    # -- what is kept -------------------------------------------------------------------------------------------------

    def _keep(self, iteration: int, trained: Turns, rest: Turns) -> None:
        if self.folder is None:
            return
        due = iteration % self.checkpoint_every == 0 or iteration == self.iterations
        if (tasks := self.stages.tasks(iteration)) is not None:
            self.folder.write_tasks(iteration, tasks)
        if self.save_turns == "all" or (self.save_turns == "last" and due):
            self.folder.write_turns(iteration, Turns.concat([trained, rest]), alone=self.save_turns == "last")
        if due:
            if len(trained):
                write_json(self.folder.path / "contributions.json", self.credit.contributions(trained))
            self.folder.write_checkpoint(iteration, self._state(iteration))

    def _state(self, iteration: int) -> dict[str, Any]:
        return {
            "iteration": iteration,
            "settings": self._settings(),
            "wall": self.wall,
            "cpu": self.cpu,
            "policies": {name: policy.state_dict() for name, policy in self.learner.policies.items()},
            "learner": self.learner.state(),
            "stages": self.stages.state_dict(),
        } | ({} if self.overlap is None else {"ahead": self.overlap.state_dict()})

    def _settings(self) -> dict[str, Any]:
        """Settings that must not change on resume."""
        return {
            "seed": self.seed,
            "groups": self.groups,
            "group_size": self.group_size,
            "credit": str(self.credit),
            "reward": str(dict(self.reward) if isinstance(self.reward, Mapping) else self.reward),
            "stages": self.stages.texts,
            "incomplete": self.incomplete,
            "lag": self.lag,
            "inflight": self.inflight,
        }

    def _begin(self, resume: bool) -> int:
        """Make the directory ready, load the latest checkpoint, and return the first iteration to do."""
        if self.folder is None:
            if resume:
                raise InputError("Trainer.run(resume=True) needs the directory of the run: Trainer(..., directory=...)")
            self.journal.rewind(0)
            self.wall = self.cpu = 0.0
            if hasattr(self.learner, "divergence"):
                self.start = {name: copy.deepcopy(each.state_dict()) for name, each in self.learner.policies.items()}
            return 1
        state = self._state(0)
        ahead = self.lag * checkpoints.size_of(state["policies"])
        found = self.folder.begin(checkpoints.size_of(state) + ahead, resume)
        if found is None:
            start = checkpoints.path_of(self.folder.checkpoints, 0)
            learned = self._untaught is not None and self.learner.updates > self._untaught
            if learned and not checkpoints.damage(start):  # the first iteration failed after its update
                self._restore(checkpoints.load(start))
            self.wall = self.cpu = 0.0
            self._untaught = self.learner.updates
            self.folder.forget_after(0)
            self.folder.write_checkpoint(0, self._state(0))
            return 1
        state = self.folder.load(found, self._settings())
        self._restore(state)
        self.wall, self.cpu = state["wall"], state["cpu"]
        if self.overlap is not None:
            if self.inflight:
                self.overlap.renew(state["policies"], self.learner.updates)
            for each in Overlap.again(state["ahead"], state["policies"]):
                self.overlap.add(each, play=each.plan.iteration <= self.iterations)
        self.folder.forget_after(state["iteration"])
        return int(state["iteration"]) + 1

    def _restore(self, state: dict[str, Any]) -> None:
        """Inverse of `_state`, as far as policies, learner and stages go."""
        for name, policy in self.learner.policies.items():
            policy.load_state_dict(state["policies"][name])
        self.learner.restore(state["learner"])
        self.stages.load_state_dict(state["stages"])

    @contextlib.contextmanager
    def _clock(self) -> Iterator[None]:
        """Count the time inside as training time."""
        wall, cpu = time.perf_counter(), time.process_time() + spent_by(self.executor)
        yield
        self.wall += time.perf_counter() - wall
        self.cpu += time.process_time() + spent_by(self.executor) - cpu


def _refuse_nothing(turns: Turns) -> None:
    """Stop at once where not one episode could be played: it would not get better by itself.

    Raises:
        EnvError: names the commonest error and how often it came.
    """
    failed = turns.frame.group_by("group", "episode").agg(pl.col("error").filter(episode_failed()).first())["error"]
    if len(failed) and failed.null_count() == 0:
        error, count = failed.value_counts(sort=True).row(0)
        raise EnvError(
            f"no episode of the first iteration could be played: {error} ({count} of {len(failed)} episodes)"
        )


def _note(line: Line) -> str:
    numbers = [f"{name} {line[name]:.2f}" for name in ("reward", "success") if line[name] is not None]
    return "  ".join([line["phase"], *numbers] if "phase" in line else numbers)
