from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np
import polars as pl
import pytest
from statsmodels.stats.multitest import multipletests

from palaestra.errors import InputError
from palaestra.evaluation import comparison_table, holm, pass_hat_k, verdict

Maker = Callable[[Mapping[str, np.ndarray]], pl.DataFrame]


@pytest.fixture
def frame(make_trials: Maker) -> pl.DataFrame:
    rng = np.random.default_rng(0)
    p = rng.random((200, 1)) * 0.6
    return make_trials(
        {
            "before": rng.random((200, 4)) < p,
            "after": rng.random((200, 4)) < p + 0.2,
            "random": rng.random((200, 4)) < 0.05,
            "single": rng.random((200, 4)) < p + 0.01,
        }
    )


def test_table_has_every_system_baseline_first(frame: pl.DataFrame) -> None:
    table = {row.system: row for row in comparison_table(frame)}
    assert list(table) == ["before", "after", "random", "single"]
    assert table["before"].difference is None
    after = table["after"]
    success = frame.filter(pl.col("system") == "after")["success"].to_numpy().reshape(200, 4)
    assert after.success.mean == pytest.approx(success.mean())
    assert (after.tasks, after.trials, after.runs, after.episodes) == (200, 4, 1, 800)
    assert after.pass_at_k[1].mean == pytest.approx(success.mean())
    assert after.pass_at_k[4].mean == pytest.approx(success.any(1).mean())
    assert after.pass_hat_k[4].mean == pytest.approx(success.all(1).mean())
    assert after.pass_hat_k[4].mean == pytest.approx(pass_hat_k(4, success.sum(1), 4).mean())
    assert (after.turns, after.tokens, after.cost) == (2, 13, 0.5)
    assert after.success.low < after.success.mean < after.success.high
    json.dumps([row.to_dict() for row in table.values()], allow_nan=False)


def test_p_values_are_corrected_over_systems(make_trials: Maker) -> None:
    ups = {"one": 6, "two": 7, "three": 8}  # exact p = 2 / 2^up
    tasks = np.arange(40)[:, None]
    frame = make_trials({"before": tasks < 0} | {name: tasks < up for name, up in ups.items()})
    raw = [2 / 2 ** ups[name] for name in sorted(ups)]
    corrected = [row.difference.p for row in comparison_table(frame) if row.difference]
    assert corrected == pytest.approx(list(multipletests(raw, method="holm")[1]))
    assert corrected == pytest.approx([2 / 2**6, 3 * 2 / 2**8, 2 * 2 / 2**7])
    assert holm([0.01, float("nan"), 0.04]) == pytest.approx([0.02, float("nan"), 0.04], nan_ok=True)
    assert holm([]) == []


def test_verdicts(frame: pl.DataFrame) -> None:
    rows = {row.system: row for row in comparison_table(frame)}
    assert verdict(rows["before"]) == "the baseline"
    d = rows["after"].difference
    assert d is not None
    assert verdict(rows["after"]) == (
        f"better by {100 * d.mean:+.1f} points "
        f"(simultaneous 95 % interval of 3 comparisons {100 * d.low:+.1f} to {100 * d.high:+.1f}, 200 tasks × 4 trials)"
    )
    assert verdict(rows["random"]).startswith("worse by −")
    assert verdict(rows["single"]).startswith("cannot tell: the interval contains 0")


def test_cannot_tell_says_how_many_tasks_would_do(make_trials: Maker) -> None:
    rng = np.random.default_rng(3)
    p = rng.random((40, 1)) * 0.8
    rows = comparison_table(make_trials({"before": rng.random((40, 2)) < p, "after": rng.random((40, 2)) < p + 0.05}))
    text = verdict(rows[1])
    d = rows[1].difference
    assert d is not None
    needed = 40 + int(text.split("run ")[1].split(" ")[0])
    assert text.startswith("cannot tell")
    assert needed == pytest.approx(7.849 * (d.sd / d.mean) ** 2, abs=1)
    assert needed > 40


def test_of_a_single_task_more_trials_would_do(make_trials: Maker) -> None:
    rng = np.random.default_rng(3)
    p = np.array([[0.4], [0.5]])
    before, after = rng.random((2, 1, 60)) < p[:, :, None]
    row = comparison_table(make_trials({"before": before, "after": after}))[1]
    assert row.difference is not None
    assert f"run {row.difference.more_tasks} more trials to find" in verdict(row)


