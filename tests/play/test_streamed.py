"""Policies that answer one by one: an episode waits for its own answers only, and the table is that of waves."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence

import pytest

from palaestra.agents.policy import Decision, Request
from palaestra.agents.streaming import AnswerStream, AsyncStream
from palaestra.envs.protocol import Action, Observation, StepResult
from palaestra.play.rollout import rollout


class Chain:
    """Six roles in a row, then two at once; the last result is the order in which their actions came."""

    agents: tuple[str, ...] = ("r0", "r1", "r2", "r3", "r4", "r5")
    task = "chain"

    def reset(self, seed: int) -> Mapping[str, Observation]:
        self.turn = 0
        return {"r0": Observation(f"start {seed}")}

    def step(self, actions: Mapping[str, Action]) -> StepResult:
        self.turn += 1
        text = " ".join(f"{agent}={action}" for agent, action in actions.items())
        if self.turn < 6:
            return StepResult({f"r{self.turn}": Observation(text)})
        if self.turn == 6:
            return StepResult({agent: Observation(text) for agent in ("r3", "r1", "r2")})
        return StepResult({}, {"r0": 1.0}, terminated=True, info={"order": text})


class Slow:
    """Draws how long an answer takes, long-tailed, and says what it drew."""

    name = "slow"
    waits = True

    def __init__(self, seconds: float, *, streams: bool, fails: str = "") -> None:
        self.seconds, self.fails = seconds, fails
        self.now = self.most = 0
        self.chains: dict[str, float] = {}
        if streams:
            self.stream = self._stream

    def draw(self, request: Request) -> tuple[float, Decision]:
        tail = float(request.rng.pareto(2.0))
        if self.fails and self.fails == request.agent and tail > 0.5:
            raise OSError("nobody there")
        return self.seconds * min(0.2 + tail, 5), Decision(f"{tail:.3f}", duration=0.0)

    def act(self, requests: Sequence[Request]) -> list[Decision]:
        decisions = []
        for request in requests:
            try:
                decisions.append(self.draw(request)[1])
            except OSError as error:
                decisions.append(Decision("", duration=0.0, error=f"OSError: {error}"))
        return decisions

    def _stream(self) -> AnswerStream:
        @contextlib.asynccontextmanager
        async def opened() -> AsyncIterator[Callable[[Request], Awaitable[Decision]]]:
            async def answer(request: Request) -> Decision:
                seconds, decision = self.draw(request)
                self.now += 1
                self.most = max(self.most, self.now)
                await asyncio.sleep(seconds)
                self.now -= 1
                return decision

            yield answer

        return AsyncStream(opened)


class Team:
    def __init__(self, policy: Slow) -> None:
        self.policy = policy

    def for_agent(self, agent: str) -> Slow:
        return self.policy


COLUMNS = ["group", "episode", "turn", "agent", "state", "action", "reward", "success", "error"]


def test_the_table_is_that_of_waves() -> None:
    for fails in ("", "r1"):
        waves, streamed = (
            rollout(Chain, Team(Slow(0.002, streams=streams, fails=fails)), groups=6, group_size=3, seed=4, retries=1)
            for streams in (False, True)
        )
        assert waves.frame.select(COLUMNS).equals(streamed.frame.select(COLUMNS), null_equal=True)
        metadata = [turns.frame.get_column("metadata").to_list() for turns in (waves, streamed)]
        assert metadata[0] == metadata[1], "who answers first must not be seen by the env"
        assert (waves.frame["error"].null_count() < waves.frame.height) == bool(fails)


def test_an_episode_waits_for_its_own_answers_only() -> None:
    class Last(Slow):
        """Gives its first answer when all others have been given."""

        def _stream(self) -> AnswerStream:
            @contextlib.asynccontextmanager
            async def opened() -> AsyncIterator[Callable[[Request], Awaitable[Decision]]]:
                asked, over = list[Request](), asyncio.Event()

                async def answer(request: Request) -> Decision:
                    asked.append(request)
                    if len(asked) == 1:
                        await asyncio.wait_for(over.wait(), 60)
                    if len(asked) == 1 + 15 * 9:
                        over.set()
                    return Decision("x", duration=0.0)

                yield answer

            return AsyncStream(opened)

    turns = rollout(Chain, Team(Last(0, streams=True)), groups=16, group_size=1, seed=4)
    assert turns["error"].null_count() == len(turns) == 16 * 9


def test_a_stream_that_cannot_be_opened_is_an_error_of_every_row() -> None:
    class Broken(Slow):
        def _stream(self) -> AnswerStream:
            @contextlib.asynccontextmanager
            async def opened() -> AsyncIterator[Callable[[Request], Awaitable[Decision]]]:
                raise OSError("no such host")
                yield

            return AsyncStream(opened)

    turns = rollout(Chain, Team(Broken(0, streams=True)), groups=2, group_size=1, seed=1)
    assert turns.frame["error"].str.contains("no such host").all()


def test_what_is_under_way_is_given_up_when_play_ends() -> None:
    class Interrupted(Chain):
        def step(self, actions: Mapping[str, Action]) -> StepResult:
            raise KeyboardInterrupt

    before = threading.active_count()
    began = time.perf_counter()
    policy, seconds = Slow(0.01, streams=True), iter([0.01, *[60.0] * 9])
    policy.draw = lambda request: (next(seconds), Decision("x"))  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt):
        rollout(Interrupted, Team(policy), groups=4, group_size=1, seed=1)
    assert time.perf_counter() - began < 30
    assert threading.active_count() <= before + 1
