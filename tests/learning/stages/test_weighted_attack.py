"""A network of shifts that learns from weighted replay: stops, seats without it, and what is stored."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
import pytest
import torch

from palaestra.agents import MLPPolicy, Team
from palaestra.agents.perturbed import PerturbedPolicy
from palaestra.algebra.turns import Turns
from palaestra.errors import InputError
from palaestra.learning.stages import Context
from palaestra.learning.stages.weighted_attack import weighted_attack


def policy() -> PerturbedPolicy:
    return PerturbedPolicy(3, 2, epsilon=0.5, aim="network", hidden=(4,), victim_hidden=(4,), name="a")


def play(number: int) -> Turns:
    rng = np.random.default_rng(number)
    features = rng.normal(size=(12, 3)).astype(np.float32)
    rows = {"episode": np.arange(12) // 2, "turn": np.arange(12) % 2, "agent": ["a", "b"] * 6, "reward": [0.0] * 12,
            "features": features.tolist(), "action_ids": rng.integers(2, size=(12, 1)).tolist(),
            "preference": rng.normal(size=12)}  # fmt: skip
    return Turns(pl.DataFrame(rows).with_columns(pl.col("features").cast(pl.List(pl.Float32))))


def told(number: int, member: Any) -> Context:
    team = Team(a=member, b=MLPPolicy(3, 2, name="b"))
    return Context(np.random.default_rng(number), number, None, team, None)  # type: ignore[arg-type]


def test_it_goes_on_after_a_stop() -> None:
    whole, stopped, waiting, again = (weighted_attack("a", batch=8, steps=3) for _ in range(4))
    one, two = policy(), policy()
    for number in range(3):
        whole(play(number), told(number, one))
    for number in range(2):
        stopped(play(number), told(number, two))
    waiting.load_state_dict(stopped.state_dict())
    again.load_state_dict(waiting.state_dict())  # saved before it was used again
    again(play(2), told(2, two))
    for name, value in one.module.state_dict().items():
        torch.testing.assert_close(two.module.state_dict()[name], value)


def test_the_network_alone_is_trained_and_begins_without_a_shift() -> None:
    member = policy()
    before = {name: value.clone() for name, value in member.module.state_dict().items()}
    torch.testing.assert_close(member.shifted(torch.eye(3)), torch.eye(3))
    weighted_attack("a", batch=8, steps=3)(play(0), told(0, member))
    assert 0 < float((member.shifted(torch.eye(3)) - torch.eye(3)).abs().max()) <= 0.5
    changed = {
        name.split(".")[0] for name, value in member.module.state_dict().items() if not value.equal(before[name])
    }
    assert changed == {"adversary"}
    assert not any(each.requires_grad for each in member.module.get_submodule("adversary").parameters())


def test_bad_options_and_seats_are_named() -> None:
    with pytest.raises(InputError, match="steps=0"):
        weighted_attack("a", steps=0)
    for name in ("lr", "outer_lr", "inner"):
        with pytest.raises(InputError, match=f"{name}=0.0"):
            weighted_attack("a", **{name: 0.0})  # type: ignore[arg-type]
    assert weighted_attack("a", memory=1, batch=1, steps=1).steps == 1
    with pytest.raises(InputError, match="'b' is not of kind perturbed"):
        weighted_attack("b")(play(0), told(0, policy()))
