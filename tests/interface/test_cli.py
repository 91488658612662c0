"""The command line: results on stdout, all else on stderr, one line for what is wrong, and exit codes that say so."""

from __future__ import annotations

import io
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl
import pytest
import yaml
from quick import QUICK, Trained

from palaestra import __version__
from palaestra.algebra.turns import Turns
from palaestra.errors import PalaestraError
from palaestra.interface import cli
from palaestra.interface.cli import evaluate
from palaestra.interface.cli.app import Door, table_of
from palaestra.runs.recipe import load, names


class Said(NamedTuple):
    """What a command said."""

    code: int
    stdout: str
    stderr: str

    @property
    def json(self) -> Any:
        def refuse(constant: str) -> None:
            raise AssertionError(f"{constant} is no JSON")

        return json.loads(self.stdout, parse_constant=refuse)


@pytest.fixture
def say(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Run a command in this process, in an empty directory."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))

    def run(*arguments: object) -> Said:
        with pytest.raises(SystemExit) as ended:
            cli.main([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        return Said(int(str(ended.value.code)), captured.out, captured.err)

    return run


def complaint(said: Said, code: int = 2) -> str:
    """The one line on stderr, nothing on stdout."""
    assert (said.code, said.stdout) == (code, ""), said
    assert said.stderr.startswith("error: "), said
    assert said.stderr.count("\n") == 1, said
    assert "Traceback" not in said.stderr
    return said.stderr.removeprefix("error: ").strip()


# -- what is asked of everybody ---------------------------------------------------------------------------------------


def test_help_and_version(say: Any) -> None:
    nothing = say()
    assert nothing.code == 0
    assert "Commands:" in nothing.stdout
    assert nothing == say("--help")
    assert say("--version") == Said(0, f"palaestra {__version__}\n", "")
    shown = re.findall(r"^  ([a-z-]+) {2,}\S.*[.?]$", nothing.stdout.split("Commands:")[1], re.MULTILINE)
    assert shown[:4] == ["train", "compare", "report", "recipes"]
    assert len(shown) == 23, "each has one whole line"
    assert "..." not in nothing.stdout.split("Commands:")[1]
    for command in shown:
        assert say(command, "--help").code == 0
    assert "--debug" in nothing.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["frobnicate"], "No such command 'frobnicate'."),
        (["train"], "Missing argument 'RECIPE'."),
        (["train", "x", "--jobs", "0"], "Invalid value for '--jobs'"),
        (["compare", "solver-checker", "--vary", "credit=grpo,dr_mas", "--seeds", "0"], "Invalid value for '--seeds'"),
        (["apply", "grpo"], "Missing argument 'TURNS.parquet'."),
        (["evaluate", "nope"], "nope: no such file or folder"),
        (["report", "nope"], "Invalid value for 'RUN': path 'nope' does not exist."),
        (["reproduce"], "reproduce: give the id of one system, or --all"),
        (["reproduce", "18", "--all"], "reproduce: give the id of one system, or --all"),
        (["reproduce", "x"], "no system named 'x'"),
        (["recipes", "solver-cheker"], "no recipe 'solver-cheker'; did you mean 'solver-checker'"),
        (["train", "nope.yaml"], "nope.yaml: cannot be read: No such file or directory"),
        (["train", "solver-checker", "train.iteration=3"], "recipe solver-checker: train.iteration: unknown field"),
        (["train", "solver-checker", "train.iterations"], "override 'train.iterations': write field=value"),
        (["train", "solver-checker", "env.options.prompt=shrt"], "env: "),
        (["compare", "solver-checker"], "--vary '': write FIELD=VALUE,VALUE with two values or more"),
        (["compare", "solver-checker", "--vary", "credit=grpo,grop"], "recipe solver-checker: credit: 'grop': unknown"),
    ],
)
def test_wrong_command_lines(arguments: list[str], message: str, say: Any, tmp_path: Path) -> None:
    assert message in complaint(say(*arguments))
    assert not list(tmp_path.iterdir()), "nothing was begun"


def test_debug_shows_where_an_error_comes_from(say: Any) -> None:
    for arguments in (["--debug", "train", "nope"], ["train", "nope", "--debug"]):
        said = say(*arguments)
        assert said.code == 2
        assert "Traceback (most recent call last)" in said.stderr
        assert "error: no recipe 'nope'" in said.stderr


