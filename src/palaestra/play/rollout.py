"""`rollout`: envs × team → `Turns`, many episodes at once.

In each wave whoever waits for one policy, in whatever episode and seat, is served by one call of that policy; then all
envs step. An episode that ends makes room for the next, so nobody waits for the longest one.

What is sampled depends on (seed, iteration, group, episode, agent) alone, and rows are ordered by group, episode, turn
and agent: the table is the same for every `concurrency`. A failed episode is rows with `error`, never a crash:

    env: <Type>: <message>          making, resetting or stepping the env raised, or it returned something malformed
    env-timeout: <Type>: <message>  the env did not answer within `timeout`; the thread it hangs in is left behind
    policy: <Type>: <message>       the policy raised, answered malformed, or reported an error for this request
    reward: <Type>: <message>       the env gave a reward that is not a finite number

A reward belongs to the last turn of the agent that received it. What arrives before an agent's first turn counts to
that turn; what an agent without any turn received is in the metadata of the episode's last row
(`rewards_without_turn`). A reward of None says "not scored": the row's reward is null unless a number arrives for it as
well. A turn that a failed episode leaves without any reward has null, not 0.

Left out: several processes or machines, and policies that are asked in parallel.
"""

from __future__ import annotations

import contextlib
import warnings
from collections import deque
from collections.abc import Iterator, Sequence
from pathlib import Path
from time import perf_counter

import polars as pl

from palaestra.algebra.turns import Turns
from palaestra.envs.base import EnvFactory, Observation
from palaestra.errors import InputError
from palaestra.play.engine import Engine, Report, Seats
from palaestra.play.recording import frames, stream_parquet
from palaestra.play.streams import Stream, Streams
from palaestra.play.watchdog import Failure, Watchdog


def rollout(
    env: EnvFactory,
    team: Seats,
    *,
    groups: int,
    group_size: int | Sequence[int] = 1,
    seed: int = 0,
    iteration: int = 0,
    stream: Stream = "train",
    run: str | None = None,
    concurrency: int = 256,
    timeout: float | None = 60.0,
    retries: int = 0,
    max_turns: int = 1000,
    progress: bool = False,
    sink: str | Path | None = None,
) -> Turns:
    """Play `group_size` episodes of each of `groups` and return every turn.

    Args:
        env: makes a fresh env; called once per concurrent episode, and again after a failure.
        team: says which policy fills a seat.
        groups: number of groups; the episodes of a group get the same reset seed, so they start alike.
        group_size: episodes per group; or a number for each group, as a budget gives them.
        seed: determines everything that is drawn, together with `iteration` and `stream`.
        iteration: training iteration; fills the column.
        stream: "eval" takes reset seeds that "train" never takes, whatever the seed.
        run: name of the training run; fills the column.
        concurrency: how many episodes are played at once; changes the speed only.
        timeout: seconds that making and resetting an env, or one step of it, may take. None: no limit, and envs are
            called in the caller's thread; else in one other thread.
        retries: how often a failed episode is played again. Attempt k of episode e is episode e + k * size of the
            group; the failed ones stay in the table.
        max_turns: an episode that is not over after so many turns is truncated.
        progress: show a progress bar on stderr.
        sink: stream the table to this Parquet file while playing, and read it back at the end.

    Raises:
        InputError: an argument is out of range; making or resetting an env says that what was asked for cannot be
            played (an unknown name, a missing package); or the team has no policy for an agent.
        StorageError: the sink cannot be written.
    """
    sizes = [group_size] * groups if isinstance(group_size, int) else [int(size) for size in group_size]
    if len(sizes) != groups and not isinstance(group_size, int):
        raise InputError(f"rollout: group_size has {len(sizes)} numbers for groups={groups}; give one for each group")
    smallest = min(sizes, default=1)
    counts = {"groups": groups, "group_size": smallest, "concurrency": concurrency, "max_turns": max_turns}
    for name, value in counts.items():
        if value < 1:
            raise InputError(f"rollout: {name}={value}, expected at least 1")
    if retries < 0:
        raise InputError(f"rollout: retries={retries}, expected 0 or more")
    if timeout is not None and timeout <= 0:
        raise InputError(f"rollout: timeout={timeout}, expected seconds > 0, or None for no limit")

    engine = Engine(
        factory=env,
        team=team,
        sizes=sizes,
        streams=Streams(seed, iteration, stream),
        concurrency=concurrency,
        retries=retries,
        max_turns=max_turns,
        watchdog=Watchdog(timeout),
        todo=deque((group, episode) for group, size in enumerate(sizes) for episode in range(size)),
    )
    with _progress_bar(progress) as report, contextlib.closing(engine.play(report)) as episodes:
        chunks = frames(episodes, run=run, iteration=iteration)
        turns = Turns(pl.concat(chunks, rechunk=True)) if sink is None else Turns.load(stream_parquet(sink, chunks))
    if max(sizes) > 1:
        _check_starts(turns, groups)
    return turns


def starts(
    env: EnvFactory, *, groups: int, seed: int = 0, iteration: int = 0, timeout: float | None = 60.0
) -> list[Observation | None]:
    """What is seen first in each group of a rollout with these arguments, without playing; None where the env fails.

    Of several agents that act at once, what the first of them sees.
    """
    streams = Streams(seed, iteration)
    with contextlib.closing(Watchdog(timeout)) as watchdog:
        results = watchdog.map(
            lambda group: next(iter(env().reset(streams.env_seed(group)).values())), list(range(groups))
        )
    return [None if isinstance(result, Failure) else result for result in results]


def _check_starts(turns: Turns, groups: int) -> None:
    divergent = sorted(turns.divergent_groups()["group"].to_list())
    if divergent:
        warnings.warn(
            f"{len(divergent)} of {groups} groups do not start from one observation (first: group {divergent[0]}), "
            "so statistics over a group compare different tasks; reset(seed) must draw from its seed alone: "
            "palaestra.testing.check_env shows where it does not",
            stacklevel=3,
        )


@contextlib.contextmanager
def _progress_bar(shown: bool) -> Iterator[Report]:
    if not shown:
        yield lambda done, planned, turns, errors: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn("rollout"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("episodes  {task.fields[speed]:,.0f} turns/s  {task.fields[errors]} errors"),
        TimeRemainingColumn(),
    )
    began = perf_counter()
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("rollout", speed=0.0, errors=0)

        def report(done: int, planned: int, turns: int, errors: int) -> None:
            speed = turns / (perf_counter() - began)
            bar.update(task, completed=done, total=planned, speed=speed, errors=errors)

        yield report
