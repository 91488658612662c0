"""Values by playing on: restart an env where an episode stood, finish it afresh K times, average what it earns.

An env that can be restarted says so by two methods, `snapshot()` (anything that can be kept) and `restore(snapshot)`
(back to there; returns the observations of that moment). After `restore` it plays as it would have played on; chance
that comes later is drawn anew if `restore` is given a seed.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np

from palaestra.agents.base import Policy, Request
from palaestra.envs.base import Env, Observation
from palaestra.errors import EnvError


@runtime_checkable
class Restartable(Protocol):
    """What an env has, beside `Env`, if an episode can be gone on with from where it stood."""

    def snapshot(self) -> Any:
        """The episode as it stands: before the agents last observed have acted."""

    def restore(self, snapshot: Any, seed: int | None = None) -> Mapping[str, Observation]:
        """Back to a snapshot of this env or another one of the same kind; seed: of the chance that is to come."""


def mc_value(
    env: Env,
    snapshots: Sequence[Any],
    policy: Policy,
    rng: np.random.Generator,
    *,
    k: int = 8,
    agent: str | None = None,
    keys: Sequence[Hashable] | None = None,
    max_steps: int = 1000,
) -> np.ndarray:
    """Mean of what `agent` (default: everybody together) earns from each snapshot on, over k fresh episodes.

    policy plays all seats. keys: one per snapshot; equal keys are evaluated once. The column that `spo_chain` calls
    value is this, at the start of each row's segment.

    Returns:
        float64[snapshots].

    Raises:
        EnvError: the env cannot be restarted, does not end within max_steps, or gives an agent no score.
    """
    if not isinstance(env, Restartable):
        raise EnvError(
            f"mc_value: {type(env).__name__} cannot be restarted: it has no snapshot() and restore(); add both, or use "
            "an env that has them (OpenSpiel's have)"
        )
    known: dict[Hashable, float] = {}
    values = np.empty(len(snapshots))
    for number, snapshot in enumerate(snapshots):
        key: Hashable = number if keys is None else keys[number]
        if key not in known:
            known[key] = float(np.mean([_finish(env, snapshot, policy, rng, agent, max_steps) for _ in range(k)]))
        values[number] = known[key]
    return values


def _finish(
    env: Any, snapshot: Any, policy: Policy, rng: np.random.Generator, agent: str | None, max_steps: int
) -> float:
    observations = env.restore(snapshot, seed=int(rng.integers(2**63)))
    earned = 0.0
    for _ in range(max_steps):
        requests = [Request(seen, name, rng) for name, seen in observations.items()]
        decisions = policy.act(requests)
        failed = [decision.error for decision in decisions if decision.error]
        if failed:
            raise EnvError(f"mc_value: the policy failed while playing on: {failed[0]}")
        result = env.step(
            {request.agent: decision.action for request, decision in zip(requests, decisions, strict=True)}
        )
        for name, reward in result.rewards.items():
            if reward is None:
                raise EnvError(f"mc_value: {name!r} has no score; values need an env that scores every step")
            earned += reward if agent in (None, name) else 0.0
        observations = result.observations
        if not observations:
            return earned
    raise EnvError(f"mc_value: an episode is not over after {max_steps} steps; raise max_steps")
