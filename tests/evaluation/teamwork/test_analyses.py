from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from palaestra.errors import InputError, MissingColumnError
from palaestra.evaluation.analyses import analyze
from palaestra.evaluation.teamwork import action_quality, decision_quality

DATA = Path(__file__).parents[2] / "atlas" / "data"


def test_a_team_is_read_from_its_file():
    rows = analyze('coordination("single")', DATA / "team.parquet").rows(named=True)
    assert [row["system"] for row in rows] == ["single", "team"]
    assert rows[1]["overhead"] == 5.0
    assert rows[1]["density"] == 1.0  # of six heard in a round of six turns two are kept by each of three
    found = analyze("importance", DATA / "team.parquet")
    assert set(found["agent"]) == {"solver", "debater-1", "debater-2", "debater-3"}
    assert found.filter(pl.col("agent") != "solver")["importance"].sum() == pytest.approx(1.0)
    counted = analyze("flips", DATA / "team.parquet").filter(turn=1).row(0, named=True)
    assert sum(counted[name] for name in ("stayed_right", "stayed_wrong", "to_right", "to_wrong")) == 12 * 2 * 3


def test_some_questions_need_no_file():
    assert analyze("synergy(3, fidelity=.9)")["survives"].to_list() == [True]
    assert analyze("synergy(3, fidelity=.6)")["fixed_point"].to_list() == [0.0]
    assert analyze("conversation(1000, [200], [200])").row(0) == (2000.0, 2000.0, 0.0)
    saved = analyze("conversation(1000, [200, 200], [200, 200])").row(0)
    assert saved == (4200.0, pytest.approx(3140.0), pytest.approx(1 - 3140 / 4200))
    with pytest.raises(InputError, match="files were given"):
        analyze("synergy()", DATA / "team.parquet")


def test_answers_that_do_not_depend_on_the_case_are_named():
    found = {row["system"]: row for row in analyze("decisions", DATA / "decisions.jsonl").iter_rows(named=True)}
    assert found["constant"]["constant"]
    assert found["constant"]["variance"] == 0
    assert not found["reads"]["constant"]
    assert found["reads"]["correctness"] - found["reads"]["elsewhere"] == 1.0
    with pytest.raises(MissingColumnError, match="case"):
        analyze("decisions", DATA / "points.csv")


def test_the_scorers_parts():
    assert action_quality([], "x") == (0.0, 0.0, 0.0)
    validity, specificity, correctness = action_quality(["restart the service", "rollback to v2.1"], "rollback to v2.1")
    assert validity == 1.0
    assert specificity == pytest.approx((0.33 + 1.0) / 2)
    assert correctness == pytest.approx((0.0 + 1.0) / 2)
    words = "a b c d e f g h i j"
    shares = [action_quality([words[: 2 * n]], words)[2]
              for n in (1, 2, 3, 4, 5, 6, 7, 8)]  # fmt: skip
    assert shares == [0.25, 0.25, 0.5, 0.5, 0.75, 0.75, 1.0, 1.0]


def test_lines_of_a_text_are_actions():
    frame = pl.DataFrame({"system": ["s"] * 2, "case": [0, 1], "actions": ["a b\n", "c"], "truth": ["a b", "d"]})
    assert decision_quality(frame)["correctness"].to_list() == [0.5]
    assert decision_quality(frame)["constant"].to_list() == [False]
    blank = frame.with_columns(actions=pl.Series(["a b\n\n \n", "d"]))
    assert decision_quality(blank)["correctness"].to_list() == [1.0], "an empty line is no action"
    turned = frame.with_columns(actions=pl.Series(["a b\nc", "c\na b"]))
    assert decision_quality(turned)["constant"].to_list() == [True], "the same actions in another order"
    assert action_quality(["ROLL BACK TO V2.3"], "Roll Back to v2.3") == (1.0, 1.0, 1.0), "in whatever case"
    none = frame.with_columns(actions=pl.lit(""))
    assert decision_quality(none, threshold=0.0)["actionable"].to_list() == [0.0], "0 is not above 0"
    assert decision_quality(frame[:1])["constant"].to_list() == [False], "of one case nobody can tell"


def test_members_trees_and_votes_are_asked_for_by_name(tmp_path):
    frame = pl.DataFrame(
        {"group": [0] * 3, "turn": [0] * 3, "agent": list("abc"), "embedding": [[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]]}
    )
    frame.write_parquet(tmp_path / "team.parquet")
    assert analyze("members(1)", tmp_path / "team.parquet")["agent"].to_list() == ["c"]
    drawn = analyze('members(2, by="lot")', tmp_path / "team.parquet")["agent"].to_list()
    assert len(set(drawn)) == 2
    assert analyze("added_channels", tmp_path / "team.parquet")["agent"][0] == "c"
    assert analyze("vote(.7, correlation=.9)")["right"].round(3).to_list()[4] == 0.769
    assert analyze("tree(729, .02, .5, fidelity=.95)")["team"].to_list() == [False]
    assert "constant" not in analyze("decisions(audit=False)", DATA / "decisions.jsonl").columns
    assert len(analyze("importance(keep=2)", DATA / "team.parquet")) == 2


SEATS = [
    {"episode": 0, "turn": turn, "agent": name, "heard": ["p", "q"][: 2 * turn], "heard_turn": [0, 0][: 2 * turn]}
    for turn in range(2)
    for name in "pq"
]
VECTORS = {"s": [[1.0, 0.0, 0.0]] * 2, "t": [[0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]}
QUESTIONS = ("importance", "hindsight", 'flips("score")', 'flips("score", by="system")', 'coordination("s")')


@pytest.mark.parametrize("shared", ["system", "task"])
@pytest.mark.parametrize("question", QUESTIONS)
def test_episodes_of_two_systems_or_tasks_may_have_one_number(tmp_path: Path, question: str, shared: str) -> None:
    """As a run of this package plays the same episodes with every system."""
    rows = [
        row | {"system": s, "task": s if shared == "task" else "t", "answer": "xy"[(s, row["agent"]) == ("t", "q")],
               "score": float(s == "s"), "success": s == "s", "helped": s == "s"}
        for s in "st" for row in SEATS
    ]  # fmt: skip
    frame = pl.DataFrame(rows, schema_overrides={"heard": pl.List(pl.String), "heard_turn": pl.List(pl.Int64)})
    frame.write_parquet(tmp_path / "shared.parquet")
    own = frame.with_columns(episode=(pl.col("system") == "t").cast(pl.Int32), group=pl.lit(0))
    own.write_parquet(tmp_path / "own.parquet")
    assert analyze(question, tmp_path / "shared.parquet").equals(analyze(question, tmp_path / "own.parquet"))


def test_answers_of_two_systems_are_not_of_one_team(tmp_path: Path) -> None:
    frame = pl.DataFrame([
        {"system": s, "group": 0, "turn": 0, "episode": 0, "agent": name, "embedding": vector}
        for s, vectors in VECTORS.items() for name, vector in zip("pq", vectors, strict=True)
    ])  # fmt: skip
    frame.write_parquet(tmp_path / "team.parquet")
    assert analyze("channels", tmp_path / "team.parquet")["channels"].to_list() == pytest.approx([1, 2])
    assert set(analyze("added_channels", tmp_path / "team.parquet")["added"].to_list()) == {0.5}
    assert analyze("contribution", tmp_path / "team.parquet")["contribution"].to_list() == pytest.approx(
        [0.8536] * 2, abs=1e-4
    )
