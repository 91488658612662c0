"""A signal as verl's advantage estimator, beside verl's own. The parts that need verl are skipped without it."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from palaestra.algebra.signals import col, cumulative, exp, log, mean, where
from palaestra.credit import dr_grpo, dr_mas, gigpo, grpo, rloo
from palaestra.errors import (
    ExpressionError,
    InputError,
    MissingColumnError,
    MissingExtraError,
    RewardError,
    SchemaError,
)
from palaestra.learning.adapters.verl import advantage, apply, register, register_trainer

torch = pytest.importorskip("torch")

SIZES = [1, 2, 3, 8, 1, 5, 4]


def ragged(seed: int) -> tuple[Any, Any, np.ndarray]:
    """Token rewards and mask [24, 7] of responses of 1 to 7 tokens, with holes, and their prompts in random order."""
    rng = np.random.default_rng(seed)
    uid = rng.permutation(np.repeat([f"uid-{g}" for g in range(len(SIZES))], SIZES)).astype(object)
    mask = np.arange(7) < rng.integers(1, 8, len(uid))[:, None]
    mask[:, 1:] &= rng.random((len(uid), 6)) < 0.8  # what a tool said between two turns
    rewards = np.where(mask, rng.normal(size=mask.shape), 0.0)
    return torch.tensor(rewards), torch.tensor(mask).long(), uid


@pytest.fixture
def algos() -> Any:
    """verl's module, whose registry is put back afterwards."""
    module = pytest.importorskip("verl.trainer.ppo.core_algos")
    before = dict(module.ADV_ESTIMATOR_REGISTRY)
    yield module
    module.ADV_ESTIMATOR_REGISTRY.clear()
    module.ADV_ESTIMATOR_REGISTRY.update(before)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(("signal", "theirs"), [(grpo(flavour="verl"), "grpo"), (rloo(flavour="verl"), "rloo")])
def test_a_registered_signal_equals_verls_own_estimator(algos: Any, signal: Any, theirs: str, seed: int) -> None:
    rewards, mask, uid = ragged(seed)
    register("ours", signal)
    ours = algos.get_adv_estimator_fn("ours")(rewards, mask, index=uid, config=None)
    for mine, yours in zip(ours, algos.get_adv_estimator_fn(theirs)(rewards, mask, index=uid), strict=True):
        torch.testing.assert_close(mine, yours, rtol=1e-6, atol=1e-6, check_dtype=False)


def test_the_arguments_that_verls_trainer_takes_from_a_data_proto_are_enough(algos: Any) -> None:
    data = proto(3)
    register("ours", grpo(flavour="verl"))
    advantages, _ = algos.get_adv_estimator_fn("ours")(
        token_level_rewards=data.batch["token_level_rewards"],
        response_mask=data.batch["response_mask"],
        config={"gamma": 1.0},
        index=data.non_tensor_batch["uid"],
        reward_baselines=torch.zeros(24),
    )
    expected, _ = algos.compute_grpo_outcome_advantage(*ragged(3))
    torch.testing.assert_close(advantages, expected, rtol=1e-6, atol=1e-6, check_dtype=False)


def test_verls_trainer_finds_it_by_name_and_fills_the_data_proto(algos: Any) -> None:
    ray_trainer = pytest.importorskip("verl.trainer.ppo.ray_trainer")
    data = proto(0)
    register("ours", grpo(flavour="verl"))
    done = ray_trainer.compute_advantage(data, "ours")
    expected, _ = algos.compute_grpo_outcome_advantage(*ragged(0))
    torch.testing.assert_close(done.batch["advantages"], expected, rtol=1e-6, atol=1e-6, check_dtype=False)
    assert done.batch["returns"].shape == expected.shape


def test_verl_passes_no_field_but_the_uid_and_the_error_says_what_there_is(algos: Any) -> None:
    ray_trainer = pytest.importorskip("verl.trainer.ppo.ray_trainer")
    register("ours", dr_mas(over=("group", "role")))
    with pytest.raises(MissingColumnError, match=r"'role' is missing.*hands over 'uid'"):
        ray_trainer.compute_advantage(proto(0, role=np.array(["a", "b"] * 12, dtype=object)), "ours")


def proto(seed: int, **fields: np.ndarray) -> Any:
    protocol = pytest.importorskip("verl.protocol")
    rewards, mask, uid = ragged(seed)
    return protocol.DataProto.from_dict({"token_level_rewards": rewards, "response_mask": mask}, {"uid": uid} | fields)


def test_apply_sees_every_field_of_the_data_proto() -> None:
    role = np.array(["solver", "checker"] * 12, dtype=object)
    data = apply(proto(1, role=role), dr_mas(), columns={"agent": "role"})
    rewards, mask, uid = ragged(1)
    both = np.array([f"{u}-{r}" for u, r in zip(uid, role, strict=True)], dtype=object)
    expected, _ = advantage(grpo(flavour="verl"), rewards, mask, {"uid": both})
    torch.testing.assert_close(data.batch["advantages"], expected)
    assert not torch.allclose(expected, advantage(grpo(flavour="verl"), rewards, mask, {"uid": uid})[0])


def test_the_same_registration_twice_is_one_and_another_one_is_refused(algos: Any) -> None:
    first = register("ours", dr_grpo())
    assert register("ours", dr_grpo()) is first
    with pytest.raises(InputError, match=r"already has an advantage estimator 'ours'"):
        register("ours", rloo())
    with pytest.raises(InputError, match="'gae'"):
        register("gae", rloo())


