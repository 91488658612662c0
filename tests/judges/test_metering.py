"""Budgets of calls, tokens and price: what is beyond them fails, is counted, and is never a verdict."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from palaestra.agents.policy import Decision, Request
from palaestra.envs.protocol import Observation
from palaestra.errors import InputError
from palaestra.judges.metering import Meter, Metered

ASK = [Request(Observation("?"), "judge", np.random.default_rng(0))]


class Judge:
    name = "judge"

    def __init__(self, tokens: int | None = 10, cost: float | None = 0.25) -> None:
        self.tokens, self.cost, self.parts = tokens, cost, []  # type: ignore[var-annotated]

    def act(self, requests: Any) -> list[Decision]:
        self.parts.append(len(requests))
        return [Decision("yes", tokens_in=self.tokens, cost=self.cost) for _ in requests]


@pytest.mark.parametrize(
    ("budget", "asked"),
    [(None, 40), (7, 7), ({"calls": 7}, 7), ({"tokens": 75}, 7), ({"price": 1.75}, 7), ({"calls": 9, "price": 1.0}, 4)],
)
def test_what_is_beyond_the_budget_fails_and_is_counted(budget: Any, asked: int) -> None:
    judge, meter = Judge(), Meter(budget)
    found = Metered(judge, meter).act(ASK * 40)
    assert [each.error is None for each in found] == [True] * asked + [False] * (40 - asked)
    assert meter.totals() == {"calls": asked, "tokens": 10 * asked, "cost": 0.25 * asked, "refused": 40 - asked}
    assert all(each.action == "" for each in found[asked:])


def test_calls_that_get_dearer_exceed_a_budget_by_the_last_part_at_most() -> None:
    judge, meter = Judge(tokens=1), Meter({"tokens": 100})
    policy = Metered(judge, meter)
    policy.act(ASK * 8)
    assert judge.parts == [1, 1, 2, 4]
    judge.tokens = 20
    policy.act(ASK * 40)
    assert meter.tokens == 8 + 8 * 20  # they were presumed to take one each, and no more went out than had before
    assert policy.act(ASK)[0].error is not None


def test_a_budget_of_what_nobody_tells_is_spent_by_the_first_call() -> None:
    judge = Judge(cost=None)
    found = Metered(judge, Meter({"price": 5.0})).act(ASK * 9)
    assert judge.parts == [1]
    assert sum(each.error is not None for each in found) == 8


def test_who_comes_one_after_the_other_gets_alike() -> None:
    meter = Meter(10)
    policy, got = Metered(Judge(), meter), []
    for left in (3, 2, 1):
        meter.share(left)
        before = meter.calls
        policy.act(ASK * 20)
        got.append(meter.calls - before)
    assert got == [3, 3, 4]


def test_it_goes_on_from_what_was_spent() -> None:
    meter, again = Meter({"tokens": 75}), Meter({"tokens": 75})
    Metered(Judge(), meter).act(ASK * 3)
    again.load(meter.totals())
    assert sum(each.error is None for each in Metered(Judge(), again).act(ASK * 40)) == 4


@pytest.mark.parametrize(
    ("budget", "said"),
    [
        (0, "at least one call"),
        ({"token": 5}, "did you mean 'tokens'"),
        ({"price": -1}, "price is -1"),
        (True, "budget"),
    ],
)
def test_a_wrong_budget_is_named(budget: Any, said: str) -> None:
    with pytest.raises(InputError, match=said):
        Meter(budget)
