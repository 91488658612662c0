"""One seed of a recipe: make the team, warm it up, train it, and play every system on the same held-out tasks.

The start, the trained team and the controls meet the same tasks with the same random numbers. Everything is written to
the seed's directory as it comes, so that an interrupted seed goes on where it stopped.
"""

from __future__ import annotations

import hashlib
import json
import re
import time
import warnings
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import polars as pl

from palaestra.agents import Team
from palaestra.agents.policy import Policy
from palaestra.algebra.turns import Turns
from palaestra.envs.conversations import TEMPLATES as envs_templates
from palaestra.envs.protocol import EnvFactory
from palaestra.errors import InputError, StorageError
from palaestra.evaluation import first_significant, success_interval, trials
from palaestra.foundation.checksums import checksums
from palaestra.foundation.files import read_object, read_text, write_json
from palaestra.foundation.progress import Report, silent
from palaestra.judges.kept_calls import KeptCalls
from palaestra.judges.templates import TEMPLATES as judges_templates
from palaestra.learning import Trainer, checkpoints, demonstrations, supervised_warm_start
from palaestra.learning.journal import Journal
from palaestra.learning.run_lock import locked
from palaestra.learning.trackers import Tracked, Tracker
from palaestra.learning.trackers import build as build_trackers
from palaestra.play.executors import Executor, Plan
from palaestra.play.gc_freeze import set_aside_for_good
from palaestra.runs import budget as budgets
from palaestra.runs import coalitions, saved_policies
from palaestra.runs.build import Setup, resolve, scripted_play, versions
from palaestra.runs.config import EvaluationPart
from palaestra.runs.measures import AVERAGE, LEAGUE, Table, lower_is_better, measure, table_of
from palaestra.runs.policies import reads_conversations
from palaestra.runs.ranks import invite
from palaestra.runs.recipe import Recipe, import_modules
from palaestra.runs.saved_teams import save_team
from palaestra.runs.scoring import Scoring
from palaestra.runs.searching import searching
from palaestra.runs.summary import check_result, counted_agents, value_of
from palaestra.runs.trainers import trainer_of
from palaestra.runs.unjudged import silence
from palaestra.teams.instructions import TEMPLATES as teams_templates

_TEMPLATE = re.compile(r"""[^"'\\\s(={,\[]+\.j2(?![\w.])""")
FINAL, LOOK = 0, 1
"""Seeds of the held-out tasks of the final comparison and of the looks during training: the same for every run."""


def run_seed(
    recipe: Recipe, seed: int, directory: Path, *, resume: bool = False, progress: Report = silent
) -> dict[str, Any]:
    """Train and evaluate one seed of a recipe in `directory`; writes `result.json`, and returns its content.

    Raises:
        InputError: somebody else writes to that directory.
    """
    with locked(directory):
        return _run_seed(recipe, seed, directory, resume=resume, progress=progress)


def _run_seed(recipe: Recipe, seed: int, directory: Path, *, resume: bool, progress: Report) -> dict[str, Any]:
    there = finished(recipe, seed, directory) if resume else None
    if there is not None:
        return there
    begun = checkpoints.existing_file(directory)
    if begun and not resume:
        raise InputError(f"{directory} holds a run already ({begun}): resume it, or choose another directory")
    checkpoints.check_writable(directory, 0)
    import_modules(recipe.imports)
    setup = resolve(recipe)
    clock = Clock(directory / "clock.json", resume=resume)
    if begun and not clock.before:
        warnings.warn(f"{clock.path} is gone, and with it the time that was spent before", stacklevel=2)
    with ExitStack() as stack:
        return _trained_and_proved(recipe, setup, seed, directory, clock, stack, resume=resume, progress=progress)


