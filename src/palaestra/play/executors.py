"""Executors: who plays a `Plan`, and where. A recipe says `executor: threads(workers=32)`, or names one's own class.

Whatever an executor does, the table is the same: what is drawn follows from the plan, and rows stand in the plan's
order. One that has several machines plays parts of the plan and puts the tables below each other:

    class Halves:
        def play(self, env, team, plan):
            cut = plan.numbers[len(plan.numbers) // 2]
            parts = [plan.part(range(plan.numbers.start, cut)), plan.part(range(cut, plan.numbers.stop))]
            return Turns.concat(local().play(env, team, part) for part in parts)
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterable, Iterator
from pathlib import Path
from time import perf_counter
from typing import Protocol

import polars as pl

from palaestra.algebra.turns import Turns
from palaestra.envs.protocol import EnvFactory, Observation
from palaestra.errors import InputError
from palaestra.foundation.progress import reporting
from palaestra.foundation.registry import Registry
from palaestra.play.engine import Engine, Report, Seats
from palaestra.play.gc_freeze import set_aside
from palaestra.play.plan import Plan, cut
from palaestra.play.recording import EpisodeRecord, Label, Stored, frames, stream_parquet
from palaestra.play.streams import Streams
from palaestra.play.timeouts import Failure, Watchdog
from palaestra.play.validation import begin

__all__ = ["EXECUTORS", "Executor", "Local", "Plan", "Seats", "Threads"]


class Executor(Protocol):
    """Protocol of an executor: `play(env, team, plan)` -> `Turns`, `starts` -> first observations; `close` it."""

    def play(self, env: EnvFactory, team: Seats, plan: Plan) -> Turns:
        """Play the plan: every turn of its episodes, failed ones included, in order of group, episode, turn and agent.

        Raises:
            InputError: what was asked for cannot be played.
        """

    def starts(self, env: EnvFactory, plan: Plan) -> list[Observation | None]:
        """First observation of each group of the plan, without playing; None where the env fails.

        Of several agents that act at once, what the first of them sees.
        """

    def close(self) -> None:
        """Release workers, threads and files."""


MOST_THREADS = 64

EXECUTORS: Registry[Executor] = Registry(
    "executor",
    home=("palaestra.play.executors", "palaestra.play.processes", "palaestra.play.cluster", "palaestra.play.windows"),
    example="threads(workers=32)",
)


@EXECUTORS.register("local")
class Local:
    """Executor in this process: in each wave it asks each policy once, for all episodes, then steps all envs.

    Envs are called one after the other too, in one thread, as long as they compute. Once their calls are seen to wait
    (2 ms and more on average, for a network or a process) each env goes on in one of 64 threads, so that they wait at
    the same time. One that waits and can be used in a single thread only wants `threads()` or `timeout=None`.

    concurrency: how many episodes are played at once; changes the speed only. timeout: seconds that making and
    resetting an env, or one step of it, may take; None: no limit, and envs are called in the caller's thread. retries:
    how often a failed episode is played again; attempt k of episode e is episode e + k · size of the group, and the
    failed ones stay in the table. max_turns: a longer episode is truncated. shards: play the plan in so many parts, one
    after the other, as executors with workers do; the table is then theirs bit for bit. Default: whole.

    Policies that say `waits = True` are asked beside each other.

    Raises:
        InputError: a number is out of range.
    """

    presumed = False
    """Whether a policy without parameters that does not say so is one that waits."""

    def __init__(
        self,
        concurrency: int = 256,
        timeout: float | None = 60.0,
        retries: int = 0,
        max_turns: int = 1000,
        shards: int | None = None,
    ) -> None:
        for name, value, least in (
            ("concurrency", concurrency, 1),
            ("max_turns", max_turns, 1),
            ("retries", retries, 0),
            ("shards", 1 if shards is None else shards, 1),
        ):
            if value < least:
                raise InputError(f"rollout: {name}={value}, expected at least {least}")
        if timeout is not None and timeout <= 0:
            raise InputError(f"rollout: timeout={timeout}, expected seconds > 0, or None for no limit")
        self.concurrency, self.timeout, self.retries, self.max_turns = concurrency, timeout, retries, max_turns
        self.shards = shards

    def play(
        self, env: EnvFactory, team: Seats, plan: Plan, *, progress: bool = False, sink: str | Path | None = None
    ) -> Turns:
        """See `Executor.play`; progress and sink as of `rollout`."""
        if self.shards is not None and sink is None:
            parts = [self._play(env, team, part, progress, None) for part in cut(plan, self.shards)]
            return Turns(Turns.concat(parts).frame.rechunk())
        return self._play(env, team, plan, progress, sink)

    def _play(self, env: EnvFactory, team: Seats, plan: Plan, progress: bool, sink: str | Path | None) -> Turns:
        engine = Engine(
            env,
            team,
            plan,
            concurrency=self.concurrency,
            max_turns=self.max_turns,
            retries=self.retries if plan.retries is None else plan.retries,
            envs=self._envs(),
            policies=self._policies(),
            presumed=self.presumed,
        )
        openings = _Openings() if plan.episodes > len(plan.numbers) else None
        with set_aside(), _progress_bar(progress) as report, contextlib.closing(engine.play(report)) as episodes:
            watched = episodes if openings is None else openings.watch(episodes)
            chunks = frames(watched, Label(plan.run, plan.iteration, plan.version), lambda: engine.facts)
            turns = Turns(pl.concat(chunks, rechunk=True)) if sink is None else Stored(stream_parquet(sink, chunks))
        if openings is not None:
            openings.check(len(plan.numbers))
        return turns

    def starts(self, env: EnvFactory, plan: Plan) -> list[Observation | None]:
        """First observation of each group of the plan, without playing; None where the env fails."""
        streams = Streams(plan.seed, plan.iteration, plan.stream)

        def first(group: int) -> Observation:
            seed = plan.seed_of(group)
            _, _, seen = begin(None, env, streams.env_seed(group) if seed is None else seed)
            return seen[0][1]

        with contextlib.closing(self._envs()) as watchdog:
            results = watchdog.map(first, plan.numbers, plan.numbers)
        return [None if isinstance(result, Failure) else result for result in results]

    def close(self) -> None:
        """Do nothing: nothing is held between two plans."""

    def _envs(self) -> Watchdog:
        return Watchdog(self.timeout, most=MOST_THREADS)

    def _policies(self) -> Watchdog | None:
        return Watchdog(None, threads=MOST_THREADS)


@EXECUTORS.register("threads")
class Threads(Local):
    """Executor in threads of this process: envs and policies that wait for a network or process do so in parallel.

    Not for more cores.

    Envs are called in `workers` threads from the first call on; one env stays in one thread. Policies that wait for
    somebody are asked beside each other, each still once per wave and by one thread; those that compute (they have
    parameters) one after the other, for two of them may share a model. A policy can say itself which it is: `waits =
    True` or `False`. The other options are those of `local`.

    Raises:
        InputError: a number is out of range.
    """

    presumed = True

    def __init__(
        self,
        workers: int = MOST_THREADS,
        concurrency: int = 256,
        timeout: float | None = 60.0,
        retries: int = 0,
        max_turns: int = 1000,
        shards: int | None = None,
    ) -> None:
        super().__init__(concurrency, timeout, retries, max_turns, shards)
        if workers < 1:
            raise InputError(f"rollout: workers={workers}, expected at least 1")
        self.workers = workers

    def _envs(self) -> Watchdog:
        return Watchdog(self.timeout, threads=self.workers)

    def _policies(self) -> Watchdog | None:
        return Watchdog(None, threads=self.workers)


class _Openings:
    """Collector of the first observation of each group, by its number."""

    def __init__(self) -> None:
        self._first: dict[tuple[int, str | None], int | None] = {}
        self._divergent: set[int] = set()

    def watch(self, episodes: Iterable[EpisodeRecord]) -> Iterator[EpisodeRecord]:
        for episode in episodes:
            for row in episode.rows:
                if row.turn:
                    break
                if self._first.setdefault((episode.group, row.agent), row.state) != row.state:
                    self._divergent.add(episode.group)
            yield episode

    def check(self, groups: int) -> None:
        if divergent := sorted(self._divergent):
            warnings.warn(
                f"{len(divergent)} of {groups} groups do not start from one observation (first: group {divergent[0]}), "
                "so statistics over a group compare different tasks; reset(seed) must draw from its seed alone: "
                "palaestra.testing.check_env shows where it does not",
                stacklevel=5,
            )


@contextlib.contextmanager
def _progress_bar(shown: bool) -> Iterator[Report]:
    began = perf_counter()
    with reporting(shown, "rollout") as say:

        def report(done: int, planned: int, turns: int, errors: int) -> None:
            speed = turns / (perf_counter() - began)
            say("episodes", done, planned, f"{speed:,.0f} turns/s  {errors} errors")

        yield report if shown else lambda done, planned, turns, errors: None
