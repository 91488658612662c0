"""[116] Iterative agent decoding (arXiv 2504.01931): keep the best answer and change it, or draw n and choose.

Twelve parts, each right half of the time; a change redraws some of them, wrong ones rather if the feedback is faithful.
All through the workflow `refine` with its three conditions and verifiers with and without noise. A reconstruction: the
paper's code is not public. Left out: critiques in words.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from palaestra.agents import ScriptedPolicy, Team
from palaestra.agents.policy import Request
from palaestra.envs.tasks import Task, TaskEnv
from palaestra.evaluation.teamwork import best_of_n
from palaestra.play.rollout import rollout
from palaestra.teams import workflows
from palaestra_atlas.reproductions import Outcome, exact, reproduction

PARTS, TRIES, TASKS, REDRAWN, FAITHFUL = 12, 16, 60, 0.25, 0.8
WORKED = {(1.0, 0.0): (0.51, 0.76, 0.94), (0.8, 0.2): (0.425, 0.551, 0.619), (0.6, 0.4): (0.34, 0.376, 0.389)}


class Parts(TaskEnv):
    """Every part should be 1; who answers does not know it."""

    def draw(self, seed: int) -> Task:
        """Of a seed."""
        return Task(f"{seed}", "twelve parts", lambda text: text.count("1") / PARTS, None)


class Marked(TaskEnv):
    """Four parts, each of which should be 1."""

    def draw(self, seed: int) -> Task:
        """Of a seed."""
        return Task(f"{seed}", "?", lambda text: text.count("1") / 4, "1111")


def attempts(condition: str, answers: Sequence[str], **options: Any) -> pl.DataFrame:
    """These answers, one after the other, and what was read before each."""
    left = iter(answers)
    env = workflows.refine(Marked, len(answers), condition=condition, stop="never()", **options)
    policy = ScriptedPolicy(lambda request: next(left), name="s")
    return rollout(env, Team(solver=policy), groups=1, seed=0, timeout=None).frame.sort("turn")


@exact
def made_from_the_best() -> None:
    """Each attempt reads the best so far, or the last one, or nothing."""
    answers = ("1100", "1111", "1000", "0000")
    read = {condition: attempts(condition, answers)["observation"].to_list() for condition in ("best", "last", "none")}
    assert read["best"] == ["?", "? | 1100", "? | 1111", "? | 1111"]
    assert read["last"] == ["?", "? | 1100", "? | 1111", "? | 1000"]
    assert read["none"] == ["?"] * 4


@exact
def kept_if_better() -> None:
    """A new attempt replaces the best only if it scores higher; in self-refinement the last one counts."""
    answers = ("1100", "1111", "1000")
    paid = {condition: attempts(condition, answers)["reward"].to_list()[-1] for condition in ("best", "last", "none")}
    assert paid == {"best": 1.0, "last": 0.25, "none": 1.0}
    assert attempts("best", ("1100", "0011", "1111"))["observation"][2] == "? | 1100"  # as good is not better


@exact
def told_what_is_wrong() -> None:
    """Marks are on the parts that are wrong; a score tells how many are right."""
    assert attempts("best", ("1001", "1111"), feedback="marks")["observation"][1] == "? | 1001 | 1__1"
    assert attempts("best", ("1001", "1111"), feedback="score")["observation"][1] == "? | 1001 | 0.50"


@exact
def worst_beside_best() -> None:
    """The third attempt reads the best and the worst of those before it."""
    read = attempts("best", ("1000", "1110", "1111"), worst=True)["observation"].to_list()
    assert read == ["?", "? | 1000", "? | 1110 | 1000"]


@exact
def verifier_curves() -> None:
    """Best-of-n at n = 2, 4, 8 under three verifiers; a verifier without chance in play does what its rates say."""
    for (tpr, fpr), row in WORKED.items():
        found = [best_of_n(0.3, n, tpr=tpr, fpr=fpr) for n in (2, 4, 8)]
        np.testing.assert_allclose(found, row, atol=0.006)
    turned = attempts("best", ("1000", "1111"), verifier="accepts(tpr=0.0, fpr=1.0)")
    assert turned["reward"].to_list()[-1] == 0.25


class Twelve(TaskEnv):
    """Twelve parts, each of which should be 1; a checker can tell which are."""

    def draw(self, seed: int) -> Task:
        """Of a seed."""
        return Task(f"{seed}", "twelve parts", lambda text: text.count("1") / PARTS, "1" * PARTS)


def mender() -> Callable[[Request], str]:
    """Each part right half of the time; then some of those that the checker marks are made anew."""

    def say(request: Request) -> str:
        _, *told = request.observation.text.split(" | ")
        fresh = ["01"[int(part)] for part in request.rng.random(PARTS) < 0.5]
        if not told:
            return "".join(fresh)
        own, marked = told[0], told[-1] if len(told) > 1 else "_" * PARTS
        again = request.rng.random(PARTS) < REDRAWN
        return "".join(new if mark == "_" and turn else old for old, new, mark, turn in zip(own, fresh, marked, again))

    return say


def recipe(seed: int, folder: Path) -> None:
    """Writes the recipe of one who answers in parts, with a checker, `parts.yaml`."""
    here = __name__
    made = {
        "name": "parts",
        "env": {"make": f"{here}:Twelve"},
        "policies": {"mender": {"kind": "script", "options": {"script": f"{here}:mender"}}},
        "team": {"*": "mender"},
        "credit": "return_to_go()",
        "learn": {"kind": "play"},
        "train": {"iterations": 1, "groups": 150, "group_size": 1},
        "evaluation": {"tasks": 2, "trials": 1, "look_tasks": 2, "look_trials": 1},
    }
    (folder / "parts.yaml").write_text(json.dumps(made))


def played(condition: str, fidelity: float, noise: float, seed: int) -> float:
    """Mean score of the answer that is chosen."""

    def say(request: Request) -> str:
        _, *own = request.observation.text.split(" | ")
        fresh = request.rng.random(PARTS) < 0.5
        if not own:
            return "".join("01"[int(part)] for part in fresh)
        before = np.array([part == "1" for part in own[0]])
        chance = REDRAWN * (1 - fidelity) + fidelity * ~before * 2 * REDRAWN
        changed = np.where(request.rng.random(PARTS) < chance, fresh, before)
        return "".join("01"[int(part)] for part in changed)

    env = workflows.refine(Parts, TRIES, condition=condition, stop="never()", verifier=f"noisy({noise})")
    turns = rollout(env, Team(solver=ScriptedPolicy(say, name="s")), groups=TASKS, seed=seed, timeout=None).frame
    return float(turns.sort("turn").group_by("group").last()["reward"].mean())  # type: ignore[arg-type]


@reproduction(
    116,
    claim="With faithful feedback and an exact verifier, to change the best answer so far beats changing the last one, "
    "and both beat best-of-n; with a verifier that is mostly noise, choosing by it loses to just going on.",
    baseline="best-of-n with as many tries; self-refinement without selection",
    criterion="mean over seeds, 16 tries: at fidelity .8 best > last > none by 0.02 each, exactly verified; at noise "
    ".3 last > best by 0.02; without feedback best > last by 0.1; worked curves of best-of-n to 0.003",
    seeds=(0, 1),
)
def measure(seeds: Sequence[int]) -> Outcome:
    """Conditions, feedback, noise."""
    cases = [(c, FAITHFUL, noise) for c in ("none", "last", "best") for noise in (0.0, 0.3)]
    cases += [("last", 0.0, 0.0), ("best", 0.0, 0.0)]
    found = {case: float(np.mean([played(*case, seed) for seed in seeds])) for case in cases}
    exact = max(
        abs(best_of_n(0.3, n, tpr=tpr, fpr=fpr) - value)
        for (tpr, fpr), row in WORKED.items() for n, value in zip((2, 4, 8), row, strict=True)
    )  # fmt: skip
    measured = {f"{c}_f{fidelity}_n{noise}": value for (c, fidelity, noise), value in found.items()}
    clear = found["best", FAITHFUL, 0.0] >= found["last", FAITHFUL, 0.0] + 0.02 >= found["none", FAITHFUL, 0.0] + 0.04
    crossed = found["last", FAITHFUL, 0.3] >= found["best", FAITHFUL, 0.3] + 0.02
    blind = found["best", 0.0, 0.0] >= found["last", 0.0, 0.0] + 0.1
    return Outcome(measured | {"curve_off": exact}, clear and crossed and blind and exact < 0.003)
