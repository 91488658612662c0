"""The page of an evaluation shows the sections that there is something for, and says what it cannot say."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import polars as pl
import pytest

from palaestra.algebra.turns import Turns
from palaestra.evaluation.intervals import Estimate
from palaestra.evaluation.ranking import matches, rank
from palaestra.interface import cli
from palaestra.interface.report.charts import Cell, heat_of
from palaestra.interface.report.evaluation import _confidences, _forests, _sure, _wins, write_evaluation

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
        "Where this is from", "What this page cannot say",
    ]  # fmt: skip
    text = page.read_text()
    assert "other: better by" in re.sub(r"\s+", " ", text)
    for picture in ("Forest plot of success by system", "Cost against success", "Calibration of one"):
        assert picture in text
    assert '<th scope="col">add</th>' in text
    assert "Pareto-optimal" in text


def test_what_is_not_there_is_not_shown(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    run("evaluate", log(tmp_path / "one.jsonl", 1.0, cost=False, sure=False, family=False, tasks=5), "--report", page)
    assert headings(page) == ["Results", "Where this is from", "What this page cannot say"]
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
    assert headings(page) == ["Ranking", "Where this is from", "What this page cannot say"]
    assert "Strongest cycle" in text
    assert "Intervals of ranks by alpha_rank" in text
    assert text.count("100.0\u00a0%") >= 3
    assert str(page) in capsys.readouterr().err


def test_from_python_with_whatever_there_is(tmp_path: Path) -> None:
    played = matches(["x"] * 20, ["y"] * 20, [1.0] * 15 + [0.0] * 5)
    page = write_evaluation(tmp_path / "p.html", ranking=rank(played, resamples=200), title="Duel")
    assert "<title>Cannot tell who is first: x, y · Duel · Palaestra</title>" in page.read_text()
    assert headings(write_evaluation(tmp_path / "q.html")) == ["Where this is from", "What this page cannot say"]


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
    assert "<title>1 system evaluated · Evaluation · Palaestra</title>" in tree


def test_heat_maps_leave_unknown_cells_empty() -> None:
    heat = heat_of("t", "n", ["a", "b"], ["x"], {("a", "x"): Cell("1", 0.5)})
    assert [cells[0].text for _, cells in heat.rows] == ["1", ""]


def words(page: Path) -> str:
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", page.read_text().split("</style>")[1]))


def test_the_verdict_comes_first_and_is_the_title(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    logs = [log(tmp_path / f"{name}.jsonl", skill) for name, skill in (("one", 0.3), ("other", 0.9), ("third", 0.3))]
    run("evaluate", *logs[:2], "--report", page)
    title = re.search("<title>(.*?)</title>", page.read_text())
    assert title
    assert re.fullmatch(r"other: better by \+\d+\.\d points · Evaluation · Palaestra", title[1])
    run("evaluate", *logs, "--report", page)
    said = words(page)
    assert "2 systems compared with one: 1 better, 1 cannot tell" in said
    assert said.index("other better by") < said.index("third cannot tell") < said.index("Results")
    assert said.count("other better by") == 1


def test_the_page_says_where_it_is_from(tmp_path: Path) -> None:
    good, bad = log(tmp_path / "one.jsonl", 0.3), tmp_path / "bad.jsonl"
    lines = good.read_text().splitlines()
    bad.write_text("\n".join([lines[0], '{"messages": [', *lines[1:]]) + "\n")
    page = tmp_path / "page.html"
    assert run("evaluate", f"a={good}", f"b={bad}", "--report", page) == 0
    said = words(page)
    assert f"Read a={good} , b={bad}" in said
    assert "Not read 1" in said
    assert re.search(r"Date \d{4}-\d\d-\d\d ", said)
    assert f"{bad}, line 2" in said


def test_confidences_in_percent_are_read_as_such_and_nothing_goes_without_a_word() -> None:
    base = {"group": range(40), "episode": [0] * 40, "turn": [0] * 40, "task": [f"t{i}" for i in range(40)]}
    base |= {"action": ["x"] * 40, "success": [i % 2 == 0 for i in range(40)]}

    def made(confidence: list[float | None]) -> Turns:
        return Turns(pl.DataFrame(base | {"system": ["s"] * 40, "confidence": confidence}))

    share, percent = ([x * scale for x in (0.9, 0.3) * 20] for scale in (1.0, 100.0))
    (plain,), (scaled,) = _sure(made(share)), _sure(made(percent))
    assert scaled.found.brier.mean == pytest.approx(plain.found.brier.mean)
    assert _confidences(made(share))[1] == []
    assert "read as percent" in _confidences(made(percent))[1][0]
    mixed = Turns.concat([made(percent), made(share).with_column(system=["low"] * 40)])
    assert [each.found.brier.mean for each in _sure(mixed)] == pytest.approx([plain.found.brier.mean] * 2)
    assert _confidences(mixed)[1][0].startswith("Confidences of s are read as percent")
    odd = _confidences(made([*share[:-2], 7.0, 8.0]))[1]
    assert odd == ["Calibration leaves out 2 of 40 episodes, whose confidence is not between 0 and 1 (the first: 7)."]
    few = _confidences(made([0.5] * 5 + [None] * 35))[1]
    assert few == ["Calibration needs 10 episodes with a confidence and a verdict; too few: s (5)."]


def test_a_ranking_has_its_counts_and_intervals_in_one_table(tmp_path: Path) -> None:
    played = matches(["x"] * 20, ["y"] * 20, [1.0] * 15 + [0.0] * 3 + [0.5] * 2)
    said = words(write_evaluation(tmp_path / "p.html", ranking=rank(played, resamples=200)))
    assert "System Rank Score Matches Won Lost Drawn" in said
    assert re.search(r" x 1 1,\d+ [\d,]+ to [\d,]+ 20 15 3 2 ", said)


def test_clusters_and_outages_from_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rng = np.random.default_rng(0)
    rows = ["system,task,passage,success,error"]
    for system in ("before", "after"):
        for i in range(100):
            down = system == "before" and i < 34
            error = "APIConnectionError: Connection error." if down else ""
            rows.append(f"{system},t{i},p{i // 5},{'' if down else rng.random() < 0.5},{error}")
    table = tmp_path / "table.csv"
    table.write_text("\n".join(rows) + "\n")
    assert run("evaluate", table, "--baseline", "before") == 0
    said = capsys.readouterr().out
    assert "after: cannot tell: more than 20 % of the trials of one side are lost" in said
    assert "34 of 100 trials of before (APIConnectionError 34)" in said
    assert run("evaluate", table, "--baseline", "before", "--errors", "count", "--cluster", "passage") == 0
    said = capsys.readouterr().out
    assert "100 tasks in 20 clusters × 1 trial" in said
    assert "lost" not in said
    assert run("evaluate", table, "--cluster", "pasage") == 2
    assert "did you mean 'passage'" in capsys.readouterr().err


def test_a_wide_matrix_says_that_it_scrolls(tmp_path: Path) -> None:
    for names, wide in (("xyz", False), ("vwxyz", True)):
        pairs = [(a, b) for a in names for b in names if a < b]
        played = matches([a for a, _ in pairs], [b for _, b in pairs], [1.0] * len(pairs))
        page = write_evaluation(tmp_path / "p.html", ranking=rank(played, resamples=100), matches=played)
        assert ("scroll sideways" in words(page)) == wide


@pytest.mark.parametrize(("scores", "drawn"), [((0.4, 0.7), ["Success"]), ((0.4, 0.6), ["Success", "Score"])])
def test_scores_are_drawn_beside_successes_where_they_are_others(scores: tuple[float, float], drawn: list[str]) -> None:
    def estimate(mean: float) -> Estimate:
        return Estimate(mean, mean - 0.1, mean + 0.1, 50, 50, 1, "bootstrap")

    rows: Any = [
        SimpleNamespace(system=name, success=estimate(success), score=estimate(score), difference=None)
        for name, success, score in zip("ab", (0.4, 0.7), scores, strict=True)
    ]
    assert [chart.title for chart in _forests(rows)] == drawn


def test_who_wins_all_is_as_far_from_the_middle_as_who_loses_all() -> None:
    """Shares of 1, .75 and .5 are 1, .5 and 0 of the way to one end, and those of the other side to the other."""
    games = [("x", "y", 1.0)] * 4 + [("x", "z", 1.0)] * 3 + [("x", "z", 0.0)] + [("y", "z", 0.5)] * 4
    played = matches(*(list(each) for each in zip(*games, strict=True)))
    heat = _wins(rank(played, resamples=100), played)
    assert heat is not None
    found = {(row, column): cell.shade for row, cells in heat.rows for column, cell in zip(heat.columns, cells)}
    assert [found["x", "y"], found["x", "z"], found["y", "z"]] == pytest.approx([1, 0.5, 0])
    assert [found["y", "x"], found["z", "x"], found["z", "y"]] == pytest.approx([-1, -0.5, 0])


def test_a_system_whose_trials_are_all_lost_has_a_verdict(tmp_path: Path) -> None:
    """Also beside others; and there are no cautions about intervals of nothing."""
    rows = ["system,task,success,error"]
    rows += [f"{name},t,{int(name == 'a')},{'policy: Timeout' if name == 'b' else ''}" for name in "abc"]
    (tmp_path / "log.csv").write_text("\n".join(rows) + "\n")
    assert run("evaluate", tmp_path / "log.csv", "--report", tmp_path / "all.html") == 0
    said = words(tmp_path / "all.html")
    assert "2 systems compared with a: 2 cannot tell" in said
    assert "b cannot tell: no task has a success on both sides" in said
    assert "0 tasks" not in said
    assert "has 1 task; intervals of so few are rough" in said
    (tmp_path / "log.csv").write_text("\n".join(rows[:-1]) + "\n")
    assert run("evaluate", tmp_path / "log.csv", "--report", tmp_path / "two.html") == 0
    said = words(tmp_path / "two.html")
    assert "b: cannot tell: no task has a success on both sides (1 dropped); left out, because the infra" in said
