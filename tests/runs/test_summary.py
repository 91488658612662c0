"""What was proved: summaries, pairs and comparisons, from play that was written down."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from quick import QUICK, Trained, validate
from statsmodels.stats.power import TTestPower

from palaestra.algebra.turns import Turns
from palaestra.errors import InputError, StorageError
from palaestra.runs import summary
from palaestra.runs.recipe import alone, override
from palaestra.runs.summary import evaluate, over_seeds, pairs, summarise, value_of


def results(directory: Path) -> list[dict[str, Any]]:
    return [json.loads(path.read_text()) for path in sorted(directory.glob("seed-*/result.json"))]


def playing(path: Path, shares: dict[str, float], *, seeds: int = 3, tasks: int = 30, success: bool = True) -> None:
    """Seeds of a run in which each system succeeds at a share of the tasks, the same in every seed."""
    for seed in range(seeds):
        rows = [
            {"run": str(seed), "iteration": 0, "group": task, "episode": 0, "turn": 0, "agent": agent,
             "task": f"task {task}", "system": system, "reward": float(task < share * tasks) - (agent == "b"),
             "success": task < share * tasks and agent == "a" if success else None}
            for system, share in shares.items() for task in range(tasks) for agent in ("a", "b")
        ]  # fmt: skip
        frame = pl.DataFrame(rows, schema_overrides={"success": pl.Boolean})
        Turns(frame).save(path / f"seed-{seed}" / "evaluation.parquet")


def done(values: list[float], measure: str = "exploitability", start: float = 0.4) -> list[dict[str, Any]]:
    return [
        {"seed": seed, "metrics": {measure: {"before": start, "after": value}}} for seed, value in enumerate(values)
    ]


# -- a summary --------------------------------------------------------------------------------------------------------


def test_the_summary_of_a_run(trained: Trained) -> None:
    recipe = validate(QUICK)
    summary = summarise(recipe, trained.directory, results(trained.directory))
    stored = json.loads((trained.directory / "summary.json").read_text())
    assert {key: stored[key] for key in summary} == json.loads(json.dumps(summary))
    assert (summary["n_tasks"], summary["trials"], summary["seeds"]) == (12, 2, [0, 1])
    played = Turns.concat(Turns.load(path) for path in trained.directory.glob("seed-*/evaluation.parquet")).frame
    episodes = played.unique(["run", "system", "group", "episode"])
    for name in ("before", "after"):
        share = float(episodes.filter(system=name)["success"].to_numpy().mean())
        assert summary[name]["mean"] == pytest.approx(share)
        assert summary[name]["low"] <= share <= summary[name]["high"]
    assert summary["difference"]["mean"] == pytest.approx(summary["after"]["mean"] - summary["before"]["mean"])
    assert [row["seed"] for row in summary["per_seed"]] == [0, 1]
    assert np.mean([row["after"]["mean"] for row in summary["per_seed"]]) == pytest.approx(summary["after"]["mean"])
    assert summary["controls"].keys() == {"random", "scripted", "idle"}
    assert summary["controls"]["scripted"]["mean"] == 1.0
    assert "no idea" in summary["controls"]["random"]["note"]
    assert summary["verdict"].startswith("quick: ")
    assert summary["seconds_to_significance"].keys() == {"0", "1"}


def test_a_measure_that_nobody_reports_falls_back_to_the_score(tmp_path: Path) -> None:
    playing(tmp_path, {"before": 0.2, "after": 0.8}, seeds=1, success=False)
    recipe = alone(validate(QUICK | {"seeds": 1}))
    result = {"seed": 0, "errors": {"env": 2}, "metrics": {}, "cpu_seconds": 1.0, "seconds_to_significance": None}
    summary = summarise(recipe, tmp_path, [result])
    assert summary["measure"] == "score"
    assert summary["difference"]["mean"] == pytest.approx(0.6)
    assert summary["training_errors"] == {"env": 2}


def test_only_the_judged_agents_count(tmp_path: Path) -> None:
    playing(tmp_path, {"before": 0.2, "after": 0.8}, seeds=1)
    result = {"seed": 0, "errors": {}, "metrics": {}, "cpu_seconds": 1.0, "seconds_to_significance": None}
    recipe = override(alone(validate(QUICK | {"seeds": 1})), {"evaluation": {"agents": ["a"]}})
    assert summarise(recipe, tmp_path, [result])["after"]["mean"] == pytest.approx(0.8)
    both = summarise(alone(validate(QUICK | {"seeds": 1})), tmp_path, [result])
    assert both["after"]["mean"] == 0.0, "b never succeeds"


def test_systems_that_are_equal_in_all_seeds_give_an_interval_and_no_crash(tmp_path: Path) -> None:
    playing(tmp_path, {"before": 0.0, "after": 0.0})
    recipe = override(alone(validate(QUICK | {"seeds": 3})), {"evaluation": {"agents": ["a"]}})
    each = [
        {"seed": seed, "errors": {}, "metrics": {}, "cpu_seconds": 1.0, "seconds_to_significance": None}
        for seed in range(3)
    ]
    summary = summarise(recipe, tmp_path, each)
    assert summary["difference"]["mean"] == 0.0
    assert summary["difference"]["low"] < 0 < summary["difference"]["high"]
    assert "cannot tell" in summary["verdict"]


def test_which_value_is_compared() -> None:
    reported = pl.DataFrame({"success": [True, None]})
    silent = pl.DataFrame({"success": pl.Series([None, None], dtype=pl.Boolean)})
    assert [value_of(measure, reported) for measure in ("success", "score", "nash_conv")] == [
        "success",
        "score",
        "success",
    ]
    assert [value_of(measure, silent) for measure in ("success", "score")] == ["score", "score"]


def test_exact_values_have_an_interval_over_seeds() -> None:
    three = over_seeds(np.array([1.0, 2.0, 3.0]))  # t(0.975, 2) = 4.3027, s / sqrt(n) = 0.57735
    assert three == pytest.approx({"mean": 2.0, "low": 2 - 2.48414, "high": 2 + 2.48414}, abs=1e-4)
    assert over_seeds(np.array([0.3])) == {"mean": 0.3, "low": 0.3, "high": 0.3}


# -- pairs ------------------------------------------------------------------------------------------------------------


def test_pairs_of_trained_teams(tmp_path: Path) -> None:
    for number, share in enumerate((0.3, 0.9, 0.9)):
        playing(tmp_path / str(number), {"before": 0.1, "after": share})
    recipe = override(alone(validate(QUICK)), {"evaluation": {"agents": ["a"]}})
    found = pairs(recipe, tmp_path, {"low": "0", "high": "1", "same": "2"}, {})
    assert [(pair["a"], pair["b"]) for pair in found] == [("low", "high"), ("low", "same"), ("high", "same")]
    assert [pair["difference"]["mean"] for pair in found] == pytest.approx([-0.6, -0.6, 0.0])
    assert found[0]["verdict"].startswith("low against high: worse by −60.0 points")
    assert found[2]["verdict"].startswith("high against same: cannot tell")
    assert all(pair["difference"]["p"] == pair["p_holm"] for pair in found)


@pytest.mark.parametrize(
    ("a", "b", "said"),
    [
        ([0.10, 0.11, 0.12, 0.10], [0.30, 0.31, 0.29, 0.30], "better (difference -0.193"),
        ([0.30, 0.31, 0.29, 0.30], [0.10, 0.11, 0.12, 0.10], "worse (difference +0.193"),
        ([0.10, 0.40, 0.10, 0.40], [0.30, 0.31, 0.29, 0.30], "cannot tell: the interval contains 0"),
        ([0.30, 0.30], [0.30, 0.30], "cannot tell: the interval contains 0 (difference +0.000"),
        ([0.10], [0.30], "difference -0.200, one seed: nothing is said about other seeds"),
    ],
)
def test_pairs_in_an_exact_measure(a: list[float], b: list[float], said: str, tmp_path: Path) -> None:
    """Exploitability is better when it is lower, and play is not even looked at."""
    part = {"measure": "exploitability", "metrics": ["exploitability"]}
    recipe = override(alone(validate(QUICK)), {"evaluation": part})
    (pair,) = pairs(recipe, tmp_path, {"a": "0", "b": "1"}, {"a": done(a), "b": done(b)})
    assert pair["verdict"].startswith(f"a against b, exploitability: {said}")
    assert pair["difference"]["mean"] == pytest.approx(np.mean(a) - np.mean(b))


def test_p_values_of_several_exact_pairs_are_corrected(tmp_path: Path) -> None:
    part = {"measure": "expected_return", "metrics": ["expected_return"]}
    recipe = override(alone(validate(QUICK)), {"evaluation": part})
    values = {"a": [1.0, 1.1, 1.3], "b": [0.5, 0.7, 0.6], "c": [0.45, 0.7, 0.9]}
    runs = {name: done(value, "expected_return") for name, value in values.items()}
    found = pairs(recipe, tmp_path, dict.fromkeys(values, ""), runs)
    alone_p = pairs(recipe, tmp_path, {"a": "", "b": ""}, runs)[0]["p_holm"]
    assert found[0]["p_holm"] == pytest.approx(2 * alone_p)  # a against c is the clearest, this comes second
    assert alone_p < 0.05 < found[0]["p_holm"]
    assert "better" in pairs(recipe, tmp_path, {"a": "", "b": ""}, runs)[0]["verdict"]
    assert "contains 0" in found[0]["verdict"], "its interval holds together with those of three pairs"
    assert "simultaneous 95 % interval of 3 comparisons" in found[0]["verdict"]


def test_a_pair_that_cannot_be_told_says_how_many_seeds_would(tmp_path: Path) -> None:
    part = {"measure": "expected_return", "metrics": ["expected_return"]}
    recipe = override(alone(validate(QUICK)), {"evaluation": part})
    runs = {name: done(v, "expected_return") for name, v in {"a": [1.0, 1.4, 1.2], "b": [1.0, 1.1, 1.25]}.items()}
    (pair,) = pairs(recipe, tmp_path, {"a": "", "b": ""}, runs)
    change = np.array([0.0, 0.3, -0.05])
    exact = TTestPower().solve_power(change.mean() / change.std(ddof=1), power=0.8, alpha=0.05)
    assert pair["seeds_needed"] == np.ceil(exact)
    assert "cannot tell" in pair["verdict"]
    assert pair["verdict"].endswith(f"; {pair['seeds_needed']} seeds in all would tell")
    among_three = pairs(recipe, tmp_path, {"a": "", "b": "", "c": ""}, runs | {"c": done([9.0] * 3, "expected_return")})
    assert among_three[0]["seeds_needed"] > pair["seeds_needed"], "three pairs share the 5 %"
    assert among_three[1]["seeds_needed"] is None
    same = pairs(recipe, tmp_path, {"a": "", "b": ""}, runs | {"b": runs["a"]})[0]
    assert same["seeds_needed"] is None
    assert same["verdict"].endswith("; more seeds alone would not tell")


def test_how_many_seeds_would_tell_of_play(tmp_path: Path) -> None:
    """Seeds that differ by chance and tasks that do not: more seeds help, and as many as the sentence says."""
    rng = np.random.default_rng(0)
    for name, share in (("0", 0.5), ("1", 0.6)):
        for seed in range(4):
            lucky = float(np.clip(share + rng.normal(0, 0.15), 0, 1))
            playing(tmp_path / name, {"before": 0.1, "after": lucky}, seeds=1, tasks=40)
            target = tmp_path / "all" / name / f"seed-{seed}"
            target.mkdir(parents=True)
            played = Turns.load(tmp_path / name / "seed-0" / "evaluation.parquet")
            played.with_column(run=[str(seed)] * len(played)).save(target / "evaluation.parquet")
    recipe = override(alone(validate(QUICK)), {"evaluation": {"agents": ["a"]}})
    (pair,) = pairs(recipe, tmp_path / "all", {"a": "0", "b": "1"}, {})
    assert "cannot tell" in pair["verdict"]
    assert pair["seeds_needed"] > 4
    assert f"{pair['seeds_needed'] - 4} more run" in pair["verdict"]
    assert pair["verdict"].endswith(f"; {pair['seeds_needed']} seeds in all would tell")


# -- any table --------------------------------------------------------------------------------------------------------


def test_evaluate_takes_a_run_a_seed_a_file_and_a_comparison(trained: Trained, tmp_path: Path) -> None:
    rows = evaluate(trained.directory)
    assert [row["system"] for row in rows] == ["before", "after", "idle", "random", "scripted"]
    assert rows[0]["runs"] == 2
    assert evaluate(trained.directory / "seed-0")[0]["runs"] == 1
    assert len(evaluate(trained.directory / "seed-0" / "evaluation.parquet", baseline="idle")) == 5
    assert evaluate(trained.directory / "seed-0" / "turns")[0]["system"] == "system"
    for number, share in enumerate((0.3, 0.9)):
        playing(tmp_path / str(number), {"before": 0.1, "after": share})
    (tmp_path / "comparison.json").write_text(json.dumps({"variants": {"low": "0", "high": "1"}}))
    assert [row["system"] for row in evaluate(tmp_path, baseline="high")] == ["high", "low"]
    assert [row["system"] for row in evaluate(tmp_path)] == ["low", "high"], "as asked for, not as in the alphabet"


def test_evaluate_judges_a_run_by_its_recipe(trained: Trained, tmp_path: Path) -> None:
    part = {"agents": ["a"], "measure": "score"}
    (tmp_path / "recipe.yaml").write_text(override(validate(QUICK), {"evaluation": part}).dump())
    playing(tmp_path, {"before": 0.2, "after": 0.8})
    after = evaluate(tmp_path)[1]
    assert after["value"] == "score"
    assert after["success"]["mean"] == pytest.approx(0.8)
    assert after["score"]["mean"] == pytest.approx(0.8)


def test_a_run_of_ours_counts_errors_as_asked(tmp_path: Path) -> None:
    """An outage is nobody's failure in the summary, and in `evaluate`, unless one asks for it."""
    recipe = validate(QUICK | {"seeds": 1})
    frame = pl.DataFrame({
        "system": ["before"] * 20 + ["after"] * 20, "run": ["0"] * 40, "group": [*range(20)] * 2,
        "task": [f"t{n}" for n in range(20)] * 2, "family": [f"f{n // 2}" for n in range(20)] * 2,
        "episode": [0] * 40, "turn": [0] * 40, "agent": ["seeker"] * 40, "reward": [1.0] * 40,
        "success": [None, *[True] * 19] + [True] * 20,
        "error": ["policy: APIConnectionError: down", *[None] * 39],
    })  # fmt: skip
    (tmp_path / "seed-0").mkdir()
    Turns(frame).save(tmp_path / "seed-0" / "evaluation.parquet")
    (tmp_path / "recipe.yaml").write_text(recipe.dump())
    before, after = evaluate(tmp_path)
    assert (before["success"]["mean"], after["success"]["mean"]) == (1.0, 1.0)
    assert "1 of 20" in after["verdict"]
    before, after = evaluate(tmp_path, errors="count")
    assert (before["success"]["mean"], after["success"]["mean"]) == (0.95, 1.0)
    plain, clustered = evaluate(tmp_path)[1], evaluate(tmp_path, cluster="family")[1]
    assert clustered["difference"] != plain["difference"]


