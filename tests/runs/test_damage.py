"""Every file of a run, damaged in every way: the summary is what it was, or an error names the file."""

from __future__ import annotations

import json
import os
import re
import shutil
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from palaestra.agents import Team
from palaestra.errors import PalaestraError
from palaestra.interface.report.load import load_run
from palaestra.judges.asking import AnswerCache
from palaestra.judges.ledger import Ledger
from palaestra.learning import Trainer
from palaestra.learning.journal import Journal
from palaestra.runs import jobs as run
from palaestra.runs.recipe import Recipe, validate
from palaestra.runs.saved_teams import export
from palaestra.runs.summary import evaluate

TIMES = ("checksum", "wall_seconds", "cpu_seconds", "seconds_to_significance", "train_cpu_seconds")


def kuhn(learning_rate: float = 0.3, measure: str = "average_exploitability") -> Recipe:
    return validate({
        "name": "kuhn",
        "env": {"make": "openspiel/kuhn_poker"},
        "policies": {"player": {"kind": "tabular"}},
        "team": {"*": "player"},
        "credit": 'centre(agent_return(), over=("group", "agent"), unit="episode")',
        "learn": {"lr": learning_rate},
        "train": {
            "iterations": 4, "groups": 2, "group_size": 4, "evaluate_every": 2, "checkpoint_every": 2,
        },
        "evaluation": {
            "tasks": 4, "trials": 1, "look_tasks": 4, "look_trials": 2, "agents": ["player_0"],
            "measure": measure, "metrics": ["average_exploitability"],
        },
    })  # fmt: skip


@pytest.fixture(scope="module", autouse=True)
def _in_this_process() -> Any:
    def serve(work: list[run.SeedJob], *, resume: bool, **options: Any) -> list[dict[str, Any]]:
        return [run._run_job(job, resume) for job in work]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(run, "run_jobs", serve)
        yield