def test_an_interval_clear_of_zero_is_not_enough_after_correction(make_trials: Maker) -> None:
    tasks = np.arange(30)[:, None]
    row = comparison_table(make_trials({"before": tasks < 0, "after": tasks < 9, "other": tasks < 0}))[1]
    d = row.difference
    assert d is not None
    assert d.low > 0
    assert verdict(row).startswith("better")
    doubted = replace(row, difference=replace(d, p=0.08))
    assert verdict(doubted).startswith("cannot tell: p = 0.08 after correction: ")


def test_errors_are_counted_by_kind_and_unscored_trials_reported(make_trials: Maker) -> None:
    frame = make_trials({"before": np.ones((4, 2), bool), "after": np.ones((4, 2), bool)}).with_row_index()
    frame = frame.with_columns(
        error=pl.when(pl.col("index") < 2).then(pl.lit("env: ValueError: x"))
        .when(pl.col("index") == 2).then(pl.lit("reward: KeyError: y")),
        success=pl.when(pl.col("index") != 2).then(pl.col("index") >= 2),
    )  # fmt: skip
    before, after = comparison_table(frame)
    assert before.errors == {"env": 2, "reward": 1}
    assert before.unscored == 1
    assert after.errors == {}
    assert after.difference is not None
    assert after.difference.clusters == 4


def test_score_is_compared_in_its_own_unit_and_several_runs_are_said(make_trials: Maker) -> None:
    rng = np.random.default_rng(0)
    before = rng.normal(size=(5, 30, 2))
    rows = comparison_table(
        make_trials({"before": before, "after": before + rng.normal(2, 0.5, (5, 30, 2))}), value="score"
    )
    assert verdict(rows[1]).startswith("better by +2")
    assert "30 tasks × 2 trials, 5 runs)" in verdict(rows[1])
    same = comparison_table(make_trials({"before": before, "after": rng.normal(size=(5, 30, 2))}), value="score")
    assert "would be found 4 times out of 5" in verdict(same[1])


def test_nothing_in_common_and_missing_baseline(make_trials: Maker) -> None:
    frame = make_trials({"before": np.ones((3, 1), bool), "after": np.ones((3, 1), bool)})
    apart = frame.with_columns(task=pl.col("system") + pl.col("task"))
    assert verdict(comparison_table(apart)[1]) == "cannot tell: no task has a success on both sides (6 dropped)"
    with pytest.raises(InputError, match="'befor' to compare with; did you mean 'before'"):
        comparison_table(frame, baseline="befor")


def test_games_without_success_are_compared_by_score(make_trials: Maker) -> None:
    frame = make_trials({"before": np.zeros((1, 20)), "after": np.tile([1.0, 2.0], (1, 10))})
    before, after = comparison_table(frame.with_columns(success=pl.lit(None, pl.Boolean)), value="score")
    assert after.success.n == 0
    assert np.isnan(after.pass_hat_k[20].mean)
    assert verdict(after).startswith("better by +1.5 ")
    assert "1 task × 20 trials" in verdict(after)
    json.dumps([before.to_dict(), after.to_dict()], allow_nan=False)


def test_systems_with_unequal_numbers_of_trials(make_trials: Maker) -> None:
    rng = np.random.default_rng(0)
    frame = make_trials({"before": rng.random((20, 4)) < 0.5, "after": rng.random((20, 1)) < 0.7})
    before, after = comparison_table(frame)
    assert (before.trials, after.trials) == (4, 1)
    assert list(before.pass_at_k) == [1, 4]
    assert list(after.pass_at_k) == [1]
    assert after.pass_at_k[1].n == 20


def test_a_verdict_counts_the_tasks_in_common(make_trials: Maker) -> None:
    rng = np.random.default_rng(0)
    frame = make_trials({"before": rng.random((100, 1)) < 0.5, "after": rng.random((100, 1)) < 0.5})
    few = frame.filter((pl.col("system") == "after") | pl.col("task").is_in([f"task-{n}" for n in range(10)]))
    assert "10 tasks × 1 trial, 90 dropped)" in verdict(comparison_table(few)[1])