def _trained_and_proved(
    recipe: Recipe,
    setup: Setup,
    seed: int,
    directory: Path,
    clock: Clock,
    stack: ExitStack,
    *,
    resume: bool,
    progress: Report,
) -> dict[str, Any]:
    """The result of a seed; what has to be closed is closed with the stack."""
    trained = Training(setup, seed, directory, clock=clock, resume=resume, progress=progress)
    stack.callback(trained.close)
    set_aside_for_good()
    lines = trained.run()
    spent = {"after": budgets.total(lines)}
    save_team(recipe, seed, trained.team, directory / "policies")
    systems = {"before": (trained.test, trained.start), "after": (trained.test, trained.team)}
    # a judge that also plays judges as it was before training: one measure for all systems
    asked = setup.evaluation.scorers or setup.searches
    judges = {**trained.advisers(), **trained.start.policies} if asked else {}
    stack.callback(_close, judges.values())
    for name in setup.evaluation.controls:
        if name in setup.searches:
            field = f"evaluation.controls.{name}.search"
            systems[name] = searching(setup.searches[name], trained.team, trained.test, judges, seed=seed, field=field)
        elif name in setup.rivals:
            folder = directory / f"control-{name}"
            said = _of_control(name, progress)
            rival = Training(setup.rivals[name], seed, folder, clock=clock, resume=resume, progress=said, other=trained)
            stack.callback(rival.close)
            spent[name] = budgets.total(rival.run())
            systems[name] = (rival.test, rival.team)
        else:
            systems[name] = (trained.test, setup.controls[name](seed, trained.corpus))
            stack.callback(_close, systems[name][1].policies.values())
    tables: list[Turns] = []
    scoring = Scoring(setup.evaluation.scorers, judges, seed=seed, systems=len(systems), kept_calls=trained.kept_calls)
    for number, (name, (factory, team)) in enumerate(systems.items()):
        progress("proving", number, len(systems), f"playing {name}")
        played = evaluate(setup.evaluation, trained.executor, factory, team, seed=FINAL, run=str(seed))
        tables.append(Turns(scoring(played).frame.with_columns(system=pl.lit(name))))
    Turns.concat(tables).save(directory / "evaluation.parquet")
    shapley = {}
    if setup.evaluation.coalitions:
        progress("proving", len(systems), len(systems), "playing every coalition of members")
        shapley = coalitions.worth(setup.evaluation.coalitions, trained.test, trained.start, trained.team, seed=FINAL)
    held_out = {task_key(task) for task in tables[0].frame["task"].drop_nulls().unique()}
    result = {
        "seed": seed,
        "metrics": trained.exact(),
        "seconds_to_significance": trained.seconds_to_significance(lines),
        "spent": spent,
        "scorers": scoring.totals(),
        "judges": silence(lines),
        "shapley": shapley,
        "train_cpu_seconds": lines[-1]["cpu_seconds"] if lines else 0.0,
        "met_in_training": sorted(held_out & trained.met()),
        "errors": dict(sum((Counter(line["errors"]) for line in lines), Counter())),
        **clock.read(),
        "versions": versions(),
        "recipe": digest(recipe),
        "files": checksums(directory, (*SEALED, *RESULTS)),
    }
    write_json(directory / "result.json", result)
    return result


def _close(policies: Iterable[Policy]) -> None:
    """Have policies end the servers that they started, before the process begins another seed with its own."""
    for policy in policies:
        if callable(close := getattr(policy, "close", None)):
            close()


def _of_control(name: str, progress: Report) -> Report:
    """The phases of a training of its own, under its name."""

    def report(phase: str, done: int, total: int, note: str = "", lines: Sequence[str] = ()) -> None:
        progress(f"control {name}, {phase}", done, total, note, lines)

    return report


SEALED = ("start/*/manifest.json", "look-*.parquet", "tables.jsonl", "tasks.jsonl")
"""What a checkpoint must find as it was, beside the metrics: the summary is read from it."""

RESULTS = ("evaluation.parquet", "metrics.jsonl", "contributions.json")
"""What `result.json` must find as it was, beside that."""


def task_key(name: str) -> str:
    """Hash of a task's name, 8 bytes as hex."""
    return hashlib.blake2b(name.encode(errors="replace"), digest_size=8).hexdigest()


