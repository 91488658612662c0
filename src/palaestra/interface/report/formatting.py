"""How numbers look: one place, so that the tables, the headline, the sentences and the plots agree."""

from __future__ import annotations

import math
import re
from typing import Any

from palaestra.interface.report.load import Interval

ABSENT = "–"
PERCENT = "\u00a0%"
"""With a space that does not break."""


def number(value: Any, *, percent: bool = False, signed: bool = False) -> str:
    r"""Text of a number: three significant digits, integers in full, or a percentage; a dash if it is not finite.

    >>> number(0.5234), number(0.5234, percent=True), number(-0.02, signed=True), number(12345)
    ('0.523', '52.3\xa0%', '−0.02', '12,345')
    """
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return ABSENT
    if percent:
        text = f"{100 * value:{'+' if signed else ''}.1f}{PERCENT}"
    elif value == int(value) or abs(value) >= 999.5:  # beyond it three digits are written 1e+03
        text = f"{round(value):{'+' if signed and value else ''},d}"
    else:
        text = f"{value:{'+' if signed else ''}.3g}"
    return text.replace("-", "−")


def points(value: Any, *, percent: bool = True) -> str:
    """Text of a difference with its sign, in percentage points if the measure is a share.

    >>> points(0.214), points(-1.5, percent=False)
    ('+21.4', '−1.5')
    """
    return number(value, percent=True, signed=True).removesuffix(PERCENT) if percent else number(value, signed=True)


def span(value: Interval | None, *, percent: bool = False, difference: bool = False) -> str:
    """Text of an `Interval`, `15.2 to 27.3`; empty for None, or if an end is missing."""
    if value is None or value.low is None or value.high is None:
        return ""
    if difference:
        return f"{points(value.low, percent=percent)} to {points(value.high, percent=percent)}"
    low, high = number(value.low, percent=percent), number(value.high, percent=percent)
    return f"{low.removesuffix(PERCENT)} to {high}"


def seconds(value: Any) -> str:
    """Text of a duration in seconds, such as `3 min 12 s`; a dash if it is no finite number.

    >>> seconds(4.21), seconds(192), seconds(7260)
    ('4.2 s', '3 min 12 s', '2 h 1 min')
    """
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return ABSENT
    if value < 59.95:
        return f"{value:.1f} s"
    minutes, rest = divmod(round(value), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    return f"{minutes // 60} h {minutes % 60} min"


def p_value(value: Any) -> str:
    """Text of a p-value with three decimals, or `< 0.001`; a dash if it is no finite number.

    >>> p_value(0.00002), p_value(0.034)
    ('< 0.001', '0.034')
    """
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return ABSENT
    return "< 0.001" if value < 0.001 else f"{value:.3f}"


def prose(text: str) -> str:
    r"""The text of a sentence typeset for the page: true minus signs and crosses, non-breaking spaces before `%`.

    >>> prose("worse by -3.5 points (95 % interval -5 to -2, 30 tasks x 4 trials), not half-baked gpt-4")
    'worse by −3.5 points (95\xa0% interval −5 to −2, 30 tasks × 4 trials), not half-baked gpt-4'
    """
    text = re.sub(r"(?<![\w.)])-(?=[\d.])", "−", text)
    text = re.sub(r"(?<=\d) x (?=\d)|(?<=tasks) x (?=\d)|(?<=task) x (?=\d)", " × ", text)
    return re.sub(r"(?<=\d) ?%", PERCENT, text)


def short_verdict(verdict: str) -> str:
    """Text of a verdict shortened for a title, cut before brackets: `better by +21.0 points`, `cannot tell`.

    >>> short_verdict("cannot tell: the interval contains 0: +2.0 points (95 % interval -1 to +5)")
    'cannot tell'
    >>> short_verdict("demo: better by +24.0 points (95 % interval +19 to +29)")
    'demo: better by +24.0 points'
    """
    head = prose(verdict.partition(" (")[0])
    before, cannot, _ = head.partition("cannot tell")
    return before + cannot if cannot else head