def test_what_would_be_found_is_said_at_the_corrected_level(make_trials: Maker) -> None:
    rng = np.random.default_rng(1)
    p = rng.random((40, 1)) * 0.8
    gains = {"before": 0.0, "after": 0.2, "c": 0.0, "d": 0.0}
    frame = make_trials({name: rng.random((40, 2)) < p + gain for name, gain in gains.items()})
    alone = comparison_table(frame.filter(pl.col("system").is_in(["before", "after"])))[1].difference
    among = next(row.difference for row in comparison_table(frame) if row.system == "after")
    assert alone is not None
    assert among is not None
    assert among.detectable > 1.1 * alone.detectable
    assert among.more_tasks > alone.more_tasks


def test_equal_scores_claim_no_power(make_trials: Maker) -> None:
    frame = make_trials({"before": np.zeros((20, 1)), "after": np.zeros((20, 1))})
    said = verdict(comparison_table(frame, value="score")[1])
    assert said == "cannot tell: +0, and 20 tasks × 1 trial give no interval"


def outage(make_trials: Maker, lost: int, error: str = "policy: APIConnectionError: no route") -> pl.DataFrame:
    """Identical play on 100 tasks; `lost` trials of `before` end in an error."""
    success = (np.arange(100) % 2 == 0)[:, None]
    frame = make_trials({"before": success, "after": success})
    place = pl.col("task").str.extract(r"(\d+)").cast(int)
    gone = (pl.col("system") == "before") & (place < lost)
    return frame.with_columns(
        success=pl.when(gone).then(None).otherwise("success"), error=pl.when(gone).then(pl.lit(error))
    )


def test_an_outage_is_no_win(make_trials: Maker) -> None:
    before, after = comparison_table(outage(make_trials, 34))
    assert after.lost == {"before": (34, 100, {"policy": 34})}
    assert after.difference is not None
    assert after.difference.mean == 0
    assert after.difference.dropped == 34
    said = verdict(after)
    assert said.startswith("cannot tell: more than 20 % of the trials of one side are lost")
    assert said.endswith("left out, because the infrastructure failed: 34 of 100 trials of before (policy 34)")
    assert before.lost == after.lost
    json.dumps(after.to_dict(), allow_nan=False)


def test_a_few_lost_trials_are_counted_in_the_sentence(make_trials: Maker) -> None:
    won = pl.when(pl.col("system") == "after").then(True).otherwise("success")
    frame = outage(make_trials, 4).with_columns(success=won)
    said = verdict(comparison_table(frame)[1])
    assert said.startswith("better by +50.0 points")
    assert "4 of 100 trials of before (policy 4)" in said
    own = outage(make_trials, 4, "run: the agent gave up").with_columns(pl.col("success").fill_null(False))
    assert "infrastructure" not in verdict(comparison_table(own)[1])


def test_clusters_are_said(make_trials: Maker) -> None:
    rng = np.random.default_rng(0)
    frame = make_trials({"before": rng.random((60, 2)) < 0.4, "after": rng.random((60, 2)) < 0.5})
    frame = frame.with_columns(cluster=pl.col("task").str.extract(r"(\d+)").cast(int) % 15)
    said = verdict(comparison_table(frame)[1])
    assert "60 tasks in 15 clusters × 2 trials" in said
    assert "more clusters of tasks to find" in said


def test_what_makes_an_interval_doubtful_is_said(make_trials: Maker) -> None:
    rng = np.random.default_rng(0)
    values = {"before": rng.normal(size=(30, 1)), "after": rng.lognormal(0, 2, (30, 1))}
    assert "heavy tails" in verdict(comparison_table(make_trials(values), value="score")[1])
    few = {name: x[:6] for name, x in values.items()}
    assert "6 tasks: intervals of so few are rough" in verdict(comparison_table(make_trials(few), value="score")[1])


def test_no_difference_larger_than_the_scale_is_promised(make_trials: Maker) -> None:
    """Two tasks that disagree: Student's t with one degree of freedom asks for hundreds of points."""
    tasks = np.arange(2)[:, None]
    row = comparison_table(make_trials({"before": tasks < 1, "after": tasks < 0}))[1]
    assert row.difference is not None
    assert row.difference.detectable > row.difference.possible == 1.0
    said = verdict(row)
    assert "no difference that the scale allows would be found 4 times out of 5" in said
    assert "points would be found" not in said
    assert "only" not in said


