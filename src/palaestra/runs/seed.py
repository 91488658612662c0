"""One seed of a recipe: make the team, warm it up, train it, and play every system on the same held-out tasks.

The start, the trained team and the controls meet the same tasks with the same random numbers. Everything is written to
the seed's directory as it comes, so that an interrupted seed goes on where it stopped.
"""

from __future__ import annotations

import gc
import json
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import polars as pl

from palaestra.agents import Team
from palaestra.algebra.files import write_json
from palaestra.algebra.parse import parse
from palaestra.algebra.signals import Signal
from palaestra.algebra.turns import Turns
from palaestra.envs.base import EnvFactory
from palaestra.errors import RecipeError, nearest
from palaestra.evaluation import first_proof, success_interval, trials
from palaestra.learning import Trainer, checkpoints, demonstrations, supervised_warm_start
from palaestra.learning.journal import Journal
from palaestra.play.rollout import rollout
from palaestra.runs import build
from palaestra.runs.measures import AVERAGE, Table, lower_is_better, measure, table_of
from palaestra.runs.measures import check as check_measures
from palaestra.runs.proof import judged, value_of
from palaestra.runs.recipe import PolicyPart, Recipe, alone, import_modules, override
from palaestra.runs.teachers import naming

FINAL, LOOK = 0, 1
"""Seeds of the held-out tasks of the final comparison and of the looks during training: the same for every run."""


def run_seed(
    recipe: Recipe, seed: int, directory: Path, *, resume: bool = False, progress: bool = False
) -> dict[str, Any]:
    """Train and evaluate one seed; returns, and writes to `result.json`, what the summary needs of it."""
    finished = directory / "result.json"
    if resume and finished.exists():
        return json.loads(finished.read_text())  # type: ignore[no-any-return]
    checkpoints.check_writable(directory, 0)
    import_modules(recipe.imports)
    clock = Clock(directory / "clock.json", resume=resume)
    trained = Training(recipe, seed, directory, clock=clock, resume=resume, progress=progress)
    gc.collect()
    gc.freeze()  # what is there by now stays; with transformers loaded, every full collection would cost 0.25 s
    lines = trained.run()
    systems = {"before": (trained.test, trained.start), "after": (trained.test, trained.team)}
    for name, part in recipe.evaluation.controls.items():
        if part.train is not None:
            variant, folder = trained_control(recipe, name), directory / f"control-{name}"
            control = Training(variant, seed, folder, clock=clock, resume=resume, progress=progress)
            control.run()
            systems[name] = (control.test, control.team)
        else:
            systems[name] = (trained.test, control_team(recipe, name, trained.test, seed=seed, corpus=trained.corpus))
    tables = []
    for name, (factory, team) in systems.items():
        played = evaluation_rollout(recipe, factory, team, seed=FINAL, run=str(seed))
        tables.append(Turns(played.frame.with_columns(system=pl.lit(name))))
    Turns.concat(tables).save(directory / "evaluation.parquet")
    result = {
        "seed": seed,
        "metrics": trained.exact(),
        "seconds_to_proof": trained.seconds_to_proof(lines),
        "train_cpu_seconds": lines[-1]["cpu_seconds"] if lines else 0.0,
        "errors": dict(sum((Counter(line["errors"]) for line in lines), Counter())),
        **clock.read(),
    }
    write_json(finished, result)
    return result


def check(recipe: Recipe) -> None:
    """Make everything once, except models from disk, so that what cannot work is said before anything is played.

    Raises:
        InputError: whatever the recipe asks for that is not there, or does not go together.
    """
    train, test = build.env(recipe, "train"), build.env(recipe, "test")
    build.try_env(train, recipe.env.make)
    agents = build.agents_of(train)
    for agent in recipe.evaluation.agents or ():
        if agent not in agents:
            raise RecipeError(f"evaluation.agents: the env has no agent {agent!r}{nearest(agent, agents)}")
    if recipe.warm_start is not None:
        part = recipe.warm_start
        build.scripted_team(part.teacher, part.options, train, "warm_start.teacher")
    corpus = [observation.text for observation in train().reset(0).values()]
    for name, control in recipe.evaluation.controls.items():
        if control.train is not None:
            check(trained_control(recipe, name))
        elif not _from_disk(recipe, control.policies):
            control_team(recipe, name, test, seed=0, corpus=corpus)
    if not _from_disk(recipe):
        team = build.team(recipe, train, seed=0, corpus=corpus)
        with naming("learn"):
            build.learner(recipe, team)
        with naming("evaluation.metrics"):
            check_measures(recipe.evaluation.metrics, test, team)


