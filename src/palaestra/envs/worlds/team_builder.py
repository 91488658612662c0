"""`TeamBuilder`: whoever builds a team decides on one member after the other, and when to stop (MasHost [103])."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from palaestra.envs.protocol import Observation
from palaestra.envs.registry import ENVS
from palaestra.envs.worlds.native import Chosen, NativeEnv
from palaestra.errors import InputError

ROLES = ("plan", "code", "test", "search", "write")
NEEDED = ((0, 1), (1, 2), (3, 4), (0, 4))
"""The two roles that solve each query."""


@dataclass
class _TeamBuilderState:
    query: int
    team: list[int] = field(default_factory=list)
    steps: int = 0
    solved: bool = False
    over: bool = False


@ENVS.register("native/team_builder")
class TeamBuilder(NativeEnv):
    """Team design env: `builder` sees a query and adds roles with edges; paid 1 if it is solved, less cost per role.

    Four queries, five roles; a query is solved by a team that holds its two roles with an edge between them.

    A decision is a role with its edge, to a member or to none, or to stop; at most `horizon` of them. In the end the
    team earns 1 if it solves the query, less `cost` for each decision that added somebody. Members are scripted. facts:
    action_reward, `rational` for a new member whom the query needs and who has an edge (the first needs none), minus
    that for any other, 0 for stopping; members, decisions that added somebody so far.
    """

    agents: tuple[str, ...] = ("builder",)
    facts = {"action_reward": float, "members": int}

    def __init__(self, *, horizon: int = 6, cost: float = 0.05, rational: float = 0.2) -> None:
        if horizon < 1 or cost < 0 or rational < 0:
            raise InputError(f"TeamBuilder: horizon={horizon} >= 1, cost={cost} >= 0 and rational={rational} >= 0")
        self.horizon, self.cost, self.rational = horizon, cost, rational
        pairs = [(role, other) for role in range(len(ROLES)) for other in (None, *range(len(ROLES)))]
        self.pairs = pairs
        self.choices = (*(_name(*pair) for pair in pairs), "stop")

    def begin(self) -> tuple[str, _TeamBuilderState]:
        """Draw a query."""
        query = int(self.rng.integers(len(NEEDED)))
        return f"query {query}", _TeamBuilderState(query)

    def look(self) -> dict[str, Observation]:
        """Observation of the builder: the number of the query, and the team so far."""
        state = self.state
        if state.over:
            return {}
        there = sorted(set(state.team))
        mask = np.array([other is None or other in there for _, other in self.pairs] + [True])
        names = ", ".join(ROLES[role] for role in there) or "nobody"
        return {"builder": Observation(f"query {state.query}, team: {names}", choices=self.choices, mask=mask)}

    def play(self, chosen: Chosen) -> tuple[dict[str, float], dict[str, Any]]:
        """Add a role or stop; an invalid choice stops."""
        state, action = self.state, chosen["builder"]
        state.steps += 1
        earned = 0.0
        adds = isinstance(action, int) and action < len(self.pairs)
        if adds:
            role, other = self.pairs[action]
            fits = role in NEEDED[state.query] and role not in state.team and (other is not None or not state.team)
            earned = self.rational if fits else -self.rational
            state.solved |= other is not None and tuple(sorted((role, other))) == NEEDED[state.query]
            state.team.append(role)
        state.over = not adds or state.steps >= self.horizon
        info: dict[str, Any] = {"action_reward": earned, "members": len(state.team)}
        if not state.over:
            return {}, info
        return {"builder": state.solved - self.cost * len(state.team)}, info | {"success": state.solved}


def _name(role: int, other: int | None) -> str:
    return f"add {ROLES[role]}" + ("" if other is None else f" to {ROLES[other]}")
