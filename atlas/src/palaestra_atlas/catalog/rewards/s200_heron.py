"""[200] HERON (arXiv 2309.02632): a ranking of what matters needs no weights, and no care for units.

Worked labels of four trajectories. Then 400 random ones whose energy is given in other units, times 1, 10 and 100: the
reward learned from lexicographic preferences stays what it was, a hand-made sum falls for the unit. The stage `heron`
learns a network anew in every iteration.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

import numpy as np
import polars as pl

from palaestra.agents import Team
from palaestra.agents.scripted import random_legal
from palaestra.algebra.signals import as_signal, standardise
from palaestra.algebra.turns import Turns
from palaestra.envs.worlds.jobs import Jobs
from palaestra.learning.stages.hierarchy import heron
from palaestra.learning.stages.stage import Context
from palaestra.play.rollout import rollout
from palaestra.rewards import bradley_terry, lexicographic, lexicographic_preference, pairs, reward_of
from palaestra_atlas.reproductions import Outcome, exact, reproduction

FACTORS, SIGNS = ("success", "energy", "smooth"), (1.0, -1.0, 1.0)
FOUR = np.array([[1, 5, 0.2], [1, 4, 0.9], [0, 1, 0.9], [0, 1.5, 0.1]])
LABELS = {(1, 0): 1, (2, 0): -1, (2, 1): -1, (3, 0): -1, (3, 1): -1, (3, 2): -1}
NUMBER, TOP, SCALES = 400, 100, (1.0, 10.0, 100.0)


def labels(trajectories: np.ndarray, *compared: tuple[int, int]) -> list[int]:
    """Which of two trajectories is better, with margins of one deviation of the four."""
    first, second = (trajectories[list(side)] for side in zip(*compared, strict=True))
    margins = tuple(FOUR.std(axis=0))
    found: list[int] = lexicographic_preference(first, second, signs=SIGNS, margins=margins).tolist()
    return found


@exact
def worked_labels() -> None:
    """The card's six labels, of which one is decided at the third level; the same order as a signal."""
    assert labels(FOUR, *LABELS) == list(LABELS.values())
    turns = Turns({"group": [0] * 4, "episode": range(4)} | dict(zip(FACTORS, FOUR.T, strict=True)))
    order = np.asarray(lexicographic(*FACTORS, signs=SIGNS).evaluate(turns))
    np.testing.assert_allclose(order, [1 / 3, 1, -1 / 3, -1])


@exact
def small_differences_do_not_count() -> None:
    """The first two with their smoothness exchanged: a small difference in energy leaves it to smoothness."""
    exchanged = FOUR.copy()
    exchanged[[0, 1], 2] = exchanged[[1, 0], 2]
    assert labels(exchanged, (1, 0)) == [-1]


@exact
def pairs_teach_weights() -> None:
    """Weights of the decided pairs order them again; their signs are those that were said."""
    weights, success, plain = learned(100.0, np.random.default_rng(0))
    assert np.sign(weights).tolist() == list(SIGNS)
    assert success > plain


def batch(seed: int, *, success: float = 0.5, spread: float = 100.0, number: int = 60) -> Turns:
    """Episodes whose energy is told in a large unit."""
    rng = np.random.default_rng(seed)
    keys = {"group": [0] * number, "episode": range(number), "turn": [0] * number, "agent": ["a"] * number}
    energy = 3 * spread + spread * rng.normal(size=number)
    return Turns({**keys, "success": rng.random(number) < success, "energy": energy})


def right(turns: Turns, paid: np.ndarray) -> float:
    """Share of decided pairs of a table that a reward orders right."""
    table = np.stack([turns["success"].cast(float), turns["energy"]], axis=-1)
    first, second = np.triu_indices(len(table), 1)
    said = lexicographic_preference(table[first], table[second], signs=(1, -1), margins=(0, float(table[:, 1].std())))
    return float((np.sign(paid[first] - paid[second]) == said)[said != 0].mean())


