"""The stub judge has the errors it was given, and what is made of votes has a rule for ties and failures."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
import pytest

from palaestra.errors import InputError, MissingColumnError
from palaestra.judges import StubJudge, aggregate, both_orders, order_balance, swap_consistent
from palaestra.judges.protocol import SCORERS, VERDICTS, Judge, Scorer

GUARD = [[0.75, 0.2, 0.05], [0.2, 0.6, 0.2], [0.05, 0.2, 0.75]]


def _rows(number: int, levels: int = 3) -> pl.DataFrame:
    return pl.DataFrame({"truth": np.random.default_rng(1).integers(levels, size=number)})


def test_its_errors_are_the_given_ones() -> None:
    rows = _rows(30_000)
    said = StubJudge(GUARD, seed=3).score(rows)
    table = rows.with_columns(said=said).group_by("truth").agg(pl.col("said").value_counts(normalize=True))
    for level, counts in table.rows():
        found = {int(each["said"]): each["proportion"] for each in counts}
        assert [found[j] for j in range(3)] == pytest.approx(GUARD[level], abs=0.015)


def test_the_same_rows_get_the_same_verdicts_and_more_samples_only_add() -> None:
    rows, stub = _rows(50), StubJudge(GUARD, parse_failure=0.2)
    few, many = stub.verdicts(rows, samples=2), stub.verdicts(rows, samples=5)
    assert few.equals(many.filter(pl.col("sample") < 2))
    assert dict(few.schema) == {"item": pl.UInt32} | VERDICTS
    assert isinstance(stub, Scorer)
    assert isinstance(stub, Judge)


def test_correlated_errors_are_shared_by_votes_and_by_judges_of_one_seed() -> None:
    rows = _rows(4000, 2)
    for correlation, least, most in ((0.0, -0.05, 0.05), (0.7, 0.44, 0.55), (1.0, 0.999, 1.001)):
        one, other = (StubJudge(error_correlation=correlation, name=name).score(rows) for name in "ab")
        wrong = [(each != rows["truth"]).cast(pl.Float64).to_numpy() for each in (one, other)]
        assert least <= np.corrcoef(wrong)[0, 1] <= most  # 0.7² of the pairs share their draw


def test_what_cannot_be_read_is_null_and_not_ok() -> None:
    verdicts = StubJudge(parse_failure=0.3).verdicts(_rows(5000, 2))
    assert verdicts["ok"].mean() == pytest.approx(0.7, abs=0.02)
    assert (verdicts["value"].is_null() == ~verdicts["ok"]).all()
    nothing = aggregate(StubJudge(parse_failure=1.0).verdicts(_rows(3, 2), samples=4))
    assert nothing["value"].to_list() == [None] * 3
    assert nothing["read"].to_list() == [0] * 3
    assert nothing["asked"].to_list() == [4] * 3


def test_a_love_for_what_comes_first_shows_in_the_balance_and_swapping_takes_it_out() -> None:
    rows, other = _rows(4000, 2), pl.DataFrame({"truth": np.random.default_rng(2).integers(2, size=4000)})
    fair, biased = (StubJudge([[1, 0], [0, 1]], position_bias=bias) for bias in (0.0, 0.4))
    assert order_balance(fair.verdicts(rows, reference=other)).row(0)[2:] == (4000, 1.0, pytest.approx(0.5, abs=0.03))
    balance = order_balance(biased.verdicts(rows, reference=other)).row(0, named=True)
    assert balance["first"] > 0.7
    assert balance["consistent"] < 0.75
    pairs = both_orders(biased.verdicts(rows, reference=other)).with_columns(lead=rows["truth"] - other["truth"])
    kept = pairs.filter(pl.col("consistent") & (pl.col("value") != 0.5))
    assert (kept["value"] > 0.5).equals(kept["lead"] > 0)
    assert pairs.filter("first").height > 50
    assert pairs.filter(~pl.col("first")).height == 0


def _votes(*values: float | None) -> pl.DataFrame:
    return pl.DataFrame({"item": [0] * len(values), "criterion": ["c"] * len(values), "value": list(values)})


@pytest.mark.parametrize(
    ("how", "ties", "values", "value"),
    [
        ("mean", "missing", (0.0, 1.0, None), 0.5),
        ("min", "missing", (2.0, None, 1.0), 1.0),
        ("mode", "missing", (2.0, 1.0, 2.0, None, None, None), 2.0),
        ("mode", "missing", (2.0, 1.0), None),
        ("mode", "first", (2.0, 1.0, 1.0, 2.0), 2.0),
        ("mode", "mean", (2.0, 1.0, 1.0, 2.0, 0.0), 1.5),
        ("median", "missing", (0.0, 2.0, 1.0), 1.0),
        ("median", "missing", (0.0, 2.0, None), None),
        ("median", "missing", (0.0, 1.0, 1.0, 2.0), 1.0),
        ("median", "first", (2.0, 0.0), 2.0),
        ("median", "mean", (0.0, 1.0, 2.0, 5.0), 1.5),
        ("unanimous", "first", (1.0, 1.0, None), 1.0),
        ("unanimous", "first", (1.0, 0.0), None),
        ("mode", "first", (None, None), None),
    ],
)
def test_every_reducer_and_tie_rule(how: Any, ties: Any, values: tuple[float | None, ...], value: float | None) -> None:
    assert aggregate(_votes(*values), method=how, ties=ties)["value"].to_list() == [value]


def test_random_ties_are_fair_and_found_again() -> None:
    table = pl.concat(_votes(0.0, 1.0).with_columns(item=pl.lit(item)) for item in range(2000))
    found = aggregate(table, method="mode", ties="random", seed=5)["value"]
    assert found.mean() == pytest.approx(0.5, abs=0.04)
    assert found.equals(aggregate(table, method="mode", ties="random", seed=5)["value"])


def test_weights_are_by_judge_and_over_those_who_were_read() -> None:
    table = _votes(1.0, 0.0, None).with_columns(judge=pl.Series(["a", "b", "c"]))
    assert aggregate(table, method="weighted", weights={"a": 3, "b": 1, "c": 9})["value"].item() == pytest.approx(0.75)
    with pytest.raises(InputError, match="judge 'b' has no weight"):
        aggregate(table, method="weighted", weights={"a": 1.0, "c": 1.0})


def test_wrong_options_and_columns_are_named() -> None:
    with pytest.raises(InputError, match=r"method='modus'.*mode"):
        aggregate(_votes(1.0), method="modus")  # type: ignore[arg-type]
    with pytest.raises(InputError, match=r"ties='frist'.*first"):
        aggregate(_votes(1.0), method="mode", ties="frist")  # type: ignore[arg-type]
    with pytest.raises(MissingColumnError, match="no column 'judge'"):
        aggregate(_votes(1.0), method="weighted", weights={})
    with pytest.raises(InputError, match="rows sum to 1"):
        StubJudge([[1, 1], [0, 1]])
    with pytest.raises(MissingColumnError, match=r"no column 'truth'.*'truht'"):
        StubJudge().score(pl.DataFrame({"truht": [1]}))
    with pytest.raises(InputError, match="levels from 0 to 1"):
        StubJudge().score(pl.DataFrame({"truth": [2]}))
    with pytest.raises(InputError, match="1 rows and 2 of the reference"):
        StubJudge().score(pl.DataFrame({"truth": [1]}), reference=pl.DataFrame({"truth": [1, 0]}))


def test_swap_consistency_of_salmon() -> None:
    """[188]: order scores (3, 1), (-.6, -.2), (1.2, -.4), divided by the variances 4, 1 and 2.25."""
    found = swap_consistent(np.array([3, -0.6, 1.2]), np.array([1, -0.2, -0.4])) / np.array([4, 1, 2.25])
    assert found == pytest.approx([0.5, -0.4, 0.0])
    assert np.isnan(swap_consistent(np.array([np.nan]), np.array([1.0]))).all()


def test_it_is_a_name_of_recipes() -> None:
    made = SCORERS.build("stub(right=0.7, levels=3, seed=4)")
    assert made.score(_rows(3000)).eq(_rows(3000)["truth"]).mean() == pytest.approx(0.7, abs=0.03)


@pytest.mark.parametrize("how", ["mean", "median", "mode", "min", "weighted", "unanimous"])
def test_a_value_that_is_nan_is_no_verdict(how):
    table = _votes(1.0, None, 1.0, 3.0).with_columns(judge=pl.Series(["a", "a", "b", "b"]))
    spoilt = table.with_columns(pl.col("value").fill_null(float("nan")))
    weights = {"a": 1.0, "b": 2.0}
    assert aggregate(spoilt, method=how, weights=weights).equals(aggregate(table, method=how, weights=weights))


def test_what_cannot_be_aggregated_is_named():
    with pytest.raises(InputError, match="column 'value' holds String"):
        aggregate(_votes(1.0).with_columns(value=pl.lit("yes")))
    with pytest.raises(InputError, match="by=\\(\\) names no key"):
        aggregate(_votes(1.0), by=())
    table = _votes(1.0, 2.0).with_columns(judge=pl.Series(["a", "b"]))
    for weight in (float("nan"), -1.0):
        with pytest.raises(InputError, match="'b' has weight"):
            aggregate(table, method="weighted", weights={"a": 1.0, "b": weight})


def test_an_order_without_a_number_is_no_pair():
    rows = {"item": [0, 0, 1, 1], "criterion": ["a"] * 4, "judge": ["j"] * 4, "order": [0, 1, 0, 1]}
    table = pl.DataFrame({**rows, "value": [1.0, 0.0, 0.0, float("nan")]})
    assert both_orders(table).row(1) == (1, "a", "j", None, None, None)
    assert order_balance(table).row(0, named=True)["pairs"] == 1
    assert order_balance(table).row(0, named=True)["first"] == pytest.approx(2 / 3)
