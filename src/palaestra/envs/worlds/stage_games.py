"""`StageGames`: in each round two players play one of several matrix games with a common pay-off, told which."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from palaestra.envs.protocol import Observation
from palaestra.envs.registry import ENVS
from palaestra.envs.worlds.native import Chosen, NativeEnv
from palaestra.errors import InputError

CLIMBING = ((11.0, -30.0, 0.0), (-30.0, 7.0, 6.0), (0.0, 0.0, 5.0))
"""Pay-offs of the climbing game (Claus and Boutilier 1998): who expects the other to explore avoids the 11."""
SEPARABLE = ((6.0, 4.0, 3.0), (4.0, 2.0, 1.0), (3.0, 1.0, 0.0))
"""Pay-offs that are a sum of 3, 1 or 0 for each player: nobody needs to know what the other does."""
PLAYERS = ("player_0", "player_1")


@dataclass
class _StageGamesState:
    game: int
    round: int = 0


@ENVS.register("native/stage_games")
class StageGames(NativeEnv):
    """Matrix game env of common payoff: each round two players see a drawn game's name, move at once, get its entry.

    `rounds` rounds; one of `games` each time.

    Both are paid the entry of its matrix at (move of `player_0`, move of `player_1`). A round's game does not depend on
    what was played. An illegal move pays the matrix's least entry. A success is the largest entry in the last round.
    facts: game, its place in `games`; payoff.

    Args:
        games: matrices of one size, [moves of player_0][moves of player_1]; default: two climbing games and four
            separable ones, whose best is 11 and 6.
        labels: seed by which the games' names are dealt out, so that a name tells nothing of its game.

    Raises:
        InputError: there are no rounds, or the matrices differ in size.
    """

    facts = {"game": int, "payoff": float}
    agents: tuple[str, ...] = PLAYERS

    def __init__(
        self,
        *,
        games: Sequence[Sequence[Sequence[float]]] = (CLIMBING, CLIMBING, *[SEPARABLE] * 4),
        rounds: int = 1,
        labels: int = 0,
    ) -> None:
        try:
            self.games = np.array(games, float)
        except ValueError as error:
            raise InputError("StageGames: games must be matrices of one size") from error
        if self.games.ndim != 3 or rounds < 1:
            raise InputError(f"StageGames: games must be matrices of one size, rounds={rounds} at least 1")
        self.rounds = rounds
        self.names = np.random.default_rng(labels).permutation(len(self.games)).tolist()
        self.moves = tuple(tuple(f"move {each}" for each in range(size)) for size in self.games.shape[1:])

    def begin(self) -> tuple[str, _StageGamesState]:
        """Draw the first game."""
        state = _StageGamesState(int(self.rng.integers(len(self.games))))
        return f"game {self.names[state.game]}", state

    def look(self) -> dict[str, Observation]:
        """Both players see the game's name."""
        if self.state.round == self.rounds:
            return {}
        text = f"game {self.names[self.state.game]}"
        return {player: Observation(text, choices=moves) for player, moves in zip(PLAYERS, self.moves, strict=True)}

    def play(self, chosen: Chosen) -> tuple[dict[str, float], dict[str, Any]]:
        """Pay both players the same payoff of the current game, the lowest for invalid moves, then draw a game."""
        state = self.state
        matrix = self.games[state.game]
        first, second = (chosen[player] for player in PLAYERS)
        fits = isinstance(first, int) and isinstance(second, int)
        payoff = float(matrix[first, second] if fits else matrix.min())
        info: dict[str, Any] = {"game": state.game, "payoff": payoff}
        state.round += 1
        if state.round == self.rounds:
            info["success"] = bool(payoff == matrix.max())
        state.game = int(self.rng.integers(len(self.games)))
        return dict.fromkeys(PLAYERS, payoff), info
