"""`MemoryTeam`: construct, profile, retrieve: three in a row, each paid for something of its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from palaestra.envs.protocol import Observation
from palaestra.envs.registry import ENVS
from palaestra.envs.worlds.native import Chosen, NativeEnv
from palaestra.errors import InputError

AGENTS = ("construct", "profile", "retrieve")


@dataclass
class _MemoryTeamState:
    levels: list[int] = field(default_factory=list)


@ENVS.register("native/memory_team")
class MemoryTeam(NativeEnv):
    """Pipeline env: three agents in turn pick a quality, paid for it or for its opposite; success by their product.

    Rewards are local: `local` times the quality for who `agrees`, times 1 - quality for who does not (by default the
    profiler, whose own reward points the wrong way). The outcome is `success`. facts: quality, of the own choice.
    """

    agents: tuple[str, ...] = AGENTS
    facts = {"quality": float}

    def __init__(
        self,
        *,
        qualities: Sequence[float] = (0.1, 0.4, 0.7, 1.0),
        local: float = 0.2,
        agrees: Sequence[bool] = (True, False, True),
    ) -> None:
        if not qualities or not all(0 <= each <= 1 for each in qualities) or len(agrees) != len(AGENTS):
            raise InputError(f"MemoryTeam: qualities={qualities} must lie in [0, 1]; agrees={agrees} is one per agent")
        self.qualities, self.local, self.agrees = tuple(qualities), local, tuple(agrees)
        self.choices = tuple(f"quality {each:g}" for each in self.qualities)

    def begin(self) -> tuple[str, _MemoryTeamState]:
        """Start; every episode is the same."""
        return "memory", _MemoryTeamState()

    def look(self) -> dict[str, Observation]:
        """The next agent sees the previous agent's choice."""
        levels = self.state.levels
        if len(levels) == len(AGENTS):
            return {}
        agent = AGENTS[len(levels)]
        before = f", got {self.choices[levels[-1]]}" if levels else ""
        return {agent: Observation(f"{agent}{before}", choices=self.choices)}

    def play(self, chosen: Chosen) -> tuple[dict[str, float], dict[str, Any]]:
        """Take one agent's choice; an invalid one counts as the first."""
        ((agent, action),) = chosen.items()
        number = AGENTS.index(agent)
        self.state.levels.append(action if isinstance(action, int) else 0)
        quality = self.qualities[self.state.levels[-1]]
        info: dict[str, Any] = {"quality": quality}
        if number + 1 == len(AGENTS):
            chance = 1.0
            for level in self.state.levels:
                chance *= self.qualities[level]
            info["success"] = bool(self.rng.random() < chance)
        return {agent: self.local * (quality if self.agrees[number] else 1 - quality)}, info
