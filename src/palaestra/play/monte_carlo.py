"""Values by playing on: restart an env where an episode stood, finish it afresh K times, average what it earns.

An env that can be restarted says so by two methods, `snapshot()` (anything that can be kept) and `restore(snapshot)`
(back to there; returns the observations of that moment). After `restore` it plays as it would have played on, and so
does another env of the same factory, reset or not; chance that comes later is drawn anew if `restore` is given a seed.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np

from palaestra.agents.policy import Decision, Policy, Request
from palaestra.envs.protocol import Env, EnvFactory, Observation
from palaestra.errors import EnvError
from palaestra.play.engine import Seats


@runtime_checkable
class Restartable(Protocol):
    """Protocol of envs that go back in an episode: `snapshot()`, `restore(snapshot, seed)` -> observations."""

    def snapshot(self) -> Any:
        """Snapshot of the episode, before the agents last observed have acted."""

    def restore(self, snapshot: Any, seed: int | None = None) -> Mapping[str, Observation]:
        """Restore a snapshot of this env or one of the same kind; seed: of future chance."""


def mc_value(
    env: Env | EnvFactory,
    snapshots: Sequence[Any],
    policy: Policy,
    rng: np.random.Generator,
    *,
    k: int = 8,
    agent: str | None = None,
    keys: Sequence[Hashable] | None = None,
    max_steps: int = 1000,
    at_once: int = 256,
) -> np.ndarray:
    """Values of snapshots of `env` (or its factory), float64[snapshots]: mean return of `agent` (all) in k plays.

    env: one that the episodes are played in after each other, or what makes envs, then `at_once` are played side by
    side. policy plays all seats (`Everybody` makes one of a team). keys: one per snapshot; equal keys are evaluated
    once. The stage `mc_values` fills the column `value` with this.

    Returns:
        float64[snapshots].

    Raises:
        EnvError: the env cannot be restarted, does not end within max_steps, or gives an agent no score.
    """
    make: Callable[[], Any] | None = env if not isinstance(env, Env) and callable(env) else None
    first = env if make is None else make()
    if not isinstance(first, Restartable):
        raise EnvError(
            f"mc_value: {type(first).__name__} cannot be restarted: it has no snapshot() and restore(); add both, or "
            "use an env that has them (OpenSpiel's have)"
        )
    places: dict[Hashable, int] = {}
    own = [places.setdefault(key, len(places)) for key in (range(len(snapshots)) if keys is None else keys)]
    starts = dict(zip(reversed(own), reversed(snapshots), strict=True))
    todo = [place for place in range(len(places)) for _ in range(k)]
    envs: list[Any] = [first]
    if make is not None:
        envs += [make() for _ in range(min(at_once, len(todo)) - 1)]
    earned = np.zeros(len(todo))
    for begin in range(0, len(todo), len(envs)):
        part = todo[begin : begin + len(envs)]
        earned[begin : begin + len(part)] = _finish(
            envs, [starts[place] for place in part], policy, rng, agent, max_steps
        )
    return np.asarray(earned.reshape(-1, k).mean(axis=1)[own])


class Everybody:
    """Policy that plays all seats of a team, asking each seat's own policy."""

    name = "everybody"

    def __init__(self, team: Seats) -> None:
        self.team = team

    def act(self, requests: Sequence[Request]) -> list[Decision]:
        """Decisions for requests of all seats, with one call of each policy."""
        by_policy: dict[int, tuple[Policy, list[int]]] = {}
        for number, request in enumerate(requests):
            policy = self.team.for_agent(request.agent)
            by_policy.setdefault(id(policy), (policy, []))[1].append(number)
        decisions: list[Any] = [None] * len(requests)
        for policy, numbers in by_policy.values():
            for number, decision in zip(numbers, policy.act([requests[n] for n in numbers]), strict=True):
                decisions[number] = decision
        return decisions


def _finish(
    envs: Sequence[Any],
    snapshots: Sequence[Any],
    policy: Policy,
    rng: np.random.Generator,
    agent: str | None,
    limit: int,
) -> np.ndarray:
    """Returns from each snapshot on, each in an env of its own, side by side."""
    live = {n: envs[n].restore(snapshot, seed=int(rng.integers(2**63))) for n, snapshot in enumerate(snapshots)}
    earned = np.zeros(len(snapshots))
    for _ in range(limit):
        live = {number: seen for number, seen in live.items() if seen}
        if not live:
            return earned
        asked = [(number, Request(seen, name, rng)) for number, all_ in live.items() for name, seen in all_.items()]
        decisions = policy.act([request for _, request in asked])
        actions: dict[int, dict[str, Any]] = {number: {} for number in live}
        for (number, request), decision in zip(asked, decisions, strict=True):
            if decision.error:
                raise EnvError(f"mc_value: the policy failed while playing on: {decision.error}")
            actions[number][request.agent] = decision.action
        for number, chosen in actions.items():
            result = envs[number].step(chosen)
            for name, reward in result.rewards.items():
                if reward is None:
                    raise EnvError(f"mc_value: {name!r} has no score; values need an env that scores every step")
                earned[number] += reward if agent in (None, name) else 0.0
            live[number] = result.observations
    if any(live.values()):
        raise EnvError(f"mc_value: an episode is not over after {limit} steps; raise max_steps")
    return earned
