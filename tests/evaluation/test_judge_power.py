"""Simulated rubric studies: what errors of a judge do to leads and to the chance of finding them."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from palaestra.errors import InputError, MissingColumnError
from palaestra.evaluation.analyses import analyze
from palaestra.evaluation.judge_power import judge_power

SYSTEMS = pl.DataFrame({"system": ["best", "equal", "worse"], "rate": [0.7, 0.7, 0.5]})
CRITERIA = pl.DataFrame({"task": [f"t{n}" for n in range(40)]}).join(
    pl.DataFrame({"criterion": ["a", "b", "c", "d"]}), how="cross"
)


@pytest.mark.parametrize("error", [0.0, 0.1, 0.3])
def test_leads_shrink_to_one_less_twice_the_error(error: float) -> None:
    found = judge_power(SYSTEMS, CRITERIA, error=error, studies=100)
    assert found["true"].to_list() == pytest.approx([0.7, 0.7, 0.5], abs=0.02)
    assert found["score"].to_list() == pytest.approx([error + (1 - 2 * error) * x for x in found["true"]], abs=0.015)
    assert found["lead"][2] == pytest.approx((1 - 2 * error) * found["true_lead"][2], abs=0.02)


def test_errors_cost_power_and_equals_are_hardly_ever_told_apart() -> None:
    sure, erring = (judge_power(SYSTEMS, CRITERIA, error=error, studies=200) for error in (0.0, 0.3))
    assert sure["found"][0] is None
    assert sure["found"][2] > 0.9 > 0.6 > erring["found"][2]
    assert max(sure["found"][1], erring["found"][1]) < 0.08, "half of 5 %, two-sided"


def test_penalties_are_triggered_and_cost_their_weight_under_the_rule_net() -> None:
    criteria = CRITERIA.with_columns(
        kind=pl.when(pl.col("criterion") == "d").then(pl.lit("penalty")).otherwise(pl.lit("bonus"))
    )
    systems = SYSTEMS.with_columns(penalty=pl.Series([1 - 1e-9, 0.0, 0.0]))
    net, mean = (judge_power(systems, criteria, method=rule, studies=40) for rule in ("net", "mean"))  # type: ignore[arg-type]
    assert mean["true"].to_list() == pytest.approx([0.7, 0.7, 0.5], abs=0.03)
    assert net["true"][1:].to_list() == pytest.approx(mean["true"][1:].to_list())
    assert net["true"][0] < mean["true"][0] - 0.25, "a third of the bonus points, but not below 0"


def test_the_command_reads_two_files_and_names_what_is_wrong(tmp_path: Path) -> None:
    SYSTEMS.write_csv(tmp_path / "systems.csv")
    CRITERIA.write_csv(tmp_path / "criteria.csv")
    files = tmp_path / "systems.csv", tmp_path / "criteria.csv"
    assert analyze("judge_power(0.1, studies=20)", *files).equals(judge_power(SYSTEMS, CRITERIA, error=0.1, studies=20))
    with pytest.raises(InputError, match=r"error=0\.7"):
        analyze("judge_power(0.7)", *files)
    with pytest.raises(InputError, match="occurs twice"):
        judge_power(SYSTEMS, pl.concat([CRITERIA, CRITERIA]))
    with pytest.raises(InputError, match="rate"):
        judge_power(SYSTEMS.with_columns(rate=pl.lit(1.0)), CRITERIA)
    with pytest.raises(MissingColumnError, match="rate"):
        judge_power(SYSTEMS.drop("rate"), CRITERIA)
