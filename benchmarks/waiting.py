"""How long a team of policies that wait takes, by the longest chain of answers: in waves, and one by one.

A chain of six roles, 64 episodes at once; every answer takes log-normal(σ = 1) times .1 s on average, which a coroutine
sleeps. In a wave an episode waits for the slowest answer of all of them; one by one, for its own. The longest chain is
the least that is possible.

Run: python benchmarks/waiting.py
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from time import perf_counter

import numpy as np

from palaestra.agents.policy import Decision, Request
from palaestra.agents.streaming import AnswerStream, AsyncStream
from palaestra.envs.protocol import Action, Observation, StepResult
from palaestra.play.rollout import rollout

EPISODES, LENGTH, SECONDS = 64, 6, 0.1
MOST = 1.1


class Chain:
    """One role after the other."""

    agents = tuple(f"r{number}" for number in range(LENGTH))
    task = "chain"

    def reset(self, seed: int) -> Mapping[str, Observation]:
        """The first role."""
        self.turn = 0
        return {"r0": Observation("start")}

    def step(self, actions: Mapping[str, Action]) -> StepResult:
        """The next role."""
        self.turn += 1
        if self.turn == LENGTH:
            return StepResult({}, {"r0": 1.0}, terminated=True)
        return StepResult({f"r{self.turn}": Observation("go on")})


class Waiting:
    """Waits and agrees; `act` answers a batch when all have waited."""

    name = "waiting"
    waits = True

    def __init__(self, *, streams: bool) -> None:
        if streams:
            self.stream = self._stream
        self.seconds: list[float] = []

    async def _answer(self, request: Request) -> Decision:
        seconds = SECONDS * float(request.rng.lognormal(-0.5, 1.0))
        self.seconds.append(seconds)
        await asyncio.sleep(seconds)
        return Decision("yes")

    def act(self, requests: Sequence[Request]) -> list[Decision]:
        """All at once."""

        async def everybody() -> list[Decision]:
            return list(await asyncio.gather(*[self._answer(request) for request in requests]))

        return asyncio.run(everybody())

    def _stream(self) -> AnswerStream:
        @contextlib.asynccontextmanager
        async def opened() -> AsyncIterator[Callable[[Request], Awaitable[Decision]]]:
            yield self._answer

        return AsyncStream(opened)


class Same:
    """One policy in every seat."""

    def __init__(self, policy: Waiting) -> None:
        self.policy = policy

    def for_agent(self, agent: str) -> Waiting:
        """Always the same."""
        return self.policy


def measure(seed: int, *, streams: bool) -> tuple[float, float]:
    """Seconds that it took, and of the longest chain of the waves."""
    policy = Waiting(streams=streams)
    began = perf_counter()
    rollout(Chain, Same(policy), groups=EPISODES, group_size=1, seed=seed)
    taken = perf_counter() - began
    longest = 0.0 if streams else float(np.reshape(policy.seconds, (LENGTH, EPISODES)).sum(axis=0).max())
    return taken, longest


def main() -> None:
    """Both ways on three seeds."""
    worst = 0.0
    for seed in range(3):
        waves, longest = measure(seed, streams=False)
        streamed, _ = measure(seed, streams=True)
        shares = f"waves {waves / longest:.2f}, one by one {streamed / longest:.2f}"
        print(f"seed {seed}: longest chain {longest:.2f} s, {shares}")
        worst = max(worst, streamed / longest)
    sys.exit(worst > MOST)


if __name__ == "__main__":
    main()
