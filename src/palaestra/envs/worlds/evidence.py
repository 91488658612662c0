"""A debate about evidence as a game, and cases in which what pays and what can be justified are nearly the same."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from palaestra.envs.protocol import Observation
from palaestra.envs.registry import ENVS
from palaestra.envs.worlds.native import Chosen, NativeEnv
from palaestra.errors import InputError


@dataclass
class _Debate:
    lead: np.ndarray
    first: bool
    shown: list[int] = field(default_factory=list)


@ENVS.register("native/evidence_debate")
class EvidenceDebate(NativeEnv):
    """Zero-sum debate env: `pro` and `con` reveal pieces of evidence in turn; their sum's sign decides, ±1.

    They choose among `pieces` pieces.

    +1 to the side that the sum's sign is with, -1 to the other ([162], arXiv 2402.15826). `pro` speaks for the
    decision; who begins is drawn. Each sees what every piece weighs, rounded, and which are revealed; revealing one
    again is illegal, then the first that is left is taken. Its value is `exact.debate.minimax`. facts: begins, that
    pro began;
    lead, what each piece weighs.
    """

    agents: tuple[str, ...] = ("pro", "con")
    facts = {"begins": bool, "lead": list[float]}

    def __init__(self, *, pieces: int = 6, length: int = 4, levels: int = 3) -> None:
        if not 1 <= length <= pieces or levels < 1:
            raise InputError(f"EvidenceDebate: 1 <= length={length} <= pieces={pieces}, levels={levels} at least 1")
        self.pieces, self.length, self.levels = pieces, length, levels
        self.choices = tuple(f"piece {number}" for number in range(pieces))

    def begin(self) -> tuple[str, _Debate]:
        """Draw each piece's weight, a whole number up to `levels` for or against, and who begins."""
        lead = self.rng.integers(-self.levels, self.levels + 1, size=self.pieces).astype(float)
        first = bool(self.rng.integers(2))
        return f"debate {lead.astype(int).tolist()}, {int(first)} begins", _Debate(lead, first)

    def look(self) -> dict[str, Observation]:
        """The next side sees all weights, signed in its favour, and which are revealed."""
        state = self.state
        if len(state.shown) == self.length:
            return {}
        pro = (len(state.shown) % 2 == 0) == state.first
        own = state.lead if pro else -state.lead
        text = f"{' '.join(f'{weight:+.0f}' for weight in own)}; revealed {sorted(state.shown)}"
        mask = np.array([number not in state.shown for number in range(self.pieces)])
        return {"pro" if pro else "con": Observation(text, choices=self.choices, mask=mask)}

    def play(self, chosen: Chosen) -> tuple[dict[str, float], dict[str, Any]]:
        """Reveal a piece, and after the last let the judge decide."""
        state, (piece,) = self.state, chosen.values()
        if not isinstance(piece, int) or piece in state.shown:
            piece = next(number for number in range(self.pieces) if number not in state.shown)
        state.shown.append(piece)
        told = {"begins": state.first, "lead": state.lead.tolist()}
        if len(state.shown) < self.length:
            return {}, told
        won = float(np.sign(state.lead[state.shown].sum()))
        return {"pro": won, "con": -won}, told | {"success": {"pro": won > 0, "con": won < 0}}


@dataclass
class _Case:
    number: int
    over: bool = False


@ENVS.register("native/cases")
class Cases(NativeEnv):
    """Env of one decision: `decider` sees only a case's number; the better decision pays 1, the other 1 - `cost`.

    `cases` cases with `pieces` pieces of evidence each.

    Which of them pays more is drawn, and has nothing to do with which one the evidence is for. facts: pieces, how
    much each piece speaks for the first decision; lead, how much for the decision that was taken; justified, whether
    all of it together does.
    """

    agents: tuple[str, ...] = ("decider",)
    facts = {"pieces": list[float], "lead": list[float], "justified": bool}

    def __init__(self, *, cases: int = 8, pieces: int = 12, cost: float = 0.05, draw: int = 0) -> None:
        if cases < 1 or not 1 <= pieces <= 12 or not 0 <= cost <= 1:
            raise InputError(f"Cases: {cases=} at least 1, {pieces=} from 1 to 12, {cost=} in [0, 1]")
        rng = np.random.default_rng(draw)
        self.lead, self.pays = rng.normal(size=(cases, pieces)), rng.integers(2, size=cases)
        self.cost, self.choices = float(cost), ("treat", "wait")

    def begin(self) -> tuple[str, _Case]:
        """Start an episode with a drawn case."""
        number = int(self.rng.integers(len(self.lead)))
        return f"case {number}", _Case(number)

    def look(self) -> dict[str, Observation]:
        """Observation of the decider: the number of the case, without the evidence."""
        return {} if self.state.over else {"decider": Observation(f"case {self.state.number}", choices=self.choices)}

    def play(self, chosen: Chosen) -> tuple[dict[str, float], dict[str, Any]]:
        """Pay the decision; an invalid one counts as the second."""
        decision, number = (1 if chosen["decider"] is None else chosen["decider"]), self.state.number
        self.state.over = True
        lead = self.lead[number] if decision == 0 else -self.lead[number]
        best = decision == self.pays[number]
        justified = bool(lead.sum() > 0)
        return {"decider": 1.0 if best else 1 - self.cost}, {
            "pieces": self.lead[number].tolist(),
            "lead": lead.tolist(),
            "justified": justified,
            "success": bool(best),
        }
