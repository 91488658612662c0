"""Rewards and periods of a pipeline's modules: what is refused and missing; the worked numbers are row [210]'s."""

from __future__ import annotations

import numpy as np
import pytest

from palaestra.algebra.turns import Turns
from palaestra.envs.worlds import Rag
from palaestra.errors import ExpressionError, InputError
from palaestra.rewards import mmoa_rag_reward, outcome_reward, rewriting_penalty, role_periods


def test_an_episode_without_an_answer_has_no_reward() -> None:
    rows = {"group": [0, 0], "episode": [0, 1], "agent": ["rewriter"] * 2, "action": ["a"] * 2, "found": [[1]] * 2}
    found = np.asarray(mmoa_rag_reward().evaluate(Turns(rows | {"answer_f1": [None, 0.5]})), float)
    np.testing.assert_array_equal(found, [np.nan, 0.5])


def test_a_verdict_that_is_missing_is_no_failure() -> None:
    rows = {"group": [0, 0], "episode": [0, 1], "agent": ["a"] * 2, "yes": [None, 0.2]}
    np.testing.assert_array_equal(np.asarray(outcome_reward().evaluate(Turns(rows)), float), [np.nan, 0.0])


def test_a_period_is_a_pair() -> None:
    for wrong in (("rewriter", -1), ("rewriter",), "rewriter"):
        with pytest.raises(ExpressionError, match="no pair such as"):
            role_periods("x", wrong)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="questions=0"):
        Rag(questions=0)


def test_parts_without_words_are_no_sub_questions() -> None:
    said = ["a; b; c; d;", " ; a;; b\n\nc; d\n", "a; b; c; d; e;", None]
    found = np.asarray(rewriting_penalty().evaluate(Turns({"action": said})), float)
    np.testing.assert_array_equal(found, [0, 0, -0.5, 0])


def test_periods_begin_after_the_start() -> None:
    """After iteration 3 role a learns in even iterations alone; b, without a period, always."""
    rows = {
        "agent": ["a", "a", "a", "a", "a", "b"],
        "iteration": [1, 2, 3, 4, 5, 5],
        "x": [1.0, 2.0, 3.0, 4.0, 5.0, 6.0],
    }
    found = np.asarray(role_periods("x", ("a", 2), start=3).evaluate(Turns(rows)), float)
    np.testing.assert_array_equal(found, [1, 2, 3, 4, 0, 6])


def test_a_question_is_answered_only_by_its_own_document() -> None:
    """Rightly rewritten, also too long or in five parts, it finds its document, which alone states the fact."""
    for way in range(6):
        world = Rag(restricted=False)
        world.reset(4)
        question = world.state.question
        own, right = int(world.document[question]), way >= 4 or way == int(world.rewriting[question])
        found = world.step({"rewriter": way}).info["found"]
        assert sorted(found) == sorted({own, (own + 1) % 4} if right else {(own + 2) % 4, (own + 3) % 4})


def test_what_is_read_and_said_decides_the_answer() -> None:
    """Its own document states the fact, the other one that was found another, and one that was not found nothing.

    Three right words among forty others have an F1 of 2 · 3 / (43 + 3).
    """
    world = Rag(restricted=False)
    world.reset(4)
    own, fact, decoy = int(world.document[world.state.question]), world.state.fact, world.state.decoy
    assert fact != decoy
    for named, read in ((own, fact), ((own + 1) % 4, decoy), ((own + 2) % 4, None), (5, None)):
        world.reset(4)
        world.step({"rewriter": 4})
        world.step({"selector": named})
        assert world.state.read == read
    for said, f1 in ((fact, 1.0), (4, 6 / 46), (5, 0.0)):
        world.reset(4)
        world.step({"rewriter": 5})
        world.step({"selector": own})
        end = world.step({"generator": said})
        assert end.rewards["generator"] == end.info["answer_f1"] == pytest.approx(f1)
        assert end.info["success"] == (f1 == 1)
