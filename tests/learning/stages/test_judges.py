"""Judges as stages: what is paid where, what is never asked twice, what failed is missing, what the budget allows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from stage_play import context, script, talk, trained

from palaestra.algebra.signals import total
from palaestra.algebra.turns import Turns
from palaestra.errors import InputError, RecipeError, StorageError
from palaestra.learning.stages.judges import judge, message_labels
from palaestra.runs.build import check, resolve
from palaestra.runs.recipe import load

PLAY = talk([["good", "good"], ["bad", "good"], ["bad", "bad", "bad"]])


def last_is_good(text: str) -> str:
    shown = text.split("End of the transcript")[0]
    return "VERDICT: yes" if shown.rsplit("action: ", 1)[-1].startswith("good") else "VERDICT: no"


def test_a_verdict_of_each_turn() -> None:
    stage = judge("fine", question="Was it good?", policy=script(last_is_good), level="turn")
    made = stage(PLAY, context())
    assert made["judge.fine"].to_list() == [1, 1, 0, 1, 0, 0, 0]
    assert {*made.columns} - {*PLAY.columns} == stage.adds.keys() == {"judge.fine", "judge.fine.ok", "judge.fine.fine"}
    assert made["judge.fine.ok"].all()


def test_a_verdict_of_an_episode_is_paid_once_however_long_it_is() -> None:
    stage = judge("fine", question="Good in the end?", policy=script(last_is_good))
    made = stage(PLAY, context())
    assert made["judge.fine"].to_list() == [0, 1, 0, 1, 0, 0, 0]
    assert total("judge.fine", over="episode").evaluate(made).tolist() == [1, 1, 1, 1, 0, 0, 0]
    every = judge("fine", question="Good in the end?", policy=script(last_is_good), everywhere=True)
    assert every(PLAY, context())["judge.fine"].to_list() == [1, 1, 1, 1, 0, 0, 0]


def test_items_are_weighted_and_one_that_cannot_be_read_leaves_the_sum_missing() -> None:
    def answer(text: str) -> str:
        if "Is it brief?" in text:
            return "no idea" if "[turn 2]" in text else "VERDICT: 0.5"
        return last_is_good(text)

    items = {"good": "Is it good?", "brief": {"question": "Is it brief?", "weight": 2.0}}
    made = judge("both", items=items, policy=script(answer))(PLAY, context())
    assert made["judge.both"].to_list() == [0, 2, 0, 2, None, None, None]
    assert made["judge.both.good"].to_list() == [0, 1, 0, 1, 0, 0, 0]
    assert made["judge.both.brief"].to_list() == [0, 0.5, 0, 0.5, None, None, None]
    assert made["judge.both.ok"].to_list() == [True] * 4 + [False] * 3


def test_another_weighting_asks_nobody() -> None:
    asked: list[str] = []

    def answer(text: str) -> str:
        asked.append(text)
        return last_is_good(text)

    stage = judge("both", items={"good": "Good?", "kind": "Kind?"}, policy=script(answer))
    stage(PLAY, context())
    again = judge("both", items={"good": "Good?", "kind": "Kind?"}, weights={"good": 0.0}, policy=script(answer))
    again.load_state_dict(stage.state_dict())
    assert again(PLAY, context())["judge.both"].to_list() == [0, 1, 0, 1, 0, 0, 0]
    assert len(asked) == 6


def test_verdicts_are_kept_in_a_file(tmp_path: Path) -> None:
    path, asked = str(tmp_path / "answers.jsonl"), []

    def answer(text: str) -> str:
        asked.append(text)
        return "VERDICT: yes"

    for _ in range(2):
        judge("x", question="Good?", policy=script(answer), cache=path)(PLAY, context())
    assert len(asked) == 3


def test_calls_are_counted_and_end_with_the_budget() -> None:
    stage, here = judge("x", question="Good?", policy=script(last_is_good), budget=2), context()
    made = stage(PLAY, here)
    assert here.spent.calls == 2
    assert made["judge.x"].to_list() == [0, 1, 0, 1, None, None, None]
    assert stage(PLAY, context(2))["judge.x"].null_count() == 3
    fresh = judge("x", question="Good?", policy=script(last_is_good), budget=2)
    fresh.load_state_dict(stage.state_dict())
    assert fresh(talk([["other"]]), context(3))["judge.x"].to_list() == [None]


def test_votes_are_a_share_and_a_list() -> None:
    answers = iter(["VERDICT: yes", "VERDICT: no", "VERDICT: yes"])
    stage = judge("x", question="Good?", policy=script(lambda text: next(answers)), votes=3)
    made = stage(talk([["good"]]), context())
    assert made["judge.x.x"].to_list() == [pytest.approx(2 / 3)]
    assert made["judge.x.x.votes"].to_list() == [[True, False, True]]


def test_a_judge_sees_the_evidence_only() -> None:
    seen: list[str] = []

    def answer(text: str) -> str:
        seen.append(text)
        return "VERDICT: yes"

    turns = PLAY.with_column(evidence=pl.Series([None, [0], None, [1], None, None, [2]], dtype=pl.List(pl.Int64)))
    judge("x", question="Good?", policy=script(answer), evidence="evidence")(turns, context())
    assert [text.count("[turn") for text in seen] == [2, 2, 2]  # observation and action of one turn each


def test_a_rubric_is_a_file(tmp_path: Path) -> None:
    path = tmp_path / "rubric.yaml"
    path.write_text("- {name: good, question: 'Good?', weight: 0.7}\n- {name: kind, question: 'Kind?', weight: 0.3}\n")
    made = judge("r", rubric=str(path), policy=script(lambda text: "VERDICT: yes"))(PLAY, context())
    assert made["judge.r"].to_list() == pytest.approx([0, 1, 0, 1, 0, 0, 1])
    path.write_text("just words")
    with pytest.raises(StorageError, match=r"rubric.yaml: expected a rubric"):
        judge("r", rubric=str(path))
    with pytest.raises(StorageError, match="expected a rubric"):
        judge("r", rubric=str(tmp_path / "none.yaml"))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "give one of question, items and rubric"),
        ({"question": "?", "items": {"a": "?"}}, "give one of question, items and rubric"),
        ({"items": {}}, "no items"),
        ({"items": {"a": {"text": "?"}}}, "item 'a': unknown field 'text'"),
        ({"items": {"a": {"weight": 2}}}, "item 'a': question is None"),
        ({"items": {"a": {"question": "?", "weight": "heavy"}}}, "item 'a': .*weight is a number"),
        ({"items": {"a": ["?"]}}, "item 'a': expected a question"),
        ({"items": {"good": "?"}, "weights": {"god": 1}}, "'god', which is no item; did you mean 'good'"),
        ({"question": "?", "budget": 0}, "at least one call"),
    ],
)
def test_what_cannot_be_judged_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        judge("x", **options)


def test_a_run_is_judged_by_a_policy_of_its_recipe() -> None:
    learned, tables = trained("talk", {"train": {"iterations": 3}})
    spent = [line["stages"]["judge"]["calls"] for line in learned.lines]
    assert 0 < spent[0] <= 32
    right = (tables[0]["judge.fits"] == tables[0]["fits"].cast(float)).mean()
    assert 0.7 < right < 1, "the script errs on one of ten"
    transcripts = pl.concat(tables).n_unique(["turn", "action"])
    assert sum(spent) >= transcripts


def test_a_policy_that_nobody_gave_is_said_before_anything_is_played() -> None:
    recipe = load("talk", ["stages=judge('x', question='?', policy='juge')"])
    with pytest.raises(RecipeError, match="asks the policy 'juge'; did you mean 'judge'"):
        check(resolve(recipe))


MESSAGES = Turns({"group": [0] * 3, "episode": [0] * 3, "turn": [0, 1, 2], "message": ["a key", None, "a wall"]})


def test_labels_are_known_an_iteration_later() -> None:
    answers = {"a key": "LABEL: 1", "a wall": "LABEL: 0"}
    annotator = script(lambda text: next(label for message, label in answers.items() if f"\n{message}\n" in text))
    stage, here = message_labels("find the key", policy=annotator), context()
    assert stage(MESSAGES, here)["label"].to_list() == [None] * 3
    assert here.spent.calls == 2
    again = message_labels("find the key", policy=annotator)
    again.load_state_dict(stage.state_dict())
    assert again(MESSAGES, context(2))["label"].to_list() == [1, None, 0]


def test_what_the_annotator_has_no_time_for_waits() -> None:
    stage = message_labels("win", policy=script(lambda text: "LABEL: 1"), batch=1)
    stage(MESSAGES, context())
    again = message_labels("win", policy=script(lambda text: "LABEL: 1"), batch=1)
    again.load_state_dict(stage.state_dict())
    assert again(MESSAGES, context(2))["label"].to_list() == [None, None, 1]
    assert again(MESSAGES, context(3))["label"].to_list() == [1, None, 1]


def test_a_run_learns_from_labels() -> None:
    policies = {
        "annotator": {
            "kind": "script",
            "options": {"script": "palaestra.judges.scripted:mentions", "words": ["useful"]},
        }
    }
    changes = {
        "env": {"options": {"map": "message"}}, "policies": policies, "stages": ['message_labels("reach the goal")'],
        "reward": 'oni_reward("label", "message")', "train": {"iterations": 2},
    }  # fmt: skip
    _, (first, second) = trained("maze", changes)
    met = second.filter(pl.col("message").is_not_null())
    assert first["label"].null_count() == len(first)
    assert met["label"].to_list() == [1.0] * len(met)
    assert np.isclose(met["reward"].max(), 0.4)
