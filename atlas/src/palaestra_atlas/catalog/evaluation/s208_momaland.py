"""[208] MOMAland (arXiv 2407.16312): on the beach, what everybody is paid decides whether one section is given up.

The best spread crowds one section so that all others are at their best. The world `beach`, capacity only: ten people, a
row of logits each, by the recipe `world`. Paid for their own section they spread evenly; paid by the whole beach they
find better; paid by the difference that they make to it (the reward without them subtracted) best. Trained for three
weights of both objectives, they leave a front that no single one of them reaches. Left out: optimistic linear support,
and learning with moves instead of a choice of section.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import polars as pl

from palaestra.algebra.turns import Turns
from palaestra.envs.momaland import vector_returns
from palaestra.envs.worlds import Beach
from palaestra.envs.worlds.exact.objectives import beach_capacity, beach_optimum, esr, product, ser
from palaestra.evaluation.dominance import eum, hypervolume, simplex_weights
from palaestra_atlas.reproductions import Outcome, exact, reproduction, train_arms
from palaestra_atlas.verification.measures import Left, Measure

FRONT = ((1.0, 5.0), (3.0, 3.0), (5.0, 1.0), (2.0, 2.0))
LATE = 10
WORLD: dict[str, Any] = {
    "env": {"make": "native/beach"},
    "credit": 'centre("reward", over="agent")',
    "train": {"iterations": 100, "groups": 1, "group_size": 16},
}
ARMS = {
    "local": WORLD,
    "global": {**WORLD, "reward": 'col("whole")'},
    "difference": {**WORLD, "reward": 'col("difference")'},
}


def weighed(weights: np.ndarray) -> dict[str, Any]:
    """The world for these weights of capacity and mixture, paid by the difference."""
    env = {"make": "native/beach", "options": {"weights": weights.tolist()}}
    return {**WORLD, "env": env, "reward": 'col("difference")', "train": {**WORLD["train"], "iterations": 60}}


def both(turns: Turns) -> np.ndarray:
    """Capacity and mixture of the whole beach, mean over episodes."""
    who, where = (
        turns[name].cast(pl.String).str.extract(r"(\d+)$").cast(pl.Int64).to_numpy() for name in ("agent", "action")
    )
    env, episodes = Beach(), turns.codes("episode")
    counts = np.zeros((episodes.size, len(env.choices), 2), int)
    np.add.at(counts, (episodes.ids, where, env.types[who]), 1)
    return np.asarray(np.mean([env.vectors(each).sum(0) for each in counts], axis=0))


def learned_front(seeds: Sequence[int]) -> np.ndarray:
    """Capacity and mixture at the end of training for each of three weights, float64[weights, 2]; capacity's rises."""
    arms = {f"{n}": weighed(weights) for n, weights in enumerate(simplex_weights(2, 3))}
    points: dict[str, list[np.ndarray]] = {name: [] for name in arms}
    train_arms("world", arms, seeds, lambda _: {}, on_turns=lambda arm, _, turns: points[arm].append(both(turns)))
    each = [np.reshape(found, (len(seeds), -1, 2))[:, -LATE:].mean(axis=(0, 1)) for found in points.values()]
    return np.array(each)


def spread(places: Sequence[int], **options: Any) -> tuple[dict[str, float], dict[str, Any]]:
    """Rewards and facts on a beach of ten people, three of the first type, who go where they are told."""
    env = Beach(**options)
    env.reset(0)
    result = env.step(dict(zip(env.agents, places)))
    return {agent: float(reward or 0.0) for agent, reward in result.rewards.items()}, dict(result.info)


MIXED = (0, 1, 1, 0, 1, 1, 2, 2, 2, 2)
"""One of the first type and one other in section 0, two and two in section 1, four others in section 2."""


@exact
def crowding() -> None:
    """X e^(-x/7) is 2.575 at 7; five sections at 7 and 65 in the sixth make 12.88, as many in each 9.25."""
    np.testing.assert_allclose(beach_capacity(np.array(7), 7), 2.575, atol=5e-4)
    value, people = beach_optimum(100, 6, 7)
    np.testing.assert_allclose(value, 12.88, atol=5e-3)
    assert sorted(people.tolist()) == [7] * 5 + [65]
    np.testing.assert_allclose(6 * beach_capacity(np.array(100 / 6), 7), 9.25, atol=5e-3)


@exact
def two_objectives() -> None:
    """Everybody's vector: capacity of the section, and the share of the type of which it has fewer."""
    _, told = spread(MIXED, psi=2.0)
    capacity = 2 * np.exp(-1.0), 4 * np.exp(-2.0)
    np.testing.assert_allclose([told["capacity"][f"person_{k}"] for k in (0, 1, 9)], [*capacity, capacity[1]])
    np.testing.assert_allclose([told["mixture"][f"person_{k}"] for k in (0, 1, 9)], [0.5, 0.5, 0.0], atol=1e-12)


@exact
def returns_are_vectors() -> None:
    """Vectors in what a step tells are summed over an agent's episode."""
    told = [json.dumps({"vector": {"a": vector, "b": [1.0, 1.0]}}) for vector in ([0.0, 2.0], [1.0, 0.5])]
    turns = Turns(
        {"group": [0] * 4, "episode": [0] * 4, "turn": [0, 0, 1, 1], "agent": ["a", "b"] * 2,
         "metadata": [told[0]] * 2 + [told[1]] * 2}
    )  # fmt: skip
    found = {row["agent"]: row["returns"] for row in vector_returns(turns).iter_rows(named=True)}
    assert found == {"a": [1.0, 2.5], "b": [2.0, 2.0]}


