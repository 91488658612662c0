"""`Sites`: several agents clear sites; two who go to one site in the same turn are in each other's way (after ReAd)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from palaestra.envs.protocol import Observation
from palaestra.envs.registry import ENVS
from palaestra.envs.worlds.native import Chosen, NativeEnv
from palaestra.errors import InputError


@dataclass
class _SitesState:
    cleared: frozenset[int] = frozenset()
    steps: int = 0


@ENVS.register("native/sites")
class Sites(NativeEnv):
    """Anti-coordination env: workers choose open sites at once; exactly one clears a site; a turn costs 1 / horizon.

    Every turn costs 1/horizon; `workers` agents, `sites` sites.

    Every turn costs each of them 1/horizon; done when all sites are cleared, cut off as a failure after `horizon`
    turns. All see which sites are cleared. facts: cleared, how many are.
    """

    facts = {"cleared": int}

    def __init__(self, *, workers: int = 3, sites: int = 6, horizon: int = 20) -> None:
        if workers < 1 or sites < 1 or horizon < 1:
            raise InputError(f"Sites: workers={workers}, sites={sites} and horizon={horizon} must be at least 1")
        self.sites, self.horizon = sites, horizon
        self.agents: tuple[str, ...] = tuple(f"worker_{number}" for number in range(workers))
        self.choices = tuple(f"site {number}" for number in range(sites))

    def begin(self) -> tuple[str, _SitesState]:
        """Start with no site cleared."""
        return "sites", _SitesState()

    def look(self) -> dict[str, Observation]:
        """All workers see the sites that are left."""
        if len(self.state.cleared) == self.sites or self.state.steps == self.horizon:
            return {}
        left = " ".join(str(site) for site in range(self.sites) if site not in self.state.cleared)
        return {agent: Observation(f"left: {left}", choices=self.choices) for agent in self.agents}

    def play(self, chosen: Chosen) -> tuple[dict[str, float], dict[str, Any]]:
        """Clear each site that exactly one worker chose; every turn costs all workers the same."""
        state, went = self.state, list(chosen.values())
        state.cleared |= {site for site in went if isinstance(site, int) and went.count(site) == 1}
        state.steps += 1
        done = len(state.cleared) == self.sites
        info: dict[str, Any] = {"cleared": len(state.cleared)}
        over = done or state.steps == self.horizon
        return dict.fromkeys(self.agents, -1.0 / self.horizon), info | ({"success": done} if over else {})
