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


class Asked:
    """Draws that say what they were asked for: the largest number, and the first candidate."""

    def __init__(self) -> None:
        self.ranges: list[tuple[int, int]] = []
        self.draws: list[tuple[int, int, bool]] = []
        self.chances: list[list[float]] = []

    def integers(self, low: int, high: int) -> int:
        self.ranges.append((low, high))
        return high - 1

    def choice(self, count: int, draws: int, *, p: np.ndarray, replace: bool = True) -> np.ndarray:
        self.draws.append((count, draws, replace))
        self.chances.append(p.tolist())
        return np.zeros(1, int)


def test_how_many_are_drawn_and_with_which_chances() -> None:
    """Four of four or more, three or four of three, one to all of fewer; three words count thrice."""
    names, asked = ["Bergen", "Malmo Old Town", "7", "Bodo", "Voss"], Asked()
    text = "Oslo: Bergen, Malmo Old Town, 7, Bodo and Voss."
    for count in (5, 4, 3, 2, 1):
        mask_entities(text, "Oslo", names[:count], asked)  # type: ignore[arg-type]
    mask_entities(text, "Oslo", names[:3], asked, number=2)  # type: ignore[arg-type]
    assert asked.ranges == [(3, 5), (1, 3), (1, 2)]
    assert asked.draws == [(5, 4, True), (4, 4, True), (3, 4, True), (2, 2, True), (1, 1, True), (3, 2, False)]
    np.testing.assert_allclose(asked.chances[0], np.array([1, 3, 3, 1, 1]) / 9)
    np.testing.assert_allclose(asked.chances[5], np.array([1, 3, 3]) / 7)


def test_a_number_is_masked_where_it_stands() -> None:
    """The 1 of `[mask 1]` is no 1 of the text: each mask stands where its answer stood."""
    made = mask_entities(
        "Oslo and Bergen won 1 of 2 games.", "Oslo", ["Bergen", "1", "2"], np.random.default_rng(0), number=3
    )
    assert made == ("Oslo and [mask 1] won [mask 2] of [mask 3] games.", ("Bergen", "1", "2"))


def test_entities_that_overlap_have_one_mask() -> None:
    """`Mary Ann` begins first, and as early as `Mary`: each text has as many masks as answers."""
    rng, names = np.random.default_rng(0), ["Ann", "Ann Lee", "Mary", "Mary Ann"]
    made = mask_entities("Oslo is where Mary Ann Lee lives.", "Oslo", names, rng, number=4)
    assert made == ("Oslo is where [mask 1] Lee lives.", ("Mary Ann",))
    assert made.filled(["Eve"]) == "Oslo is where Eve Lee lives."


def test_the_title_is_left_whole() -> None:
    """Neither a word of it is masked, nor what the title is a part of, where it stands nowhere else."""
    rng, text = np.random.default_rng(0), "Ada Byron of London; the Ada Byron Hall is there."
    made = mask_entities("Ada Byron of London", "Ada Byron", ["Byron", "London"], rng, number=2)
    assert made == ("Ada Byron of [mask 1]", ("London",))
    assert mask_entities("On Ada Byron Hall", "Ada Byron", ["Ada Byron Hall"], rng) is None
    made = mask_entities(text, "Ada Byron", ["Ada Byron Hall"], rng)
    assert made == ("Ada Byron of London; the [mask 1] is there.", ("Ada Byron Hall",))


def test_what_cannot_be_a_task_is_none() -> None:
    rng = np.random.default_rng(0)
    assert mask_entities(TEXT, "Rome", ["Malmo"], rng) is None
    assert mask_entities(TEXT, "Oslo", ["Oslo", "of"], rng) is None
    with pytest.raises(InputError, match="number=0"):
        mask_entities(TEXT, "Oslo", ["Malmo"], rng, number=0)
