from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator

import pytest

from palaestra.play.timeouts import Failure, Watchdog, _slept, _Waiting


@pytest.fixture(params=[None, 5.0])
def any_dog(request: pytest.FixtureRequest) -> Iterator[Watchdog]:
    dog = Watchdog(request.param)
    yield dog
    dog.close()


@pytest.fixture
def dog() -> Iterator[Watchdog]:
    dog = Watchdog(0.5)  # a busy machine may stand still for a fifth of a second
    yield dog
    dog.close()


@pytest.fixture
def release() -> Iterator[threading.Event]:
    """Hanging calls wait for it."""
    event = threading.Event()
    yield event
    event.set()


def test_results_come_in_order_and_failures_in_their_place(any_dog: Watchdog) -> None:
    first, second, third = any_dog.map(lambda x: 1 / x, [1, 0, 2])
    assert (first, third) == (1.0, 0.5)
    assert isinstance(second, Failure)
    assert isinstance(second.error, ZeroDivisionError)
    assert not second.hung
    assert any_dog.map(lambda x: x, []) == []


def test_an_exit_is_a_failure(any_dog: Watchdog) -> None:
    (result,) = any_dog.map(sys.exit, ["bye"])
    assert isinstance(result, Failure)
    assert isinstance(result.error, SystemExit)


def test_calls_share_one_thread_until_one_hangs(dog: Watchdog, release: threading.Event) -> None:
    here = threading.get_ident()
    threads = {thread for _ in range(3) for thread in dog.map(lambda _: threading.get_ident(), [0, 1])}
    assert len(threads) == 1
    assert here not in threads
    dog.map(release.wait, [60])
    assert threads.isdisjoint(dog.map(lambda _: threading.get_ident(), [0]))


def test_without_limit_calls_stay_in_the_thread() -> None:
    assert Watchdog(None).map(lambda _: threading.get_ident(), [0]) == [threading.get_ident()]


def test_hanging_calls_are_left_behind_and_the_rest_is_made_once(dog: Watchdog, release: threading.Event) -> None:
    made: list[int] = []
    threads: set[threading.Thread] = set()

    def call(item: int) -> int:
        made.append(item)
        threads.add(threading.current_thread())
        if item in (1, 3):
            release.wait(60)
        return item

    results = dog.map(call, [0, 1, 2, 3, 4])
    assert [result for result in results if not isinstance(result, Failure)] == [0, 2, 4]
    assert [isinstance(result, Failure) and result.hung for result in results] == [False, True, False, True, False]
    release.set()
    dog.close()
    for thread in threads:  # the abandoned calls return, and must not go on with the items behind them
        thread.join(60)
        assert not thread.is_alive()
    assert made == [0, 1, 2, 3, 4]


def test_many_calls_may_together_take_longer_than_the_limit(dog: Watchdog) -> None:
    assert dog.map(lambda x: time.sleep(0.08) or x, list(range(8))) == list(range(8))


def test_a_call_that_ends_just_in_time_counts() -> None:
    dog = Watchdog(0.2)
    for _ in range(3):
        results = dog.map(lambda x: time.sleep(0.198) or x, [0, 1])
        # Either it was in time or it hung, but no call is lost, doubled or blamed on its neighbour.
        assert [isinstance(r, Failure) or r == i for i, r in enumerate(results)] == [True, True]
    dog.close()


def test_after_an_interruption_no_call_begins(release: threading.Event) -> None:
    dog, made, threads = Watchdog(None, threads=2), list[int](), set[threading.Thread]()
    began = threading.Event()

    def call(item: int) -> None:
        threads.add(threading.current_thread())
        made.append(item)
        if item == 0:
            began.wait(60)
            raise KeyboardInterrupt
        began.set()
        release.wait(60)

    with pytest.raises(KeyboardInterrupt):
        dog.map(call, [0, 1, 3, 5], [0, 1, 1, 1])
    dog.close()
    release.set()
    for thread in threads:
        thread.join(60)
    assert sorted(made) == [0, 1], "only what was under way"


def test_closing_ends_the_thread() -> None:
    dog = Watchdog(1.0)
    (thread,) = dog.map(lambda _: threading.current_thread(), [0])
    assert isinstance(thread, threading.Thread)
    dog.close()
    thread.join(60)
    assert not thread.is_alive()


def test_two_calls_that_gave_the_processor_away_are_seen_to_wait() -> None:
    watch = _Waiting()
    for computing, slept in ((0.019, 3), (0.0001, 0), (0.0001, -2), (0.0001, 1)):  # computes; is made to wait, twice
        watch.note(0.02, computing, slept)
    assert not watch.sees_waiting()
    for _ in range(4):
        watch.note(0.02, 0.0001, 1)
    assert watch.sees_waiting()
    fresh = _Waiting()
    fresh.note(0.02, 0.0001, 1)
    assert not fresh.sees_waiting()
    fresh.note(0.02, 0.0001, 1)
    assert fresh.sees_waiting()


def test_sleep_gives_the_processor_away() -> None:
    before = _slept()
    for _ in range(20):
        time.sleep(0.001)
    assert _slept() - before > 0
