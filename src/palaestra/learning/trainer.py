"""`Trainer`: play, reward, credit, learn; look, write a line, keep a checkpoint; again.

A run is determined by its arguments and its seed. What is drawn in an iteration has its own stream, and a checkpoint
holds all else that matters, so a run that was killed and resumed ends with the same parameters, bit for bit, as one
that was not. Left out on purpose: callbacks beyond the two hooks, asynchronous play, early stopping. For another order
of things write your own loop: `examples/first_proof.py` is one.
"""

from __future__ import annotations

import contextlib
import copy
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from palaestra.algebra.files import write_json
from palaestra.algebra.signals import Signal
from palaestra.algebra.turns import Turns
from palaestra.envs.base import EnvFactory
from palaestra.errors import InputError
from palaestra.evaluation.audits import cheap
from palaestra.learning import checkpoints
from palaestra.learning.alarms import Line, alarms
from palaestra.learning.budget import Budget
from palaestra.learning.journal import Journal
from palaestra.learning.measure import measure, split
from palaestra.learning.progress import progress_bar
from palaestra.learning.protocol import Learner
from palaestra.learning.stages.tables import Remembering, parse_table_function
from palaestra.play.rollout import rollout, starts
from palaestra.rewards import components

if TYPE_CHECKING:
    from palaestra.agents import Team

MINIBATCHES, REPAIRS = 0, 1
"""What an iteration's streams are drawn for; rollouts have streams of their own."""


