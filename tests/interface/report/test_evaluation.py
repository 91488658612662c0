"""The page of an evaluation shows the sections that there is something for, and says what it cannot say."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from palaestra.algebra.turns import Turns
from palaestra.evaluation.ranking import matches, rank
from palaestra.interface import cli
from palaestra.interface.report.charts import Cell, heat_of
from palaestra.interface.report.evaluation import _sure, write_evaluation

ATTACK = "<script>document.title='ran'</script>"


def log(
    path: Path, skill: float, *, cost: bool = True, sure: bool = True, family: bool = True, tasks: int = 40
) -> Path:
    """Chat lines of two trials a task, some of them with a complaint."""
    rng = np.random.default_rng(len(path.stem))
    lines = []
    for i in range(2 * tasks):
        right = rng.random() < skill
        talk = [{"role": "user", "content": f"sum {i}"}, {"role": "assistant", "content": "4"}]
        if not right:
            talk += [{"role": "user", "content": f"this is useless {ATTACK}"}, {"role": "assistant", "content": "5"}]
        line = {"messages": talk, "model": path.stem, "reward": int(right), "task": str(i // 2)}
        line |= {"task": f"{('add', 'times')[i // 2 % 2]}/{i // 2}"} if family else {}
        line |= {"cost": 0.01 * (1 + skill) + 0.001 * rng.random()} if cost else {}
        line |= {"confidence": round(float(rng.random()), 3)} if sure else {}
        lines.append(line)
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def run(*arguments: object) -> int:
    with pytest.raises(SystemExit) as ended:
        cli.main([str(argument) for argument in arguments])
    return int(str(ended.value.code))


def headings(page: Path) -> list[str]:
    return re.findall(r"<h2>(.*?)</h2>", page.read_text())


def test_a_full_log_gives_every_section(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "deep" / "page.html"
    logs = [log(tmp_path / "one.jsonl", 0.3), log(tmp_path / "other.jsonl", 0.8)]
    assert run("evaluate", *logs, "--report", page) == 0
    captured = capsys.readouterr()
    assert str(page) in captured.err
    assert headings(page) == [
        "Results", "Success by family of tasks", "Cost", "Calibration", "10 episodes to read first",
        "What this page cannot say",
    ]  # fmt: skip
    text = page.read_text()
    assert "other: better by" in re.sub(r"\s+", " ", text)
    for picture in ("Forest plot of success by system", "Cost against success", "Calibration of one"):
        assert picture in text
    assert '<th scope="col">add</th>' in text
    assert "on the frontier" in text


def test_what_is_not_there_is_not_shown(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    run("evaluate", log(tmp_path / "one.jsonl", 1.0, cost=False, sure=False, family=False, tasks=5), "--report", page)
    assert headings(page) == ["Results", "What this page cannot say"]
    assert "5 tasks; intervals of so few are rough" in page.read_text()
    assert "<h1>1 system evaluated</h1>" in page.read_text()


def test_report_of_a_folder_of_logs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log(tmp_path / "one.jsonl", 0.3)
    log(tmp_path / "other.jsonl", 0.8)
    assert run("report", tmp_path) == 0
    assert capsys.readouterr().out == f"{tmp_path / 'report.html'}\n"
    assert (
        "2 systems" in (tmp_path / "report.html").read_text()
        or "other: better" in (tmp_path / "report.html").read_text()
    )
    (tmp_path / "empty").mkdir()
    assert run("report", tmp_path / "empty") == 2
    assert "no log in this folder" in capsys.readouterr().err


def test_ranks_wins_and_cycles(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = ["a,b,winner"]
    for winner, loser in (("stone", "scissors"), ("scissors", "paper"), ("paper", "stone")):
        rows += [f"{winner},{loser},a"] * 30
    table = tmp_path / "matches.csv"
    table.write_text("\n".join(rows) + "\n")
    page = tmp_path / "rank.html"
    assert run("rank", table, "--report", page) == 0
    text = page.read_text()
    assert headings(page) == ["Ranking", "What this page cannot say"]
    assert "Strongest cycle" in text
    assert "Intervals of ranks by alpha_rank" in text
    assert text.count("100.0%") >= 3
    assert str(page) in capsys.readouterr().err


def test_from_python_with_whatever_there_is(tmp_path: Path) -> None:
    played = matches(["x"] * 20, ["y"] * 20, [1.0] * 15 + [0.0] * 5)
    page = write_evaluation(tmp_path / "p.html", ranking=rank(played, resamples=200), title="Duel")
    assert "<title>Duel · Palaestra</title>" in page.read_text()
    assert headings(write_evaluation(tmp_path / "q.html")) == ["What this page cannot say"]


def test_systems_of_a_run_that_share_episodes_are_read_apart(tmp_path: Path) -> None:
    frame = pl.DataFrame({
        "system": ["before", "after"] * 20, "group": [i // 2 for i in range(40)], "episode": [0] * 40, "turn": [0] * 40,
        "task": [f"t{i // 2}" for i in range(40)], "action": ["x"] * 40, "observation": ["forget it"] * 40,
        "success": [i % 2 == 0 for i in range(40)], "confidence": [0.5] * 40,
    })  # fmt: skip
    page = write_evaluation(tmp_path / "p.html", turns=Turns(frame))
    assert headings(page)[:2] == ["Calibration", "10 episodes to read first"]
    assert "Calibration of before" in page.read_text()


def test_calibration_leaves_out_what_nobody_judged(tmp_path: Path) -> None:
    """Unknown success is not success: 20 episodes that failed, 20 of which nothing is known."""
    frame = pl.DataFrame({
        "system": ["s"] * 40, "group": range(40), "episode": [0] * 40, "turn": [0] * 40,
        "task": [f"t{i}" for i in range(40)], "action": ["x"] * 40, "confidence": [0.5] * 40,
        "success": [False if i < 20 else None for i in range(40)],
    })  # fmt: skip
    (found,) = _sure(Turns(frame))
    assert found.found.ece.n == 20
    assert found.found.bins["success"].to_list() == [0.0]


def test_a_page_that_cannot_be_written_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = log(tmp_path / "one.jsonl", 0.3, tasks=5)
    (tmp_path / "file").write_text("")
    for option in ("evaluate", "triage"):
        out = ["--report", tmp_path / "file" / "x.html"] if option == "evaluate" else ["--out", tmp_path / "file"]
        assert run(option, path, *out) == 1
        assert capsys.readouterr().err.startswith(f"error: cannot write {tmp_path / 'file'}/")


def test_the_matrix_keeps_the_order_of_the_systems(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    run("evaluate", log(tmp_path / "worse.jsonl", 0.3), log(tmp_path / "better.jsonl", 0.8), "--report", page)
    heat = page.read_text().partition('class="heat')[2]
    assert re.findall(r'<th scope="row">(.*?)</th>', heat)[:3] == ["worse", "better", "all"]


def test_systems_with_fewer_trials_have_no_pass_at_the_others_k(tmp_path: Path) -> None:
    page, once = tmp_path / "page.html", log(tmp_path / "once.jsonl", 0.8)
    once.write_text("".join(once.read_text().splitlines(keepends=True)[::2]))
    assert run("evaluate", log(tmp_path / "twice.jsonl", 0.3), once, "--report", page) == 0
    assert '<td data-label="pass@2" class="wide empty">–</td>' in page.read_text()


def test_nothing_on_the_page_runs(tmp_path: Path, dom: Callable[[Path], str]) -> None:
    page = tmp_path / "page.html"
    run("evaluate", log(tmp_path / "one.jsonl", 0.3), "--report", page)
    tree = dom(page)
    assert "<script" not in tree
    assert "&lt;script&gt;" in tree
    assert "<title>Evaluation · Palaestra</title>" in tree


def test_heat_maps_leave_unknown_cells_empty() -> None:
    heat = heat_of("t", "n", ["a", "b"], ["x"], {("a", "x"): Cell("1", 0.5)})
    assert [cells[0].text for _, cells in heat.rows] == ["1", ""]
