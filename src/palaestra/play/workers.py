"""Workers: many that play shards, wherever they are, and an executor that spreads a plan over them.

`Workers` is all that an executor asks for. `WorkerPool` is every kind of it: hands out shards, again if a worker was
lost, twice if one is late, and takes the first answer; since a shard draws the same wherever it is played, nothing is
lost and nothing counts twice. Shards go out in runs, and short ones come back together: an answer costs the driver
milliseconds. A kind says how workers are started, told and listened to (`WorkerBackend`): `processes`, `cluster`. Left
out: shards that move while they are played, and workers that are paid for only while they play.
"""

from __future__ import annotations

import abc
import contextlib
import math
import statistics
import threading
import time
import warnings
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from palaestra.algebra.turns import Turns
from palaestra.envs.protocol import EnvFactory, Observation
from palaestra.errors import InputError, PalaestraError
from palaestra.play.executors import Local
from palaestra.play.plan import Plan, cut
from palaestra.play.shards import ENOUGH, MOST_MADE, PlayJob, Published, ShardResult, concatenated, digest, pack

if TYPE_CHECKING:
    from palaestra.play.engine import Seats

SHARDS = 16
"""Parts of a plan that a recipe does not cut itself."""

LOSSES = 3
"""A shard that took so many workers down with it is not given to another one."""

UNANSWERED = 3
"""How often a shard is played that servers did not answer, before its rows keep their errors."""

LEAST = 0.5
"""Seconds that no shard is late before."""

STUCK = 60.0
"""Seconds after which a worker is replaced whose answer nobody waits for any more."""

KEPT = 3
"""Versions of a policy's weights that stay published."""


class Workers(Protocol):
    """Protocol of a worker pool for executors: publish weights, map shards to (number, result) as they arrive."""

    def publish(self, slot: str, version: str, value: Any, keep: int = KEPT) -> Published:
        """Publish a value to all workers, once per version of a slot; the last `keep` versions stay."""

    def map(
        self, job: PlayJob, shards: Sequence[Plan], numbers: Sequence[int] | None = None
    ) -> Iterator[tuple[int, ShardResult]]:
        """Results of runs of shards as they arrive, each with the number of its first; every shard once.

        numbers: of the shards that are to be played, ascending; None: all.

        Raises:
            PalaestraError: what a worker raised; or that a shard, or every worker, was lost too often.
        """

    def close(self) -> None:
        """Release the workers."""


class Lost(NamedTuple):
    """Data on a worker that is gone, with the reason; its shards must be played again."""

    why: str


class WorkerBackend(Protocol):
    """Protocol of a kind of worker of `WorkerPool`: `start`, `give(worker, job, plans)`, `wait` -> [(worker, result)].

    A worker has a number, and plays one shard after the other.

    count: how many there are to be, ready or not.
    """

    count: int

    @property
    def one_machine(self) -> bool:
        """Whether all workers are on the machine of this process."""

    def start(self) -> None:
        """Start missing workers; returns before they are ready."""

    def idle(self) -> list[int]:
        """Numbers of workers that are ready and have nothing to do."""

    def dumps(self, value: Any) -> bytes:
        """A maker (env or team factory) as bytes, by the widest pickling that the workers can load."""

    def put(self, value: Any) -> Any:
        """Publish a value; returns its place, for workers to fetch it."""

    def forget(self, place: Any) -> None:
        """Delete a published value."""

    def give(self, worker: int, job: PlayJob, plans: Sequence[Plan]) -> None:
        """Give shards to an idle worker, which plays them, or the first of them if they take long (`Player.play`)."""

    def wait(self, seconds: float) -> list[tuple[int, ShardResult | Lost]]:
        """Results that arrived within so many seconds. A `ShardResult` makes its worker idle, a `Lost` one is replaced.

        Raises:
            PalaestraError: no worker can be started.
        """

    def drop(self, worker: int) -> None:
        """End a worker and start another one."""

    def close(self) -> None:
        """End all workers."""


