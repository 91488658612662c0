"""Many seeds: runs are refused, resumed and compared; what goes wrong in a seed stops the others and is said once."""

from __future__ import annotations

import json
import multiprocessing
import os
import threading
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import stand_ins
import yaml
from quick import QUICK, Trained, load, validate
from rich.console import Console
from stand_ins import Work

from palaestra.errors import InputError, LearnerError, PalaestraError, RecipeError, StorageError
from palaestra.interface.library import compare, train
from palaestra.learning import run_lock
from palaestra.learning.run_lock import locked
from palaestra.play import forkserver
from palaestra.runs import jobs as run
from palaestra.runs.jobs import SeedJob, run_jobs
from palaestra.runs.recipe import Recipe, alone, override
from palaestra.runs.resume_checks import admit
from palaestra.runs.seed import Clock, run_seed


@pytest.fixture
def quiet(tmp_path: Path) -> Console:
    return Console(file=(tmp_path / "progress.txt").open("w"))


def small(**changes: Any) -> Recipe:
    return override(alone(validate(QUICK)), {"train": {"iterations": 2}, "warm_start": None, **changes})


# -- train ------------------------------------------------------------------------------------------------------------


def test_what_a_run_leaves_behind(trained: Trained) -> None:
    directory = trained.directory
    names = {path.name for path in directory.iterdir()}
    assert names >= {"recipe.yaml", "environment.json", "summary.json", "report.html", "seed-0", "seed-1"}
    assert load(directory / "recipe.yaml") == load(trained.recipe)
    summary = json.loads((directory / "summary.json").read_text())
    assert summary.keys() >= {
        "recipe", "seeds", "n_tasks", "trials", "before", "after", "difference", "controls", "wall_seconds",
        "cpu_seconds", "seconds_to_significance", "versions", "verdict", "training_errors",
    }  # fmt: skip
    for name in ("before", "after", "difference"):
        assert summary[name]["low"] <= summary[name]["mean"] <= summary[name]["high"]
    results = [json.loads((directory / f"seed-{seed}" / "result.json").read_text()) for seed in (0, 1)]
    assert summary["cpu_seconds"] == pytest.approx(sum(result["cpu_seconds"] for result in results))
    assert summary["wall_seconds"] >= max(result["wall_seconds"] for result in results)
    assert summary["versions"]["palaestra"]
    assert json.loads((directory / "environment.json").read_text()) == summary["versions"]
    assert "<html" in (directory / "report.html").read_text()
    assert not list(directory.rglob("*.tmp")), "nothing half-written is left"


def test_a_finished_run_is_left_as_it_is(trained: Trained) -> None:
    before = {path: path.stat().st_mtime_ns for path in trained.directory.glob("seed-*/**/*")}
    stored = json.loads((trained.directory / "summary.json").read_text())
    assert train(load(trained.recipe), trained.directory, resume=True) == stored
    assert {path: path.stat().st_mtime_ns for path in trained.directory.glob("seed-*/**/*")} == before


def test_other_runs_are_refused(trained: Trained) -> None:
    recipe = load(trained.recipe)
    with pytest.raises(InputError, match="holds a run already: go on with --resume, or choose another --out"):
        train(recipe, trained.directory)
    for overrides, said in (
        (["train.iterations=5"], r"train\.iterations=6, not 5; choose another --out \(only train\.iterations, seeds,"),
        (["seeds=1"], r"seeds=\[0, 1\], not \[0\]"),
        (["evaluation.tasks=11", "credit=rloo()"], r"credit='grpo.*', not 'rloo\(\)'; evaluation\.tasks=12, not 11"),
        (
            ["evaluation.controls.random.note=bad", "learn.lr=1.0"],
            r"learn\.lr=0\.2, not 1\.0; evaluation\.controls\.random=",
        ),
        (
            ["train.iterations=7", "learn.schedule=linear"],
            "learn.schedule='linear' was planned for 6 iterations, not 7",
        ),
    ):
        with pytest.raises(InputError, match=rf"recipe\.yaml: the run was made with another .*{said}") as caught:
            train(load(trained.recipe, overrides), trained.directory, resume=True)
        assert "\n" not in str(caught.value)


