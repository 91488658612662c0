"""[39] BARFI (arXiv 2310.19007): learn how far to trust an auxiliary reward from what the primary one says.

A chain of 7 states, the goal at one end; the policy is a table with L2. The misleading auxiliary pays .3 for every
arrival in state 1, the helpful one for each step towards the goal. One weight for each of both rewards and a free term,
exact hypergradient. Then what potential-based shaping can do instead: the mean policy gradient stays, its variance
falls with a good potential and rises with its negative. At last the stage
`bilevel` in a maze. Left out: sampled hypergradients, robots.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from palaestra.algebra.signals import Signal, as_signal, evaluate
from palaestra.algebra.turns import Turns
from palaestra.credit import return_to_go
from palaestra.rewards import BilevelReward, shape
from palaestra.rewards.shaping.mdp import optimal_q
from palaestra_atlas.reproductions import Outcome, exact, reproduction, train_arms

STATES, GAMMA, OUTER, EARLY = 7, 0.95, 30, 15
GOAL, EPISODES, COST = 3, 20_000, 0.02


def chain(states: int = STATES) -> tuple[np.ndarray, np.ndarray]:
    """Left and right; the step into the last state pays 1 and ends the episode. Transitions and primary reward."""
    moves, reward = np.zeros((states, 2, states)), np.zeros((states, 2))
    for state in range(states - 1):
        moves[state, 0, max(state - 1, 0)] = moves[state, 1, state + 1] = 1.0
    reward[states - 2, 1] = 1.0
    return moves, reward


def auxiliary(kind: str) -> np.ndarray:
    """The reward that somebody thought would help."""
    moves, _ = chain()
    if kind == "misleading":
        return np.asarray(0.3 * moves[:, :, 1])
    place = np.arange(STATES) / STATES
    return np.asarray((GAMMA * moves @ place - place[:, None]) * moves.sum(axis=-1))


def arms(kind: str) -> dict[str, float]:
    """Primary return after learning on each reward; the same number of policy steps for all."""
    moves, primary = chain()
    problem: dict[str, Any] = {"transitions": moves, "start": np.eye(STATES)[0], "primary": primary, "per_state": False}
    extra = auxiliary(kind)
    naive = BilevelReward(auxiliary=extra, **problem)
    naive.learn(OUTER * naive.inner)
    found = {"naive": naive.objective()}
    ours = BilevelReward(auxiliary=extra, **problem)
    for step in range(OUTER):
        ours.step()
        if step + 1 == EARLY:
            found["early"] = ours.objective()
    by_state = BilevelReward(auxiliary=extra, **(problem | {"per_state": True}))
    for _ in range(OUTER):
        by_state.step()
    return found | {"barfi": ours.objective(), "weight": float(ours.weights[2][0]), "by_state": by_state.objective()}


SHORT = 5
"""States of the chain of the exact checks."""


def small(extra: np.ndarray | float = 0.0, **options: Any) -> BilevelReward:
    """The problem on a chain of five states; `extra` is the auxiliary reward."""
    moves, primary = chain(SHORT)
    problem: dict[str, Any] = {"transitions": moves, "start": np.eye(SHORT)[0], "primary": primary, "per_state": False}
    return BilevelReward(auxiliary=extra + 0.0 * primary, **problem | options)


def misleading() -> np.ndarray:
    """Pays .3 for every arrival in state 1."""
    return np.asarray(0.3 * chain(SHORT)[0][:, :, 1])


def towards() -> np.ndarray:
    """Pays for each step towards the goal."""
    moves, _ = chain(SHORT)
    place = np.arange(SHORT) / SHORT
    return np.asarray((GAMMA * moves @ place - place[:, None]) * moves.sum(axis=-1))


@exact
def turned_down() -> None:
    """The weight of a misleading reward becomes negative, and the goal is reached; by the plain sum it is not."""
    ours = small(misleading())
    for _ in range(20):
        ours.step()
    naive = small(misleading())
    naive.learn(20 * naive.inner)
    assert ours.weights[2][0] < 0, f"weight {ours.weights[2][0]:.2f}"
    assert ours.objective() > 0.7, f"return {ours.objective():.3f}"
    assert naive.objective() < 0.5, f"return of the sum {naive.objective():.3f}"


@exact
def helps() -> None:
    """With few steps a helpful reward leads to a higher primary return than none."""
    ours, alone = small(towards(), free=False), small(free=False)
    for each in (ours, alone):
        for _ in range(2):
            each.step()
    assert ours.objective() > alone.objective() + 0.01, (ours.objective(), alone.objective())


@exact
def implicit_gradient() -> None:
    """The outer step's dJ/dφ equals the slope of the primary return at the inner fixed point within 1 %."""
    ours = small(misleading(), free=False, decay=0.1, inner=600)
    start = ours.phi.copy()
    ours.step()
    found = ours._first / 0.1  # Adam's first moment after one step
    slopes = []
    for place in range(len(start)):
        ends = []
        for width in (0.01, -0.01):
            other = small(misleading(), free=False, decay=0.1)
            other.theta, other.phi = ours.theta.copy(), start + width * (np.arange(len(start)) == place)
            other.learn(600)
            ends.append(other.objective())
        slopes.append((ends[0] - ends[1]) / 0.02)
    np.testing.assert_allclose(found, slopes, rtol=0.01)


