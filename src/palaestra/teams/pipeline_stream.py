"""A stream of simulated competitions for a worker with a memory: `palaestra analyze pipelines tasks.json`."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl

from palaestra.errors import InputError
from palaestra.evaluation.analyses import ANALYSES, Analysis, table
from palaestra.evaluation.ranking import medal
from palaestra.teams.nested_memory import NestedMemory, Retrieval, Setup, set_up, solve

NEEDED = ("contest", "kinds", "needed", "fixes", "optimum", "leaderboard")


def play_stream(
    tasks: pl.DataFrame, memory: NestedMemory, *, tries: int = 3, budget: int = 16, members: int = 3, seed: int = 0
) -> pl.DataFrame:
    """Simulate a worker with a `NestedMemory` through ML contests, rows of a table in order; DataFrame, a row each.

    Args:
        tasks: a row per competition: contest; kinds and needed, the kind of each set-up stage and the fix that it
            needs; fixes, how many there are; optimum, the best settings of its model, in [0, 1]; leaderboard, the
            others' scores.
        memory: of the worker, which goes from task to task.
        tries: attempts at a stage.
        budget: models that are trained on a task.
        members: most models of an ensemble.
        seed: of choices and of the models' noise.

    Returns:
        `contest, system, score, rank, teams, medal, valid, passed, first, stages, attempts, members`: passed, stages
        that passed their test; first, those that passed at the first attempt. A submission that is not valid has no
        score and the last rank.
    """
    rows = []
    for number, task in enumerate(tasks.iter_rows(named=True)):
        rng = np.random.default_rng([seed, number])
        setup = Setup(task["kinds"], task["needed"], int(task["fixes"]))
        if len(setup.kinds) != len(setup.needed) or max(setup.needed, default=0) >= setup.fixes:
            raise InputError(f"contest {task['contest']!r}: every stage needs one fix below fixes={setup.fixes}")
        done = set_up(setup, memory, rng, tries=tries)
        score, used = None, 0
        if done.valid:
            score, used = _submit(np.array(task["optimum"], float), rng, budget=budget, members=members)
        others = np.array(task["leaderboard"], float)
        teams = len(others) + 1
        rank = teams if score is None else 1 + int((others > score).sum())
        rows.append({
            "contest": task["contest"], "system": "agent", "score": score, "rank": rank, "teams": teams,
            "medal": None if score is None else medal(rank, teams), "valid": done.valid, "passed": sum(done.passed),
            "first": sum(done.first),
            "stages": len(setup.kinds), "attempts": done.attempts, "members": used,
        })  # fmt: skip
    return pl.DataFrame(rows, schema_overrides={"score": pl.Float64, "medal": pl.String}, infer_schema_length=None)


def _submit(optimum: np.ndarray, rng: np.random.Generator, *, budget: int, members: int) -> tuple[float, int]:
    """Score of a submission on test rows, minus its error there, and the size of its ensemble.

    A model errs the more the farther its settings are from the optimum, and by noise of its own.
    """
    truth, half = rng.normal(size=400), slice(0, 200)

    def train(settings: np.ndarray) -> np.ndarray:
        off = float(((settings - optimum) ** 2).sum())
        return truth * (1 - min(off, 1.0)) + rng.normal(0, 0.3, len(truth))

    def score(predicted: np.ndarray) -> float:
        return -float(((predicted[half] - truth[half]) ** 2).mean())

    predicted, used = solve(train, score, len(optimum), rng, budget=budget, members=members)
    return -float(((predicted[200:] - truth[200:]) ** 2).mean()), used


@ANALYSES.register("pipelines")
def pipelines(
    retrieve: Retrieval = "reward", *, tries: int = 3, budget: int = 16, members: int = 3, seed: int = 0
) -> Analysis:
    """Makes an analysis (file of tasks -> DataFrame): a pipeline worker with memory in simulated ML contests.

    TASKS has contest, kinds, needed, fixes, optimum and leaderboard.

    retrieve: what its long-term memory gives: the best attempt by "reward", a "random" one, or "none".
    """
    if retrieve not in ("reward", "random", "none"):
        raise InputError(f"analysis pipelines: retrieve={retrieve!r} is one of reward, random, none")

    def answer(tasks: Path) -> pl.DataFrame:
        memory = NestedMemory(retrieve)
        return play_stream(table(tasks, *NEEDED), memory, tries=tries, budget=budget, members=members, seed=seed)

    return answer