def test_a_recipe_that_cannot_work_leaves_nothing_behind(tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match=r"^quick: policies\.guide\.options: unknown option 'capasity'"):
        train(small(policies={"guide": {"options": {"capasity": 1}}}), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_places_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "run_jobs", None)  # nothing is played
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match="file") as caught:
        train(small(), tmp_path / "file")
    assert "\n" not in str(caught.value)
    with pytest.raises(StorageError, match="file"):
        train(small(), tmp_path / "file" / "run")
    (tmp_path / "folder" / "recipe.yaml").mkdir(parents=True)
    with pytest.raises(StorageError, match=r"recipe\.yaml"):
        train(small(), tmp_path / "folder", resume=True)
    (tmp_path / "summary" / "summary.json").mkdir(parents=True)
    with pytest.raises(StorageError, match=r"summary\.json"):
        train(small(), tmp_path / "summary")


def test_a_directory_is_one_command_s_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_lock, "PATIENCE", 0.0)
    monkeypatch.setattr(run, "run_jobs", None)  # nothing is played
    beginners: dict[str, Callable[[], Any]] = {
        "run": lambda: train(small(), tmp_path / "run"),
        "run/variant-1": lambda: compare(
            "kuhn-selfplay", [], vary="learn.lr=0.1,0.2", seeds=1, directory=tmp_path / "run"
        ),
        "run/seed-0": lambda: run_seed(small(), 0, tmp_path / "run" / "seed-0"),
    }
    for folder, begin in beginners.items():
        refused = _beside(tmp_path / folder, begin)
        assert f"{folder} is in use by process {os.getpid()} on" in refused


def _beside(held: Path, begin: Callable[[], Any]) -> str:
    """What somebody who begins says while another thread holds a directory."""
    with locked(held):
        work: list[Any] = []

        def another() -> None:
            with pytest.raises(InputError) as caught:
                begin()
            work.append(str(caught.value))

        thread = threading.Thread(target=another)
        thread.start()
        thread.join()
    return str(work[0])


def test_a_finished_run_is_extended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """To the same end as if more had been asked for at once."""
    monkeypatch.setattr(run, "run_jobs", serve)
    part = {"tasks": 4, "trials": 1, "look_tasks": 2}
    train(small(train={"iterations": 4}, seeds=1, evaluation=part), tmp_path / "run")
    more = small(
        train={"iterations": 6}, seeds=2, evaluation=part | {"tasks": 6, "controls": QUICK["evaluation"]["controls"]}
    )
    extended = train(more, tmp_path / "run", resume=True)
    whole = train(more, tmp_path / "whole")
    for name in ("before", "after", "difference", "per_seed", "controls", "n_tasks", "seeds", "verdict"):
        assert extended[name] == whole[name], name
    assert (extended["seeds"], extended["n_tasks"]) == ([0, 1], 6)
    assert len((tmp_path / "run" / "seed-0" / "metrics.jsonl").read_text().splitlines()) == 6
    assert load(tmp_path / "run" / "recipe.yaml") == more


