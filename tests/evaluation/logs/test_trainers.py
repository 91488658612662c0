"""Rollouts of verifiers, ART and rLLM, as verifiers 0.4.0 and 0.1.14, ART 0.5.18 and rLLM's main branch write them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from samples import art_groups, lines, rllm, verifiers, vf_eval

from palaestra.evaluation import trials
from palaestra.evaluation.logs import read_logs

Files = dict[str, Path]


def rows(path: Path, *columns: str) -> list[tuple[Any, ...]]:
    return read_logs(path).turns.frame.select(pl.col(columns).cast(pl.String)).rows()


def test_traces_of_several_agents_are_one_episode_in_the_order_of_time(sample_files: Files) -> None:
    logs = read_logs(sample_files["verifiers"])
    frame = logs.turns.frame.filter(task="a")
    assert frame.select("turn", pl.col("agent").cast(pl.String), "observation", "action", "reward").rows() == [
        (0, "solver", "you are the solver\ngo 0", "2", None),
        (1, "checker", "you are the checker\ngo 0", "ok", 2.0),
        (2, "solver", "go 1", "still 2", 1.0),
    ]
    assert frame["iteration"].unique().to_list() == [7]
    assert frame["system"].unique().to_list() == ["m"]
    assert frame["score.length"].drop_nulls().to_list() == [3.0, 3.0]
    failed = trials(logs.turns).filter(task="b")
    assert failed["error"].to_list() == ["ProviderError: status code 503"]
    assert failed["success"].to_list() == [None], "the endpoint's fault is not the system's"


def test_where_our_plugin_played_each_turn_has_what_it_earned(tmp_path: Path) -> None:
    """A trace's reward is the whole episode's there, and a turn may have asked the model twice."""
    record = verifiers()[0]
    solver, checker = record["traces"]
    solver["info"] = {"palaestra": [{"turn": 0, "reward": 0.25, "valid": False}, {"turn": 1, "reward": 4.0}]}
    checker["info"] = {"palaestra": [{"turn": 0, "reward": 8.0, "valid": True}]}
    frame = read_logs(lines(tmp_path / "traces.jsonl", [record])).turns.frame
    columns = ("turn", pl.col("agent").cast(pl.String), "action", "reward", "valid")
    assert frame.select(*columns).sort("turn", "agent").rows() == [
        (0, "checker", "ok", 8.0, True),
        (0, "solver", "2", 0.25, False),
        (1, "solver", "still 2", 4.0, None),
    ]
    solver["info"] = {"palaestra": [{"turn": 3, "reward": 4.0}] * 2}
    frame = read_logs(lines(tmp_path / "traces.jsonl", [record])).turns.frame
    assert frame.filter(turn=3)["reward"].to_list() == [None, 4.0]


def test_of_messages_that_fork_the_last_branch_is_read_and_that_is_said(tmp_path: Path) -> None:
    record = verifiers()[0]
    nodes = record["traces"][0]["nodes"]
    again = {"parent": 1, "message": {"role": "assistant", "content": "again"}, "sampled": True, "timestamp": 9.0}
    nodes.append(again)
    logs = read_logs(lines(tmp_path / "traces.jsonl", [record]))
    assert [str(each) for each in logs.problems] == [
        f"{tmp_path / 'traces.jsonl'}, trace 0: 2 branches of messages; the last one is read"
    ]
    solver = logs.turns.frame.filter(pl.col("agent").cast(pl.String) == "solver")
    assert solver["action"].to_list() == ["again"]


def test_results_of_vf_eval_take_the_model_from_beside_them(sample_files: Files) -> None:
    path = sample_files["vf-eval"]
    path.with_name("metadata.json").write_text(json.dumps({"model": "tiny", "env_id": "sums"}))
    found = trials(read_logs(path).turns)
    assert found.select("system", "task", "success", "score", "tokens_in", "tokens_out").rows() == [
        ("tiny", "sums 0", False, 0.0, 9, 1),
        ("tiny", "sums 0", False, 0.0, 9, 1),
        ("tiny", "sums 1", True, 1.0, 9, 1),
        ("tiny", "sums 1", False, None, 9, 1),
    ]
    assert found["error"].to_list()[-1] == "ToolError: no"


def test_what_the_model_did_not_say_is_what_it_was_told(tmp_path: Path) -> None:
    record = vf_eval()[0]
    record["prompt"].insert(1, {"role": "assistant", "content": "an example"})
    path = lines(tmp_path / "results.jsonl", [record])
    assert rows(path, "observation", "action") == [("s\nan example\n1+1=", "0")]


@pytest.mark.parametrize("name", ["art", "art-groups"])
def test_trajectories_of_art(name: str, sample_files: Files) -> None:
    frame = read_logs(sample_files[name]).turns.frame
    found = trials(frame)
    assert found["task"].to_list() == (["sum"] * 2 if name == "art" else ["s1"] * 2)
    assert found["success"].to_list() == [True, False]
    assert frame["score.right"].drop_nulls().to_list() == [1.0, 0.0]
    assert frame["iteration"].unique().to_list() == [3 if name == "art" else 12]
    if name == "art":
        assert frame["system"].unique().to_list() == ["tiny"], "the folder of the model"
        assert frame["tool"].drop_nulls().to_list() == ["add", "add"]
        assert frame["observation"].to_list() == ["1+1=", "2"] * 2


def test_episodes_of_rllm(sample_files: Files) -> None:
    path = sample_files["rllm"]
    (path.parent.parent / "meta.json").write_text(json.dumps({"model": "tiny", "dataset": "sums"}))
    frame = read_logs(path).turns.frame.filter(episode=0)
    assert frame.select("turn", pl.col("agent").cast(pl.String), "observation", "action", "reward").rows() == [
        (0, "solver", "1+1=", "2", None),
        (1, "solver", "sure?", "two", 0.25),
        (2, "judge", "is it 2?", "yes", 0.75),
    ]
    found = trials(read_logs(path).turns)
    assert found.select("system", "task", "success", "tokens_in", "tokens_out").rows() == [
        ("tiny", "sum-7", True, 9, 3),
        ("tiny", "sum-7", False, 9, 3),
    ]
    assert read_logs(path).turns.frame["limit"].drop_nulls().unique().to_list() == ["max_turns_exceeded"]


def test_an_episode_that_broke_is_no_failure_of_its_system(tmp_path: Path) -> None:
    record = rllm()[0] | {"termination_reason": "error", "metadata": {"error": {"message": "no disk"}}}
    (found,) = trials(read_logs(lines(tmp_path / "episode.json", [record])).turns).to_dicts()
    assert found["error"] == 'run: {"message": "no disk"}'
    groups = art_groups()
    groups.append({"trajectories": [], "metadata": {}})
    logs = read_logs(lines(tmp_path / "1.jsonl", groups))
    assert [problem.where for problem in logs.problems] == ["line 2"]
