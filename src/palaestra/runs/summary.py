"""Summaries: from the play of all seeds to a summary, from several runs to pairs, from any table to a comparison.

Nothing here plays or learns, so none of it needs torch.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any, Literal

import numpy as np
import polars as pl
import scipy

from palaestra.algebra.turns import Turns
from palaestra.errors import InputError, StorageError, nearest
from palaestra.evaluation import Estimate, SystemResult, comparison_table, holm, paired_difference, trials, verdict
from palaestra.evaluation.comparison import joint_interval
from palaestra.evaluation.intervals import unit_scale
from palaestra.evaluation.power import runs_needed
from palaestra.evaluation.teamwork import economy
from palaestra.foundation import checksums
from palaestra.foundation.files import read_object
from palaestra.runs.budget import Budget, cost, total, unit
from palaestra.runs.config import EvaluationPart
from palaestra.runs.measures import lower_is_better
from palaestra.runs.recipe import Recipe, look
from palaestra.runs.scoring import compare_scores
from palaestra.runs.unjudged import unjudged

PLAYED = ("success", "score")
"""Measures that are estimated from play; all others are exact, a number per seed."""

COUNTED = ("turns", "tokens_in", "tokens_out")
"""What a trial takes."""

ALPHA = 0.05

RESULT = frozenset({"seed", "metrics", "seconds_to_significance", "errors", "cpu_seconds", "wall_seconds", "versions"})
"""What a summary needs of `result.json`."""

Results = Sequence[Mapping[str, Any]]
"""`result.json` of every seed."""


def counted_agents(part: EvaluationPart) -> pl.Expr | None:
    """A Polars expression for the rows of agents whose play an `EvaluationPart` counts; None for all."""
    agents = part.agents
    return None if agents is None else pl.col("agent").cast(pl.String).is_in(list(agents))


def value_of(measure: str, table: pl.DataFrame) -> str:
    """Name of the column to compare: "success" if the env reports it and the measure is not "score", else "score"."""
    return "success" if measure != "score" and table["success"].null_count() < len(table) else "score"


def baseline_of(systems: Sequence[str], asked: str | None, option: str = "--baseline ") -> str:
    """The name of the baseline system: the one asked for, else `before`, else the first.

    Raises:
        InputError: there is no such system; `option` is how one asks.
    """
    if asked is None:
        return "before" if "before" in systems else systems[0]
    if asked not in systems:
        raise InputError(f"{option}{asked!r}: no such system{nearest(asked, systems)}")
    return asked


# -- one recipe -------------------------------------------------------------------------------------------------------


def summarise(recipe: Recipe, directory: Path, results: Results) -> dict[str, Any]:
    """Summary dict of a recipe's run in `directory`, from its seeds' results and files: the content of `summary.json`.

    Times and versions are added elsewhere.
    """
    played = [_evaluation(directory / f"seed-{result['seed']}") for result in results]
    table = trials(Turns.concat(played), where=counted_agents(recipe.evaluation))
    value = value_of(recipe.evaluation.measure, table)
    measure = value if recipe.evaluation.measure in PLAYED else recipe.evaluation.measure
    rows = comparison_table(table, baseline="before", value=value)
    by_name = {row.system: row for row in rows}
    per_seed = []
    for result in results:
        own = {
            r.system: r
            for r in comparison_table(
                table.filter(pl.col("run") == str(result["seed"]), pl.col("system").is_in(["before", "after"])),
                value=value,
            )
        }
        per_seed.append({"seed": result["seed"], **_three(own, measure, [result])})
    controls = {}
    for name, part in recipe.evaluation.controls.items():
        against = _against(table, "after", name, value)
        compared_with = {"difference": _difference(against), "verdict": verdict(against), "note": part.note or ""}
        controls[name] = _estimate(by_name[name], value) | compared_with
    spent = _spent(results)
    for name in spent.keys() & controls.keys():
        tokens = f"{spent[name]['tokens']:,} tokens of training, the team {spent['after']['tokens']:,}"
        controls[name]["note"] = "; ".join(filter(None, [controls[name]["note"], tokens]))
    return {
        "recipe": recipe.name,
        "description": recipe.description,
        "measure": measure,
        "lower_is_better": lower_is_better(measure),
        "seeds": list(recipe.seeds),
        "n_tasks": by_name["after"].tasks,
        "trials": by_name["after"].trials,
        "per_task": by_name["after"].per_task,
        "met_in_training": _met(results),
        **_three(by_name, measure, results),
        "controls": controls,
        "scores": compare_scores(
            Turns.concat(played),
            recipe.evaluation.scorers,
            counted_agents(recipe.evaluation),
            [result.get("scorers") or {} for result in results],
        ),
        "spent": spent,
        "economy": economics(table.filter(pl.col("system") != "before"), rows=rows),
        "shapley": {
            agent: over_seeds(np.array([result["shapley"][agent] for result in results]))
            for agent in results[0].get("shapley") or {}
            if all(agent in (result.get("shapley") or {}) for result in results)
        },
        "table": [row.to_dict() | {"verdict": verdict(row)} for row in rows],
        "per_seed": per_seed,
        "verdict": f"{recipe.name}: {_sentence(measure, by_name, results)}",
        "metrics": {
            name: [{"seed": r["seed"], **r["metrics"][name]} for r in results] for name in recipe.evaluation.metrics
        },
        "training_errors": dict(sum((Counter(result["errors"]) for result in results), Counter())),
        "unjudged": unjudged(result["judges"] for result in results if "judges" in result),
        "cpu_seconds": sum(result["cpu_seconds"] for result in results),
        "seconds_to_significance": {str(result["seed"]): result["seconds_to_significance"] for result in results},
    }


def _spent(results: Results) -> dict[str, dict[str, float]]:
    """Training data of each system, all seeds together; empty where nobody counted."""
    every = [result.get("spent") or {} for result in results]
    names = dict.fromkeys(name for each in every for name in each)
    sums = {name: {key: sum(each[name][key] for each in every if name in each) for key in total([])} for name in names}
    return {name: each | {"tokens": each["tokens_in"] + each["tokens_out"]} for name, each in sums.items()}


def _met(results: Results) -> int | None:
    """How many of the held-out tasks some seed had trained on; None where that is not known."""
    if any("met_in_training" not in result for result in results):
        return None
    return len({task for result in results for task in result["met_in_training"]})


def _against(table: pl.DataFrame, a: str, b: str, value: str) -> SystemResult:
    """The row of `a` in a comparison with `b` alone."""
    pair = table.filter(pl.col("system").is_in([a, b]))
    return comparison_table(pair, baseline=b, value=value)[1]


def _three(rows: Mapping[str, SystemResult], measure: str, results: Results) -> dict[str, Any]:
    """before, after and difference in the measure that is to improve."""
    if measure in PLAYED:
        return {
            "before": _estimate(rows["before"], measure),
            "after": _estimate(rows["after"], measure),
            "difference": _difference(rows["after"]),
        }
    before, after = (_exact(results, measure, when) for when in ("before", "after"))
    return {"before": over_seeds(before), "after": over_seeds(after), "difference": over_seeds(after - before)}


def _exact(results: Results, measure: str, when: str) -> np.ndarray:
    return np.array([result["metrics"][measure][when] for result in results])


def over_seeds(values: np.ndarray, comparisons: int = 1) -> dict[str, float]:
    """Dict of mean, low, high of an array with a value per seed, by Student's t interval; of zero width for one seed.

    comparisons: how many such intervals hold together with 95 %.
    """
    mean = float(values.mean())
    margin = 0.0
    if len(values) > 1:
        quantile = scipy.stats.t.ppf(1 - ALPHA / comparisons / 2, len(values) - 1)
        margin = float(quantile * values.std(ddof=1) / np.sqrt(len(values)))
    return {"mean": mean, "low": mean - margin, "high": mean + margin}


def _estimate(row: SystemResult, value: str) -> dict[str, Any]:
    estimate = (row.success if value == "success" else row.score).to_dict()
    return {key: estimate[key] for key in ("mean", "low", "high")}


def _difference(row: SystemResult) -> dict[str, Any] | None:
    if row.difference is None:
        return None
    found = row.difference.to_dict()
    return {key: found[key] for key in ("mean", "low", "high", "p")}


def _sentence(measure: str, rows: Mapping[str, SystemResult], results: Results) -> str:
    if measure in PLAYED:
        return verdict(rows["after"])
    before, after = (_exact(results, measure, when) for when in ("before", "after"))
    return f"{measure} {before.mean():.3f} → {after.mean():.3f}, exact: {_exact_verdict(measure, after - before)}"


def _exact_verdict(measure: str, change: np.ndarray, p: float = 0.0, comparisons: int = 1) -> str:
    """Better, worse or cannot tell, from exact differences of the seeds."""
    if len(change) == 1:
        return f"difference {change[0]:+.3f}, one seed: nothing is said about other seeds"
    found = over_seeds(change, comparisons)
    clear = (found["high"] < 0 or found["low"] > 0) and p <= 0.05
    better = (found["mean"] < 0) == lower_is_better(measure)
    kind = joint_interval(comparisons)
    interval = f"{kind} {found['low']:+.3f} to {found['high']:+.3f} over {len(change)} seeds"
    if clear:
        word = "better" if better else "worse"
    else:
        touches = found["low"] <= 0 <= found["high"]
        word = f"cannot tell: {'the interval contains 0' if touches else f'p = {p:.2g} after correction'}"
    return f"{word} (difference {found['mean']:+.3f}, {interval})"


# -- several recipes --------------------------------------------------------------------------------------------------


def pairs(recipe: Recipe, directory: Path, variants: Mapping[str, str], results: Mapping[str, Results]) -> list[Any]:
    """List of dicts that compare every pair of variants (name -> folder) in the recipe's measure, p corrected by Holm.

    The verdict says better, worse or cannot tell. seeds_needed: where one cannot tell, how many seeds of each variant
    would find a difference as large as the one seen, 4 times out of 5, at 5 % over the number of pairs; None if the
    pair is told, there is one seed only, or no number of seeds on these tasks would do.
    """
    measure, names = recipe.evaluation.measure, list(combinations(variants, 2))
    alpha = ALPHA / len(names)
    if measure not in PLAYED:
        after = {name: _exact(results[name], measure, "after") for name in variants}
        changes = [after[a] - after[b] for a, b in names]
        corrected = holm([_p_value(change) for change in changes])
        return [
            _pair(
                a,
                b,
                over_seeds(change, len(names)),
                p,
                f", {measure}: {_exact_verdict(measure, change, p, len(names))}",
                len(change),
                _seeds(change, alpha),
            )
            for (a, b), change, p in zip(names, changes, corrected, strict=True)
        ]
    table = trials(after_training(directory, variants), where=counted_agents(recipe.evaluation))
    value = value_of(measure, table)
    scale = unit_scale(table["score"]) if value == "score" else None
    differences = [paired_difference(table, a, b, value=value, scale=scale, comparisons=len(names)) for a, b in names]
    corrected = holm([difference.p for difference in differences])
    found = []
    for (a, b), difference, p in zip(names, differences, corrected, strict=True):
        row = replace(_against(table, a, b, value), difference=replace(difference, p=p))
        needed = difference.runs + difference.more_runs if difference.more_runs > 0 else None
        found.append(_pair(a, b, _difference(row), p, f": {verdict(row)}", difference.runs, needed))
    return found


def economics(
    table: pl.DataFrame, budget: Budget | None = None, *, rows: Sequence[SystemResult] | None = None
) -> list[dict[str, Any]]:
    """List of dicts, one a system, of a table of trials: cost and success per trial, unit; [] if success is missing.

    It is empty for a single task, too.

    They are rows of `evaluation.teamwork.economy`.

    Args:
        table: trials of the systems.
        budget: gives the unit of cost; without one it is tokens, or turns where nobody counts tokens.
        rows: the comparison of these trials, made here if it is not given. A system's success and its interval are
            taken from it, so that a page has one number for it.

    Returns:
        No rows without successes, or for one task alone.
    """
    if table["task"].n_unique() < 2 or table["success"].null_count():
        return []
    counted = table["tokens_out"].null_count() == 0 and table["tokens_in"].null_count() == 0
    named = unit(budget) if budget else "tokens" if counted else "turns"
    spent = cost(budget or {named: 1.0}, {name: table[name].cast(pl.Float64) for name in COUNTED})
    known = {row.system: row.success for row in (_compared(table) if rows is None else rows)}
    found = economy(table.with_columns(spent=spent), cost="spent").to_dicts()
    return [row | _as_compared(row, known.get(row["system"])) | {"unit": named} for row in found]


def _compared(table: pl.DataFrame) -> list[SystemResult]:
    return comparison_table(table, baseline=str(table["system"][0]), value="success")


def _as_compared(row: Mapping[str, Any], success: Estimate | None) -> dict[str, Any]:
    """Success of an economy's row as the comparison has it, if that is over the same trials."""
    if success is None or not math.isclose(success.mean, row["value"], abs_tol=1e-9):
        return {}
    return {"value_low": success.low, "value_high": success.high}