def test_a_start_that_failed_is_in_nobody_s_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither that of a command that was wrong, nor the warm start of the one that is repeated."""
    monkeypatch.setattr(run, "run_jobs", serve)
    broken = small(env={"options": {"failing": 1.0}})
    for resume in (False, True):
        with pytest.raises(PalaestraError, match="no episode of the first iteration could be played"):
            train(broken, tmp_path / "run", resume=resume)
    assert (tmp_path / "run" / "recipe.yaml").exists()
    (tmp_path / "run" / "seed-data").mkdir()  # somebody else's
    for resume in (True, False):
        with pytest.raises(PalaestraError, match="divides by zero"):
            train(small(reward="reward / (reward - reward)"), tmp_path / "run", resume=resume)
    part = {"tasks": 4, "trials": 1, "look_tasks": 2}
    summary = train(small(seeds=1, evaluation=part), tmp_path / "run")
    assert summary["verdict"] == train(small(seeds=1, evaluation=part), tmp_path / "other")["verdict"]
    assert (tmp_path / "run" / "seed-data").exists()
    with pytest.raises(InputError, match="holds a run already"):
        train(small(seeds=1, evaluation=part), tmp_path / "run")


def test_files_of_a_person_are_not_the_remains_of_a_start(tmp_path: Path) -> None:
    """A recipe with comments, given as the run's own folder, and a folder that only has the name of a seed's."""
    recipe = small(seeds=1)
    mine = tmp_path / "recipe.yaml"
    mine.write_text("# which I have tuned\n" + recipe.dump())
    with pytest.raises(InputError, match=r"recipe\.yaml was not written by a run: choose another --out, or move"):
        train(recipe, tmp_path)
    assert mine.read_text().startswith("# which I have tuned")
    mine.write_text(small(seeds=2).dump())
    for name, kept in (("seed-7", "notes.txt"), ("seed-8", ".lock")):
        (tmp_path / name).mkdir()
        (tmp_path / name / kept).write_text("")
    assert not admit(recipe, tmp_path, resume=False)
    assert sorted(path.name for path in tmp_path.glob("[rs]*")) == ["seed-7"]


# -- jobs -------------------------------------------------------------------------------------------------------------


def _runs(pid: int | None) -> bool:
    """Whether it does anything: where two threads waited for one process, the one that is told that there is none may
    be told so while the other still takes it away, and the list of children keeps its name."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state not in "XZ"


