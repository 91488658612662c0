"""Collecting prescribed samples of an unknown world."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest

from palaestra.errors import InputError
from palaestra.evaluation.analyses import analyze
from palaestra.evaluation.sampling import world_of
from palaestra.play.coverage import CoveragePlanner, collect, optimistic_model, river, shortest_way


def test_every_need_is_met_and_the_planner_is_far_faster_than_chance() -> None:
    need = np.full((6, 2), 5.0)
    steps = {}
    for rule in ("planner", "random"):
        planner = CoveragePlanner(need, method=rule)  # type: ignore[arg-type]
        steps[rule] = collect(river(), planner)
        assert (planner.counts.sum(2) >= need).all()
    assert steps["planner"] < steps["random"] / 3


def test_it_gives_up_after_most_steps() -> None:
    alone = np.zeros((2, 1, 2))
    alone[:, 0] = np.eye(2)
    assert collect(alone, CoveragePlanner(np.array([[0.0], [1.0]])), most=50) == 50


def test_nothing_needed_is_no_step() -> None:
    assert collect(river(), CoveragePlanner(np.zeros((6, 2)))) == 0


def test_the_model_is_optimistic_until_it_is_known() -> None:
    counts = np.zeros((3, 2, 3), int)
    counts[0, 0, 1] = counts[1, 0, 2] = 100
    counts[0, 1, 0] = counts[1, 1, 1] = 100
    assert shortest_way(counts, np.array([False, False, True]))[:2].tolist() == [0, 0]
    counts[0, 1] = 0  # a move that was never tried may lead there at once
    assert shortest_way(counts, np.array([False, False, True]))[0] == 1
    seen, arrived = optimistic_model(counts)
    assert np.allclose(seen.sum(2) + arrived, 1)


def test_as_an_analysis(tmp_path: Path) -> None:
    rows = [(f"s{s}", a, f"s{t}", p) for (s, a, t), p in np.ndenumerate(river(4)) if p]
    pl.DataFrame(rows, schema=["state", "action", "after", "chance"], orient="row").write_csv(tmp_path / "w.csv")
    (row,) = analyze("collect(3, repeats=2)", tmp_path / "w.csv").to_dicts()
    assert (row["states"], row["actions"], row["need"], row["unfinished"]) == (4, 2, 24.0, 0)
    pl.DataFrame({"state": ["s9"], "action": [0], "need": [1]}).write_csv(tmp_path / "n.csv")
    with pytest.raises(InputError, match="no state 's9' with an action 0"):
        analyze("collect", tmp_path / "w.csv", tmp_path / "n.csv")


def test_what_is_wrong_is_named() -> None:
    with pytest.raises(InputError, match="need is a table"):
        CoveragePlanner(np.array([[-1.0]]))
    with pytest.raises(InputError, match="one of planner, random"):
        CoveragePlanner(np.ones((1, 1)), method="best")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="length=2 must be at least 3"):
        river(2)
    rows = pl.DataFrame({"state": ["a"], "action": [0], "after": ["a"], "chance": [0.5]})
    with pytest.raises(InputError, match=r"state 'a' and action 0 add up to 0\.5"):
        world_of(rows)
