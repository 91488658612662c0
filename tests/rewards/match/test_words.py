"""Matchers: worked numbers, and the vectorised sets against Python's own."""

from __future__ import annotations

from collections import Counter

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.tables import values

from palaestra.algebra.signals import Signal
from palaestra.algebra.turns import Turns
from palaestra.errors import ExpressionError
from palaestra.rewards import entity_recall, jaccard, multiset_jaccard, point_in_box, token_f1
from palaestra.rewards.match import words

ITEMS = st.lists(st.lists(st.integers(-3, 3), max_size=6), min_size=1, max_size=8)


def list_table(given: list[list[int]], gold: list[list[int]], inner: type[pl.DataType] = pl.Int64) -> Turns:
    size = min(len(given), len(gold))
    kind = pl.List(inner)
    one, other = (pl.Series(side[:size], dtype=pl.List(pl.Int64)).cast(kind) for side in (given, gold))
    return Turns({"given": one, "gold": other})


@settings(max_examples=60, deadline=None)
@given(ITEMS, ITEMS, st.sampled_from([pl.Int64, pl.Float64, pl.String]))
def test_sets_and_multisets_are_those_of_python(
    one: list[list[int]], other: list[list[int]], inner: type[pl.DataType]
) -> None:
    turns = list_table(one, other, inner)
    pairs = list(zip(one, other, strict=False))
    sets = [len(set(a) & set(b)) / len(set(a) | set(b)) if a or b else 0.0 for a, b in pairs]
    counts = [(Counter(a), Counter(b)) for a, b in pairs]
    bags = [(a & b).total() / (a | b).total() if a | b else 1.0 for a, b in counts]
    np.testing.assert_allclose(values(jaccard("given", "gold"), turns), sets)
    np.testing.assert_allclose(values(multiset_jaccard("given", "gold"), turns), bags)


def test_many_rows_of_many_lengths_go_through_several_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(words, "BLOCK", 64)
    rng = np.random.default_rng(0)
    one, other = ([rng.integers(0, 9, rng.integers(0, 5)).tolist() for _ in range(500)] for _ in range(2))
    found = values(jaccard("given", "gold"), list_table(one, other))
    right = [len(set(a) & set(b)) / max(len(set(a) | set(b)), 1) for a, b in zip(one, other, strict=True)]
    np.testing.assert_allclose(found, right)


def test_missing_lists_and_missing_items() -> None:
    turns = Turns({"given": [[1, None], None, []], "gold": [[1], [1], None]})
    np.testing.assert_array_equal(values(jaccard("given", "gold"), turns), [1.0, np.nan, np.nan])


def test_words_are_counted_without_case() -> None:
    turns = Turns({"a": ["Buy two red apples", "a a b", "", "x"], "b": ["two red Apples", "a b b", "", "y"]})
    np.testing.assert_allclose(values(token_f1("a", "b"), turns), [6 / 7, 2 / 3, 1, 0])


def test_numbers_are_not_lists() -> None:
    with pytest.raises(ExpressionError, match="not lists or text"):
        jaccard("reward", "reward").evaluate(Turns({"reward": [1.0]}))
    with pytest.raises(ExpressionError, match="is not a column"):
        jaccard(Signal("lit", value=1.0), "reward")  # type: ignore[arg-type]


def test_entities_are_whole_phrases_in_any_turn_of_the_episode() -> None:
    gold = [["New York", "a+b", "tea"]] * 3 + [["tea"], [], None]
    text = ["I like New York.", None, "a+b is not aab", "coffee", "tea", "tea"]
    turns = Turns({"group": [0] * 6, "episode": [0, 0, 0, 1, 2, 3], "action": text, "gold": gold})
    np.testing.assert_allclose(values(entity_recall("action", "gold"), turns), [2 / 3] * 3 + [0, np.nan, np.nan])


@pytest.mark.parametrize(
    ("text", "entity", "found"),
    [
        ("Londonderry", "London", 0), ("Londonderry, not London", "London", 1), ("Annapolis", "Ann", 0),
        ("Ann, of York", "York", 1), ("in C++17", "C++", 1), ("version 12", "1", 0), ("Ann's", "Ann", 1),
        ("Straße", "Stra", 0), ("住在北京市", "北京", 1), ("(a.b)", "a.b", 1), ("axb", "a.b", 0),
    ],
)  # fmt: skip
def test_a_phrase_is_not_found_within_a_longer_word(text: str, entity: str, found: int) -> None:
    turns = Turns({"episode": [0], "action": [text], "gold": [[entity, ""]]})
    np.testing.assert_array_equal(values(entity_recall("action", "gold"), turns), [found])


def test_an_entity_that_is_named_twice_counts_once() -> None:
    turns = Turns({"episode": [0, 0], "action": ["tea", "tea"], "gold": [["tea", "rum"]] * 2})
    np.testing.assert_allclose(values(entity_recall("action", "gold"), turns), [0.5, 0.5])


def test_edges_of_a_box_belong_to_it_and_points_are_scaled() -> None:
    turns = Turns({"p": [[1, 2], [2, 3], [3.01, 3], None, [1, 2, 3]], "box": [[1, 2, 3, 4]] * 5})
    np.testing.assert_array_equal(values(point_in_box("p", "box"), turns), [1, 1, 0, np.nan, np.nan])
    np.testing.assert_array_equal(values(point_in_box("p", "box", scale=2.0), turns)[:2], [1, 0])


HUGE = [[2**63 - 1, 5], [-(2**63), 5]]


def test_items_may_be_as_large_as_hashes() -> None:
    """Differences of such numbers do not fit where the numbers do."""
    signed = Turns({"given": [HUGE[0]], "gold": [HUGE[1]]})
    np.testing.assert_allclose(values(jaccard("given", "gold"), signed), [1 / 3])
    unsigned = pl.Series([[2**64 - 1, 3]], dtype=pl.List(pl.UInt64))
    np.testing.assert_allclose(values(jaccard("given", "gold"), Turns({"given": unsigned, "gold": unsigned})), [1])
    np.testing.assert_allclose(values(jaccard("given", "gold"), Turns({"given": unsigned, "gold": [[3]]})), [0.5])