def _pair(a: str, b: str, difference: Any, p: float, said: str, seeds: int, needed: int | None) -> dict[str, Any]:
    needed = needed if "cannot tell" in said else None
    if needed is not None:
        said += f"; {needed} seeds in all would tell"
    elif seeds == 1 and "one seed" not in said:
        said += "; one seed says nothing about other seeds"
    elif "cannot tell" in said:
        said += "; more seeds alone would not tell"
    said = f"{a} against {b}{said}"
    return {"a": a, "b": b, "difference": difference, "p_holm": p, "seeds_needed": needed, "verdict": said}


def _seeds(change: np.ndarray, alpha: float) -> int | None:
    """Seeds with which a t test finds the mean of these differences 4 times out of 5."""
    spread, gap = float(change.std(ddof=1)) if len(change) > 1 else 0.0, float(change.mean())
    if not spread > 0 or abs(gap) < spread / 100:  # tens of thousands of seeds are no advice
        return None
    return runs_needed(spread, gap, alpha=alpha, paired=True, test="t")


def _p_value(change: np.ndarray) -> float:
    """Two-sided t test over seeds; NaN for one seed. Where all seeds differ by the same, nothing is left to chance."""
    if len(change) < 2:
        return math.nan
    if np.ptp(change) == 0:
        return float(change[0] == 0)
    return float(scipy.stats.ttest_1samp(change, 0.0).pvalue)


