"""[31] [213]: what a trained judge earns."""

from __future__ import annotations

import numpy as np
import pytest

from palaestra.algebra.parse import parse
from palaestra.algebra.turns import Turns
from palaestra.rewards.judged.verdicts import r1_reward, verdict_reward

A, B = "<answer>[[A]]</answer>", "<answer>[[B]]</answer>"


def test_consistency_multiplies_and_cannot_pay_for_a_wrong_verdict() -> None:
    turns = Turns({"result": [1, 1, 0, 0, 1], "consistent": [1, 0, 1, 0, -1], "formatted": [1, 1, 1, 1, 1]})
    np.testing.assert_allclose(np.asarray(r1_reward().evaluate(turns)), [2.0, 1.5, 0.5, 0.5, 1.0])


def test_a_check_that_failed_is_missing_not_one() -> None:
    turns = Turns({"result": [None, 1.0], "consistent": [1, 1], "formatted": [1, 1]})
    np.testing.assert_allclose(np.asarray(r1_reward().evaluate(turns)), [np.nan, 2.0])


@pytest.mark.parametrize(
    ("text", "label", "reward"),
    [
        (f"so {A}", "A", 1.0),
        (f"so {A}", "B", -1.0),
        (f"{B}", "B", 1.0),
        (f"{A} {B}", "A", -1.0),  # both
        (A + " " * 90, "A", -1.0),  # trailing text
        (A + " " * 58, "A", 1.0),  # 80 characters with the tag
        (A + " " * 59, "A", -1.0),
        (f"{B}{'x' * 90}{A}", "A", 1.0),  # the other one stands too far ahead to count
        ("A", "A", -1.0),  # no tag
        (None, "A", -1.0),
        (A, None, np.nan),
    ],
)
def test_the_parser(text: str | None, label: str | None, reward: float) -> None:
    turns = Turns({"action": [text, A], "label": [label, "A"]})
    np.testing.assert_array_equal(np.asarray(verdict_reward().evaluate(turns)), [reward, 1.0])


def test_both_are_texts_of_a_recipe() -> None:
    turns = Turns({"result": [1], "consistent": [1], "formatted": [0], "action": [A], "label": ["A"]})
    assert np.asarray(parse("r1_reward(weight=0.25)").evaluate(turns)).tolist() == [1.25]
    assert np.asarray(parse("verdict_reward(last=20)").evaluate(turns)).tolist() == [-1.0]
