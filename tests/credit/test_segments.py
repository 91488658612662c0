"""Segments: worked numbers of [69], chain, tokens and tree."""

from __future__ import annotations

import math

import numpy as np
import pytest

from palaestra.algebra.signals import evaluate
from palaestra.algebra.turns import Ragged, Turns
from palaestra.credit import segments, spo_chain, spo_tokens, spo_tree, tree_values, unsure
from palaestra.errors import ExpressionError, InputError


def test_a_chain_of_segments_adds_up_to_the_score_minus_the_first_value() -> None:
    keys = {"episode": [0] * 4, "turn": [0, 1, 2, 3], "agent": ["a"] * 4, "reward": [0, 0, 0, 1.0]}
    found = np.asarray(spo_chain().evaluate(Turns(keys | {"value": [0.5, 0.5, 0.75, 0.25]})))
    np.testing.assert_allclose(found, [0, 0.25, -0.5, 0.75])
    assert found.sum() == pytest.approx(0.5)


def tokens() -> Turns:
    """Two turns; the first has cuts at its tokens 1 and 3, the second at its token 0."""
    low, high = math.log(0.5), math.log(0.95)
    return Turns(
        {
            "episode": [0, 1], "turn": [0, 0], "agent": ["a", "a"], "reward": [1.0, 0.0],
            "logprobs": [[high, low, high, low, high], [low, high]],
            "values": [[0.5, 0.5, 0.5, 0.75, 0.75], [0.25, 0.25]],
        }
    )  # fmt: skip


def test_only_unsure_tokens_of_a_segment_carry_its_change() -> None:
    (mask, number, credit) = evaluate(tokens(), unsure(), segments(every=1), spo_tokens(every=1))
    assert isinstance(mask, Ragged)
    assert isinstance(number, Ragged)
    assert isinstance(credit, Ragged)
    np.testing.assert_array_equal(mask.values, [0, 1, 0, 1, 0, 1, 0])
    np.testing.assert_array_equal(number.values, [0, 1, 1, 2, 2, 1, 1])
    np.testing.assert_allclose(credit.values, [0, 0.25, 0, 0.25, 0, -0.25, 0])


def test_every_second_cut_is_kept() -> None:
    (number,) = evaluate(tokens(), segments(every=2))
    assert isinstance(number, Ragged)
    np.testing.assert_array_equal(number.values, [0, 0, 0, 1, 1, 0, 0])
    with pytest.raises(ExpressionError, match="every=0"):
        segments(every=0)
    with pytest.raises(ExpressionError, match="need one per token"):
        segments("reward").evaluate(tokens())


PARENT = np.array([-1, 0, 0, 0, *[1] * 3, *[2] * 3, *[3] * 3])
REWARD = np.array([np.nan] * 4 + [1, 1, 0, 0, 0, 0, 1, 1, 1])


def test_the_worked_tree() -> None:
    value = tree_values(PARENT, REWARD)
    np.testing.assert_allclose(value[:4], [5 / 9, 2 / 3, 0, 1])
    table = Turns({"group": [0] * 12, "episode": range(12), "value": value[1:], "parent": PARENT[1:]})
    found = np.asarray(spo_tree().evaluate(table))
    np.testing.assert_allclose(found, [0.1111, -0.5556, 0.4444, 0.3333, 0.3333, -0.6667, *[0] * 6], atol=1e-4)
    scaled = np.asarray(spo_tree(method="grpo").evaluate(table))
    np.testing.assert_allclose(scaled[:3], [0.2673, -1.3363, 1.0690], atol=1e-4)
    assert tree_values(PARENT, REWARD, best_of=4)[1] == pytest.approx(0.9877, abs=1e-4)


def test_a_tree_that_is_none_is_named() -> None:
    with pytest.raises(InputError, match="node 1 stands before its parent"):
        tree_values(np.array([-1, 2, 0]), np.zeros(3))
    with pytest.raises(InputError, match="node 2 stands before its parent"):  # it is its own
        tree_values(np.array([-1, 0, 2]), np.zeros(3))
    with pytest.raises(InputError, match="leaf 1 has no reward"):
        tree_values(np.array([-1, 0]), np.array([0, np.nan]))
