"""The loop of a rollout: fill free places, ask the policies, step the envs, hand out what is finished in its order.

Executors are the door to it. An episode that is done waits here until those before it are done as well, so that the
table, or the file, has the same order for every concurrency. Threads only make calls: whatever they bring back is put
in its place here, in one order, so that it cannot matter which of them was first. Policies that compute are asked in
waves, one batch for all who wait. Those that stream (`palaestra.agents.streaming`) are asked at once, and an episode
goes on as soon as its own answers are there; for its rows that makes no difference.
"""

from __future__ import annotations

import heapq
import json
import math
from collections import deque
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from time import perf_counter
from typing import Protocol

import numpy as np

from palaestra.agents.policy import Decision, Learnable, Policy, PreviousTurn, Request
from palaestra.agents.streaming import AnswerStream
from palaestra.algebra.schema import SKIPPED
from palaestra.envs.facts import Facts, facts_of
from palaestra.envs.protocol import Action, Env, EnvFactory, LikelyAction, NoAction, Observation
from palaestra.errors import InputError, PolicyError, RewardError
from palaestra.foundation.generators import remember
from palaestra.play.plan import Plan
from palaestra.play.recording import EpisodeRecord, TurnRecord
from palaestra.play.streams import Streams
from palaestra.play.timeouts import Failure, Watchdog
from palaestra.play.validation import CheckedStep, Seen, Success, accept, begin, describe_failure, step


class Seats(Protocol):
    """Protocol of a team as rollouts use it: `for_agent(name)` gives the policy of a seat."""

    def for_agent(self, agent: str) -> Policy:
        """The policy of this agent."""


@dataclass(slots=True)
class _Place:
    """Where one episode after another is played, with one env."""

    number: int
    env: Env | None = None


@dataclass(slots=True)
class _Play:
    """An episode that is being played.

    seen: who has to act. last: the latest row of each agent. talk: the observation of that row, if it has messages.
    income: what each agent received since then. open: answers that are under way one by one.
    """

    record: EpisodeRecord
    place: _Place
    streams: Streams
    seen: list[Seen] = field(default_factory=list)
    last: dict[str, TurnRecord] = field(default_factory=dict)
    talk: dict[str, Observation] = field(default_factory=dict)
    past: dict[str, PreviousTurn | None] = field(default_factory=dict)
    income: dict[str, float | None] = field(default_factory=dict)
    generators: dict[str, np.random.Generator] = field(default_factory=dict)
    actions: dict[str, Action] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)
    turns: int = 0
    open: int = 0

    def rng(self, agent: str) -> np.random.Generator:
        """The stream of an agent, made when it first draws."""
        if agent not in self.generators:
            self.generators[agent] = self.streams.generator(self.record.group, self.record.episode, agent)
        return self.generators[agent]

    def show(self, seen: list[Seen]) -> None:
        """The next turn: these agents have to act."""
        self.seen, self.actions, self.failures = seen, {}, {}
        for agent, observation, row in seen:
            if agent in self.last:
                self.last[agent].reward = self.income.pop(agent, 0.0)
            if observation.messages is not None:
                self.past[agent] = self._past(agent)
                self.talk[agent] = observation
            self.last[agent] = row
            row.turn = self.turns
            self.record.rows.append(row)
        self.turns += 1

    def _past(self, agent: str) -> PreviousTurn | None:
        row = self.last.get(agent)
        if agent not in self.talk or row is None or row.prompt_ids is None or row.action_ids is None:
            return None
        return PreviousTurn(self.talk[agent], row.prompt_ids, row.action_ids)

    def skip(self, agent: str) -> None:
        """The env goes on without the action of an agent whose policy failed; what it receives is for its last turn."""
        row = self.last.pop(agent)
        self.talk.pop(agent, None)
        row.error = f"{SKIPPED}: {self.failures[agent]}"
        self.actions[agent] = NoAction(row.error)
        before = [each for each in self.record.rows if each.agent == agent and each.error is None]
        if before:
            self.last[agent] = before[-1]
            self.income[agent] = before[-1].reward

    def receive(self, outcome: CheckedStep) -> str | None:
        """Store the env's result of the actions just taken; returns why the episode cannot go on, if so."""
        acted = {}
        for agent, _, row in self.seen:
            acted[agent] = row
            row.valid = outcome.valid.get(agent, True) if row.error is None else None
            row.metadata = outcome.metadata
        for agent, valid in outcome.valid.items():  # of an answer that the env held back until now
            if not valid and agent not in acted and agent in self.last:
                self.last[agent].valid = False
        for agent, told in outcome.facts.items():
            latest = acted.get(agent) or self.last.get(agent)
            if latest is not None:
                latest.facts = {**latest.facts, **told} if latest.facts else told
        for agent, value in outcome.rewards.items():
            if value is None:
                self.income.setdefault(agent, None)
                continue
            total = value + (self.income.get(agent) or 0.0)
            if not math.isfinite(total):
                error = RewardError(f"what {agent!r} received since its last turn sums to {total}")
                return describe_failure("env", Failure(error))
            self.income[agent] = total
        self.record.terminated, self.record.truncated = outcome.terminated, outcome.truncated
        return None

    def close(self, error: str | None, success: Success) -> EpisodeRecord:
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
    """Who waits for one policy in this wave.

    place: the thread that asks it; None: the caller's. stream: asks it at once, so that nobody waits here.
    """

    policy: Policy
    name: str
    place: int | None
    stream: AnswerStream | None = None
    plays: list[_Play] = field(default_factory=list)
    requests: list[Request] = field(default_factory=list)
    rows: list[TurnRecord] = field(default_factory=list)


