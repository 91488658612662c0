"""What workers of any kind survive, with workers that this test plays, on a clock that it sets."""

from __future__ import annotations

import pickle
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
import pytest

from palaestra.agents import Decision, Request, TabularPolicy, Team, random_legal
from palaestra.envs import make
from palaestra.errors import InputError, PalaestraError
from palaestra.play import workers
from palaestra.play.executors import Local
from palaestra.play.plan import Plan
from palaestra.play.shards import Player, PlayJob, ShardResult
from palaestra.play.workers import Lost, Spread, WorkerPool

KUHN = make("openspiel/kuhn_poker")


def players() -> Team:
    return Team(player_0=TabularPolicy(2, name="one"), player_1=random_legal(name="two"))


class Clock:
    now = 0.0

    def monotonic(self) -> float:
        return self.now


class Played:
    """Hands whose workers answer when the clock says so, after the first `patience` shards of those they have.

    fate: (worker, nth task of all) -> seconds for each shard, or why it dies.
    """

    def __init__(
        self,
        clock: Clock,
        fate: Callable[[int, int], float | str],
        count: int = 2,
        patience: Callable[[], int] = lambda: 1,
    ) -> None:
        self.clock, self.fate, self.count, self.given = clock, fate, count, 0
        self.patience, self.comes = patience, dict[int, float]()
        self.players: dict[int, Player] = {}
        self.busy: dict[int, tuple[float, str | None, PlayJob, Sequence[Plan]]] = {}
        self.store: dict[int, Any] = {}
        self.dropped: list[int] = []
        self.started = self.puts = 0

    def start(self) -> None:
        while len(self.players) < self.count:
            self.players[self.started] = Player(self.store.__getitem__)
            self.started += 1

    def idle(self) -> list[int]:
        here = [worker for worker in self.players if self.comes.get(worker, 0.0) <= self.clock.now]
        return [worker for worker in here if worker not in self.busy]

    def dumps(self, value: Any) -> bytes:
        return pickle.dumps(value)

    def put(self, value: Any) -> int:
        self.puts += 1
        self.store[self.puts] = value
        return self.puts

    def forget(self, place: int) -> None:
        del self.store[place]

    def give(self, worker: int, job: PlayJob, plans: Sequence[Plan]) -> None:
        found = self.fate(worker, self.given)
        self.given += 1
        plans = plans[: self.patience()]
        why, lasts = (found, 0.1) if isinstance(found, str) else (None, found * len(plans))
        self.busy[worker] = (self.clock.now + lasts, why, job, plans)

    def wait(self, seconds: float) -> list[tuple[int, ShardResult | Lost]]:
        assert self.busy, "nobody plays, and somebody waits"
        soonest = min(until for until, *_ in self.busy.values())
        self.clock.now = max(self.clock.now, min(soonest, self.clock.now + seconds))
        news: list[tuple[int, ShardResult | Lost]] = []
        for worker, (until, why, job, plans) in list(self.busy.items()):
            if until <= self.clock.now:
                del self.busy[worker]
                if why is not None:
                    del self.players[worker]
                    self.start()
                    news.append((worker, Lost(why)))
                else:
                    news.append((worker, self.players[worker].play(job, plans)))
        return news

    def drop(self, worker: int) -> None:
        self.dropped.append(worker)
        del self.players[worker], self.busy[worker]
        self.start()

    def close(self) -> None:
        self.players.clear()


class Simulated(Spread):
    def __init__(self, hands: Played, late: float | None = 3.0, shards: int = 6) -> None:
        super().__init__(hands.count, shards, late, 256, None, 0, 1000, ())
        self.backend = hands

    def start_pool(self) -> Any:
        return ("simulated", id(self.backend)), lambda: WorkerPool(self.backend, self.late)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(workers, "time", made)
    return made


PLAN = Plan(groups=13, group_size=2, seed=5, version=3)
FATES: dict[str, Callable[[int, int], float | str]] = {
    "all is well": lambda worker, task: 1.0,
    "the second task kills": lambda worker, task: "killed" if task == 1 else 1.0,
    "the first worker always dies": lambda worker, task: "killed" if worker == 0 else 1.0,
    "the last of two is slow": lambda worker, task: 1000.0 if task == 5 else 1.0,
    "who helps dies as well": lambda worker, task: 30.0 if task == 5 else "killed" if task == 6 else 1.0,
    "a worker is slow": lambda worker, task: 20.0 if worker == 0 else 1.0,
}


@pytest.mark.parametrize("what", FATES)
def test_the_table_is_the_same_whatever_happens(what: str, clock: Clock) -> None:
    team = Team.made(players)
    expected = Local(timeout=None, shards=6).play(KUHN, team, PLAN).frame.drop("duration")
    executor = Simulated(Played(clock, FATES[what]))
    for _ in range(2):  # what is left of the first time disturbs nobody in the second
        assert executor.play(KUHN, team, PLAN).frame.drop("duration").equals(expected)


