"""verl's and TRL's own functions beside ours. Skipped where they are not installed; `make parity` installs them."""

from __future__ import annotations

from importlib import metadata
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import pytest
from tests.tables import values

from palaestra.algebra.turns import Ragged, Turns
from palaestra.credit import (
    FLAVOURS,
    centre,
    col,
    count,
    gae,
    grpo,
    per_token,
    per_turn,
    reinforce_plus_plus,
    return_to_go,
    rloo,
    total,
    where,
    whiten,
)

torch = pytest.importorskip("torch")
losses = pytest.importorskip("palaestra.learning.losses")


def batch(seed: int, sizes: list[int]) -> tuple[Turns, np.ndarray, np.ndarray]:
    """A table of one-turn episodes in random order, with each row's group and reward."""
    rng = np.random.default_rng(seed)
    group = np.repeat(np.arange(len(sizes)), sizes)
    episode = np.concatenate([np.arange(size) for size in sizes])
    order = rng.permutation(len(group))
    reward = np.round(rng.normal(size=len(group)), 2)
    columns = {"group": group[order], "episode": episode[order], "agent": ["a"] * len(group), "reward": reward}
    return Turns(columns), group[order], reward


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
    np.testing.assert_allclose(values(grpo(flavour="verl"), turns), theirs, 1e-6, 1e-6)


@pytest.mark.parametrize("seed", range(5))
def test_verl_vectorised_grpo_agrees_where_the_deviation_is_above_its_floor(core_algos: Any, seed: int) -> None:
    turns, group, reward = batch(seed, SIZES)
    theirs = verl(core_algos.compute_grpo_vectorized_outcome_advantage, group, reward)  # it computes in float32
    np.testing.assert_allclose(values(grpo(flavour="verl"), turns), theirs, 1e-4, 1e-4)


@pytest.mark.parametrize("seed", range(5))
def test_verl_rloo(core_algos: Any, seed: int) -> None:
    turns, group, reward = batch(seed, SIZES)
    theirs = verl(core_algos.compute_rloo_outcome_advantage, group, reward)
    np.testing.assert_allclose(values(rloo(flavour="verl"), turns), theirs, 1e-6, 1e-6)


@pytest.mark.parametrize("seed", range(5))
def test_verl_vectorised_rloo_is_our_default(core_algos: Any, seed: int) -> None:
    turns, group, reward = batch(seed, SIZES)
    theirs = verl(core_algos.compute_rloo_vectorized_outcome_advantage, group, reward)
    np.testing.assert_allclose(values(rloo(), turns), theirs, 1e-6, 1e-6)


@pytest.mark.parametrize("seed", range(3))
def test_verl_reinforce_plus_plus_with_a_group_baseline(core_algos: Any, seed: int) -> None:
    turns, group, reward = batch(seed, [size for size in SIZES if size > 1])
    rewards = torch.from_numpy(reward)[:, None]
    theirs, _ = core_algos.compute_reinforce_plus_plus_baseline_outcome_advantage(
        rewards, torch.ones_like(rewards), group
    )
    np.testing.assert_allclose(values(reinforce_plus_plus(baseline="group"), turns), theirs[:, 0], 1e-6, 1e-6)


def test_verl_whitening() -> None:
    functional = pytest.importorskip("verl.utils.torch_functional")
    turns, _, reward = batch(0, SIZES)
    theirs = functional.masked_whiten(torch.from_numpy(reward), torch.ones(len(reward)))
    np.testing.assert_allclose(values(whiten("reward"), turns), theirs, 1e-6, 1e-6)


# -- verl, token by token ---------------------------------------------------------------------------------------------


class Responses(NamedTuple):
    """The same responses as verl holds them and as a table; float64, so that only the formulas can differ."""

    turns: Turns
    rewards: Any
    values: Any
    mask: Any
    greedy: Any
    group: np.ndarray

    def padded(self, signal: Any) -> np.ndarray:
        """A signal, per token or per turn, where verl's mask is 1; 0 elsewhere."""
        found = signal.evaluate(self.turns)
        result = np.zeros(self.mask.shape)
        lengths = self.mask.sum(1).numpy()
        result[self.mask.numpy() == 1] = found.values if isinstance(found, Ragged) else np.repeat(found, lengths)
        return result