def _from_disk(recipe: Recipe, policies: Mapping[str, PolicyPart] | None = None) -> bool:
    return any(part.kind == "lm" for part in {**recipe.policies, **(policies or {})}.values())


def trained_control(recipe: Recipe, name: str) -> Recipe:
    """The recipe by which a control with `train` is trained."""
    changes = recipe.evaluation.controls[name].train or {}
    return alone(override(alone(recipe), changes, f"evaluation.controls.{name}.train"))


def control_team(recipe: Recipe, name: str, factory: EnvFactory, *, seed: int, corpus: Iterable[str]) -> Team:
    """The team of a control without training: a script in every seat, or other policies in the recipe's seats."""
    part = recipe.evaluation.controls[name]
    if part.teacher is not None:
        field = f"evaluation.controls.{name}.teacher"
        return build.scripted_team(part.teacher, part.options, factory, field, seed=seed)
    variant = recipe.model_copy(update={"policies": {**recipe.policies, **(part.policies or {})}})
    return build.team(variant, factory, seed=seed, corpus=corpus)


class Clock:
    """Wall and CPU seconds of a piece of work, those of processes included that were stopped in the middle of it."""

    def __init__(self, path: Path, *, resume: bool) -> None:
        self.path = path
        self.before = json.loads(path.read_text()) if resume and path.exists() else {}
        self.began = {"wall_seconds": time.perf_counter(), "cpu_seconds": time.process_time()}

    def read(self) -> dict[str, float]:
        """Seconds so far."""
        now = {"wall_seconds": time.perf_counter(), "cpu_seconds": time.process_time()}
        return {name: now[name] - began + self.before.get(name, 0.0) for name, began in self.began.items()}

    def keep(self) -> None:
        """Write it down, for whoever goes on."""
        write_json(self.path, self.read())


def evaluation_rollout(
    recipe: Recipe, factory: EnvFactory, team: Team, *, seed: int, run: str, look: bool = False
) -> Turns:
    """Play the held-out tasks: `tasks` groups of `trials` episodes."""
    part = recipe.evaluation
    return rollout(
        factory,
        team,
        groups=part.look_tasks if look else part.tasks,
        group_size=part.look_trials if look else part.trials,
        seed=seed,
        stream="eval",
        run=run,
        concurrency=recipe.train.concurrency,
        timeout=recipe.train.timeout,
    )


