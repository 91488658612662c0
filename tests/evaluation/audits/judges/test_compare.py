"""Two judges beside each other: agreement with an interval, lenience, and the verdicts that differ."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from sklearn.metrics import cohen_kappa_score
from tests.evaluation.audits.judges.simulated import rated

from palaestra.evaluation.audits.judges import compare_judges
from palaestra.evaluation.scorers import cohen_kappa
from palaestra.interface.cli.app import main


def test_agreement_of_two_judges_and_where_they_differ() -> None:
    a = rated(0)
    rng = np.random.default_rng(1)
    b = a.with_columns(value=(pl.col("value") - pl.Series(rng.integers(0, 2, len(a)))).clip(1, 10))
    b = b.with_columns(
        value=pl.when((pl.col("item") == 17) & (pl.col("criterion") == "clear"))
        .then(10.0 - pl.col("value") * 0)
        .otherwise("value")
    )
    found = compare_judges(a, b)
    assert found.numbers["agreement"] == pytest.approx(cohen_kappa_score(a["value"], b["value"], weights="quadratic"))
    assert found.numbers["low"] < found.numbers["agreement"] < found.numbers["high"]
    assert found.numbers["lenience"] == pytest.approx((a["value"] - b["value"]).mean())
    assert (
        found.numbers["differ"]
        == (a["value"] != b["value"]).sum()
        == found.numbers["shared"] * (1 - found.numbers["equal"])
    )
    assert (found.rows[0]["item"], found.rows[0]["criterion"]) == (17, "clear")
    assert len(found.rows) == 50
    assert "on 30 prompts" in found.sentence


def test_the_verdict_follows_the_agreement() -> None:
    a = rated(0, prompts=60)
    noise = np.random.default_rng(0).permutation(len(a))
    assert compare_judges(a, a).verdict == "pass"
    assert compare_judges(a, a.with_columns(pl.col("value").gather(noise))).verdict == "fail"
    flat = compare_judges(a.with_columns(value=1.0), a.with_columns(value=1.0))
    assert (flat.verdict, "both always say 1" in flat.sentence) == ("cannot tell", True)
    few = compare_judges(a.filter(pl.col("prompt") == "prompt 1"), a)
    assert few.verdict == "cannot tell"
    assert few.numbers["alone"] == 472


def test_items_are_the_same_numbers_with_and_without_a_point() -> None:
    a = rated(0)
    for kind in (pl.Float64, pl.Int32, pl.String):
        assert compare_judges(a, a.with_columns(pl.col("item").cast(kind))).numbers["shared"] == len(a)


def test_many_values_are_compared_by_alpha() -> None:
    a = rated(0).with_columns(value=pl.col("value") + pl.int_range(pl.len()) / 1000)
    found = compare_judges(a, a.with_columns(pl.col("value") + 0.01))
    assert found.numbers["agreement"] > 0.99
    assert "alpha is" in found.sentence


def test_verdicts_on_other_texts_are_not_compared() -> None:
    a = rated(0).with_columns(response=pl.format("answer {}", "item"))
    other = a.with_columns(response=pl.when(pl.col("item") == 3).then(pl.lit("another")).otherwise("response"))
    found = compare_judges(a, other)
    assert (found.verdict, "2 of 240 verdicts are on another text" in found.sentence) == ("cannot tell", True)
    apart = compare_judges(a, a.with_columns(pl.col("item") + 1000))
    assert "nothing was judged by both" in apart.sentence


def test_an_interval_over_prompts_is_wider_where_their_items_are_alike() -> None:
    rng = np.random.default_rng(0)
    a = np.repeat(rng.integers(0, 2, 30), 10)
    b = np.where(np.repeat(rng.random(30) < 0.8, 10), a, 1 - a)
    alone, together = cohen_kappa(a, b), cohen_kappa(a, b, units=np.repeat(np.arange(30), 10))
    assert together.mean == alone.mean
    assert together.high - together.low > 2 * (alone.high - alone.low)
    assert (alone.clusters, together.clusters) == (300, 30)


def test_two_files_on_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    a = rated(0)
    a.write_parquet(tmp_path / "a.parquet")
    a.with_columns(value=pl.when(pl.col("item") == 5).then(1.0).otherwise("value")).write_csv(tmp_path / "b.csv")
    files = [str(tmp_path / name) for name in ("a.parquet", "b.csv")]
    page = tmp_path / "page.html"
    for option in (["--out", str(page)], ["--json"]):
        with pytest.raises(SystemExit) as ended:
            main(["audit-judge", *files, *option])
        assert ended.value.code == 0
        out = capsys.readouterr().out
        if option == ["--json"]:
            parts = json.loads(out)
            assert len(parts) == 3
            (finding,) = parts[2]["findings"]
            assert {row["item"] for row in finding["rows"]} == {5}
        else:
            assert "pass  comparison: kappa is" in out
            assert "item 5, criterion right" in out
            assert re.search(r"<tr><td>5</td><td>(right|clear)</td>", page.read_text())
