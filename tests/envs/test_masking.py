"""Masked texts: what may be masked, how many masks, and that nothing is lost."""

from __future__ import annotations

import numpy as np
import pytest

from palaestra.envs.masking import mask_entities
from palaestra.errors import InputError

TEXT = "Oslo lies south of Bergen, north of Malmo and east of Stavanger."


def test_masks_are_numbered_from_the_beginning_and_restore_the_text() -> None:
    rng = np.random.default_rng(0)
    for number in (1, 2, 3, 9):
        made = mask_entities(TEXT, "Oslo", ["Stavanger", "Malmo", "Bergen"], rng, number=number)
        assert made is not None
        assert len(made.answers) == min(number, 3)
        assert list(made.answers) == sorted(made.answers, key=TEXT.index)
        assert made.filled(made.answers) == TEXT
        assert made.filled(["?"] * 3).count("?") == len(made.answers)


def test_of_two_candidates_one_or_two_are_masked() -> None:
    rng = np.random.default_rng(0)
    found = [mask_entities(TEXT, "Oslo", ["Malmo", "Bergen"], rng) for _ in range(40)]
    assert {len(each.answers) for each in found if each is not None} == {1, 2}


def test_what_cannot_be_a_task_is_none() -> None:
    rng = np.random.default_rng(0)
    assert mask_entities(TEXT, "Rome", ["Malmo"], rng) is None
    assert mask_entities(TEXT, "Oslo", ["Oslo", "of"], rng) is None
    with pytest.raises(InputError, match="number=0"):
        mask_entities(TEXT, "Oslo", ["Malmo"], rng, number=0)
