"""Questions about scorers by name, to tables and to the files of benchmarks: `palaestra analyze best_of_k SCORES`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import polars as pl

from palaestra.errors import InputError, need_columns
from palaestra.evaluation.analyses import ANALYSES, Analysis, table
from palaestra.evaluation.intervals import Estimate
from palaestra.evaluation.judge_power import judge_power as power_under_errors
from palaestra.evaluation.rubric import Method
from palaestra.evaluation.scorers import agreement as agree
from palaestra.evaluation.scorers.files import Steps, read_scores
from palaestra.evaluation.scorers.groups import Credit, Missing, Ties, best_of_k_accuracy, protocols, strict_accuracy
from palaestra.evaluation.scorers.groups import comparisons as compared
from palaestra.evaluation.scorers.groups import reciprocal_rank as ranked
from palaestra.evaluation.scorers.rewardbench import domain_scores
from palaestra.evaluation.scorers.verdict_table import Correlation, rank_correlation
from palaestra.evaluation.scorers.verdict_table import confusion as confused


def _scores(path: Path, steps: Steps = "min") -> pl.DataFrame:
    found = read_scores(path, steps=steps)
    return table(path) if found is None else found


def _row(found: Estimate) -> pl.DataFrame:
    kept = {name: value for name, value in found.to_dict().items() if name not in ("runs", "clusters", "method")}
    return pl.DataFrame([kept])


@ANALYSES.register("best_of_k")
def best_of_k(
    credit: Credit = "fraction", *, missing: Missing = "leave", steps: Steps = "min", each: str | None = None
) -> Analysis:
    """Returns a function (SCORES file) -> one-row table: best-of-k accuracy, share of groups with a right top answer.

    SCORES: columns group, score, correct, or a benchmark's own file.

    each: a column, such as the scorer; there is a row for each of its values.
    """

    def answer(scores: Path) -> pl.DataFrame:
        rows = _scores(scores, steps)
        if each is None:
            return _row(best_of_k_accuracy(rows, credit=credit, missing=missing))
        need_columns("best_of_k", rows.columns, [each])
        return pl.concat(
            _row(best_of_k_accuracy(part, credit=credit, missing=missing)).select(pl.lit(name).alias(each), pl.all())
            for (name,), part in rows.group_by(each, maintain_order=True)
        )

    return answer


@ANALYSES.register("strict")
def strict(ties: Ties = "against", *, steps: Steps = "min") -> Analysis:
    """Returns a function (SCORES file) -> one-row table: share of groups in which all right answers outscore all wrong.

    Columns of SCORES: group, score, correct.
    """
    return lambda scores: _row(strict_accuracy(_scores(scores, steps), ties=ties))


@ANALYSES.register("reciprocal_rank")
def reciprocal_rank(ties: Ties = "against", *, steps: Steps = "min") -> Analysis:
    """Returns a function (SCORES file) -> one-row table: mean over groups of 1 / rank of the best right answer.

    SCORES: columns group, score, correct, or RewardMATH's file.
    """
    return lambda scores: _row(ranked(_scores(scores, steps), ties=ties))


@ANALYSES.register("scorer_protocols")
def scorer_protocols(*, missing: Missing = "leave", steps: Steps = "min") -> Analysis:
    """Returns a function (SCORES file) -> table per protocol and `ties`: one scorer's best-of-k, strict, rank, pairs.

    SCORES: columns group, score, correct, or RewardMATH's file, pairwise too.
    """

    def answer(scores: Path) -> pl.DataFrame:
        rows = _scores(scores, steps)
        return protocols(rows) if "score" in rows.columns else compared(rows, missing=missing)

    return answer


@ANALYSES.register("rewardbench")
def rewardbench(*, missing: Missing = "leave", seed: int = 0) -> Analysis:
    """Returns a function (SCORES file of RewardBench 2's scripts) -> table per domain, then their mean: score."""

    def answer(scores: Path) -> pl.DataFrame:
        rows = read_scores(scores)
        if rows is None or "domain" not in rows.columns:
            raise InputError(f"{scores}: no scores of RewardBench 2: they have scores, num_correct, id and subset")
        return domain_scores(rows, missing=missing, seed=seed)

    return answer


@ANALYSES.register("alpha")
def alpha(
    measure: agree.Level = "nominal", *, item: str = "item", judge: str = "judge", value: str = "value"
) -> Analysis:
    """Returns a function (VERDICTS file: item, judge, value) -> one-row table: Krippendorff's alpha by `measure`.

    Columns of VERDICTS: item, judge, value.
    """

    def answer(verdicts: Path) -> pl.DataFrame:
        rows = table(verdicts, item, judge, value)
        if measure == "nominal":  # labels in words or numbers, which have no mean
            labels = rows[value].fill_nan(None) if rows[value].dtype.is_float() else rows[value]
            rows = rows.with_columns(labels.rank("dense")).drop_nulls(value)
            again = rows.filter(rows.select(item, judge).is_duplicated())
            if len(again):
                twice = f"{judge} {again[judge][0]!r} has several verdicts on {item} {again[item][0]!r}"
                raise InputError(f"{verdicts}: {twice}; nominal ones have no mean, keep one")
        wide = rows.pivot(on=judge, index=item, values=value, aggregate_function="mean")
        return _row(agree.krippendorff_alpha(wide.drop(item).cast(pl.Float64).to_numpy().T, measure=measure))

    return answer


def _labels(column: pl.Series) -> pl.Series:
    """As text: 1 and 1.0 are the same in a column of numbers and in one that has words, too, as are true and True."""
    words = column.cast(pl.String).str.to_lowercase()
    numbers = words.cast(pl.Float64, strict=False).fill_nan(None).cast(pl.String)
    return numbers.fill_null(words).replace("nan", None)


@ANALYSES.register("kappa")
def kappa(
    a: str = "a", b: str = "b", *, weights: agree.Weights | None = None, order: Sequence[Any] | None = None
) -> Analysis:
    """Returns a function (VERDICTS file, judges' columns `a`, `b`) -> one-row table: Cohen's kappa, maybe weighted.

    VERDICTS: a column of each judge. order: of words, from the lowest to the highest.
    """

    def answer(verdicts: Path) -> pl.DataFrame:
        both = table(verdicts, a, b)
        if weights is None and (both[a].dtype == pl.String) != (both[b].dtype == pl.String):
            both = both.with_columns(_labels(both[a]), _labels(both[b]))
        return _row(agree.cohen_kappa(both[a].to_list(), both[b].to_list(), weights=weights, order=order))

    return answer


@ANALYSES.register("confusion")
def confusion(action: str = "action", accepted: str = "accepted", *, action_null_ok: bool = True) -> Analysis:
    """Returns a function (EVENTS file) -> table of precision, recall …; `accepted`: acting, or silence, was right.

    Columns of EVENTS: action (null is silence) and accepted.
    """

    def answer(events: Path) -> pl.DataFrame:
        found = confused(
            table(events, action, accepted), action=action, accepted=accepted, action_null_ok=action_null_ok
        )
        counts = {name: getattr(found, name) for name in ("tp", "fp", "tn", "fn", "missing")}
        return found.table().with_columns(**{name: pl.lit(n) for name, n in counts.items()})

    return answer


@ANALYSES.register("predicts")
def predicts(metric: str = "metric", downstream: str = "downstream", *, kind: Correlation = "spearman") -> Analysis:
    """Returns a function (SCORERS file, a row per scorer) -> one-row table: correlation of `metric` with `downstream`.

    SCORERS: both columns, a row per scorer.
    """

    def answer(scorers: Path) -> pl.DataFrame:
        rows = table(scorers, metric, downstream)
        return _row(rank_correlation(rows[metric], rows[downstream], kind=kind))

    return answer


@ANALYSES.register("judge_power")
def judge_power(
    error: float = 0.0,
    *,
    method: Method = "net",
    spread: float = 1.0,
    studies: int = 500,
    alpha: float = 0.05,
    seed: int = 0,
) -> Analysis:
    """Returns a function (SYSTEMS, CRITERIA files) -> table per system: power to find the first better if a judge errs.

    SYSTEMS: system, rate and perhaps penalty. CRITERIA: task, criterion and perhaps kind and weight. See
    `palaestra.evaluation.judge_power.judge_power` (AgentIF-OneDay [133], arXiv 2601.20613).

    Args:
        error: Probability that the judge flips a verdict.
        method: Scoring rule of a task, as of the analysis `rubric`.
        spread: Standard deviation of the log odds over tasks, and over the criteria of a task.
        studies: Number of simulated studies.
        alpha: Level of the test.
        seed: Of the simulation.
    """
    return lambda systems, criteria: power_under_errors(
        table(systems, "system", "rate"),
        table(criteria, "task", "criterion"),
        error=error,
        method=method,
        spread=spread,
        studies=studies,
        alpha=alpha,
        seed=seed,
    )