def responses(seed: int) -> Responses:
    """Responses of 1 to 9 tokens with a reward on every token and holes (what a tool said), in random order."""
    rng = np.random.default_rng(seed)
    sizes = np.array(SIZES)
    order = rng.permutation(sizes.sum())
    group = np.repeat(np.arange(len(sizes)), sizes)[order]
    episode = np.concatenate([np.arange(size) for size in sizes])[order]
    n = len(group)
    mask = np.arange(9) < rng.integers(1, 10, n)[:, None]
    mask[:, 1:] &= rng.random((n, 8)) < 0.8
    rewards, values = (np.where(mask, rng.normal(size=mask.shape), 0.0) for _ in range(2))
    greedy = rng.normal(size=n)
    columns = {"group": group, "episode": episode, "agent": ["a"] * n, "greedy": greedy}
    tokens = {"token_reward": rewards, "token_value": values}
    lists = {name: Ragged(each[mask], mask.sum(1)) for name, each in tokens.items()}
    turns = Turns(columns).with_column(**lists)
    index = np.array([f"uid-{g}" for g in group], dtype=object)
    tensors = (torch.tensor(rewards), torch.tensor(values), torch.tensor(mask).long(), torch.tensor(greedy))
    return Responses(turns, *tensors, index)


def same(ours: np.ndarray, theirs: Any, mask: Any) -> None:
    np.testing.assert_allclose(ours, np.asarray(theirs * mask), 1e-6, 1e-6)


SCORE = per_turn("token_reward", method="total")
TOKENS = per_turn(count("token_reward", over="row"))
LONE = count(over="group") == 1.0


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(
    ("name", "signal"),
    [
        ("grpo", grpo(SCORE, flavour="verl")),
        ("rloo", rloo(SCORE, flavour="verl")),
        ("rloo_vectorized", rloo(SCORE)),
        (
            "reinforce_plus_plus_baseline",
            whiten(per_token(centre(SCORE, over="group", singleton="raw"), "token_reward")),
        ),
        ("opo", where(LONE, SCORE, SCORE - total(TOKENS * SCORE, over="group") / total(TOKENS, over="group"))),
        ("gpg", count(over=()) / total(SCORE != 0.0, over=()) * centre(SCORE, over="group", singleton="raw")),
    ],
)
def test_verl_estimators_of_outcomes_on_ragged_responses(core_algos: Any, name: str, signal: Any, seed: int) -> None:
    batch = responses(seed)
    theirs, _ = core_algos.get_adv_estimator_fn(name)(batch.rewards, batch.mask, index=batch.group, config=None)
    same(batch.padded(signal), theirs, batch.mask)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(("gamma", "lam"), [(1.0, 1.0), (1.0, 0.95), (0.9, 0.5)])
def test_verl_gae(core_algos: Any, gamma: float, lam: float, seed: int) -> None:
    batch = responses(seed)
    ours = gae("token_value", "token_reward", gamma=gamma, lam=lam, bootstrap=0)
    theirs, returns = core_algos.compute_gae_advantage_return(batch.rewards, batch.values, batch.mask, gamma, lam)
    same(batch.padded(whiten(ours)), theirs, batch.mask)
    same(batch.padded(ours + col("token_value")), returns, batch.mask)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("gamma", [1.0, 0.9])
def test_verl_reinforce_plus_plus(core_algos: Any, gamma: float, seed: int) -> None:
    batch = responses(seed)
    config = SimpleNamespace(gamma=gamma)
    theirs, returns = core_algos.compute_reinforce_plus_plus_outcome_advantage(batch.rewards, batch.mask, config)
    same(batch.padded(reinforce_plus_plus(gamma=gamma, reward="token_reward")), theirs, batch.mask)
    same(batch.padded(return_to_go("token_reward", gamma=gamma)), returns, batch.mask)


@pytest.mark.parametrize("seed", range(5))
def test_verl_remax_is_return_to_go_minus_the_greedy_answers_reward(core_algos: Any, seed: int) -> None:
    batch = responses(seed)
    theirs, _ = core_algos.compute_remax_outcome_advantage(batch.rewards, batch.greedy, batch.mask)
    same(batch.padded(return_to_go("token_reward") - col("greedy")), theirs, batch.mask)


# -- verl's losses ----------------------------------------------------------------------------------------------------

AGGREGATIONS: list[tuple[str, dict[str, Any]]] = [
    ("token-mean", {"method": "token-mean"}),
    ("seq-mean-token-mean", {"method": "sequence-mean"}),
    ("seq-mean-token-sum-norm", {"method": "constant", "constant": 9}),
]


def policies(seed: int) -> tuple[Any, Any, Any, Any]:
    """Log-probabilities new and old, advantages and mask; ratios far beyond the clip, a padded tail, rows of one."""
    rng = np.random.default_rng(seed)
    mask = torch.tensor(np.arange(9) < rng.integers(1, 10, 32)[:, None])
    old = torch.tensor(-rng.exponential(size=mask.shape))
    new = (old + torch.tensor(rng.normal(scale=0.5, size=mask.shape))).requires_grad_()
    return new, old, torch.tensor(rng.normal(size=mask.shape)), mask


