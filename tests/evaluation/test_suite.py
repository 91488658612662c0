from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from palaestra.errors import InputError, MissingColumnError
from palaestra.evaluation.suite import Price, Prices, Suite, price, suite_score

SUITE = Suite.of({"tasks": [
    {"name": "papers", "tags": ["lit"]}, {"name": "tables", "tags": ["lit"], "weight": 0.5},
    {"name": "code", "tags": ["code"]}, {"name": "data", "tags": ["data"]},
]})  # fmt: skip


def trials(**scores: float | None) -> pl.DataFrame:
    rows = [
        {"system": "s", "run": "run", "task": f"{name}/1", "trial": 0, "score": score, "cost": 0.5}
        for name, score in scores.items()
    ]
    return pl.DataFrame(rows, schema_overrides={"score": pl.Float64})


def of(table: pl.DataFrame, level: str, column: str = "score") -> list:
    return table.filter(pl.col("level") == level)[column].to_list()


def test_asta_bench() -> None:
    everything = suite_score(trials(papers=0.6, tables=0.4, code=0.3, data=0.2), SUITE)
    assert of(everything, "tag") == pytest.approx([0.8 / 1.5, 0.3, 0.2])
    assert of(everything, "overall") == pytest.approx([0.3444], abs=5e-5), "the mean over tags; over tasks .375"
    assert of(everything, "overall", "cost") == [0.5]
    assert set(of(everything, "tag", "stderr")) == {None}
    gone = trials(papers=0.6, tables=0.4, code=0.3)
    assert of(suite_score(gone, SUITE), "overall") == pytest.approx([0.2778], abs=5e-5)
    kept = suite_score(gone, SUITE, missing="preserve")
    assert of(kept, "overall") == pytest.approx([0.4167], abs=5e-5)
    assert of(kept, "overall", "cost") == [None], "a part that is unknown is not free"


def test_a_suite_without_tags_is_the_mean_over_its_tasks() -> None:
    plain = Suite.of({"tasks": [{"name": "papers"}, {"name": "code"}]})
    assert of(suite_score(trials(papers=0.6, code=0.2), plain), "overall") == pytest.approx([0.4])


def test_a_task_is_the_mean_of_its_problems() -> None:
    table = pl.DataFrame({
        "system": "s", "run": "run", "task": ["a/1", "a/1", "a/2", "ab/1"], "trial": [0, 1, 0, 0],
        "score": [1.0, 0.0, 0.0, 1.0],
    })  # fmt: skip
    found = suite_score(table, Suite.of({"tasks": [{"name": "a"}]})).row(0, named=True)
    assert (found["score"], found["n"], found["cost"]) == (0.25, 3, None)
    assert found["stderr"] == pytest.approx(0.25)
    with pytest.raises(MissingColumnError, match="no column 'f1'"):
        suite_score(table, Suite.of({"tasks": [{"name": "a", "metric": "f1"}]}))


def test_a_cost_is_the_mean_over_problems_as_a_score_is() -> None:
    table = pl.DataFrame({
        "system": "s", "run": "run", "task": ["a/1", *["a/2"] * 3], "trial": [0, 0, 1, 2], "score": 1.0,
        "cost": [1.0, 5.0, 5.0, 5.0],
    })  # fmt: skip
    suite = Suite.of({"tasks": [{"name": "a"}]})
    assert suite_score(table, suite)["cost"][0] == 3.0
    assert suite_score(table.with_columns(cost=pl.when(pl.col("trial") < 2).then("cost")), suite)["cost"][0] is None


def test_one_tag_needs_no_list() -> None:
    tags = [Suite.of({"tasks": [{"name": "a", "tags": x}]}).tasks[0].tags for x in ("lit", ["lit"], None)]
    assert tags == [("lit",), ("lit",), ()]


def test_more_cached_tokens_than_tokens_have_no_cost() -> None:
    prices = Prices("2026-01-01", {"m": Price(3, 15, cache_read=0.3)})
    turns = pl.DataFrame({"policy": "m", "tokens_in": [200, 800], "tokens_cached": 800, "tokens_out": 10})
    assert price(turns, prices)["cost"].to_list() == [None, pytest.approx((800 * 0.3 + 150) / 1e6)]


def test_configurations(tmp_path: Path) -> None:
    (tmp_path / "suite.yaml").write_text("tasks:\n- {name: a, tags: [x]}\n")
    assert Suite.of(tmp_path / "suite.yaml").tasks[0].tags == ("x",)
    with pytest.raises(InputError, match="no field 'weigth'; did you mean 'weight'"):
        Suite.of({"tasks": [{"name": "a", "weigth": 1}]})
    with pytest.raises(InputError, match="two of one name"):
        Suite.of({"tasks": [{"name": "a"}, {"name": "a"}]})
    with pytest.raises(InputError, match="date"):
        Prices.of({"models": {}})
    with pytest.raises(InputError, match="in_put"):
        Prices.of({"date": "2026-01-01", "models": {"m": {"in_put": 1, "output": 2}}})


def test_pinned_prices() -> None:
    prices = Prices.of({"date": "2026-01-01", "models": {
        "m": {"input": 3, "output": 15, "cache_read": 0.3, "cache_write": 3.75}, "plain": {"input": 1, "output": 2},
    }})  # fmt: skip
    assert prices.models["plain"] == Price(1, 2)
    turns = pl.DataFrame({
        "policy": ["m", "m", "plain", "plain", "new", "m", "m"],
        "tokens_in": [1000, 1000, 1000, 1000, 10, None, 10], "tokens_out": [100, 100, 100, 100, 1, 1, 1],
        "tokens_cached": [None, 500, 0, 500, 0, None, None], "tokens_cache_write": [None, 200, 0, 0, 0, None, None],
        "cost": [None, None, None, None, None, None, 7.0],
    })  # fmt: skip
    costs = price(turns, prices)["cost"].to_list()
    assert costs[:3] == pytest.approx([0.0045, (300 * 3 + 500 * 0.3 + 200 * 3.75 + 1500) / 1e6, 0.0012])
    assert costs[3:] == [None, None, None, 7.0], "unknown cache price, model or tokens: no cost; a known cost stays"
