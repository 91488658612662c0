"""Scores of an answer against the right one, by name: `exact`, `number`, `math`, `choice`, or `module:name`.

Each takes (answer, expected) and returns a number of at most 1; an answer that it cannot read is a ValueError, whatever
else it raises fails the episode. What a reply is made of is taken apart before (`palaestra.envs.replies`).
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from fractions import Fraction
from importlib.util import find_spec
from typing import cast

from palaestra.envs.task_keys import normalise
from palaestra.errors import InputError, missing_extra, nearest
from palaestra.foundation.registry import load_object

Score = Callable[[str, str], float]

_NUMBER = re.compile(r"[-+]?(?:\d[\d,]*(?:\.\d+)?|\.\d+)(?:[eE][-+]?\d+)?(?:\s*/\s*\d+)?")
FINAL = "####"
"""Mark before the final answer in GSM8K's solutions."""


def exact(answer: str, expected: str) -> float:
    """Score 1 if two texts are equal after `normalise` (case, white space, final punctuation), else 0.

    >>> exact(" The Nile. ", "the nile")
    1.0
    """
    return float(normalise(answer) == normalise(expected))


def read_number(text: str) -> float:
    """Last number in a text as float; commas, exponents and fractions are read, `50%` is 50; ValueError without one.

    Raises:
        ValueError: there is none.

    >>> read_number("so 3 of them cost $1,250.50."), read_number("#### 3/4")
    (1250.5, 0.75)
    """
    found = _NUMBER.findall(text.rpartition(FINAL)[2])
    if not found:
        raise ValueError(f"no number in {text[:60]!r}")
    plain = found[-1].replace(",", "").replace(" ", "")
    return float(Fraction(plain)) if "/" in plain and not plain.endswith("/0") else float(plain.split("/")[0])


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
    """Score 1 if both texts name the same choice by its letter, `b`, `(B)`, `B) Paris`, `B: …`, else 0.

    >>> choice("(b) Paris", "B"), choice("c", "B")
    (1.0, 0.0)
    """
    return float(_letter(answer) == _letter(expected))


def _letter(text: str) -> str:
    found = re.match(r"\W*([A-Za-z])(?![A-Za-z'’])", text.strip())
    if not found:
        raise ValueError(f"no letter of a choice in {text[:60]!r}")
    return found[1].upper()


SCORES: dict[str, Score] = {"exact": exact, "number": number, "math": same_mathematics, "choice": choice}


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
