"""Gymnasium environments of several agents, whose spaces are tuples with one entry per agent, as parallel games.

Level-based foraging and its relatives are written this way: `step` takes a tuple of actions and returns a list of
rewards, and one `terminated` for all. Left out: environments in which some agents leave before the others.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any


class TupleTeam:
    """PettingZoo parallel env around a Gymnasium environment with `Tuple` spaces; agents are `player_0`, `player_1` ….

    One entry of the tuples per agent.

    Args:
        env: a Gymnasium environment whose action and observation spaces are `Tuple` spaces of equal length.
    """

    def __init__(self, env: Any) -> None:
        self.env = self._unplayed = env
        self.possible_agents = [f"player_{place}" for place in range(len(env.action_space.spaces))]
        self.agents: list[str] = []

    def action_space(self, agent: str) -> Any:
        """The agent's entry of the action space."""
        return self.env.action_space.spaces[self.possible_agents.index(agent)]

    def observation_space(self, agent: str) -> Any:
        """The agent's entry of the observation space."""
        return self.env.observation_space.spaces[self.possible_agents.index(agent)]

    def reset(self, seed: int | None = None) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
        """Observation and info of each agent at the start."""
        self.env = copy.deepcopy(self._unplayed)  # foraging's start depends on where its last episode ended
        values, info = self.env.reset(seed=seed)
        self.agents = list(self.possible_agents)
        return dict(zip(self.agents, values, strict=True)), {agent: dict(info) for agent in self.agents}

    def step(self, actions: Mapping[str, int]) -> tuple[Any, ...]:
        """Observations, rewards, terminations, truncations and infos by agent; without agents when it is over."""
        acting = self.possible_agents
        values, rewards, over, cut, info = self.env.step(tuple(actions[agent] for agent in acting))
        self.agents = [] if over or cut else list(acting)
        return (
            dict(zip(acting, values, strict=True)),
            dict(zip(acting, map(float, rewards), strict=True)),
            dict.fromkeys(acting, bool(over)),
            dict.fromkeys(acting, bool(cut)),
            {agent: dict(info) for agent in acting},
        )
