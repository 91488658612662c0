from __future__ import annotations

import copy
import json
import os
import pickle
import sqlite3
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from palaestra.errors import InputError
from palaestra.evaluation import trials
from palaestra.evaluation.logs import READERS, read_logs
from palaestra.evaluation.logs.rows import Rows
from palaestra.evaluation.logs.tables import read_trl
from palaestra.evaluation.triage import detect

Files = dict[str, Path]


def columns(turns: pl.DataFrame, *names: str) -> list[tuple]:
    return turns.select(names).rows()


def test_chat(sample_files: Files) -> None:
    logs = read_logs(sample_files["chat"])
    assert logs.problems == ()
    table = trials(logs.turns)
    assert columns(table, "task", "success", "score") == [("one", True, 1.0), ("two", False, 0.0), ("two", None, None)]
    one = logs.turns.frame.filter(pl.col("task") == "one")
    assert one["tool"].to_list() == ["add", "look", None], "a row per call, of one turn"
    assert one["turn"].to_list() == [0, 0, 1]
    assert one["tokens_in"].to_list() == [100, None, 120], "tokens stand once"
    assert one["tokens_cached"].to_list() == [80, None, None]
    assert one["observation"].to_list() == ["Be brief.\nWhat is 1+1?", None, "2"]
    assert json.loads(one["metadata"][2])["mood"] == "good", "an unknown field is kept"
    assert one["confidence"].to_list() == [None, None, 0.9]
    assert table["system"].unique().to_list() == ["m"]
    assert table["cost"].null_count() == 3


def test_success_of_a_chat_may_be_a_word(tmp_path: Path) -> None:
    path = tmp_path / "chat.jsonl"
    said = ["true", "fail", "Yes", 0, "perhaps"]
    path.write_text("".join(json.dumps({"messages": [], "task": "a", "success": each}) + "\n" for each in said))
    logs = read_logs(path)
    assert logs.turns["success"].to_list() == [True, False, True, False, None]
    assert [each.why for each in logs.problems] == ["success: 'perhaps' is neither true nor false"]


def test_claw_eval(sample_files: Files) -> None:
    logs = read_logs(sample_files["claw-eval"])
    table = trials(logs.turns)
    assert columns(table, "success", "score") == [(True, 0.82), (None, None), (False, None)]
    assert table["error"].to_list() == [None, None, "run: the trace was never ended"]
    first, second = logs.turns.frame.rows(named=True)[:2]
    assert (first["tool"], first["status"], first["tool_error"]) == ("send_mail", 200, None)
    assert (first["duration"], first["tokens_in"], first["tokens_cached"]) == (0.012, 50, 20)
    assert (second["status"], second["tool_error"]) == (429, 'status 429: {"ok": false}')
    assert (first["score.robustness"], second["score.robustness"]) == (0.5, None)
    assert json.loads(first["metadata"])["audit"] == [{"service_name": "mail", "audit_data": {"n": 1}}]


@pytest.mark.parametrize("layout", ["hal", "hal-old"])
def test_hal(sample_files: Files, layout: str) -> None:
    logs = read_logs(sample_files[layout])
    table = trials(logs.turns)
    assert table["system"].unique().to_list() == ["HAL agent"]
    assert columns(table, "task", "trial", "score") == [
        ("taubench/a", 0, 1.0), ("taubench/b", 0, 0.0), ("taubench/c", 0, 1.0), ("taubench/c", 1, 0.0),
        ("taubench/c", 2, 1.0),
    ]  # fmt: skip
    assert table["cost"].to_list()[:2] == [None, 0.25], "0 beside tokens is unpriced"
    assert table["tokens_in"].to_list()[:2] == [20, 30 if layout == "hal" else None]
    a = logs.turns.frame.filter(pl.col("task") == "taubench/a")
    assert a["duration"].drop_nulls().to_list() == [2.0, 2.0]
    assert a["confidence"].drop_nulls().to_list() == [0.7]
    variations = logs.turns.frame.filter(pl.col("task") == "taubench/c")["variation"]
    assert variations.to_list() == [0, 1, 2]


