"""`Reputation`: a dilemma with partner selection, reputations and punishment, each stage a seat (arXiv 2301.08278).

With a sure fine f cooperation is a dominant action iff f > T - R and f > P - S.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from palaestra.envs.protocol import Observation
from palaestra.envs.registry import ENVS
from palaestra.envs.worlds.native import Chosen, NativeEnv
from palaestra.errors import InputError

KINDS = ("cooperator", "defector", "anyone")
MOVES = ("cooperate", "defect")
VERDICTS = ("pass", "punish")
DONE = {None: "unknown", 0: "cooperated", 1: "defected"}
Stage = Literal["select", "play", "punish"]


@dataclass
class _ReputationState:
    last: list[int | None]
    chooser: int = 0
    partner: int = 0
    stage: Stage = "select"
    watched: dict[int, int] = field(default_factory=dict)
    met: int = 0


@ENVS.register("native/reputation")
class Reputation(NativeEnv):
    """Repeated dilemma env with reputation: players choose a partner by last moves, play, and may pay to punish.

    `encounters` meetings of two out of `players`; a player has three seats: `select_0`, `play_0`, `punish_0` ….

    A drawn player chooses a kind of partner by what the others did last, both play a dilemma, and then the two, or two
    observers, may pay `cost` so that whom they saw loses `fine`. Each seat is rewarded by what its decision caused: the
    seats that played, and that which chose, by the payoff less fines, those that punish by the cost. An illegal action
    is to choose anyone, to defect, to pass. facts: `cooperated`, `punished` (1 who was cooperative, 2 who was not),
    `met_defector` of who chose. Success: both cooperated in the last encounter.

    Args:
        players, encounters: how many; two observers need four players.
        payoffs: R, S, T and P, own payoff of both cooperating, alone, alone defecting, both defecting.
        cost, fine: of a punishment, for who punishes and who is punished.
        selection: the partner is chosen by kind; otherwise drawn.
        visible: reputations, which are last actions, are seen.
        direct, third: whether the two themselves, and whether observers, may punish.

    Raises:
        InputError: an option is out of range.
    """

    prompt = "native/reputation"
    facts = {"cooperated": float, "punished": float, "met_defector": float}

    def __init__(
        self,
        *,
        players: int = 10,
        encounters: int = 20,
        payoffs: Sequence[float] = (3.0, 1.0, 4.0, 2.0),
        cost: float = 0.5,
        fine: float = 2.0,
        selection: bool = True,
        visible: bool = True,
        direct: bool = False,
        third: bool = True,
    ) -> None:
        if players < (4 if third else 2) or encounters < 1 or len(payoffs) != 4 or not (cost >= 0 and fine >= 0):
            raise InputError(f"Reputation: {players=}, {encounters=}, {payoffs=} are four, {cost=} and {fine=} from 0")
        self.players, self.encounters, self.payoffs = players, encounters, tuple(map(float, payoffs))
        self.cost, self.fine, self.selection, self.visible = cost, fine, selection, visible
        self.direct, self.third = direct, third
        self.agents = tuple(f"{stage}_{k}" for stage in ("select", "play", "punish") for k in range(players))

    def begin(self) -> tuple[str, _ReputationState]:
        """Start without any record of the players."""
        state = _ReputationState([None] * self.players)
        self._meet(state)
        return f"reputation:{int(self.rng.integers(2**40))}", state

    def _meet(self, state: _ReputationState) -> None:
        state.chooser, state.stage = int(self.rng.integers(self.players)), "select"
        if not self.selection:
            self._pair(state, 2)

    def _pair(self, state: _ReputationState, kind: int) -> None:
        """A partner of the kind, if there is one; then they play."""
        others = [k for k in range(self.players) if k != state.chooser]
        liked = [k for k in others if state.last[k] == kind] if kind < 2 else others
        state.partner = int(self.rng.choice(liked or others))
        state.stage = "play"

    def look(self) -> dict[str, Observation]:
        """The seats that act in this stage see the record that they need."""
        state = self.state
        if state.met == self.encounters:
            return {}
        pair = (state.chooser, state.partner)
        if state.stage == "select":
            known = [state.last[k] for k in range(self.players) if k != state.chooser and self.visible]
            text = f"of the others {known.count(0)} cooperated last, {known.count(1)} defected"
            return {f"select_{state.chooser}": Observation(text, choices=KINDS)}
        if state.stage == "play":
            seen = {}
            for me, other in (pair, pair[::-1]):
                before = DONE[state.last[other] if self.visible else None]
                seen[f"play_{me}"] = Observation(f"your partner last: {before}", choices=MOVES)
            return seen
        found = {}
        for who, whom in state.watched.items():
            role = "your partner" if who in pair else "somebody whom you watched"
            found[f"punish_{who}"] = Observation(f"{role} {DONE[state.last[whom]]}", choices=VERDICTS)
        return found

    def play(self, chosen: Chosen) -> tuple[dict[str, float], dict[str, Any]]:
        """Play one stage: select, play or punish."""
        state = self.state
        pair = (state.chooser, state.partner)
        if state.stage == "select":
            kind = chosen[f"select_{state.chooser}"]
            self._pair(state, 2 if kind is None else kind)
            return {}, {"met_defector": {f"select_{state.chooser}": float(state.last[state.partner] == 1)}}
        if state.stage == "play":
            moves = [0 if chosen[f"play_{k}"] == 0 else 1 for k in pair]
            rewards, facts = {}, {}  # type: ignore[var-annotated]
            for me, (own, other) in zip(pair, (moves, moves[::-1]), strict=True):
                rewards |= self._caused(me, self.payoffs[2 * own + other])
                facts[f"play_{me}"] = float(own == 0)
                state.last[me] = own
            state.watched = self._watching(pair)
            return rewards, {"cooperated": facts, **self._after("punish" if state.watched else "select")}
        rewards, facts = {}, {}
        for who, whom in state.watched.items():
            hit = chosen[f"punish_{who}"] == 1
            facts[f"punish_{who}"] = float(hit) * (1 + (state.last[whom] or 0))
            rewards[f"punish_{who}"] = -self.cost * hit
            for seat, lost in self._caused(whom, -self.fine * hit).items():
                rewards[seat] = rewards.get(seat, 0.0) + lost
        return rewards, {"punished": facts, **self._after("select")}

    def _caused(self, player: int, amount: float) -> dict[str, float]:
        """What a player's decisions of this encounter earn: the move, and the choice of the partner if it chose."""
        chose = self.selection and player == self.state.chooser
        return {f"play_{player}": amount} | ({f"select_{player}": amount} if chose else {})

    def _watching(self, pair: tuple[int, int]) -> dict[int, int]:
        """Who may punish whom."""
        found = {pair[0]: pair[1], pair[1]: pair[0]} if self.direct else {}
        if self.third:
            rest = [k for k in range(self.players) if k not in pair]
            found |= dict(zip(self.rng.choice(rest, 2, replace=False).tolist(), pair, strict=True))
        return found

    def _after(self, stage: Stage) -> dict[str, Any]:
        """Go on to a stage; the end of an encounter is counted."""
        state, pair = self.state, (self.state.chooser, self.state.partner)
        state.stage = stage
        if stage == "punish":
            return {}
        state.met += 1
        if state.met == self.encounters:
            return {"success": [state.last[k] for k in pair] == [0, 0]}
        self._meet(state)
        return {}


def punisher(request: Any, *, share: float = 1.0) -> str:
    """Action for a request of a punishing seat: "punish" after a defection with probability `share`, else "pass"."""
    defected = request.observation.text.endswith("defected")
    return "punish" if defected and request.rng.random() < share else "pass"
