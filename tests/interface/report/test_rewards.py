"""The rewards section: what each component paid and when, and the audits with the rows that prove them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from palaestra.errors import StorageError
from palaestra.interface.report.load import SeedRun, load_run
from palaestra.interface.report.page import write_report
from palaestra.interface.report.rewards import _shares, rewards


def play(iteration: int = 3, seed: int = 0, *, farm: bool = True, episodes: int = 40) -> pl.DataFrame:
    """Episodes of up to six turns; repeating pays .5 a turn if it can be farmed, being right pays 1."""
    rng = np.random.default_rng(seed)
    rows = []
    for e in range(episodes):
        right = bool(rng.random() < 0.4)
        length = int(rng.integers(2, 7))
        for t in range(length):
            last = t == length - 1
            rows.append({
                "iteration": iteration, "group": e // 4, "episode": e % 4, "turn": t, "agent": "a",
                "state": 0 if not last else 1, "action": "stop" if last else "again", "success": right,
                "terminated": last, "r_right": float(right and last), "r_echo": 0.5 * (farm and not last),
            })  # fmt: skip
    frame = pl.DataFrame(rows).with_columns(reward=pl.col("r_right") + pl.col("r_echo"))
    return frame.with_columns(pl.col("state").cast(pl.UInt64))


def seed_of(name: str, frame: pl.DataFrame, metrics: list[dict] | None = None) -> SeedRun:  # type: ignore[type-arg]
    return SeedRun(name, metrics or [], False, frame, None, {})


def test_shares_means_and_histograms() -> None:
    frame = play()
    found = rewards([seed_of("0", frame)])
    assert found is not None
    right, echo = found.components
    assert (right.name, echo.name) == ("right", "echo")
    assert (found.turns, found.episodes) == (len(frame), 40)
    assert right.mean == pytest.approx(frame["r_right"].sum() / 40)
    assert right.share + echo.share == pytest.approx(1)
    assert echo.paid == pytest.approx((frame["r_echo"] > 0).mean())
    assert [panel.title for panel in found.histograms] == ["right", "echo", "Sum"]


def test_correlations_are_of_episodes() -> None:
    frame = play()
    found = rewards([seed_of("0", frame)])
    assert found is not None
    rows = dict(found.correlations.rows)
    at = dict(zip(found.correlations.columns, rows["right"], strict=True))
    assert at["success"].shade == pytest.approx(1)
    sums = frame.group_by("group", "episode").agg(pl.col("r_right", "r_echo").sum())
    assert at["echo"].shade == pytest.approx(sums.select(pl.corr("r_right", "r_echo")).item())
    assert found.correlations.columns[-1] == "success"


def test_a_farmable_loop_is_found_with_its_rows_and_seeds() -> None:
    found = rewards([seed_of("0", play(farm=False)), seed_of("7", play(seed=1))])
    assert found is not None
    first = found.findings[0]
    assert first.finding.verdict == "fail"
    assert first.seeds == ("7",)
    assert "again" in first.rows[0]
    assert "state" not in first.columns
    order = [f.finding.verdict for f in found.findings]
    assert order == sorted(order, key=["fail", "warn", "pass", "cannot tell"].index)


def test_no_component_no_section() -> None:
    assert rewards([seed_of("0", play().drop("r_right", "r_echo"))]) is None
    assert rewards([SeedRun("0", [], False, None, None, {})]) is None


def test_components_that_are_not_the_reward_do_not_hide_it() -> None:
    """The reward has a part that no component shows: the audits read the reward itself."""
    frame = play(farm=False).with_columns(reward=pl.col("reward") + 0.5 * (pl.col("action") == "again"))
    found = rewards([seed_of("0", frame)])
    assert found is not None
    assert found.findings[0].finding.verdict == "fail"


@pytest.mark.parametrize("kept", ["metrics", "turns"])
def test_share_over_training_from_metrics_or_from_the_turns_kept(tmp_path: Path, kept: str) -> None:
    folder = tmp_path / "run" / "seed-0"
    (folder / "turns").mkdir(parents=True)
    lines = []
    for i in (1, 2, 3):
        frame = play(i, farm=i > 1)
        frame.write_parquet(folder / "turns" / f"iteration-{i:06}.parquet")
        parts = {"right": float(frame["r_right"].sum()), "echo": float(frame["r_echo"].sum())}
        lines.append({"iteration": i, **({"components": parts} if kept == "metrics" else {})})
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    run = load_run(tmp_path / "run")
    assert bool(run.seeds[0].components) is (kept == "turns")
    found = rewards(run.seeds)
    assert found is not None
    assert found.shares is not None
    assert "right: 100.0\u00a0% at iteration 1" in found.shares.svg
    page = write_report(tmp_path / "run").read_text()
    for text in ("<h2>Rewards</h2>", "Share of the return", "What the audits found", "the rows that prove it"):
        assert text in page
    (folder / "turns" / "iteration-000002.parquet").write_bytes(b"half a file")
    if kept == "turns":
        with pytest.raises(StorageError, match="iteration-000002"):
            load_run(tmp_path / "run")


def test_shares_over_training_need_two_iterations() -> None:
    lines = [{"iteration": n, "components": {"r_right": 3.0, "r_echo": -1.0}} for n in range(2)]
    assert _shares([seed_of("0", play(), lines[:1])], ["right", "echo"]) is None
    chart = _shares([seed_of("0", play(), lines)], ["right", "echo"])
    assert chart is not None
    assert "75" in chart.svg
