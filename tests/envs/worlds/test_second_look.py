"""`SecondLook`: what is in view, and that a second look is worth something only to whoever uses its sign."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

from palaestra.envs.worlds import SecondLook
from palaestra.errors import InputError
from palaestra.testing import check_env


def test_it_keeps_the_protocol() -> None:
    check_env(SecondLook)
    check_env(partial(SecondLook, split="test"))


@pytest.mark.parametrize("split", ["train", "test"])
def test_signs_are_right_as_often_as_told(split: str) -> None:
    """A sign that is not drawn from the answer is right by chance, 1 in 4."""
    hits = np.zeros(2)
    env = SecondLook(classes=4, first=0.4, second=0.8, split=split)
    for seed in range(1500):
        for look in (0, 1):
            env.reset(seed) if not look else env.step({"student": 0})
            hits[look] += env.state.sign == env.state.label
    np.testing.assert_allclose(hits / 1500, [0.4 + 0.6 / 4, 0.8 + 0.2 / 4], atol=0.04)


def test_what_is_out_of_range_is_refused() -> None:
    with pytest.raises(InputError, match="classes=1 at least 2"):
        SecondLook(classes=1)


def test_success_is_that_of_the_second_answer_and_new_items_have_any_label() -> None:
    env, labels = SecondLook(items=2, classes=3, split="test"), set()
    for seed in range(40):
        env.reset(seed)
        label = env.state.label
        labels.add(label)
        right = seed % 2
        env.step({"student": (label + right) % 3})
        last = env.step({"student": (label + 1 - right) % 3})
        assert (last.info["right"], last.info["success"], last.terminated) == (float(right), bool(right), True)
    assert labels == {0, 1, 2}
