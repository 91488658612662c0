"""Optimisers by name: the moments of AdamW quantised, kept to the bit; one's own class; what does not go is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch

from palaestra.agents import Team
from palaestra.agents.mlp import MLPPolicy
from palaestra.algebra.turns import Turns
from palaestra.errors import InputError, StorageError
from palaestra.learning import PolicyGradient, checkpoints
from palaestra.learning.optimizers import QUANTISED, optimizer_class, set_rate
from palaestra.learning.transaction import extend_moments

SIZE = 256
"""Torchao keeps the moments of smaller layers whole."""


class Plain(torch.optim.SGD):
    """Somebody's own optimiser, called as AdamW is."""

    def __init__(self, parameters: Any, lr: float, *, betas: tuple[float, float], weight_decay: float) -> None:
        super().__init__(parameters, lr, weight_decay=weight_decay)


def _learner(optimizer: str, **options: Any) -> PolicyGradient:
    team = Team(a=MLPPolicy(SIZE, 4, hidden=(SIZE,), name="p", seed=1))
    return PolicyGradient(team, lr=1e-3, optimizer=optimizer, **options)


def _turns(learner: PolicyGradient, seed: int) -> Turns:
    rng = np.random.default_rng(seed)
    actions = rng.integers(4, size=16)
    frame = pl.DataFrame(
        {
            "agent": ["a"] * 16, "policy": ["p"] * 16, "episode": np.arange(16), "turn": [0] * 16,
            "features": rng.normal(size=(16, SIZE)).tolist(), "action_ids": [[int(each)] for each in actions],
            "advantage": rng.normal(size=16).tolist(), "logprobs": [[float(np.log(0.25))]] * 16,
        },
        schema_overrides={"action_ids": pl.List(pl.Int64)},
    )  # fmt: skip
    return Turns(frame)


def _weights(learner: PolicyGradient) -> torch.Tensor:
    return torch.cat([each.detach().ravel() for each in learner.policies["p"].parameters()])


@pytest.mark.parametrize("optimizer", sorted(QUANTISED))
def test_quantised_moments_learn_nearly_as_whole_ones_and_are_kept_to_the_bit(optimizer: str, tmp_path: Path) -> None:
    pytest.importorskip("torchao")
    whole, small, again = _learner("adamw"), _learner(optimizer), _learner(optimizer)
    start = _weights(whole)
    for seed in range(3):
        for learner in (whole, small):
            learner.update(_turns(learner, seed))
    moved, apart = (_weights(whole) - start).norm(), (_weights(whole) - _weights(small)).norm()
    assert 0 < apart < 0.2 * moved
    state = next(iter(small.optimisers["p"].state.values()))
    assert type(state["exp_avg"]).__name__.startswith("OptimState")
    small.save(tmp_path / "kept")
    again.load(tmp_path / "kept")
    for learner in (small, again):
        learner.update(_turns(learner, 3))
    assert torch.equal(_weights(small), _weights(again))


def test_a_class_of_ones_own_moves_the_policy() -> None:
    learner = _learner(f"{__name__}:Plain", max_grad_norm=None)
    before = _weights(learner)
    learner.forward_backward(_turns(learner, 0))
    gradient = torch.cat([each.grad.ravel() for each in learner.policies["p"].parameters() if each.grad is not None])
    learner.optim_step()
    assert torch.allclose(before - _weights(learner), 1e-3 * gradient, atol=1e-7)


def test_the_rate_of_a_compiled_step_is_changed_in_place() -> None:
    rate = torch.tensor(1.0)
    group: dict[str, Any] = {"lr": rate}
    set_rate(group, 0.5)
    assert group["lr"] is rate
    assert rate == 0.5


@pytest.mark.parametrize(
    ("optimizer", "message"),
    [("adamv", "did you mean 'adamw'"), ("nowhere:Adam", "cannot import"), ("torch.optim:Adamm", "Adamm")],
)
def test_an_unknown_optimiser_is_named(optimizer: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        optimizer_class(optimizer)
    with pytest.raises(InputError, match=message):
        _learner(optimizer)


def test_an_optimiser_that_is_called_in_another_way_is_said_when_the_learner_is_made() -> None:
    with pytest.raises(InputError, match=r"'torch.optim:SGD' is not called with \(parameters, lr, betas=, .*'betas'"):
        _learner("torch.optim:SGD")


def test_fsdp_takes_adamw() -> None:
    with pytest.raises(InputError, match="with fsdp take adamw"):
        _learner(f"{__name__}:Plain", devices="fsdp")


def test_a_checkpoint_makes_no_class_but_those_of_quantised_moments(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="'Popen', which is no state of an optimiser"):
        checkpoints._unpack({"!quantised": ["Popen", {}, []]}, {}, tmp_path)


def test_only_moments_grow_with_a_parameter() -> None:
    """Somebody's own optimiser keeps more than moments: scales of blocks, for instance."""
    parameter = torch.nn.Parameter(torch.zeros(3, 2))
    optimiser = torch.optim.AdamW([parameter])
    optimiser.state[parameter] = {"exp_avg": torch.ones(2, 2), "absmax1": torch.ones(1)}
    extend_moments(optimiser)
    assert optimiser.state[parameter]["exp_avg"].tolist() == [[1, 1], [1, 1], [0, 0]]
    assert optimiser.state[parameter]["absmax1"].shape == (1,)
