"""Thinking: which of its tokens are learned from, and how a critic rewrites it while a judge says what to keep."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from palaestra.errors import InputError


def label_mask(
    tokens: Sequence[Any],
    open: Sequence[Any],
    close: Sequence[Any],
    *,
    method: Literal["fraction", "after_last"] = "after_last",
    p: float = 0.2,
    rng: np.random.Generator | None = None,
) -> np.ndarray:
    """Mask bool[tokens] to train on: those after the last `close`, or all but a share within `open` and `close`; [105].

    PRefLexOR, arXiv 2410.12375: what is left out is thinking.

    "fraction": all but int(n·p) of the n tokens strictly inside each pair of marks, drawn from rng. "after_last": only
    what stands behind the last closing mark; all, if there is none. open, close: a mark as a sequence of tokens.

    Raises:
        InputError: the method is unknown, p is no share, a mark is empty.

    >>> label_mask("a<b>c<d>e", "<", ">").astype(int)
    array([0, 0, 0, 0, 0, 0, 0, 0, 1])
    """
    if method not in ("fraction", "after_last") or not 0 <= p <= 1 or not open or not close:
        raise InputError(
            f"label_mask: method={method!r} is 'fraction' or 'after_last', p={p} in [0, 1], marks not empty"
        )
    given, size = list(tokens), len(tokens)
    starts, ends = _places(given, list(open)), _places(given, list(close))
    if method == "after_last":
        keep = np.ones(size, bool)
        if ends:
            keep[: ends[-1] + len(close)] = False
        return keep
    keep, rng = np.ones(size, bool), np.random.default_rng(0) if rng is None else rng
    for start in starts:
        begin = start + len(open)
        end = next((place for place in ends if place >= begin), None)
        if end is not None:
            keep[begin + rng.permutation(end - begin)[: int((end - begin) * p)]] = False
    return keep


def _places(given: list[Any], mark: list[Any]) -> list[int]:
    return [at for at in range(len(given) - len(mark) + 1) if given[at : at + len(mark)] == mark]


@dataclass(frozen=True)
class Refined:
    """Result data of a refinement: the final answer, all answers in order, and their scores (empty: no judge)."""

    answer: str
    answers: tuple[str, ...]
    scores: tuple[float, ...]


def refine(
    answer: Callable[[str, str | None], tuple[str, str]],
    critic: Callable[[str, str, str], str],
    question: str,
    *,
    rounds: int = 3,
    best_by: Callable[[str, str], float] | None = None,
    merge: Callable[[str, Sequence[str]], str] | None = None,
) -> Refined:
    """Calls `answer` on a question `rounds` times, a critic rewriting the thinking in between: a `Refined` ([105]).

    As in PRefLexOR. Nothing promises that a round improves: with `best_by` the answer of the highest score counts (of
    equal ones the first), with `merge` one that is made of all, without either the last.

    Args:
        answer: (question, thinking to go on from, or None) to (thinking, answer).
        critic: (question, thinking, answer) to a new thinking.
        question: what is to be answered.
        rounds: how often the thinking is rewritten, at least 1.
        best_by: (question, answer) to a score.
        merge: (question, answers) to an answer.

    Raises:
        InputError: rounds is below 1, or both best_by and merge are given.
    """
    if rounds < 1 or (best_by is not None and merge is not None):
        raise InputError(f"refine: rounds={rounds} must be at least 1, and best_by or merge, not both")
    thinking: str | None = None
    answers: list[str] = []
    for number in range(rounds):
        thought, said = answer(question, thinking)
        answers.append(said)
        if number < rounds - 1:
            thinking = critic(question, thought, said)
    if merge is not None:
        return Refined(merge(question, answers), tuple(answers), ())
    if best_by is None:
        return Refined(answers[-1], tuple(answers), ())
    scores = [float(best_by(question, said)) for said in answers]
    return Refined(answers[int(np.argmax(scores))], tuple(answers), tuple(scores))