@pytest.mark.parametrize(
    ("titles", "error", "said"),
    [
        (("sleeps", "fails"), LearnerError, "seed 7: the loss is nan"),
        (("sleeps", "dies"), PalaestraError, "the process of a seed was killed"),
    ],
)
def test_a_job_that_fails_stops_the_others(
    titles: tuple[str, ...], error: type[Exception], said: str, tmp_path: Path, quiet: Console,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr(run, "_run_job", stand_ins.do)
    monkeypatch.setattr(forkserver, "begin", stand_ins.nothing)
    began = time.monotonic()
    with pytest.raises(error, match=said):
        run_jobs([Work(title, tmp_path) for title in titles], resume=False, jobs=2, console=quiet)  # type: ignore[misc]
    assert time.monotonic() - began < 300
    assert not [process for process in multiprocessing.active_children() if _runs(process.pid)]


def test_a_process_that_dies_before_it_is_watched(
    tmp_path: Path, quiet: Console, monkeypatch: pytest.MonkeyPatch
) -> None:
    start_process, slowly = ProcessPoolExecutor._adjust_process_count, [0.0, 0.5]  # type: ignore[attr-defined]

    def start(pool: ProcessPoolExecutor) -> None:
        time.sleep(slowly.pop(0))  # longer than the pool takes to note which processes there are
        start_process(pool)

    monkeypatch.setattr(ProcessPoolExecutor, "_adjust_process_count", start)
    monkeypatch.setattr(run, "_run_job", stand_ins.do)
    monkeypatch.setattr(forkserver, "begin", stand_ins.nothing)
    began = time.monotonic()
    with pytest.raises(PalaestraError, match="the process of a seed was killed"):
        run_jobs([Work(title, tmp_path) for title in ("sleeps", "dies")], resume=False, jobs=2, console=quiet)  # type: ignore[misc]
    assert time.monotonic() - began < 300


def test_jobs_are_done_in_order_and_keep_the_time(
    tmp_path: Path, quiet: Console, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "_run_job", stand_ins.do)
    monkeypatch.setattr(forkserver, "begin", stand_ins.nothing)
    clock = Clock(tmp_path / "clock.json", resume=False)
    work: list[Any] = [Work("works", tmp_path, seed) for seed in (5, 3, 4)]
    done = run_jobs(work, resume=True, jobs=1, console=quiet, clock=clock)
    assert done == [{"seed": seed, "resume": True} for seed in (5, 3, 4)]
    assert 0 < json.loads((tmp_path / "clock.json").read_text())["wall_seconds"] <= clock.read()["wall_seconds"]


def test_alarms_are_said_while_it_trains_each_kind_once(
    tmp_path: Path, quiet: Console, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "_run_job", stand_ins.do)
    monkeypatch.setattr(forkserver, "begin", stand_ins.nothing)
    run_jobs([Work("warns", tmp_path)], resume=False, jobs=1, console=quiet)  # type: ignore[list-item]
    said = (tmp_path / "progress.txt").read_text()
    assert said.count("warns, iteration 1: policy 'a': 91% of its rows have no credit") == 1
    assert said.count("no credit") == 1


def test_what_goes_wrong_in_a_seed_is_told_with_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    errors: list[Exception] = [LearnerError("the loss is nan"), KeyError("x")]

    def failing(*args: Any, **options: Any) -> None:
        raise errors.pop(0)

    monkeypatch.setattr(run, "run_seed", failing)
    with pytest.raises(LearnerError, match=r"^seed 4: the loss is nan$"):
        run._run_job(SeedJob(small(), 4, tmp_path, "seed 4"), False)
    with pytest.raises(PalaestraError, match=r"^seed 4: KeyError: 'x'$"):
        run._run_job(SeedJob(small(), 4, tmp_path, "seed 4"), False)


@pytest.mark.parametrize(
    ("seeds", "cores", "jobs", "at_once"),
    [(5, 2, None, 3), (5, 4, None, 5), (6, 2, None, 2), (3, 8, None, 3), (9, 8, None, 9), (5, 2, 2, 2), (2, 1, 9, 2)],
)
def test_no_core_idles_while_the_last_seeds_train(
    seeds: int, cores: int, jobs: int | None, at_once: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: cores)
    work = [SeedJob(small(), seed, tmp_path, "") for seed in range(seeds)]
    assert run._at_once(work, jobs, 1) == at_once


# -- compare ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "field", "values"),
    [
        ("credit=grpo,dr_mas", "credit", ["grpo", "dr_mas"]),
        ("learn.lr=0.01, 0.001", "learn.lr", ["0.01", "0.001"]),
        ("credit=gigpo(gamma=0.9, weight=2),grpo", "credit", ["gigpo(gamma=0.9, weight=2)", "grpo"]),
        (
            'credit=centre(agent_return(), over=("agent", "state")),reinforce()',
            "credit",
            ['centre(agent_return(), over=("agent", "state"))', "reinforce()"],
        ),
        ("evaluation.agents=[a,b],[a]", "evaluation.agents", ["[a,b]", "[a]"]),
        ("learn={lr: 0.1, kl: 0},{lr: 0.2, kl: 0}", "learn", ["{lr: 0.1, kl: 0}", "{lr: 0.2, kl: 0}"]),
        ("credit=grpo,,dr_mas,", "credit", ["grpo", "dr_mas"]),
        ("env.ask='a) one, two',\"b, (c\"", "env.ask", ["'a) one, two'", '"b, (c"']),
        ("env.ask=don't,do", "env.ask", ["don't", "do"]),
        ("credit=grpo,gigpo(", "credit", ["grpo", "gigpo("]),  # the recipe says what is wrong in it
    ],
)
def test_vary(text: str, field: str, values: list[str]) -> None:
    assert run._variants(text) == (field, values)


@pytest.mark.parametrize("text", ["", "credit", "credit=", "credit=grpo", "credit=grpo(,dr_mas"])
def test_vary_needs_a_field_and_two_values(text: str) -> None:
    with pytest.raises(RecipeError, match="write FIELD=VALUE,VALUE with two values or more"):
        run._variants(text)


def test_values_that_are_all_one_are_named() -> None:
    with pytest.raises(RecipeError, match=r"--vary 'learn.lr=\.1,\.1': all values are \.1; give two that differ"):
        run._variants("learn.lr=.1,.1")