@exact
def the_network_orders_pairs() -> None:
    """Pairs of the episodes are ordered by the learned network as they were decided."""
    turns = batch(0)
    assert right(turns, heron("success", "energy", signs=(1, -1))(turns, _context(1))["heron"].to_numpy()) > 0.95


@exact
def the_network_is_refreshed() -> None:
    """First success varies alone, later energy alone: the pairs of late episodes are ordered right, too."""
    stage = heron("success", "energy", signs=(1, -1), buffer=60)
    stage(batch(0, spread=0.0), _context(1))
    late = batch(1, success=1.0)
    assert right(late, stage(late, _context(2))["heron"].to_numpy()) > 0.95


@exact
def programs_are_paid() -> None:
    """Play of the env of the use: what succeeds earns most, however long it takes."""
    turns = rollout(functools.partial(Jobs, broken=1), Team(engineer=random_legal()), groups=10, group_size=4, seed=0)
    paid = heron("success", "seconds", signs=(1, -1))(turns, _context(1))
    by = dict(paid.frame.group_by(pl.col("action").cast(str)).agg(pl.col("heron").mean()).iter_rows())
    assert by["slow"] > max(by["fast"], by["broken 0"]) + 1


def _context(iteration: int) -> Context:
    return Context(np.random.default_rng(iteration), iteration, None, None, None)  # type: ignore[arg-type]


def learned(scale: float, rng: np.random.Generator) -> tuple[np.ndarray, float, float]:
    """Weights of the standardised factors; success of the best hundred by them, and by success - energy + smooth."""
    success = (rng.random(NUMBER) < 0.4).astype(float)
    columns = {"success": success, "energy": scale * rng.normal(3, 1, NUMBER), "smooth": rng.random(NUMBER)}
    turns = Turns({"group": [0] * NUMBER, "episode": range(NUMBER)} | columns)
    factors = [standardise(name, over=(), ddof=0, eps=0.0) for name in FACTORS]
    compared = pairs(
        turns, *factors, compare=lambda a, b: lexicographic_preference(a, b, signs=SIGNS, margins=(0.0, 1.0, 1.0))
    )
    weights = bradley_terry(compared)
    plain = as_signal("success") - as_signal("energy") + as_signal("smooth")
    orders = (np.argsort(-np.asarray(r.evaluate(turns))) for r in (reward_of(weights, *factors), plain))
    rates = [success[order[:TOP]].mean() for order in orders]
    return weights, float(rates[0]), float(rates[1])


@reproduction(
    200,
    claim="A reward learned from lexicographic preferences ranks by what was said to matter, in whatever units.",
    baseline="success - energy + smoothness",
    criterion="weights equal to 1e-6 and success of the best hundred 1.00 for energy times 1, 10 and "
    "100, in every run; the sum's best hundred succeed less often at every scale, and at 100 less than at 1",
    seeds=(0, 1, 2, 3, 4),
    slow=True,
)
def measure(seeds: Sequence[int]) -> Outcome:
    """The three scales."""
    measured: dict[str, float] = {}
    found = {scale: [learned(scale, np.random.default_rng(seed)) for seed in seeds] for scale in SCALES}
    weights = np.array([[each[0] for each in runs] for runs in found.values()])
    measured["weights_shift"] = float(np.abs(weights - weights[0]).max())
    for name, weight in zip(FACTORS, weights[0].mean(axis=0), strict=True):
        measured[f"weight_{name}"] = float(weight)
    ours, theirs = (np.array([[each[k] for each in runs] for runs in found.values()]) for k in (1, 2))
    for scale, mine, sums in zip(SCALES, ours.mean(axis=1), theirs.mean(axis=1), strict=True):
        measured |= {f"success_{scale:g}": float(mine), f"success_sum_{scale:g}": float(sums)}
    holds = measured["weights_shift"] <= 1e-6 and ours.min() == 1.0
    return Outcome(measured, bool(holds and (theirs < ours).all() and theirs[2].mean() < theirs[0].mean()))
