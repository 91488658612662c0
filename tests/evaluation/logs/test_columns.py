"""Tables with other names of the task, the system and success."""

from __future__ import annotations

import json
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from palaestra.errors import InputError
from palaestra.evaluation import trials
from palaestra.evaluation.logs import read_logs
from palaestra.evaluation.logs.columns import as_truth, read_text_table
from palaestra.evaluation.logs.tables import fits

ROWS = [("What is 2+2?", "a", "yes"), ("What is 2+2?", "b", "no"), ("Capital?", "a", "No"), ("Capital?", "b", "YES")]
WANTED = [(task, system, word.lower() == "yes") for task, system, word in ROWS]


def write(path: Path, *names: str) -> Path:
    """The rows under these names, as the suffix says."""
    frame = pl.DataFrame(ROWS, schema=list(names), orient="row")
    if path.suffix == ".csv":
        frame.write_csv(path)
    elif path.suffix == ".parquet":
        frame.write_parquet(path)
    else:
        path.write_text("".join(json.dumps(row) + "\n" for row in frame.to_dicts()))
    return path


def read(path: Path, **names: str) -> list[tuple[str, str, bool]]:
    return read_logs(path, **names).turns.frame.select("task", "system", "success").rows()


@pytest.mark.parametrize("suffix", ["csv", "jsonl", "parquet"])
@pytest.mark.parametrize(
    "names", [("question", "model", "correct"), ("task_id", "system", "passed"), ("Problem ID", "Agent", "is_correct")]
)
def test_usual_names_need_no_option(tmp_path: Path, suffix: str, names: tuple[str, str, str]) -> None:
    assert read(write(tmp_path / f"t.{suffix}", *names)) == WANTED


@pytest.mark.parametrize("suffix", ["csv", "jsonl", "parquet"])
def test_other_names_are_given(tmp_path: Path, suffix: str) -> None:
    path = write(tmp_path / f"t.{suffix}", "ask", "bot", "grade")
    assert read(path, task="ask", system="bot", success="grade") == WANTED
    both = read(path, task="ask,bot", system="bot", success="grade")
    assert both[0][0] == "What is 2+2?/a"


def test_what_is_wrong_with_a_name_is_said_with_the_columns(tmp_path: Path) -> None:
    path = write(tmp_path / "t.csv", "ask", "bot", "grade")
    with pytest.raises(InputError, match=r"--task aks: there is no such column; did you mean 'ask'.*ask, bot, grade"):
        read_logs(path, task="aks")
    with pytest.raises(InputError, match="--success bot: 'a' is neither success nor failure; it takes true/false"):
        read_logs(path, task="ask", success="bot")


@pytest.mark.parametrize(
    ("values", "truth"),
    [
        (["pass", "Fail", None], [True, False, None]), ([1, 0, 1], [True, False, True]), ([1.0, 0.0], [True, False]),
        (["TRUE", " false "], [True, False]), (["1", "0"], [True, False]), ([True, None], [True, None]),
        ([1.0, 0.0, float("nan")], [True, False, None]), (["yes", " ", "NA", "nan"], [True, None, None, None]),
        ([0.5, 1.0], None), (["pass", "maybe"], None), ([None, None], None), (["", "nan"], None), ([[1], [0]], None),
    ],
)  # fmt: skip
def test_words_for_success(values: list[object], truth: list[bool | None] | None) -> None:
    found = as_truth(pl.Series(values))
    assert (found if found is None else found.to_list()) == truth


@pytest.mark.parametrize("suffix", ["csv", "jsonl", "parquet"])
@pytest.mark.parametrize("success", ["success", "correct"])
def test_nan_is_not_known(tmp_path: Path, suffix: str, success: str) -> None:
    """NaN first: text of the whole column in a CSV. Unscored trials are counted, and costs of no number are none."""
    nan, path = float("nan"), tmp_path / f"t.{suffix}"
    rows = [("a", nan, nan, nan), ("b", 1.0, 0.5, 2.0), ("c", 0.0, 0.7, 1.0)]
    frame = pl.DataFrame(rows, schema=["task", success, "score", "cost"], orient="row")
    if suffix == "csv":
        path.write_text(frame.write_csv().replace("NaN", "nan"))
    elif suffix == "parquet":
        frame.write_parquet(path)
    else:
        path.write_text("".join(json.dumps(row) + "\n" for row in frame.to_dicts()))
    found = trials(read_logs(path).turns, score="score" if suffix != "jsonl" else None)
    assert found.select("success", "score", "cost").rows() == [(None, None, None), (True, 0.5, 2.0), (False, 0.7, 1.0)]


