"""OpenSpiel's turn-based games with all players asked every turn, for methods that need everybody's observation.

Central critics (MAPPO) and value decomposition (VDN, QMIX) look at all agents of a step; in Hanabi only one acts. Here
the others are shown what they see and have one legal action, `pass`, as in the literature's Hanabi.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

import numpy as np

from palaestra.envs.lazy import LazyObservation
from palaestra.envs.openspiel_states import SIMULTANEOUS
from palaestra.envs.protocol import Action, Observation, StepResult
from palaestra.errors import EnvError, InputError

PASS = "pass"


class Together:
    """Mixin for `OpenSpielEnv`: all players are asked in every turn; those not to move can only pass.

    The action `pass` has the last number, one above the game's own. Whatever else a waiting player says counts as pass
    and is reported as invalid.
    """

    agents: tuple[str, ...]

    def reset(self, seed: int) -> Mapping[str, Observation]:
        """Deal with `seed` and show the first decision to everybody."""
        return self._everybody(super().reset(seed))  # type: ignore[misc]

    def step(self, actions: Mapping[str, Action]) -> StepResult:
        """Play the action of who acts; the others pass."""
        if actions.keys() != set(self.agents):
            raise EnvError(f"actions of {sorted(actions)} were given, but the agents to act are {sorted(self.agents)}")
        base: Any = self
        valid = {agent: base._shown[agent].index(action) is not None for agent, action in actions.items()}
        result: StepResult = super().step({agent: actions[agent] for agent in base._turn})  # type: ignore[misc]
        info = {**result.info, "valid": valid}
        shown = self._everybody(result.observations)
        return StepResult(shown, result.rewards, result.terminated, result.truncated, info)

    def restore(self, snapshot: Any, seed: int | None = None) -> Mapping[str, Observation]:
        """Restore a snapshot of this game; seed: draw future chance moves anew."""
        return self._everybody(super().restore(snapshot, seed))  # type: ignore[misc]

    def _everybody(self, acting: Mapping[str, Observation]) -> dict[str, Observation]:
        base: Any = self
        if not acting:
            base._shown = {}
        elif base._node.player == SIMULTANEOUS:
            raise InputError(f"{base.name}: its players act at once already; leave out everyone=")
        else:
            state = base._node.state
            base._shown = {
                agent: LazyObservation.of(functools.partial(_field, base, state, player, acting.get(agent)))
                for player, agent in enumerate(self.agents)
            }
        return dict(base._shown)


def _field(env: Any, state: Any, player: int, own: Observation | None, name: str) -> Any:
    """One field of an observation; own: that of the game, of who acts."""
    if name == "choices":
        return (*(own.choices or () if own is not None else env._names[player]), PASS)
    if name == "mask":
        if own is None or own.mask is None:
            return np.arange(env._actions + 1) == env._actions
        return np.append(own.mask, False)
    return getattr(own, name) if own is not None else env._makers[name](state, player)
