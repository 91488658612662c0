"""[99] Position auctions in AI-generated content: joint placement under a multinomial logit, and what it costs.

The paper was read as an abstract; the solver is derived, and compared with brute force. Left out: users who read from
the top and stop.
"""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import polars as pl

from palaestra.evaluation.analyses import analyze
from palaestra.evaluation.games.auctions import assign, assign_greedily, click_rates, vcg_payments, virtual_values
from palaestra_atlas.reproductions import Outcome, exact, reproduction

VALUES = np.array([4.0, 3.0, 1.0])
WEIGHTS = np.array([[1.0, 0.5], [0.8, 0.9], [1.5, 1.2]])


def written(seed: int, folder: Path) -> None:
    """Twelve creatives for five slots, as the command reads them."""
    rng = np.random.default_rng(seed)
    slots = {f"slot_{j}": rng.uniform(0.1, 2, 12) for j in range(5)}
    table = {"creative": [f"c{i}" for i in range(12)], "value": rng.uniform(0.5, 5, 12), **slots}
    pl.DataFrame(table).write_csv(folder / "creatives.csv")


def brute(values: np.ndarray, weights: np.ndarray) -> float:
    """Largest welfare over all placements, empty slots included."""
    n, m = weights.shape
    best = 0.0
    for k in range(min(n, m) + 1):
        for chosen in itertools.permutations(range(n), k):
            for places in itertools.combinations(range(m), k):
                slots = np.full(n, -1)
                slots[list(chosen)] = places
                best = max(best, float(values @ click_rates(slots, weights)))
    return best


@exact
def payments() -> None:
    """The worked case: creatives 0 and 1, welfare 2.310345, clicks .3448 and .3103, payments .4900 and .6207."""
    found = assign(VALUES, WEIGHTS)
    assert found.slots.tolist() == [0, 1, -1]
    assert abs(found.welfare - 2.310345) < 1e-6
    np.testing.assert_allclose(found.clicks, [0.3448, 0.3103, 0], atol=1e-4)
    paid = vcg_payments(VALUES, WEIGHTS)
    np.testing.assert_allclose(paid, [0.49, 0.6207, 0], atol=1e-4)
    np.testing.assert_allclose(paid[:2] / found.clicks[:2], [1.4211, 2.0], atol=1e-4)


@exact
def equal_to_brute_force() -> None:
    """Forty random instances of four creatives and three slots."""
    rng = np.random.default_rng(0)
    for _ in range(40):
        values, weights = rng.uniform(0, 5, 4), rng.uniform(0.1, 2, (4, 3))
        assert abs(assign(values, weights).welfare - brute(values, weights)) < 1e-9


@exact
def shading_does_not_pay() -> None:
    """Under the payments no creative gains by another bid than its value."""
    rng = np.random.default_rng(1)
    for _ in range(5):
        values, weights = rng.uniform(0, 5, 4), rng.uniform(0.1, 2, (4, 3))
        honest = values * assign(values, weights).clicks - vcg_payments(values, weights)
        for i, factor in itertools.product(range(4), (0.5, 0.8, 1.3)):
            bids = np.where(np.arange(4) == i, factor * values, values)
            gain = values * assign(bids, weights).clicks - vcg_payments(bids, weights)
            assert gain[i] <= honest[i] + 1e-9


@exact
def virtual_values_of_the_uniform() -> None:
    """Values that are uniform on [0, 1] have the virtual values 2v - 1."""
    found = virtual_values(np.array([0.25, 0.5, 0.9]), (np.arange(1000) + 0.5) / 1000)
    np.testing.assert_allclose(found, [-0.5, 0.0, 0.8], atol=0.01)


@exact
def ironed_values_are_monotone() -> None:
    """Two kinds of bidders, near 1 and near 4: between them the raw virtual values fall, the ironed ones do not."""
    rng = np.random.default_rng(0)
    sample = np.concatenate([rng.normal(1, 0.1, 300), rng.normal(4, 0.1, 100)])
    grid = np.linspace(0.8, 4.2, 200)
    found = virtual_values(grid, sample)
    assert (np.diff(found) >= -1e-9).all()
    assert (found <= grid + 1e-9).all()
    assert np.ptp(found[(grid > 1.3) & (grid < 3.6)]) < 1e-9, "ironed flat in between"


@exact
def revenue_rises() -> None:
    """Placed by virtual values, one slot with three uniform bidders is left empty where none is above the reserve."""
    sample = (np.arange(200) + 0.5) / 200
    weights = np.full((3, 1), 1.0)
    low, high = np.array([0.2, 0.3, 0.4]), np.array([0.2, 0.3, 0.8])
    assert assign(virtual_values(low, sample), weights).slots.tolist() == [-1, -1, -1]
    assert assign(virtual_values(high, sample), weights).slots.tolist() == [-1, -1, 0]
    with tempfile.TemporaryDirectory() as folder:
        pl.DataFrame({"creative": ["a", "b", "c"], "value": low, "w": [1.0] * 3}).write_csv(Path(folder) / "a.csv")
        pl.DataFrame({"value": sample}).write_csv(Path(folder) / "s.csv")
        virtual = analyze("virtual_values", Path(folder) / "a.csv", Path(folder) / "s.csv")
        written(0, Path(folder))
        placed = analyze("position_auction", Path(folder) / "creatives.csv")
    assert virtual["value"].max() < 0  # type: ignore[operator]
    assert placed["slot"].drop_nulls().n_unique() == len(placed["slot"].drop_nulls())
    assert placed["payment"].sum() < placed["welfare"][0]


@reproduction(
    99,
    claim="Slots that share one denominator must be filled together.",
    baseline="each slot sold on its own, and brute force",
    criterion="joint placement equals brute force in all instances; greedy placement is worse in at least half",
    seeds=(0, 1),
)
def measure(seeds: Sequence[int]) -> Outcome:
    """Fifty instances a seed of four creatives and three slots."""
    equal, worse, ratio = [], [], []
    for seed in seeds:
        rng = np.random.default_rng(seed)
        for _ in range(50):
            values, weights = rng.uniform(0, 5, 4), rng.uniform(0.1, 2, (4, 3))
            best, joint, greedy = brute(values, weights), assign(values, weights), assign_greedily(values, weights)
            equal.append(abs(joint.welfare - best) < 1e-9)
            worse.append(greedy.welfare < best - 1e-9)
            ratio.append(greedy.welfare / best)
    measured = {
        "equal": float(np.mean(equal)),
        "greedy_worse": float(np.mean(worse)),
        "greedy_ratio": float(np.mean(ratio)),
    }
    return Outcome(measured, all(equal) and measured["greedy_worse"] >= 0.5)
