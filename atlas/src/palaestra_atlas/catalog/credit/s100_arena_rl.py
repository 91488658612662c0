"""[100] ArenaRL (arXiv 2601.06487): a seeded bracket ranks a group nearly as well as everyone against everyone.

16 items with qualities from N(0, 1), a judge whose view of a difference has noise of deviation 1 in each order, and
whose scores are whole numbers from 0 to 10. What a topology finds is compared with the true order; then a policy is
trained on nothing but such comparisons. Left out: language models as judges.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.stats import rankdata

from palaestra.algebra.turns import Turns
from palaestra.credit import arena_rl, tournament
from palaestra.credit.tournaments import Topology
from palaestra_atlas.reproductions import Outcome, reproduction, train_arms

ITEMS, NOISE, REPEATS = 16, 1.0, 30
TOPOLOGIES: tuple[Topology, ...] = ("round_robin", "seeded_single", "anchor", "single_elimination")
SETTING = {
    "env": {"options": {"tasks": 2, "answers": 6}},
    "credit": "arena_rl()",
    "learn": {"lr": 0.2},
    "train": {"iterations": 40, "groups": 4, "group_size": 8},
}


def worked_error() -> float:
    """Standardised rewards of eight ranks; of a winner by far and two equals, whom points would tell apart."""
    keys = {"group": [0] * 8, "episode": range(8), "turn": [0] * 8, "agent": ["a"] * 8, "arena": range(7, -1, -1)}
    even = np.asarray(arena_rl().evaluate(Turns(keys)))[:4] - [1.4289, 1.0206, 0.6124, 0.2041]
    points = {"arena": [100.0, 7.0, 7.0, 1.0, 0.5, 0.4, 0.2, 0.1]}
    place = np.array([1.0, 6 / 7, 6 / 7, 4 / 7, 3 / 7, 2 / 7, 1 / 7, 0.0])
    far = np.asarray(arena_rl().evaluate(Turns(keys | points))) - (place - place.mean()) / place.std(ddof=1)
    return float(np.abs(np.concatenate([even, far])).max())


def judged(quality: np.ndarray, rng: np.random.Generator) -> dict[str, tuple[np.ndarray, int]]:
    """Score of each item and number of comparisons, by way of judging."""

    def judge(i: int, j: int) -> tuple[float, float]:
        lead = quality[i] - quality[j] + NOISE * rng.normal()
        return round(min(max(5 + lead, 0), 10)), round(min(max(5 - lead, 0), 10))

    found: dict[str, tuple[np.ndarray, int]] = {}
    for topology in TOPOLOGIES:
        standing = tournament(range(ITEMS), judge, topology=topology, rng=rng)
        found[topology] = standing.score, standing.comparisons
    alone = np.rint(np.clip(7 + quality / 2 + NOISE * rng.normal(size=ITEMS), 0, 10))  # one by one, scores crowd
    return found | {"pointwise": (alone, ITEMS)}


def agreement(score: np.ndarray, quality: np.ndarray) -> float:
    """Spearman's correlation; 0 if all scores are equal."""
    return 0.0 if np.ptp(score) == 0 else float(np.corrcoef(rankdata(score), rankdata(quality))[0, 1])


@reproduction(
    100,
    claim="Ranking by a seeded bracket comes closer to a full round robin than an anchor or single scores do, at a "
    "number of comparisons that grows with the group only; a policy learns from its standings alone.",
    baseline="anchor comparisons, an unseeded bracket, scores given one by one with the same noise; training on "
    "standings without any truth in them",
    criterion="worked rewards by rank to 4 decimals; Spearman with the truth: round robin > seeded > anchor > "
    "pointwise; right answers at the end >= 0.6 with the seeded bracket and at least 0.3 above a judge who guesses; "
    "should hold in 9 of 10 blocks of three fresh seeds",
    seeds=(0, 1, 2),
    slow=True,
)
def measure(seeds: Sequence[int]) -> Outcome:
    """30 groups per seed; then trained as by `palaestra train answers stages='tournament("correct")' …`."""
    error = worked_error()
    agreements: dict[str, list[float]] = {}
    regrets: dict[str, list[float]] = {}
    costs: dict[str, int] = {}
    for seed in seeds:
        rng = np.random.default_rng(seed)
        for _ in range(REPEATS):
            quality = rng.normal(size=ITEMS)
            for name, (score, comparisons) in judged(quality, rng).items():
                agreements.setdefault(name, []).append(agreement(score, quality))
                regrets.setdefault(name, []).append(float(quality.max() - quality[np.argmax(score)]))
                costs[name] = comparisons
    found = {name: float(np.mean(values)) for name, values in agreements.items()}
    arms = train_arms(
        "answers",
        {
            "judged": SETTING | {"stages": [f'tournament("correct", noise={NOISE})']},
            "guessed": SETTING | {"stages": [f'tournament("0 * turn", noise={NOISE})']},
        },
        seeds,
        lambda learned: {"right": np.mean(learned.curve()[-8:])},
    )
    measured = {"worked_error": error} | {f"spearman_{name}": value for name, value in found.items()}
    measured |= {f"regret_of_best_{name}": float(np.mean(values)) for name, values in regrets.items()}
    measured |= {f"comparisons_{name}": float(cost) for name, cost in costs.items()} | arms.measured()
    ordered = [found[name] for name in ("round_robin", "seeded_single", "anchor", "pointwise")]
    learns = arms.mean("judged", "right") >= 0.6 and arms.gain("judged", "guessed", "right")[0] >= 0.3
    return Outcome(measured, error <= 1e-4 and sorted(set(ordered), reverse=True) == ordered and learns)