def test_intervals_of_several_comparisons_hold_together(make_trials: Maker) -> None:
    """Four systems that equal the baseline: in 95 % of data sets no interval leaves 0 out; one by one, 84 % would."""
    rng = np.random.default_rng(0)
    missed = 0
    for _ in range(100):
        frame = make_trials({name: rng.normal(size=(30, 1)) for name in ("before", "a", "b", "c", "d")})
        found = [row.difference for row in comparison_table(frame, value="score", resamples=0) if row.difference]
        assert {d.comparisons for d in found} == {4}
        missed += any(not d.low <= 0 <= d.high for d in found)
    assert missed / 100 < 0.05 + 2.6 * np.sqrt(0.05 * 0.95 / 100)


def test_a_score_with_ends_has_intervals_inside(make_trials: Maker) -> None:
    frame = make_trials({"before": np.array([[0.5], [0.25]]), "after": np.array([[0.5], [1.0]])})
    before, after = comparison_table(frame, value="score")
    assert before.scale == after.scale == (0.0, 1.0)
    assert (after.score.low, after.score.high) == (0.0, 1.0)
    assert after.score.method == "t, clustered by task, cut off at the ends of the scale"
    assert after.difference is not None
    assert (after.difference.low, after.difference.high, after.difference.possible) == (-1.0, 1.0, 1.0)
    assert "(95 % interval −1 to +1, cut off at the ends of the scale, 2 tasks × 1 trial)" in verdict(after)

    graded = frame.with_columns(pl.col("score") * 10)
    free, ten = (comparison_table(graded, value="score", scale=scale)[1] for scale in (None, (0.0, 10.0)))
    assert free.scale is None
    assert free.score.low < -10
    assert "cut off" not in verdict(free) + free.score.method
    assert (ten.score.low, ten.score.high) == (0.0, 10.0)
    assert ten.difference is not None
    assert ten.difference.low == -10.0


def test_a_scale_that_does_not_hold_the_scores_is_refused(make_trials: Maker) -> None:
    frame = make_trials({"before": np.array([[5.0], [7.0]]), "after": np.array([[5.0], [12.0]])})
    with pytest.raises(InputError, match=r"scale 0 to 10: 1 of 4 trials have a score outside, the first 12 of system"):
        comparison_table(frame, value="score", scale=(0, 10))
    with pytest.raises(InputError, match="the highest score must be above the lowest"):
        comparison_table(frame, value="score", scale=(10, 0))


def test_tasks_that_were_drawn_several_times_are_said_with_the_range_of_their_trials(make_trials: Maker) -> None:
    """20 draws with two trials each of 11 tasks, of which one was drawn ten times."""
    frame = make_trials({name: np.arange(40).reshape(20, 2) % 3 == k for k, name in enumerate(("before", "after"))})
    names = {f"{old}": f"t{min(n, 10)}" for n, old in enumerate(frame["task"].unique(maintain_order=True))}
    row = comparison_table(frame.with_columns(pl.col("task").cast(pl.String).replace(names)))[1]
    assert (row.tasks, row.trials, row.per_task, row.to_dict()["per_task"]) == (11, 2, "2 to 20", "2 to 20")
    assert "11 tasks × 2 to 20 trials" in verdict(row)
    assert comparison_table(frame)[1].per_task == "2"


def test_a_system_without_a_value_is_no_comparison(make_trials: Maker) -> None:
    rng = np.random.default_rng(1)
    frame = make_trials({name: rng.random((30, 1)) < rate for name, rate in (("before", 0.2), ("after", 0.6))})
    unknown = frame.filter(pl.col("system") == "after").with_columns(system=pl.lit("lost"), success=None)
    rows = comparison_table(pl.concat([frame, unknown.select(frame.columns)], how="vertical_relaxed"))
    assert rows[1].difference == comparison_table(frame)[1].difference
    assert rows[2].difference is not None
    assert rows[2].difference.n == 0


def test_runs_of_other_names_are_called_so(make_trials: Maker) -> None:
    frame = make_trials({name: np.ones((3, 1), bool) for name in ("before", "after")})
    apart = frame.with_columns(run=pl.col("system") + "-1")
    assert "the runs of the two sides have other names" in verdict(comparison_table(apart)[1])
