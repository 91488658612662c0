"""Many seeds: `train` one recipe, `compare` variants of it, `evaluate` any table of turns.

Seeds run in processes of their own, one core each, and every process writes to its own directory; this module starts
them, shows their progress, and turns what they wrote into a summary, a verdict and a report.
"""

from __future__ import annotations

import concurrent.futures
import json
import multiprocessing
import os
import time
from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from scipy import stats

from palaestra import build
from palaestra.errors import InputError, PalaestraError, RecipeError, StorageError, nearest
from palaestra.evaluation import SystemResult, comparison_table, holm, paired_difference, trials, verdict
from palaestra.experiment import judged, run_seed
from palaestra.learning.journal import write_json
from palaestra.measures import lower_is_better
from palaestra.recipe import Recipe, load, override
from palaestra.report import write_comparison, write_report
from palaestra.turns import Turns


class Job(NamedTuple):
    """One seed of one recipe."""

    recipe: Recipe
    seed: int
    directory: Path
    title: str


# -- train ------------------------------------------------------------------------------------------------------------


def train(
    recipe: Recipe, directory: Path, *, resume: bool = False, jobs: int | None = None, console: Console | None = None
) -> dict[str, Any]:
    """Train every seed, compare with the start and the controls, write summary and report; returns the summary.

    Raises:
        InputError: the directory holds another run, or a run and `resume` is False.
        StorageError: the directory cannot be written.
        PalaestraError: what stopped a seed.
    """
    began = time.perf_counter()
    _open(recipe, directory, resume)
    seeds = [Job(recipe, seed, directory / f"seed-{seed}", f"seed {seed}") for seed in recipe.seeds]
    results = run_jobs(seeds, resume=resume, jobs=jobs, console=console)
    summary = summarise(recipe, directory, results) | {"wall_seconds": time.perf_counter() - began}
    write_json(directory / "summary.json", summary)
    write_report(directory)
    return summary


def _open(recipe: Recipe, directory: Path, resume: bool) -> None:
    """Make the directory ready, or refuse before anything is played."""
    stored = directory / "recipe.yaml"
    if stored.exists():
        if not resume:
            raise InputError(f"{directory} holds a run already: go on with --resume, or choose another --out")
        if stored.read_text() != recipe.dump():
            raise InputError(f"{directory} holds a run of another recipe or other overrides: choose another --out")
    build.env(recipe, "train")  # a missing library or a wrong option is said now, not by every seed
    try:
        directory.mkdir(parents=True, exist_ok=True)
        stored.write_text(recipe.dump())
        write_json(directory / "environment.json", build.versions())
    except OSError as error:
        raise StorageError(f"cannot write the run to {directory}: {error}; choose another --out") from error


def run_jobs(work: Sequence[Job], *, resume: bool, jobs: int | None, console: Console | None) -> list[dict[str, Any]]:
    """Run every job, as many at once as there are cores, with one progress bar each.

    Raises:
        PalaestraError: the first error of a job, after the running ones have been stopped.
    """
    jobs = min(jobs or os.cpu_count() or 1, len(work))
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[now]}"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console or Console(stderr=True)) as bars:
        tasks = [
            bars.add_task(job.title, total=job.recipe.train.iterations, now="waiting", start=False) for job in work
        ]
        context = multiprocessing.get_context("spawn")
        with concurrent.futures.ProcessPoolExecutor(jobs, mp_context=context) as pool:
            futures = [pool.submit(_run_job, job, resume) for job in work]
            pending = set(futures)
            while pending:
                done, pending = concurrent.futures.wait(pending, 0.5, concurrent.futures.FIRST_EXCEPTION)
                for job, task, future in zip(work, tasks, futures):
                    _show(bars, task, job, future)
                failed = next((future for future in done if future.exception()), None)
                if failed:
                    pool.shutdown(wait=False, cancel_futures=True)
                    for process in multiprocessing.active_children():
                        process.terminate()
                    raise failed.exception() or PalaestraError("a seed failed")
    return [future.result() for future in futures]


def _run_job(job: Job, resume: bool) -> dict[str, Any]:
    import torch

    torch.set_num_threads(job.recipe.train.threads)
    return run_seed(job.recipe, job.seed, job.directory, resume=resume)


def _show(bars: Progress, task: TaskID, job: Job, future: concurrent.futures.Future[Any]) -> None:
    if not future.running() and not future.done():
        return
    bars.start_task(task)
    path = job.directory / "metrics.jsonl"
    lines = path.read_bytes().count(b"\n") if path.exists() else 0
    if future.done():
        now = "done"
    elif lines == 0:
        now = "warming up"
    else:
        now = "training" if lines < job.recipe.train.iterations else "comparing"
    bars.update(task, completed=lines, now=now)