class WorkerPool:
    """Pool (`Workers`) over any `WorkerBackend`: gives lost shards to another worker, and late ones to a second one.

    late: a shard that takes so many times the median is given to a second worker, once somebody is idle; None: never.
    lost, doubled: how often that happened. put: how often something was published.
    """

    def __init__(self, backend: WorkerBackend, late: float | None) -> None:
        self.backend, self.late, self.users = backend, late, 0
        self.lost = self.doubled = self.put = 0
        self.lock = threading.RLock()
        self._published: dict[str, OrderedDict[str, Published]] = {}
        self._since: dict[int, float] = {}

    def publish(self, slot: str, version: str, value: Any, keep: int = KEPT) -> Published:
        """Publish a value to all workers, once per version of a slot; the last `keep` versions stay."""
        kept = self._published.setdefault(slot, OrderedDict())
        if version not in kept:
            kept[version] = Published(version, self.backend.put(value))
            self.put += 1
        kept.move_to_end(version)
        while len(kept) > keep:
            self.backend.forget(kept.popitem(last=False)[1].place)
        return kept[version]

    def map(
        self, job: PlayJob, shards: Sequence[Plan], numbers: Sequence[int] | None = None
    ) -> Iterator[tuple[int, ShardResult]]:
        """Results of runs of shards as they arrive, each with the number of its first (see `Workers.map`)."""
        todo = deque(range(len(shards)) if numbers is None else numbers)
        done = set(range(len(shards))).difference(todo)
        running: dict[int, range] = {}
        losses, seconds = Counter[int](), list[float]()
        self.backend.start()
        try:
            while len(done) < len(shards):
                idle = self.backend.idle()
                fair = _fair_share(len(todo), self.backend.count)
                while idle:
                    late = None if todo else self._late(job, running, done, seconds)
                    if not todo and late is None:
                        break
                    run = late or _next_run(todo, fair, losses)
                    worker = idle.pop()
                    self.doubled += late is not None
                    self.backend.give(worker, job, shards[run.start : run.stop])
                    running[worker], self._since[worker] = run, time.monotonic()
                self._end_stuck(running)
                for worker, news in self.backend.wait(0.05 if idle and running else 1.0):
                    mine, began = running.pop(worker, None), self._since.pop(worker, 0.0)
                    self.lost += isinstance(news, Lost)
                    if mine is None or mine.start in done:  # somebody else did it, or it is again to do
                        continue
                    if isinstance(news, Lost):
                        losses.update(mine)
                        _refuse_more(losses[mine.start], shards[mine.start], news)
                        if mine not in running.values():
                            todo.extendleft(reversed(mine))
                    else:
                        news.raise_()
                        done.update(mine[: news.shards])
                        todo.extendleft(reversed(mine[news.shards :]))
                        seconds.append((time.monotonic() - began) / news.shards)
                        yield mine.start, news
        finally:
            if job.served:  # no request may be under way when the servers are given other weights
                for worker in running:
                    self._since.pop(worker, None)
                    self.backend.drop(worker)

    def _late(self, job: PlayJob, running: Mapping[int, range], done: set[int], seconds: list[float]) -> range | None:
        """The run that has been played longest, if that is too long and one worker alone plays it."""
        if self.late is None or not seconds:
            return None
        usual, now, played = statistics.median(seconds), time.monotonic(), Counter(running.values())
        for worker, run in sorted(running.items(), key=lambda each: self._since[each[0]]):
            takes = min(usual * len(run), math.inf if job.at_once else usual + ENOUGH)
            late = now - self._since[worker] > max(LEAST, self.late * takes)
            if late and played[run] == 1 and run.start not in done:
                return run
        return None

    def _end_stuck(self, running: Mapping[int, range]) -> None:
        for worker, began in list(self._since.items()):
            if worker not in running and time.monotonic() - began > STUCK:
                del self._since[worker]
                self.backend.drop(worker)

    def close(self) -> None:
        """End all workers and drop what was published."""
        self._published.clear()
        self._since.clear()
        self.backend.close()


