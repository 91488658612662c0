from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from palaestra.errors import StorageError
from palaestra.interface.report.limits import comparison_limits, limits
from palaestra.interface.report.load import Interval, Run, SeedRun, load_run
from palaestra.interface.report.panels import progress
from palaestra.interface.report.sections import (
    NO_GAIN,
    alarms,
    contributions,
    error_kinds,
    facts,
    median_seconds,
    result,
    row_of,
    shared_k,
    versions,
)


def seed(name: str = "0", metrics: list[dict[str, Any]] | None = None, **fields: Any) -> SeedRun:
    empty: dict[str, Any] = {"torn": False, "training": None, "evaluation": None, "contributions": {}}
    return SeedRun(name=name, metrics=metrics or [], **{**empty, **fields})


def row(iteration: int, **fields: Any) -> dict[str, Any]:
    return {"iteration": iteration, "errors": {}, "policies": {}, "metrics": {}, **fields}


def change_summary(run_dir: Path, **fields: Any) -> Run:
    path = run_dir / "summary.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | fields))
    return load_run(run_dir)


def test_a_last_batch_without_credit_has_no_shares() -> None:
    assert contributions([seed(contributions={"reinforce()": 0.0})]) == []


@pytest.mark.parametrize(("most", "k"), [(1, None), (2, "2"), (5, "5"), (8, "8"), (200, "8")])
def test_pass_at_k_of_a_table_is_of_few_trials(most: int, k: str | None) -> None:
    of_all = {str(n): 0.5 for n in range(1, most + 1)}
    one, other = (row_of({"system": "a", "pass_hat_k": each}, "a") for each in (of_all, of_all | {"300": 0.1}))
    assert shared_k([one, other]) == k


def test_contributions_are_means_over_the_seeds_that_have_the_term() -> None:
    shares = contributions([seed(contributions={"a": 0.2, "b": 0.8}), seed(contributions={"a": 0.4, "c": 0.6})])
    assert [(s.term, round(s.mean, 6), s.low, s.high) for s in shares] == [
        ("b", 0.8, 0.8, 0.8), ("c", 0.6, 0.6, 0.6), ("a", 0.3, 0.2, 0.4),
    ]  # fmt: skip


def test_errors_are_counted_by_boundary_and_per_episode(run_dir: Path) -> None:
    run = load_run(run_dir)
    kinds = {kind.boundary: kind for kind in error_kinds(run.seeds)}
    assert kinds["env"].training == sum(r["errors"].get("env", 0) for s in run.seeds for r in s.metrics) == 6
    assert kinds["env"].message == "ZeroDivisionError: float division by zero"
    failed = 0
    for s in run.seeds:
        assert s.evaluation is not None
        rows = s.evaluation.filter(s.evaluation["error"].is_not_null())
        failed += rows.select("system", "group", "episode").n_unique() if rows.height else 0
    assert failed > 0
    assert kinds["policy"].evaluation == failed


def test_the_most_frequent_message_stands_for_its_boundary() -> None:
    said = ["env: rare", "env: often: twice", "env: often: twice", "policy: late", None]
    keys = {"group": range(5), "episode": [0] * 5, "turn": [0] * 5, "agent": ["a"] * 5}
    frame = pl.DataFrame({**keys, "error": said})
    found = error_kinds([seed(training=frame, evaluation=frame, metrics=[row(1, errors={"env": 4})])])
    assert [(each.boundary, each.training, each.evaluation, each.message) for each in found] == [
        ("env", 4, 3, "often: twice"), ("policy", 0, 1, "late")
    ]  # fmt: skip


def test_alarms_that_differ_in_numbers_only_are_one() -> None:
    rows = [row(i, alarms=[f"entropy of player_1 is {0.5 - i / 10:.2f}"]) for i in range(3)]
    found = alarms(
        [seed("0", rows), seed("1", [row(7, alarms=["entropy of player_1 is 1e-3", "entropy of player_2 is 0"])])]
    )
    assert [(a.text, a.count, a.seeds, a.first, a.last) for a in found] == [
        ("entropy of player_1 is 0.50", 4, ("0", "1"), 0, 7),
        ("entropy of player_2 is 0", 1, ("1",), 7, 7),
    ]