def after_training(directory: Path, variants: Mapping[str, str]) -> Turns:
    """`Turns` of the held-out play of the trained teams of `variants` (name -> folder), each a system of that name."""
    trained = [
        (name, _evaluations(directory / folder).filter(pl.col("system") == "after"))
        for name, folder in variants.items()
    ]
    return Turns.concat(played.with_column(system=pl.lit(name)) for name, played in trained)


def _evaluations(directory: Path) -> Turns:
    """The final play of every seed of a run.

    Raises:
        InputError: a seed has not got so far. Those that end first are not like the others.
    """
    files = sorted(directory.glob("seed-*/evaluation.parquet"))
    if not files:
        raise InputError(f"{directory}: the run has no evaluation yet; finish it with `palaestra train … --resume`")
    asked = look(directory / "recipe.yaml").seeds if (directory / "recipe.yaml").exists() else ()
    if lacking := [seed for seed in asked if directory / f"seed-{seed}" not in {path.parent for path in files}]:
        raise InputError(
            f"{directory}: {len(lacking)} of {len(asked)} seeds have no evaluation yet (seed {lacking[0]}): finish the "
            f"run with --resume, or look at one seed: palaestra evaluate {files[0].parent}"
        )
    return Turns.concat(_evaluation(path.parent) for path in files)


