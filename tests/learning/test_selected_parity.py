"""From a table to a loss, beside plain torch: mined pairs and DPO, signed cloning, advantage-weighted cloning; 1e-6.

The reference is written as trainers ship it: a loop over pairs or rows, log-probabilities of a softmax, the formula.
TRL's own DPO loss stands beside ours where it is installed (`test_parity_trl`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from palaestra.agents import TabularPolicy, Team
from palaestra.algebra.turns import Turns
from palaestra.envs.protocol import Observation
from palaestra.learning import PolicyGradient
from palaestra.learning.stages import Context
from palaestra.learning.stages.selection import keep, pairs, weights

STATES, ACTIONS, ROWS = 5, 4, 40


def table(seed: int) -> tuple[Turns, Tensor, TabularPolicy]:
    """Rows of a tabular policy that is not uniform, and its logits by state."""
    rng = np.random.default_rng(seed)
    state = rng.integers(0, STATES, ROWS)
    keys = np.array([Observation(f"s{number}").key() for number in range(STATES)], np.uint64)
    policy = TabularPolicy(ACTIONS, name="p", capacity=STATES)
    policy.load_state_dict(policy.state_dict() | {
        "logits": torch.tensor(rng.normal(size=(STATES, ACTIONS)), dtype=torch.float32),
        "states": torch.from_numpy(keys.view(np.int64)),
    })  # fmt: skip
    logits = policy.state_dict()["logits"].double().clone()
    action = rng.integers(0, ACTIONS, ROWS)
    said = F.log_softmax(logits, -1)[torch.from_numpy(state), torch.from_numpy(action)]
    turns = Turns(
        {
            "iteration": [1] * ROWS, "group": state, "episode": np.arange(ROWS), "turn": [0] * ROWS,
            "agent": ["a"] * ROWS, "policy": ["p"] * ROWS,
            "observation": [f"s{number}" for number in state], "state": keys[state],
            "action": action.astype(str), "action_ids": [[int(each)] for each in action], "task": state.astype(str),
            "logprobs": [[float(each)] for each in said], "entropies": [[1.0]] * ROWS,
            "reward": rng.normal(size=ROWS).round(1), "success": rng.random(ROWS) < 0.4,
        }
    )  # fmt: skip
    return turns, logits, policy


def slope(turns: Turns, policy: TabularPolicy, term: str, now: Tensor | None = None) -> tuple[float, np.ndarray]:
    """Loss of an objective, and its gradient by the logits; now: those that it has moved to since the start."""
    learner = PolicyGradient(Team(a=policy), [term])
    if now is not None:
        policy.load_state_dict(policy.state_dict() | {"logits": now.float()})
    metrics = learner.forward_backward(turns.with_column(advantage=pl.lit(0.0)))["p"]
    gradient = policy.module.get_parameter("logits").grad
    assert gradient is not None
    return float(metrics["loss"] or 0.0), gradient.double().numpy()


def plainly(logits: Tensor, loss: Callable[[Tensor], Tensor]) -> tuple[float, np.ndarray]:
    """The same with plain torch."""
    leaf = logits.float().clone().requires_grad_()
    found = loss(F.log_softmax(leaf, -1))
    found.backward()
    assert leaf.grad is not None
    return found.item(), leaf.grad.double().numpy()


def check(ours: tuple[float, np.ndarray], theirs: tuple[float, np.ndarray]) -> None:
    assert ours[0] == pytest.approx(theirs[0], abs=1e-6)
    np.testing.assert_allclose(ours[1], theirs[1], atol=1e-6)
    assert np.abs(theirs[1]).max() > 1e-3


def told() -> Context:
    nothing: Any = None
    return Context(np.random.default_rng(0), 1, env=nothing, team=nothing, executor=nothing)


@pytest.mark.parametrize("seed", range(3))
def test_dpo_on_mined_pairs(seed: int) -> None:
    turns, logits, policy = table(seed)
    start = F.log_softmax(logits, -1)
    rows = turns.frame.select("group", "reward", pl.col("action_ids").list.first().alias("id")).rows()
    both = [
        (good, bad)
        for good in rows
        for bad in rows
        if good[0] == bad[0] and good[1] - bad[1] > 0.5 + 1e-9 and good[1] > 0.2
    ]
    assert len(both) > 20

    def loss(now: Tensor) -> Tensor:
        losses = []
        for (state, _, good), (_, _, bad) in both:
            chosen = now[state, good] - start[state, good]
            rejected = now[state, bad] - start[state, bad]
            losses.append(-F.logsigmoid(0.3 * (chosen - rejected)))
        return torch.stack(losses).mean()

    found = pairs("reward", "group", min_gap=0.5, min_chosen=0.2, unit="turn")(turns, told())
    assert found.frame["pair"].n_unique() - 1 * (found.frame["pair"].null_count() > 0) == len(both)
    since = logits + torch.tensor(np.random.default_rng(seed + 9).normal(size=logits.shape))
    check(slope(found, policy, "dpo(0.3)", since), plainly(since, loss))


@pytest.mark.parametrize("seed", range(3))
def test_signed_cloning(seed: int) -> None:
    turns, logits, policy = table(seed)
    rows = turns.frame.select("group", "success", pl.col("action_ids").list.first()).rows()

    def loss(now: Tensor) -> Tensor:
        total, count = torch.tensor(0.0), 0
        for state, won, action in rows:
            wins = sum(other for group, other, _ in rows if group == state)
            losses = sum(not other for group, other, _ in rows if group == state)
            if wins:
                weight = 1.0 if won else -wins / losses
                total, count = total - weight * now[state, action], count + 1
        return total / count

    found = weights('signed("success")')(turns, told())
    check(slope(found, policy, 'clone(column="weight")'), plainly(logits, loss))


@pytest.mark.parametrize("seed", range(3))
def test_advantage_weighted_cloning_of_the_upper_half(seed: int) -> None:
    turns, logits, policy = table(seed)
    rows = turns.frame.select("group", "reward", pl.col("action_ids").list.first()).rows()
    border = float(np.quantile([reward for _, reward, _ in rows], 0.5))

    def loss(now: Tensor) -> Tensor:
        total, count = torch.tensor(0.0), 0
        for state, reward, action in rows:
            if reward >= border:
                total, count = total - min(np.exp(reward / 0.7), 2.0) * now[state, action], count + 1
        return total / count

    found = keep("reward", quantile=0.5)(turns, told())
    found = weights('where(col("kept"), exp_weight(reward, temperature=0.7, most=2.0))')(found, told())
    check(slope(found, policy, 'clone(column="weight")'), plainly(logits, loss))
