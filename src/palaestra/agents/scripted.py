"""Policies that are functions: demonstrators, opponents and controls.

They learn nothing and report no log-probabilities.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from palaestra.agents.policy import Decision, Request, error_text
from palaestra.envs.protocol import Action
from palaestra.errors import InputError, nearest


class ScriptedPolicy:
    """Policy of a Python function: `function(request)` returns the action; an exception becomes an error."""

    def __init__(self, function: Callable[[Request], Action], *, name: str = "scripted") -> None:
        self.function, self.name = function, name

    def act(self, requests: Sequence[Request]) -> list[Decision]:
        """Call the function once per request."""
        return [self._decide(request) for request in requests]

    def _decide(self, request: Request) -> Decision:
        start = time.perf_counter()
        try:
            decision = Decision(self.function(request))
        except (Exception, SystemExit) as error:  # sys.exit() in a function is its own failure, too
            decision = Decision("", error=error_text(error))
        decision.duration = time.perf_counter() - start
        return decision


def random_legal(*, name: str = "random") -> ScriptedPolicy:
    """Makes a policy that draws uniformly from the legal action ids; without choices its decision is an error."""

    def play(request: Request) -> int:
        observation = request.observation
        if observation.choices is None:
            raise InputError("random_legal needs an observation with choices; this action is free text")
        legal = np.arange(len(observation.choices)) if observation.mask is None else np.flatnonzero(observation.mask)
        return int(request.rng.choice(legal))

    return ScriptedPolicy(play, name=name)


def fixed(action: Action, *, name: str = "fixed") -> ScriptedPolicy:
    """Makes a policy that always plays the action `action`."""
    return ScriptedPolicy(lambda request: action, name=name)


def from_choices(weights: Mapping[str, float], *, name: str = "choices") -> ScriptedPolicy:
    """Makes a policy that draws legal choices in proportion to `weights` {choice: weight}; unnamed ones have 0.

    >>> from palaestra.envs.protocol import Observation
    >>> policy = from_choices({"bet": 0.25, "pass": 0.75})
    >>> rng = np.random.default_rng(0)
    >>> policy.act([Request(Observation("?", choices=("pass", "bet", "fold")), "player", rng)])[0].action
    'pass'
    """
    if not weights or min(weights.values()) < 0 or not np.isfinite(list(weights.values())).all():
        raise InputError(f"from_choices: weights must be finite and at least 0, not {dict(weights)}")

    def play(request: Request) -> str:
        legal = request.observation.legal
        shares = np.array([weights.get(choice, 0.0) for choice in legal])
        if not shares.sum() > 0:
            raise InputError(f"none of {sorted(weights)} is legal{nearest(next(iter(weights)), legal)}")
        return str(request.rng.choice(legal, p=shares / shares.sum()))

    return ScriptedPolicy(play, name=name)
