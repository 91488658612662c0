"""What is said while work lasts: lines where nobody watches, else bars, and nothing that a terminal obeys."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from rich.text import Text

from palaestra.foundation import progress
from palaestra.foundation.progress import Bars, read_report, report_to_file, reporting, silent


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [100.0]
    monkeypatch.setattr(progress, "monotonic", lambda: now[0])
    return now


def test_without_a_terminal_a_line_now_and_then(clock: list[float]) -> None:
    out = io.StringIO()
    with Bars(Console(file=out, width=80)) as bars:
        report = bars.task("seed [0]")
        report("warming up", 0, 300)
        for done in range(1, 101):  # a second each
            clock[0] += 1
            report("training", done, 400, f"reward {done / 100:.2f}", ["watch out"] if done == 7 else [])
        report("proving", 0, 3, "playing before")
        report("done", 400, 400)
    lines = out.getvalue().splitlines()
    assert lines[0] == "seed [0]: warming up 0/300"
    assert lines[1] == "seed [0]: training 1/400, reward 0.01"
    assert lines[2] == "watch out"
    assert lines[3] == "seed [0]: training 31/400, reward 0.31, 6:09 left"
    assert [line.split(",")[0] for line in lines[4:]] == [
        "seed [0]: training 61/400", "seed [0]: training 91/400", "seed [0]: proving 0/3", "seed [0]: done 400/400",
    ]  # fmt: skip


def test_on_a_terminal_a_bar_with_phase_metric_and_time(clock: list[float]) -> None:
    out = io.StringIO()
    with Bars(Console(file=out, width=120, force_terminal=True, color_system=None)) as bars:
        report = bars.task("credit=[grpo] seed 0")
        report("training", 0, 400)
        clock[0] += 10
        report("training", 100, 400, "reward 0.50  success 0.25")
    shown = out.getvalue()
    assert "credit=[grpo] seed 0" in shown, "brackets are no markup"
    assert "100/400 training reward 0.50  success 0.25  0:30 left" in shown


def test_all_text_goes_through_the_console(clock: list[float]) -> None:
    class Door(Console):
        def render_str(self, text: str, **options: Any) -> Text:
            return super().render_str(text.replace("\x1b", "ESC"), **options)

    for terminal in (False, True):
        out = io.StringIO()
        with Bars(Door(file=out, width=120, force_terminal=terminal, color_system=None)) as bars:
            bars.task("seed\x1b]0;x")("tr\x1b[31m", 1, 2, "no\x1bte", ["al\x1barm"])
        for word in ("seedESC]0;x", "trESC[31m", "noESCte", "alESCarm"):
            assert word in out.getvalue()


def test_one_process_notes_and_another_reads(tmp_path: Path, clock: list[float]) -> None:
    path = tmp_path / "note.json"
    with report_to_file(path) as report:
        report("training", 1, 9, "reward 1")
        report("training", 2, 9)
        assert read_report(path) == ("training", 1, 9, "reward 1"), "not more often than anybody looks"
        report("proving", 0, 2)
        assert read_report(path) == ("proving", 0, 2, "")
        path.write_text("{")
        assert read_report(path) is None
    assert not path.exists()
    assert read_report(path) is None


def test_what_is_given_is_used(capsys: pytest.CaptureFixture[str]) -> None:
    with reporting(silent, "train") as report:
        assert report is silent
    with reporting(False, "train") as report:
        report("training", 1, 2)
    assert capsys.readouterr().err == ""
    with reporting(True, "train") as report:
        report("training", 1, 2)
    assert "train: training 1/2" in capsys.readouterr().err