def digest(recipe: Recipe) -> str:
    """SHA-256 of all recipe fields that a seed's result depends on, and of prompts if they are read; hex text.

    Prompts are those of chat models and of judges, and files `….j2` that the recipe names.
    """
    same = dict.fromkeys(("description", "track", "seeds"))
    whole = saved_policies.anywhere(recipe.model_dump(mode="json")) | same
    whole["evaluation"].pop("attacks")  # they are made of finished seeds
    whole["train"].pop("keep_calls")
    if not whole["train"]["inflight"]:  # runs of before that there was such a field are the same
        whole["train"].pop("inflight")
    if whole["env"].get("shared_memory") is None:
        whole["env"].pop("shared_memory", None)
    if reads_conversations(recipe.policies.values()):
        whole["prompts"] = [envs_templates.sources(), teams_templates.sources()]
    if recipe.stages or recipe.evaluation.scorers:
        whole["judges"] = judges_templates.sources()
    said = json.dumps(whole | {"play": whole["play"] | {"executor": None}}, sort_keys=True)
    files = {name: read_text(Path(name)) for name in sorted({*_TEMPLATE.findall(said)})}
    return hashlib.sha256((said + (json.dumps(files) if files else "")).encode()).hexdigest()


def finished(recipe: Recipe, seed: int, directory: Path) -> dict[str, Any] | None:
    """The stored result dict in `directory` of a seed that finished this very recipe; None if work is left.

    Raises:
        StorageError: it is damaged, or what it was made from is no more what it was.
    """
    path = directory / "result.json"
    result = read_object(path)
    if result is None or result.get("recipe") != digest(recipe) or result.get("seed") != seed:
        return None
    if saved_policies.changed(recipe.model_dump(mode="json"), seed, directory):
        return None
    check_result(directory, result)
    return result


class Clock:
    """Timer of wall and CPU seconds of a run, kept in a file so that earlier interrupted processes count."""

    def __init__(self, path: Path, *, resume: bool) -> None:
        self.path = path
        self.before = (read_object(path) or {}) if resume else {}
        if not all(isinstance(self.before.get(name, 0.0), int | float) for name in ("wall_seconds", "cpu_seconds")):
            raise StorageError(
                f"{path}: damaged: wall_seconds and cpu_seconds are numbers; delete it, the time is lost"
            )
        self.began = {"wall_seconds": time.perf_counter(), "cpu_seconds": time.process_time()}

    def read(self) -> dict[str, float]:
        """Seconds so far: {"wall_seconds", "cpu_seconds"}."""
        now = {"wall_seconds": time.perf_counter(), "cpu_seconds": time.process_time()}
        return {name: now[name] - began + self.before.get(name, 0.0) for name, began in self.began.items()}

    def keep(self) -> None:
        """Write the seconds to the file, for a process that resumes."""
        write_json(self.path, self.read())


def evaluate(
    part: EvaluationPart,
    executor: Executor,
    factory: EnvFactory,
    team: Team,
    *,
    seed: int,
    run: str,
    look: bool = False,
) -> Turns:
    """Play a team on an env factory's `EvaluationPart` tasks and trials (or a look's) without retries; the `Turns`."""
    plan = Plan(
        groups=part.look_tasks if look else part.tasks,
        group_size=part.look_trials if look else part.trials,
        seed=seed,
        stream="eval",
        run=run,
        retries=0,
    )
    return executor.play(factory, team, plan)


BEFORE_LEARNING = ("imports", "env", "policies", "team", "warm_start", "play")
"""Fields of a recipe that the team depends on after its warm start, beside the seed."""


