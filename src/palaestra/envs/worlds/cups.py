"""`Cups`: a ball under one of some cups, pages of swaps, and the question where it is in the end.

Each page is easy, one swap after the other; all of them at once are a product of permutations, which a network of a
fixed depth cannot follow for any number of pages (five cups and more, unless TC0 = NC1: Barrington 1989; Merrill and
Sabharwal, arXiv 2207.00729).
So it is a task for several readers of one page each, or for somebody who writes down where the ball is.
"""

from __future__ import annotations

import itertools
import string
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from palaestra.envs.registry import ENVS
from palaestra.envs.tasks import Task, TaskEnv
from palaestra.errors import InputError

PAGE = " / "
FILLER = ("look", "now", "here", "slowly", "watch", "again")


@ENVS.register("native/cups")
class Cups(TaskEnv):
    """One-turn env of the shell game: the question lists swaps of cups; reward 1 for naming the ball's final cup.

    `c ab de / be / ad ac`: it starts under c, then a and b are swapped, d and e, and so on.

    The parts of the question are its pages, each of 1 to `swaps` swaps and up to `filler` words that mean nothing; the
    first says where the ball is. The last word of an answer counts, so that one may note where the ball is after each
    page. cups: 3 to 26.
    """

    def __init__(self, *, cups: int = 5, pages: int = 6, swaps: int = 1, filler: int = 2) -> None:
        if not 3 <= cups <= 26 or pages < 1 or swaps < 1 or filler < 0:
            raise InputError(
                f"Cups: 3 <= cups={cups} <= 26, pages={pages} and swaps={swaps} of at least 1, filler={filler} of 0"
            )
        self.pages, self.swaps, self.filler = pages, swaps, filler
        self.cups = string.ascii_lowercase[:cups]
        self.pairs = ["".join(pair) for pair in itertools.combinations(self.cups, 2)]

    def draw(self, seed: int) -> Task:
        """The question with the pages of swaps that are drawn from `seed`."""
        # all luck at once: a call for each number costs more than the rest of the episode
        luck = iter(np.random.default_rng(seed).random(1 + self.pages * (2 + self.swaps + 2 * self.filler)).tolist())

        def one_of(choices: Sequence[Any]) -> Any:
            return choices[int(next(luck) * len(choices))]

        start, pages, texts = one_of(self.cups), [], []
        for _ in range(self.pages):
            pages.append([one_of(self.pairs) for _ in range(one_of(range(self.swaps)) + 1)])
            words = list(pages[-1])
            for _ in range(one_of(range(self.filler + 1))):
                words.insert(one_of(range(len(words) + 1)), one_of(FILLER))
            texts.append(" ".join(words))
        parts = (f"{start} {texts[0]}", *texts[1:])
        question, answer = PAGE.join(parts), follow(start, (swap for page in pages for swap in page))
        return Task(question, question, lambda text: float(text.split()[-1] == answer), answer, parts)


def follow(ball: str, swaps: Iterable[str]) -> str:
    """The cup (a letter) that holds the ball after the swaps, from its first cup `ball`.

    >>> follow("c", ["ab", "bc", "ab"])
    'a'
    """
    for swap in swaps:
        if ball in swap:
            ball = swap[1] if ball == swap[0] else swap[0]
    return ball


def reader(request: Any, *, cups: str, accuracy: float, notes: bool) -> str:
    """Answer in `native/cups`: follows the ball (by page with `notes`), with chance 1 - `accuracy` any of `cups`.

    notes: says where the ball is after each page, each right if the one before was; else where it is in the end.
    """
    text, _, heard = request.observation.text.partition(" | ")
    pages = [[word for word in page.split() if word not in FILLER] for page in text.split(PAGE)]
    ball = pages[0].pop(0) if len(pages[0][0]) == 1 else heard.split()[-1] if heard.split() else cups[0]
    said = []
    for page in pages if notes else [[swap for each in pages for swap in each]]:
        ball = follow(ball, page)
        if request.rng.random() >= accuracy:
            ball = cups[int(request.rng.integers(len(cups)))]
        said.append(ball)
    return " ".join(said)