def actor(**options: Any) -> Any:
    config = pytest.importorskip("verl.workers.config")
    return config.ActorConfig(strategy="fsdp", rollout_n=1, ppo_micro_batch_size_per_gpu=1, **options)


def same_gradient(ours: Any, theirs: Any, new: Any) -> None:
    torch.testing.assert_close(ours, theirs, rtol=1e-6, atol=1e-6)
    gradients = [torch.autograd.grad(loss, new, retain_graph=True)[0] for loss in (ours, theirs)]
    torch.testing.assert_close(*gradients, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("mode", "how"), AGGREGATIONS)
def test_verl_clipped_loss_with_dual_clip(core_algos: Any, mode: str, how: dict[str, Any], seed: int) -> None:
    new, old, advantage, mask = policies(seed)
    config = actor(clip_ratio_low=0.2, clip_ratio_high=0.28, clip_ratio_c=3.0)
    theirs, metrics = core_algos.compute_policy_loss_vanilla(old, new, advantage, mask.long(), mode, config)
    per_token_loss, clipped = losses.clipped_surrogate(
        losses.log_ratio(new, old, mask), advantage, low=0.2, high=0.28, dual=3.0
    )
    same_gradient(losses.aggregate(per_token_loss, mask, **how), theirs, new)
    fractions = metrics["actor/pg_clipfrac"] + metrics["actor/pg_clipfrac_lower"]
    assert clipped[mask].double().mean().item() == pytest.approx(fractions, abs=1e-6)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("mode", "how"), AGGREGATIONS)
def test_verl_gspo(core_algos: Any, mode: str, how: dict[str, Any], seed: int) -> None:
    new, old, advantage, mask = policies(seed)
    config = actor(clip_ratio_low=0.01, clip_ratio_high=0.02)
    theirs, _ = core_algos.compute_policy_loss_gspo(old, new, advantage, mask.long(), mode, config)
    loss, _ = losses.clipped_surrogate(
        losses.log_ratio(new, old, mask, level="sequence"), advantage, low=0.01, high=0.02
    )
    same_gradient(losses.aggregate(loss, mask, **how), theirs, new)


@pytest.mark.parametrize(("mode", "how"), AGGREGATIONS)
def test_verl_aggregation_with_empty_rows_and_with_parts_of_a_batch(
    core_algos: Any, mode: str, how: dict[str, Any]
) -> None:
    """verl does not count rows without tokens; here they count, unless `rows` says otherwise."""
    loss, _, _, mask = policies(0)
    mask[:3] = False
    ours = losses.aggregate(loss, mask, rows=29, **how)
    torch.testing.assert_close(ours, core_algos.agg_loss(loss, mask.long(), mode), rtol=1e-6, atol=1e-6)
    theirs = core_algos.agg_loss(loss, mask.long(), mode, batch_num_tokens=500, global_batch_size=100)
    torch.testing.assert_close(losses.aggregate(loss, mask, rows=100, tokens=500, **how), theirs, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("estimator", ["k1", "k3"])
def test_verl_kl_penalties(core_algos: Any, estimator: Any) -> None:
    new, old, _, mask = policies(0)
    ours, theirs = losses.kl_estimate(new, old, estimator=estimator), core_algos.kl_penalty(new, old, estimator)
    torch.testing.assert_close(ours, theirs, rtol=1e-6, atol=1e-6)
    same_gradient(losses.aggregate(ours, mask), core_algos.agg_loss(theirs, mask.long(), "token-mean"), new)


# -- TRL --------------------------------------------------------------------------------------------------------------


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
    np.testing.assert_allclose(values(grpo(flavour="trl"), turns), theirs.ravel(), 1e-6, 1e-6)


@pytest.mark.parametrize("seed", range(5))
def test_trl_rloo(seed: int) -> None:
    pytest.importorskip("trl")
    turns, rewards = equal_groups(seed)
    scored = (~torch.isnan(rewards)).sum(dim=1, keepdim=True)
    others = (torch.nansum(rewards, dim=1, keepdim=True) - rewards) / (scored - 1)
    theirs = torch.nan_to_num(rewards - others, nan=0.0)
    np.testing.assert_allclose(values(rloo(flavour="trl"), turns), theirs.ravel(), 1e-6, 1e-6)


def test_the_versions_that_the_flavours_name() -> None:
    pytest.importorskip("verl")
    pytest.importorskip("trl")
    assert set(FLAVOURS) == {"grpo", "rloo"}
    assert metadata.version("verl").startswith("0.9.")
    assert metadata.version("trl").startswith("1.16.")