def test_agencybench(sample_files: Files) -> None:
    logs = read_logs(sample_files["agencybench"])
    table = trials(logs.turns)
    assert columns(table, "task", "success", "score", "turns") == [
        ("Backend/scenario1/subtask1", False, 7.0, 2), ("Backend/scenario1/subtask2", True, 10.0, 1),
    ]  # fmt: skip
    assert logs.turns["score.attempt"].to_list() == [5.0, 7.0, 10.0]
    assert json.loads(logs.turns["metadata"][1])["carried"] == 1, "the first workspace was carried on, not the best"


def test_agentsnet(sample_files: Files) -> None:
    logs = read_logs(sample_files["agentsnet"])
    assert trials(logs.turns).select("task", "success", "score").row(0) == ("coloring/ws/2/0", True, 1.0)
    turns = logs.turns.frame.with_columns(pl.col("agent").cast(pl.String))
    assert columns(turns, "turn", "agent", "recipient") == [
        (0, "Ann", ["Bob"]), (0, "Bob", None), (0, "Bob", ["Ann"]), (1, "Ann", None), (1, "Bob", None),
    ]  # fmt: skip


def test_marketplace(sample_files: Files) -> None:
    turns = read_logs(sample_files["marketplace"]).turns.frame
    assert columns(turns, "task", "tool", "recipient", "tool_error", "success") == [
        ("customer_1", "search", ["shop_1"], None, None), ("customer_1", "send_message", ["shop_1"], "oh", None),
    ]  # fmt: skip


def test_verl_and_trl(sample_files: Files) -> None:
    turns = read_logs(sample_files["verl"]).turns.frame
    assert turns["iteration"].to_list() == [3] * 4
    assert turns["score.acc"].to_list() == [0.0, 1.0, 0.0, 1.0]
    assert turns["task"].n_unique() == 2
    assert turns["success"].to_list() == [False, True, False, True]
    turns = read_logs(sample_files["trl"]).turns.frame
    assert turns["reward"].to_list() == [0.5, 1.5, 0.0, 1.5], "sum of the rewards that are known"
    assert turns["score.format_reward"].to_list() == [0.5, 0.5, None, 0.5]
    assert turns["success"].null_count() == 4, "scores other than 0 and 1 say nothing of success"
    assert json.loads(turns["metadata"][0]) == {"source": "a", "advantage": -0.375}


@given(
    st.lists(st.lists(st.floats(-5, 5), min_size=4, max_size=4), min_size=1, max_size=3),
    st.sampled_from(["none", "float", "whole"]),
    st.booleans(),
)
def test_the_reward_of_trl_is_the_sum_its_advantages_are_of(
    values: list[list[float]], extra: str, scaled: bool
) -> None:
    total = np.sum(values, 0)
    advantage = (total - total.mean()) / (total.std() + 1e-4 if scaled else 1)
    table = {"step": [1] * 4, "prompt": ["p"] * 4, "completion": list("abcd")}
    table |= {f"f{number}": each for number, each in enumerate(values)}
    table |= {"float": {"seen": [0.0, 30.0, -70.0, 0.0]}, "whole": {"seen": [3, 1, 4, 1]}}.get(extra, {})
    rows = Rows("log")
    read_trl(pl.DataFrame(table | {"advantage": advantage}), rows)
    frame = rows.frame()
    assert frame["reward"].to_list() == pytest.approx(total.tolist())
    assert [f"score.f{number}" in frame.columns for number in range(len(values))] == [True] * len(values)
    assert [str(each) for each in rows.problems] == [
        f"log: reward is the sum of {', '.join(f'f{n}' for n in range(len(values)))}; seen not, by place, type or the "
        "advantages"
    ] * (extra != "none")


@given(st.floats(-1e50, 1e50))
def test_a_number_may_be_text_as_decimals_are_in_json(value: float) -> None:
    rows = Rows("log")
    rows.episode("", [{"cost": str(value), "confidence": "high"}], score=f" {value} ")
    assert rows.frame().select("cost", "reward").row(0) == (value, value)
    assert [each.why for each in rows.problems] == ["confidence: 'high' is not a number"]


def test_weights_of_trl_are_said() -> None:
    rows = Rows("log")
    table = {"step": [1] * 3, "prompt": ["p"] * 3, "completion": list("abc"), "a_reward": [0.0, 1.0, 2.0],
             "length": [0.0, 2.0, 1.0], "advantage": [-1.0, 1.0, 0.0]}  # fmt: skip
    read_trl(pl.DataFrame(table), rows)
    assert rows.frame()["reward"].to_list() == [0.0, 3.0, 3.0]
    assert "a_reward, length, which the advantages do not follow" in str(rows.problems[0])


