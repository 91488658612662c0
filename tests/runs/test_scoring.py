"""Scorers that pay nobody: what they give to held-out play stands beside success, of every system."""

from __future__ import annotations

import json
from pathlib import Path

import polars as pl
import pytest

from palaestra.algebra.turns import Turns
from palaestra.errors import RecipeError
from palaestra.interface.library import train
from palaestra.runs.recipe import load
from palaestra.runs.scoring import compared, scored

JUDGE = (
    "policies.judge={kind: script, options: {teacher: 'palaestra.judges.scripted:mentions', words: ['answer 1'], "
    "tag: VERDICT}}"
)
SCORERS = "evaluation.scorers={right: \"verifier('reward')\", one: \"judged(question='Said 1?', policy='judge')\"}"
SMALL = ("seeds=1", "train.iterations=4", "evaluation.tasks=16", "evaluation.trials=2", "evaluation.look_tasks=4")


def test_all_systems_are_scored_by_what_paid_nobody(tmp_path: Path) -> None:
    summary = train("answers", tmp_path / "run", overrides=[*SMALL, JUDGE, SCORERS])
    played = Turns.load(tmp_path / "run" / "seed-0" / "evaluation.parquet").frame
    assert played["score.right"].to_list() == played["reward"].to_list()
    assert played["score.one"].to_list() == (played["action"] == "answer 1").cast(pl.Float64).to_list()
    right, one = (summary["scores"][name] for name in ("right", "one"))
    assert set(right["systems"]) == {"before", "after", "random"}
    tasks = played.group_by("system", "task").agg(pl.col("reward").mean(), said=(pl.col("action") == "answer 1").mean())
    means = tasks.group_by("system").agg(pl.col("reward", "said").mean())  # every task counts alike
    for system, reward, said in means.select("system", "reward", "said").iter_rows():
        assert right["systems"][system]["mean"] == pytest.approx(reward)
        assert one["systems"][system]["mean"] == pytest.approx(said)
    assert right["difference"] == pytest.approx(summary["difference"])  # reward is success here
    assert ("cannot tell" in right["verdict"]) == ("cannot tell" in summary["verdict"])
    assert json.loads((tmp_path / "run" / "summary.json").read_text())["scores"]["one"]["systems"] == one["systems"]
    page = (tmp_path / "run" / "report.html").read_text()
    assert "Score right" in page
    assert "Score one" in page


def test_what_no_scorer_could_say_is_said_to_be_missing() -> None:
    frame = pl.DataFrame({"run": "0", "system": ["before", "after"], "task": "a", "episode": [0, 0], "turn": 0,
                          "action": "x", "agent": "a", "success": True, "reward": [None, None]},
                         schema_overrides={"reward": pl.Float64})  # fmt: skip
    found = scored(Turns(frame.filter(pl.col("system") == "after")), {"r": "verifier('reward')"}, {}, seed=0)
    assert found["score.r"].to_list() == [None]
    both = Turns(frame.with_columns(pl.lit(None, pl.Float64).alias("score.r")))
    assert compared(both, {"r": "verifier('reward')"}, None)["r"]["systems"] == {}


@pytest.mark.parametrize(
    ("scorer", "said"),
    [("verifyer('reward')", "verifier"), ("judged(question='?', policy='jugde')", "jugde")],
)
def test_a_scorer_that_is_not_there_is_named_before_anything_is_played(scorer: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match=said):
        train("answers", tmp_path / "run", overrides=[*SMALL, JUDGE, f'evaluation.scorers={{x: "{scorer}"}}'])
    assert load("answers").evaluation.scorers == {}