class Training:
    """The part of a seed that learns: team, warm start, trainer, looks."""

    def __init__(
        self, recipe: Recipe, seed: int, directory: Path, *, clock: Clock, resume: bool, progress: bool
    ) -> None:
        self.recipe, self.seed, self.directory = recipe, seed, directory
        self.clock, self.resume, self.progress = clock, resume, progress
        self.train, self.test = build.env(recipe, "train"), build.env(recipe, "test")
        directory.mkdir(parents=True, exist_ok=True)
        teacher = recipe.warm_start
        script = build.scripted_team(
            teacher.teacher if teacher else "random",
            teacher.options if teacher else {},
            self.train,
            "warm_start.teacher",
            seed=seed,
        )
        played = rollout(
            self.train,
            script,
            groups=teacher.groups if teacher else 64,
            seed=seed,
            run=str(seed),
            concurrency=recipe.train.concurrency,
            timeout=recipe.train.timeout,
        )
        self.corpus = [*played["observation"].drop_nulls(), *played["action"].drop_nulls()]
        self.team = build.team(recipe, self.train, seed=seed, corpus=self.corpus)
        self._warm_up(played)
        self.start = self.team.frozen_copy()
        self.tables = Journal(directory / "tables.jsonl")
        self.tables.rewind(recipe.train.iterations if resume else 0)

    def _warm_up(self, played: Turns) -> None:
        """Supervised learning on scripted play, kept on disk so that a resume starts from the same parameters."""
        part, folder = self.recipe.warm_start, self.directory / "start"
        found = checkpoints.latest(folder) if self.resume else None
        if found is not None:
            self.team.load_state_dict(checkpoints.load(found)["team"])
            return
        if part is not None and part.steps:
            examples = demonstrations(played, self.team)
            supervised_warm_start(
                self.team, examples, steps=part.steps, batch=part.batch, lr=part.lr, seed=self.seed,
                progress=self.progress,
            )  # fmt: skip
        checkpoints.save(folder, 0, {"iteration": 0, "team": self.team.state_dict()})

    def run(self) -> list[dict[str, Any]]:
        """Train to the end and return the metrics."""
        recipe = self.recipe
        learner = build.learner(recipe, self.team)
        self._look_at(self.start, 0)
        trainer = Trainer(
            self.train,
            self.team,
            credit=parse(recipe.credit),
            reward=_reward(recipe.reward),
            repair=recipe.repair,
            learner=learner,
            iterations=recipe.train.iterations,
            groups=recipe.train.groups,
            group_size=recipe.train.group_size,
            seed=self.seed,
            evaluate=self._look_at,
            evaluate_every=recipe.train.evaluate_every,
            after_iteration=self._measure,
            directory=self.directory,
            checkpoint_every=recipe.train.checkpoint_every,
            save_turns=recipe.train.save_turns,
            incomplete=recipe.train.incomplete,
            play={
                "concurrency": recipe.train.concurrency,
                "timeout": recipe.train.timeout,
                "retries": recipe.train.retries,
            },
            run=str(self.seed),
            progress=self.progress,
        )
        return trainer.run(resume=self.resume)

    def _measure(self, iteration: int, team: Team) -> dict[str, float]:
        """Exact measures, at every look. The play of every iteration is kept, for those of the average policy."""
        self.clock.keep()
        part, every = self.recipe.evaluation, self.recipe.train.evaluate_every
        looking = iteration % every == 0 or iteration == self.recipe.train.iterations
        if not part.metrics or not (looking or any(name.startswith(AVERAGE) for name in part.metrics)):
            return {}
        if not self.tables.lines or self.tables.lines[-1]["iteration"] >= iteration:
            self.tables.rewind(iteration - 1)
        game, table = table_of(self.test, team)
        self.tables.append({"iteration": iteration, "table": [[key, list(row.items())] for key, row in table.items()]})
        return {name: measure(name, game, self._played(1)) for name in part.metrics} if looking else {}

    def _played(self, since: int) -> list[Table]:
        lines = [line for line in self.tables.lines if line["iteration"] >= since]
        return [{key: dict(row) for key, row in line["table"]} for line in lines]

    def exact(self) -> dict[str, dict[str, float]]:
        """Every exact measure before and after training."""
        if not self.recipe.evaluation.metrics:
            return {}
        game, start = table_of(self.test, self.start)
        _, end = table_of(self.test, self.team)
        played = self._played(1) or [end]
        return {
            name: {"before": measure(name, game, [start]), "after": measure(name, game, played)}
            for name in self.recipe.evaluation.metrics
        }

    def _look_at(self, team: Team, iteration: int) -> dict[str, Any]:
        """Held-out play during training; the mean of each task goes to disk for `seconds_to_proof`."""
        played = evaluation_rollout(self.recipe, self.test, team, seed=LOOK, run=str(self.seed), look=True)
        table = trials(played, where=judged(self.recipe))
        value = value_of(self.recipe.evaluation.measure, table)
        # a game that always starts alike has one task; then its trials, which share their random numbers, are the pairs
        unit = pl.col("task" if table["task"].n_unique() > 1 else "trial").cast(pl.String).alias("unit")
        means = table.group_by(unit).agg(pl.col(value).cast(pl.Float64).mean().alias("value")).sort("unit")
        Turns(means).save(self.directory / f"look-{iteration:06d}.parquet")
        look = {"success": None, "low": None, "high": None, "score": table["score"].mean(), "n": len(table)}
        if value == "success":
            estimate = success_interval(table)
            look |= {"success": estimate.mean, "low": estimate.low, "high": estimate.high}
        return look

    def seconds_to_proof(self, lines: list[dict[str, Any]]) -> float | None:
        """Training CPU-seconds until the improvement was significant at 5 %, corrected for the looks.

        None if it never was, or if play among themselves cannot show it, as with exploitability.
        """
        if lower_is_better(self.recipe.evaluation.measure):
            return None
        before = pl.read_parquet(self.directory / "look-000000.parquet")
        looks = []
        for line in lines:
            path = self.directory / f"look-{line['iteration']:06d}.parquet"
            if line["evaluation"] and path.exists():
                pair = before.join(pl.read_parquet(path), on="unit", suffix="_now").drop_nulls()
                looks.append((line["cpu_seconds"], (pair["value_now"] - pair["value"]).to_numpy()))
        return first_proof(looks, planned=len(looks)) if looks else None


def _reward(written: str | dict[str, str] | None) -> Signal | dict[str, Signal] | None:
    if isinstance(written, dict):
        return {name: parse(text) for name, text in written.items()}
    return None if written is None else parse(written)