def test_words_for_no_number_leave_numbers(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("task,success,tokens_in,reward,mine\na,NA,NA,n/a,nan\nb,yes,12,1e300,0.5\n")
    logs = read_logs(tmp_path / "t.csv")
    assert logs.turns.frame.select("success", "tokens_in", "reward").rows() == [(None, None, None), (True, 12, None)]
    assert "1e+300 is out of range" in str(logs.problems[0])
    assert trials(logs.turns, score="mine")["score"].to_list() == [None, 0.5]
    (tmp_path / "t.csv").write_text("task,success,grade\na,NA,\nb,nan,NA\n")
    for name in (None, "grade"):
        assert read_logs(tmp_path / "t.csv", success=name).turns["success"].to_list() == [None, None]
    (tmp_path / "t.csv").write_text("task,success,cost\na,1,NA\nb,0,cheap\n")
    with pytest.raises(InputError, match="column 'cost' has type String"):
        read_logs(tmp_path / "t.csv")
    with pytest.raises(InputError, match="--success cost: 'cheap' is neither"):
        read_logs(tmp_path / "t.csv", success="cost")


def test_long_questions_are_named_by_their_beginning(tmp_path: Path) -> None:
    pl.DataFrame({"question": ["why " * 50, "why " * 51], "correct": [1, 0]}).write_csv(tmp_path / "t.csv")
    tasks = read_logs(tmp_path / "t.csv").turns["task"]
    assert tasks.n_unique() == 2
    assert tasks.str.len_chars().max() < 60  # type: ignore[operator]


def test_a_column_of_ours_is_taken_as_it_is(tmp_path: Path) -> None:
    pl.DataFrame({"task": ["t"], "question": ["q"], "success": [False], "correct": [1]}).write_csv(tmp_path / "t.csv")
    assert read_logs(tmp_path / "t.csv").turns.frame.select("task", "success").rows() == [("t", False)]
    assert not fits({"question": "q", "answer": "a"})
    assert not fits({"id": 1, "result": {}})


def by_task(path: Path) -> list[tuple[str, int, bool]]:
    return trials(read_logs(path).turns).select("task", "trial", "success").rows()


def test_episodes_numbered_within_each_task_are_those_of_their_tasks(tmp_path: Path) -> None:
    """In one table, and in a folder with a table per task."""
    rows = [("a", 0, True), ("a", 1, False), ("b", 0, False), ("b", 1, True)]
    frame = pl.DataFrame(rows, schema=["task", "episode", "success"], orient="row")
    frame.write_csv(tmp_path / "t.csv")
    assert by_task(tmp_path / "t.csv") == rows
    (tmp_path / "logs").mkdir()
    for task in "ab":
        frame.filter(pl.col("task") == task).with_columns(system=pl.lit("s")).write_csv(
            tmp_path / "logs" / f"{task}.csv"
        )
    assert by_task(tmp_path / "logs") == rows
    frame.with_columns(episode=pl.int_range(pl.len())).write_csv(tmp_path / "t.csv")
    assert "group" not in read_logs(tmp_path / "t.csv").turns.columns, "nothing is made of numbers that are unique"


@pytest.mark.parametrize("suffix", ["csv", "jsonl"])
def test_turns_are_no_trials(tmp_path: Path, suffix: str) -> None:
    """Two trials of a task and one of another, of three turns each; agents that act at once share a turn."""
    turns = [
        {"task": task, "turn": turn, "agent": agent, "success": task == "a"}
        for task in ("a", "a", "b") for turn in range(3) for agent in (("x", "y") if turn else ("x",))
    ]  # fmt: skip
    path = tmp_path / f"t.{suffix}"
    if suffix == "csv":
        pl.DataFrame(turns).write_csv(path)
    else:
        path.write_text("".join(json.dumps(turn) + "\n" for turn in turns))
    found = trials(read_logs(path).turns)
    assert found.select("system", "task", "trial", "success", "turns").rows() == [
        ("t", "a", 0, True, 5), ("t", "a", 1, True, 5), ("t", "b", 0, False, 5)
    ]  # fmt: skip


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16"])
def test_a_blank_line_is_no_row(tmp_path: Path, encoding: str) -> None:
    (tmp_path / "t.csv").write_text("system,task,success\na,x,1\n\nb,x,0\n", encoding=encoding)
    assert read(tmp_path / "t.csv") == [("x", "a", True), ("x", "b", False)]


@given(st.lists(st.from_regex(r"0{0,2}[0-9]{1,3}(\.[0-9]{1,2})?|[0-9]e3", fullmatch=True), min_size=1), st.booleans())
def test_names_in_a_text_table_are_as_they_are_written(names: list[str], given: bool) -> None:
    text = "".join(f"{name},1\n" for name in names)
    frame = read_text_table(f"{'Grade' if given else 'Model'},success\n{text}".encode(), ",", {"grade"})
    assert frame.to_series(0).cast(pl.String).to_list() == names


def test_systems_tasks_and_given_columns_that_look_like_numbers_stay_apart(tmp_path: Path) -> None:
    rows = "".join(f"{system},{task},{task},1\n" for system in ("4.1", "4.10") for task in ("001", "1"))
    (tmp_path / "t.csv").write_text(f"model,task,chapter,success\n{rows}")
    frame = read_logs(tmp_path / "t.csv").turns.frame
    assert frame.select("system", "task").n_unique() == 4
    chapter = read_logs(tmp_path / "t.csv", task="chapter").turns.frame
    assert chapter["task"].unique().sort().to_list() == ["001", "1"]


@pytest.mark.parametrize("suffix", ["jsonl", "parquet"])
@pytest.mark.parametrize("named", [("task", "system"), ("task_id", "model"), ("ask", "bot")])
def test_a_missing_value_makes_no_other_names_of_whole_numbers(
    tmp_path: Path, suffix: str, named: tuple[str, str]
) -> None:
    ask, bot = named
    for kind, task in ((pl.Int64, [1, 2]), (pl.Float64, [1, 2, None])):
        frame = pl.DataFrame(
            {ask: pl.Series(task, dtype=kind), bot: pl.Series([7] * len(task), dtype=kind), "ok": True}
        )
        frame = frame.rename({"ok": "success"})
        path = tmp_path / f"{kind}.{suffix}"
        frame.write_parquet(path) if suffix == "parquet" else frame.write_ndjson(path)
    options = {} if named[0] != "ask" else {"task": ask, "system": bot}
    both = read_logs(tmp_path / f"Int64.{suffix}", tmp_path / f"Float64.{suffix}", **options).turns.frame
    assert both["task"].drop_nulls().unique().sort().to_list() == ["1", "2"]
    assert all(name.startswith("7 (") for name in both["system"].to_list())


@pytest.mark.parametrize("suffix", ["csv", "jsonl", "parquet"])
def test_episodes_and_groups_may_have_names(suffix: str, tmp_path: Path) -> None:
    """A row per turn of 'b-1', 'a-2' and 'b-1' of another run; an id of two files is two episodes."""
    rows = [
        {"run": run, "group": "warm", "episode": episode, "turn": turn, "task": task, "success": won if turn else None}
        for run, episode, task, won in (("x", "b-1", "t", True), ("x", "a-2", "u", False), ("y", "b-1", "t", False))
        for turn in (0, 1)
    ]
    for name, some in (("one", rows), ("two", rows[2:4])):
        path, frame = tmp_path / f"{name}.{suffix}", pl.DataFrame(some)
        {"csv": frame.write_csv, "jsonl": frame.write_ndjson, "parquet": frame.write_parquet}[suffix](path)
    frame = read_logs(tmp_path / f"one.{suffix}").turns.frame
    assert frame["episode"].to_list() == [0, 0, 1, 1, 0, 0]
    assert frame["episode_name"].to_list() == ["b-1", "b-1", "a-2", "a-2", "b-1", "b-1"]
    assert frame["group_name"].unique().to_list() == ["warm"]
    assert trials(frame).sort("run", "task").select("run", "task", "success").rows() == [
        ("x", "t", 1.0), ("x", "u", 0.0), ("y", "t", 0.0)
    ]  # fmt: skip
    assert len(trials(read_logs(tmp_path).turns.frame)) == 4


def test_names_of_episodes_in_two_files_without_groups(tmp_path: Path) -> None:
    for file, names in (("one", ("a", "b")), ("two", ("c", "d"))):
        rows = [f"{'t' if name in 'ac' else 'u'},{name},{turn},{name in 'ad'}" for name in names for turn in (0, 1)]
        (tmp_path / f"{file}.csv").write_text("\n".join(["task,episode,turn,success", *rows]))
    frame = read_logs(f"m={tmp_path}").turns.frame
    found = trials(frame).sort("task", "success").select("task", "success").rows()
    assert found == [("t", False), ("t", True), ("u", False), ("u", True)]


@pytest.mark.parametrize("suffix", ["csv", "jsonl", "parquet"])
def test_success_in_words_under_its_own_name(suffix: str, tmp_path: Path) -> None:
    assert read(write(tmp_path / f"t.{suffix}", "task", "system", "success")) == WANTED
