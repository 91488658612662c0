"""Reward programs over tables: what they see, what they remember, as columns and as signals."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest

from palaestra.algebra.parse import parse
from palaestra.algebra.turns import Turns
from palaestra.credit import decompose, redistribute
from palaestra.envs.sandbox import process as sandbox
from palaestra.errors import ExpressionError, MissingColumnError, RewardError, StorageError
from palaestra.judges import programs as module
from palaestra.judges.programs import RewardProgram, annotate, auto_mc_reward, program, program_signal
from palaestra.judges.prompts import NameMap, describe, similar
from palaestra.testing import check_signal
from palaestra.testing.signal import sample_turns

TABLE = Turns(
    {
        "group": [0, 0, 0, 0],
        "episode": [0, 1, 0, 1],
        "turn": [1, 0, 0, 1],
        "agent": ["a"] * 4,
        "distance": [2.0, 5.0, 3.0, 6.0],
        "text": ["near", "far", None, "far"],
        "reward": [0.0, 0.0, 1.0, 2.0],
    }
)
DROP = """
COLUMNS = ["distance"]

def reward(turn, memory):
    before = memory.get("distance", turn["distance"])
    memory["distance"] = turn["distance"]
    return before - turn["distance"]
"""
SIGNS = "def dense(turn): return turn['distance'] - 4\ndef sparse(turn): return (turn['text'] == 'near') * 7"


def test_memory_follows_the_episode_and_not_the_table() -> None:
    values, problems = RewardProgram(DROP).score(TABLE)
    np.testing.assert_array_equal(values, [1.0, 0.0, 0.0, -1.0])
    assert problems == [None] * 4


def test_only_declared_columns_are_seen() -> None:
    values, problems = RewardProgram("def reward(turn): return len(turn)", columns=("distance",)).score(TABLE)
    np.testing.assert_array_equal(values, 1)
    values, problems = RewardProgram("def reward(turn): return turn['reward']", columns=("distance",)).score(TABLE)
    assert np.isnan(values).all()
    assert problems[0] == "KeyError: 'reward' (line 1)"
    with pytest.raises(MissingColumnError, match="reward program: column 'gold' is missing"):
        RewardProgram(DROP, columns=("gold",)).score(TABLE)


def test_missing_values_are_none_and_none_is_missing() -> None:
    source = "def reward(turn): return None if turn['text'] is None else len(turn['text'])"
    values, problems = RewardProgram(source, columns=("text",)).score(TABLE)
    np.testing.assert_array_equal(values, [4, 3, np.nan, 3])
    assert problems == [None] * 4


def test_a_program_adds_its_column_and_why_it_failed() -> None:
    turns = annotate(
        TABLE, RewardProgram("def reward(turn): return 1 / (turn['distance'] - 2)", columns=("distance",)), "x"
    )
    assert turns["r_x"].to_list() == [None, pytest.approx(1 / 3), 1.0, 0.25]
    assert turns["r_x_error"].to_list() == ["ZeroDivisionError: float division by zero (line 1)", None, None, None]


def test_factors_become_columns_that_explain_returns() -> None:
    """The code-writing half of [51] LaRe: hidden step rewards 2·near - 0.5·far from returns alone."""
    rng = np.random.default_rng(0)
    near, far = rng.integers(0, 3, 60), rng.integers(0, 3, 60)
    keys = {"group": np.repeat(np.arange(10), 6), "episode": np.zeros(60, int), "turn": np.tile(np.arange(6), 10)}
    table = Turns(keys | {"agent": ["a"] * 60, "near": near, "far": far, "reward": 2.0 * near - 0.5 * far})
    source = "def evaluation_func(turn): return [turn['near'], turn['far'] * 1.0]"
    factors = RewardProgram(source, "evaluation_func", ("near", "far"))
    turns = annotate(table, factors, "factor")
    step = decompose(turns, ["factor_0", "factor_1"]).evaluate(turns)
    np.testing.assert_allclose(np.asarray(step), table["reward"].to_numpy(), atol=1e-6)
    signal = redistribute(program_signal(factors, item=0), program_signal(factors, item=1))
    np.testing.assert_allclose(np.asarray(signal.evaluate(table)), table["reward"].to_numpy(), atol=1e-6)


def test_a_list_needs_an_item() -> None:
    values, problems = RewardProgram("def reward(turn): return [1, 2]", columns=("text",)).score(TABLE)
    assert np.isnan(values).all()
    assert problems[0] == "result: a list of 2; choose an item of it"


def test_auto_mc_worked_signs() -> None:
    turns = TABLE
    for name in ("dense", "sparse"):
        turns = annotate(turns, RewardProgram(SIGNS, name, ("distance", "text")), name)
    np.testing.assert_allclose(np.asarray(auto_mc_reward().evaluate(turns)), [0.9, 0.1, -0.1, 0.1])
    grid = Turns({"r_sparse": [5.0, 3.0, 0.2, 0.0, 0.0, -4.0], "r_dense": [9.0, 0.0, -8.0, 0.1, 0.0, -3.0]})
    np.testing.assert_allclose(np.asarray(auto_mc_reward().evaluate(grid)), [1.1, 1, 0.9, 0.1, 0, -1.1])


# -- as signals -------------------------------------------------------------------------------------------------------


def test_a_recipe_names_a_file(tmp_path: Path) -> None:
    path = tmp_path / "drop.py"
    path.write_text(DROP)
    signal = parse(f"2 * program('{path}')")
    np.testing.assert_array_equal(np.asarray(signal.evaluate(TABLE)), [2.0, 0.0, 0.0, -2.0])
    assert signal.needs() == {"episode", "agent", "distance"}
    assert parse(signal.text).text == signal.text
    tables = {"small": sample_turns(np.random.default_rng(0), groups=(2, 3)), "no rows": TABLE.filter(pl.lit(False))}
    check_signal(program_signal(RewardProgram(DROP.replace("distance", "cost"))), tables=tables)


def test_a_changed_file_does_not_change_a_signal(tmp_path: Path) -> None:
    path = tmp_path / "drop.py"
    path.write_text(DROP)
    signal = program(str(path))
    path.write_text(DROP.replace("before -", "1 + before -"))
    assert np.asarray(signal.evaluate(TABLE))[0] == 1.0
    assert np.asarray(program(str(path)).evaluate(TABLE))[0] == 2.0


def test_a_table_is_scored_once_and_again_when_it_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    runs = []
    real = module.run_table
    monkeypatch.setattr(module, "run_table", lambda *a, **k: runs.append(1) or real(*a, **k))
    turns, scorer = Turns(TABLE.frame), RewardProgram(DROP)
    scorer.score(turns)
    assert scorer.score(turns.with_column(other=pl.lit(1.0)))[0][0] == 1.0
    assert len(runs) == 1
    scorer.score(turns.with_column(distance=pl.lit(1.0)))
    assert len(runs) == 2


def test_an_equal_call_is_answered_from_what_is_known_unless_it_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    real = module.run_table
    monkeypatch.setattr(module, "run_table", lambda *a, **k: calls.append(len(a[2])) or real(*a, **k))
    known = module.KnownAnswers()
    far = RewardProgram("def reward(turn, memory): return 1 / (turn['distance'] - 3)", columns=("distance",))
    first = annotate(TABLE, far, "x", known=known)
    again = annotate(Turns(TABLE.frame), far, "x", known=known)
    assert calls == [4, 1], "the turn that failed is asked about again, the others are known"
    assert again["r_x"].to_list() == first["r_x"].to_list() == [-1.0, 0.5, None, pytest.approx(1 / 3)]
    calls.clear()
    drop = RewardProgram(DROP)
    drop.score(Turns(TABLE.frame), known=known)
    drop.score(Turns(TABLE.frame.filter(pl.col("episode") == 1)), known=known)
    assert calls == [4], "an episode with a memory is known as a whole"
    drop.score(Turns(TABLE.frame))
    assert calls == [4, 4], "without `known` the program is asked"


def test_the_oldest_answers_are_dropped_beyond_the_bound() -> None:
    known, asked = module.KnownAnswers(largest=2), []

    def call(calls: module.Calls) -> list[list[sandbox.CallOutcome]]:
        asked.append(len(calls))
        return [[sandbox.CallOutcome(1.0)] for _ in calls]

    for gold in (1, 2, 3, 3, 1):
        known.complete("a program", [[{"gold": gold}]], call)
    assert len(asked) == 4, "3 is known, 1 was dropped"


def test_what_is_wrong_is_said(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="the reward program cannot be read"):
        program(str(tmp_path / "none.py"))
    (tmp_path / "mute.py").write_text("def reward(turn): return 1")
    with pytest.raises(ExpressionError, match="which columns does it see"):
        program(str(tmp_path / "mute.py"))
    with pytest.raises(ExpressionError, match="no program 'abc' was loaded"):
        parse("program_values('distance', digest='abc')")
    broken = program_signal(RewardProgram("import os\ndef reward(turn): return 1", columns=("distance",)))
    with pytest.raises(RewardError, match="fails on every row, on the first with: screen: line 1: import of 'os'"):
        broken.evaluate(TABLE)


def test_a_program_that_kills_its_worker_leaves_missing_rows() -> None:
    source = "def reward(turn):\n while turn['distance'] == 5: pass\n return turn['distance']"
    scorer = RewardProgram(source, columns=("distance",), limits=module.Limits(wall=0.3, cpu=2))
    values, problems = scorer.score(TABLE)
    np.testing.assert_array_equal(values, [2, np.nan, 3, 6])
    assert problems[1] == "time: no answer within 0.3 s"


def test_rows_that_the_sandbox_itself_left_without_a_score_are_warned_of(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sandbox, "LAYERS", ())
    with pytest.warns(UserWarning, match="4 of 4 rows have no score, .*; sandbox: there is"):
        RewardProgram("def reward(turn): return 1", columns=("text",)).score(Turns(TABLE.frame))


# -- names and descriptions -------------------------------------------------------------------------------------------


def test_names_there_and_back() -> None:
    names = NameMap({"key": "obj_a", "key_pos": "obj_a_xy", "key_pos_x": "q", "door": "obj_b"})
    rng = np.random.default_rng(0)
    pieces = ["key", "key_pos", "key_pos_x", "door", "keys", "_key", " + ", "(", "['", "']", ".", "monkey", "\n", "1"]
    for _ in range(20):
        text = "".join(rng.choice(pieces, 30))
        assert names.to_general(names.to_specific(text)) == text
    with pytest.raises(Exception, match="two general names stand for one"):
        NameMap({"a": "x", "b": "x"})
    with pytest.raises(Exception, match="no way back"):
        NameMap({"a": "b", "b": "c"})


def test_a_turn_is_described() -> None:
    text = describe(TABLE, ["distance", "text", "reward"], notes={"distance": "steps to the door"})
    assert text.splitlines() == [
        "class Turn(TypedDict):",
        "    distance: float  # steps to the door; from 2.0 to 6.0",
        "    text: str  # such as 'near', 'far'",
        "    reward: float  # received between this turn and the agent's next; null = not scored; from 0.0 to 2.0",
    ]


def test_the_most_similar_task_shares_most_of_the_words_of_both() -> None:
    long = "open the door and push the small red box into the corner"
    examples = {long: "3 of 11", "Open the drawer": "2 of 4", "lift a box": "none"}
    assert [code for _, code in similar("open the door", examples, 3)] == ["2 of 4", "3 of 11", "none"]
    assert similar("open the door", examples) == [("Open the drawer", "2 of 4")]
