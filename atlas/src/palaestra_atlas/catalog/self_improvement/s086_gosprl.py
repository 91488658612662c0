"""[86] GOSPRL (arXiv 2007.06437): a planner collects prescribed samples of an unknown world in a fraction of the steps.

No code of the authors was found; the algorithm is reconstructed from the abstract and the standard form of the method.
Left out: the bound on the number of steps, which is a theorem, and the paper's confidence sets.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import polars as pl

from palaestra.evaluation.analyses import analyze
from palaestra.play.coverage import CoveragePlanner, Method, collect, optimistic_model, river, shortest_way
from palaestra_atlas.reproductions import Outcome, exact, reproduction


def line(length: int) -> np.ndarray:
    """A line without chance: action 0 goes back, action 1 forward."""
    places = np.arange(length)
    chances = np.zeros((length, 2, length))
    chances[places, 0, np.maximum(places - 1, 0)] = chances[places, 1, np.minimum(places + 1, length - 1)] = 1
    return chances


@exact
def shortest() -> None:
    """In a line that is known the way to the lacking end is walked straight, and no step is wasted."""
    planner = CoveragePlanner(np.zeros((5, 2)))
    planner.counts = (line(5) * 50).astype(int)
    planner.need = np.zeros((5, 2))
    planner.need[4, 1] = 51
    assert shortest_way(planner.counts, np.arange(5) == 4)[:4].tolist() == [1, 1, 1, 1]
    assert [planner.act(state) for state in range(5)] == [1, 1, 1, 1, 1]
    assert collect(line(5), planner) == 5, "four steps to the end, and the one that was lacking"
    # From 0 two steps by way of 1 lead to the goal, 4, if each is the right one (the other one begins anew), and three
    # by way of 2 and 3 whatever is done: a random walk arrives sooner by the long way.
    seen = np.zeros((5, 2, 5), int)
    for state, after in enumerate([(1, 2), (0, 4), (3, 3), (4, 4), (4, 4)]):
        seen[state, [0, 1], after] = 1000
    assert shortest_way(seen, np.arange(5) == 4)[:2].tolist() == [0, 1]


@exact
def arrivals() -> None:
    """After n samples a move is n/(n + 1) of what was seen and 1/(n + 1) of an arrival; one never tried arrives."""
    seen, arrived = optimistic_model(np.array([[[3, 1], [0, 0]], [[0, 1], [9, 0]]]))
    assert np.allclose(seen, np.array([[[0.6, 0.2], [0, 0]], [[0, 0.5], [0.9, 0]]]))
    assert np.allclose(arrived, np.array([[0.2, 1], [0.5, 0.1]]))


@exact
def lacking_action() -> None:
    """The action that lacks most is taken, one after the other until none lacks any."""
    planner = CoveragePlanner(np.array([[1.0, 3.0, 2.0]]))
    taken = []
    while not planner.done:
        taken.append(planner.act(0))
        planner.observe(0, taken[-1], 0)
    assert taken == [1, 1, 2, 0, 1, 2], taken


@exact
def prescribed() -> None:
    """A need of one pair near the start leaves the far end alone; a need that is raised later is served."""
    need = np.zeros((8, 2))
    need[1, 0] = 10
    planner = CoveragePlanner(need)
    steps = collect(river(8), planner, most=5000)
    counts = planner.counts.sum(2)
    assert steps < 200, steps
    assert counts[1, 0] == 10
    assert counts[5:].sum() == 0, counts
    planner.need = np.where(np.arange(8)[:, None] == 3, 2.0, 0.0)
    assert collect(river(8), planner, start=0, seed=1, most=5000) < 5000
    assert (planner.counts.sum(2)[3] >= 2).all()


@exact
def command() -> None:
    """The command walks the world of a table; pairs that need nothing are named apart."""
    with tempfile.TemporaryDirectory() as folder:
        river_file(0, Path(folder))
        pl.DataFrame({"state": [1], "action": [0], "need": [3]}).write_csv(Path(folder) / "needs.csv")
        (row,) = analyze("collect(10, repeats=2)", Path(folder) / "world.csv").to_dicts()
        (one,) = analyze("collect(10, repeats=2)", Path(folder) / "world.csv", Path(folder) / "needs.csv").to_dicts()
    assert (row["states"], row["actions"], row["need"], row["unfinished"], row["unneeded"]) == (6, 2, 120.0, 0, 0.0)
    assert one["need"] == 3.0
    assert one["steps"] == 3 + one["unneeded"]


def steps_of(length: int, method: Method, seeds: Sequence[int], most: int = 20_000) -> list[int]:
    """Steps until each pair of a river has ten samples."""
    need = np.full((length, 2), 10.0)
    return [collect(river(length), CoveragePlanner(need, seed=s, method=method), seed=s, most=most) for s in seeds]


@reproduction(
    86,
    claim="Optimistic shortest paths to what lacks samples collect ten of each pair of RiverSwim in a fraction of the "
    "steps that random actions take, and the steps grow with the length of the river, not like the random walk's.",
    baseline="random actions, the lacking one first where the state lacks one",
    criterion="median steps at most 1/5 of the random rule's; every walk of the planner ends; twice the length takes "
    "at most 4 times the steps (exact counts of seeded walks)",
    seeds=range(6),
)
def measure(seeds: Sequence[int]) -> Outcome:
    """Walk down rivers of 6 and 12 states."""
    planner, chance, longer = (
        steps_of(6, "planner", seeds), steps_of(6, "random", seeds), steps_of(12, "planner", seeds),
    )  # fmt: skip
    measured = {
        "planner": float(np.median(planner)), "random": float(np.median(chance)),
        "planner_12": float(np.median(longer)), "longest": float(max(*planner, *longer)),
    }  # fmt: skip
    holds = measured["planner"] <= measured["random"] / 5 and measured["longest"] < 20_000
    return Outcome(measured, holds and measured["planner_12"] <= 4 * measured["planner"])


def river_file(seed: int, folder: Path) -> None:
    """A river of six states whose current is drawn by the seed, as `world.csv`."""
    rng = np.random.default_rng(seed)
    chances = river(6, forward=float(rng.uniform(0.3, 0.4)), back=0.05)
    pl.DataFrame(
        [(state, action, after, chance) for (state, action, after), chance in np.ndenumerate(chances) if chance > 0],
        schema=["state", "action", "after", "chance"],
        orient="row",
    ).write_csv(folder / "world.csv")
