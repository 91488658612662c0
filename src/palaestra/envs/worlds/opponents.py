"""`Opponents`: a repeated game of rock, paper, scissors against somebody of a type that is not shown."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from palaestra.envs.protocol import Observation
from palaestra.envs.registry import ENVS
from palaestra.envs.worlds.native import Chosen, NativeEnv
from palaestra.errors import InputError, nearest

MOVES = ("rock", "paper", "scissors")
"""Each is beaten by the next one, the last by the first."""
TYPES = ("rock", "paper", "scissors", "turning")


def habits(types: Sequence[str], habit: float) -> np.ndarray:
    """Move probabilities float64[types, last, next] of rock-paper-scissors `types` (names): `habit` for the favourite.

    The favourite move has probability `habit` and the others share the rest. `turning` has none: it favours the move
    that beats its last one.
    """
    found = np.full((len(types), 3, 3), (1 - habit) / 2)
    for row, name in enumerate(types):
        for last in range(3):
            found[row, last, (last + 1) % 3 if name == "turning" else MOVES.index(name)] = habit
    return found


def best_payoff(habit: float) -> float:
    """Expected payoff per round, (3 · habit - 1) / 2, against an opponent whose type is known."""
    return (3 * habit - 1) / 2


def memoryless_payoff(types: Sequence[str], habit: float) -> float:
    """Expected payoff a round of the best reply to the last move of `types`, favourites played with chance `habit`.

    The types are equally likely.

    >>> round(best_payoff(0.7), 3), round(memoryless_payoff(TYPES, 0.7), 3)
    (0.55, 0.227)
    """
    law = habits(types, habit)
    values, vectors = zip(*(np.linalg.eig(each.T) for each in law), strict=True)
    steady = np.array([np.real(v[:, np.argmax(w.real)]) for w, v in zip(values, vectors, strict=True)])
    steady /= steady.sum(axis=1, keepdims=True)
    joint = np.einsum("tl,tln->ln", steady, law) / len(types)  # last move, next move
    payoff = np.array([[0, -1, 1], [1, 0, -1], [-1, 1, 0]])  # own move, the other's
    return float((joint @ payoff.T).max(axis=1).sum())


@dataclass
class _OpponentState:
    type: int
    last: int
    coming: int
    noise: np.ndarray
    round: int = 0
    earned: float = 0.0


@ENVS.register("native/opponents")
class Opponents(NativeEnv):
    """Rock-paper-scissors env against a hidden opponent type: `ego` sees the other's last move; ± 1 / rounds a round.

    Lost rounds cost as much; the type is drawn for each episode.

    Won rounds pay 1 / rounds, lost ones take as much. The ego sees what the opponent played in the last round and, in
    its array alone, `noise` numbers from a standard normal distribution that mean nothing. Who knows the type earns
    `best_payoff(habit)`, who remembers one round at most `memoryless_payoff(types, habit)`.

    facts: hidden, the type; done, the opponent's move. A success: more than half of the best payoff was earned.

    Args:
        types: of `TYPES`, of which one is drawn. habit: probability of its favourite move. noise: how many numbers.

    Raises:
        InputError: an option is out of range.
    """

    agents: tuple[str, ...] = ("ego",)
    facts = {"hidden": str, "done": str}

    def __init__(self, *, types: Sequence[str] = TYPES, rounds: int = 20, habit: float = 0.7, noise: int = 4) -> None:
        for name in types:
            if name not in TYPES:
                raise InputError(f"Opponents: types has {name!r}{nearest(str(name), TYPES)}")
        if not types or rounds < 1 or not 1 / 3 <= habit <= 1 or noise < 0:
            raise InputError(f"Opponents: {types=} and {rounds=} of at least 1, {habit=} in [1/3, 1], {noise=} from 0")
        self.types, self.rounds, self.habit, self.noise = tuple(types), rounds, habit, noise
        self._law = habits(self.types, habit)

    def begin(self) -> tuple[str, _OpponentState]:
        """Draw the opponent's type and its first move."""
        kind = int(self.rng.integers(len(self.types)))
        state = _OpponentState(kind, int(self.rng.integers(3)), 0, np.zeros(self.noise))
        state.coming = self._next(state)
        state.last = -1
        state.noise = self.rng.standard_normal(self.noise)
        return f"opponent:{self.types[kind]}:{int(self.rng.integers(2**40))}", state

    def _next(self, state: _OpponentState) -> int:
        return int(self.rng.choice(3, p=self._law[state.type, state.last]))

    def look(self) -> dict[str, Observation]:
        """Observation of the ego player: the opponent's move in the last round."""
        state = self.state
        if state.round >= self.rounds:
            return {}
        one = np.vstack([np.eye(3), np.zeros((1, 3))])
        array = np.concatenate([one[state.last], state.noise]).astype(np.float32)
        text = f"it played {MOVES[state.last]}" if state.round else "the first round"
        return {"ego": Observation(text, choices=MOVES, array=array)}

    def play(self, chosen: Chosen) -> tuple[dict[str, float], dict[str, Any]]:
        """Play a round; an illegal action loses."""
        state, own = self.state, chosen["ego"]
        other = state.coming
        won = -1 if own is None else ((own - other + 1) % 3) - 1
        told: dict[str, Any] = {"hidden": self.types[state.type], "done": MOVES[other]}
        state.last, state.round = other, state.round + 1
        state.coming = self._next(state)
        state.noise = self.rng.standard_normal(self.noise)
        state.earned += won / self.rounds
        if state.round >= self.rounds:
            told["success"] = state.earned > best_payoff(self.habit) / 2
        return {"ego": won / self.rounds}, told