# -- what was proved --------------------------------------------------------------------------------------------------


def summarise(recipe: Recipe, directory: Path, results: list[dict[str, Any]]) -> dict[str, Any]:
    """What `summary.json` holds, from the play of all seeds."""
    played = [Turns.load(directory / f"seed-{result['seed']}" / "evaluation.parquet") for result in results]
    table = trials(Turns.concat(played), where=judged(recipe))
    measure = recipe.evaluation.measure
    value = measure if measure in ("success", "score") else _value_of(table)
    rows = comparison_table(table, baseline="before", value=value)
    by_name = {row.system: row for row in rows}
    per_seed = []
    for result in results:
        own = {r.system: r for r in comparison_table(
            table.filter(pl.col("run") == str(result["seed"]), pl.col("system").is_in(["before", "after"])), value=value
        )}  # fmt: skip
        per_seed.append({"seed": result["seed"], **_three(own, measure, [result])})
    controls = {
        name: {**_estimate(by_name[name], value), "difference": _difference(by_name[name]), "note": part.note}
        for name, part in recipe.evaluation.controls.items()
    }
    return {
        "recipe": recipe.name,
        "description": recipe.description,
        "measure": measure,
        "lower_is_better": lower_is_better(measure),
        "seeds": list(recipe.seeds),
        "n_tasks": by_name["after"].tasks,
        "trials": by_name["after"].trials,
        **_three(by_name, measure, results),
        "controls": controls,
        "table": [row.to_dict() | {"verdict": verdict(row)} for row in rows],
        "per_seed": per_seed,
        "verdict": _sentence(recipe, by_name, results),
        "metrics": {
            name: [{"seed": r["seed"], **r["metrics"][name]} for r in results] for name in recipe.evaluation.metrics
        },
        "cpu_seconds": sum(result["cpu_seconds"] for result in results),
        "seconds_to_proof": {str(result["seed"]): result["seconds_to_proof"] for result in results},
        "versions": build.versions(),
    }


def _value_of(table: pl.DataFrame) -> str:
    """Success where the env reports it, else score."""
    return "success" if table["success"].null_count() < len(table) else "score"


def _three(rows: dict[str, SystemResult], measure: str, results: list[dict[str, Any]]) -> dict[str, Any]:
    """before, after and difference in the measure that is to improve."""
    if measure in ("success", "score"):
        return {
            "before": _estimate(rows["before"], measure),
            "after": _estimate(rows["after"], measure),
            "difference": _difference(rows["after"]),
        }
    before, after = (np.array([result["metrics"][measure][when] for result in results]) for when in ("before", "after"))
    return {"before": over_seeds(before), "after": over_seeds(after), "difference": over_seeds(after - before)}


def over_seeds(values: np.ndarray) -> dict[str, float]:
    """Mean of exact values with Student's t interval over seeds; one seed's value is exact and its own interval."""
    mean = float(values.mean())
    margin = 0.0
    if len(values) > 1:
        margin = float(stats.t.ppf(0.975, len(values) - 1) * values.std(ddof=1) / np.sqrt(len(values)))
    return {"mean": mean, "low": mean - margin, "high": mean + margin}


def _estimate(row: SystemResult, value: str) -> dict[str, Any]:
    estimate = (row.success if value == "success" else row.score).to_dict()
    return {key: estimate[key] for key in ("mean", "low", "high")}


def _difference(row: SystemResult) -> dict[str, Any] | None:
    if row.difference is None:
        return None
    found = row.difference.to_dict()
    return {key: found[key] for key in ("mean", "low", "high", "p")}


def _sentence(recipe: Recipe, rows: dict[str, SystemResult], results: list[dict[str, Any]]) -> str:
    measure = recipe.evaluation.measure
    if measure in ("success", "score"):
        return f"{recipe.name}: {verdict(rows['after'])}"
    three = _three(rows, measure, results)
    before, after, change = three["before"], three["after"], three["difference"]
    seeds = len(results)
    text = f"{recipe.name}: {measure} {before['mean']:.3f} → {after['mean']:.3f}, exact"
    if seeds == 1:
        return f"{text}, one seed: nothing is said about other seeds"
    better = change["high"] < 0 if lower_is_better(measure) else change["low"] > 0
    clear = change["high"] < 0 or change["low"] > 0
    word = "better" if better else "worse" if clear else "cannot tell: the interval contains 0"
    interval = f"95 % interval {change['low']:+.3f} to {change['high']:+.3f} over {seeds} seeds"
    return f"{text}: {word} (difference {change['mean']:+.3f}, {interval})"