@pytest.mark.parametrize(
    ("summary", "said"),
    [
        ({"n_tasks": 24, "trials": 2, "met_in_training": 13}, "24 × 2 trials, 13 of them trained on as well"),
        ({"n_tasks": 24, "trials": 2, "met_in_training": 0}, "24 × 2 trials"),
        ({"n_tasks": 24, "trials": 2}, "24 × 2 trials"),
        ({"n_tasks": 1, "trials": 2, "met_in_training": 1}, "1 × 2 trials"),
    ],
)
def test_held_out_tasks_that_are_none(summary: dict[str, Any], said: str, tmp_path: Path) -> None:
    assert dict(facts(Run(tmp_path, None, {}, summary, ())))["Held-out tasks"] == said


def test_seconds_to_proof() -> None:
    assert median_seconds({"0": 10.0, "1": None, "2": 30.0}) == "20.0 s (2 of 3 seeds)"
    assert median_seconds({"0": None}) == median_seconds(None) == "not reached"
    assert median_seconds(61.0) == "1 min 1 s"


def test_facts_of_a_run_without_summary_come_from_its_metrics(run_dir: Path) -> None:
    (run_dir / "summary.json").unlink()
    shown = dict(facts(load_run(run_dir)))
    assert shown["Seeds"] == "3 (0, 1, 2)"
    assert shown["Iterations per seed"] == "30"
    assert shown["Training episodes"] == "11,520"
    assert shown["CPU time"] == "2 min 6 s"
    assert "CPU time until the gain was significant" not in shown


def test_versions_are_flattened(run_dir: Path) -> None:
    assert ("polars", "2.1.0") in versions(load_run(run_dir))


def test_result_reads_the_table(run_dir: Path) -> None:
    outcome = result(load_run(run_dir))
    assert outcome is not None
    assert outcome.percent
    assert outcome.difference is not None
    assert [r.system for r in outcome.rows] == ["before", "after", "random", "scripted", "single"]
    assert outcome.rows[0].difference is None
    assert list(outcome.rows[1].pass_at) == ["1", "2", "4"]
    assert outcome.games["exploitability"][1] == ("1", 0.38, 0.085)


def test_an_exact_measure_has_no_interval_over_one_seed(run_dir: Path) -> None:
    exact = {"mean": 0.3, "low": 0.3, "high": 0.3}
    row = {"before": exact, "after": exact, "difference": exact}
    one = change_summary(run_dir, measure="exploitability", per_seed=[{"seed": 0, **row}], **row)
    found = result(one)
    assert found is not None
    assert found.after == found.per_seed[0][2] == Interval(0.3)
    two = result(
        change_summary(run_dir, measure="exploitability", per_seed=[{"seed": n, **row} for n in (0, 1)], **row)
    )
    assert two is not None
    assert (two.after, two.per_seed[0][2]) == (Interval(0.3, 0.3, 0.3), Interval(0.3))


@pytest.mark.parametrize(
    ("field", "value"), [("before", "good"), ("table", {"a": 1}), ("table", [1]), ("controls", [1]), ("per_seed", 3)]
)
def test_a_summary_of_another_shape_is_named(run_dir: Path, field: str, value: Any) -> None:
    with pytest.raises(StorageError, match=rf"summary\.json: .*{field}"):
        result(change_summary(run_dir, **{field: value}))


def test_limits_follow_from_the_numbers(run_dir: Path) -> None:
    run = load_run(run_dir)
    said = " ".join(limits(run, result(run)))
    assert "3 seeds" in said
    assert "63\u00a0%" in said
    assert "below about 4.1 points" in said
    assert "does not show" not in said


def test_limits_promise_no_difference_larger_than_the_scale(run_dir: Path) -> None:
    found = result(load_run(run_dir))
    assert found is not None
    rows = [replace(row, detectable=7.0, possible=1.0) for row in found.rows]
    said = " ".join(limits(load_run(run_dir), replace(found, rows=rows)))
    assert "no difference that the scale allows would be found reliably" in said
    assert "700" not in said


