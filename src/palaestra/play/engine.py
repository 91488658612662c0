"""The loop of a rollout: fill free places, ask the policies, step the envs, hand out what is finished in its order.

`rollout` is the door to it. An episode that is done waits here until those before it are done as well, so that the
table, or the file, has the same order for every concurrency.
"""

from __future__ import annotations

import heapq
import json
from collections import deque
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from time import perf_counter
from typing import Protocol

import numpy as np

from palaestra.agents.base import Decision, Policy, Request
from palaestra.envs.base import Action, Env, EnvFactory
from palaestra.errors import InputError, PolicyError
from palaestra.play.boundary import Outcome, Seen, Success, accept, begin, describe_failure, step
from palaestra.play.recording import Episode, Row
from palaestra.play.streams import Streams
from palaestra.play.watchdog import Failure, Watchdog


class Seats(Protocol):
    """What a rollout needs of a `Team`: who fills a seat."""

    def for_agent(self, agent: str) -> Policy:
        """The policy of this agent."""


@dataclass(slots=True)
class _Play:
    """An episode that is being played.

    seen: who has to act. last: the latest row of each agent. income: what each agent received since then.
    """

    record: Episode
    env: Env | None = None
    seen: list[Seen] = field(default_factory=list)
    last: dict[str, Row] = field(default_factory=dict)
    income: dict[str, float | None] = field(default_factory=dict)
    generators: dict[str, np.random.Generator] = field(default_factory=dict)
    actions: dict[str, Action] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)
    turns: int = 0

    def show(self, seen: list[Seen]) -> None:
        """The next turn: these agents have to act."""
        self.seen, self.actions = seen, {}
        for agent, _, row in seen:
            if agent in self.last:
                self.last[agent].reward = self.income.pop(agent, 0.0)
            self.last[agent] = row
            row.turn = self.turns
            self.record.rows.append(row)
        self.turns += 1

    def receive(self, outcome: Outcome) -> None:
        """What the env said about the actions just taken."""
        for agent, _, row in self.seen:
            row.valid = outcome.valid.get(agent, True)
            row.metadata = outcome.metadata
        for agent, value in outcome.rewards.items():
            if value is None:
                self.income.setdefault(agent, None)
            else:
                self.income[agent] = value + (self.income.get(agent) or 0.0)
        self.record.terminated, self.record.truncated = outcome.terminated, outcome.truncated

    def close(self, error: str | None, success: Success) -> Episode:
        """Settle what is open; the episode as it will be recorded."""
        record = self.record
        record.error = error
        for agent, row in self.last.items():
            row.reward = self.income.pop(agent, None if error else 0.0)
        if success is not None:
            for row in record.rows:
                row.success = success.get(row.agent or "") if isinstance(success, dict) else success
        if any(self.income.values()) and record.rows:
            row = record.rows[-1]
            row.metadata = json.dumps(json.loads(row.metadata or "{}") | {"rewards_without_turn": self.income})
        return record


@dataclass(slots=True)
class _Queue:
    """Who waits for one policy in this wave."""

    policy: Policy
    plays: list[_Play] = field(default_factory=list)
    requests: list[Request] = field(default_factory=list)
    rows: list[Row] = field(default_factory=list)


Report = Callable[[int, int, int, int], None]
"""Progress so far: episodes done, episodes planned, turns, errors."""