def _evaluation(seed: Path) -> Turns:
    """The final play of a seed, which is what its result was made with."""
    result = read_object(seed / "result.json")
    if result is not None:
        check_result(seed, result)
    return Turns.load(seed / "evaluation.parquet")


def check_result(seed: Path, result: Mapping[str, Any]) -> None:
    """Raise StorageError if a seed's `result.json` lacks fields or a file that it was made from has changed.

    Raises:
        StorageError: names the file and what to do.
    """
    path = seed / "result.json"
    lacking = RESULT - result.keys()
    if lacking:
        raise StorageError(f"{path}: damaged: {min(lacking)!r} is missing; delete it, and --resume writes it again")
    fix = f"delete {seed} and let --resume train it again (for evaluation.parquet, deleting result.json is enough)"
    checksums.check(seed, result.get("files", {}), path.name, fix)


# -- any table --------------------------------------------------------------------------------------------------------


def evaluate(
    path: Path,
    baseline: str | None = None,
    *,
    errors: Literal["exclude", "count"] = "exclude",
    cluster: str | None = None,
) -> list[dict[str, Any]]:
    """List of dicts that compare each system with a baseline, from a turns file, a folder, a run or a comparison.

    A run is compared in its own measure, and those whose play its recipe judges. errors, cluster: see `trials`.

    Raises:
        InputError: there is no such baseline, or the run is not finished.
    """
    measure, where, order = "success", None, []
    if (path / "comparison.json").exists():
        variants = (read_object(path / "comparison.json") or {}).get("variants")
        if not isinstance(variants, dict):
            raise StorageError(
                f"{path / 'comparison.json'}: damaged: it names no variants; run `palaestra compare` again"
            )
        turns, order = after_training(path, variants), list(variants)
        stored = path / next(iter(variants.values()), "") / "recipe.yaml"
        if stored.exists():
            recipe = look(stored)
            measure, where = recipe.evaluation.measure, counted_agents(recipe.evaluation)
    elif (path / "recipe.yaml").exists():
        recipe = look(path / "recipe.yaml")
        turns, measure, where = _evaluations(path), recipe.evaluation.measure, counted_agents(recipe.evaluation)
    else:
        turns = _evaluation(path) if (path / "evaluation.parquet").exists() else Turns.load(path)
    if not len(turns):
        raise InputError(f"{path}: a table without turns; nothing can be compared")
    table = trials(turns, where=where, errors=errors, cluster=cluster)
    systems = order or table["system"].unique(maintain_order=True).to_list()
    rows = comparison_table(table, baseline=baseline_of(systems, baseline), value=value_of(measure, table))
    rows[1:] = sorted(rows[1:], key=lambda row: systems.index(row.system))
    return [row.to_dict() | {"verdict": verdict(row)} for row in rows]
