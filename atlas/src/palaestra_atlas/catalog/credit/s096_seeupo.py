"""[96] SeeUPO (arXiv 2602.06554): updating the last turn first, and the earlier ones by what it became.

A bandit of two turns: the first action chooses a branch, the second earns the branch's payoff. Advantages are exact:
every path is one row per turn, weighted by its probability under the old policy, and the library's `sequential_update`
does the order and the correction. An update multiplies probabilities by exp(η · advantage). Training through the recipe
`steps` with `learn.sequential: turn` is reported beside the simultaneous update. Left out: language models, clipping.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import polars as pl
import torch

from palaestra.agents import LMPolicy, TabularPolicy, Team
from palaestra.algebra.turns import Turns
from palaestra.credit import reverse_product, seeupo, sequential_update
from palaestra.learning import PolicyGradient
from palaestra_atlas.reproductions import Outcome, exact, reproduction, train_arms

PAYOFF = np.array([[1.0, 1.0], [0.0, 3.0]])
FIRST, SECOND = np.array([0.6, 0.4]), np.array([[0.5, 0.5], [0.9, 0.1]])
MOVED = np.array([[0.5, 0.5], [0.1, 0.9]])
LARGE, SMALL, INSTANCES = 2.0, 0.05, 1000
_PATH = np.array([(i, j) for i in (0, 1) for j in (0, 1)])
ARMS: dict[str, dict[str, object]] = {
    "sequential": {"learn": {"lr": 0.1, "sequential": "turn"}, "credit": "seeupo()"},
    "simultaneous": {"learn": {"lr": 0.1}, "credit": "seeupo()"},
}
SETTINGS = {
    "env": {"options": {"steps": 4, "actions": 3, "decisive": 4, "pay": "sum"}},
    "train": {"iterations": 40, "group_size": 8},
}
TABLE = Turns({"episode": np.repeat(range(4), 2), "turn": [0, 1] * 4, "path": np.repeat(range(4), 2)})
"""Both turns of the four paths."""


def value(first: np.ndarray, second: np.ndarray, payoff: np.ndarray) -> float:
    """Expected payoff."""
    return float((first[:, None] * second * payoff).sum())


def tilted(policy: np.ndarray, advantage: np.ndarray, rate: float) -> np.ndarray:
    """One exponentiated step, over the last axis."""
    weights = policy * np.exp(rate * advantage)
    return np.asarray(weights / weights.sum(axis=-1, keepdims=True))


def step(
    first: np.ndarray,
    second: np.ndarray,
    payoff: np.ndarray,
    rate: float,
    *,
    sequential: bool,
    moved: np.ndarray | None = None,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Both turns updated once: new first and second policy, and the first turn's advantage that was used.

    moved: what the second turn becomes; default: a step like that of the first.
    """
    old_second, now = second, [first, second]
    used = np.zeros(2)

    def update(part: Turns) -> np.ndarray:
        nonlocal used
        chosen = _PATH[part["path"].to_numpy()]
        weighted = part["advantage"].to_numpy() * old_second[chosen[:, 0], chosen[:, 1]]
        if part["turn"][0] == 1:  # exact: Q(branch, action) - V(branch)
            q = part["advantage"].to_numpy().reshape(2, 2)
            better = tilted(second, q - (second * q).sum(axis=1, keepdims=True), rate)
            now[1] = better if moved is None else moved
            ratios = np.log(now[1] / second)[chosen[:, 0], chosen[:, 1]]
            return np.asarray(ratios if sequential else 0.0 * ratios)
        q = np.bincount(chosen[:, 0], weighted, 2)  # expectation over old second actions, corrected by the ratio
        used = q - (first * q).sum()
        now[0] = tilted(first, used, rate)
        return np.zeros(len(chosen))

    sequential_update(TABLE.with_column(payoff=np.repeat(payoff.ravel(), 2)), update, advantage="payoff")
    return now[0], now[1], used