@exact
def free_term() -> None:
    """Where the auxiliary reward is zero everywhere, the learned reward is the primary one and a term of its own."""
    ours = small()
    for _ in range(3):
        ours.step()
    own = ours.reward - ours.weights[1][0] * ours.primary
    assert np.abs(own).max() > 0.05, "the reward is the primary one, weighted"


@exact
def isolated() -> None:
    """The inner regularisation keeps the fixed point isolated: the derivative there can be inverted."""
    ours = small()
    ours.learn(50)
    condition = np.linalg.cond(ours._slope(ours.reward))
    assert condition < 1e4, f"condition {condition:.3g}"


ARMS: dict[str, dict[str, Any]] = {
    "sparse": {},
    "naive": {"reward": "col('reward') + col('bonus')"},
    "barfi": {"stages": ["bilevel()"], "reward": "col('aligned')"},
}
TRAPPED = {"env": {"options": {"map": "Sa....G", "horizon": 40, "bonus": {"a": 0.3}}}}


def trained(seeds: Sequence[int]) -> dict[str, np.ndarray]:
    """Success over the last ten iterations where a bonus for standing in the second cell misleads, per seed."""
    last = lambda learned: {"success": float(np.mean(learned.curve()[-10:]))}  # noqa: E731
    arms = train_arms("maze", {name: TRAPPED | arm for name, arm in ARMS.items()}, seeds, last)
    return {name: each["success"] for name, each in arms.values.items()}


def gradients(seed: int) -> dict[str, float]:
    """Of REINFORCE on a line of four states, undiscounted and run to the end, a step costs .02: one per potential.

    The variance is the sum over the table of logits; the shift is that of the mean, in standard errors.
    """
    rng = np.random.default_rng(seed)
    place, running, parts, turn = np.zeros(EPISODES, int), np.arange(EPISODES), [], 0
    while len(running):
        right = rng.random(len(running)) < 0.5
        after = np.maximum(place[running] + np.where(right, 1, -1), 0)
        parts.append((running, np.full(len(running), turn), place[running], right, (after == GOAL) - COST))
        place[running] = after
        running, turn = running[after < GOAL], turn + 1
    episode, when, state, right, paid = (np.concatenate(column) for column in zip(*parts, strict=True))
    turns = Turns(
        {"group": episode * 0, "episode": episode, "turn": when, "agent": np.full(len(episode), "walker")}
        | {"reward": paid, "phi": state / GOAL, "truncated": np.zeros(len(episode), bool)}
    )
    rewards: list[Signal] = [
        as_signal("reward"),
        as_signal("reward") + shape("phi"),
        "reward" + shape(-as_signal("phi")),
    ]
    table = []
    for returns in evaluate(turns, *(return_to_go(each) for each in rewards)):
        cell = episode * GOAL + state
        table.append(np.bincount(cell, np.asarray(returns) * (right - 0.5), EPISODES * GOAL).reshape(-1, GOAL))
    names = ("none", "good", "negated")
    found = {f"variance_{name}": float(g.var(axis=0).sum()) for name, g in zip(names, table, strict=True)}
    shifts = [(g - table[0]).mean(axis=0) / ((g - table[0]).std(axis=0) / EPISODES**0.5 + 1e-12) for g in table[1:]]
    return found | {"shift": float(np.abs(shifts).max())}


@reproduction(
    39,
    claim="Learning the weights of a reward by what its policy earns in the primary one turns a misleading auxiliary "
    "reward down and a helpful one to use; shaping by a potential only changes the variance of the gradient.",
    baseline="the plain sum of both rewards; the primary reward alone",
    criterion="misleading: BARFI above the sparse reward alone, the plain sum below .1; helpful: above the plain sum "
    "and within .02 of the optimum; mean gradient within 4 standard errors, variance lower with progress as the "
    "potential and higher with their negative; in training by a recipe with the misleading bonus, success of the last "
    "iterations below .1 with the plain sum and above .9 with BARFI's reward, in every seed",
    seeds=(3, 4, 5),
    slow=True,
)
def measure(seeds: Sequence[int]) -> Outcome:
    """Both auxiliaries, then the gradients."""
    moves, primary = chain()
    sparse = BilevelReward(moves, np.eye(STATES)[0], primary, 0 * primary)
    sparse.learn(OUTER * sparse.inner)
    measured = {"sparse": sparse.objective(), "optimum": float(optimal_q(moves, primary, GAMMA)[0].max())}
    bad, good = arms("misleading"), arms("helpful")
    measured |= {f"misleading_{name}": value for name, value in bad.items()}
    measured |= {f"helpful_{name}": value for name, value in good.items()}
    measured |= gradients(seeds[0])
    holds = bad["barfi"] > measured["sparse"] and bad["naive"] < 0.1
    holds &= good["barfi"] > good["naive"] and good["barfi"] > measured["optimum"] - 0.02
    holds &= measured["variance_good"] < measured["variance_none"] < measured["variance_negated"]
    success = trained(seeds)
    measured |= {f"success_{name}": float(each.mean()) for name, each in success.items()}
    holds &= success["naive"].max() < 0.1 and success["barfi"].min() > 0.9
    return Outcome(measured, bool(holds and measured["shift"] < 4))
