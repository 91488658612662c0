"""Selection: against a plain loop, replayable, and every dropped row with its reason."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from palaestra.algebra.parse import parse
from palaestra.algebra.selection import conditions, keep, selection
from palaestra.algebra.signals import Signal
from palaestra.algebra.turns import Turns
from palaestra.errors import ExpressionError


def table(values: list[float | None], groups: list[int] | None = None) -> Turns:
    return Turns({"group": groups or [0] * len(values), "episode": list(range(len(values))), "reward": values})


def mask(signal: Signal, turns: Turns) -> np.ndarray:
    return np.asarray(signal.evaluate(turns))


def by_loop(
    values: list[float | None], groups: list[int], top: int | None, q: float | None, low: float, ties: str
) -> list[bool]:
    """The same, row by row."""
    found = []
    for value, group in zip(values, groups, strict=True):
        mine = [(v, i) for i, (v, g) in enumerate(zip(values, groups, strict=True)) if g == group and v is not None]
        if value is None or value < low:
            found.append(False)
            continue
        fine = q is None or value >= np.quantile([v for v, _ in mine], q)
        if top is not None:
            better = sum(v > value for v, _ in mine)
            equal = sum(v == value for v, _ in mine)
            before = sum(v == value and i < len(found) for v, i in mine)
            place = {"keep": better + 1, "drop": better + equal, "first": better + before + 1}[ties]
            fine = fine and place <= top
        found.append(bool(fine))
    return found


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 2), st.one_of(st.none(), st.integers(0, 4))), min_size=1, max_size=24),
    st.one_of(st.none(), st.integers(1, 4)),
    st.one_of(st.none(), st.sampled_from([0.0, 0.25, 0.5, 0.9, 1.0])),
    st.sampled_from(["keep", "first", "drop"]),
    st.integers(0, 3),
)
def test_as_a_loop_over_rows(rows: list[Any], top: int | None, q: float | None, ties: Any, low: int) -> None:
    groups, values = [group for group, _ in rows], [None if v is None else float(v) for _, v in rows]
    how: Any = {"top": top, "quantile": q, "between": (float(low), None), "ties": ties}
    found = mask(keep("reward", by="group", **how), table(values, groups))
    assert found.tolist() == by_loop(values, groups, top, q, low, ties)
    counts = selection(table(values, groups), conditions("reward", by="group", **how)).counts
    assert counts["kept"] == sum(found)
    assert counts["units"] == sum(n for name, n in counts.items() if name != "units")


def test_a_quantile_a_band_and_the_best_of_each() -> None:
    ten = table([float(n) for n in range(10)])
    assert np.flatnonzero(mask(keep("reward", quantile=0.9), ten)).tolist() == [9], "np.quantile is 8.1"
    assert np.flatnonzero(mask(keep("reward", quantile=(None, 0.2)), ten)).tolist() == [0, 1]
    band = table([0.5, 0.6, 0.95, 0.96])
    assert mask(keep("reward", between=(0.5, 0.95), closed="right"), band).tolist() == [False, True, True, False]
    assert mask(keep("reward", between=(0.5, 0.95), closed="none"), band).tolist() == [False, True, False, False]
    shortest = mask(keep(-parse("reward"), top=1), band)
    assert shortest.tolist() == [True, False, False, False]


def test_an_episode_is_kept_as_a_whole_and_rows_each_for_themselves() -> None:
    turns = Turns({"group": [0] * 4, "episode": [0, 0, 1, 1], "turn": [0, 1, 0, 1], "reward": [0.0, 5.0, 2.0, 2.0]})
    assert mask(keep("reward", by="group", top=1), turns).tolist() == [True, True, False, False]
    assert mask(keep("reward", by="group", top=1, unit="row"), turns).tolist() == [False, True, False, False]
    assert selection(turns, conditions("reward", top=1)).counts["units"] == 2
    assert selection(turns, conditions("reward", top=1, unit="row"), unit="row").counts["units"] == 4


def test_reasons_are_the_first_condition_that_fails() -> None:
    turns = table([None, 0.0, 1.0, 2.0, 3.0])
    found = selection(turns, conditions("reward", between=(1, None), quantile=0.5, top=1))
    assert found.dropped.to_list() == ["missing", "between", "quantile", "top", None]
    assert found.kept.tolist() == [False, False, False, False, True]


def test_it_is_written_in_a_recipe_and_explains_itself() -> None:
    signal = parse('keep(reward - mean(reward, over="task"), by="group", quantile=(None, .5), ties="first")')
    assert "quantile" in signal.explain()
    assert signal.needs() >= {"reward", "task", "group"}


@pytest.mark.parametrize(
    "how", [{"top": 0}, {"top": 0.5}, {"quantile": 1.5}, {"between": (2, 1)}, {"between": (None, None)}, {"ties": "x"},
            {"closed": "open"}, {"quantile": "0.5"}],
)  # fmt: skip
def test_bad_options_are_refused(how: dict[str, Any]) -> None:
    with pytest.raises(ExpressionError, match="keep: "):
        keep("reward", **how)
