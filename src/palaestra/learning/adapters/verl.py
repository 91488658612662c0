"""verl: any signal as an advantage estimator. Written against verl 0.9.1.

    register("dr_grpo_palaestra", dr_grpo())          # then: algorithm.adv_estimator=dr_grpo_palaestra

What verl 0.9.1 passes to an estimator that it does not know by name (`trainer.ppo.ray_trainer.compute_advantage`):
`token_level_rewards`, `response_mask`, `config`, `index` (the uid of each row's prompt) and, if the batch has them,
`reward_baselines`. Nothing else of the batch: a signal with keys such as agent, turn or state needs `apply(data, ...)`
in place of that call, which sees all of `data.non_tensor_batch`. The trainer of `trainer.use_v1`, verl's default,
fetches no more than the uid either; `register_trainer` makes one that fetches what agent loops wrote beside samples:

    register_trainer("by_turn", gigpo(), columns=TURNS)     # trainer.v1.trainer_mode=by_turn

Envs and team procedures as such loops are in `verl_loop`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

import numpy as np

from palaestra.algebra.signals import Signal
from palaestra.algebra.turns import Ragged
from palaestra.errors import InputError, RewardError, missing_extra
from palaestra.learning.adapters import over_tokens, table

if TYPE_CHECKING:
    from torch import Tensor

Estimator = Callable[..., "tuple[Tensor, Tensor]"]
TURNS = {
    "agent": "agent",
    "episode": "episode",
    "turn": "turn",
    "state": "state",
    "reward": "turn_reward",
    "valid": "valid",
    "success": "success",
}
"""Columns from the extra fields of `verl_loop.EnvLoop`."""
_BESIDE: list[Mapping[str, Any]] = []
"""What the trainer below fetched for the estimator that verl is about to call in this process."""


def register(name: str, signal: Signal, *, columns: Mapping[str, str] | None = None) -> Estimator:
    """Register a `Signal` as verl's advantage estimator `name`; returns the function that verl will call.

    Registering the same again changes nothing, so the module that does it may be imported in every process
    (`VERL_USE_EXTERNAL_MODULES=my_module`). columns: see `advantage`.

    Raises:
        MissingExtraError: verl is not installed.
        InputError: verl, or somebody else, already has an estimator of that name.
    """
    try:
        from verl.trainer.ppo.core_algos import ADV_ESTIMATOR_REGISTRY, register_adv_est
    except ImportError as error:
        raise missing_extra("verl", "verl") from error

    def estimator(
        token_level_rewards: Tensor, response_mask: Tensor, index: np.ndarray | None = None, **fields: Any
    ) -> tuple[Tensor, Tensor]:
        given = dict(fields.pop("non_tensor_batch", None) or {}) | fields
        for beside in _BESIDE[-1:]:
            given |= beside
        if index is not None:
            given["uid"] = index
        return advantage(signal, token_level_rewards, response_mask, given, columns=columns)

    marked: Any = estimator
    marked.made_of = (str(signal), dict(columns or {}))
    known = ADV_ESTIMATOR_REGISTRY.get(name)
    if known is None:
        register_adv_est(name)(estimator)
        return estimator
    if getattr(known, "made_of", None) != marked.made_of:
        raise InputError(f"verl already has an advantage estimator {name!r}: register {signal} under another name")
    found: Estimator = known
    return found


def register_trainer(
    name: str, signal: Signal, *, columns: Mapping[str, str] | None = None, base: str = "sync"
) -> type[Any]:
    """Register a verl trainer whose credit is a `Signal`, for `trainer.v1.trainer_mode=NAME`; returns its class.

    base: verl's trainer below it, by its mode. columns: `TURNS` for samples of our envs. The estimator is registered
    under the same name, and `algorithm.adv_estimator` is set to it.

    Raises:
        MissingExtraError: verl or its TransferQueue is not installed.
        InputError: verl has no such base, or an estimator of that name.
    """
    try:
        from verl.trainer.ppo.v1 import get_trainer_cls
        from verl.trainer.ppo.v1 import register_trainer as add
    except ImportError as error:
        raise missing_extra("verl.trainer.ppo.v1", "verl") from error

    marked = (str(signal), dict(columns or {}), base)
    with suppress(ValueError):
        if getattr(known := get_trainer_cls(name), "made_of", None) == marked:
            found: type[Any] = known
            return found
    register(name, signal, columns=columns)
    try:
        below = get_trainer_cls(base)
    except ValueError as error:
        raise InputError(f"register_trainer: verl has no trainer mode {base!r}") from error
    made: type[Any] = type(f"{name}_trainer", (SignalCredit, below), {"adv_estimator": name, "made_of": marked})
    add(name)(made)
    return made


class SignalCredit:
    """Mixin of a verl trainer (`trainer.use_v1`): gives extra fields of samples to the credit before it is computed."""

    adv_estimator = ""

    def _compute_advantage(self, batch: Any, metrics: dict[str, Any]) -> Any:
        import transfer_queue

        trainer: Any = self
        parent: Any = super()
        found = transfer_queue.kv_batch_get(
            keys=batch.keys, partition_id=batch.partition_id, select_fields=["extra_fields"]
        )
        rows = [dict(each) for each in _plain(found["extra_fields"])]
        trainer.config.algorithm.adv_estimator = self.adv_estimator
        with _beside(_columns(rows)):
            return parent._compute_advantage(batch, metrics)


@contextmanager
def _beside(fields: Mapping[str, Any]) -> Iterator[None]:
    _BESIDE.append(fields)
    try:
        yield
    finally:
        _BESIDE.pop()


def _plain(stack: Any) -> list[Any]:
    return list(stack.tolist()) if hasattr(stack, "tolist") else list(stack)


def _columns(rows: list[dict[str, Any]]) -> dict[str, np.ndarray]:
    """An array for each name that a row has; None where another lacks it."""
    columns = {}
    for name in dict.fromkeys(name for row in rows for name in row):
        columns[name] = np.empty(len(rows), dtype=object)
        columns[name][:] = [row.get(name) for row in rows]
    return columns


def apply(data: Any, signal: Signal, *, columns: Mapping[str, str] | None = None) -> Any:
    """Write a `Signal`'s `advantages`, `returns` into a verl `DataProto` and return it, as `compute_advantage` does.

    Every array of `data.non_tensor_batch` can be a column: `columns={"agent": "role", "episode": "traj_uid"}`.
    """
    batch = data.batch
    batch["advantages"], batch["returns"] = advantage(
        signal, batch["token_level_rewards"], batch["response_mask"], data.non_tensor_batch, columns=columns
    )
    return data


def advantage(
    signal: Signal,
    token_level_rewards: Tensor,
    response_mask: Tensor,
    fields: Mapping[str, Any],
    *,
    columns: Mapping[str, str] | None = None,
) -> tuple[Tensor, Tensor]:
    """Pair of tensors (advantages, returns), both a `Signal`'s values on the mask, of verl's rewards, mask, `fields`.

    Both are [rows, length], and 0 elsewhere.
    The table has a row per response: `group` from the field `uid`, `reward` = the sum of its token rewards (all of
    them, as verl's estimators do), `token_rewards` = those under the mask, `agent` = "policy". Other fields become
    columns of their own name when the signal needs them, or of the name that `columns={column: field}` gives them. A
    missing advantage becomes 0, as verl cannot leave a response out.

    Raises:
        MissingColumnError: the signal needs a column that no field gives.
        RewardError: a response's reward is not finite; names the rows.
        ExpressionError: an advantage is not finite.
        LearnerError: there are more or fewer values per token than tokens.
    """
    rewards = token_level_rewards.detach().double().cpu().numpy()
    mask = response_mask.detach().cpu().numpy() > 0
    broken = np.flatnonzero(~np.isfinite(rewards).all(1))
    if len(broken):
        raise RewardError(f"token_level_rewards are not finite in {len(broken)} rows, first {broken[:5].tolist()}")
    known = {name: array for name, entries in fields.items() if (array := _per_row(entries, len(mask))) is not None}
    given = {
        "agent": ["policy"] * len(mask),
        "reward": rewards.sum(1),
        "token_rewards": Ragged(rewards[mask], mask.sum(1)).to_series("token_rewards"),
    }
    if "uid" in known:
        given["group"] = np.array([str(uid) for uid in known["uid"]], dtype=object)
    turns = table(signal, given, known, columns or {})
    placed = token_level_rewards.new_tensor(over_tokens(signal.evaluate(turns), mask))
    return placed, placed


def _per_row(entries: Any, rows: int) -> np.ndarray | None:
    """A field as an array, if it has one entry per row."""
    array = entries.detach().cpu().numpy() if hasattr(entries, "detach") else entries
    if isinstance(array, list | tuple):
        array = np.fromiter(array, object, len(array))
    return array if isinstance(array, np.ndarray) and array.shape == (rows,) else None
