"""TRL: any reward signal as a reward function, and `SignalGRPOTrainer`, a `GRPOTrainer` with `credit=`. TRL 1.16.0.

The table has a row per completion: `observation` (the prompt as text), `action` (the completion's text), `group`,
`episode`, `turn` = 0 and `agent` = "policy"; columns of the data set come in when the signal needs them.

Of the trainer two methods are extended, none is copied: `_calculate_rewards`, where all processes' rewards are known,
and `_generate_and_score_completions`, whose "advantages" are replaced. Left out: log-probabilities and entropies as
columns, which TRL computes after the credit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from palaestra.algebra.codes import code_array
from palaestra.algebra.signals import Signal, short
from palaestra.algebra.turns import Ragged, Turns
from palaestra.errors import ExpressionError, missing_extra
from palaestra.learning.adapters import over_tokens, table
from palaestra.learning.adapters.trl_rollout import TURN


def reward_function(
    signal: Signal, *, columns: Mapping[str, str] | None = None, name: str | None = None
) -> Callable[..., list[float | None]]:
    """Makes a TRL reward function of a `Signal`, for `reward_funcs=`: it returns a float or None for each completion.

    A missing value is None, which TRL leaves out of the group's statistics. Completions of the same prompt are a
    `group`; a process sees only its own, so statistics over groups belong in `credit=`. columns: {column: data set
    column} where the names differ. name: what TRL's logs call it.

    Raises (when it is called):
        MissingColumnError: the signal needs a column that the data set does not have.
        ExpressionError: the signal has one value per token.

    >>> from palaestra.algebra.signals import col
    >>> reward_function(col("length") / 2, columns={"length": "words"})(
    ...     prompts=["a", "b"], completions=["x", "y"], words=[3, None])
    [1.5, None]
    """

    def reward(*, prompts: Sequence[Any], completions: Sequence[Any], **given: Any) -> list[float | None]:
        texts = [_text(prompt) for prompt in prompts]
        group = code_array(np.array([repr(prompt) for prompt in prompts], dtype=object)).ids
        fields = {key: value for key, value in given.items() if isinstance(value, list) and len(value) == len(texts)}
        base = {"observation": texts, "action": [_text(each) for each in completions]}
        turns = table(signal, {**base, "group": group, "agent": ["policy"] * len(texts)}, fields, columns or {})
        value = signal.evaluate(turns)
        if isinstance(value, Ragged):
            raise ExpressionError(f"{short(signal)}: a reward is one value per completion; wrap it in per_turn()")
        return [None if np.isnan(each) else each for each in value.astype(np.float64).tolist()]

    reward.__name__ = name or short(signal)
    return reward


class SignalCredit:
    """Mixin of TRL's `GRPOTrainer` whose advantages are the signal `credit=`: `class Mine(SignalCredit, GRPOTrainer)`.

    credit: the advantage; `reward` is the weighted sum of the reward functions (missing if none of them scored), and
    each function's own reward is a column under its name. `group` is the prompt, `action_ids` the completion's tokens,
    so credit may be one value per token. With `rollout_func=EnvRollout(…)` the table has a row per turn of each agent
    instead, with `state`, `turn`, `valid` and `success`, and a turn's credit stands on its own tokens. Groups are
    whole, over all processes. A missing advantage is 0, as in TRL, whose settings about advantages (`scale_rewards`,
    `multi_objective_aggregation`) then only shape its logs.
    columns: {column: data set column} where the names differ.
    """

    def __init__(self, *args: Any, credit: Signal, columns: Mapping[str, str] | None = None, **kwargs: Any) -> None:
        self.credit = credit
        self.credit_columns = dict(columns or {})
        self.credit_table: Turns | None = None
        self.credit_spans: list[tuple[int, int, int]] = []
        super().__init__(*args, **kwargs)

    def _calculate_rewards(self, inputs: Any, prompts: Any, completions: Any, completion_ids_list: Any) -> Any:
        from accelerate.utils import gather_object

        trainer, parent = _untyped(self), _untyped(super())
        rewards = parent._calculate_rewards(inputs, prompts, completions, completion_ids_list)
        scores = rewards.double().cpu().numpy()
        weights = trainer.reward_weights.double().cpu().numpy()
        size = trainer.num_generations if trainer.model.training else trainer.num_generations_eval
        if "turns" in inputs[0]:
            self.credit_table = self._turns(gather_object([row["turns"] for row in inputs]), size)
            return rewards
        given = {
            "observation": gather_object([_text(prompt) for prompt in prompts]),
            "action": gather_object([_text(completion) for completion in completions]),
            "action_ids": gather_object([list(map(int, ids)) for ids in completion_ids_list]),
            "group": np.arange(len(scores)) // size,
            "agent": ["policy"] * len(scores),
            "reward": np.where(np.isnan(scores).all(1), np.nan, np.nansum(scores * weights, 1)),
        }
        wanted = self.credit.needs().union(self.credit_columns.values())
        there = sorted(wanted.intersection(inputs[0]).difference(given))  # the same order in every process
        fields = {name: gather_object([row[name] for row in inputs]) for name in there}
        own = dict(zip(trainer.reward_func_names, scores.T, strict=True))
        self.credit_table = table(self.credit, given, fields | own, self.credit_columns)
        return rewards

    def _turns(self, episodes: list[list[dict[str, Any]]], size: int) -> Turns:
        """A row per turn; keeps where each stands: row of the batch, first token, tokens."""
        turns = [(row, turn) for row, episode in enumerate(episodes) for turn in episode]
        self.credit_spans = [(row, turn["start"], turn["length"]) for row, turn in turns]
        self.credit_rows = len(episodes)
        given = {name: [turn[name] for _, turn in turns] for name in TURN}
        rows = np.array([row for row, _ in turns])
        return table(self.credit, given | {"group": rows // size, "episode": rows % size}, {}, self.credit_columns)

    def _placed(self, value: np.ndarray | Ragged) -> np.ndarray:
        """Each turn's value on its tokens, float64[rows, tokens]; 0 on the env's words."""
        if isinstance(value, Ragged):
            raise ExpressionError(f"{short(self.credit)}: credit of turns is one value per turn; wrap it in per_turn()")
        longest = max((start + length for _, start, length in self.credit_spans), default=0)
        placed = np.zeros((self.credit_rows, longest))
        for (row, start, length), each in zip(self.credit_spans, np.nan_to_num(value.astype(float)), strict=True):
            placed[row, start : start + length] = each
        return placed

    def _generate_and_score_completions(self, inputs: Any) -> Any:
        trainer, parent = _untyped(self), _untyped(super())
        output = parent._generate_and_score_completions(inputs)
        assert self.credit_table is not None
        turns, advantages = self.credit_table, output["advantages"]
        value = self.credit.evaluate(turns)
        first = trainer.accelerator.process_index * len(inputs)
        mine = slice(first, first + len(inputs))
        if self.credit_spans:
            every = self._placed(value)
            output["advantages"] = advantages.new_tensor(_fit(every[mine], output["completion_ids"].shape[1]))
            _relog(trainer, every.sum(1) / np.maximum((every != 0).sum(1), 1))
        elif isinstance(value, Ragged):
            mask = np.arange(max(value.lengths, default=0)) < value.lengths[:, None]
            every = over_tokens(value, mask)
            output["advantages"] = advantages.new_tensor(_fit(every[mine], output["completion_ids"].shape[1]))
            _relog(trainer, every.sum(1) / np.maximum(value.lengths, 1))
        else:
            every = np.nan_to_num(value.astype(np.float64), nan=0.0)
            output["advantages"] = advantages.new_tensor(every[mine])
            _relog(trainer, every)
        return output


def _untyped(thing: object) -> Any:
    """TRL's trainer below this class is known only when it is mixed."""
    return thing


def _fit(tokens: np.ndarray, length: int) -> np.ndarray:
    """Cut or filled with 0 to the length of this process's completions."""
    return np.pad(tokens, ((0, 0), (0, max(0, length - tokens.shape[1]))))[:, :length]


def _relog(trainer: Any, advantages: np.ndarray) -> None:
    """The table of completions shows what is trained on, not what TRL had computed."""
    log = trainer._logs["advantages"]
    for _ in range(min(len(log), len(advantages))):
        log.pop()
    log.extend(advantages.tolist())


def _text(message: str | Iterable[Mapping[str, Any]]) -> str:
    """A prompt or completion as text; of a conversation what its messages say."""
    return message if isinstance(message, str) else "\n".join(str(each.get("content") or "") for each in message)


def __getattr__(name: str) -> Any:
    """`SignalGRPOTrainer` is made when it is first asked for, so that this module needs no TRL."""
    if name != "SignalGRPOTrainer":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        from trl import GRPOTrainer
    except ImportError as error:
        raise missing_extra("trl", "trl") from error
    made = type(name, (SignalCredit, GRPOTrainer), {"__doc__": SignalCredit.__doc__, "__module__": __name__})
    return globals().setdefault(name, made)
