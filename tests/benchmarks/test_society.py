"""A society at a slow endpoint, smaller and faster than the benchmark plays it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest


@pytest.fixture
def society(monkeypatch: pytest.MonkeyPatch):  # type: ignore[no-untyped-def]
    monkeypatch.syspath_prepend(Path(__file__).parents[2] / "benchmarks")
    import society

    yield society
    del sys.modules["society"]


def test_everybody_is_asked_at_once(society) -> None:  # type: ignore[no-untyped-def]
    found = society.society(seats=12, rounds=3, latency=0.2)
    assert found.rows == found.paid == 12 * 3 + 2, "each answer is a turn, and paid once"
    assert found.chain == pytest.approx(5 * 0.2)
    assert found.wall < 3 * found.chain, "one after the other they would take 7.6 s"


def test_a_seat_whose_endpoint_fails_is_skipped_and_heard_again(society) -> None:  # type: ignore[no-untyped-def]
    found = society.outage(seats=6, rounds=8, latency=0.05, down=1.0)
    assert (found.answered, found.paid, found.twice) == (found.others, found.others, 0) == (40, 40, 0)
    assert found.errors >= 1, "its rows say that it could not answer"
    assert found.heard >= 1, "its endpoint is asked again"
    assert found.errors + found.heard + 1 == 8
    assert found.seat_paid == found.heard + 1
