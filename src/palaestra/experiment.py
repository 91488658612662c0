"""One seed of a recipe: make the team, warm it up, train it, and play every system on the same held-out tasks.

The start, the trained team and the controls meet the same tasks with the same random numbers. Everything is written to
the seed's directory as it comes, so that an interrupted seed goes on where it stopped.
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import polars as pl

from palaestra import build
from palaestra.agents import Team
from palaestra.envs.base import EnvFactory
from palaestra.evaluation import first_proof, success_interval, trials
from palaestra.learning import PolicyGradient, Trainer, checkpoints, demonstrations, supervised_warm_start
from palaestra.learning.journal import Journal, write_json
from palaestra.measures import AVERAGE, Table, measure, table_of
from palaestra.parse import parse
from palaestra.recipe import Recipe, override
from palaestra.rollout import rollout
from palaestra.turns import Turns

FINAL, LOOK = 0, 1
"""Seeds of the held-out tasks of the final comparison and of the looks during training: the same for every run."""


def run_seed(
    recipe: Recipe, seed: int, directory: Path, *, resume: bool = False, progress: bool = False
) -> dict[str, Any]:
    """Train and evaluate one seed; returns, and writes to `result.json`, what the summary needs of it."""
    finished = directory / "result.json"
    if resume and finished.exists():
        return json.loads(finished.read_text())  # type: ignore[no-any-return]
    began, cpu = time.perf_counter(), time.process_time()
    trained = Training(recipe, seed, directory, resume=resume, progress=progress)
    lines = trained.run()
    systems = {"before": (trained.test, trained.start), "after": (trained.test, trained.team)}
    for name, part in recipe.evaluation.controls.items():
        if part.train is not None:
            variant = override(
                recipe, {**part.train, "evaluation": {"controls": dict.fromkeys(recipe.evaluation.controls)}}
            )
            control = Training(variant, seed, directory / f"control-{name}", resume=resume, progress=progress)
            control.run()
            systems[name] = (control.test, control.team)
        elif part.teacher is not None:
            field = f"evaluation.controls.{name}.teacher"
            systems[name] = (
                trained.test,
                build.scripted_team(part.teacher, part.options, trained.test, field, seed=seed),
            )
        else:
            variant = override(recipe, {"policies": {k: v.model_dump() for k, v in (part.policies or {}).items()}})
            systems[name] = (trained.test, build.team(variant, trained.test, seed=seed, corpus=trained.corpus))
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
        "wall_seconds": time.perf_counter() - began,
        "cpu_seconds": time.process_time() - cpu,
    }
    write_json(finished, result)
    return result


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


def judged(recipe: Recipe) -> pl.Expr | None:
    """Whose rows count in the evaluation."""
    agents = recipe.evaluation.agents
    return None if agents is None else pl.col("agent").cast(pl.String).is_in(list(agents))


class Training:
    """The part of a seed that learns: team, warm start, trainer, looks."""

    def __init__(self, recipe: Recipe, seed: int, directory: Path, *, resume: bool, progress: bool) -> None:
        self.recipe, self.seed, self.directory = recipe, seed, directory
        self.resume, self.progress = resume, progress
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
        self.played = rollout(
            self.train, script, groups=teacher.groups if teacher else 64, seed=seed, iteration=0, run=str(seed)
        )
        frame = self.played.frame
        self.corpus = [*frame["observation"].drop_nulls(), *frame["action"].drop_nulls()]
        self.team = build.team(recipe, self.train, seed=seed, corpus=self.corpus)
        self._warm_up()
        self.start = self.team.frozen_copy()
        self.tables = Journal(directory / "tables.jsonl")
        self.tables.rewind(recipe.train.iterations if resume else 0)

    def _warm_up(self) -> None:
        """Supervised learning on scripted play, kept on disk so that a resume starts from the same parameters."""
        part, folder = self.recipe.warm_start, self.directory / "start"
        found = checkpoints.latest(folder) if self.resume else None
        if found is not None:
            self.team.load_state_dict(checkpoints.load(found)["team"])
            return
        if part is not None and part.steps:
            examples = demonstrations(self.played, self.team, choices=self._choices())
            supervised_warm_start(
                self.team, examples, steps=part.steps, batch=part.batch, lr=part.lr, seed=self.seed,
                progress=self.progress,
            )  # fmt: skip
        checkpoints.save(folder, 0, {"iteration": 0, "team": self.team.state_dict()})

    def _choices(self) -> tuple[str, ...] | None:
        """All actions of a discrete env, by which policies that are not language models number them."""
        return next(iter(self.train().reset(0).values())).choices

    def run(self) -> list[dict[str, Any]]:
        """Train to the end and return the metrics."""
        recipe = self.recipe
        learner = PolicyGradient(self.team, **recipe.learn.model_dump())
        self._look_at(self.start, 0)
        trainer = Trainer(
            self.train,
            self.team,
            credit=parse(recipe.credit),
            reward=None if recipe.reward is None else parse(recipe.reward),
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
        """Held-out play during training; each task's mean goes to disk for `seconds_to_proof`."""
        played = evaluation_rollout(self.recipe, self.test, team, seed=LOOK, run=str(self.seed), look=True)
        table = trials(played, where=judged(self.recipe))
        value = "success" if table["success"].null_count() < len(table) else "score"
        by_task = table.group_by("task").agg(pl.col(value).cast(pl.Float64).mean().alias("value")).sort("task")
        by_task.write_parquet(self.directory / f"look-{iteration:06d}.parquet")
        look = {"success": None, "low": None, "high": None, "score": table["score"].mean(), "n": len(table)}
        if value == "success":
            estimate = success_interval(table)
            look |= {"success": estimate.mean, "low": estimate.low, "high": estimate.high}
        return look

    def seconds_to_proof(self, lines: list[dict[str, Any]]) -> float | None:
        """Training CPU-seconds until the improvement was significant at 5 %, corrected for the looks."""
        before = pl.read_parquet(self.directory / "look-000000.parquet")
        looks = []
        for line in lines:
            path = self.directory / f"look-{line['iteration']:06d}.parquet"
            if line["evaluation"] and path.exists():
                pair = before.join(pl.read_parquet(path), on="task", suffix="_now").drop_nulls()
                looks.append((line["cpu_seconds"], (pair["value_now"] - pair["value"]).to_numpy()))
        return first_proof(looks, planned=len(looks)) if looks else None
