"""A policy as a function from prompts to answers, for what asks questions outside a game."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

import numpy as np

from palaestra.agents.policy import Policy, Request
from palaestra.envs.protocol import Observation
from palaestra.errors import PolicyError


def asking(policy: Policy, *, agent: str = "writer", seed: int = 0) -> Callable[[Sequence[str]], list[str]]:
    """Makes a function (list of prompts -> answers) of a `Policy`; a call's prompts go out at once; raises on failure.

    seed: the n-th prompt draws from a stream of its own, (seed, n).

    Raises (when it is asked):
        PolicyError: the policy failed on a prompt.
    """
    numbers = itertools.count()

    def ask(prompts: Sequence[str]) -> list[str]:
        streams = [np.random.default_rng([seed, next(numbers)]) for _ in prompts]
        requests = [Request(Observation(text), agent, rng) for text, rng in zip(prompts, streams, strict=True)]
        decisions = policy.act(requests)
        for decision in decisions:
            if decision.error is not None:
                raise PolicyError(f"{policy.name}: {decision.error}")
        return [str(decision.action) for decision in decisions]

    return ask