Report = Callable[[int, int, int, int], None]
"""Progress so far: episodes done, episodes planned, turns, errors."""


class Engine:
    """Runs the episodes of a plan side by side: asks policies in batches and steps the envs; yields episode records.

    envs: makes the calls of envs. policies: asks those policies that wait rather than compute, beside each other; None:
    one after the other. presumed: whether those wait that do not say so and have no parameters. facts: what the env
    declares; None until one could be made.
    """

    def __init__(
        self,
        factory: EnvFactory,
        team: Seats,
        plan: Plan,
        *,
        concurrency: int,
        retries: int,
        max_turns: int,
        envs: Watchdog,
        policies: Watchdog | None = None,
        presumed: bool = True,
    ) -> None:
        self.factory, self.team, self.plan = factory, team, plan
        self.concurrency, self.retries, self.max_turns = concurrency, retries, max_turns
        self.envs, self.policies, self.presumed = envs, policies, presumed
        self.facts: Facts | None = None
        self.errors = 0
        self._streams = Streams(plan.seed, plan.iteration, plan.stream)
        self._todo = _episodes(plan)
        self._again: deque[tuple[int, int]] = deque()
        self._live = 0
        self._shown: list[_Play] = []  # who has to be asked
        self._ready: list[_Play] = []  # who can go on
        self._arrived: SimpleQueue[tuple[_Queue, _Play, TurnRecord, Request, float, Decision]] = SimpleQueue()
        self._free: list[_Place] = []
        self._places = 0
        self._queues: dict[str, _Queue] = {}
        self._done: dict[tuple[int, int], EpisodeRecord] = {}
        self._repeats: list[tuple[int, int]] = []  # a heap

    def play(self, report: Report) -> Generator[EpisodeRecord]:
        """Generator of all episodes' records, in the order of (group, episode)."""
        planned = self.plan.episodes
        order = _episodes(self.plan)
        following = next(order, None)
        turns = finished = 0
        try:
            while self._refill():
                turns += self._act()
                self._step()
                while (coming := self._coming(following)) is not None and coming in self._done:
                    if coming == following:
                        following = next(order, None)
                    else:
                        heapq.heappop(self._repeats)
                        planned += 1
                    finished += 1
                    yield self._done.pop(coming)
                report(finished + len(self._done), planned + len(self._repeats), turns, self.errors)
            if self.facts is None:  # no episode ever began; the columns are there all the same
                (declared,) = self.envs.map(facts_of, [self.factory])
                if isinstance(declared, Failure) and isinstance(declared.error, InputError):
                    raise declared.error
                self.facts = {} if isinstance(declared, Failure) else declared
        finally:
            for queue in self._queues.values():
                if queue.stream is not None:
                    queue.stream.close()
            self.envs.close()
            if self.policies is not None:
                self.policies.close()

    def _coming(self, following: tuple[int, int] | None) -> tuple[int, int] | None:
        """The next episode of the table: of those that were planned, or one that is played again."""
        if self._repeats and (following is None or self._repeats[0] < following):
            return self._repeats[0]
        return following

    def _refill(self) -> bool:
        """Begin episodes wherever there is room; whether there is anything to play, or to hand out."""
        finished = len(self._done)
        while (room := self.concurrency - self._live) > 0:
            plays: list[_Play] = []
            while len(plays) < room:
                key = self._again.popleft() if self._again else next(self._todo, None)
                if key is None:
                    break
                place = self._free.pop() if self._free else self._new_place()
                plays.append(_Play(EpisodeRecord(*key, self._seed(key[0])), place, self._streams))
            if not plays:
                break
            remember([play.record.seed for play in plays])
            results = self.envs.map(
                lambda play: begin(play.place.env, self.factory, play.record.seed),
                plays,
                [play.place.number for play in plays],
            )
            for play, result in zip(plays, results, strict=True):
                if isinstance(result, Failure):
                    if isinstance(result.error, InputError):
                        raise result.error
                    play.place.env = None
                    self._finish(play, describe_failure("env", result))
                else:
                    play.place.env, play.record.task, seen = result
                    if self.facts is None:
                        self.facts = facts_of(play.place.env)
                    play.show(seen)
                    self._shown.append(play)
                    self._live += 1
        return self._live > 0 or len(self._done) > finished

    def _new_place(self) -> _Place:
        self._places += 1
        return _Place(self._places - 1)

    def _seed(self, group: int) -> int:
        given = self.plan.seed_of(group)
        return self._streams.env_seed(group) if given is None else given

    def _act(self) -> int:
        """Ask for those who were shown something; returns how many answers there are."""
        shown, self._shown, queues = self._shown, [], self._queues
        for play in shown:
            for agent, observation, row in play.seen:
                queue = queues.get(agent) or self._queue_of(agent)
                request = Request(observation, agent, play.rng, play.past.get(agent))
                if queue.stream is not None:
                    self._stream(queue.stream, queue, play, row, request)
                    continue
                queue.plays.append(play)
                queue.rows.append(row)
                queue.requests.append(request)
        settled = self._ask_waves()
        self._ready = [play for play in shown if not play.open]
        return settled + self._collect()

    def _stream(self, stream: AnswerStream, queue: _Queue, play: _Play, row: TurnRecord, request: Request) -> None:
        play.open += 1
        play.actions[request.agent] = ""  # its place among the actions: the order of answers must not matter
        began = perf_counter()
        stream.ask(
            request, lambda decision: self._arrived.put((queue, play, row, request, perf_counter() - began, decision))
        )

    def _collect(self) -> int:
        """Settle what has arrived; wait for the first to arrive if nobody can go on otherwise."""
        settled = 0
        while self._live:
            try:
                queue, play, row, request, seconds, decision = self._arrived.get(block=not self._ready)
            except Empty:
                break
            play.open -= 1
            _accept(queue, play, request, row, decision, None, seconds)
            settled += 1
            if not play.open:
                self._ready.append(play)
        return settled

    def _ask_waves(self) -> int:
        """Ask each of the other policies once, for all who wait for it."""
        waiting = {id(queue): queue for queue in self._queues.values() if queue.requests}
        answers: dict[int, _Answer] = {}
        beside = [queue for queue in waiting.values() if queue.place is not None]

        def ask_the_others() -> None:
            for number, queue in waiting.items():
                if queue.place is None:
                    answers[number] = _ask(queue)

        if self.policies is None or not beside:
            ask_the_others()
        else:
            given = self.policies.map(_ask, beside, [queue.place or 0 for queue in beside], ask_the_others)
            answers |= {id(queue): answer for queue, answer in zip(beside, given, strict=True)}  # type: ignore[misc]
        return sum(_settle(queue, *answers[number]) for number, queue in waiting.items())

    def _queue_of(self, agent: str) -> _Queue:
        policy = self.team.for_agent(agent)
        shared = next((queue for queue in self._queues.values() if queue.policy is policy), None)
        if shared is None:
            presumed = self.presumed and not isinstance(policy, Learnable)
            beside = self.policies is not None and getattr(policy, "waits", presumed)
            try:
                name = str(policy.name)
            except Exception as error:
                kind = type(policy).__name__
                raise InputError(f"the policy of {agent!r}, a {kind}, does not say its name; it needs one") from error
            stream = getattr(policy, "stream", None) if beside else None
            shared = _Queue(policy, name, len(self._queues) if beside else None, stream() if callable(stream) else None)
        self._queues[agent] = shared
        return shared

    def _step(self) -> None:
        ready, self._ready = self._ready, []
        able = []
        for play in ready:
            if play.failures and not getattr(play.place.env, "tolerates", False):
                first = next(agent for agent, _, _ in play.seen if agent in play.failures)
                self._finish(play, play.failures[first])
                continue
            for agent in play.failures:
                play.skip(agent)
            able.append(play)
        facts = self.facts or {}
        results = self.envs.map(
            lambda play: step(play.place.env, play.actions, facts),  # type: ignore[arg-type]
            able,
            [play.place.number for play in able],
        )
        for play, result in zip(able, results, strict=True):
            if isinstance(result, Failure):
                play.place.env = None  # whatever state it is in, nobody should play with it again
                self._finish(play, describe_failure("env", result))
            elif error := play.receive(result):
                self._finish(play, error)
            elif not result.seen:
                self._finish(play, success=result.success)
            elif play.turns >= self.max_turns:
                play.record.truncated = True
                self._finish(play)
            else:
                play.show(result.seen)
                self._shown.append(play)
        self._live -= len(ready) - len(self._shown)

    def _finish(self, play: _Play, error: str | None = None, success: Success = None) -> None:
        record = play.close(error, success)
        self._free.append(play.place)
        self._done[record.group, record.episode] = record
        if error is not None:
            self.errors += 1
            size = self.plan.size_of(record.group)
            if record.episode // size < self.retries:
                again = (record.group, record.episode + size)
                self._again.appendleft(again)
                heapq.heappush(self._repeats, again)


