from __future__ import annotations

import math

import pytest

from palaestra.interface.report.formatting import number, p_value, points, prose, seconds, short_verdict, span
from palaestra.interface.report.load import Interval


@pytest.mark.parametrize("value", [None, math.nan, math.inf, "text", True])
def test_what_is_not_a_number_is_a_dash(value: object) -> None:
    assert number(value) == seconds(value) == p_value(value) == "–"


def test_numbers() -> None:
    assert number(-0.5) == "−0.5"
    assert number(0.12345) == "0.123"
    assert number(1234567) == "1,234,567"
    assert number(999.7) == number(999.5) == "1,000", "not 1e+03"
    assert number(0, signed=True) == "0"
    assert number(3.0, signed=True) == "+3"
    assert number(0.5, percent=True) == "50.0\u00a0%"
    assert points(-0.0312) == "−3.1"
    assert points(0.75, percent=False) == "+0.75"


def test_spans() -> None:
    value = Interval(0.2, -0.1, 0.5)
    assert span(value, percent=True) == "−10.0 to 50.0\u00a0%"
    assert span(value, percent=True, difference=True) == "−10.0 to +50.0"
    assert span(value) == "−0.1 to 0.5"
    assert span(Interval(0.2)) == span(None) == ""


def test_durations() -> None:
    assert [seconds(s) for s in (0.04, 59.94, 59.96, 61, 3600)] == [
        "0.0 s",
        "59.9 s",
        "1 min 0 s",
        "1 min 1 s",
        "1 h 0 min",
    ]


def test_sentences_have_the_style_of_numbers() -> None:
    said = "worse by -3.5 points (95 % interval -5.0 to -2, 30 tasks x 4 trials); gpt-4-0125 at 50%, 2026-01-02"
    assert prose(said) == (
        "worse by −3.5 points (95\u00a0% interval −5.0 to −2, 30 tasks × 4 trials); gpt-4-0125 at 50\u00a0%, 2026-01-02"
    )
    assert short_verdict("a against b: cannot tell: p = 0.07 after correction: -3 points") == "a against b: cannot tell"
