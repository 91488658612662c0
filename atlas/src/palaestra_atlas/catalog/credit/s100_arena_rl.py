"""[100] ArenaRL (arXiv 2601.06487): a seeded bracket ranks a group nearly as well as everyone against everyone.

16 items with qualities from N(0, 1), a judge whose view of a difference has noise of deviation 1 in each order, and
whose scores are whole numbers from 0 to 10. What a topology finds is compared with the true order; then a policy is
trained on nothing but such comparisons. Left out: language models as judges.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import polars as pl
from scipy.special import expit
from scipy.stats import rankdata

from palaestra.algebra.turns import Turns
from palaestra.credit import arena_rl, by_group, tournament
from palaestra.credit.tournaments import Topology
from palaestra.learning.stages import Context
from palaestra.learning.stages.tournament import tournament as rank_stage
from palaestra_atlas.reproductions import Outcome, exact, reproduction, train_arms
from palaestra_atlas.verification.measures import Left, Measure

ITEMS, NOISE, REPEATS = 16, 1.0, 30
TOPOLOGIES: tuple[Topology, ...] = ("round_robin", "seeded_single", "anchor", "single_elimination")
SETTING = {
    "env": {"options": {"tasks": 2, "answers": 6}},
    "credit": "arena_rl()",
    "learn": {"lr": 0.2},
    "train": {"iterations": 40, "groups": 4, "group_size": 8},
}


@exact
def rank_rewards() -> None:
    """Standardised rewards of eight ranks; of a winner by far and two equals, whom points would tell apart."""
    keys = {"group": [0] * 8, "episode": range(8), "turn": [0] * 8, "agent": ["a"] * 8, "arena": range(7, -1, -1)}
    even = np.asarray(arena_rl().evaluate(Turns(keys)))
    np.testing.assert_allclose(even[:4], [1.4289, 1.0206, 0.6124, 0.2041], atol=5e-5)
    points = {"arena": [100.0, 7.0, 7.0, 1.0, 0.5, 0.4, 0.2, 0.1]}
    place = np.array([1.0, 6 / 7, 6 / 7, 4 / 7, 3 / 7, 2 / 7, 1 / 7, 0.0])
    far = np.asarray(arena_rl().evaluate(Turns(keys | points)))
    np.testing.assert_allclose(far, (place - place.mean()) / place.std(ddof=1), atol=1e-5)


@exact
def last_rows() -> None:
    """Rows in any order: items are those of the last turns, by the episodes' numbers; three turns are one episode.

    Ranks 1, 2, 2, rewards 1, 0, 0: their mean is 1/3, their deviation 1/√3.
    """
    seen: list[list[str]] = []
    episode = [2, 0, 1, 0, 0, 2]
    keys = {"group": [0] * 6, "episode": episode, "turn": [1, 2, 0, 0, 1, 0], "agent": ["a"] * 6}

    def points(items: list[str]) -> list[float]:
        seen.append(items)
        return [{"b": 9.0, "c": 4.0, "d": 4.0}[item] for item in items]

    turns = by_group(Turns(keys | {"action": ["c", "b", "d", "x", "y", "z"]}), points, name="arena")
    assert seen == [["b", "d", "c"]]
    credit = np.array([2, -1, -1])[episode] / np.sqrt(3)
    np.testing.assert_allclose(np.asarray(arena_rl().evaluate(turns)), credit, atol=1e-5)


@exact
def bracket_ranks() -> None:
    """Spearman's correlation with the truth, as on the card: seeded .766, anchor .663, unseeded .595, at 30 pairs."""
    found: dict[str, list[float]] = {}
    rng = np.random.default_rng(0)
    for _ in range(150):
        quality, noise = rng.normal(size=ITEMS), rng.normal(size=(ITEMS, ITEMS))
        lead = quality[:, None] - quality + NOISE * (np.triu(noise) - np.triu(noise).T)  # one view of each pair
        scores = np.rint(np.clip(np.stack([5 + lead, 5 - lead]), 0, 10))
        for name in ("seeded_single", "anchor", "single_elimination"):
            judge = lambda i, j, of=scores: of[:, i, j]  # noqa: E731
            standing = tournament(range(ITEMS), judge, topology=name, rng=rng)  # type: ignore[arg-type]
            found.setdefault(name, []).append(agreement(standing.score, quality))
            assert name != "seeded_single" or standing.comparisons == 2 * (ITEMS - 1)
    means = [float(np.mean(values)) for values in found.values()]
    np.testing.assert_allclose(means, [0.766, 0.663, 0.595], atol=0.03)