def formula_error(seed: int) -> float:
    """`seeupo` with the ratios of the later turns against what `sequential_update` hands to the learner, any ratios."""
    rng = np.random.default_rng(seed)
    number, length = 6, 4
    episode, turn = np.repeat(range(number), length), np.tile(range(length), number)
    ratio, moved = rng.normal(size=number * length), np.zeros(number * length)
    reward = np.where(turn == length - 1, rng.random(number * length), 0.0)
    keys = {"group": episode // 3, "episode": episode, "turn": turn, "agent": ["a"] * len(turn)}
    turns = Turns(keys | {"reward": reward, "row": range(len(turn)), "ratio": ratio})
    gaps = []

    def update(part: Turns) -> np.ndarray:
        rows = part["row"].to_numpy()
        now = np.asarray(seeupo(log_ratio="log_ratio").evaluate(turns.with_column(log_ratio=moved)))[rows]
        gaps.append(float(np.abs(now - part["advantage"].to_numpy()).max()))
        moved[rows] = ratio[rows]
        return np.asarray(ratio[rows])

    sequential_update(turns, update)
    return max(gaps)


@exact
def products() -> None:
    """Ratios 1.1, .9, 1.3 of an episode's turns: those of the later turns multiply to 1.17, 1.3, 1."""
    turns = Turns({"episode": [0] * 3, "log_ratio": np.log([1.1, 0.9, 1.3])})
    np.testing.assert_allclose(np.asarray(reverse_product().evaluate(turns)), [1.17, 1.3, 1], atol=1e-9)


@exact
def two_turns() -> None:
    """The card's bandit: simultaneous steps end at 1.240, the last turn first at 2.619, with the first corrected."""
    np.testing.assert_allclose(value(FIRST, SECOND, PAYOFF), 0.72)
    first, second, before = step(FIRST, SECOND, PAYOFF, LARGE, sequential=False, moved=MOVED)
    np.testing.assert_allclose(before, [0.28, -0.42], atol=1e-9)
    np.testing.assert_allclose(value(first, second, PAYOFF), 1.240, atol=1e-3)
    first, second, after = step(FIRST, SECOND, PAYOFF, LARGE, sequential=True, moved=MOVED)
    np.testing.assert_allclose(after, [-0.68, 1.02], atol=1e-9)
    np.testing.assert_allclose(value(first, second, PAYOFF), 2.619, atol=1e-3)


@exact
def same_as_the_signal() -> None:
    """What `sequential_update` hands to an update is `seeupo` with the ratios of the later turns, whatever they are."""
    assert max(map(formula_error, range(3))) <= 1e-9


@exact
def spread_of_groups() -> None:
    """Groups with rewards 0, 1 and 0, 3: credit keeps the spreads' ratio, 1 to 3, with deviation 1 in the batch."""
    keys = {"group": [0, 0, 1, 1], "episode": [0, 1, 0, 1], "turn": [0] * 4, "agent": ["a"] * 4}
    credit = np.asarray(seeupo().evaluate(Turns(keys | {"reward": [0.0, 1.0, 0.0, 3.0]})))
    np.testing.assert_allclose(credit / credit[1], [-1, 1, -3, 3], atol=1e-6)
    np.testing.assert_allclose([credit.mean(), credit.std(ddof=1)], [0, 1], atol=1e-5)


@exact
def learner_in_order() -> None:
    """One update of the learner: by turns, the first goes to the branch that the second made good; at once, away."""
    assert learned_value(sequential="turn") > 2.5
    assert learned_value() < 1.1


def learned_value(**options: Any) -> float:
    """Expected payoff after one update of a table of logits, whose steps are as long as MOVED is away."""
    counts = np.array([[30, 30], [36, 4]])
    path = np.repeat(_PATH, counts.ravel(), axis=0)
    number = len(path)
    states = np.stack([np.zeros(number), 1 + path[:, 0]], axis=1).astype(np.uint64)
    then = np.log(np.stack([FIRST[path[:, 0]], SECOND[path[:, 0], path[:, 1]]], axis=1))
    keys = {"group": [0] * (2 * number), "episode": np.repeat(range(number), 2), "turn": [0, 1] * number}
    who = {"agent": ["a"] * (2 * number), "policy": ["a"] * (2 * number), "state": states.ravel()}
    did = {"action_ids": path.reshape(-1, 1).tolist(), "logprobs": then.reshape(-1, 1).tolist()}
    paid = {"reward": np.stack([np.zeros(number), PAYOFF[path[:, 0], path[:, 1]]], axis=1).ravel()}
    turns = Turns(keys | who | did | paid)
    policy = TabularPolicy(2, name="a")
    policy.meet(pl.DataFrame({"state": np.arange(3, dtype=np.uint64)}))
    logits = policy.module.get_parameter("logits")
    logits.data[:3] = torch.from_numpy(np.log([FIRST, *SECOND])).float()
    step_size: dict[str, Any] = {"lr": float(np.log(9)), "betas": (0.0, 0.999), "max_grad_norm": None}
    learner = PolicyGradient(Team(a=policy), 'surrogate(ratio="sequence")', **step_size, **options)
    learner.update(turns.with_column(advantage=seeupo()))
    first, *second = logits[:3].detach().softmax(-1).numpy()
    return value(first, np.array(second), PAYOFF)


@exact
def ratio_of_the_turn() -> None:
    """Two tokens with ratios 1.3 and 1/1.3: nothing is clipped, as the turn's ratio is 1; by the token one is."""
    policy = LMPolicy.tiny(hidden=16, layers=1, heads=2, name="lm")
    keys = {"group": [0], "episode": [0], "turn": [0], "agent": ["a"], "policy": ["lm"]}
    frame = pl.DataFrame(keys | {"prompt_ids": [[5, 6]], "action_ids": [[7, 8]]})
    with torch.no_grad():
        now = policy.score(frame).logprobs[0].double().numpy()
    then = [(now + np.log([1 / 1.3, 1.3])).tolist()]
    turns = Turns(frame.with_columns(logprobs=pl.Series(then), advantage=pl.Series([1.0])))
    found = [
        PolicyGradient(Team(a=policy), f'surrogate(ratio="{level}")', lr=0.0).update(turns)["lm"]["clip_fraction"]
        for level in ("sequence", "token")
    ]
    assert found == [0.0, 0.5]


@reproduction(
    96,
    claim="Updating turns in reverse order with the later turns' ratios improves a policy where a simultaneous update "
    "moves the first turn the wrong way.",
    baseline="the same two steps with advantages of the old policy",
    criterion="the value never falls in 1000 random instances with small steps; training in either order is reported",
    seeds=(0, 1, 2),
    slow=True,
)
def measure(seeds: Sequence[int]) -> Outcome:
    """Random instances, then both orders in training."""
    measured: dict[str, float] = {}
    gains: dict[bool, list[float]] = {True: [], False: []}
    for seed in seeds:
        rng = np.random.default_rng(seed)
        for _ in range(INSTANCES // len(seeds)):
            payoff, first, second = rng.normal(size=(2, 2)), rng.dirichlet([1, 1]), rng.dirichlet([1, 1], size=2)
            for sequential, found in gains.items() if len(gains[True]) < 200 else [(True, gains[True])]:
                one, two, _ = step(first, second, payoff, SMALL, sequential=sequential)
                found.append(value(one, two, payoff) - value(first, second, payoff))
    measured |= {"smallest_gain": min(gains[True]), "smallest_gain_simultaneous_of_200": min(gains[False])}
    arms = train_arms(
        "steps", {name: SETTINGS | arm for name, arm in ARMS.items()}, seeds,
        lambda learned: {"curve": float(np.mean(learned.curve("reward")))},
    )  # fmt: skip
    measured |= arms.measured()
    return Outcome(measured, measured["smallest_gain"] >= -1e-12)