def test_tables_of_our_own(sample_files: Files) -> None:
    assert trials(read_logs(sample_files["own"]).turns)["success"].to_list() == [True, False, True, True]
    table = trials(read_logs(sample_files["csv"]).turns)
    assert columns(table, "system", "task", "score") == [
        ("x", "a", 0.5), ("x", "b", None), ("y", "a", 1.0), ("y", "b", 0.25),
    ]  # fmt: skip
    table = trials(read_logs(f"mine={sample_files['rows']}").turns)
    assert columns(table, "system", "task", "success") == [("mine", "a", True), ("mine", "b", False)]


def test_a_damaged_line_is_named_and_the_rest_is_read(sample_files: Files, tmp_path: Path) -> None:
    lines = sample_files["chat"].read_text().splitlines()
    path = tmp_path / "chat.jsonl"
    broken = [lines[0], lines[1][:50], '{"messages": 3}', "[1]", lines[2].replace("null", '"much"', 1)]
    path.write_bytes("\n".join(broken).encode() + b'\n{"messages": "\xff"}')
    logs = read_logs(path)
    assert len(trials(logs.turns)) == 2
    said = [str(problem).removeprefix(f"{path}, ") for problem in logs.problems]
    assert said[0].startswith("line 2: not JSON (")
    assert said[1] == "line 4: expected an object, found list"
    assert said[2].startswith("line 6: not JSON ('utf-8' codec can't decode byte 0xff")
    assert said[3:] == ["line 3: no list of messages", "line 5: reward: 'much' is not a number"]


