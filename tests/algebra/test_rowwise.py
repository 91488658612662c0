"""Which polars expressions are leaves."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from palaestra.algebra.signals import as_signal, evaluate
from palaestra.algebra.turns import Turns
from palaestra.errors import ExpressionError


@pytest.mark.parametrize(
    "expr",
    [
        pl.col("reward").mean().over("group"),
        1 + pl.col("reward") - pl.col("reward").mean(),
        pl.col("reward").sum(),
        pl.len(),
        pl.col("reward").cum_sum(),
        pl.col("reward").shift(1),
        pl.col("reward").rank(),
        pl.col("reward").sort(),
        pl.col("reward").rolling_mean(2),
        pl.col("reward").filter(pl.col("reward") > 0),
        pl.col("reward").reverse().alias("x"),
        pl.col("reward").forward_fill(),
        pl.col("reward").is_duplicated(),
        pl.when(pl.col("reward") > pl.col("reward").median()).then(1.0).otherwise(0.0),
        pl.int_range(pl.len()),
        pl.all(),
        pl.col("^re.*$"),
    ],
    ids=str,
)
def test_expressions_that_look_beyond_their_row_are_refused(expr: pl.Expr) -> None:
    with pytest.raises(ExpressionError, match=r"window or aggregate cannot be a leaf.*use mean\(\)"):
        as_signal(expr)


@pytest.mark.parametrize(
    "expr",
    [
        pl.col("Over") * 2,
        (pl.col("Over") + 1).alias("Rank"),
        pl.col("agent") == "Agg",
        pl.when(pl.col("agent").is_in(["Shift", "b"])).then(pl.col("Over")).otherwise(0.0),
        pl.col("l").list.mean(),
        pl.col("l").list.eval(pl.element().cum_sum()).list.sum(),
        pl.col("l").list.sort().list.first(),
        pl.col("text").str.slice(0, 1) == "S",
        pl.col("text").str.len_chars(),
        pl.max_horizontal("Over", pl.col("l").list.len()),
        pl.col("Over").fill_null(0.0).clip(0, 1).round(1),
        pl.lit(2.0) * pl.col("Over"),
        pl.col("Over").map_batches(lambda s: s + 1, return_dtype=pl.Float64),
    ],
    ids=str,
)
def test_expressions_of_their_own_row_are_leaves(expr: pl.Expr) -> None:
    frame = pl.DataFrame({"Over": [1.0, 2.0], "agent": ["a", "b"], "l": [[1, 2], [3]], "text": ["Sort", "x"]})
    found = np.asarray(as_signal(expr).evaluate(Turns(frame)))
    assert found.astype(float).tolist() == frame.select(expr.cast(pl.Float64)).to_series().to_list()


def test_an_expression_that_gives_another_number_of_rows_is_refused() -> None:
    doubled = pl.col("reward").map_batches(lambda s: pl.concat([s, s]), return_dtype=pl.Float64)
    with pytest.raises(ExpressionError, match="6 values for 3 rows"):
        as_signal(doubled).evaluate(Turns({"reward": [1.0, 2.0, 3.0]}))
    with pytest.raises(ExpressionError, match=r"expr\[.*is_in"):
        as_signal(pl.col("reward").is_in(["a"])).evaluate(Turns({"reward": [1.0]}))


def test_expressions_that_print_alike_are_not_confused() -> None:
    turns = Turns({"reward": [1.0, 2.0]})
    functions = (lambda s: s + 1, lambda s: s - 1)
    up, down = (pl.col("reward").map_batches(f, return_dtype=pl.Float64) for f in functions)
    assert str(up) == str(down)
    found = evaluate(turns, as_signal(up), as_signal(down), as_signal(up) + down)
    assert [np.asarray(v).tolist() for v in found] == [[2, 3], [0, 1], [2, 4]]
    numbers = [float(n) for n in range(50)]
    one, two = (as_signal(pl.col("reward").is_in([0.0, *middle, 49.0])) for middle in (numbers[1:], [5.0] * 49))
    assert one.text != two.text
    assert np.asarray(one.evaluate(turns)).tolist() == [True, True]
    assert np.asarray(two.evaluate(turns)).tolist() == [False, False]