def serve(work: list[SeedJob], *, resume: bool, **options: Any) -> list[dict[str, Any]]:
    """Stands for `run_jobs`: in this process, one after the other."""
    return [run._run_job(job, resume) for job in work]


@pytest.fixture(scope="module")
def compared(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, dict[str, Any]]:
    folder = tmp_path_factory.mktemp("compared")
    path, out = folder / "quick.yaml", folder / "out"
    path.write_text(yaml.safe_dump(QUICK))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(run, "run_jobs", serve)
        result = compare(
            str(path), ["train.iterations=3"], vary="learn.lr=0.3,1e-2", seeds=2, directory=out, jobs=1,
            console=Console(), trust=True,
        )  # fmt: skip
    return path, out, result


def test_a_comparison_says_one_sentence_per_pair(compared: tuple[Path, Path, dict[str, Any]]) -> None:
    _, directory, result = compared
    assert json.loads((directory / "comparison.json").read_text()) == json.loads(json.dumps(result))
    assert (result["recipe"], result["vary"], result["seeds"]) == ("quick", "learn.lr", 2)
    assert result["variants"] == {"0.3": "variant-0", "1e-2": "variant-1"}
    assert [(pair["a"], pair["b"]) for pair in result["pairs"]] == [("0.3", "1e-2")]
    assert result["pairs"][0]["verdict"].startswith("0.3 against 1e-2: ")
    assert "quick" in (directory / "report.html").read_text()


def test_values_are_what_they_would_be_in_a_recipe(compared: tuple[Path, Path, dict[str, Any]]) -> None:
    _, directory, _ = compared
    rates = [load(directory / f"variant-{number}" / "recipe.yaml").learn.lr for number in range(2)]
    assert rates == [0.3, 0.01]
    for number in range(2):
        recipe = load(directory / f"variant-{number}" / "recipe.yaml")
        assert recipe.evaluation.controls == {}, "controls cost time and are not compared"
        assert (recipe.seeds, recipe.train.iterations) == ((0, 1), 3)
        assert (directory / f"variant-{number}" / "report.html").exists()
        assert json.loads((directory / f"variant-{number}" / "summary.json").read_text())["wall_seconds"] > 0


def test_a_comparison_goes_on_where_it_stopped(
    compared: tuple[Path, Path, dict[str, Any]], monkeypatch: pytest.MonkeyPatch, quiet: Console
) -> None:
    recipe, directory, result = compared
    asked: list[str] = []

    def noting(work: list[SeedJob], *, resume: bool, **options: Any) -> list[dict[str, Any]]:
        asked.extend(job.title for job in work)
        assert resume
        return serve(work, resume=resume)

    monkeypatch.setattr(run, "run_jobs", noting)
    (directory / "variant-1" / "seed-1" / "result.json").unlink()
    again = compare(
        str(recipe), ["train.iterations=3"], vary="learn.lr=0.3,1e-2", seeds=2, directory=directory, jobs=1,
        console=quiet, trust=True,
    )  # fmt: skip
    assert again["pairs"] == result["pairs"]
    assert asked[:2] == ["learn.lr=0.3 seed 0", "learn.lr=1e-2 seed 0"], "one seed of each first"
    with pytest.raises(InputError, match=f"{directory} holds a comparison: a run needs another --out"):
        train(load(recipe, trust=True), directory)
    with pytest.raises(InputError, match="variant-0 holds a run: a comparison needs another --out"):
        compare(str(recipe), [], vary="learn.lr=0.3,0", directory=directory / "variant-0", trust=True)
    with pytest.raises(InputError, match=r"learn\.lr=0\.01, not 0"):
        compare(str(recipe), [], vary="learn.lr=0.3,0", seeds=2, directory=directory, jobs=1, console=quiet, trust=True)