def test_what_cannot_be_read_is_bad_input(sample_files: Files, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such file or folder"):
        read_logs(tmp_path / "nope")
    with pytest.raises(InputError, match="no log format 'hall'; did you mean 'hal'"):
        read_logs(sample_files["hal"], format="hall")
    (tmp_path / "other.json").write_text('{"a": 1}')
    with pytest.raises(InputError, match=r"other\.json: no known log: its fields are a"):
        read_logs(tmp_path / "other.json")
    (tmp_path / "half.parquet").write_bytes(sample_files["own"].read_bytes()[:-9])
    with pytest.raises(InputError, match=r"half\.parquet: not a readable Parquet file"):
        read_logs(sample_files["own"], tmp_path / "half.parquet")
    (tmp_path / "lines.csv").write_bytes(b"task,success\na,true\nb,\xff\n")
    with pytest.raises(InputError, match=r"lines\.csv: not a readable table"):
        read_logs(tmp_path / "lines.csv")
    sqlite3.connect(tmp_path / "other.db").executescript("CREATE TABLE x (y)")
    with pytest.raises(InputError, match="not a file of Magentic Marketplace"):
        read_logs(tmp_path / "other.db")


def test_the_format_can_be_forced(sample_files: Files) -> None:
    with pytest.raises(InputError, match="line 1: no list of messages"):
        read_logs(sample_files["verl"], format="chat")
    assert set(READERS) > {"inspect", "hal", "lm-eval", "claw-eval", "chat", "verl", "agencybench", "agentsnet"}


def test_a_pickle_is_never_opened(tmp_path: Path) -> None:
    class Trap:
        def __reduce__(self) -> tuple:
            return os.mkdir, (str(tmp_path / "sprung"),)

    for name in ("episode.pkl", "log.json", "table.parquet", "log.eval"):
        (tmp_path / name).write_bytes(pickle.dumps(Trap()))
        with pytest.raises(InputError):
            read_logs(tmp_path / name)
    (tmp_path / "object.parquet").unlink(missing_ok=True)
    frame = pl.DataFrame({"task": ["a"], "success": [True], "blob": [pickle.dumps(Trap())]})
    frame.write_parquet(tmp_path / "blob.parquet")
    assert len(read_logs(tmp_path / "blob.parquet").turns) == 1
    assert not (tmp_path / "sprung").exists()


def test_a_folder_and_names_of_systems(sample_files: Files, tmp_path: Path) -> None:
    folder = sample_files["hal"].parent
    assert len(trials(read_logs(folder).turns)) == 10, "two uploads of one agent: twice the trials"
    a, b = (str(sample_files[name]) for name in ("hal", "hal-old"))
    assert set(read_logs(a, b).turns["system"]) == {"HAL agent (r1_UPLOAD)", "HAL agent (r0_UPLOAD)"}
    both = read_logs(f"new={a}", f"old={b}").turns
    assert set(both["system"]) == {"new", "old"}
    groups = both.frame.group_by("system").agg(pl.col("group").unique())["group"].to_list()
    assert not set(groups[0]) & set(groups[1]), "no group is shared by two files"
    (tmp_path / "notes.json").write_text('{"a": 1}')
    (tmp_path / "run.jsonl").write_text(sample_files["chat"].read_text())
    logs = read_logs(tmp_path)
    assert (logs.files, logs.problems) == (1, ()), "a file that is no log is passed over in a folder"


def test_success_is_not_guessed_from_half_of_the_scores() -> None:
    rows = Rows("x")
    for score in (1, 0.5, None):
        rows.episode("", [{}], task="a", score=score)
    assert rows.frame()["success"].to_list() == [None, None, None]


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters()),
    lambda x: st.lists(x, max_size=3) | st.dictionaries(st.text(max_size=4), x, max_size=3),
    max_leaves=6,
)


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_any_value_in_any_field(
    sample_files: Files, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    """Readers meet every type in every field: no crash, and what is not read is named."""
    from fuzz import read_or_name, replace_somewhere
    from samples import agencybench, agentsnet, art_groups, chat, claw, hal, rllm, verifiers, verl, vf_eval

    records = {
        "verifiers": verifiers, "vf_eval": vf_eval, "art": art_groups, "rllm": rllm,
        "hal": lambda: [hal()], "hal-old": lambda: [hal("old")], "agencybench": lambda: [agencybench()],
        "agentsnet": lambda: [agentsnet()], "chat": chat, "claw": claw, "verl": verl,
    }  # fmt: skip
    records = records[data.draw(st.sampled_from(sorted(records)))]()
    records = copy.deepcopy(records)  # samples share parts, and an example must not change the next
    for _ in range(data.draw(st.integers(1, 3))):
        replace_somewhere(records, lambda n: data.draw(st.integers(0, n - 1)), data.draw(values))
    path = tmp_path_factory.getbasetemp() / "any.json"
    path.write_text(json.dumps(records if len(records) > 1 else records[0]), encoding="utf-8")
    read_or_name(path)


def test_mutated_files(sample_files: Files, tmp_path: Path) -> None:
    from fuzz import try_mutants

    done = try_mutants(sample_files, 200, tmp_path, seed=0)
    assert done.crashes == []
    assert done.read > 30
    assert done.named > 30


def test_last_words_are_kept(tmp_path: Path) -> None:
    """What is said after the agent's last message has a row without action: somebody may have given up there."""
    talk = [
        {"role": "user", "content": "find it"},
        {"role": "assistant", "content": "no"},
        {"role": "user", "content": "Never mind."},
    ]
    path = tmp_path / "talk.jsonl"
    path.write_text(json.dumps({"messages": talk, "success": False}) + "\n")
    turns = read_logs(path).turns
    assert turns.frame.select("observation", "action").rows() == [("find it", "no"), ("Never mind.", None)]
    assert detect(turns)["type"].to_list() == ["interaction.disengagement.quit"]


def test_rows_of_turns_are_the_same_in_every_format(tmp_path: Path) -> None:
    """In JSONL, too, three turns of one episode are one trial."""
    table = pl.DataFrame({
        "system": "x", "task": ["a"] * 3 + ["b"] * 3, "group": [0] * 3 + [1] * 3, "episode": 0, "turn": [0, 1, 2] * 2,
        "agent": "p", "action": list("uvwxyz"), "reward": [0.0, 0.0, 1.0, 0.0, 0.0, 0.0],
        "success": [True] * 3 + [False] * 3, "score.style": 0.5, "confidence": 0.9,
    })  # fmt: skip
    table.write_ndjson(tmp_path / "t.jsonl")
    table.write_parquet(tmp_path / "t.parquet")
    table.write_csv(tmp_path / "t.csv")
    found = [read_logs(tmp_path / f"t.{kind}").turns for kind in ("jsonl", "parquet", "csv")]
    for turns in found:
        assert columns(trials(turns), "task", "success", "score", "turns") == [("a", True, 1, 3), ("b", False, 0, 3)]
        assert set(turns.columns) == set(table.columns)
    flat = tmp_path / "flat.jsonl"
    flat.write_text('{"task": "a", "success": true, "confidence": 0.9, "score.style": 0.5, "note": "n"}\n')
    row = read_logs(flat).turns.frame.row(0, named=True)
    assert (row["confidence"], row["score.style"], row["metadata"]) == (0.9, 0.5, '{"note": "n"}')
    (tmp_path / "bad.jsonl").write_text('{"task": "a", "episode": 0, "turn": "first", "success": true}\n')
    with pytest.raises(InputError, match=r"bad\.jsonl: not a readable table \(column 'turn'"):
        read_logs(tmp_path / "bad.jsonl")


def test_lists_of_several_kinds_are_json(tmp_path: Path) -> None:
    mixed = [("a", [1, "a"]), ("b", 2), ("c", {"d": 1}), ("d", [3])]
    records = [
        {"task": task, "episode": n, "turn": 0, "reward": 1, "action": ["go", n], "extra": extra, "plain": [n]}
        for n, (task, extra) in enumerate(mixed)
    ]
    (tmp_path / "t.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    frame = read_logs(tmp_path / "t.jsonl").turns.frame
    assert frame["extra"].to_list() == ['[1, "a"]', "2", '{"d": 1}', "[3]"]
    assert frame["action"].to_list()[:2] == ['["go", 0]', '["go", 1]']
    assert frame["plain"].to_list() == [[0], [1], [2], [3]]


def test_a_table_without_agents_counts_beside_logs_that_name_them(sample_files: Files) -> None:
    table = trials(read_logs(sample_files["csv"], sample_files["chat"]).turns)
    assert table.filter(pl.col("system") == "x")["score"].to_list() == [0.5, None]


def test_a_file_that_is_given_twice_is_refused(sample_files: Files) -> None:
    path = sample_files["chat"]
    with pytest.raises(InputError, match="given twice"):
        read_logs(path, path.parent / "." / path.name)
    assert set(read_logs(f"a={path}", f"b={path}").turns["system"]) == {"a", "b"}


def test_an_empty_file_is_called_empty(tmp_path: Path) -> None:
    (tmp_path / "none.jsonl").write_text("\n")
    with pytest.raises(InputError, match=r"none\.jsonl: the file is empty"):
        read_logs(tmp_path / "none.jsonl")


@pytest.mark.parametrize("prefix", ["", "bench/"])
def test_success_is_not_guessed_from_the_tasks_whose_score_is_0_or_1(tmp_path: Path, prefix: str) -> None:
    path = tmp_path / "log.jsonl"
    scores = [("a", 1.0), ("a", 0.2), ("b", 0.0), ("b", 0.9)]
    lines = [{"system": s, "task": f"{prefix}t{n % 2}", "score": x} for n, (s, x) in enumerate(scores)]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert trials(read_logs(path).turns)["success"].to_list() == [None] * 4
    path.write_text("".join(json.dumps(line | {"score": round(line["score"])}) + "\n" for line in lines))
    assert trials(read_logs(path).turns)["success"].to_list() == [True, False, False, True]


@pytest.mark.parametrize("none", ["", " ", "-", "None", "null", "NaN", "no", "ok", "No error", False, 0])
@pytest.mark.parametrize("more", [{}, {"episode": 0}], ids=["records", "table"])
def test_an_empty_error_is_none(tmp_path: Path, none: object, more: dict[str, object]) -> None:
    rows = [{"system": "a", "task": f"t{n}", "success": n > 0} for n in range(3)]
    more = more | {"error": none, "limit": none, "tool_error": none}
    path = tmp_path / "log.jsonl"
    path.write_text("".join(json.dumps(row | more) + "\n" for row in rows))
    turns = read_logs(path).turns
    assert columns(trials(turns), "success", "error") == [(False, None), (True, None), (True, None)]
    assert all(not turns[n].count() for n in ("limit", "tool_error") if n in turns.columns)


def test_an_error_in_quotes_without_words_is_none(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    path.write_text('"task","success","error"\n"t1","1",""\n"t2","1","it fell"\n')
    assert columns(trials(read_logs(path).turns), "success", "error") == [(True, None), (False, "it fell")]
