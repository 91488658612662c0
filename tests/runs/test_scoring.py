"""Scorers that pay nobody: what they give to held-out play stands beside success, of every system."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from palaestra.agents.policy import Decision
from palaestra.algebra.turns import Turns
from palaestra.errors import RecipeError
from palaestra.interface.library import train
from palaestra.runs.config import ScorerPart
from palaestra.runs.recipe import load
from palaestra.runs.scoring import Scoring, compare_scores

JUDGE = (
    "policies.judge={kind: script, options: {script: 'palaestra.judges.scripted:mentions', words: ['answer 1'], "
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
    assert one["spent"]["calls"] > 0
    assert (one["missing"], one["spent"]["refused"]) == (0, 0)


def test_what_no_scorer_could_say_is_said_to_be_missing() -> None:
    frame = pl.DataFrame({"run": "0", "system": ["before", "after"], "task": "a", "episode": [0, 0], "turn": 0,
                          "action": "x", "agent": "a", "success": True, "reward": [None, None]},
                         schema_overrides={"reward": pl.Float64})  # fmt: skip
    scoring = Scoring({"r": ScorerPart.model_validate("verifier('reward')")}, {}, seed=0)
    assert scoring(Turns(frame.filter(pl.col("system") == "after")))["score.r"].to_list() == [None]
    assert scoring.totals()["r"] == {"episodes": 1, "missing": 1, "calls": 0, "tokens": 0, "cost": 0.0, "refused": 0}
    both = Turns(frame.with_columns(pl.lit(None, pl.Float64).alias("score.r")))
    assert compare_scores(both, ["r"], None)["r"]["systems"] == {}


@pytest.mark.parametrize(("unit", "budget"), [("calls", 12), ("calls", {"calls": 12}), ("tokens", {"tokens": 36})])
def test_a_judge_of_held_out_play_keeps_its_budget_which_all_systems_share_alike(unit: str, budget: object) -> None:
    frame = pl.DataFrame({"run": "0", "task": [f"t{n}" for n in range(9)], "group": range(9), "episode": range(9),
                          "turn": 0, "agent": "a", "observation": "?", "success": True})  # fmt: skip
    judge = Paid()
    part = ScorerPart.model_validate({"scorer": "judged(question='Kind?', policy='judge')", "budget": budget})
    scoring = Scoring({"kind": part}, {"judge": judge}, seed=0, systems=3)
    played = [
        scoring(Turns(frame.with_columns(action=pl.format("{} {}", pl.lit(system), "task"))))
        for system in ("before", "after", "random")
    ]
    scores = [each["score.kind"].to_list() for each in played]
    assert scores == [[1.0] * 4 + [None] * 5] * 3  # the same tasks of each
    told = scoring.totals()["kind"]
    assert told == {"episodes": 27, "missing": 15, "calls": 12, "tokens": 36, "cost": 6.0, "refused": 15}
    assert judge.asked == 12
    whole = Turns.concat(Turns(each.frame.with_columns(system=pl.lit(name)))
                         for name, each in zip(("before", "after", "random"), played, strict=True))  # fmt: skip
    found = compare_scores(whole, ["kind"], None, [{"kind": told}, {"kind": told}])["kind"]
    assert found["spent"] == {"calls": 24, "tokens": 72, "cost": 12.0, "refused": 30}
    assert found["missing"] == 30
    assert "30 of 54 episodes have no score, 30 questions were beyond the budget" in found["verdict"]


class Paid:
    """A judge who says yes, for three tokens and half a unit of money."""

    name = "judge"
    asked = 0

    def act(self, requests: Any) -> list[Decision]:
        self.asked += len(requests)
        return [Decision("VERDICT: yes", tokens_in=2, tokens_out=1, cost=0.5) for _ in requests]


def test_answers_in_a_file_are_not_paid_for_again(tmp_path: Path) -> None:
    frame = pl.DataFrame({"task": "t", "group": 0, "episode": [0, 1], "turn": 0, "agent": "a", "observation": "?",
                          "action": ["one", "two"]})  # fmt: skip
    given = {"scorer": "judged(question='Kind?', policy='judge')", "cache": str(tmp_path / "answers.jsonl")}
    part, judge = ScorerPart.model_validate(given), Paid()
    for _ in range(2):
        scoring = Scoring({"kind": part}, {"judge": judge}, seed=0)
        assert scoring(Turns(frame))["score.kind"].to_list() == [1.0, 1.0]
    assert judge.asked == 2


@pytest.mark.parametrize(
    ("scorer", "said"),
    [
        ("verifyer('reward')", "verifier"),
        ("judged(question='?', policy='jugde')", "jugde"),
        ({"scorer": "stub()", "budget": 0}, r"evaluation\.scorers\.x\.budget: .*at least one call"),
        ({"scorer": "stub()", "budget": {"token": 5}}, "did you mean 'tokens'"),
        ({"budget": 5}, r"evaluation\.scorers\.x\.scorer"),
    ],
)
def test_a_scorer_that_is_not_there_is_named_before_anything_is_played(scorer: Any, said: str, tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match=said):
        train("answers", tmp_path / "run", overrides=[*SMALL, JUDGE, f"evaluation.scorers={json.dumps({'x': scorer})}"])
    assert load("answers").evaluation.scorers == {}
