"""How play is spread."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from palaestra.algebra.registry import Registry
from palaestra.algebra.turns import Turns
from palaestra.envs.base import EnvFactory, Observation
from palaestra.play.engine import Seats
from palaestra.play.rollout import rollout, starts
from palaestra.play.streams import Stream


@dataclass(frozen=True)
class Plan:
    """What is to be played."""

    groups: int
    group_size: int | Sequence[int] = 1
    seed: int = 0
    iteration: int = 0
    stream: Stream = "train"
    run: str | None = None
    env_seeds: Sequence[int | None] | None = None
    version: int = 0
    retries: int | None = None

    @property
    def episodes(self) -> int:
        """Episodes in all."""
        return self.groups * self.group_size if isinstance(self.group_size, int) else sum(self.group_size)


class Executor(Protocol):
    """Plays."""

    def play(self, env: EnvFactory, team: Seats, plan: Plan) -> Turns:
        """The table."""

    def starts(self, env: EnvFactory, plan: Plan) -> list[Observation | None]:
        """First looks."""

    def close(self) -> None:
        """Let go."""


EXECUTORS: Registry[Executor] = Registry("executor", home=("palaestra.play.executors",), example="threads(workers=32)")


@EXECUTORS.register()
class local:
    """Here."""

    def __init__(
        self, *, concurrency: int = 256, timeout: float | None = 60.0, retries: int = 0, max_turns: int = 1000
    ) -> None:
        self.options: dict[str, Any] = {"concurrency": concurrency, "timeout": timeout, "max_turns": max_turns}
        self.retries, self.timeout = retries, timeout

    def play(self, env: EnvFactory, team: Seats, plan: Plan) -> Turns:
        """The table."""
        return rollout(
            env,
            team,
            groups=plan.groups,
            group_size=plan.group_size,
            seed=plan.seed,
            iteration=plan.iteration,
            stream=plan.stream,
            run=plan.run,
            retries=self.retries if plan.retries is None else plan.retries,
            **self.options,
        )

    def starts(self, env: EnvFactory, plan: Plan) -> list[Observation | None]:
        """First looks."""
        return starts(env, groups=plan.groups, seed=plan.seed, iteration=plan.iteration, timeout=self.timeout)

    def close(self) -> None:
        """Nothing."""