@pytest.mark.parametrize(
    ("vary", "found"),
    [
        ("learn.minibatch=null,4", [None, 4]),
        (
            "learn.terms=surrogate(),[surrogate(clip=(.1, .3)), kl()]",
            [("surrogate()",), ("surrogate(clip=(.1, .3))", "kl()")],
        ),
        ("learn.lr={guide: 0.1, seeker: 0.2},1e-3", [{"guide": 0.1, "seeker": 0.2}, 0.001]),
    ],
)
def test_values_of_every_type(
    vary: str, found: list[Any], tmp_path: Path, quiet: Console, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "quick.yaml"
    path.write_text(yaml.safe_dump(QUICK))

    def begun(work: list[SeedJob], **options: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(run, "run_jobs", begun)
    with pytest.raises(KeyboardInterrupt):
        compare(str(path), [], vary=vary, seeds=1, directory=tmp_path / "out", jobs=1, console=quiet, trust=True)
    field = vary.partition("=")[0].removeprefix("learn.")
    recipes = [load(tmp_path / "out" / f"variant-{number}" / "recipe.yaml") for number in (0, 1)]
    assert [getattr(recipe.learn, field) for recipe in recipes] == found


def test_wrong_variants_are_refused_before_anything_runs(tmp_path: Path, quiet: Console) -> None:
    path = tmp_path / "quick.yaml"
    path.write_text(yaml.safe_dump(QUICK))

    def refused(vary: str) -> str:
        with pytest.raises(RecipeError) as caught:
            compare(str(path), [], vary=vary, seeds=1, directory=tmp_path / "out", jobs=1, console=quiet, trust=True)
        assert not list((tmp_path / "out").rglob("metrics.jsonl"))
        return str(caught.value)

    assert "credit: 'grop': unknown name 'grop'" in refused("credit=grpo,grop")
    assert "learn.lrr: unknown field; did you mean 'lr'" in refused("learn.lrr=1,2")


@pytest.mark.parametrize(
    ("own", "overrides", "seeds", "found"),
    [
        ([5, 6], [], None, [5, 6]),
        ([5, 6], ["seeds=[7]"], None, [7]),
        ([5, 6], [], 2, [0, 1]),
        (None, [], None, [0, 1, 2]),
    ],
)
def test_the_seeds_that_were_asked_for(
    own: Any, overrides: list[str], seeds: int | None, found: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "quick.yaml"
    path.write_text(yaml.safe_dump({name: value for name, value in (QUICK | {"seeds": own}).items() if value}))
    asked: list[int] = []

    def begun(work: list[SeedJob], **options: Any) -> None:
        asked.extend(job.seed for job in work[::2])
        raise KeyboardInterrupt

    monkeypatch.setattr(run, "run_jobs", begun)
    with pytest.raises(KeyboardInterrupt):
        compare(str(path), overrides, vary="learn.lr=1,2", seeds=seeds, directory=tmp_path / "out", jobs=1, trust=True)
    assert asked == found
    assert list(load(tmp_path / "out" / "variant-1" / "recipe.yaml").seeds) == found


def test_seeds_are_named_once_and_are_no_variants(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "run_jobs", None)  # nothing is played
    with pytest.raises(RecipeError, match=r"same seeds; give their number with --seeds, or .* e\.g\. seeds=\[5,6\]"):
        compare("kuhn-selfplay", vary="seeds=[0],[1]", directory=tmp_path)
    with pytest.raises(RecipeError, match="--seeds 2 beside an override of seeds: give one of both"):
        compare("kuhn-selfplay", ["seeds=4"], vary="learn.lr=0.1,0.2", seeds=2, directory=tmp_path)


def test_another_version_is_said_and_the_old_one_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run._keep_environment(tmp_path) == ""
    first = json.loads((tmp_path / "environment.json").read_text())
    assert run._keep_environment(tmp_path) == "", "nothing changed"
    assert not (tmp_path / "environments.jsonl").exists()
    monkeypatch.setattr(run.build, "versions", lambda: first | {"torch": "9.9"})
    assert run._keep_environment(tmp_path) == f"torch {first['torch']} → 9.9"
    assert [json.loads(line) for line in (tmp_path / "environments.jsonl").read_text().splitlines()] == [first]
    assert json.loads((tmp_path / "environment.json").read_text())["torch"] == "9.9"
