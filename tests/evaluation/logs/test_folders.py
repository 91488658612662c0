"""Logs of many files, one at a time: the numbers of the one table that is never made, in the memory of one file."""

from __future__ import annotations

import json
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from polars.testing import assert_frame_equal

from palaestra import Turns
from palaestra.errors import InputError, MissingColumnError
from palaestra.evaluation import trials
from palaestra.evaluation.logs import Part, read_logs
from palaestra.evaluation.triage import by_system, triage
from palaestra.evaluation.triage.survey import survey
from palaestra.evaluation.trials import trials_of_outcomes
from palaestra.interface import cli
from palaestra.interface.cli.evaluate import Asked

WORDS = ("this is useless", "thanks", "never mind", "what do you mean", "order 66", "Error: no such file")


def table(seed: int, *, systems: tuple[str, ...] = ("new",), size: int = 60, **columns: Any) -> pl.DataFrame:
    """Episodes of two agents, some of which failed before their task was known."""
    rng = np.random.default_rng(seed)
    frame = pl.DataFrame({
        "system": np.array(systems)[np.arange(size) % len(systems)], "iteration": np.arange(size) // 40,
        "group": np.arange(size) // 12 * 3, "episode": np.arange(size) // (4 * len(systems)), "turn": np.arange(size),
        "agent": np.array(["asker", "answerer"])[rng.integers(0, 2, size)],
        "task": [None if x < 0.1 else f"t{i // 12 % 3}" for i, x in enumerate(rng.random(size))],
        "success": [None if x < 0.1 else x < 0.6 for x in rng.random(size)],
        "reward": [None if x < 0.2 else x for x in rng.random(size)], "score.style": rng.random(size),
        "error": [{0: "env: OSError: disk", 1: "it fell"}.get(int(x)) for x in rng.integers(0, 20, size)],
        "tokens_in": rng.integers(1, 9, size), "cost": [None if x < 0.05 else x for x in rng.random(size)],
        "observation": np.array(WORDS)[rng.integers(0, len(WORDS), size)], "action": ["go"] * size,
        "tool": [None if x < 0.4 else "find" for x in rng.random(size)], "arguments": ["{}"] * size,
        "family": [f"f{i // 12 % 3 // 2}" for i in range(size)],
    })  # fmt: skip
    return frame.with_columns(**{name: pl.lit(value) for name, value in columns.items()})


def folder(path: Path) -> Path:
    """Files of one schema and of others, of one system and of two that share their episodes."""
    path.mkdir()
    table(0).write_parquet(path / "a.parquet")
    table(1, systems=("old", "new")).drop("score.style").write_parquet(path / "b.parquet")
    table(2, run="1").drop("cost", "family").with_columns(pl.col("tokens_in").cast(pl.Int64)).write_parquet(
        path / "c.parquet"
    )
    rows = [{"model": "old", "task": f"t{n % 3}", "reward": n % 2, "messages": []} for n in range(9)]
    (path / "d.jsonl").write_text("\n".join(map(json.dumps, rows)))
    return path


def asked_of(path: Path, *more: Path, **options: Any) -> pl.DataFrame:
    asked = Asked(**options)
    logs = read_logs(path, *more, part=Part(asked.columns, asked.of))
    assert {"observation", "tool"} <= set(logs.columns)
    assert not {"observation", "tool"} & set(logs.turns.columns)
    return trials_of_outcomes(logs.turns.frame, asked.cluster)


@pytest.mark.parametrize(
    "options",
    [{}, {"score": "style"}, {"cluster": "family"}, {"agents": ("asker",)}, {"errors": "count"}],
    ids=lambda options: ",".join(options) or "as it comes",
)
def test_trials_of_parts_are_those_of_the_whole(options: dict[str, Any], tmp_path: Path) -> None:
    path, other = folder(tmp_path / "logs"), tmp_path / "more.parquet"
    table(3, systems=("new",)).write_parquet(other)
    turns = read_logs(path, other).turns
    where = pl.col("agent").cast(pl.String).is_in(options["agents"]) if "agents" in options else None
    known = {name: value for name, value in options.items() if name in ("cluster", "errors")}
    score = "score.style" if "score" in options else None
    expected = trials(turns, where=where, score=score, **known)
    assert len(expected) > 50
    assert_frame_equal(asked_of(path, other, **options), expected)


def test_episodes_that_nothing_keeps_in_one_file_are_put_together(tmp_path: Path) -> None:
    whole = table(4, size=30).drop("group")
    for number, rows in enumerate((slice(0, 10), slice(10, 30))):  # within an episode
        whole[rows].write_parquet(tmp_path / f"{number}.parquet")
    assert_frame_equal(asked_of(tmp_path), trials(whole))


