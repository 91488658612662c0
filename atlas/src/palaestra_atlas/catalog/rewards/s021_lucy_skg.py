"""[21] Lucy-SKG (arXiv 2305.15801): components multiplied, not added, so that none can be farmed alone.

The recipe `trade`: 25 arms trade one skill for the other along a curve on which the sum is highest at both ends.
Worked numbers of the combination, the distance and the mixing in teams; the auxiliary heads are tried on rows that are
made up. Left out: Rocket League, and heads in the line.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from palaestra.agents import MLPPolicy, Team
from palaestra.algebra.signals import Signal
from palaestra.algebra.turns import Turns
from palaestra.credit import team
from palaestra.learning import PolicyGradient
from palaestra.rewards import closeness, components, krc, pressure, shape, team_mix
from palaestra_atlas.reproductions import Outcome, exact, reproduction, train_arms
from palaestra_atlas.verification.measures import Left, Measure

if TYPE_CHECKING:
    from palaestra.runs.inline import TrainingResult

ENOUGH = 0.4
ARMS = {
    "sum": {"reward": "0.5 * col('first') + 0.5 * col('second')"},
    "krc": {"reward": "krc('first', 'second')"},
}


def worked_error() -> float:
    """KRC, distances and the mixture of two teams of two."""
    pairs = Turns({"a": [0.9, -0.9, 0.9], "b": [0.1, -0.1, -0.1]})
    three = Turns({"a": [0.8], "b": [0.8], "c": [0.0]})
    far = Turns({"distance": [2300.0]})
    players = {"episode": [0] * 4, "turn": [0] * 4, "agent": ["blue_0", "blue_1", "orange_0", "orange_1"]}
    four = Turns(players | {"reward": [1.0, 0.0, 0.0, 0.5]})
    cases: list[tuple[Signal, Turns, list[float]]] = [
        (krc("a", "b"), pairs, [0.3, -0.3, -0.3]),
        (krc("a", "b", "c"), three, [0.0]),
        (closeness("distance", scale=2300), far, [0.6065]),
        (closeness("distance", scale=2300, dispersion=0.5, density=0.5), far, [0.1353]),
        (team_mix(tau=0.3, teams=team()), four, [0.6, -0.1, -0.425, -0.075]),
    ]
    return float(max(np.abs(np.asarray(signal.evaluate(turns)) - goal).max() for signal, turns, goal in cases))


@exact
def combination() -> None:
    """The card's numbers: root of the product with its sign, distances, the mixture of two teams; as a column too."""
    assert worked_error() < 5e-5
    pairs = Turns({"episode": [0], "turn": [0], "agent": ["car"], "a": [0.9], "b": [0.1]})
    table = components(pairs, {"a": "a", "b": "b"}, combined=krc("r_a", "r_b"))
    np.testing.assert_allclose(table["reward"].to_list(), [0.3])


@exact
def loop() -> None:
    """A way back to where it began earns nothing by the potential of its utilities."""
    keys = {"episode": [0] * 4, "turn": range(4), "agent": ["car"] * 4, "truncated": [False] * 4}
    utility = closeness("distance", scale=2300)
    turns = Turns(keys | {"distance": [2300.0, 1000.0, 500.0, 2300.0]})
    paid = np.asarray(shape(utility, gamma=1.0).evaluate(turns))
    assert abs(paid[:-1].sum()) < 1e-12, f"a loop earns {paid[:-1].sum():.3f}"
    assert abs(paid[0] - (np.exp(-0.5 * 1000 / 2300) - np.exp(-0.5))) < 1e-12


@exact
def pressed() -> None:
    """Three frames of pressure with .75 of the players, then the release: their mean, discounted by three of 90."""
    keys = {"episode": [0] * 4, "turn": range(4), "agent": ["car"] * 4}
    turns = Turns(keys | {"pressure": [0.75] * 4, "inside": [1, 1, 1, 0], "release": [0, 0, 0, 1]})
    np.testing.assert_allclose(np.asarray(pressure().evaluate(turns)), [0, 0, 0, 0.75 * (1 - 3 / 90) ** 0.7])


@exact
def trunk() -> None:
    """Without credit the trunk is moved by its heads alone, and both of their losses fall."""
    rng = np.random.default_rng(0)
    seen = rng.normal(size=(64, 4)).astype(np.float32)
    rows = {
        "group": [0] * 64,
        "episode": np.arange(64),
        "turn": [0] * 64,
        "agent": ["car"] * 64,
        "policy": ["mlp"] * 64,
    }
    rows |= {"reward": np.sign(seen[:, 0] * seen[:, 1]), "features": pl.Series(seen.tolist())}
    rows |= {"action_ids": [[0]] * 64, "logprobs": [[-1.1]] * 64, "advantage": [0.0] * 64, "error": [None] * 64}
    policy = MLPPolicy(4, 3, hidden=(16,), seed=1, name="mlp")
    before = policy.represent(_tensor(seen)).detach().numpy()
    learner = PolicyGradient(Team({"car": policy}), lr=0.01, terms="surrogate(), auxiliary()")
    losses: list[Any] = [learner.update(Turns(rows))["mlp"] for _ in range(40)]
    after = policy.represent(_tensor(seen)).detach().numpy()
    assert np.abs(after - before).max() > 0.05, "the trunk has not moved"
    for name in ("reward_class", "reconstruction"):
        assert losses[-1][name] < 0.8 * losses[0][name], f"{name}: {losses[0][name]:.3f}, then {losses[-1][name]:.3f}"


def _tensor(values: np.ndarray) -> Any:
    import torch

    return torch.from_numpy(values)


def both() -> Measure:
    """Share of the held-out outcomes of the trained policy in which both skills exceed .4, per seed."""

    def measured(left: Left) -> list[float]:
        found = []
        for seed in left.seeds():
            ends = pl.read_parquet(seed / "evaluation.parquet").filter(pl.col("system") == "after")
            found.append(float(((ends["first"] > ENOUGH) & (ends["second"] > ENOUGH)).to_numpy().mean()))
        return found

    return measured


def share_of_both(learned: TrainingResult) -> dict[str, float]:
    """Share of held-out outcomes with enough of both skills."""
    turns = learned.play(groups=200)
    both = ((turns["first"] > ENOUGH) & (turns["second"] > ENOUGH)).to_numpy()
    return {"share": float(both.mean())}


@reproduction(
    21,
    claim="A weighted sum is farmed by one component alone; the geometric mean with a sign asks for all of them.",
    baseline="the weighted sum of the same components",
    criterion="worked numbers equal to 4 decimals; share of outcomes with both skills above .4 below .01 in every run "
    "of the sum, above .3 in every run of KRC",
    seeds=(0, 1, 2),
    slow=True,
)
def measure(seeds: Sequence[int]) -> Outcome:
    """Worked numbers, then both rewards on the bandit."""
    error, arms = worked_error(), train_arms("trade", ARMS, seeds, share_of_both)
    share = {name: arms.values[name]["share"] for name in ARMS}
    measured = {"worked_error": error, **arms.measured(), "lowest_krc": float(share["krc"].min())}
    holds = error <= 1e-4 and share["sum"].max() < 0.01 and share["krc"].min() > 0.3
    return Outcome(measured, bool(holds))