def test_a_bug_of_ours_is_one_line_too(say: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    import palaestra_atlas

    def broken() -> None:
        raise ZeroDivisionError("division by zero")

    monkeypatch.setattr(palaestra_atlas, "systems", broken)
    message = complaint(say("systems"), code=1)
    assert message == "ZeroDivisionError: division by zero (run again with --debug for the traceback)"

    def failing() -> None:
        raise PalaestraError("a failure")

    monkeypatch.setattr(palaestra_atlas, "systems", failing)
    assert complaint(say("systems"), code=1) == "a failure"


def test_an_interruption_has_a_code_of_its_own(say: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    import palaestra_atlas

    def interrupted() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(palaestra_atlas, "systems", interrupted)
    said = say("systems")
    assert (said.code, said.stdout) == (130, "")
    assert said.stderr.strip() == "interrupted"


@pytest.mark.parametrize(
    ("command", "how"),
    [
        ("train", "--resume"),
        *((name, "the same command again") for name in ("compare", "judge", "fit-reward", "apply")),
    ],
)
def test_an_interruption_says_how_it_goes_on(command: str, how: str, say: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from palaestra.interface.cli import app

    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(app, "_command", lambda count: interrupted)
    assert say(command).stderr.strip() == f"interrupted; it goes on with {how}"


def test_a_name_is_told_in_a_whole_sentence_and_kinds_once(say: Any) -> None:
    told = {line.split()[0]: line for line in say("names", "signal").stdout.splitlines() if line.strip()}
    assert not [name for name, line in told.items() if line.rstrip().endswith(" Dr.")]
    assert complaint(say("names", "zzz")).count("workflow") == 1


# -- recipes, systems, reproduce --------------------------------------------------------------------------------------


def test_recipes(say: Any, tmp_path: Path) -> None:
    listed = say("recipes", "--json").json
    assert [row["name"] for row in listed] == names()
    assert all(row["description"] for row in listed)
    shown = say("recipes").stdout
    assert all(name in shown for name in names())
    printed = say("recipes", "solver-checker")
    (tmp_path / "mine.yaml").write_text(printed.stdout)
    assert load(tmp_path / "mine.yaml") == load("solver-checker"), "what is printed is a recipe to start from"
    assert say("recipes", "market", "--json").json["name"] == "market"


def test_systems(say: Any) -> None:
    rows = say("systems", "--json").json
    assert len(rows) == 219
    assert all(list(row) == ["id", "name", "family", "status", "where", "use", "reproduce"] for row in rows)
    assert [row["id"] for row in rows] == list(range(1, 220))
    assert say("systems", "18", "--json").json == rows[17]
    assert "Dr. MAS" in say("systems", "18").stdout
    assert say("systems", "gigpo", "--json").json["id"] == 62
    assert "GiGPO" in say("systems").stdout
    assert "ids run from 1 to 219" in complaint(say("systems", "999"))
    assert "no system named 'gigpoo'; did you mean 'GiGPO'" in complaint(say("systems", "gigpoo"))


def test_reproduce(say: Any) -> None:
    said = say("reproduce", "18", "--json")
    assert said.code == 0
    assert list(said.json) == ["id", "claim", "baseline", "measured", "criterion", "holds", "seconds"]
    assert (said.json["id"], said.json["holds"]) == (18, True)
    assert say("reproduce", "Dr. MAS", "--json").json["id"] == 18, "by name, as `systems`"
    assert "system 4 has no reproduction" in complaint(say("reproduce", "4"))
    assert "ids run from 1 to 219" in complaint(say("reproduce", "999"))
    assert "--seeds '9..3': names no seed; write 3..9" in complaint(say("reproduce", "18", "--seeds", "9..3"))


def test_a_reproduction_that_does_not_hold_exits_1(say: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from palaestra_atlas import reproductions

    broken = reproductions.Result(18, "c", "b", {"x": float("nan")}, "x > 0", holds=False, seconds=0.1)
    monkeypatch.setattr(reproductions, "reproduce", lambda identity, **options: [broken])
    said = say("reproduce", "18", "--json")
    assert (said.code, said.json["holds"], said.json["measured"]) == (1, False, {"x": None})
    text = say("reproduce", "18")
    assert text.code == 1
    assert "does NOT hold" in text.stdout


# -- apply ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def table(trained: Trained, tmp_path: Path) -> Path:
    turns = Turns.load(trained.directory / "seed-0" / "turns")
    return turns.save(tmp_path / "turns.parquet")


def test_apply_adds_any_signal(table: Path, say: Any) -> None:
    said = say("apply", "gigpo(gamma=0.95)", table, "-o", "out.parquet", "--name", "x")
    assert (said.code, said.stderr) == (0, "")
    assert said.stdout == f"out.parquet: {len(Turns.load(table))} turns, column 'x'\n"
    before, after = Turns.load(table), Turns.load("out.parquet")
    assert after.columns == [*before.columns, "x"]
    assert after.frame.drop("x").equals(before.frame)
    from palaestra.credit import gigpo

    assert after["x"].equals(before.with_column(x=gigpo(gamma=0.95))["x"])
    assert say("apply", "2 * x", "out.parquet", "-o", "again.parquet").code == 0
    assert "advantage" in Turns.load("again.parquet").columns
    explained = say("apply", "grpo", table, "-o", "out.parquet", "--explain").stdout
    assert "over" in explained
    assert "keys" in explained
    in_place = say("apply", "grpo", table, "-o", "out.parquet", "--explain", "--name", "reward").stdout
    assert in_place.splitlines()[:-1] == explained.splitlines()[:-1], "what it ranged over, not what came of it"


@pytest.mark.parametrize(
    ("expression", "damage", "code", "message"),
    [
        ("gipgo", None, 2, "unknown name 'gipgo'; did you mean 'gigpo'"),
        ("grpo(", None, 2, "cannot read 'grpo('"),
        ("__import__('os')", None, 2, "unknown function '__import__'"),
        ('col("rewrd")', None, 2, "column 'rewrd' is missing; did you mean 'reward'"),
        ("grpo", "no reward", 2, "grpo(): column 'reward' is missing"),
        ("grpo", "old", 2, "written with schema version 0, this release reads version 1"),
        ("grpo", "wrong type", 2, "column 'reward' has type String, expected Float64"),
        ("grpo", "cut", 2, "not a readable Parquet file"),
        ("grpo", "text", 2, "not a readable Parquet file"),
        ("grpo", "nan", 1, "col('reward') is not finite in"),
    ],
)
def test_apply_names_what_is_wrong(
    expression: str, damage: str | None, code: int, message: str, table: Path, say: Any
) -> None:
    frame = pl.read_parquet(table)
    match damage:
        case "no reward":
            frame.drop("reward").write_parquet(table)
        case "old":
            frame.write_parquet(table, metadata={"palaestra.schema": "0"})
        case "wrong type":
            frame.with_columns(reward=pl.lit("much")).write_parquet(table)
        case "cut":
            table.write_bytes(table.read_bytes()[:500])
        case "text":
            table.write_text("group,reward\n1,2\n")
        case "nan":
            frame.with_columns(reward=pl.lit(float("nan"))).write_parquet(table)
    assert message in complaint(say("apply", expression, table, "-o", "out.parquet"), code)
    assert not Path("out.parquet").exists()


def test_apply_takes_a_folder_file_by_file_and_goes_on(table: Path, say: Any) -> None:
    turns = Turns.load(table)
    for (number,), part in turns.frame.partition_by("iteration", as_dict=True).items():
        Turns(part).save(Path(f"in/{number}.parquet"))
    said = say("apply", "grpo", "in", "-o", "out", "--reward", "2 * reward")
    files = turns["iteration"].n_unique()
    assert said.stdout == f"out: {len(turns)} turns in {files} files, column 'advantage'\n"
    from palaestra.algebra.signals import col
    from palaestra.credit import grpo

    expected = turns.with_column(reward=2 * col("reward")).with_column(advantage=grpo())
    assert Turns.load("out").frame["reward", "advantage"].equals(expected.frame["reward", "advantage"])
    again = say("apply", "grpo", "in", "-o", "out", "--reward", "2 * reward")
    assert f"{files} of {files} files were finished before" in again.stderr
    joined = say("apply", "grpo", "in", "-o", "one.parquet")
    assert joined.code == 0
    assert len(Turns.load("one.parquet")) == len(turns)
    assert "--explain counts samples" in complaint(say("apply", "grpo", "in", "-o", "out", "--explain"))
    assert "are for a directory" in complaint(say("apply", "grpo", table, "-o", "x.parquet", "--workers", "2"))
    both = say("apply", "grpo", "in", "-o", "o", "--reward", "turn", "--name", "reward")
    assert "give it another --name" in complaint(both)


def test_apply_writes_parquet_under_no_other_name(table: Path, say: Any) -> None:
    for source in (table, "in"):
        Path("in").mkdir(exist_ok=True)
        shutil.copy(table, "in/a.parquet")
        for name in ("out.csv", "out.jsonl"):
            said = complaint(say("apply", "grpo", source, "-o", name))
            assert name in said
            assert "parquet" in said
            assert not Path(name).exists()
    Path("there").write_text("x")
    assert "goes to a directory" in complaint(say("apply", "grpo", "in", "-o", "there"))
    assert say("apply", "grpo", table, "-o", "plain").code == 0
    assert say("apply", "grpo", "in", "-o", "beta-0.5").code == 0


def test_apply_takes_signals_of_ones_own(table: Path, say: Any) -> None:
    Path("mine.py").write_text(
        "import palaestra\n\n\n@palaestra.register()\ndef mine(x='reward'):\n    return 3.0 * palaestra.col(x)\n"
    )
    assert say("apply", "mine()", table, "-o", "x.parquet", "--import", "mine", "--name", "x").code == 0
    assert Turns.load("x.parquet")["x"].equals(3.0 * Turns.load(table)["reward"])
    missing = say("apply", "mine()", table, "-o", "x.parquet", "--import", "yours")
    assert "--import yours: No module named 'yours'" in complaint(missing)
    Path("broken_module.py").write_text("raise RuntimeError('no')\n")
    broken = say("apply", "mine()", table, "-o", "x.parquet", "--import", "broken_module")
    assert complaint(broken) == "--import broken_module: RuntimeError: no"


def test_what_a_run_wrote_is_not_mixed(trained: Trained, say: Any) -> None:
    for command in (("apply", "grpo", trained.directory, "-o", "x.parquet"), ("audit", trained.directory)):
        assert f"give one, e.g. {trained.directory / 'seed-0' / 'turns'}" in complaint(say(*command))


def test_apply_does_not_overwrite_what_was_said(table: Path, say: Any) -> None:
    said = say("apply", "grpo", table, "-o", "x.parquet", "--name", "observation")
    assert "that column says what it saw, as text; give the new one another name" in complaint(said)


def test_apply_writes_whole_files_or_none(table: Path, say: Any) -> None:
    before = table.read_bytes()
    Path("folder").mkdir()
    assert "cannot write folder" in complaint(say("apply", "grpo", table, "-o", "folder"), 1)
    assert "cannot write" in complaint(say("apply", "grpo", table, "-o", table / "x.parquet"), 1)
    assert "--name: give the new column a name" in complaint(
        say("apply", "grpo", table, "-o", "x.parquet", "--name", "")
    )
    assert table.read_bytes() == before
    assert say("apply", "grpo", table, "-o", table).code == 0, "onto itself"
    assert "advantage" in Turns.load(table).columns


# -- evaluate and report ----------------------------------------------------------------------------------------------


def test_evaluate(trained: Trained, say: Any) -> None:
    rows = say("evaluate", trained.directory, "--json").json
    assert [row["system"] for row in rows] == ["before", "after", "idle", "random", "scripted"]
    assert {"tasks", "trials", "success", "score", "pass_at_k", "difference", "errors", "verdict"} <= rows[1].keys()
    text = say("evaluate", trained.directory)
    assert (text.code, text.stderr) == (0, "")
    assert all(row["system"] in text.stdout for row in rows)
    assert f"after: {rows[1]['verdict']}" in text.stdout.splitlines()
    other = say("evaluate", trained.directory / "seed-0" / "evaluation.parquet", "--baseline", "random", "--json").json
    assert other[0]["system"] == "random"
    assert "no such system; did you mean 'before'?" in complaint(
        say("evaluate", trained.directory, "--baseline", "bfore")
    )


def test_evaluate_keeps_intervals_inside_the_scale(say: Any, tmp_path: Path) -> None:
    frame = pl.DataFrame({"task": ["a", "b"], "episode": [0, 0], "group": [0, 1], "reward": [0.5, 1.0]})
    frame = frame.with_columns(success=pl.lit(None, pl.Boolean))
    frame.write_parquet(tmp_path / "share.parquet")
    frame.with_columns(reward=pl.Series([7.0, 10.0])).write_parquet(tmp_path / "grade.parquet")
    share, free = (say("evaluate", file) for file in ("share.parquet", "grade.parquet"))
    ten = say("evaluate", "grade.parquet", "--scale", "0,10")
    assert "0.75 [0, 1]" in share.stdout
    assert "cut off at the ends of the scale, 0 to 1; --scale LOW,HIGH names other ends" in share.stderr
    assert "8.5 [-10.6, 27.6]" in free.stdout
    assert "beyond every score seen, 7 to 10; if the scale has ends, name them with --scale LOW,HIGH" in free.stderr
    assert "8.5 [0, 10]" in ten.stdout
    assert "1 of 2 trials have a score outside, the first 10" in complaint(
        say("evaluate", "grade.parquet", "--scale", "0,8")
    )
    assert "name the lowest and the highest score" in complaint(say("evaluate", "grade.parquet", "--scale", "10"))


def test_intervals_that_end_at_the_least_and_greatest_score_reach_beyond_none(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    monkeypatch.setattr(evaluate, "hint", said.append)
    scores, within = pl.Series([7.0, 10.0]), {"low": 7.0, "high": 10.0}
    for score in (within, within | {"low": 6.5}, within | {"high": 10.5}):
        evaluate._beyond([{"system": "s", "scale": None, "score": score}], scores)
    assert len(said) == 2
    assert "score of s: the interval reaches beyond every score seen, 7 to 10" in said[0]


def test_evaluate_names_a_column_that_groups_the_tasks(say: Any, tmp_path: Path) -> None:
    lines = ["task,success,Repo,db_id", *(f"t{i},{int(i % 3 == 0)},r{i // 4},d{i}" for i in range(24))]
    (tmp_path / "log.csv").write_text("\n".join(lines))
    frame = pl.DataFrame({"task": [f"t{i}" for i in range(24)], "episode": 0, "group": range(24)})
    frame = frame.with_columns(success=pl.col("group") % 3 == 0, reward=1.0, repo_id=pl.col("group") // 4)
    frame.write_parquet(tmp_path / "table.parquet")
    for file, name in (("log.csv", "Repo"), ("table.parquet", "repo_id")):
        blind = say("evaluate", file, "--report", "page.html")
        assert f"column '{name}' puts the 24 tasks into 6 groups" in blind.stderr
        assert "db_id" not in blind.stderr, "a value for every task groups nothing"
        assert f"--cluster {name}" in blind.stderr
        assert f"--cluster {name}" in (tmp_path / "page.html").read_text("utf-8")
        known = say("evaluate", file, "--cluster", name, "--json")
        assert "groups" not in known.stderr
        assert known.json[0]["success"]["clusters"] == 6
    two = frame.with_columns(task=pl.lit("t") + (pl.col("group") % 5).cast(pl.String))
    two.write_parquet(tmp_path / "two.parquet")
    assert "groups" not in say("evaluate", "two.parquet").stderr, "a task of two values is in no group"


def test_evaluate_lists_tasks_that_were_solved_and_are_not(say: Any, tmp_path: Path) -> None:
    for name, wrong in (("old", {2}), ("new", {5, 9})):
        lines = ["task,success", *(f"t{i},{int(i not in wrong)}" for i in range(12))]
        (tmp_path / f"{name}.csv").write_text("\n".join(lines))
    told = say("evaluate", "old.csv", "new.csv")
    assert "new: no longer solved: 2 (t5, t9); newly solved: 1" in told.stdout
    row = say("evaluate", "old.csv", "new.csv", "--json").json[1]
    assert (row["regressed"], row["gained"]) == (["t5", "t9"], ["t2"])
    assert "no longer solved" not in say("evaluate", "old.csv", "a=old.csv").stdout


def test_evaluate_a_table_that_says_nothing_of_success(say: Any, tmp_path: Path) -> None:
    """One system, one trial, no success: numbers that cannot be known are null, which is JSON."""
    frame = pl.DataFrame({"task": ["a", "b"], "episode": [0, 0], "group": [0, 1], "reward": [0.5, 1.0]})
    frame.with_columns(success=pl.lit(None, pl.Boolean)).write_parquet(tmp_path / "mine.parquet")
    (row,) = say("evaluate", "mine.parquet", "--json").json
    assert row["success"]["mean"] is None
    assert row["score"]["mean"] == 0.75
    assert "not read" not in say("evaluate", "mine.parquet").stderr
    pl.DataFrame({"reward": [1.0]}).write_parquet(tmp_path / "foreign.parquet")
    assert "the table has no column 'task'" in complaint(say("evaluate", "foreign.parquet"))


def test_report_is_written_again(trained: Trained, say: Any) -> None:
    shutil.copytree(trained.directory, "copy")
    page = Path("copy/report.html")
    page.unlink()
    assert say("report", "copy") == Said(0, "copy/report.html\n", "")
    assert page.exists()
    assert "not a run directory" in complaint(say("report", "."))


# -- train and compare ------------------------------------------------------------------------------------------------


def test_train_says_its_verdict_and_where_the_report_is(trained: Trained) -> None:
    summary = json.loads((trained.directory / "summary.json").read_text())
    assert trained.stdout == f"{summary['verdict']}\nreport: run/report.html\n"
    assert "6/6" in trained.stderr, "progress"
    assert "Traceback" not in trained.stderr


def test_train_again(trained: Trained, say: Any) -> None:
    shutil.copytree(trained.directory, "copy")
    again = say("train", trained.recipe, "--trust", "--out", "copy", "--resume")
    assert (again.code, again.stdout) == (0, trained.stdout.replace("run/", "copy/"))
    refused = complaint(say("train", trained.recipe, "--trust", "--out", trained.directory))
    assert refused.endswith("holds a run already: go on with --resume, or choose another --out")
    other = complaint(say("train", trained.recipe, "--trust", "learn.lr=0.5", "--out", trained.directory, "--resume"))
    assert "was made with another recipe or other overrides" in other


def test_train_cannot_write(say: Any, tmp_path: Path) -> None:
    (tmp_path / "quick.yaml").write_text(yaml.safe_dump(QUICK))
    (tmp_path / "file").write_text("")
    for out in ("file", "file/run", "/proc/run"):
        assert out.split("/")[-1] in complaint(say("train", "quick.yaml", "--trust", "--out", out), code=1)


def test_train_names_a_library_that_is_not_installed(say: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyspiel", None)
    said = say("train", "kuhn-selfplay")
    assert complaint(said) == "OpenSpiel is not installed: pip install 'palaestra[openspiel]'"


def test_where_play_happens_is_one_word(say: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    assert complaint(say("train", "corridor", "--on", "ray")) == "ray is not installed: pip install 'palaestra[ray]'"
    assert "processes" in complaint(say("train", "corridor", "--on", "proceses"))
    assert "workers=0" in complaint(say("compare", "corridor", "--vary", "credit=grpo,rloo", "--on", "processes(0)"))
    refused = complaint(say("train", "corridor", "train.lag=1", "stages=asynchronous()"))
    assert "asynchronous() plans an iteration from what the one before it brought" in refused


def test_train_finds_modules_where_it_is_called(tmp_path: Path, say: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A module of that name elsewhere comes first, so nothing is hidden by what lies about."""
    monkeypatch.delitem(sys.modules, "colorsys", raising=False)
    for name in ("my_game", "colorsys"):
        (tmp_path / f"{name}.py").write_text("raise RuntimeError('found me')\n")
    (tmp_path / "quick.yaml").write_text(yaml.safe_dump(QUICK))
    found = complaint(say("train", "quick.yaml", "--trust", "env.make=my_game:Game"))
    assert "cannot import 'my_game' (RuntimeError: found me)" in found
    assert "found me" not in complaint(say("train", "quick.yaml", "--trust", "env.make=colorsys:hls_to_rgb"))


def test_compare_prints_a_sentence_per_pair(say: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from palaestra.interface import library

    asked: dict[str, Any] = {}

    def compare(name: str, overrides: list[str], **options: Any) -> dict[str, Any]:
        asked.update(options, name=name, overrides=overrides)
        return {"pairs": [{"verdict": "a against b: better"}, {"verdict": "a against c: worse"}]}

    monkeypatch.setattr(library, "compare", compare)
    vary = "learn.terms=gspo(),[surrogate(), kl(0.1)]"
    said = say("compare", "kuhn-selfplay", "train.iterations=3", "--vary", vary, "--seeds", "2")
    assert (
        said.stdout
        == f"a against b: better\na against c: worse\nreport: {Path('runs/kuhn-selfplay-compare/report.html')}\n"
    )
    assert asked["overrides"] == ["train.iterations=3"]
    assert (asked["vary"], asked["seeds"]) == (vary, 2)


def test_a_pipe_gets_whole_lines(say: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """No name is cut, and no cell goes on in a second line: a program reads them."""
    monkeypatch.delenv("COLUMNS", raising=False)
    long = "a-system-with-a-name-that-is-longer-than-a-terminal-is-wide-" + "x" * 40
    row = {"messages": [{"role": "user", "content": "?"}, {"role": "assistant", "content": "!"}], "reward": 1}
    lines = [json.dumps(row | {"task": str(i), "model": long}) for i in range(3)]
    Path(f"{long}.jsonl").write_text("\n".join(lines) + "\n")
    table = say("evaluate", f"{long}.jsonl").stdout.splitlines()
    assert long in table[1]
    assert len(table) == 3


def test_a_narrow_terminal_breaks_what_it_cannot_show_and_cuts_nothing() -> None:
    shown, console = table_of("system", "score"), Door(width=16, record=True, file=io.StringIO())
    shown.add_row("a-long-name", "0.5 [0.4321, 0.5678]")
    console.print(shown)
    assert "".join(re.findall(r"[\d.]+", console.export_text())) == "0.50.43210.5678"


def test_a_stream_that_cannot_spell_a_sign_gets_another() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "palaestra.interface.cli", "reproduce", "18"],
        env=os.environ | {"PYTHONIOENCODING": "ascii"}, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")


def test_what_is_wrong_is_said_before_anything_heavy_is_imported() -> None:
    code = (
        "import sys\nfrom palaestra.interface.cli import main\n"
        "try: main(['train', 'solver-cheker'])\n"
        "finally: assert 'torch' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 2, done.stderr
    assert re.match("error: no recipe 'solver-cheker'", done.stderr)


def test_a_reader_that_has_had_enough_is_no_error() -> None:
    """`palaestra systems | head -c 20` ends without a word of complaint."""
    read, write = os.pipe()
    process = subprocess.Popen(
        [sys.executable, "-m", "palaestra.interface.cli", "systems", "--json"],
        stdout=write,
        stderr=subprocess.PIPE,
        text=True,
    )
    os.close(write)
    os.read(read, 20)
    os.close(read)
    _, stderr = process.communicate(timeout=60)
    assert stderr == ""
    assert process.returncode in (0, 1)


# -- export, play -----------------------------------------------------------------------------------------------------


def test_export_writes_folders(say: Any, trained: Trained, tmp_path: Path) -> None:
    said = say("export", trained.directory, "--trust", "--seed", "1", "--out", tmp_path / "out")
    assert said.code == 0
    assert said.stdout.splitlines() == [str(tmp_path / "out" / name) for name in ("guide", "seeker")]
    assert (tmp_path / "out" / "guide" / "model.safetensors").exists()
    assert "add --policy, one of guide, seeker" in complaint_after(
        say("export", trained.directory, "--trust", "--push", "me/it")
    )
    assert "names code (env.make 'signalling:Signalling'" in complaint(say("export", trained.directory))
    assert "no recipe.yaml" in complaint(say("export", tmp_path))


def complaint_after(said: Said) -> str:
    """The one line on stderr of a command that did something before."""
    assert (said.code, said.stderr.count("\n")) == (2, 1), said
    return said.stderr


def test_play_shows_an_episode(say: Any, trained: Trained) -> None:
    said = say("play", trained.directory, "--trust", "--episodes", "2", "--task", "3")
    assert said.code == 0
    assert said.stdout.count("guide sees:\nsee ") == 2
    assert said.stdout.count("seeker does: ") == 2
    assert "task 3: " in said.stdout
    assert "task 4: " in said.stdout
    assert said.stdout == say("play", trained.directory, "--trust", "--episodes", "2", "--task", "3").stdout


def test_a_person_plays(say: Any, trained: Trained, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("\x1b[31mmauve\n1\n"))
    said = say("play", trained.directory, "--trust", "--human", "seeker")
    assert said.code == 0
    assert "guide" not in said.stdout.split("over after")[0]
    assert "legal: 0 red, 1 green, 2 blue" in said.stdout
    assert "is not legal" in said.stdout
    assert "\x1b" not in said.stdout
    assert said.stderr == "seeker> seeker> "
    assert "over after 2 turns" in said.stdout
    monkeypatch.setattr(sys, "stdin", io.StringIO(""))
    assert "the input ended" in say("play", trained.directory, "--trust", "--human", "seeker").stderr
    assert "did you mean 'seeker'" in complaint(say("play", trained.directory, "--trust", "--human", "seker"))


def test_what_a_person_plays_is_recorded(
    say: Any, trained: Trained, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("1\n2\n"))
    kept = ("--turns", str(tmp_path / "turns.parquet"), "--episodes", "2")
    said = say("play", trained.directory, "--trust", "--human", "seeker", *kept)
    assert said.code == 0, said
    assert "4 turns of 2 episodes" in said.stdout
    turns = Turns.load(tmp_path / "turns.parquet")
    mine = turns.frame.filter(agent="seeker")
    assert mine["action"].to_list() == ["green", "blue"]
    assert set(mine["policy"]) == {"human"}
    assert turns["error"].null_count() == 4
    monkeypatch.setattr(sys, "stdin", io.StringIO("1\n"))
    said = say("play", trained.directory, "--trust", "--human", "seeker", *kept)
    assert re.search(r"of 2 episodes \(1 with an error: .*the input ended", said.stdout)
    assert "no such agent" in complaint(say("play", trained.directory, "--trust", "--human", "seker", *kept))


# -- shells -----------------------------------------------------------------------------------------------------------


def completed(*words: str) -> list[str]:
    """What a shell is offered for the last word."""
    program = "import sys; sys.argv = ['palaestra']; from palaestra.interface.cli import main; main()"
    environment = os.environ | {
        "_PALAESTRA_COMPLETE": "complete_bash", "COMP_WORDS": " ".join(["palaestra", *words]),
        "COMP_CWORD": str(len(words)), "PYTHONPATH": os.pathsep.join(sys.path),
    }  # fmt: skip
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def test_a_shell_completes_commands_options_and_recipes() -> None:
    assert completed("tr") == ["train", "triage"]
    assert "kuhn-selfplay" in completed("train", "kuhn")
    assert completed("compare", "solver") == ["solver-checker"]
    assert "--trust" in completed("train", "--tr")


def test_audit_takes_signals_of_ones_own(table: Path, say: Any) -> None:
    Path("my_reward.py").write_text(
        "import palaestra as pa\n@pa.register()\ndef audited_thrice():\n    return 3.0 * pa.col('reward')\n"
    )
    try:
        said = say("audit", table, "--reward", "audited_thrice()", "--import", "my_reward")
        assert said.code in (0, 1), said.stderr
        assert said.stdout.startswith("audited_thrice() on ")
        assert "--import nope: No module" in complaint(say("audit", table, "--import", "nope"))
    finally:
        from palaestra.algebra.tree import REGISTRY

        REGISTRY.remove("audited_thrice")


def test_an_unknown_study_is_not_blamed_on_the_file(say: Any) -> None:
    assert complaint(say("analyze", "swis", "scores.csv")).startswith("'swis': unknown analysis")
    assert "scores.csv: no such file" in complaint(say("analyze", "swiss", "scores.csv"))
