"""Result of an audit: a verdict, one sentence, the numbers behind it and the rows that prove it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from palaestra.algebra.kernels import Evaluation
from palaestra.algebra.signals import Signal
from palaestra.algebra.signals import per_turn as token_sums
from palaestra.algebra.turns import Ragged, Turns
from palaestra.errors import InputError

Verdict = Literal["pass", "warn", "fail", "cannot tell"]


@dataclass(frozen=True)
class Finding:
    """Data of one audit's result: its verdict, a sentence, the numbers, the rows that prove it, and a fix.

    verdict: `fail` is a loop that can be farmed; `warn` deserves a look; `cannot tell`: the table holds no evidence.
    rows: the proof, as rows of the table (`row` is the position in it) with the reward that they earn.
    fix: what to do about it, in a sentence; of judges.
    """

    audit: str
    verdict: Verdict
    sentence: str
    numbers: Mapping[str, float] = field(default_factory=dict)
    rows: Sequence[Mapping[str, Any]] = ()
    fix: str = ""

    def to_dict(self) -> dict[str, Any]:
        """The finding as plain values for JSON; NaN and infinity become null."""
        numbers = {k: float(v) if math.isfinite(v) else None for k, v in self.numbers.items()}
        made = {
            "audit": self.audit,
            "verdict": self.verdict,
            "sentence": self.sentence,
            "numbers": numbers,
            "rows": [dict(row) for row in self.rows],
        }
        return made | ({"fix": self.fix} if self.fix else {})


def scores(turns: Turns, reward: Signal) -> np.ndarray:
    """float64[rows]: value of a `Signal` object on each of `Turns`, token rewards summed; NaN where none is scored.

    Raises:
        RewardError, MissingColumnError: as `Signal.evaluate`.
    """
    value = reward.evaluate(turns)
    if isinstance(value, Ragged):
        value = Evaluation(turns)(token_sums(reward, method="total"))
    return np.asarray(value, float)


def per_turn(turns: Turns, reward: Signal) -> np.ndarray:
    """float64[rows]: value of a reward `Signal` on each of `Turns`, token rewards summed; 0 where none is scored."""
    return np.asarray(np.nan_to_num(scores(turns, reward)))


def evidence_rows(turns: Turns, rows: Sequence[int] | np.ndarray, values: np.ndarray) -> list[dict[str, Any]]:
    """List of dicts of given rows of `Turns`: position, episode keys, state, action, reward from array `values`."""
    shown = [n for n in ("iteration", "group", "episode", "turn", "agent", "state", "action") if n in turns.columns]
    rows = np.asarray(rows, dtype=np.int64)
    records = turns.frame[rows.tolist()].select(shown).to_dicts()
    return [{"row": int(row)} | record | {"reward": float(values[row])} for row, record in zip(rows, records)]


def require(turns: Turns, *names: str) -> None:
    """Raises an error, with advice, if `Turns` are empty or lack one of the columns `names`; gives nothing."""
    for name in names:
        turns._require(name, "audit: ")
    if not len(turns):
        raise InputError("audit: the table is empty; give it at least one episode")