@pytest.mark.parametrize("patience", [2, 100])
@pytest.mark.parametrize("what", FATES)
def test_neither_do_runs_of_shards_change_it(what: str, patience: int, clock: Clock) -> None:
    team, plan = Team.made(players), Plan(groups=17, group_size=2, seed=6)
    expected = Local(timeout=None, shards=16).play(KUHN, team, plan).frame.drop("duration")
    executor = Simulated(Played(clock, FATES[what], patience=lambda: patience), shards=16)
    for _ in range(2):
        assert executor.play(KUHN, team, plan).frame.drop("duration").equals(expected)


@pytest.mark.parametrize("seed", range(12))
def test_nor_does_any_mixture_of_all_that(seed: int, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers that die, are late by any measure, and answer whatever part of what they were given."""
    monkeypatch.setattr(workers, "LOSSES", 1000)
    rng = np.random.default_rng(seed)
    team, plan = Team.made(players), Plan(groups=17, group_size=2, seed=seed)
    expected = Local(timeout=None, shards=16).play(KUHN, team, plan).frame.drop("duration")
    hands = Played(
        clock,
        lambda worker, task: "killed" if rng.random() < 0.2 else float(rng.choice([0.5, 1.0, 30.0], p=[0.4, 0.4, 0.2])),
        count=3,
        patience=lambda: int(rng.integers(1, 6)),
    )
    executor = Simulated(hands, late=1.5, shards=16)
    for _ in range(4):
        assert executor.play(KUHN, team, plan).frame.drop("duration").equals(expected)
    assert min(executor.pool.lost, executor.pool.doubled) > 0


def test_short_shards_need_few_answers(clock: Clock) -> None:
    executor = Simulated(Played(clock, FATES["all is well"], patience=lambda: 100), shards=16)
    executor.play(KUHN, Team.made(players), Plan(groups=16))
    assert executor.backend.given == 4  # 6 and 6, then 2 and 2
    assert clock.now == pytest.approx(8.0), "as long as if they had been given one by one"


@pytest.mark.parametrize("slow", [0, 1])
def test_a_worker_at_half_the_speed_is_given_less(slow: int, clock: Clock) -> None:
    hands = Played(clock, lambda worker, task: 2.0 if worker == slow else 1.0, patience=lambda: 100)
    Simulated(hands, late=None, shards=16).play(KUHN, Team.made(players), Plan(groups=16))
    assert clock.now == pytest.approx(12.0), "6 for each, and the other 4 for who is faster; 16 with 8 for each"
    assert hands.given == 5


def test_a_late_run_is_played_twice_and_counted_once(clock: Clock) -> None:
    slow = Played(clock, lambda worker, task: 1000.0 if task == 2 else 1.0, patience=lambda: 100)
    executor = Simulated(slow, shards=16)
    executor.play(KUHN, Team.made(players), Plan(groups=16))
    assert executor.pool.doubled == 1
    assert executor.backend.given == 5
    assert clock.now == pytest.approx(6 + 3 * 2.0 + 2.0, abs=0.2)  # given at 6, late after three times what two take


def test_who_is_there_first_does_not_take_everything(clock: Clock) -> None:
    """It might never answer, and while nobody has answered nobody is late."""
    hands = Played(clock, lambda worker, task: 1.0 if worker else 1e9, patience=lambda: 100)
    hands.comes[1] = 2.0
    Simulated(hands, shards=16).play(KUHN, Team.made(players), Plan(groups=16))
    assert clock.now < 100


def test_a_late_shard_is_played_twice_and_counted_once(clock: Clock) -> None:
    executor = Simulated(Played(clock, FATES["the last of two is slow"]))
    executor.play(KUHN, Team.made(players), PLAN)
    assert (executor.pool.doubled, executor.backend.given) == (1, 7)
    assert clock.now == pytest.approx(2 + 3 * 1.0 + 1.0, abs=0.2)  # late after three medians, then once more
    while clock.now < workers.STUCK + 10:
        executor.play(KUHN, Team.made(players), PLAN)
    assert len(executor.backend.dropped) == 1, "who never answered is replaced"


def test_nobody_helps_if_that_is_not_wanted(clock: Clock) -> None:
    executor = Simulated(Played(clock, FATES["who helps dies as well"]), late=None)
    executor.play(KUHN, Team.made(players), PLAN)
    assert executor.pool.doubled == 0
    assert clock.now == pytest.approx(32.0)


def test_a_shard_that_kills_everybody_is_named(clock: Clock) -> None:
    executor = Simulated(Played(clock, lambda worker, task: "signal 9"))
    with pytest.raises(PalaestraError, match=r"groups 8 to 9 of iteration 0 took 3 workers down .*signal 9.*shards"):
        executor.play(KUHN, Team.made(players), PLAN)


def test_weights_are_put_once_per_version_and_policy(clock: Clock) -> None:
    executor, team = Simulated(Played(clock, FATES["all is well"])), Team.made(pair)
    counts = []
    for change in (None, None, "one", None, "two"):
        if change:
            team.learnable[change].state_dict()["logits"].add_(1.0)
        executor.play(KUHN, team, PLAN)
        executor.play(KUHN, team.frozen_copy(), Plan(4, stream="eval"))  # a look at it
        counts.append(executor.pool.put)
    assert counts == [4, 4, 5, 5, 6]  # env, team and two policies; then what changed
    for _ in range(6):
        team.learnable["one"].state_dict()["logits"].add_(1.0)
        executor.play(KUHN, team, PLAN)
    assert len(executor.backend.store) == 2 + workers.KEPT + 2, "old ones are forgotten"


def pair() -> Team:
    return Team(player_0=TabularPolicy(2, name="one"), player_1=TabularPolicy(2, name="two"))


def test_what_cannot_be_sent_is_played_here_and_said_once(clock: Clock) -> None:
    executor = Simulated(Played(clock, FATES["all is well"]))
    expected = Local(timeout=None, shards=6).play(KUHN, players(), PLAN).frame.drop("duration")
    with pytest.warns(
        UserWarning, match=r"simulated: a team that does not know its maker \(Team.made\) is played here"
    ):
        assert executor.play(KUHN, players(), PLAN).frame.drop("duration").equals(expected)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        executor.play(KUHN, players(), PLAN)
    with pytest.warns(UserWarning, match=r"an env or a team that cannot be sent"):
        executor.play(lambda: KUHN(), Team.made(players), PLAN)
    assert executor.backend.given == 0


def test_what_a_worker_raises_is_raised_here(clock: Clock) -> None:
    executor = Simulated(Played(clock, FATES["all is well"]))
    with pytest.raises(InputError, match="no policy for agent 'player_1'"):
        executor.play(KUHN, Team.made(lonely), PLAN)
    executor.play(KUHN, Team.made(players), PLAN)  # and they go on


def lonely() -> Team:
    return Team(player_0=TabularPolicy(2, name="one"))


def test_executors_of_one_size_share_their_workers(clock: Clock) -> None:
    hands = Played(clock, FATES["all is well"])
    one, other = Simulated(hands), Simulated(hands)
    assert one.pool is other.pool
    one.close()
    other.play(KUHN, Team.made(players), PLAN)
    assert hands.players
    other.close()
    assert not hands.players
    one.play(KUHN, Team.made(players), PLAN)  # hired again
    one.close()


@pytest.mark.parametrize(("options", "message"), [({"late": 0.5}, "late=0.5"), ({"shards": 0}, "shards=0")])
def test_numbers_out_of_range_are_named(options: dict[str, Any], message: str, clock: Clock) -> None:
    with pytest.raises(InputError, match=message):
        Simulated(Played(clock, FATES["all is well"]), **options)


class Lease(NamedTuple):
    one_machine: bool = False


class Served:
    """A policy that a server answers for; `lost` of its requests meet none, `at_end` is called when nobody holds it."""

    name, waits, at_end, lost = "one", True, staticmethod(lambda: None), 0
    unanswered = 0

    def act(self, requests: Sequence[Request]) -> list[Decision]:
        decisions = []
        for request in requests:
            gone = Served.lost > 0
            Served.lost -= gone
            self.unanswered += gone
            legal = request.observation.legal
            decisions.append(Decision(str(request.rng.choice(list(legal or ()))), error="gone" if gone else None))
        return decisions

    @contextmanager
    def lent(self, workers: int) -> Iterator[Lease]:
        yield Lease()
        Served.at_end()

    def borrower(self) -> Served:
        return Served()

    def use(self, lease: Lease) -> None:
        assert lease == Lease()


def asked() -> Team:
    return Team(player_0=Served(), player_1=random_legal(name="two"))


def test_no_worker_asks_servers_any_more_when_they_are_given_back(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    hands = Played(clock, lambda worker, task: 1000.0 if task == 0 else 1.0, patience=lambda: 100)
    executor, ends = Simulated(hands), list[tuple[int, int]]()
    monkeypatch.setattr(Served, "at_end", staticmethod(lambda: ends.append((len(hands.busy), len(hands.dropped)))))
    expected = Local(timeout=None, shards=6).play(KUHN, asked(), PLAN).frame.drop("duration")
    assert executor.play(KUHN, Team.made(asked), PLAN).frame.drop("duration").equals(expected)
    assert executor.pool.doubled == 1
    assert ends == [(0, 1)]


def test_what_no_server_answered_is_played_again(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = Local(timeout=None, shards=6).play(KUHN, asked(), PLAN).frame.drop("duration")
    executor = Simulated(Played(clock, FATES["all is well"], patience=lambda: 2))
    monkeypatch.setattr(Served, "lost", 3)
    assert executor.play(KUHN, Team.made(asked), PLAN).frame.drop("duration").equals(expected)
    monkeypatch.setattr(Served, "lost", 10**6)
    turns = executor.play(KUHN, Team.made(asked), PLAN)
    assert turns["error"].drop_nulls().len() > 0, "after three times rows keep their errors"
    assert set(turns["group"]) == set(range(13))