def _fair_share(left: int, workers: int) -> int:
    """How many shards a worker is given at once.

    Three quarters of its part of what is left; the rest is for who is ready sooner (factoring of loops, Hummel and
    others 1992, who take one half).
    """
    return math.ceil(left * 0.75 / workers)


def _next_run(todo: deque[int], most: int, losses: Mapping[int, int]) -> range:
    """Shards in a row, taken from what is to do; what once was lost with a worker goes alone.

    >>> todo = deque([0, 1, 2, 3, 4, 8])
    >>> _next_run(todo, 3, {}), _next_run(todo, 3, {4: 1}), _next_run(todo, 3, {4: 1}), todo
    (range(0, 3), range(3, 4), range(4, 5), deque([8]))
    """
    first = last = todo.popleft()
    while todo and todo[0] == last + 1 and last + 1 - first < most and not (losses.get(first) or losses.get(last + 1)):
        last = todo.popleft()
    return range(first, last + 1)


def _refuse_more(losses: int, shard: Plan, news: Lost) -> None:
    if losses >= LOSSES:
        groups = f"{shard.numbers[0]} to {shard.numbers[-1]}"
        raise PalaestraError(
            f"groups {groups} of iteration {shard.iteration} took {losses} workers down with them ({news.why}; out of "
            "memory?): play fewer episodes at once (play.concurrency), or cut the plan into more parts (play.shards)"
        )


_CREWS: dict[tuple[Any, ...], WorkerPool] = {}
"""Those of this process: executors of the same kind and size share one."""

_HIRING = threading.Lock()


