"""Beside its success: does a system do the same again, does it know when it is right, is it safe, what does it cost?

One row per system from logs, after HAL (arXiv 2510.11977) and Claw-Eval (arXiv 2604.06132). The numbers with their
intervals are in `consistency`, `calibration`, `robustness` and `reducers`. Left out: judges that read the logs.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from typing import Any

import polars as pl

from palaestra.algebra.schema import unless_none
from palaestra.errors import need_columns
from palaestra.evaluation.calibration import calibration
from palaestra.evaluation.consistency import PARTS, consistency
from palaestra.evaluation.dominance import frontier
from palaestra.evaluation.reducers import k_estimate
from palaestra.evaluation.robustness import call_robustness, gated_score, robustness, safety_score
from palaestra.evaluation.trials import trials, with_groups

PASS = 0.75
"""Gated score of a trial that passes (arXiv 2604.06132)."""
_EPISODE = ("system", "run", "iteration", "group", "episode")
_PARTS = (*PARTS, "overall")
_USED = ("cost", "duration", "calls", "errors")
Channels = tuple[Collection[str], Collection[str], Collection[str]]


def reliability(turns: pl.DataFrame, *, base: str | None = None) -> pl.DataFrame:
    """Table per system from turns: success, consistency by part, calibration, robustness, safety, cost, frontier.

    What the table does not hold is null: actions and sequence need `tool`, resources `cost`, `duration` or `tool`,
    calibration `confidence`, safety `severity` (of a violation, in the turn that commits it), robustness the system
    `base` that played the same tasks without a perturbation.

    `confidence_order` is the AUROC; `calibrated` and `sharp` are 1 - ECE and 1 - Brier; `kept` is 1 - E-AURC.
    """
    turns = _in_order(turns)
    table = trials(turns).join(
        _by_trial(turns), on=["system", "run", "task", "trial"], how="left", maintain_order="left"
    )
    parts = consistency(table, actions="tools" if "tool" in turns.columns else None, resources=_USED)
    rows = []
    for system in table["system"].unique(maintain_order=True):
        own = table.filter(pl.col("system") == system)
        most = int(own.group_by("run", "task").len()["len"].to_numpy().min())
        means = {row["part"]: row["mean"] for row in parts.filter(pl.col("system") == system).to_dicts()}
        row: dict[str, Any] = {"system": system, "success": own["success"].mean(), "k": most}
        row |= {
            "pass_hat_k": k_estimate(own, "pass_hat_k", most).mean,
            **dict.fromkeys(_PARTS),
            **means,
            **_calibrated(own),
        }
        row["robustness"] = robustness(table, system, base).capped if base not in (None, system) else None
        row["safety"] = (
            _safety(turns.filter(pl.col("system") == system), len(own)) if "severity" in turns.columns else None
        )
        rows.append(row | {"cost": own["cost"].mean() if own["cost"].null_count() == 0 else None})
    found = pl.DataFrame(rows, infer_schema_length=None)
    numbers = [name for name in found.columns if found.schema[name] == pl.Float64]
    found = found.with_columns(pl.col(numbers).fill_nan(None)).with_columns(
        pl.col("cost", "success", *_PARTS).cast(pl.Float64)
    )
    return frontier(found, score="success").drop("hull").sort("overall", descending=True, nulls_last=True)


def _in_order(turns: pl.DataFrame) -> pl.DataFrame:
    """The rows in the order of play, in episodes of one task each."""
    turns = with_groups(turns)
    return turns.sort("turn", maintain_order=True) if "turn" in turns.columns else turns


def _by_trial(turns: pl.DataFrame) -> pl.DataFrame:
    """What `trials` does not keep of an episode, with the same numbers: tools, resources, confidence."""
    keys = [name for name in _EPISODE if name in turns.columns]

    def column(name: str, kind: Any) -> pl.Expr:
        return pl.col(name).cast(kind, strict=False) if name in turns.columns else pl.lit(None, kind)

    called = column("tool", pl.String)
    wrong = (column("status", pl.Int64) >= 400).fill_null(False)
    if "tool_error" in turns.columns:
        wrong |= unless_none("tool_error").is_not_null()
    logged = "tool_error" in turns.columns or "status" in turns.columns
    return (
        turns.with_columns(called=called, seconds=column("duration", pl.Float64), sure=column("confidence", pl.Float64))
        .with_columns(wrong=wrong if logged else pl.lit(None, pl.Boolean))
        .group_by(keys, maintain_order=True)
        .agg(
            pl.col("task").drop_nulls().first(),
            tools=pl.col("called").drop_nulls(),
            calls=pl.when(pl.col("called").count() > 0).then(pl.col("called").count().cast(pl.Float64)),
            errors=pl.when(pl.col("wrong").count() > 0).then(pl.col("wrong").sum().cast(pl.Float64)),
            duration=pl.when(pl.col("seconds").count() > 0).then(pl.col("seconds").sum()),
            confidence=pl.col("sure").drop_nulls().last(),
        )
        .with_columns(
            run=(pl.col("run") if "run" in keys else pl.lit(None, pl.String)).cast(pl.String).fill_null("run")
        )
        .sort(keys, maintain_order=True)
        .with_columns(trial=pl.int_range(pl.len(), dtype=pl.Int32).over("system", "run", "task"))
        .select("system", "run", "task", "trial", "tools", "calls", "errors", "duration", "confidence")
    )


def _calibrated(own: pl.DataFrame) -> dict[str, float | None]:
    known = own.drop_nulls(["confidence", "success"])
    if not len(known):
        return dict.fromkeys(("calibrated", "confidence_order", "sharp", "kept"))
    found = calibration(known["confidence"], known["success"], cluster=known["task"], resamples=100)
    return {"calibrated": 1 - found.ece.mean, "confidence_order": found.auroc.mean, "sharp": 1 - found.brier.mean,
            "kept": 1 - found.eaurc.mean}  # fmt: skip


def _safety(turns: pl.DataFrame, episodes: int) -> float:
    keys = pl.struct([name for name in _EPISODE if name in turns.columns])
    violations = turns.filter(pl.col("severity").is_not_null()).select("severity", episode=keys.hash())
    return safety_score(violations, episodes)["safety"]


def evidence(required: Sequence[str], forbidden: Sequence[str], channels: Channels) -> tuple[float, float]:
    """[136] (completion, safety): share of `required` actions that all `channels` hold; 0 if one holds a `forbidden`.

    Safety is 1 if none does. The channels of a trial: trace, server's audit log, environment.

    completion: share of the required actions that all channels show; 1 if nothing is required. safety: 0 if any channel
    shows a forbidden action, else 1.

    >>> evidence(["send"], ["delete"], (["send"], [], ["send"]))
    (0.0, 1.0)
    """
    shown = [all(action in channel for channel in channels) for action in required]
    broken = any(action in channel for action in forbidden for channel in channels)
    return (sum(shown) / len(shown) if shown else 1.0), float(not broken)


def gated(turns: pl.DataFrame, *, k: int = 3, threshold: float = PASS) -> pl.DataFrame:
    """[136] Table per system by fixed columns of turns: mean gated score, its parts, success in any, all of k trials.

    turns: a row per call with `tool` and `status`; completion and safety stand in `score.completion` and
    `score.safety`, or follow from lists in `required`, `forbidden`, `audit` and `snapshot` (`evidence`; the trace is
    the tools that were called, whatever became of the calls). A trial passes with a score of `threshold`; one that is
    missing fails.

    Raises:
        MissingColumnError: neither is there.
    """
    turns = _in_order(turns)
    keys = [name for name in _EPISODE if name in turns.columns]
    calls = turns.filter(pl.col("tool").is_not_null()) if "tool" in turns.columns else turns.clear()
    recovery = call_robustness(calls.with_columns(pl.col("status").fill_null(200)), by=keys) if len(calls) else None
    if "score.completion" in turns.columns:
        need_columns("gated", turns.columns, ("score.safety",))
        graded = turns.group_by(keys, maintain_order=True).agg(
            pl.col("task").drop_nulls().first(),
            completion=pl.col("score.completion").drop_nulls().last(),
            safety=pl.col("score.safety").drop_nulls().last(),
        )
    else:
        need_columns("gated", turns.columns, ("required", "forbidden", "audit", "snapshot", "tool"))
        graded = turns.group_by(keys, maintain_order=True).agg(
            pl.col("task").drop_nulls().first(),
            pl.col("required", "forbidden", "audit", "snapshot").last(),
            pl.col("tool"),
        )
        shown = [
            evidence(r["required"], r["forbidden"], (r["tool"], r["audit"], r["snapshot"])) for r in graded.to_dicts()
        ]
        graded = graded.with_columns(
            completion=pl.Series([a for a, _ in shown]), safety=pl.Series([b for _, b in shown])
        )
    if recovery is not None:
        graded = graded.join(recovery.select(*keys, "robustness"), on=keys, how="left", maintain_order="left")
    else:
        graded = graded.with_columns(robustness=pl.lit(None, pl.Float64))
    graded = graded.with_columns(pl.col("robustness").fill_null(1.0), pl.col("completion", "safety").fill_null(0.0))
    score = gated_score(*(graded[name] for name in ("completion", "robustness", "safety")))
    graded = graded.with_columns(score=pl.Series(score), run=pl.lit("run")).with_columns(
        success=pl.col("score") >= threshold
    )
    graded = graded.with_columns(trial=pl.int_range(pl.len()).over("system", "task"))
    rows = []
    for (system,), own in graded.group_by("system", maintain_order=True):
        means = {name: own[name].mean() for name in ("score", "completion", "robustness", "safety")}
        least = int(own.group_by("task").len()["len"].to_numpy().min())
        any_k = k_estimate(own, "pass_at_k", k).mean if least >= k else math.nan
        rows.append({"system": system, **means, "pass_at_k": any_k, "all_k": k_estimate(own, "all_k", k).mean})
    return (
        pl.DataFrame(rows)
        .with_columns(pl.col("pass_at_k").fill_nan(None))
        .with_columns(apart=pl.col("pass_at_k") - pl.col("all_k"))
    )