# -- compare ----------------------------------------------------------------------------------------------------------


def compare(
    name: str, overrides: Sequence[str], *, vary: str, seeds: int, directory: Path, jobs: int | None, console: Console
) -> dict[str, Any]:
    """Train every variant under the same budget and seeds, and say of each pair which is better."""
    field, values = _variants(vary)
    recipes = {value: load(name, [*overrides, f"{field}={json.dumps(value)}", f"seeds={seeds}"]) for value in values}
    folders = {value: directory / f"variant-{number}" for number, value in enumerate(values)}
    for value, recipe in recipes.items():
        recipes[value] = override(recipe, {"evaluation": {"controls": dict.fromkeys(recipe.evaluation.controls)}})
        _open(recipes[value], folders[value], resume=True)
    work = [
        Job(recipe, seed, folders[value] / f"seed-{seed}", f"{field}={value} seed {seed}")
        for seed in range(seeds)
        for value, recipe in recipes.items()
    ]
    results = run_jobs(work, resume=True, jobs=jobs, console=console)
    tables = []
    for value, recipe in recipes.items():
        own = [result for job, result in zip(work, results) if job.recipe is recipe]
        summary = summarise(recipe, folders[value], own)
        write_json(folders[value] / "summary.json", summary | {"wall_seconds": sum(r["wall_seconds"] for r in own)})
        write_report(folders[value])
        frame = (
            _evaluations(folders[value]).frame.filter(pl.col("system") == "after").with_columns(system=pl.lit(value))
        )
        tables.append(trials(Turns(frame), where=judged(recipe)))
    result = {
        "recipe": name,
        "vary": field,
        "seeds": seeds,
        "variants": {value: str(folder.relative_to(directory)) for value, folder in folders.items()},
        "pairs": _pairs(pl.concat(tables), list(recipes)),
    }
    write_json(directory / "comparison.json", result)
    write_comparison(directory)
    return result


def _variants(vary: str) -> tuple[str, list[str]]:
    """`credit=grpo,gigpo(gamma=0.9, weight=2)` -> field and values; commas inside brackets do not split."""
    field, equals, text = vary.partition("=")
    values, depth, start = [], 0, 0
    for position, sign in enumerate(text + ","):
        depth += (sign in "([{") - (sign in ")]}")
        if sign == "," and depth == 0:
            values.append(text[start:position].strip())
            start = position + 1
    values = [value for value in values if value]
    if not equals or len(values) < 2:
        raise RecipeError(f"--vary {vary!r}: write FIELD=VALUE,VALUE with at least two values, e.g. credit=grpo,dr_mas")
    return field, values


def _evaluations(directory: Path) -> Turns:
    return Turns.concat(Turns.load(path) for path in sorted(directory.glob("seed-*/evaluation.parquet")))


def _pairs(table: pl.DataFrame, names: list[str]) -> list[dict[str, Any]]:
    value = _value_of(table)
    found = {(a, b): paired_difference(table, a, b, value=value) for a, b in combinations(names, 2)}
    corrected = holm([difference.p for difference in found.values()])
    pairs = []
    for ((a, b), difference), p in zip(found.items(), corrected, strict=True):
        rows = {
            row.system: row
            for row in comparison_table(table.filter(pl.col("system").is_in([a, b])), baseline=b, value=value)
        }
        row = replace(rows[a], difference=replace(difference, p=p))
        pairs.append({
            "a": a, "b": b, "difference": _difference(row), "p_holm": p, "verdict": f"{a} against {b}: {verdict(row)}",
        })  # fmt: skip
    return pairs


# -- evaluate ---------------------------------------------------------------------------------------------------------


def evaluate(path: Path, baseline: str | None) -> list[dict[str, Any]]:
    """Rows of the comparison of all systems in a table of turns, a directory of them, or a run."""
    turns = _evaluations(path) if any(path.glob("seed-*/evaluation.parquet")) else Turns.load(path)
    table = trials(turns)
    systems = table["system"].unique(maintain_order=True).to_list()
    if baseline is None:
        baseline = "before" if "before" in systems else systems[0]
    if baseline not in systems:
        raise InputError(f"--baseline {baseline!r}: no such system{nearest(baseline, systems)}")
    rows = comparison_table(table, baseline=baseline, value=_value_of(table))
    return [row.to_dict() | {"verdict": verdict(row)} for row in rows]
