"""Modules: the worked game, what is left out, and pairs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest

from palaestra.errors import InputError, MissingColumnError
from palaestra.evaluation.analyses import analyze
from palaestra.evaluation.teamwork import (
    coalition_table,
    module_interactions,
    module_utility,
    module_values,
    removals,
)
from palaestra_atlas.catalog.teams.s088_capabench import GAME, MODULES

pytestmark = pytest.mark.filterwarnings("error::RuntimeWarning")  # what is 0 / 0 is left out before it is divided
DATA = Path(__file__).parents[2] / "atlas" / "data"
NAMES = ["+".join(MODULES[bit] for bit in range(4) if place >> bit & 1) for place in range(16)]


def runs(shift: float = 0.0) -> pl.DataFrame:
    """Two tasks of the worked game, of which the second is easier by `shift`, in any order."""
    frame = pl.DataFrame(
        {"coalition": NAMES * 2, "task": ["one"] * 16 + ["two"] * 16, "success": [*GAME, *(GAME + shift)]}
    )
    return frame.sample(fraction=1, shuffle=True, seed=0)


def test_the_worked_game():
    found = module_values(runs(0.3))
    assert found["module"].to_list() == list(MODULES)
    assert found["value"].to_list() == pytest.approx([0.27, 0.12, 0.22, -0.02])
    assert found["value"].sum() == pytest.approx(0.59)
    assert found["stderr"].to_list() == pytest.approx([0] * 4)  # a task that is easier for all changes no value
    assert found["removed"].to_list() == pytest.approx([0.36, 0.16, 0.31, -0.02])
    assert found["alone"].to_list() == pytest.approx([0.2, 0.1, 0.15, -0.02])
    pairs = {(one, other): value for one, other, value, _ in module_interactions(runs()).iter_rows()}
    assert pairs["action", "reasoning"] == pytest.approx(0.13)
    assert pairs["planning", "reflection"] == pytest.approx(0)


def test_a_task_without_all_coalitions_is_left_out_and_a_missing_score_is_no_failure():
    frame = runs(0.3).with_columns(
        success=pl.when((pl.col("task") == "two") & (pl.col("coalition") == "action")).then(None).otherwise("success")
    )
    modules, values = coalition_table(frame)
    assert modules == list(MODULES)
    np.testing.assert_allclose(values, GAME[None])
    assert module_values(frame)["tasks"].to_list() == [1] * 4
    with pytest.raises(InputError, match=r"no task has all 16 coalitions.*'action\+planning' is in none"):
        module_values(frame.filter(pl.col("coalition") != "action+planning"))
    with pytest.raises(MissingColumnError, match="coalition"):
        module_values(frame.rename({"coalition": "coalitions"}))


def test_a_file_of_runs():
    assert analyze("modules", DATA / "coalitions.csv")["module"].to_list() == list(MODULES)
    assert len(analyze("modules(pairs=True)", DATA / "coalitions.csv")) == 6


def test_a_module_that_some_models_do_not_need_is_conditional():
    found = {row["module"]: row for row in analyze("specialists", DATA / "removed.csv").iter_rows(named=True)}
    assert list(found) == ["discovery", "report", "analysis"]  # by what it costs to lose them
    assert found["discovery"]["loss"] == 1
    assert {name: row["kind"] for name, row in found.items()} == {
        "discovery": "universal", "report": "universal", "analysis": "conditional",
    }  # fmt: skip
    table = removals(pl.read_csv(DATA / "removed.csv"))
    wins = {(row["model"], row["module"]): row["win"] for row in table.iter_rows(named=True)}
    assert wins["large", "analysis"] == 0.5  # ties
    assert wins["small", "report"] == pytest.approx(0.5 + 0.5 * 5 / 6)
    assert table.filter(model="small", module="report")["failures"].to_list() == [5]
    alone = module_utility(removals(pl.read_csv(DATA / "removed.csv").drop("model").filter(pl.col("task") == "t1")))
    assert alone["kind"].to_list() == [None] * 3  # one model says nothing of others
    with pytest.raises(InputError, match="no run is of the whole system"):
        removals(
            pl.read_csv(DATA / "removed.csv").filter(~pl.col("coalition").str.contains("discovery.analysis.report"))
        )


def test_errors_of_two_tasks_by_hand():
    told = {"": (0, 0), "a": (1, 0), "b": (0, 0), "a+b": (1, 1)}
    rows = [(name, task, score) for name, scores in told.items() for task, score in zip("xy", scores, strict=True)]
    found = pl.DataFrame(rows, schema=["coalition", "task", "success"], orient="row")
    first, second = module_values(found).sort("module").rows(named=True)
    assert (first["value"], first["stderr"]) == (0.75, 0.25), "1 and 1/2"
    assert (second["value"], second["stderr"]) == (0.25, 0.25), "0 and 1/2"
    assert module_interactions(found).row(0) == ("a", "b", 0.5, 0.5), "0 and 1"
    assert module_interactions(found.filter(task="x")).row(0) == ("a", "b", 0.0, None)


def test_a_deviation_of_just_the_spread_is_conditional():
    found = pl.DataFrame({"model": ["x", "y"], "module": "m", "win": [0.75, 0.75], "loss": [0.5, 0.25]})
    row = module_utility(found, spread=0.0).row(0, named=True)
    assert (row["win"], row["deviation"], row["loss"], row["kind"]) == (0.75, 0.0, 0.375, "conditional")
    assert module_utility(found)["kind"].to_list() == ["universal"]


def test_a_score_that_is_nan_is_missing():
    runs = pl.DataFrame({"coalition": ["", "a"] * 2, "task": ["x", "x", "y", "y"], "success": [0.0, 1.0, 0.0, np.nan]})
    assert module_values(runs).row(0, named=True)["tasks"] == 1
    assert module_values(runs).row(0, named=True)["value"] == 1.0
    found = removals(runs.with_columns(coalition=pl.Series(["a+b", "b", "a+b", "b"]))).row(0, named=True)
    assert (found["module"], found["win"], found["tasks"]) == ("a", 0.0, 1)
