"""`Dilemma`: the iterated prisoner's dilemma. Each player sees what both did in the last round."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from palaestra.envs.protocol import Observation
from palaestra.envs.registry import ENVS
from palaestra.envs.worlds.native import Chosen, NativeEnv
from palaestra.errors import InputError

MOVES = ("cooperate", "defect")
PLAYERS = ("first", "second")


@dataclass
class _DilemmaState:
    round: int = 0
    last: tuple[int, int] | None = None


@ENVS.register("native/dilemma")
class Dilemma(NativeEnv):
    """Iterated prisoner's dilemma of `rounds` rounds: two players move at once, illegal is defection; paid each round.

    `rounds` rounds.

    payoffs: own, by what both did: both cooperate, own alone, the
    other alone, both defect; divided by `scale`. An illegal move is defection. A player succeeds if both cooperated in
    the last round.
    """

    prompt = "native/dilemma"
    agents: tuple[str, ...] = PLAYERS

    def __init__(
        self, *, rounds: int = 12, payoffs: Sequence[float] = (3.0, 0.0, 5.0, 1.0), scale: float = 5.0
    ) -> None:
        if rounds < 1 or len(payoffs) != 4 or not scale > 0:
            raise InputError(
                f"Dilemma: rounds={rounds} must be at least 1, payoffs={payoffs} four numbers, scale={scale} above 0"
            )
        self.rounds, self.payoffs = rounds, tuple(float(each) / scale for each in payoffs)

    def begin(self) -> tuple[str, _DilemmaState]:
        """Start with no moves made."""
        return "dilemma", _DilemmaState()

    def look(self) -> dict[str, Observation]:
        """Each player sees both moves of the last round."""
        if self.state.round == self.rounds:
            return {}
        if self.state.last is None:
            return {player: Observation("the first round", choices=MOVES) for player in PLAYERS}
        did = [MOVES[move] for move in self.state.last]
        return {
            player: Observation(f"last round: I {did[me]}, they {did[1 - me]}", choices=MOVES)
            for me, player in enumerate(PLAYERS)
        }

    def play(self, chosen: Chosen) -> tuple[dict[str, float], dict[str, Any]]:
        """Play a round; an invalid move is defection."""
        moves = tuple(0 if chosen[player] == 0 else 1 for player in PLAYERS)
        self.state.round, self.state.last = self.state.round + 1, moves
        rewards = {player: self.payoffs[2 * moves[me] + moves[1 - me]] for me, player in enumerate(PLAYERS)}
        over = self.state.round == self.rounds
        return rewards, {"success": moves == (0, 0)} if over else {}
