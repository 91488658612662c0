"""`ThresholdGame`: act together or alone; acting together pays if enough do (arXiv 2510.04860).

Exact reference: `worlds.exact.threshold_game`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from palaestra.envs.protocol import Observation
from palaestra.envs.registry import ENVS
from palaestra.envs.worlds.native import Chosen, NativeEnv
from palaestra.errors import InputError

MOVES = ("independent", "collective")


@dataclass
class _ThresholdState:
    capital: list[float]
    done: list[list[int]] = field(default_factory=list)


@ENVS.register("native/threshold_game")
class ThresholdGame(NativeEnv):
    """Public-good env: players are collective or not; enough multiply all capital; paid the change of one's own.

    `players` players, `rounds` rounds.

    If at least `needed` are collective, everybody's capital, 1 at first, is multiplied by `high`; otherwise that of the
    collective ones by `low` and of the others by `normal`. The reward is the change of one's capital. An illegal
    action is independent. facts: `joined`, `group_success`, `round`. Success: the group succeeded in the last round.

    Args:
        players, needed, rounds: how many, of them how many must join, and how often.
        high, normal, low: factors.
        visible: everybody sees how many of the others were collective in the last round, and whether that was enough.

    Raises:
        InputError: an option is out of range.
    """

    prompt = "native/threshold_game"
    facts = {"joined": float, "group_success": float, "round": float}

    def __init__(
        self,
        *,
        players: int = 8,
        needed: int = 4,
        rounds: int = 3,
        high: float = 1.2,
        normal: float = 1.0,
        low: float = 0.8,
        visible: bool = True,
    ) -> None:
        if not 1 <= needed <= players or rounds < 1 or not high >= normal >= low >= 0:
            raise InputError(
                f"ThresholdGame: {needed=} of 1 to {players=}, {rounds=}, {high=} >= {normal=} >= {low=} >= 0"
            )
        self.agents = tuple(f"player_{number}" for number in range(players))
        self.needed, self.rounds, self.visible = needed, rounds, visible
        self.high, self.normal, self.low = float(high), float(normal), float(low)

    def begin(self) -> tuple[str, _ThresholdState]:
        """Start with a capital of 1 for everybody."""
        return "threshold_game", _ThresholdState([1.0] * len(self.agents))

    def look(self) -> dict[str, Observation]:
        """Each player sees the round, and what the others did in the last one."""
        done = self.state.done
        if len(done) == self.rounds:
            return {}
        seen = {}
        for number, agent in enumerate(self.agents):
            text = f"round {len(done) + 1} of {self.rounds}"
            if self.visible and done:
                others = sum(done[-1]) - done[-1][number]
                won = "succeeded" if sum(done[-1]) >= self.needed else "failed"
                text += f" | last round you were {MOVES[done[-1][number]]}, {others} of the others collective: it {won}"
            seen[agent] = Observation(text, choices=MOVES)
        return seen

    def play(self, chosen: Chosen) -> tuple[dict[str, float], dict[str, Any]]:
        """Play a round: multiply each capital by a factor that depends on the choices; its change is the reward."""
        state = self.state
        joined = [int(chosen[agent] == 1) for agent in self.agents]
        won = sum(joined) >= self.needed
        before = list(state.capital)
        for number, one in enumerate(joined):
            state.capital[number] *= self.high if won else self.low if one else self.normal
        state.done.append(joined)
        rewards = {agent: state.capital[number] - before[number] for number, agent in enumerate(self.agents)}
        facts: dict[str, Any] = {
            "joined": dict(zip(self.agents, map(float, joined), strict=True)),
            "group_success": float(won),
            "round": float(len(state.done)),
        }
        if len(state.done) == self.rounds:
            facts["success"] = won
        return rewards, facts