def interrupted(recipe: Recipe, directory: Path) -> None:
    """A run that is stopped in iteration 3, with checkpoints of 0 and 2."""
    append = Trainer._keep

    def stop(self: Trainer, iteration: int, *turns: Any) -> None:
        if iteration == 3:
            raise KeyboardInterrupt
        append(self, iteration, *turns)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Trainer, "_keep", stop)
        with pytest.raises(KeyboardInterrupt):
            run.train(recipe, directory)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Finished and interrupted, and the same of another recipe."""
    folder = tmp_path_factory.mktemp("runs")
    for name, recipe in (("", kuhn()), ("other-", kuhn(0.1))):
        run.train(recipe, folder / f"{name}finished")
        interrupted(recipe, folder / f"{name}interrupted")
    return folder


def told(summary: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in summary.items() if name not in TIMES}


def truncate(path: Path, other: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def delete(path: Path, other: Path) -> None:
    path.unlink()


def garbage(path: Path, other: Path) -> None:
    path.write_bytes(b"\x00garbage\xff\n" * 3)


def drop_a_line(path: Path, other: Path) -> None:
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:-1]))


def anothers(path: Path, other: Path) -> None:
    shutil.copy(other, path)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", ["finished", "interrupted"])
@pytest.mark.parametrize("damage", [truncate, delete, garbage, drop_a_line, anothers])
def test_a_damaged_file_changes_nothing_or_is_named(
    kind: str, damage: Callable[[Path, Path], None], runs: Path, tmp_path: Path
) -> None:
    wanted = told(json.loads((runs / "finished" / "summary.json").read_text()))
    files = sorted(path.relative_to(runs / kind) for path in (runs / kind).rglob("*") if path.is_file())
    assert {"metrics.jsonl", "tables.jsonl", "clock.json", "look-000000.parquet"} <= {path.name for path in files}
    if damage is drop_a_line:
        files = [name for name in files if name.suffix == ".jsonl"]
    silent = []
    for name in files:
        directory = tmp_path / "run"
        shutil.copytree(runs / kind, directory)
        damage(directory / name, runs / f"other-{kind}" / name)
        try:
            found = told(run.train(kuhn(), directory, resume=True))
        except PalaestraError as error:
            part = name.parent.name if name.parent.name.startswith("iteration-") else name.name
            named = part in str(error) and "\n" not in str(error)
        else:
            named = found == wanted
        if not named:
            silent.append(str(name))
        shutil.rmtree(directory)
    assert not silent


@pytest.mark.parametrize("name", ["tables.jsonl", "metrics.jsonl", "look-000002.parquet"])
def test_what_the_summary_reads_is_named_with_what_to_do(name: str, runs: Path, tmp_path: Path) -> None:
    for kind, by in (("finished", r"result\.json"), ("interrupted", "iteration-000002")):
        shutil.copytree(runs / kind, tmp_path / kind)
        (tmp_path / kind / "seed-0" / name).unlink()
        with pytest.raises(PalaestraError, match=rf"{name} is gone, {by} was made with it .*: restore it .* or delete"):
            run.train(kuhn(), tmp_path / kind, resume=True)


def test_a_finished_run_is_whole_again(runs: Path, tmp_path: Path) -> None:
    shutil.copytree(runs / "finished", tmp_path / "run")
    (tmp_path / "run" / "summary.json").write_text("{}")
    (tmp_path / "run" / "environment.json").write_text("[")
    run.train(kuhn(), tmp_path / "run", resume=True)
    for name in ("summary.json", "environment.json"):
        assert (tmp_path / "run" / name).read_bytes() == (runs / "finished" / name).read_bytes()


def test_play_that_is_not_the_seeds_is_not_compared(runs: Path, tmp_path: Path) -> None:
    shutil.copytree(runs / "finished", tmp_path / "run")
    shutil.copy(runs / "other-finished/seed-0/evaluation.parquet", tmp_path / "run/seed-0/evaluation.parquet")
    for place in (tmp_path / "run", tmp_path / "run" / "seed-0"):
        with pytest.raises(PalaestraError, match=r"evaluation\.parquet (was changed|has \d+ bytes)"):
            evaluate(place)


def test_time_that_is_lost_is_said(runs: Path, tmp_path: Path) -> None:
    shutil.copytree(runs / "interrupted", tmp_path / "run")
    (tmp_path / "run/seed-0/clock.json").unlink()
    with pytest.warns(UserWarning, match=r"clock\.json is gone"):
        run.train(kuhn(), tmp_path / "run", resume=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        run.train(kuhn(), tmp_path / "run", resume=True)


@pytest.mark.parametrize("name", [".lock", "metrics.jsonl", "answers.jsonl", "ledger.sqlite"])
@pytest.mark.parametrize("hard", [False, True])
def test_no_file_of_a_run_is_written_through_a_link(name: str, hard: bool, tmp_path: Path) -> None:
    thesis, folder = tmp_path / "thesis.txt", tmp_path / "run"
    thesis.write_text("years of work\n")
    folder.mkdir()
    os.link(thesis, folder / name) if hard else (folder / name).symlink_to(thesis)
    writes: dict[str, Callable[[], Any]] = {
        ".lock": lambda: run.train(kuhn(), folder, jobs=1),
        "metrics.jsonl": lambda: Journal(folder / name).append({"iteration": 1}),
        "answers.jsonl": lambda: AnswerCache(folder / name).add({"question": 1.0}),
        "ledger.sqlite": lambda: Ledger(folder / name),
    }
    with pytest.raises(PalaestraError, match="link"):
        writes[name]()
    assert thesis.read_text() == "years of work\n"


@pytest.mark.parametrize("name", ["summary.json", "seed-0/metrics.jsonl"])
def test_a_page_is_not_made_from_what_was_edited(name: str, runs: Path, tmp_path: Path) -> None:
    shutil.copytree(runs / "finished", tmp_path / "run")
    path = tmp_path / "run" / name
    path.write_text(re.sub(r"0\.\d", "0.9", path.read_text(), count=1))
    with pytest.raises(PalaestraError, match=rf"{name} was changed"):
        load_run(tmp_path / "run")


def test_weights_that_were_damaged_are_not_loaded(runs: Path, tmp_path: Path) -> None:
    shutil.copytree(runs / "finished", tmp_path / "run")
    assert Team.load(tmp_path / "run")
    (path,) = (tmp_path / "run" / "seed-0" / "policies").rglob("*.safetensors")
    data = bytearray(path.read_bytes())
    data[-1] ^= 0x80
    path.write_bytes(data)
    with pytest.raises(PalaestraError, match=rf"{path.name} was changed, team\.json was made with it"):
        Team.load(tmp_path / "run")


def test_no_earlier_checkpoint_is_exported_for_a_damaged_one(runs: Path, tmp_path: Path) -> None:
    shutil.copytree(runs / "finished", tmp_path / "run")
    last = max((tmp_path / "run" / "seed-0" / "checkpoints").glob("iteration-*"))
    tensors = last / "tensors.safetensors"
    tensors.write_bytes(tensors.read_bytes()[:-1])
    with pytest.raises(PalaestraError, match=rf"{last.name}: tensors\.safetensors has .* bytes"):
        export(tmp_path / "run", out=tmp_path / "out")
    assert not (tmp_path / "out").exists()
