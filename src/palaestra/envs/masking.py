"""`mask_entities`: a text becomes a task by masking what cannot be guessed; nobody has to write a question."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from palaestra.errors import InputError

MOST = 4
"""Masks of one text."""


class MaskedText(NamedTuple):
    """Data of a text in which entities are replaced by `[mask 1]`, `[mask 2]` …, with the hidden entities.

    Attributes:
        text: The text with its masks, numbered from its beginning on.
        answers: What each mask stands for.
    """

    text: str
    answers: tuple[str, ...]

    def filled(self, answers: Sequence[str]) -> str:
        """The text with these answers in place of the masks."""
        text = self.text
        for number, answer in enumerate(answers, 1):
            text = text.replace(f"[mask {number}]", answer)
        return text


def mask_entities(
    text: str, title: str, entities: Sequence[str], rng: np.random.Generator, *, number: int | None = None
) -> MaskedText | None:
    """`MaskedText` of a titled text with one to four drawn `entities` masked (MaskSearch, arXiv 2505.20285), or None.

    None if no entity can be masked, the title is not in the masked text, or a mask would stand at its beginning.

    Candidates stand in the text exactly once and are no part of its title. Their chance is proportional to their number
    of words, for one with a digit to the largest of all. At most four are drawn: of four candidates or more four, of
    three three or four, of fewer at least one, all with replacement, so that there may be fewer masks than draws. Of
    two drawn entities that overlap, such as a name and its last word, the one that begins first is masked.

    Args:
        text: The text.
        title: What it is about, which is never masked.
        entities: What may be masked.
        rng: Draws of how many and which.
        number: Number of different entities to draw instead, or as many as there are.

    Returns:
        The masked text; None if nothing can be masked, the title is not in it, or a mask would begin it.

    Raises:
        InputError: `number` is less than 1.
    """
    if number is not None and number < 1:
        raise InputError(f"mask_entities: number={number} must be at least 1")
    once = [each for each in dict.fromkeys(entities) if each and each not in title and text.count(each) == 1]
    if not once:
        return None
    words = np.array([len(each.split()) for each in once], float)
    digits = np.array([any(letter.isdigit() for letter in each) for each in once])
    weight = np.where(digits, words.max(), words)
    if number is None:
        draws = (
            MOST if len(once) >= MOST else int(rng.integers(3, 5) if len(once) == 3 else rng.integers(1, len(once) + 1))
        )
        drawn = set(rng.choice(len(once), draws, p=weight / weight.sum()).tolist())
    else:
        drawn = set(rng.choice(len(once), min(number, len(once)), replace=False, p=weight / weight.sum()).tolist())
    parts, answers, end = list[str](), list[str](), 0
    for each in sorted((once[place] for place in drawn), key=lambda one: (text.index(one), -len(one))):
        at = text.index(each)
        if at >= end:
            answers.append(each)
            parts.append(f"{text[end:at]}[mask {len(answers)}]")
            end = at + len(each)
    masked = "".join(parts) + text[end:]
    return None if text.startswith(answers[0]) or title not in masked else MaskedText(masked, tuple(answers))