@dataclass
class Engine:
    """Plays the episodes of `todo`; its fields are the arguments of `rollout`. sizes: episodes of each group."""

    factory: EnvFactory
    team: Seats
    sizes: Sequence[int]
    streams: Streams
    concurrency: int
    retries: int
    max_turns: int
    watchdog: Watchdog
    todo: deque[tuple[int, int]]
    live: list[_Play] = field(default_factory=list)
    idle_envs: list[Env] = field(default_factory=list)
    queues: dict[str, _Queue] = field(default_factory=dict)
    done: dict[tuple[int, int], Episode] = field(default_factory=dict)
    errors: int = 0

    def play(self, report: Report) -> Generator[Episode]:
        """All episodes, in the order of (group, episode)."""
        expected = list(self.todo)  # sorted, so it is a heap; retries join it
        self.expected = expected
        turns = finished = 0
        try:
            while self.todo or self.live:
                self._refill()
                turns += self._act()
                self._step()
                while expected and expected[0] in self.done:
                    finished += 1
                    yield self.done.pop(heapq.heappop(expected))
                report(finished + len(self.done), finished + len(expected), turns, self.errors)
        finally:
            self.watchdog.close()

    def _refill(self) -> None:
        while self.todo and len(self.live) < self.concurrency:
            plays = []
            for _ in range(min(len(self.todo), self.concurrency - len(self.live))):
                group, episode = self.todo.popleft()
                env = self.idle_envs.pop() if self.idle_envs else None
                plays.append(_Play(Episode(group, episode, self.streams.env_seed(group)), env))
            results = self.watchdog.map(lambda play: begin(play.env, self.factory, play.record.seed), plays)
            for play, result in zip(plays, results, strict=True):
                if isinstance(result, Failure):
                    if isinstance(result.error, InputError):
                        raise result.error
                    play.env = None
                    self._finish(play, describe_failure("env", result))
                else:
                    play.env, play.record.task, seen = result
                    play.show(seen)
                    self.live.append(play)

    def _act(self) -> int:
        queues = self.queues
        for play in self.live:
            for agent, observation, row in play.seen:
                queue = queues.get(agent) or self._queue_of(agent)
                generator = play.generators.get(agent)
                if generator is None:
                    record = play.record
                    generator = self.streams.generator(record.group, record.episode, agent)
                    play.generators[agent] = generator
                queue.plays.append(play)
                queue.rows.append(row)
                queue.requests.append(Request(observation, agent, generator))
        return sum(_serve(queue) for queue in queues.values())  # one that several agents share is empty the second time

    def _queue_of(self, agent: str) -> _Queue:
        policy = self.team.for_agent(agent)
        shared = next((queue for queue in self.queues.values() if queue.policy is policy), None)
        self.queues[agent] = shared or _Queue(policy)
        return self.queues[agent]

    def _step(self) -> None:
        live, self.live = self.live, []
        able = []
        for play in live:
            if play.failures:
                first = next(agent for agent, _, _ in play.seen if agent in play.failures)
                self._finish(play, play.failures[first])
            else:
                able.append(play)
        results = self.watchdog.map(lambda play: step(play.env, play.actions), able)  # type: ignore[arg-type]
        for play, result in zip(able, results, strict=True):
            if isinstance(result, Failure):
                play.env = None  # whatever state it is in, nobody should play with it again
                self._finish(play, describe_failure("env", result))
                continue
            play.receive(result)
            if not result.seen:
                self._finish(play, success=result.success)
            elif play.turns >= self.max_turns:
                play.record.truncated = True
                self._finish(play)
            else:
                play.show(result.seen)
                self.live.append(play)

    def _finish(self, play: _Play, error: str | None = None, success: Success = None) -> None:
        record = play.close(error, success)
        if play.env is not None:
            self.idle_envs.append(play.env)
        self.done[record.group, record.episode] = record
        if error is not None:
            self.errors += 1
            size = self.sizes[record.group]
            if record.episode // size < self.retries:
                again = (record.group, record.episode + size)
                self.todo.appendleft(again)
                heapq.heappush(self.expected, again)


def _serve(queue: _Queue) -> int:
    """Ask the policy once; every waiting play gets its action or a failure. Returns how many waited."""
    plays, requests, rows = queue.plays, queue.requests, queue.rows
    if not requests:
        return 0
    queue.plays, queue.requests, queue.rows = [], [], []
    began = perf_counter()
    failure = None
    decisions: list[Decision] = []
    try:
        decisions = queue.policy.act(requests)
        if len(decisions) != len(requests):
            raise PolicyError(f"act returned {len(decisions)} decisions for {len(requests)} requests")
    except Exception as error:
        failure = describe_failure("policy", Failure(error))
        decisions = [Decision("")] * len(requests)
    seconds = (perf_counter() - began) / len(requests)
    for play, request, row, decision in zip(plays, requests, rows, decisions, strict=True):
        row.policy = queue.policy.name
        try:
            problem = failure or accept(decision, request.observation, row, seconds)
        except Exception as malformed:
            problem = describe_failure("policy", Failure(malformed))
        if problem is None:
            play.actions[request.agent] = decision.action
        else:
            play.failures[request.agent] = problem
    return len(requests)
