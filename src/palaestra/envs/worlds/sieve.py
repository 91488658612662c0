"""`Sieve`: rows come one after the other, and few of them matter; what was kept is submitted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from palaestra.envs.protocol import Observation
from palaestra.envs.registry import ENVS
from palaestra.envs.worlds.native import Chosen, NativeEnv
from palaestra.errors import InputError

MOVES = ("keep", "leave", "submit")


@dataclass
class _SieveState:
    kinds: list[int]
    seen: list[int]
    worked: bool
    order: list[int]
    kept: tuple[int, ...] = ()
    turn: int = 0


@ENVS.register("native/sieve")
class Sieve(NativeEnv):
    """Evidence selection env: `seeker` keeps or leaves a row a turn; wins 1 with the share of relevant rows as chance.

    rows: how many there are of each kind, the first of which is what matters; their order is drawn. accuracy: chance
    that a row looks like its kind, else like another. worked: chance that the task was done; rows that matter say so.
    stride: at first only every `stride`-th row is shown; keeping one shows the rows beside it next, up to `budget` rows
    in all. Reward 1, success, with a chance of the share of rows that matter that were kept, if the task was done.
    facts: tool, "look" or, on the last turn, "submit"; there also evidence and gold, the rows that were kept and those
    that matter: with a stride of 1 a row is its turn.
    """

    agents: tuple[str, ...] = ("seeker",)
    facts = {"tool": str, "evidence": list[int], "gold": list[int]}

    def __init__(
        self,
        rows: Mapping[str, int] | None = None,
        *,
        accuracy: float = 0.95,
        worked: float = 1.0,
        stride: int = 1,
        budget: int | None = None,
    ) -> None:
        self.rows = {"proof": 3, "chaff": 17} if rows is None else {name: int(n) for name, n in rows.items()}
        if len(self.rows) < 2 or min(self.rows.values()) < 1 or not (0 <= accuracy <= 1 and 0 <= worked <= 1):
            raise InputError(
                f"Sieve: rows={self.rows} needs two kinds of one row or more, {accuracy=} and {worked=} in [0, 1]"
            )
        most = sum(self.rows.values())
        if stride < 1 or (budget is not None and budget < -(-most // stride)):
            raise InputError(f"Sieve: {stride=} must be at least 1, and {budget=} enough for the rows shown at first")
        self.stride, self.budget = stride, most if budget is None else budget
        self.names, self.accuracy, self.worked = tuple(self.rows), accuracy, worked
        self.every = np.repeat(np.arange(len(self.rows)), list(self.rows.values()))

    def begin(self) -> tuple[str, _SieveState]:
        """Shuffle the rows, and draw what each looks like."""
        kinds = self.rng.permutation(self.every)
        other = (kinds + self.rng.integers(1, len(self.names), len(kinds))) % len(self.names)
        seen = np.where(self.rng.random(len(kinds)) < self.accuracy, kinds, other)
        worked = bool(self.rng.random() < self.worked)
        look = "-".join(map(str, seen))
        return f"sieve {look}{'' if worked else ' failed'}", _SieveState(
            kinds.tolist(), seen.tolist(), worked, list(range(0, len(kinds), self.stride))
        )

    def look(self) -> dict[str, Observation]:
        """Observation of the seeker: the looks of one row, or that it is time to submit."""
        state = self.state
        if state.turn > len(state.order):
            return {}
        submit = state.turn == len(state.order)
        if submit:
            text = "submit what was kept"
        else:
            kind = state.seen[state.order[state.turn]]
            text = self.names[kind] + ("" if kind else ", it worked" if state.worked else ", it failed")
        return {"seeker": Observation(text, MOVES, np.array([not submit, not submit, submit]))}

    def play(self, chosen: Chosen) -> tuple[dict[str, float], dict[str, Any]]:
        """Keep or leave a row (an invalid move leaves it), or score what was kept."""
        state = self.state
        turn, state.turn = state.turn, state.turn + 1
        if turn < len(state.order):
            if chosen["seeker"] == 0:
                self._keep(state, turn)
            return {}, {"tool": "look"}
        gold = [turn for turn, kind in enumerate(state.kinds) if kind == 0]
        share = len(set(gold) & set(state.kept)) / len(gold)
        right = state.worked and bool(self.rng.random() < share)
        told = {"tool": "submit", "evidence": list(state.kept), "gold": gold, "success": right}
        return {"seeker": float(right)}, told

    def _keep(self, state: _SieveState, turn: int) -> None:
        """Keep the row of a turn; the rows beside it come next, as far as the budget goes."""
        row = state.order[turn]
        state.kept += (row,)
        for beside in (row + 1, row - 1):
            if 0 <= beside < len(state.kinds) and beside not in state.order and len(state.order) < self.budget:
                state.order.insert(turn + 1, beside)
