"""Asynchronous workers: what is quick comes first, nothing is lost, and a stop loses nothing either."""

from __future__ import annotations

import itertools

import numpy as np
import polars as pl
import pytest

from palaestra import envs
from palaestra.agents import TabularPolicy, Team
from palaestra.algebra.turns import Turns
from palaestra.errors import InputError
from palaestra.learning.stages.asynchronous import asynchronous
from palaestra.learning.stages.stage import Context
from palaestra.play.executors import Local, Plan

ENV, TEAM = envs.make("native/jobs", seconds=10), Team(engineer=TabularPolicy(2))


def run(stage: asynchronous, iterations: range) -> list[pl.DataFrame]:
    tables = []
    for iteration in iterations:
        context = Context(np.random.default_rng(0), iteration, ENV, TEAM, Local())
        plan = stage.plan(Plan(groups=1, group_size=8, iteration=iteration), context)
        tables.append(stage(Local().play(ENV, TEAM, plan), context).frame)
    return tables


def test_quick_ones_come_first_and_slow_ones_in_the_end() -> None:
    tables = run(asynchronous(workers=12, batch=4), range(1, 41))
    assert all(len(each) == 4 for each in tables)
    assert tables[0]["seconds"].to_list() == [1.0] * 4
    early, late = (pl.concat(part)["seconds"] for part in (tables[:4], tables[20:]))
    assert (early == 10).mean() < 0.2 < (late == 10).mean(), "actions arrive by their chance once all have delivered"
    for one, other in itertools.pairwise(tables):
        assert one["delivered"].max() <= other["delivered"].min()
    for number, each in enumerate(tables, 1):
        assert each["group"].to_list() == [0] * 4, "one task, one group"
        assert sorted(each["episode"].to_list()) == [0, 1, 2, 3]
        assert set(each["iteration"]) == {number}


def test_nothing_comes_after_the_budget() -> None:
    tables = run(asynchronous(workers=4, batch=4, budget=15.0), range(1, 6))
    assert [len(each) for each in tables] == [4, 0, 0, 0, 0]


def test_an_episode_takes_the_sum_of_its_turns() -> None:
    keys = {"group": [0, 0, 1], "episode": [0, 0, 0], "turn": [0, 1, 0], "agent": ["engineer"] * 3, "task": ["job"] * 3}
    context = Context(np.random.default_rng(0), 1, ENV, TEAM, Local())
    first = asynchronous(workers=2, batch=1)(Turns(keys | {"seconds": [2.0, 2.0, 3.0]}), context)
    assert first["seconds"].to_list() == [3.0], "two turns of two seconds take four"


def test_a_stop_loses_nothing() -> None:
    whole = asynchronous(workers=12, batch=4)
    expected = run(whole, range(1, 9))[4:]
    stopped = asynchronous(workers=12, batch=4)
    run(stopped, range(1, 5))
    resumed = asynchronous(workers=12, batch=4)
    resumed.load_state_dict(stopped.state_dict())
    found = run(resumed, range(5, 9))
    for one, other in zip(expected, found, strict=True):
        assert one.drop("duration").equals(other.drop("duration"))


@pytest.mark.parametrize("options", [{"batch": 0}, {"batch": 9, "workers": 8}, {"budget": 0.0}])
def test_numbers_out_of_range(options: dict[str, float]) -> None:
    with pytest.raises(InputError, match="asynchronous: 1 <= batch"):
        asynchronous(**options)  # type: ignore[arg-type]


def test_what_is_delivered_as_the_budget_ends_counts() -> None:
    (free,) = run(asynchronous(workers=4, batch=4), range(1, 2))
    end = float(free["delivered"].max())
    for budget, delivered in ((end, 4), (end - 1e-6, 0)):
        (found,) = run(asynchronous(workers=4, batch=4, budget=budget), range(1, 2))
        assert len(found) == delivered