class Trainer:
    """Trains a team and, given a `directory`, keeps everything that happened.

    Args:
        env: makes a fresh env.
        team: who plays. Only policies of the learner change; opponents may be frozen.
        credit: advantage of every turn or token. reward: replaces the env's reward before that: a signal,
            or signals by name, which stay in the table as r_<name> and whose sum it is. The first batch is audited.
        learner: made for the same team.
        repair: texts of table functions (`learning.stages.tables`), e.g. "replay(k=1)", that change, in this order,
            the rows of good episodes before credit. What they remember is part of a checkpoint. `added_rows` in the
            metrics is how many rows they added.
        budget: spreads the `groups` × `group_size` episodes of an iteration over its groups; see `learning.budget`.
        iterations, groups, group_size: per iteration `groups` tasks are played `group_size` times each.
        seed: determines, with the arguments, all that happens.
        evaluate: called with (team, iteration) every `evaluate_every` iterations and after the last; what it returns
            ({"success", "low", "high", "score", "n"}) goes into the metrics. Must draw from its own seeds.
        after_iteration: called with (iteration, team) after every update; returns further numbers for the metrics.
        directory: metrics.jsonl, checkpoints/, turns/ and contributions.json are written there; None: nothing is.
        checkpoint_every, keep: a checkpoint every so many iterations; the last `keep` and the start are kept.
        save_turns: training turns on disk: "none", those of the "last" checkpoint, or of "all" iterations.
        incomplete: what happens to groups with fewer than `group_size` good episodes: "drop" or "keep". Failed
            episodes never train anybody.
        play: further options of `rollout` (concurrency, timeout, retries, max_turns).
        run: name of the run in the tables. progress: a bar on stderr.
    """

    def __init__(
        self,
        env: EnvFactory,
        team: Team,
        *,
        credit: Signal,
        learner: Learner,
        reward: Signal | Mapping[str, Signal] | None = None,
        repair: Sequence[str] = (),
        budget: Budget | None = None,
        iterations: int,
        groups: int,
        group_size: int,
        seed: int = 0,
        evaluate: Callable[[Team, int], dict[str, Any] | None] | None = None,
        evaluate_every: int = 10,
        after_iteration: Callable[[int, Team], dict[str, float]] | None = None,
        directory: str | Path | None = None,
        checkpoint_every: int = 10,
        keep: int = 2,
        save_turns: Literal["none", "last", "all"] = "last",
        incomplete: Literal["drop", "keep"] = "drop",
        play: Mapping[str, Any] | None = None,
        run: str | None = None,
        progress: bool = False,
    ) -> None:
        counts = {"groups": groups, "group_size": group_size, "evaluate_every": evaluate_every}
        for name, value in (counts | {"checkpoint_every": checkpoint_every, "keep": keep}).items():
            if value < 1:
                raise InputError(f"Trainer: {name}={value}, expected at least 1")
        self.env, self.team, self.learner = env, team, learner
        self.credit, self.reward, self.repair = credit, reward, tuple(repair)
        self.budget = budget
        self.repairs = [parse_table_function(text) for text in self.repair]
        self.iterations, self.groups, self.group_size, self.seed = iterations, groups, group_size, seed
        self.evaluate, self.evaluate_every, self.after_iteration = evaluate, evaluate_every, after_iteration
        self.checkpoint_every, self.keep, self.save_turns = checkpoint_every, keep, save_turns
        self.incomplete, self.play, self.run_name, self.progress = incomplete, dict(play or {}), run, progress
        self.directory = None if directory is None else Path(directory)
        self.journal = Journal(None if directory is None else Path(directory) / "metrics.jsonl")
        self.wall = self.cpu = 0.0
        self.start: dict[str, Any] | None = None

    def run(self, *, resume: bool = False) -> list[Line]:
        """Train to the last iteration and return every line of the metrics, those before a resume included.

        resume: go on from the latest checkpoint that is whole; from the beginning if there is none yet.

        Raises:
            InputError: the directory holds a run and `resume` is False, or that run had other settings.
            StorageError: the directory cannot be written or is too small, before anything is played; or a disk ran
                full later, then the last checkpoint is whole.
            RewardError, LearnerError: what was to be learned is not finite; names the rows.
        """
        begin = self._begin(resume)
        with progress_bar("train", self.iterations, shown=self.progress) as report:
            for iteration in range(begin, self.iterations + 1):
                with self._clock():
                    sizes = self._sizes(iteration)
                    turns, warnings = self._rewarded(self._play(iteration, sizes), iteration)
                    trained, rest = split(turns, sizes, drop_incomplete=self.incomplete == "drop")
                    good, trained = len(trained), self._repaired(trained, iteration)
                    trained = trained.with_column(advantage=self.credit)
                    learned = self._learn(trained, iteration)
                    if self.budget is not None:
                        self.budget.learn(turns)
                line: Line = {"iteration": iteration, "wall_seconds": self.wall, "cpu_seconds": self.cpu}
                line |= measure(turns, sizes, learned, self.learner.policies)
                line["added_rows"] = len(trained) - good
                line |= self._look(iteration, line["policies"], trained)
                line["alarms"] = [*warnings, *alarms(line, self.journal.lines)]
                self.journal.append(line)
                with self._clock():
                    self._keep(iteration, trained, rest)
                report(iteration, _note(line), [f"iteration {iteration}: {alarm}" for alarm in line["alarms"]])
        return self.journal.lines

    # -- one iteration ------------------------------------------------------------------------------------------------

    def _sizes(self, iteration: int) -> int | list[int]:
        """Episodes of every group, or of each."""
        if self.budget is None:
            return self.group_size
        limit = {"timeout": self.play["timeout"]} if "timeout" in self.play else {}
        seen = starts(self.env, groups=self.groups, seed=self.seed, iteration=iteration, **limit)
        return self.budget.sizes(seen, self.groups * self.group_size)

    def _play(self, iteration: int, sizes: int | list[int]) -> Turns:
        return rollout(
            self.env,
            self.team,
            groups=self.groups,
            group_size=sizes,
            seed=self.seed,
            iteration=iteration,
            run=self.run_name,
            **self.play,
        )

    def _rewarded(self, turns: Turns, iteration: int) -> tuple[Turns, list[str]]:
        """The reward of the recipe, and on the first batch what is wrong with it: loops and repetition that pay."""
        if self.reward is None:
            return turns, []
        whole = self.reward if isinstance(self.reward, Signal) else reduce(Signal.__add__, self.reward.values())
        found = cheap(turns, whole) if iteration == 1 else []
        warnings = [f"the reward can be farmed: {each.sentence} (palaestra audit shows the rows)" for each in found]
        if isinstance(self.reward, Signal):
            return turns.with_column(reward=self.reward), warnings
        return components(turns, self.reward), warnings

    def _repaired(self, trained: Turns, iteration: int) -> Turns:
        for number, function in enumerate(self.repairs if len(trained) else ()):
            stream = np.random.SeedSequence(self.seed, spawn_key=(iteration, REPAIRS, number))
            trained = function(trained, np.random.default_rng(stream))
        return trained

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
        start = self.start
        if self.directory is not None:
            kept = checkpoints.path_of(self.directory / "checkpoints", 0)
            start = None if checkpoints.damage(kept) else checkpoints.load(kept)["policies"]
        found = measure(trained, start=start)
        return {name: value for name, value in found.items() if name in policies and policies[name].get("kl") is None}

    # -- what is kept -------------------------------------------------------------------------------------------------

    def _keep(self, iteration: int, trained: Turns, rest: Turns) -> None:
        if self.directory is None:
            return
        due = iteration % self.checkpoint_every == 0 or iteration == self.iterations
        if self.save_turns == "all" or (self.save_turns == "last" and due):
            folder = self.directory / "turns"
            path = Turns.concat([trained, rest]).save(folder / f"iteration-{iteration:06d}.parquet")
            if self.save_turns == "last":
                for older in set(folder.glob("iteration-*.parquet")) - {path}:
                    older.unlink()
        if due:
            if len(trained):
                write_json(self.directory / "contributions.json", self.credit.contributions(trained))
            self._checkpoint(iteration)

    def _checkpoint(self, iteration: int) -> None:
        assert self.directory is not None
        checkpoints.save(self.directory / "checkpoints", iteration, self._state(iteration))
        checkpoints.prune(self.directory / "checkpoints", self.keep)

    def _state(self, iteration: int) -> dict[str, Any]:
        return {
            "iteration": iteration,
            "settings": self._settings(),
            "wall": self.wall,
            "cpu": self.cpu,
            "policies": {name: policy.state_dict() for name, policy in self.learner.policies.items()},
            "learner": self.learner.state_dict(),
            "repairs": [each.state_dict() if isinstance(each, Remembering) else None for each in self.repairs],
            "budget": None if self.budget is None else self.budget.state_dict(),
        }

    def _settings(self) -> dict[str, Any]:
        """What must be the same when a run goes on."""
        return {
            "seed": self.seed,
            "groups": self.groups,
            "group_size": self.group_size,
            "credit": str(self.credit),
            "reward": str(dict(self.reward) if isinstance(self.reward, Mapping) else self.reward),
            "repair": list(self.repair),
            "incomplete": self.incomplete,
            "budget": None if self.budget is None else str(self.budget),
        }

    def _begin(self, resume: bool) -> int:
        """Make the directory ready, load the latest checkpoint, and return the first iteration to do."""
        if self.directory is None:
            if resume:
                raise InputError("Trainer.run(resume=True) needs the directory of the run: Trainer(..., directory=...)")
            if hasattr(self.learner, "divergence"):
                self.start = {name: copy.deepcopy(each.state_dict()) for name, each in self.learner.policies.items()}
            return 1
        folder = self.directory / "checkpoints"
        checkpoints.check_writable(self.directory, 2 * (self.keep + 3) * checkpoints.size_of(self._state(0)))
        found = checkpoints.latest(folder)
        if found is None:
            self._forget_after(0)
            self._checkpoint(0)
            return 1
        if not resume:
            raise InputError(
                f"{self.directory} holds a run already ({found.name}): resume it, or choose another directory"
            )
        state = checkpoints.load(found)
        for name, value in self._settings().items():
            if state["settings"].get(name) != value:
                raise InputError(
                    f"{self.directory}: the run was made with {name}={state['settings'].get(name)!r}, not {value!r}; "
                    "resume it with the same settings, or choose another directory"
                )
        for name, policy in self.learner.policies.items():
            policy.load_state_dict(state["policies"][name])
        self.learner.load_state_dict(state["learner"])
        for function, remembered in zip(self.repairs, state["repairs"], strict=True):
            if isinstance(function, Remembering):
                function.load_state_dict(remembered)
        if self.budget is not None:
            self.budget.load_state_dict(state["budget"])
        self.wall, self.cpu = state["wall"], state["cpu"]
        self._forget_after(state["iteration"])
        return int(state["iteration"]) + 1

    def _forget_after(self, iteration: int) -> None:
        """What a killed run wrote after its last checkpoint will be written again."""
        assert self.directory is not None
        self.journal.rewind(iteration)
        for path in (self.directory / "turns").glob("iteration-*.parquet"):
            if checkpoints.iteration_of(path.with_suffix("")) > iteration:
                path.unlink()

    @contextlib.contextmanager
    def _clock(self) -> Iterator[None]:
        """What runs inside is training time."""
        wall, cpu = time.perf_counter(), time.process_time()
        yield
        self.wall += time.perf_counter() - wall
        self.cpu += time.process_time() - cpu


def _note(line: Line) -> str:
    return "  ".join(f"{name} {line[name]:.2f}" for name in ("reward", "success") if line[name] is not None)
