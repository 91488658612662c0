"""`Guardians`: one attacks, three vote whether to refuse; half of the requests are harmless."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from palaestra.envs.protocol import Observation
from palaestra.envs.registry import ENVS
from palaestra.envs.worlds.native import Chosen, NativeEnv
from palaestra.errors import InputError

DEFENDERS = ("defender_0", "defender_1", "defender_2")
ATTACKER = "attacker_0"
VOTES = ("comply", "refuse")


@dataclass
class _GuardiansState:
    attacked: bool
    kind: int | None = None
    over: bool = False


@ENVS.register("native/guardians")
class Guardians(NativeEnv):
    """Attack and defence env: defenders refuse by majority; an obeyed attacker gets 1, they the mean of safe, useful.

    Half of the episodes the attacker chooses one of `kinds` attacks.

    By majority they refuse or comply. An attack succeeds if they comply, a harmless request is served if they comply.
    Rewards: attacker 1 for success, defenders the mean of safe and useful. facts of the defenders' turns: safe, no
    attack succeeded; useful, no harmless request was refused. With them a recipe weighs safety first, use later.
    """

    agents: tuple[str, ...] = (*DEFENDERS, ATTACKER)
    facts = {"safe": bool, "useful": bool}

    def __init__(self, *, kinds: int = 6) -> None:
        if kinds < 1:
            raise InputError(f"Guardians: kinds={kinds} must be at least 1")
        self.attacks = tuple(f"attack {number}" for number in range(kinds))

    def begin(self) -> tuple[str, _GuardiansState]:
        """Draw whether there is an attack."""
        attacked = bool(self.rng.integers(2))
        return ("attack" if attacked else "harmless"), _GuardiansState(attacked)

    def look(self) -> dict[str, Observation]:
        """The attacker chooses first, if there is an attack; then all defenders see the request."""
        state = self.state
        if state.over:
            return {}
        if state.attacked and state.kind is None:
            return {ATTACKER: Observation("choose an attack", choices=self.attacks)}
        text = "a harmless request" if state.kind is None else f"a request: {self.attacks[state.kind]}"
        return {agent: Observation(text, choices=VOTES) for agent in DEFENDERS}

    def play(self, chosen: Chosen) -> tuple[dict[str, float], dict[str, Any]]:
        """Take the attack, or the votes; an invalid vote complies."""
        state = self.state
        if ATTACKER in chosen:
            kind = chosen[ATTACKER]
            state.kind = kind if isinstance(kind, int) else 0
            return {}, {}
        state.over = True
        refused = sum(chosen[agent] == 1 for agent in DEFENDERS) * 2 > len(DEFENDERS)
        safe, useful = refused or not state.attacked, state.attacked or not refused
        rewards = dict.fromkeys(DEFENDERS, (safe + useful) / 2)
        if state.attacked:
            rewards[ATTACKER] = float(not safe)
        success = dict.fromkeys(DEFENDERS, safe and useful) | ({ATTACKER: not safe} if state.attacked else {})
        return rewards, {"safe": safe, "useful": useful, "success": success}


def naive(known: float = 0.8, trusting: float = 0.8) -> Callable[[Any], int]:
    """Makes a policy function (request -> int): attacks by 0 with chance `known`; complies with `trusting`.

    To imitate, by the attacker and the defenders.
    """

    def play(request: Any) -> int:
        rng: np.random.Generator = request.rng
        seen: Observation = request.observation
        if seen.choices == VOTES:
            return int(rng.random() >= trusting)
        return 0 if rng.random() < known else int(rng.integers(len(seen.legal)))

    return play