@exact
def weighted() -> None:
    """What is paid is the weighted sum of the vector, before anybody learns."""
    for weights in ((1.0, 0.0), (0.0, 1.0), (0.25, 0.75)):
        paid, told = spread(MIXED, psi=2.0, weights=weights)
        for agent, reward in paid.items():
            vector = np.array([told["capacity"][agent], told["mixture"][agent]])
            np.testing.assert_allclose(reward, vector @ weights, atol=1e-12)


@exact
def scopes() -> None:
    """Own section, whole beach, and the whole beach less what it would be without oneself."""
    paid, told = spread([0] * 4 + [1] * 6, psi=2.0, sections=2)
    worth = np.arange(8) * np.exp(-np.arange(8) / 2)
    np.testing.assert_allclose([paid["person_0"], paid["person_9"]], worth[[4, 6]], atol=1e-12)
    np.testing.assert_allclose(told["whole"], worth[4] + worth[6], atol=1e-12)
    difference = [told["difference"][agent] for agent in ("person_0", "person_9")]
    np.testing.assert_allclose(difference, [worth[4] - worth[3], worth[6] - worth[5]], atol=1e-12)


@exact
def front() -> None:
    """Hypervolume 13 and expected utility 4.0 of four points; a sequence of weights finds more than one of them."""
    points = np.array(FRONT)
    np.testing.assert_allclose(hypervolume(points, np.zeros(2)), 13.0, atol=1e-9)
    np.testing.assert_allclose(eum(points, simplex_weights(2, 100_001)), 4.0, atol=1e-3)
    solved = np.array([points[(points @ weights).argmax()] for weights in simplex_weights(2, 5)])
    np.testing.assert_allclose(hypervolume(solved, np.zeros(2)), 9.0)  # weighted sums find the ends of a straight front
    np.testing.assert_allclose(hypervolume(solved[:1], np.zeros(2)), 5.0)


@exact
def order_of_means() -> None:
    """Returns (0, 2) and (2, 0) under the product: mean utility 0, utility of the mean 1."""
    returns, even = np.array([[0.0, 2.0], [2.0, 0.0]]), np.array([0.5, 0.5])
    np.testing.assert_allclose([esr(returns, product, even), ser(returns, product, even)], [0.0, 1.0], atol=1e-9)


def late_whole(last: int = LATE) -> Measure:
    """Worth of the whole beach in the last iterations, mean per seed."""

    def measured(left: Left) -> list[float]:
        found = []
        for seed in left.seeds():
            frame = Turns.load(seed / "turns").frame
            found.append(float(frame.filter(frame["iteration"] > frame["iteration"].max() - last)["whole"].mean()))  # type: ignore[arg-type, operator]
        return found

    return measured


@reproduction(
    208,
    claim="Paid by the difference that they make, independent agents crowd one section of the beach for everybody's "
    "good; paid for their own section, they spread evenly. A sequence of weights is solved into a front.",
    baseline="the uniform spread; reward of one's own section; reward of the whole beach",
    criterion="worked numbers; mean total at the end of local < global < difference, and difference > 0.85 of the "
    "optimum (so on the fresh seed that was tried); trained for capacity alone there is more of it, by > .05, and less "
    "mixture, by > .2, than trained for mixture alone, and three weights dominate more than the best of them, by > .02",
    seeds=(0, 1, 2),
    slow=True,
)
def measure(seeds: Sequence[int]) -> Outcome:
    """Worked numbers, then three kinds of reward."""
    whole: dict[str, list[float]] = {name: [] for name in ARMS}

    def watch(arm: str, iteration: int, turns: Turns) -> None:
        whole[arm].append(float(turns["whole"].mean()))  # type: ignore[arg-type]

    train_arms("world", ARMS, seeds, lambda _: {}, on_turns=watch)
    totals = {name: float(np.reshape(each, (len(seeds), -1))[:, -LATE:].mean()) for name, each in whole.items()}
    env = Beach()
    people, sections = len(env.agents), len(env.choices)
    optimum, _ = beach_optimum(people, sections, env.psi)
    measured = {"optimum": optimum, "uniform": float(sections * beach_capacity(np.array(people / sections), env.psi))}
    measured |= {f"total_{name}": total for name, total in totals.items()}
    measured["hypervolume"] = hypervolume(np.array(FRONT), np.zeros(2))
    measured["expected_utility"] = eum(np.array(FRONT), simplex_weights(2, 100_001))
    worked = abs(measured["hypervolume"] - 13) < 1e-9 and abs(measured["expected_utility"] - 4) < 1e-3
    worked &= abs(beach_optimum(100, 6, 7)[0] - 12.88) < 5e-3
    points, origin = learned_front(seeds), np.zeros(2)
    traded = points[-1] - points[0]
    alone = max(hypervolume(each[None], origin) for each in points)
    measured |= {"more_capacity": float(traded[0]), "less_mixture": float(-traded[1])}
    measured |= {"hypervolume_learned": hypervolume(points, origin), "hypervolume_of_one": alone}
    worked &= traded[0] > 0.05 and traded[1] < -0.2 and measured["hypervolume_learned"] > alone + 0.02
    ordered = totals["local"] < totals["global"] < totals["difference"]
    return Outcome(measured, bool(worked and ordered and totals["difference"] > 0.85 * optimum))