def _episodes(plan: Plan) -> Iterator[tuple[int, int]]:
    return ((group, episode) for group in plan.numbers for episode in range(plan.size_of(group)))


_Answer = tuple[list[Decision], str | None, float]
"""Decisions, why there are none, seconds per request."""


def _ask(queue: _Queue) -> _Answer:
    """Ask the policy once, in whatever thread."""
    requests = queue.requests
    began = perf_counter()
    failure = None
    decisions: list[Decision] = []
    try:
        decisions = queue.policy.act(requests)
        if len(decisions) != len(requests):
            raise PolicyError(f"act returned {len(decisions)} decisions for {len(requests)} requests")
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # a policy that calls sys.exit() must not end the run either
        failure = describe_failure("policy", Failure(error))
        decisions = [Decision("")] * len(requests)
    return decisions, failure, (perf_counter() - began) / len(requests)


def _settle(queue: _Queue, decisions: list[Decision], failure: str | None, seconds: float) -> int:
    """Every waiting play gets its action or a failure. Returns how many waited."""
    plays, requests, rows = queue.plays, queue.requests, queue.rows
    queue.plays, queue.requests, queue.rows = [], [], []
    for play, request, row, decision in zip(plays, requests, rows, decisions, strict=True):
        _accept(queue, play, request, row, decision, failure, seconds)
    return len(requests)


def _accept(
    queue: _Queue, play: _Play, request: Request, row: TurnRecord, decision: Decision, failure: str | None, secs: float
) -> None:
    """The play gets its action, or a failure."""
    row.policy = queue.name
    try:
        problem = failure or accept(decision, request.observation, row, secs)
    except Exception as malformed:
        problem = describe_failure("policy", Failure(malformed))
    if problem is None:
        action = decision.action
        if isinstance(action, int) and decision.logprobs is not None and getattr(play.place.env, "weighs", False):
            action = LikelyAction(action, float(np.sum(decision.logprobs)))
        play.actions[request.agent] = action
    else:
        play.actions.pop(request.agent, None)
        play.failures[request.agent] = problem
