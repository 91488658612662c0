"""[61] A-GRAE (arXiv 2602.05548): group-relative advantages are symmetric; A-GRAE breaks that.

The identities are exact. Exploration is looked at on tasks with several right answers: how much of them is alive when
the share of right ones is the same. The optimiser undoes any common factor of the advantages, so that the comparison
with GRPO is one at equal size. Left out: language models, on which the paper's gains were measured.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl

from palaestra.algebra.turns import Turns
from palaestra.credit import a_grae, grpo
from palaestra_atlas.reproductions import Outcome, reproduction, train_arms

GROUP, GOAL = 8, 0.95
SETTING = {
    "env": {"options": {"tasks": 2, "answers": 20, "right": 4}},
    "learn": {"lr": 0.1},
    "train": {"iterations": 80, "groups": 4, "group_size": 8},
}


def groups() -> tuple[Turns, np.ndarray]:
    """A group for every number of successes from 1 to 7 among 8, and those numbers."""
    number = np.repeat(np.arange(1, GROUP), GROUP)
    episode = np.tile(np.arange(GROUP), GROUP - 1)
    table = {"group": number, "episode": episode, "turn": episode * 0, "agent": ["answerer"] * len(number)}
    return Turns(table | {"reward": (episode < number).astype(float)}), np.arange(1, GROUP)


def identities() -> dict[str, float]:
    """Errors of Σ|Â| = 2G√(p(1 - p)), of the balance of both signs, and of A-GRAE's formula with ω = 1/2."""
    turns, number = groups()
    plain = np.asarray(grpo(ddof=0, eps=0.0).evaluate(turns)).reshape(GROUP - 1, GROUP)
    ours = np.asarray(a_grae(ddof=0, eps=0.0).evaluate(turns)).reshape(GROUP - 1, GROUP)
    p = number[:, None] / GROUP
    weighted = plain * (0.25 / np.sqrt(p) + 0.25 / np.sqrt(1 - p))
    worked = [[0.2293, -0.3821, -0.3821, -0.3821], [1.2685, -0.5285, -0.5285, -0.5285]]
    early, late = (worked_error(progress, expected) for progress, expected in zip((0.2, 0.8), worked, strict=True))
    return {
        "worked_error": max(early, late),
        "total_error": float(np.abs(np.abs(plain).sum(axis=1) - 2 * GROUP * np.sqrt(p * (1 - p))[:, 0]).max()),
        "balance_error": float(np.abs(plain.sum(axis=1)).max()),
        "formula_error": float(np.abs(ours - np.where(plain > 0, weighted / 2, weighted)).max()),
    }


def worked_error(progress: float, expected: list[float]) -> float:
    """One success in four, in a batch whose mean score is `progress`; worked out by hand with the population's σ."""
    others = {0.2: [1.0] + [0.0] * 5, 0.8: [1.0] * 15 + [0.0]}[progress]  # mean of all: 2/10 and 16/20
    scores = [1.0, 0.0, 0.0, 0.0, *others]
    number = range(len(scores))
    keys = {"group": [0] * 4 + [1] * len(others), "episode": number, "turn": [0] * len(scores)}
    turns = Turns(keys | {"agent": ["answerer"] * len(scores), "reward": scores})
    return float(np.abs(np.asarray(a_grae(ddof=0, eps=0.0).evaluate(turns))[:4] - expected).max())


def alive(turns: Turns) -> float:
    """Entropy over the right answers that were given, nats, mean over the tasks."""
    right = turns.frame.filter("correct").group_by("task", "answer").len()
    shares = right.with_columns(share=pl.col("len") / pl.col("len").sum().over("task"))
    entropies = shares.group_by("task").agg((-pl.col("share") * pl.col("share").log()).sum())
    return float(entropies["share"].mean())  # type: ignore[arg-type]


@reproduction(
    61,
    claim="Group-relative advantages weigh both signs alike and favour groups that half succeed; A-GRAE's weights "
    "change both.",
    baseline="GRPO; how many right answers are alive when 95% of a batch are right is reported for both, not judged",
    criterion="worked numbers early and late in training to 3 decimals, identities equal to 1e-9; it learns: right "
    "answers at the end >= 0.9",
    seeds=tuple(range(2000, 2020)),
    slow=True,
)
def measure(seeds: Sequence[int]) -> Outcome:
    """The identities; then trained as by `palaestra train answers credit="a_grae()"`."""
    found: dict[str, dict[int, float]] = {}
    runs: dict[str, int] = {}

    def watch(arm: str, iteration: int, turns: Turns) -> None:
        runs[arm] = runs.get(arm, 0) + (iteration == 1)
        if turns["correct"].mean() >= GOAL:  # type: ignore[operator]
            found.setdefault(arm, {}).setdefault(runs[arm], alive(turns))

    arms = train_arms(
        "answers",
        {name: SETTING | {"credit": f"{name}()"} for name in ("a_grae", "grpo")},
        seeds,
        lambda learned: {"right": np.mean(learned.curve()[-10:])},
        on_turns=watch,
    )
    errors = identities()
    exact = errors["worked_error"] <= 1e-3 and max(errors["total_error"], errors["balance_error"]) <= 1e-9
    measured = errors | arms.measured()
    measured |= {f"alive_{arm}": float(np.mean(list(each.values()))) for arm, each in found.items()}
    return Outcome(measured, exact and errors["formula_error"] <= 1e-9 and arms.mean("a_grae", "right") >= 0.9)
