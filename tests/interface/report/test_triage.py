"""`palaestra triage` and its page: what is chosen and why, and that nothing in a transcript ever runs."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest

from palaestra.algebra.turns import Turns
from palaestra.evaluation.triage import by_system, detect, triage
from palaestra.evaluation.triage.detection import Detection, found
from palaestra.interface import cli
from palaestra.interface.report.triage import ENDS, episodes_to_read, write_triage

RUN = "document.title='ran'"
ATTACK = f'<script>{RUN}</script><img src=x onerror="{RUN}"><svg onload="{RUN}">'


def chat(path: Path) -> Path:
    """Six episodes of chat; the third complains and the fifth loops; every one tries to run something."""
    lines = []
    for i in range(6):
        call = {"id": "1", "type": "function", "function": {"name": f"find{ATTACK}", "arguments": '{"q": 1}'}}
        talk = [{"role": "user", "content": f"order {i} {ATTACK}"}]
        for _ in range(4 if i == 4 else 1):
            talk += [{"role": "assistant", "content": ATTACK, "tool_calls": [call]},
                     {"role": "tool", "tool_call_id": "1", "content": "fine"}]  # fmt: skip
        talk.append({"role": "assistant", "content": "Here."})
        if i == 2:
            talk += [{"role": "user", "content": f"this is useless {ATTACK}"}, {"role": "assistant", "content": "Oh."}]
        lines.append({"messages": talk, "model": f"m{ATTACK}", "task": f"t{i}{ATTACK}", "reward": i % 2})
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def say(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as ended:
        cli.main([str(argument) for argument in arguments])
    captured = capsys.readouterr()
    return int(str(ended.value.code)), captured.out, captured.err


def test_the_command_chooses_says_why_and_writes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log, out = chat(tmp_path / "log.jsonl"), tmp_path / "out"
    code, said, told = say(capsys, "triage", log, "--budget", 3, "--out", out, "--json")
    rows = json.loads(said)
    assert code == 0
    why = {row["task"][:2]: row["why"] for row in rows[:2]}
    assert "disengagement" in why["t2"]
    assert "loop.retry" in why["t4"]
    assert "triage.html" in told
    assert pl.read_parquet(out / "triage.parquet")["rank"].to_list() == [1, 2, 3]
    assert [json.loads(line)["why"] for line in (out / "triage.jsonl").read_text().splitlines()] == [
        row["why"] for row in rows
    ]
    code, said, _ = say(capsys, "triage", log, "--budget", 2, "--out", out, "--random", 0.5)
    assert code == 0
    assert "drawn without" in said
    assert "2 of 6 episodes chosen" in said
    assert "; 1 drawn without looking" in said
    said = say(capsys, "triage", log, "--budget", 2, "--out", out, "--random", 0.1)[1]
    assert "; 0 drawn without looking" in said, "a share that is less than an episode"


def test_an_episode_is_called_what_the_log_calls_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = tmp_path / "log.csv"
    log.write_text("task,episode,turn,action,success\nsum,9f-c1,0,hm,\nsum,9f-c1,1,12,false\nsum,07-aa,0,7,true\n")
    assert "sum 9f-c1" in say(capsys, "triage", log, "--budget", 1, "--out", tmp_path)[1]
    assert "sum 9f-c1" in (tmp_path / "triage.html").read_text()
    assert pl.read_parquet(tmp_path / "triage.parquet")["episode_name"].to_list() == ["9f-c1"]


def test_bad_input_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for arguments, word in (
        (("nowhere.jsonl",), "nowhere.jsonl"),
        ((chat(tmp_path / "l.jsonl"), "--budget", 0), "budget"),
    ):
        code, said, told = say(capsys, "triage", *arguments, "--out", tmp_path / "out")
        assert (code, said) == (2, "")
        assert word in told


def test_nothing_in_a_transcript_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], dom: Callable[[Path], str]
) -> None:
    say(capsys, "triage", chat(tmp_path / "log.jsonl"), "--out", tmp_path, "--budget", 6)
    page = tmp_path / "triage.html"
    without_policy = tmp_path / "bare.html"  # escaping alone must do, too
    without_policy.write_text(re.sub(r"<meta http-equiv=[^>]*>", "", page.read_text()))
    for path in (page, without_policy):
        tree = dom(path)
        assert "<title>Triage · Palaestra</title>" in tree
        assert "<script" not in tree
        assert "<img" not in tree
        assert "&lt;script&gt;" in tree
    proof = tmp_path / "proof.html"  # the same attack, not escaped, is seen to run: the check can fail
    proof.write_text(f"<title>quiet</title>{ATTACK}")
    assert "<title>ran</title>" in dom(proof)


def test_a_long_episode_shows_its_ends_and_what_was_seen() -> None:
    turns = Turns(
        {"episode": [0] * 300, "turn": range(300), "agent": ["a"] * 300, "action": [f"w{i}" for i in range(300)]}
    )
    seen = found([Detection(150, "failure", 0.5, "w150")], "mine")
    read = episodes_to_read(turns, triage(turns, 1, detections=seen, weights={"mine": 2.0}), seen)[0]
    shown = [line.number for line in read.lines if not line.skipped]
    assert shown == [*range(ENDS), *range(147, 154), *range(300 - ENDS, 300)]
    assert sum(line.skipped for line in read.lines) + len(shown) == 300
    assert [line.number for line in read.lines if line.signs] == [150]
    assert read.score == 1.0


def test_own_detectors_go_through_the_same_door(tmp_path: Path) -> None:
    turns = Turns({"episode": [0, 1, 2], "turn": [0] * 3, "agent": ["a"] * 3, "action": ["buy", "sell", "hold"]})

    def sells(turns: Turns) -> pl.DataFrame:
        rows = (turns["action"] == "sell").arg_true()
        return found([Detection(row, "sell", 1.0, "sell") for row in rows], "trade")

    seen = detect(turns, {"trade": sells})
    chosen = triage(turns, 1, detections=seen, weights={"trade": 1.0})
    assert chosen.select("episode", "why", "score").rows() == [(1, "sell", 1.0)]
    assert "sell" in write_triage(tmp_path / "new" / "folder", turns, chosen, seen).read_text()


def test_episodes_that_two_systems_share_are_told_apart() -> None:
    turns = Turns(
        {"system": ["before", "after"], "run": ["0", "0"], "group": [0, 0], "episode": [0, 0], "turn": [0, 0]}
    )
    assert turns.codes("episode").size == 1
    assert by_system(turns).codes("episode").size == 2
    apart = Turns({"system": ["before", "after"], "group": [0, 1], "episode": [0, 0]})
    assert by_system(apart) is apart
