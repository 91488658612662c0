"""Search over a tree of opinions: worked numbers, what a failure changes, and when it ends."""

from __future__ import annotations

import numpy as np
import pytest

from palaestra.errors import InputError
from palaestra.foundation.search import Candidate, SearchTree, confidence_uct, search, soft_mixed


def test_worked_choice():
    np.testing.assert_allclose(soft_mixed([0.5, 0.6, 0.7], [0.1, 0, 0]), [0.2122, 0.2838, 0.5040], atol=5e-5)
    np.testing.assert_allclose(soft_mixed([0.0, 1000.0], [0, 0]), [0.1, 0.9])
    np.testing.assert_allclose(soft_mixed([0.2, 0.2], [0, 0], mix=0.0), [0.5, 0.5])


def test_a_failure_is_sent_to_all_above_and_to_nobody_else():
    tree = SearchTree("q")
    a, b = tree.add("a", 0, prior=0.9, confidence=0.5), tree.add("b", 0, prior=0.6, confidence=0.5)
    leaf = tree.add("leaf", a, prior=0.8, confidence=1.0)
    tree.back(leaf, 0.0)
    assert tree.visits.tolist() == [1, 1, 0, 1]
    index = confidence_uct(tree, c=0.0, trust=2.0)
    assert index[a] == pytest.approx(1.0 * 0.9 / 2.0)  # k·c0·r0 / (k·c0 + 1)
    assert index[b] == pytest.approx(0.6)
    assert index[leaf] == pytest.approx(2 * 0.8 / 3)
    assert index[0] == 0.0  # nothing is known of the root but one failure
    assert confidence_uct(SearchTree("q"), c=1.0).tolist() == [0.0]
    np.testing.assert_allclose(confidence_uct(tree), confidence_uct(tree, c=0.3, trust=2.0))
    assert not np.allclose(confidence_uct(tree), index)
    wide = confidence_uct(tree, c=1.0, trust=2.0) - index
    assert wide.tolist() == pytest.approx([np.sqrt(np.log(2) / 2)] * 2 + [np.sqrt(np.log(2)), np.sqrt(np.log(2) / 2)])
    assert tree.table()["parent"].to_list() == [None, 0, 0, a]
    tree.back(b, 1.0)
    assert confidence_uct(tree, c=0.0, trust=1.0)[b] == pytest.approx((0.5 * 0.6 + 1) / 1.5)
    for parent in (9, 4, -1):
        with pytest.raises(InputError, match=f"parent {parent} of 4 nodes"):
            tree.add("x", parent)


def tree_of(opinions: dict[str, float]):
    """Two levels, a and b, with answers a1, a2, b1, b2."""

    def expand(item: str) -> list[Candidate]:
        names = ["a", "b"] if item == "" else [item + "1", item + "2"]
        return [Candidate(name, opinions[name], 1.0, len(name) == 2) for name in names]

    return expand


OPINIONS = {"a": 0.9, "b": 0.8, "a1": 0.95, "a2": 0.9, "b1": 0.7, "b2": 0.1}


def test_a_failed_answer_sends_the_search_to_the_sibling():
    asked: list[str] = []

    def validate(item: str) -> bool:
        asked.append(item)
        return item == "b1"

    found = search("", tree_of(OPINIONS), validate, budget=6)
    assert found.passed
    assert found.item == "b1"
    assert asked[0] == "a1"
    stubborn: list[str] = []
    kept = search("", tree_of(OPINIONS), lambda item: bool(stubborn.append(item)), budget=6, backup="never",
                  select=lambda tree: tree.prior)  # fmt: skip
    assert stubborn == ["a1", "a2", "b1", "b2"]  # opinions alone try all of a first
    assert kept.tree.visits.tolist() == [0.0] * 7


def test_it_ends_with_the_first_pass_or_the_budget():
    found = search("", tree_of(OPINIONS), lambda item: True, budget=6)
    assert (found.item, found.passed, found.made) == ("a1", True, 4)
    short = search("", tree_of(OPINIONS), lambda item: False, budget=4)
    assert (short.passed, short.made) == (False, 4)
    assert short.item == "a1"  # all failed: the best opinion of itself
    assert search("", tree_of(OPINIONS), lambda item: True, budget=2).item is None
    for budget in (1, 5):  # of two children the first only
        assert search("", tree_of(OPINIONS), lambda item: False, budget=budget).made == budget
    with pytest.raises(InputError, match="budget=0"):
        search("", tree_of(OPINIONS), lambda item: True, budget=0)