def test_what_is_missing_everywhere_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = folder(tmp_path / "logs")
    for arguments, words in (
        (["--score", "stile"], "stile"), (["--cluster", "familie"], "did you mean 'family'"),
        (["--agent", "askr"], "did you mean 'asker'"),
    ):  # fmt: skip
        with pytest.raises(SystemExit) as ended:
            cli.main(["evaluate", str(path), *arguments])
        assert ended.value.code == 2
        assert words in capsys.readouterr().err
    table(5).drop("task").write_parquet(tmp_path / "no.parquet")
    with pytest.raises(MissingColumnError, match="task"):
        trials(read_logs(tmp_path / "no.parquet").turns)


def test_columns_that_nobody_looks_at_are_not_read(tmp_path: Path) -> None:
    path = tmp_path / "wide.parquet"
    table(6).with_columns(prompt_ids=pl.lit("no list of numbers")).write_parquet(path)
    with pytest.raises(InputError, match="prompt_ids"):
        read_logs(path)
    assert len(asked_of(path)) > 3
    assert len(survey(partial(read, path), 3).chosen) == 3


def read(*arguments: Any) -> Any:
    *paths, part = arguments
    return read_logs(*paths, part=part)


@pytest.mark.parametrize("random", [0.0, 0.5])
def test_triage_of_parts_chooses_what_the_whole_would(random: float, tmp_path: Path) -> None:
    path, other = folder(tmp_path / "logs"), tmp_path / "more.parquet"
    table(3).write_parquet(other)
    turns = by_system(read_logs(path, other).turns)
    expected = triage(turns, 9, random=random, seed=3)
    found = survey(partial(read, path, other), 9, random=random, seed=3)
    assert found.total == turns.codes("episode").size
    assert expected["score"].max() > 0
    columns = [name for name in expected.columns if name != "episode_code"]
    assert_frame_equal(found.chosen.select(columns), expected.select(columns))
    of = turns.frame.with_columns(code=pl.Series(turns.codes("episode").ids))
    texts = [of.filter(code=code)["observation"].to_list() for code in expected["episode_code"]]
    mine = found.turns.frame.with_columns(code=pl.Series(found.turns.codes("episode").ids))
    assert [mine.filter(code=code)["observation"].to_list() for code in found.chosen["episode_code"]] == texts


def test_an_audit_reads_what_it_looks_at(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder(tmp_path / "logs")
    (tmp_path / "logs" / "d.jsonl").unlink()
    said = []
    for wide in (False, True):
        for file in sorted((tmp_path / "logs").glob("*.parquet")):
            frame = pl.read_parquet(file).with_columns(r_style="score.style") if file.name != "b.parquet" else None
            if frame is None:
                file.unlink(missing_ok=True)
            else:
                frame.with_columns(**({"prompt_ids": pl.lit("no list of numbers")} if wide else {})).write_parquet(file)
        with pytest.raises(SystemExit):
            cli.main(["audit", str(tmp_path / "logs"), "--reward", "delta(col('score.style'))", "--json"])
        said.append(json.loads(capsys.readouterr().out))
    assert {each["audit"] for each in said[0]} >= {"repeats", "order", "farming"}
    assert said[0] == said[1]


PEAK = """
import sys
from pathlib import Path
from palaestra.evaluation.logs import Part, read_logs
from palaestra.interface.cli.evaluate import Asked
def peak():
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM"))
kind, *paths = sys.argv[1:]
asked = Asked()
part = {"parts": Part(asked.columns, asked.of), "whole": None}[kind]
read_logs(paths[0], part=part)
before = peak()
read_logs(*paths[1:], part=part)
print(peak() - before)
"""


def test_memory_does_not_grow_with_the_folder(tmp_path: Path) -> None:
    """Eight files take what one took, where the whole table takes eight times its texts."""
    for name, count in (("one", 1), ("eight", 8)):
        (tmp_path / name).mkdir()
        for number in range(count):
            frame = table(number, size=6_000).with_columns(action=pl.format("{}" + "x" * 1_000, "turn"))
            frame.write_parquet(tmp_path / name / f"{number}.parquet", compression="uncompressed")
    grown = {}
    for kind in ("parts", "whole"):
        command = [sys.executable, "-c", PEAK, kind, str(tmp_path / "one"), str(tmp_path / "eight")]
        grown[kind] = float(subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True).stdout)
    assert grown["whole"] > 35  # MB
    assert grown["parts"] < 15


def test_turns_say_their_columns(tmp_path: Path) -> None:
    Turns({"episode": [0], "reward": [1.0]}).save(tmp_path / "a.parquet")
    Turns({"episode": [0], "note": ["x"]}).save(tmp_path / "b.parquet")
    assert Turns.columns_of(tmp_path) == ["episode", "reward", "note"]