def test_a_control_as_good_as_the_team_is_said(run_dir: Path) -> None:
    table = json.loads((run_dir / "summary.json").read_text())["table"]
    table[4]["success"] = {"mean": 0.5, "low": 0.47, "high": 0.53}
    run = change_summary(run_dir, table=table)
    assert any("“single” reaches the interval" in sentence for sentence in limits(run, result(run)))


def test_seeds_that_cannot_tell_stopped_early_or_were_cut_off_are_named(
    build: Callable[..., Path], tmp_path: Path
) -> None:
    folder = build(tmp_path / "run", gain=0.05)
    path = folder / "seed-1" / "metrics.jsonl"
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:12])[:-80])
    run = load_run(folder)
    said = " ".join(limits(run, result(run)))
    assert "seeds 0, 1 and 2 cannot tell before from after" in said
    assert "Training of seed 1 ended early" in said
    assert "metrics of seed 1 was cut off" in said


def test_without_a_comparison_nothing_is_claimed(build: Callable[..., Path], tmp_path: Path) -> None:
    folder = build(tmp_path / "run", seeds=1)
    (folder / "summary.json").unlink()
    said = limits(load_run(folder), None)
    assert said[0].startswith("There is one seed")
    assert said[1].startswith("There is no final comparison")


def test_a_comparison_says_that_its_variants_differ_in_cost(build: Callable[..., Path], tmp_path: Path) -> None:
    cheap, dear = (load_run(build(tmp_path / name, seeds=n)) for name, n in (("a", 1), ("b", 2)))
    assert dear.summary is not None
    dear.summary["cpu_seconds"] = 2 * 731.0
    said = " ".join(comparison_limits([("a", cheap), ("b", dear)]))
    assert "fewest has 1 seed." in said
    assert "2.0 times the CPU time" in said


def test_no_time_to_proof_beside_a_verdict_that_cannot_tell(run_dir: Path) -> None:
    for verdict, said in (("demo: better by +3.0 points", "47.0 s (3 of 3 seeds)"), ("demo: cannot tell: p", NO_GAIN)):
        found = dict(facts(change_summary(run_dir, verdict=verdict)))
        assert found["CPU time until the gain was significant"] == said


def test_a_held_out_curve_begins_before_training(tmp_path: Path) -> None:
    """The look of iteration 0 is on disk beside the metrics: one look more is a curve, not a dot."""
    folder = tmp_path / "run" / "seed-0"
    folder.mkdir(parents=True)
    look = {"success": 0.75, "score": 0.75, "low": 0.7, "high": 0.8, "n": 4}
    line = {"iteration": 5, "errors": {}, "policies": {}, "metrics": {}, "evaluation": look}
    (folder / "metrics.jsonl").write_text(json.dumps(line) + "\n")
    pl.DataFrame({"unit": ["a", "b"], "value": [0.0, 0.5]}).write_parquet(folder / "look-000000.parquet")
    run = load_run(tmp_path / "run")
    assert run.seeds[0].start == {"value": 0.25}
    panels = {panel.title: str(panel.svg) for panel in progress([("all seeds", run.seeds)])}
    assert "25.0\u00a0% at iteration 0, 75.0\u00a0% at iteration 5" in panels["Held-out success"]
    assert "at iteration 0" not in panels["Held-out score"]  # what was measured then was success
    both = pl.DataFrame({"unit": ["a", "b"], "value": [0.0, 0.5], "score": [0.5, 0.75]})
    both.write_parquet(folder / "look-000000.parquet")
    panels = {panel.title: str(panel.svg) for panel in progress([("all seeds", load_run(tmp_path / "run").seeds)])}
    assert "25.0\u00a0% at iteration 0" in panels["Held-out success"]
    assert "0.625 at iteration 0" in panels["Held-out score"]
    (folder / "look-000000.parquet").write_bytes(b"torn")
    with pytest.raises(StorageError, match=r"look-000000\.parquet: not a whole"):
        load_run(tmp_path / "run")
