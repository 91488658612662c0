"""Overcooked: two cooks share a kitchen and are paid together for every soup they serve (arXiv 1910.05789).

The kitchen is that of the package `overcooked-ai`, of which only the rules of the grid are used: its own env does not
load under NumPy 2. Left out: layouts for more than two cooks, the features that need its planners, and layouts with
different recipes side by side in one process, whose recipes the package keeps in one place.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from palaestra.envs.discrete import Illegal, isolated
from palaestra.envs.pettingzoo import pettingzoo
from palaestra.envs.protocol import EnvFactory
from palaestra.errors import InputError, missing_extra, nearest

LAYERS = 26
"""Planes of the package's lossless encoding: both cooks' places and directions, the kitchen, things, the last steps."""


class OvercookedEnv:
    """PettingZoo parallel env of one Overcooked layout for two cooks, `player_0` and `player_1`.

    An agent sees the lossless encoding, int[width, height, 26], itself first, and has six actions: north, south, east,
    west, stay, interact. Every step pays both what the kitchen serves, 20 for a soup of three onions. Infos have
    `progress`: what the package pays the agent on the way there, 3 for an ingredient in the pot, 3 for a dish in time,
    5 for a soup taken up.

    Args:
        layout: name of a layout of the package, "cramped_room".
        horizon: steps of an episode.
        cook_when_full: a pot with three ingredients begins to cook, as in the publication of 2019; otherwise
            somebody has to turn it on, as in the package since 1.1.
        random_start: cooks begin somewhere in the kitchen, drawn from the seed; otherwise at the layout's places, so
            that episodes differ by actions alone.
    """

    def __init__(
        self, layout: str, *, horizon: int = 400, cook_when_full: bool = False, random_start: bool = False
    ) -> None:
        from gymnasium.spaces import Box, Discrete

        grids, actions = _package()
        self.rules = grids.OvercookedGridworld.from_layout_name(layout)
        if self.rules.num_players != 2:
            raise InputError(f"overcooked: {layout!r} is for {self.rules.num_players} cooks; this adapter needs 2")
        self.layout, self.horizon, self.cook_when_full, self.random_start = (
            layout,
            horizon,
            cook_when_full,
            random_start,
        )
        self.possible_agents = ["player_0", "player_1"]
        self.agents: list[str] = []
        self._recipes = grids.Recipe
        self._actions = actions.Action.INDEX_TO_ACTION
        self._space = Discrete(len(self._actions)), Box(0, 400, (*self.rules.shape, LAYERS), np.float32)

    def action_space(self, agent: str) -> Any:
        """Gymnasium space of the agent's six numbered actions."""
        return self._space[0]

    def observation_space(self, agent: str) -> Any:
        """Gymnasium Box of the agent's observation planes, [width, height, 26]."""
        return self._space[1]

    def reset(self, seed: int | None = None) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
        """Observations and infos at the start."""
        self._recipes.configure(
            self.rules.recipe_config
        )  # the package has one place for what a soup takes and is worth
        if self.random_start:
            with isolated(seed or 0, numpy=True):
                self.state = self.rules.get_random_start_state_fn(random_start_pos=True)()
        else:
            self.state = self.rules.get_standard_start_state()
        self.agents = list(self.possible_agents)
        return self._seen(), {agent: {"progress": 0.0} for agent in self.agents}

    def step(self, actions: Mapping[str, int]) -> tuple[Any, ...]:
        """Observations, rewards, terminations, truncations and infos by agent."""
        acting = self.possible_agents
        chosen = [self._actions[actions[agent]] for agent in acting]
        self.state, said = self.rules.get_state_transition(self.state, chosen)
        if self.cook_when_full:
            for soup in self.state.objects.values():
                if soup.name == "soup" and soup.is_idle and soup.is_full:
                    soup.begin_cooking()
                    soup.cook()  # in this very step, as a soup that was turned on in it
        cut = self.state.timestep >= self.horizon
        self.agents = [] if cut else list(acting)
        served = float(sum(said["sparse_reward_by_agent"]))
        return (
            self._seen(),
            dict.fromkeys(acting, served),
            dict.fromkeys(acting, False),
            dict.fromkeys(acting, cut),
            {a: {"progress": float(p)} for a, p in zip(acting, said["shaped_reward_by_agent"], strict=True)},
        )

    def _seen(self) -> dict[str, Any]:
        planes = self.rules.lossless_state_encoding(self.state, horizon=self.horizon)
        return {agent: plane.astype(np.float32) for agent, plane in zip(self.possible_agents, planes, strict=True)}


def overcooked(
    layout: str,
    *,
    horizon: int = 400,
    cook_when_full: bool = False,
    random_start: bool = False,
    illegal: Illegal = "lose",
    success: float | None = None,
) -> EnvFactory:
    """Env factory of an Overcooked layout for two cooks; the fact `progress` is a column for shaped rewards.

    A recipe learns from `reward: "reward + col('progress')"` and is measured by what was served.

    Args:
        layout: "cramped_room", "asymmetric_advantages", "coordination_ring", "forced_coordination" ….
        horizon: steps of an episode.
        cook_when_full: a full pot begins to cook by itself; see `OvercookedEnv`.
        random_start: places of the cooks are drawn from the seed.
        illegal: "lose" ends the episode of an illegal action, "random" plays a random one instead.
        success: sum of an agent's rewards that counts as its success; None reports no success.

    Raises:
        InputError: there is no such layout, or it is not for two. MissingExtraError: the package is not installed.
    """
    if horizon < 1:
        raise InputError(f"overcooked: horizon={horizon}, expected at least 1")
    _package()
    from overcooked_ai_py.static import LAYOUTS_DIR

    known = sorted(file.stem for file in Path(LAYOUTS_DIR).glob("*.layout"))
    if layout not in known:
        raise InputError(f"Overcooked has no layout {layout!r}{nearest(layout, known)}")
    make = functools.partial(
        OvercookedEnv, layout, horizon=horizon, cook_when_full=cook_when_full, random_start=random_start
    )
    make.__name__ = f"overcooked.{layout}"  # type: ignore[attr-defined]
    return pettingzoo(make, api="parallel", illegal=illegal, success=success, facts={"progress": float})


def _package() -> tuple[Any, Any]:
    """The package's modules of rules and of actions; what its old gym says about itself is not passed on."""
    if importlib.util.find_spec("overcooked_ai_py") is None:
        raise missing_extra("Overcooked", "overcooked")
    with contextlib.redirect_stderr(io.StringIO()):
        from overcooked_ai_py.mdp import actions, overcooked_mdp
    return overcooked_mdp, actions
