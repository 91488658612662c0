# ruff: noqa: NPY002

from __future__ import annotations

import contextlib
import random
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from palaestra.envs.discrete import LONGEST, Slips, check_illegal, describe, isolated, read_turn, source_mentions
from palaestra.envs.protocol import Observation
from palaestra.errors import EnvError, InputError
from palaestra.play.timeouts import Failure, Watchdog


def test_a_turn_takes_the_actions_of_exactly_the_observed_agents():
    turn = {"a": Observation("", ("left", "right"), np.array([True, False])), "b": Observation("", ("up",))}
    assert read_turn({"a": "LEFT ", "b": 0}, turn) == {"a": 0, "b": 0}
    assert read_turn({"a": "right", "b": 7}, turn) == {"a": None, "b": None}
    for wrong in ({"a": 0}, {"a": 0, "b": 0, "c": 0}, {}):
        with pytest.raises(EnvError, match=r"the agents to act are \['a', 'b'\]"):
            read_turn(wrong, turn)


def test_slips_are_legal_uniform_and_drawn_from_the_seed_alone():
    seen = Observation("", tuple("abcd"), np.array([False, True, False, True]))
    slips = Slips(5)
    drawn = [slips.legal(seen) for _ in range(400)]
    assert set(drawn) == {1, 3}
    assert 150 < drawn.count(1) < 250
    again = Slips(5)
    assert drawn == [again.legal(seen) for _ in range(400)]
    assert {Slips(seed).legal(Observation("", ("x", "y"))) for seed in range(20)} == {0, 1}


def test_isolation_seeds_inside_and_restores_outside_even_after_an_error():
    random.seed(1)
    np.random.seed(1)
    python, numpy = random.getstate(), np.random.get_state()[1].copy()
    inside = []
    for _ in range(2):
        with contextlib.suppress(ZeroDivisionError), isolated(2**64 - 2, numpy=True):
            inside.append((random.random(), np.random.random()))
            raise ZeroDivisionError
    assert inside[0] == inside[1]
    assert random.getstate() == python
    assert (np.random.get_state()[1] == numpy).all()


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (np.array([[1, 0], [0, 1]]), "1001"),
        (np.array([True, False]), "10"),
        (np.array([0.5, -1.0, 3.14159]), "0.5 -1 3.142"),
        (np.array([0.0]), "0"),
        (7, "7"),
        (np.int64(7), "7"),
        ((14, 10, 0), "14 10 0"),
        ({"a": np.array([2, 3]), "b": 1}, "a:2 3 b:1"),
        (np.zeros((40, 40)), "array 40x40"),
        (np.zeros(LONGEST), "0" * LONGEST),
        (np.zeros(LONGEST + 1), f"array {LONGEST + 1}"),
    ],
)
def test_description_is_short(value, text):
    assert describe(value) == text


def test_source_is_searched_in_a_module_and_below_it():
    import email.message

    assert source_mentions("email.message", "class Message")
    assert source_mentions("email", "class Message"), email.message
    assert not source_mentions("email.message", r"np\.random")
    assert source_mentions("builtins", "whatever"), "a module without source might do anything"


def test_an_unknown_way_to_treat_illegal_actions_is_named():
    with pytest.raises(InputError, match=r"illegal='loose'.*'lose'"):
        check_illegal("loose")


def test_one_thread_at_a_time_draws_from_the_global_generators() -> None:
    def draw(seed: int) -> list[float]:
        with isolated(seed):
            numbers = []
            for _ in range(5):
                time.sleep(0.001)
                numbers.append(random.random())
            return numbers

    before = random.getstate()
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(draw, [0, 1] * 8))
    assert found == [draw(0), draw(1)] * 8
    assert random.getstate() == before


def test_a_thread_that_hangs_in_the_block_holds_nobody_up_and_puts_nothing_back() -> None:
    release = threading.Event()

    before = random.getstate()

    def hang(_: int) -> None:
        with isolated(5, numpy=True):
            release.wait(30)

    watchdog = Watchdog(0.1)
    (failure,) = watchdog.map(hang, [0])
    assert isinstance(failure, Failure)
    assert failure.hung
    numpy = np.random.get_state()
    with isolated(3):
        first = random.random()
        release.set()
        time.sleep(0.1)
        second = random.random()
    with isolated(3):
        assert [first, second] == [random.random(), random.random()]
    watchdog.close()
    assert random.getstate() == before
    assert not (np.random.get_state()[1] == numpy[1]).all(), "the state from before the block that hung"
