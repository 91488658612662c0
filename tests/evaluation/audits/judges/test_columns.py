"""Columns of verdicts whose values say nothing, or say it in words."""

from __future__ import annotations

import polars as pl
import pytest

from palaestra.errors import InputError
from palaestra.evaluation.audits.judges import (
    audit_judge,
    discrimination,
    order_calibration,
    parse_failures,
    position_bias,
)


@pytest.mark.parametrize("orders", [(1, 2), ("AB", "BA"), (-1, 1), (0.5, 1)])
def test_orders_that_do_not_say_who_was_first_are_refused(orders: tuple[object, object]) -> None:
    """Of a judge that always takes the first: by 1 and 2 it would be one that never minds."""
    table = pl.DataFrame({"item": [*range(20)] * 2, "order": [n for n in orders for _ in range(20)],
                          "value": [1.0] * 20 + [0.0] * 20})  # fmt: skip
    for audit in (position_bias, order_calibration, discrimination, audit_judge):
        with pytest.raises(InputError, match="shown first"):
            audit(table)


@pytest.mark.parametrize("kind", [pl.Boolean, pl.Float64, pl.Int8])
def test_orders_are_0_and_1_in_whatever_kind(kind: type[pl.DataType]) -> None:
    table = pl.DataFrame({"item": [*range(20)] * 2, "order": [0] * 20 + [1] * 20, "value": [1.0] * 20 + [0.0] * 20})
    assert position_bias(table.with_columns(pl.col("order").cast(kind))).numbers["first"] == 1


def test_flags_are_words_or_numbers_and_nothing_else() -> None:
    table = pl.DataFrame({"item": range(20), "value": [1, 0] * 10, "ok": ["yes"] * 19 + ["no"]})
    assert parse_failures(table).numbers["rate"] == 1 / 20
    twins = pl.concat([table.with_columns(injected=pl.lit(x)) for x in ("no", "yes")])
    assert {f.audit for f in audit_judge(twins)} >= {"injection"}
    with pytest.raises(InputError, match="'ok' takes true/false, yes/no or 1/0, not 'perhaps'"):
        parse_failures(table.with_columns(ok=pl.lit("perhaps")))
    with pytest.raises(InputError, match="'injected' takes"):
        audit_judge(table.with_columns(injected=pl.lit("perhaps")))