class Spread(abc.ABC):
    """Base class of executors that play a plan in `shards` parts by workers; what cannot be pickled is played here.

    A subclass makes the workers (`start_pool`). A team can be sent if it knows its maker, as that of every recipe does
    (`Team.made`); an env, if what makes it can. The table is bit for bit that of `local(shards=…)` in one torch thread.

    Raises:
        InputError: a number is out of range.
    """

    def __init__(
        self,
        workers: int | None,
        shards: int | None,
        late: float | None,
        concurrency: int,
        timeout: float | None,
        retries: int,
        max_turns: int,
        imports: Sequence[str],
    ) -> None:
        self.here = Local(concurrency, timeout, retries, max_turns, shards=SHARDS if shards is None else shards)
        if workers is not None and workers < 1:
            raise InputError(f"rollout: workers={workers}, expected at least 1")
        if late is not None and late < 1:
            raise InputError(f"rollout: late={late}, expected at least 1, times the usual, or None for never")
        self.workers, self.late, self.imports = workers, late, tuple(imports)
        self._crew: WorkerPool | None = None
        self._spent = threading.local()
        self._said: set[str] = set()

    @abc.abstractmethod
    def start_pool(self) -> tuple[tuple[Any, ...], Callable[[], WorkerPool]]:
        """Key that identifies the pool of workers, and its factory; subclasses define it."""

    @property
    def pool(self) -> WorkerPool:
        """The pool of workers, started on first use."""
        with _HIRING:
            if self._crew is None:
                key, make = self.start_pool()
                if key not in _CREWS:
                    _CREWS[key] = make()
                self._crew = _CREWS[key]
                self._crew.users += 1
            return self._crew

    @property
    def cpu_seconds(self) -> float:
        """CPU time that workers spent on what this thread had them play."""
        return float(getattr(self._spent, "seconds", 0.0))

    def play(self, env: EnvFactory, team: Seats, plan: Plan) -> Turns:
        """Play the plan's episodes in parallel workers; returns all turns (see `Executor.play`)."""
        pool = self.pool
        sent = self._packed(pool, env, team)
        if isinstance(sent, str):
            return self._here(sent, env, team, plan)
        shards, answers, said = cut(plan, self.here.shards or SHARDS), dict[int, ShardResult](), list[str]()
        left = list(range(len(shards)))
        for rounds_left in reversed(range(UNANSWERED)):
            with contextlib.ExitStack() as held:  # servers first: who waits for their turn holds no workers
                lent = {name: held.enter_context(each.lent(pool.backend.count)) for name, each in _served(team).items()}
                reached = not any(each.one_machine for each in lent.values()) or pool.backend.one_machine
                if reached:
                    held.enter_context(pool.lock)
                    todo, left = left, []
                    for number, answer in pool.map(self._job(pool, team, sent, lent), shards, todo):
                        said += answer.warned
                        self._spent.seconds = self.cpu_seconds + answer.seconds
                        if answer.unanswered and rounds_left:
                            left += range(number, number + answer.shards)
                        else:
                            answers[number] = answer
            if not reached:
                why = "a team whose servers are on 127.0.0.1, where workers on other machines cannot ask them,"
                return self._here(why, env, team, plan)
            if not left:
                break
            left.sort()
        for text in said[:1]:  # the others say the same of other groups
            warnings.warn(text, stacklevel=2)
        return Turns(concatenated(answers[number] for number in sorted(answers)))

    def starts(self, env: EnvFactory, plan: Plan) -> list[Observation | None]:
        """See `Executor.starts`; done in this process."""
        return self.here.starts(env, plan)

    def close(self) -> None:
        """Release the workers; they end if nobody else uses them."""
        with _HIRING:
            pool, self._crew = self._crew, None
            if pool is not None:
                pool.users -= 1
                if not pool.users:
                    _CREWS.pop(self.start_pool()[0], None)
                    pool.close()

    def _packed(self, pool: WorkerPool, env: EnvFactory, team: Any) -> dict[str, bytes] | str:
        """Makers of env and team as bytes, or the reason why workers cannot play them."""
        maker = getattr(team, "maker", None)
        if maker is None:
            return "a team that does not know its maker (Team.made)"
        for policy in team.policies.values():
            if getattr(policy, "inflight", False):
                return "a team whose servers are given other weights while they answer (inflight)"
            if hasattr(policy, "sync") and not hasattr(policy, "lent"):
                return "a team that a server answers for, which has one version of the weights,"
        try:
            return {"env": pool.backend.dumps(env), "team": pool.backend.dumps(maker)}
        except Exception as error:  # whatever pickling says of a function inside a function, a lock, a socket
            return f"an env or a team that cannot be sent ({type(error).__name__}: {error})"

    def _job(self, pool: WorkerPool, team: Any, packed: Mapping[str, bytes], lent: Mapping[str, Any]) -> PlayJob:
        """Job for the workers. lent: what policies that servers answer for need there, instead of weights."""
        sent = {what: pool.publish(what, digest(data), data, MOST_MADE) for what, data in packed.items()}
        states, learnable = {}, {name: each for name, each in team.learnable.items() if name not in lent}
        for name, policy in learnable.items():
            state = pack(policy.state_dict())
            states[name] = pool.publish(f"{sent['team'].key}/{name}", digest(state), state)
        options = {name: getattr(self.here, name) for name in ("concurrency", "timeout", "retries", "max_turns")}
        frozen = frozenset(name for name, policy in learnable.items() if not policy.parameters())
        return PlayJob(sent["env"], sent["team"], states, options, self.imports, frozen, lent)

    def _here(self, what: str, env: EnvFactory, team: Seats, plan: Plan) -> Turns:
        """Play the plan in this process, and warn once of what is played so."""
        self._say(f"{type(self).__name__.lower()}: {what} is played here, by no worker")
        return self.here.play(env, team, plan)

    def _say(self, what: str) -> None:
        if what not in self._said:
            self._said.add(what)
            warnings.warn(what, stacklevel=4)


def _served(team: Any) -> dict[str, Any]:
    """Policies that servers answer for, by name."""
    return {name: policy for name, policy in team.policies.items() if hasattr(policy, "lent")}
