"""Scores of an answer against the right one, by name: `exact`, `number`, `math`, `choice`, or `module:name`.

Each takes (answer, expected) and returns a number of at most 1; an answer that it cannot read is a ValueError, whatever
else it raises fails the episode. What a reply is made of is taken apart before (`palaestra.envs.replies`).
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from importlib.util import find_spec
from typing import cast

from palaestra.envs.task_keys import normalise
from palaestra.errors import InputError, missing_extra, nearest
from palaestra.foundation.registry import load_object

Score = Callable[[str, str], float]

_THOUSANDS = r"(?:,|\{,\}|\\,|[\u00a0\u2009\u202f])"
_PLAIN = rf"(?:(?:\d{{1,3}}(?:{_THOUSANDS}\d{{3}})+(?!\d)|\d+)(?:\.\d+)?|\.\d+)(?:[eE][-+\u2212]?\d+)?"
_NUMBER = re.compile(rf"((?<![\w)\]}}])[-+\u2212\u2013])?({_PLAIN})(?:\s*/\s*({_PLAIN}))?(\s*\\?%)?")
FINAL = "####"
"""Mark before the final answer in GSM8K's solutions."""


def exact(answer: str, expected: str) -> float:
    """Score 1 if two texts are equal after `normalise` (case, white space, final punctuation), else 0.

    >>> exact(" The Nile. ", "the nile")
    1.0
    """
    return float(normalise(answer) == normalise(expected))


def numbers_in(text: str, *, divide: bool = True, percent: float = 1.0) -> list[float]:
    r"""Numbers in a text as floats: signs, exponents, leading dots, fractions, and thousands in threes are read.

    A sign behind a word or a number is none, `10-7`. Ordinary spaces separate numbers; `{,}`, `\,` and thin or
    unbreakable spaces may be between thousands.

    Args:
        text: what somebody wrote.
        divide: `4/5` is 0.8; False: it is 4, as in marks.
        percent: value of 1%.

    >>> numbers_in("so 1,250.50 and 3,4 of \u2212.5, or 10-7"), numbers_in("4/5"), numbers_in("80%", percent=0.01)
    ([1250.5, 3.0, 4.0, -0.5, 10.0, 7.0], [0.8], [0.8])
    """
    found = []
    for sign, over, under, share in _NUMBER.findall(text):
        value = _float(over)
        if divide and under and _float(under):
            value /= _float(under)
        found.append((-value if sign in ("-", "\u2212", "\u2013") else value) * (percent if share else 1.0))
    return found


def _float(plain: str) -> float:
    return float(re.sub(_THOUSANDS, "", plain).replace("\u2212", "-"))


def read_number(text: str) -> float:
    """Last number in a text as float, of a solution in GSM8K's form the one behind `####`; `50%` is 50.

    Raises:
        ValueError: there is none.

    >>> read_number("so 3 of them cost $1,250.50."), read_number("#### 3/4")
    (1250.5, 0.75)
    """
    found = numbers_in(text.rpartition(FINAL)[2])
    if not found:
        raise ValueError(f"no number in {text[:60]!r}")
    return found[-1]


def number(answer: str, expected: str) -> float:
    """Score 1 if the last numbers in both texts are equal within 1e-6 relative, else 0; ValueError without one.

    >>> number("It is 1,000.", "#### 1000")
    1.0
    """
    return float(math.isclose(read_number(answer), read_number(expected), rel_tol=1e-6, abs_tol=1e-9))


def same_mathematics(answer: str, expected: str) -> float:
    """Score 1 if Math-Verify finds two expressions equal, else 0; ValueError if the answer is no expression.

    LaTeX, fractions, sets, intervals, units.

    Raises:
        MissingExtraError: math-verify is not installed.
        ValueError: the answer is no expression.
    """
    if find_spec("math_verify") is None:
        raise missing_extra("math-verify", "math")
    from math_verify import parse, verify

    # its own time limit needs the main thread; the env's timeout bounds this
    right, said = (
        parse(text if "$" in text or "\\boxed" in text else f"${text}$", parsing_timeout=None)
        for text in (expected.rpartition(FINAL)[2].strip(), answer)
    )
    if not said:
        raise ValueError(f"no expression in {answer[:60]!r}")
    return float(verify(right, said, timeout_seconds=None))


def choice(answer: str, expected: str) -> float:
    """Score 1 if both texts name the same choice by its letter, `b`, `(B)`, `B) Paris`, `the answer is B`, else 0.

    Raises:
        ValueError: one of them names none: a word is no letter, even `A` or `I`.

    >>> choice("(b) Paris", "B"), choice("c", "B"), choice("A good answer is B", "A")
    (1.0, 0.0, 0.0)
    """
    return float(read_letter(answer) == read_letter(expected))


_ENDED = r"(?=[\W_]*\Z|[ \t]*[\n)\]}(:,;*_`–—]|\.(?!\w)|[ \t]+-[ \t])"
"""Nothing follows a letter, or a mark that does not follow an article or a pronoun."""
_FIRST = re.compile(rf"[\W_]*([A-Za-z]){_ENDED}")
_SAID = re.compile(
    r"(?:\b(?i:answer)(?:\s+(?i:is|would\s+be)|\s*:)(?:\s+(?i:option|choice))?|\A\W*(?i:option|choice))"
    rf"[\W_]+([A-HJ-Z](?![\w'’]|[.-]\w)|[A-Za-z]{_ENDED})"
)


def read_letter(text: str) -> str:
    """Letter, in capitals, of the choice that a text names.

    Raises:
        ValueError: it names none.

    >>> read_letter("b) Paris")
    'B'
    """
    first = _FIRST.match(text)
    found = [first[1]] if first else _SAID.findall(text)
    if not found:
        raise ValueError(f"no letter of a choice in {text[:60]!r}")
    return found[-1].upper()


SCORES: dict[str, Score] = {"exact": exact, "number": number, "math": same_mathematics, "choice": choice}

SAYS: dict[str, Callable[[str], str]] = {"number": lambda text: repr(read_number(text)), "choice": read_letter}
"""Functions from an answer to its meaning by the name of its score, where that is not the normalised text."""


def score_of(named: str) -> Score:
    """Looks up the score function (answer, expected) -> float by name, or imports that of `module:name`.

    Raises:
        InputError: there is none.
        MissingExtraError: it needs a package that is not installed.
    """
    if ":" in named:
        return cast(Score, load_object(named, "dataset: score"))
    if named not in SCORES:
        raise InputError(f"dataset: score={named!r}{nearest(named, SCORES)} (or module:name)")
    if named == "math" and find_spec("math_verify") is None:
        raise missing_extra("math-verify", "math")
    return SCORES[named]
