"""verl's and TRL's own functions beside ours. Skipped where they are not installed; `make parity` installs them."""

from __future__ import annotations

from importlib import metadata
from typing import Any

import numpy as np
import pytest

from palaestra.credit import FLAVOURS, grpo, reinforce_plus_plus, rloo, whiten
from palaestra.turns import Turns

torch = pytest.importorskip("torch")


def batch(seed: int, sizes: list[int]) -> tuple[Turns, np.ndarray, np.ndarray]:
    """A table of one-turn episodes in random order, with each row's group and reward."""
    rng = np.random.default_rng(seed)
    group = np.repeat(np.arange(len(sizes)), sizes)
    episode = np.concatenate([np.arange(size) for size in sizes])
    order = rng.permutation(len(group))
    reward = np.round(rng.normal(size=len(group)), 2)
    columns = {"group": group[order], "episode": episode[order], "agent": ["a"] * len(group), "reward": reward}
    return Turns(columns), group[order], reward


def value(signal: Any, turns: Turns) -> np.ndarray:
    return np.asarray(signal.evaluate(turns), float)


SIZES = [1, 2, 3, 8, 1, 5, 8, 4]


@pytest.fixture(scope="module")
def core_algos() -> Any:
    return pytest.importorskip("verl.trainer.ppo.core_algos")


def verl(function: Any, group: np.ndarray, reward: np.ndarray, **more: Any) -> np.ndarray:
    rewards = torch.zeros(len(reward), 3, dtype=torch.float64)
    rewards[:, -1] = torch.from_numpy(reward)
    index = np.array([f"uid-{g}" for g in group], dtype=object)
    advantages, _ = function(rewards, torch.ones_like(rewards), index, **more)
    return np.asarray(advantages[:, 0])


@pytest.mark.parametrize("seed", range(5))
def test_verl_grpo(core_algos: Any, seed: int) -> None:
    turns, group, reward = batch(seed, SIZES)
    theirs = verl(core_algos.compute_grpo_outcome_advantage, group, reward)
    np.testing.assert_allclose(value(grpo(flavour="verl"), turns), theirs, 1e-6, 1e-6)


@pytest.mark.parametrize("seed", range(5))
def test_verl_vectorised_grpo_agrees_where_the_deviation_is_above_its_floor(core_algos: Any, seed: int) -> None:
    turns, group, reward = batch(seed, SIZES)
    theirs = verl(core_algos.compute_grpo_vectorized_outcome_advantage, group, reward)  # it computes in float32
    np.testing.assert_allclose(value(grpo(flavour="verl"), turns), theirs, 1e-4, 1e-4)


@pytest.mark.parametrize("seed", range(5))
def test_verl_rloo(core_algos: Any, seed: int) -> None:
    turns, group, reward = batch(seed, SIZES)
    theirs = verl(core_algos.compute_rloo_outcome_advantage, group, reward)
    np.testing.assert_allclose(value(rloo(flavour="verl"), turns), theirs, 1e-6, 1e-6)


@pytest.mark.parametrize("seed", range(5))
def test_verl_vectorised_rloo_is_our_default(core_algos: Any, seed: int) -> None:
    turns, group, reward = batch(seed, SIZES)
    theirs = verl(core_algos.compute_rloo_vectorized_outcome_advantage, group, reward)
    np.testing.assert_allclose(value(rloo(), turns), theirs, 1e-6, 1e-6)


@pytest.mark.parametrize("seed", range(3))
def test_verl_reinforce_plus_plus_with_a_group_baseline(core_algos: Any, seed: int) -> None:
    turns, group, reward = batch(seed, [size for size in SIZES if size > 1])
    rewards = torch.from_numpy(reward)[:, None]
    theirs, _ = core_algos.compute_reinforce_plus_plus_baseline_outcome_advantage(
        rewards, torch.ones_like(rewards), group
    )
    np.testing.assert_allclose(value(reinforce_plus_plus(baseline="group"), turns), theirs[:, 0], 1e-6, 1e-6)


def test_verl_whitening() -> None:
    functional = pytest.importorskip("verl.utils.torch_functional")
    turns, _, reward = batch(0, SIZES)
    theirs = functional.masked_whiten(torch.from_numpy(reward), torch.ones(len(reward)))
    np.testing.assert_allclose(value(whiten("reward"), turns), theirs, 1e-6, 1e-6)


@pytest.fixture(scope="module")
def nanstd() -> Any:
    return pytest.importorskip("trl.trainer.utils").nanstd


def equal_groups(seed: int) -> tuple[Turns, Any]:
    rng = np.random.default_rng(seed)
    rewards = np.round(rng.normal(size=(6, 4)), 2)
    rewards[0] = 0.25
    rewards[1, 0] = np.nan
    rewards[2, 1:] = np.nan
    rewards[3] = np.nan
    n = rewards.size
    columns = {"group": np.repeat(np.arange(6), 4), "episode": np.tile(np.arange(4), 6), "agent": ["a"] * n}
    turns = Turns(columns).with_column(reward=rewards.ravel())
    return turns, torch.from_numpy(rewards)


@pytest.mark.parametrize("seed", range(5))
def test_trl_grpo(nanstd: Any, seed: int) -> None:
    turns, rewards = equal_groups(seed)
    middle = torch.nanmean(rewards, dim=1, keepdim=True)
    theirs = torch.nan_to_num((rewards - middle) / (nanstd(rewards, dim=1, keepdim=True) + 1e-4), nan=0.0)
    np.testing.assert_allclose(value(grpo(flavour="trl"), turns), theirs.ravel(), 1e-6, 1e-6)


@pytest.mark.parametrize("seed", range(5))
def test_trl_rloo(seed: int) -> None:
    pytest.importorskip("trl")
    turns, rewards = equal_groups(seed)
    scored = (~torch.isnan(rewards)).sum(dim=1, keepdim=True)
    others = (torch.nansum(rewards, dim=1, keepdim=True) - rewards) / (scored - 1)
    theirs = torch.nan_to_num(rewards - others, nan=0.0)
    np.testing.assert_allclose(value(rloo(flavour="trl"), turns), theirs.ravel(), 1e-6, 1e-6)


def test_the_versions_that_the_flavours_name() -> None:
    pytest.importorskip("verl")
    pytest.importorskip("trl")
    assert set(FLAVOURS) == {"grpo", "rloo"}
    assert metadata.version("verl").startswith("0.9.")
    assert metadata.version("trl").startswith("1.16.")
