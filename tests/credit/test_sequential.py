"""Sequential updates: worked numbers of [96], and which ratios each part sees."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from palaestra.algebra.parse import parse
from palaestra.algebra.signals import standardise
from palaestra.algebra.turns import Turns
from palaestra.credit import dr_grpo, reverse_product, seeupo, sequential_update
from palaestra.errors import InputError
from palaestra.testing.signal import sample_turns


def three_turns() -> Turns:
    keys = {"group": [0] * 6, "episode": [0] * 3 + [1] * 3, "turn": [0, 1, 2] * 2, "agent": ["x", "y", "x"] * 2}
    return Turns(keys | {"reward": [0, 0, 1.0, 0, 0, 0], "log_ratio": np.log([1.1, 0.9, 1.3, 1, 1, 1])})


def test_a_turn_is_weighed_by_the_ratios_of_later_ones() -> None:
    np.testing.assert_allclose(reverse_product().evaluate(three_turns()), [1.17, 1.3, 1, 1, 1, 1])
    base = np.asarray(standardise(dr_grpo(), over=()).evaluate(three_turns()))
    found = parse("seeupo(log_ratio=col('log_ratio'))", columns=["log_ratio"]).evaluate(three_turns())
    np.testing.assert_allclose(found, base * [1.17, 1.3, 1, 1, 1, 1])
    np.testing.assert_allclose(seeupo().evaluate(three_turns()), base)


def test_parts_are_updated_from_the_last_turn_on_with_the_ratios_so_far() -> None:
    turns = three_turns()
    seen = []

    def update(part: Turns) -> np.ndarray:
        seen.append((part["turn"].to_list(), part["advantage"].to_numpy()))
        return part["log_ratio"].to_numpy()

    parts = sequential_update(turns, update)
    assert [turn for turn, _ in seen] == [[2, 2], [1, 1], [0, 0]]
    expected = np.asarray(seeupo(log_ratio="log_ratio").evaluate(turns))
    for rows, (_, advantage) in zip(parts, seen, strict=True):
        np.testing.assert_allclose(advantage, expected[rows])


def test_agents_in_order_of_name_or_as_drawn() -> None:
    order: list[str] = []

    def update(part: Turns) -> np.ndarray:
        order.append(str(part["agent"][0]))
        return np.zeros(len(part))

    sequential_update(three_turns(), update, key="agent", order="forward")
    sequential_update(three_turns(), update, key="agent", advantage="reward")
    assert order == ["x", "y", "y", "x"]
    late = Turns({"group": 0, "episode": [0, 0], "turn": [10, 9], "agent": "x", "reward": [0.0, 1.0]})
    assert [list(rows) for rows in sequential_update(late, lambda part: np.zeros(1))] == [[0], [1]]  # 10 is after 9
    named = pl.Series(["b", "a"], dtype=pl.Categorical)  # by name, not by which came first
    order.clear()
    sequential_update(late.with_column(agent=named), update, key="agent", order="forward")
    assert order == ["a", "b"]
    turns = sample_turns(np.random.default_rng(0))
    rows = sequential_update(turns, lambda part: np.zeros(len(part)), order="random", rng=np.random.default_rng(0))
    assert sorted(np.concatenate(rows)) == list(range(len(turns)))


def test_what_cannot_be_updated_is_named() -> None:
    with pytest.raises(InputError, match="did you mean 'reverse'"):
        sequential_update(three_turns(), lambda part: np.zeros(len(part)), order="revers")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="needs rng"):
        sequential_update(three_turns(), lambda part: np.zeros(len(part)), order="random")
    with pytest.raises(InputError, match="a finite log-ratio for each of 2 rows"):
        sequential_update(three_turns(), lambda part: np.zeros(1))


def test_who_acts_at_once_is_not_later() -> None:
    for agents in (["a", "b", "a"], ["b", "a", "a"]):
        keys = {"episode": [0] * 3, "turn": [0, 0, 1], "agent": agents, "log_ratio": np.log([2.0, 3.0, 5.0])}
        np.testing.assert_allclose(reverse_product().evaluate(Turns(keys)), [5, 5, 1])