class Training:
    """Trains one seed of a `Setup` in a directory: makes team, warm start and trainer, evaluates between iterations.

    other: a training of the same seed; where nothing before learning differs, its start is taken over.
    """

    def __init__(
        self,
        setup: Setup,
        seed: int,
        directory: Path,
        *,
        clock: Clock,
        resume: bool,
        progress: Report,
        other: Training | None = None,
    ) -> None:
        self.setup, self.part, self.seed, self.directory = setup, setup.evaluation, seed, directory
        self.clock, self.resume, self.progress = clock, resume, progress
        self.train, self.test, self.executor = setup.train, setup.test, setup.executor()
        directory.mkdir(parents=True, exist_ok=True)
        saved_policies.keep(setup.recipe, seed, directory, resume=resume)
        played, self.corpus = scripted_play(setup, self.executor, seed)
        self.team = setup.team(seed, self.corpus)
        self._warm_up(played, other)
        self.start = self.team.frozen_copy()
        self.tables = Journal(directory / "tables.jsonl")
        self.tasks = Journal(directory / "tasks.jsonl")
        self.trainer: Trainer | None = None
        self.kept_calls: KeptCalls | None = None
        if kept := setup.training.keep_calls:
            self.kept_calls = KeptCalls(directory / "judge-calls", limit=kept * 2**20)

    def _warm_up(self, played: Turns, other: Training | None) -> None:
        """Supervised learning on scripted play, kept on disk so that a resume starts from the same parameters."""
        part, folder = self.setup.warm_start, self.directory / "start"
        found = kept = checkpoints.latest(folder) if self.resume else None
        if other is not None and kept is None and self._begins_like(other):
            found = checkpoints.latest(other.directory / "start")
        if found is not None:
            self.team.load_state_dict(checkpoints.load(found)["team"])
        elif part is not None and part.steps:
            examples = demonstrations(played, self.team)
            supervised_warm_start(
                self.team,
                examples,
                steps=part.steps,
                batch=part.batch,
                lr=part.lr,
                seed=self.seed,
                progress=self.progress,
            )
        if kept is None:
            checkpoints.save(folder, 0, {"iteration": 0, "team": self.team.state_dict()})

    def _begins_like(self, other: Training) -> bool:
        """Whether nothing before learning differs."""
        return all(other.setup.recipe[name] == self.setup.recipe[name] for name in BEFORE_LEARNING)

    def advisers(self) -> dict[str, Policy]:
        """Policies without a seat that are asked during training; their calls are kept."""
        made = self.setup.advisers(self.seed, self.corpus)
        for each in made.values():
            if self.kept_calls is not None:
                self.kept_calls.attach(each)
        return made

    def close(self) -> None:
        """Close the executor, the policies, and the files of kept calls, so that other processes can write them."""
        self.executor.close()
        _close(self.team.policies.values())
        if self.trainer is not None:
            _close(self.trainer.advisers.values())
        if self.kept_calls is not None:
            self.kept_calls.close()

    def run(self) -> list[dict[str, Any]]:
        """Train to the end and return the metrics, a dict per iteration."""
        part = self.setup.training
        invite(self.setup.recipe, self.seed, self.corpus)
        learner = self.setup.learner(self.team)
        if not (self.resume and self._look(0).exists()):
            self._look_at(self.start, 0)
            self._fits()
        self.trainer = trainer_of(
            self.setup,
            self.team,
            learner,
            self.executor,
            seed=self.seed,
            corpus=self.corpus,
            kept_calls=self.kept_calls,
            env=self.train,
            evaluate=self._look_at,
            evaluate_every=part.evaluate_every,
            after_iteration=self._measure,
            on_turns=self._meet,
            directory=self.directory,
            checkpoint_every=part.checkpoint_every,
            files=SEALED,
            save_turns=part.save_turns,
            track=self._trackers,
            progress=self.progress,
        )
        lines = self.trainer.run(resume=self.resume)
        self.tables.rewind(part.iterations)
        self.tasks.rewind(part.iterations)
        return lines

    def _fits(self) -> None:
        """Stop before anything is learned if the first iteration would spend more than the budget."""
        part = self.setup.training
        if part.budget is not None:
            share = part.groups * part.group_size / (self.part.look_tasks * self.part.look_trials)
            budgets.refuse(part.budget, share * budgets.cost(part.budget, self.looked), part)

    def _trackers(self, since: int) -> list[Tracker]:
        name = f"{self.setup.name} seed {self.seed}"
        if self.directory.name.startswith("control-"):
            name += f" {self.directory.name}"
        run = Tracked(self.directory, name, self.setup.name, self.setup.recipe, since)
        return build_trackers(self.setup.track, run)

    def _measure(self, iteration: int, team: Team) -> dict[str, float]:
        """Exact measures, at every look. The play of every iteration is kept, for those of the average policy."""
        self.clock.keep()
        part, trainer = self.part, self.trainer
        assert trainer is not None, "it calls this"
        looking = iteration % trainer.evaluate_every == 0 or iteration == trainer.iterations
        if not part.metrics or not (looking or any(name.startswith(AVERAGE) for name in part.metrics)):
            return {}
        if not self.tables.lines or self.tables.lines[-1]["iteration"] >= iteration:
            self.tables.rewind(iteration - 1)
        game, table = table_of(self.test, team)
        self.tables.append({"iteration": iteration, "table": [[key, list(row.items())] for key, row in table.items()]})
        if not looking:
            return {}
        league = self._league()
        return {name: measure(name, game, self._played(1), league=league) for name in part.metrics}

    def _league(self) -> list[tuple[Table, float]] | None:
        """Play of the past selves that are a league's answer, with their weights; None: no measure asks for it."""
        league = getattr(self.trainer, "league", None)
        if league is None or not any(name.startswith(LEAGUE) for name in self.part.metrics):
            return None
        return [(table_of(self.test, league.as_team(name))[1], weight) for name, weight in league.answer().items()]

    def _meet(self, iteration: int, turns: Turns) -> None:
        """Note which tasks are trained on: held-out ones should not be among them."""
        if not self.tasks.lines or self.tasks.lines[-1]["iteration"] >= iteration:
            self.tasks.rewind(iteration - 1)
        met = turns.frame["task"].drop_nulls().unique().sort()
        self.tasks.append({"iteration": iteration, "tasks": [task_key(task) for task in met]})

    def met(self) -> set[str]:
        """Set of the keys (`task_key`) of all tasks that were trained on."""
        return {task for line in self.tasks.lines for task in line["tasks"]}

    def _played(self, since: int) -> list[Table]:
        lines = [line for line in self.tables.lines if line["iteration"] >= since]
        return [{key: dict(row) for key, row in line["table"]} for line in lines]

    def exact(self) -> dict[str, dict[str, float]]:
        """Dict by name of the exact measures before and after training; empty if none are asked for."""
        if not self.part.metrics:
            return {}
        game, start = table_of(self.test, self.start)
        _, end = table_of(self.test, self.team)
        played, league = self._played(1) or [end], self._league()
        return {
            name: {"before": measure(name, game, [start]), "after": measure(name, game, played, league=league)}
            for name in self.part.metrics
        }

    def _look_at(self, team: Team, iteration: int) -> dict[str, Any]:
        """Held-out play during training; the mean of each task goes to disk for `seconds_to_significance`."""
        played = evaluate(self.part, self.executor, self.test, team, seed=LOOK, run=str(self.seed), look=True)
        table = trials(played, where=counted_agents(self.part))
        self.looked = {name: table[name].sum() for name in ("turns", "tokens_in", "tokens_out")}
        value = value_of(self.part.measure, table)
        # a game that always starts alike has one task; then its trials, which share their random numbers, are the pairs
        unit = pl.col("task" if table["task"].n_unique() > 1 else "trial").cast(pl.String).alias("unit")
        kept = {"value": pl.col(value).cast(pl.Float64).mean(), "score": pl.col("score").mean()}  # the page draws both
        Turns(table.group_by(unit).agg(**kept).sort("unit")).save(self._look(iteration))
        look = {"success": None, "low": None, "high": None, "score": table["score"].mean(), "n": len(table)}
        if value == "success":
            estimate = success_interval(table)
            look |= {"success": estimate.mean, "low": estimate.low, "high": estimate.high}
        return look

    def _look(self, iteration: int) -> Path:
        return self.directory / f"look-{iteration:06d}.parquet"

    def seconds_to_significance(self, lines: list[dict[str, Any]]) -> float | None:
        """Training CPU-seconds until the improvement was significant at 5 %, corrected for the looks.

        None if it never was, or if play among themselves cannot show it, as with exploitability.
        """
        if lower_is_better(self.part.measure):
            return None
        before = pl.read_parquet(self._look(0), glob=False)
        looks = []
        for line in lines:
            path = self._look(line["iteration"])
            if line["evaluation"] and path.exists():
                pair = before.join(pl.read_parquet(path, glob=False), on="unit", suffix="_now")
                pair = pair.drop_nulls(["value", "value_now"])
                looks.append((line["cpu_seconds"], (pair["value_now"] - pair["value"]).to_numpy()))
        return first_significant(looks, planned=len(looks)) if looks else None
