"""[35]: a judge with a tool, and one that is asked last."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import polars as pl
import pytest

from palaestra.errors import InputError
from palaestra.judges import SCORERS, Cascade, Scorer, StubJudge, ToolScorer
from palaestra.judges.scorers import build


class Reads:
    """Scores 1 where the response is what the tool says."""

    name = "reads"

    def score(self, rows, *, reference=None, condition=None):
        return (rows["response"] == rows["observation"]).cast(pl.Float64)


class Estimates:
    """Scores products by their distance from an estimate that is 2 % off."""

    name = "estimates"

    def __init__(self, seed=0):
        self.rng = np.random.default_rng(seed)

    def score(self, rows, *, reference=None, condition=None):
        product = (rows["a"] * rows["b"]).to_numpy()
        guess = product * (1 + 0.02 * self.rng.normal(size=len(product)))
        return pl.Series(-np.abs(rows["response"].cast(pl.Int64).to_numpy() - guess) / product - 1)


def products(n: int, seed: int = 0) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Right and wrong products of two-digit numbers; the wrong ones are off by 1 or 2."""
    rng = np.random.default_rng(seed)
    a, b = rng.integers(10, 100, (2, n))
    off = rng.choice([-2, -1, 1, 2], n)
    tables = [pl.DataFrame({"a": a, "b": b, "response": (a * b + d).astype(str)}) for d in (np.zeros(n, int), off)]
    return tables[0], tables[1]


@pytest.mark.parametrize(("works", "wanted"), [(1.0, 1.0), (0.9, 0.95), (0.5, 0.754)])
def test_accuracy_is_how_often_the_tool_works_and_chance_for_the_rest(works: float, wanted: float) -> None:
    rng, (right, wrong) = np.random.default_rng(1), products(4000)
    up = rng.random(4000) < works
    rows = [t.with_columns(up=pl.Series(up)) for t in (right, wrong)]  # a tool is down for both answers of a question
    judge = ToolScorer(Reads(), Estimates(), lambda row: str(row["a"] * row["b"]) if row["up"] else None, cost=0.02)
    better, worse = (judge.score(table) for table in rows)
    won = (better > worse).cast(pl.Float64) + (better == worse) * 0.5
    assert won.mean() == pytest.approx(wanted, abs=0.015)
    assert (len(judge.calls), judge.calls["cost"].sum()) == (4000, pytest.approx(80.0))
    assert judge.calls["role"].unique().to_list() == ["judge"]
    assert judge.calls["ok"].sum() == up.sum()


def test_a_tool_that_raises_is_no_verdict() -> None:
    right, _ = products(5)

    def broken(row):
        raise OSError("down")

    judge = ToolScorer(Reads(), Estimates(), broken)
    assert judge.score(right).null_count() == 0
    assert not judge.calls["ok"].any()
    assert isinstance(judge, Scorer)
    assert judge.score(right.clear()).to_list() == []


def test_a_cascade_asks_the_dear_one_last() -> None:
    asked = []

    class Rule:
        name = "rule"

        def score(self, rows, *, reference=None, condition=None):
            return pl.Series([None if x is None else float(x) for x in rows["known"]], dtype=pl.Float64)

    class Dear(StubJudge):
        def score(self, rows, *, reference=None, condition=None):
            asked.append(len(rows))
            return super().score(rows, reference=reference)

    rows = pl.DataFrame({"known": [1, None, 0, None], "truth": [1, 1, 0, 0]})
    cascade = Cascade([Rule(), Dear([[1, 0], [0, 1]])])
    assert cascade.score(rows).to_list() == [1, 1, 0, 0]
    assert asked == [2]
    assert cascade.asked.to_list() == ["rule", "stub", "rule", "stub"]
    assert Cascade([Rule()]).score(rows).to_list() == [1, None, 0, None]
    assert SCORERS.build('cascade(["stub(right=1.0)"])').score(rows).to_list() == [1, 1, 0, 0]
    with pytest.raises(InputError, match="a scorer at least"):
        Cascade([])


def test_a_tool_by_name_and_scorers_by_text() -> None:
    scorer = build(f"tooled('stub(right=1)', 'stub(right=1)', '{__name__}:silent', cost=0.5)")
    assert scorer.score(pl.DataFrame({"truth": [1, 0]})).to_list() == [1.0, 0.0]
    assert scorer.calls.select("ok", "cost").rows() == [(False, 0.5)] * 2


def silent(row: Mapping[str, Any]) -> str | None:
    return None
