"""`HiddenRoles`: players who see alike and should act differently, by roles that nobody tells them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from palaestra.envs.protocol import Observation
from palaestra.envs.registry import ENVS
from palaestra.envs.worlds.native import Chosen, NativeEnv
from palaestra.errors import InputError


@dataclass
class _HiddenRolesState:
    seen: np.ndarray
    round: int = 0


@ENVS.register("native/hidden_roles")
class HiddenRoles(NativeEnv):
    """Env of hidden roles: players see their own numbers, act at once; paid `scales` if right for their unseen role.

    Roles are not shown; each round has new numbers.

    Of one role it is the largest of linear scores of what is seen; each further role wants the action that is
    `actions // roles` further on. Players take roles in turn: `player_0`, `player_2`, … have the first of two. A right
    action pays the player's `scales`, another one nothing. Success: most actions of the last round were right.

    With `units` the right action is no linear question. With `sight` the numbers are shown in a code: two envs with one
    `world` and two codes ask for the same decisions and look different. With `joint` all are paid the mean of all.

    facts: role, of the player; right, whether its action was.

    Args:
        players, roles, actions, features, rounds: numbers; features are of what each player sees.
        scales: what a right action pays each player; None: 1.
        world: which linear scores.
        units: the scores are linear in so many tanh units with random weights; 0: in the numbers themselves.
        sight: features that are shown, fixed random mixtures of the numbers; None: the numbers.
        code: which mixtures.
        joint: a team reward; every player gets the mean over players.

    Raises:
        InputError: a number is out of range.
    """

    facts = {"role": int, "right": bool}

    def __init__(
        self,
        *,
        players: int = 6,
        roles: int = 2,
        actions: int = 4,
        features: int = 6,
        rounds: int = 4,
        scales: Sequence[float] | None = None,
        world: int = 0,
        units: int = 0,
        sight: int | None = None,
        code: int = 0,
        joint: bool = False,
    ) -> None:
        scales = [1.0] * players if scales is None else scales
        if min(players, features, rounds) < 1 or not 1 <= roles <= actions or len(scales) != players or units < 0:
            raise InputError(
                f"HiddenRoles: players={players}, features={features} and rounds={rounds} must be at least 1, units="
                f"{units} 0, roles={roles} from 1 to actions={actions}, scales={scales} one for each player"
            )
        if sight is not None and sight < features:
            raise InputError(f"HiddenRoles: sight={sight} features cannot show features={features} numbers")
        self.agents = tuple(f"player_{number}" for number in range(players))
        self.features, self.rounds, self.scales = features, rounds, np.asarray(scales, float)
        self.choices = tuple(str(action) for action in range(actions))
        self.roles = np.arange(players) % roles
        self.ahead = self.roles * (actions // roles)
        draw = np.random.default_rng([world, 160])
        self.scores = draw.normal(size=(units or features, actions))
        self.bends = (1.5 * draw.normal(size=(features, units)), draw.normal(size=units)) if units else None
        mixtures = None if sight is None else np.random.default_rng([code, 44]).normal(size=(features, sight))
        self.mixtures = None if mixtures is None else mixtures / np.sqrt(features)
        self.joint = joint

    def begin(self) -> tuple[str, _HiddenRolesState]:
        """Draw the first round's numbers."""
        seen = self._numbers()
        return f"hidden_roles:{seen[0, 0]:.9f}", _HiddenRolesState(seen)

    def _numbers(self) -> np.ndarray:
        return self.rng.normal(size=(len(self.agents), self.features))

    def look(self) -> dict[str, Observation]:
        """Each player sees its own numbers, not its role."""
        if self.state.round == self.rounds:
            return {}
        seen = self.state.seen if self.mixtures is None else self.state.seen @ self.mixtures
        return {
            agent: Observation(" ".join(f"{x:.3f}" for x in seen[at]), self.choices, array=seen[at].astype(np.float32))
            for at, agent in enumerate(self.agents)
        }

    def play(self, chosen: Chosen) -> tuple[dict[str, float], dict[str, Any]]:
        """Pay the right actions, and draw new numbers."""
        state = self.state
        units = state.seen if self.bends is None else np.tanh(state.seen @ self.bends[0] + self.bends[1])
        wanted = ((units @ self.scores).argmax(axis=1) + self.ahead) % len(self.choices)
        right = np.array([chosen[agent] for agent in self.agents], object) == wanted
        state.round, state.seen = state.round + 1, self._numbers()
        told: dict[str, Any] = {
            "role": dict(zip(self.agents, self.roles.tolist(), strict=True)),
            "right": dict(zip(self.agents, right.tolist(), strict=True)),
        }
        if state.round == self.rounds:
            told["success"] = bool(right.mean() > 0.5)
        paid = self.scales * right
        paid = np.full(len(paid), paid.mean()) if self.joint else paid
        return dict(zip(self.agents, paid.tolist(), strict=True)), told