def test_the_same_again_is_what_is_there_in_place_of_verl_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """With no verl: two registries, which give what was put in."""
    estimators: dict[str, Any] = {"gae": print}
    trainers: dict[str, Any] = {"sync": type("Sync", (), {})}

    def found(name: str) -> Any:
        if name not in trainers:
            raise ValueError(name)
        return trainers[name]

    core = SimpleNamespace(
        ADV_ESTIMATOR_REGISTRY=estimators, register_adv_est=lambda name: lambda made: estimators.update({name: made})
    )
    v1 = SimpleNamespace(
        get_trainer_cls=found, register_trainer=lambda name: lambda made: trainers.update({name: made})
    )
    above = dict.fromkeys(("verl", "verl.trainer", "verl.trainer.ppo"), SimpleNamespace())
    for name, module in (above | {"verl.trainer.ppo.core_algos": core, "verl.trainer.ppo.v1": v1}).items():
        monkeypatch.setitem(sys.modules, name, module)
    first = register("ours", dr_grpo())
    assert register("ours", dr_grpo()) is first is estimators["ours"]
    for name in ("ours", "gae"):
        with pytest.raises(InputError, match=f"already has an advantage estimator '{name}'"):
            register(name, rloo())
    trainer = register_trainer("by_turn", dr_grpo())
    assert register_trainer("by_turn", dr_grpo()) is trainer is trainers["by_turn"]
    assert issubclass(trainer, trainers["sync"])
    assert trainer.adv_estimator == "by_turn"
    with pytest.raises(InputError, match="no trainer mode 'nope'"):
        register_trainer("other", dr_mas(), base="nope")
    with pytest.raises(InputError, match="already has an advantage estimator 'by_turn'"):
        register_trainer("by_turn", rloo())


def test_without_verl_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "verl", None)
    monkeypatch.setitem(sys.modules, "verl.trainer.ppo.core_algos", None)
    with pytest.raises(MissingExtraError, match=r"palaestra\[verl\]"):
        register("ours", dr_grpo())


ONES = torch.ones(4, 2)
UID = np.array(["x", "x", "y", "y"], dtype=object)


def test_values_stand_on_the_mask_and_nowhere_else() -> None:
    mask = torch.tensor([[1, 1], [0, 1], [1, 0], [0, 0]])
    rewards = torch.tensor([[0.0, 3.0], [0.0, 1.0], [2.0, 0.0], [4.0, 0.0]])
    advantages, returns = advantage(dr_grpo(), rewards, mask, {"uid": UID})
    assert advantages.tolist() == [[1.0, 1.0], [0.0, -1.0], [-1.0, 0.0], [0.0, 0.0]]
    assert returns.tolist() == advantages.tolist()
    assert advantages.dtype == rewards.dtype


def test_a_value_per_token_stands_on_its_token() -> None:
    mask = torch.tensor([[1, 0, 1], [0, 1, 0]])
    rewards = torch.tensor([[1.0, 9.0, 2.0], [0.0, 3.0, 0.0]])
    advantages, _ = advantage(10 * col("token_rewards"), rewards, mask, {})
    assert advantages.tolist() == [[10.0, 0.0, 20.0], [0.0, 30.0, 0.0]]


def test_rows_of_one_episode_are_turns_in_the_order_of_the_batch() -> None:
    rewards = torch.tensor([[1.0], [2.0], [4.0], [8.0]])
    fields = {"uid": UID, "trajectory": np.array(["p", "p", "q", "q"], dtype=object)}
    to_go = cumulative("reward", reverse=True) + 100 * col("turn")
    advantages, _ = advantage(to_go, rewards, torch.ones(4, 1), fields, columns={"episode": "trajectory"})
    assert advantages[:, 0].tolist() == [3.0, 102.0, 12.0, 108.0]


@pytest.mark.parametrize("kind", [lambda texts: np.array(texts, dtype=object), list, tuple])
def test_text_can_be_the_state(kind: Any) -> None:
    seen = kind(["door", "door", "wall", "door"])
    rewards = torch.tensor([[1.0], [3.0], [5.0], [7.0]])
    advantages, _ = advantage(
        mean("reward", over="state"), rewards, torch.ones(4, 1), {"seen": seen}, columns={"state": "seen"}
    )
    assert advantages[:, 0].tolist() == [pytest.approx(11 / 3)] * 2 + [5.0, pytest.approx(11 / 3)]


def test_what_is_missing_is_not_trained() -> None:
    advantages, _ = advantage(where(col("turn") > 0, 1.0), ONES, ONES, {"uid": UID})
    assert advantages.tolist() == [[0.0, 0.0]] * 4


def test_bad_input_is_named() -> None:
    with pytest.raises(MissingColumnError, match=r"'state' is missing.*columns={'state'"):
        advantage(gigpo(), ONES, ONES, {"uid": UID})
    with pytest.raises(MissingColumnError, match=r"field 'rol'.*'role'"):
        advantage(dr_mas(), ONES, ONES, {"uid": UID, "role": UID}, columns={"agent": "rol"})
    things = np.array([object()] * 4, dtype=object)
    with pytest.raises(SchemaError, match="'things' holds object"):
        advantage(mean("reward", over="things"), ONES, ONES, {"things": things})
    for bad in (float("nan"), float("inf")):
        broken = ONES.clone()
        broken[2, 1] = bad
        with pytest.raises(RewardError, match=r"token_level_rewards are not finite in 1 rows, first \[2\]"):
            advantage(dr_grpo(), broken, ONES, {"uid": UID})
    with pytest.raises(ExpressionError, match="not finite"):
        advantage(exp(col("reward") * 1e6), ONES, ONES, {"uid": UID})
    with pytest.raises(MissingColumnError, match="'group'"):
        advantage(log(mean("reward", over="group")), ONES, ONES, {})