@exact
def best_meet_late() -> None:
    """Of a judge who never errs: the two best, wherever they stand, come first and second."""
    for first, second in ((0, 1), (3, 7), (5, 4)):
        quality = np.arange(8) / 100
        quality[[first, second]] = 2, 1
        score = tournament(range(8), lambda i, j, q=quality: (q[i], q[j])).score  # type: ignore[misc]
        assert np.argsort(-score)[:2].tolist() == [first, second]


@exact
def both_orders() -> None:
    """A judge who gives more to whoever is shown first cannot tell equals apart."""
    score = tournament(range(6), lambda i, j: (7.0, 3.0), topology="round_robin").score
    np.testing.assert_array_equal(score, np.full(6, 2.5))


@exact
def stage_ranks() -> None:
    """The stage's standings agree better with the truth than single scores of the same noise, whose Pearson is .71."""
    groups, rng = 60, np.random.default_rng(1)
    quality = rng.normal(size=(groups, ITEMS))
    group, episode = (axis.ravel() for axis in np.indices(quality.shape))
    keys = {"group": group, "episode": episode, "turn": 0 * group, "agent": ["a"] * len(group)}
    context = Context(rng, 1, None, None, None)  # type: ignore[arg-type]
    turns = rank_stage("quality", noise=NOISE)(Turns(keys | {"quality": quality.ravel()}), context)
    found = turns["arena"].to_numpy().reshape(quality.shape)
    assert 0.78 < np.mean([agreement(*each) for each in zip(found, quality, strict=True)]) < 0.95
    assert sorted(found[0]) == list(range(ITEMS))


def told_apart() -> Measure:
    """How much more credit right answers have than wrong ones of their group, over groups with both, per seed."""

    def measured(left: Left) -> list[float]:
        found = []
        for seed in left.seeds():
            turns = Turns.load(seed / "turns").frame
            means = turns.group_by("iteration", "group").agg(
                pl.col("advantage").filter("correct").mean() - pl.col("advantage").filter(~pl.col("correct")).mean()
            )
            found.append(float(means["advantage"].mean()))  # type: ignore[arg-type]
        return found

    return measured


class Alone:
    """Scores of answers one by one, whole numbers from 0 to 10 around 7 that crowd, as those of single reports do.

    Args:
        calls: scores whose mean an answer gets. Four for each of eight answers are more than a seeded bracket asks for:
            28, of 2 · (8 - 1) pairs in two orders.
        crowded: False: the tournament's judge, 10·σ(correct - 1/2 + N(0, 1)), who compares with something in between.
    """

    name = "alone"

    def __init__(self, calls: int = 4, *, crowded: bool = True) -> None:
        self.calls, self.crowded = calls, crowded

    def score(self, rows: pl.DataFrame, **_: object) -> pl.Series:
        """A number per row; the noise is drawn by the episodes' seeds."""
        noise = NOISE * np.random.default_rng(rows["seed"].to_list()).normal(size=(len(rows), self.calls))
        right = rows["correct"].cast(float).to_numpy()[:, None]
        points = np.rint(np.clip(7 + right / 2 + noise, 0, 10)) if self.crowded else 10 * expit(right - 0.5 + noise)
        return pl.Series("score", points.mean(axis=1))


def judge_of(quality: np.ndarray, rng: np.random.Generator) -> Callable[[int, int], tuple[float, float]]:
    """A noisy judge of two items, with whole numbers from 0 to 10."""

    def judge(i: int, j: int) -> tuple[float, float]:
        lead = quality[i] - quality[j] + NOISE * rng.normal()
        return round(min(max(5 + lead, 0), 10)), round(min(max(5 - lead, 0), 10))

    return judge


def judged(quality: np.ndarray, rng: np.random.Generator) -> dict[str, tuple[np.ndarray, int]]:
    """Score of each item and number of comparisons, by way of judging."""
    judge = judge_of(quality, rng)
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
    criterion="Spearman with the truth: round robin > seeded > anchor > "
    "pointwise; right answers at the end >= 0.6 with the seeded bracket and at least 0.3 above a judge who guesses; "
    "should hold in 9 of 10 blocks of three fresh seeds",
    seeds=(0, 1, 2),
    slow=True,
)
def measure(seeds: Sequence[int]) -> Outcome:
    """30 groups per seed; then trained as by `palaestra train answers stages='tournament("correct")' …`."""
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
    measured = {f"spearman_{name}": value for name, value in found.items()}
    measured |= {f"regret_of_best_{name}": float(np.mean(values)) for name, values in regrets.items()}
    measured |= {f"comparisons_{name}": float(cost) for name, cost in costs.items()} | arms.measured()
    ordered = [found[name] for name in ("round_robin", "seeded_single", "anchor", "pointwise")]
    learns = arms.mean("judged", "right") >= 0.6 and arms.gain("judged", "guessed", "right")[0] >= 0.3
    return Outcome(measured, sorted(set(ordered), reverse=True) == ordered and learns)