def test_held_out_tasks_that_were_trained_on_are_counted_once() -> None:
    assert summary._met([{"met_in_training": ["a", "b"]}, {"met_in_training": ["b"]}]) == 2
    assert summary._met([{"met_in_training": []}]) == 0
    assert summary._met([{"met_in_training": []}, {}]) is None, "a result of before it was counted"


def test_what_cannot_be_evaluated(trained: Trained, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="--baseline 'befor': no such system; did you mean 'before'"):
        evaluate(trained.directory, baseline="befor")
    shutil.copy(trained.directory / "recipe.yaml", tmp_path)
    with pytest.raises(InputError, match="the run has no evaluation yet; finish it"):
        evaluate(tmp_path)
    Turns(Turns.load(trained.directory / "seed-0" / "turns").frame.head(0)).save(tmp_path / "empty.parquet")
    with pytest.raises(InputError, match="a table without turns"):
        evaluate(tmp_path / "empty.parquet")
    with pytest.raises(StorageError, match="not a readable Parquet file"):
        evaluate(tmp_path / "recipe.yaml")


def test_a_run_in_which_a_seed_is_missing_is_not_compared(tmp_path: Path) -> None:
    """Seeds that end early are not like the others."""
    playing(tmp_path, {"before": 0.2, "after": 0.8}, seeds=2)
    (tmp_path / "recipe.yaml").write_text(validate(QUICK | {"seeds": 3}).dump())
    said = rf"1 of 3 seeds have no evaluation yet \(seed 2\).* palaestra evaluate {tmp_path}/seed-0"
    with pytest.raises(InputError, match=said):
        evaluate(tmp_path)
    (tmp_path / "recipe.yaml").write_text(validate(QUICK | {"seeds": 2}).dump())
    assert len(evaluate(tmp_path)) == 2


def test_evaluation_needs_no_torch(trained: Trained) -> None:
    code = (
        "import sys; from pathlib import Path; from palaestra.interface.cli import main\n"
        "try: main(['evaluate', sys.argv[1], '--json'])\n"
        "finally: assert 'torch' not in sys.modules"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(trained.directory / "seed-0")], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    assert len(json.loads(done.stdout)) == 5
