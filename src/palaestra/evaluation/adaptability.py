"""How a team keeps up when its world changes: a protocol, with no number of its own in the literature.

A survey ([110], on adaptability of multi-agent learning) names three dimensions: learning adaptability (retrained under
the shift), policy adaptability (frozen), and scenario-driven adaptability (the curve over growing shifts). The meters
here are this package's proposal.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import polars as pl

from palaestra.errors import InputError, need_columns
from palaestra.evaluation.analyses import ANALYSES, Analysis, table
from palaestra.evaluation.games.society import kaplan_meier

PHASES = ("frozen", "retrained", "scratch", "base_before", "base_after")
"""The team as it was under the shift; the same going on learning; a new team; the team on the base task before and
after it went on learning."""
NEEDED = ("shift", "phase", "step", "return", "random", "reference")


def normalised(returns: np.ndarray | float, random: np.ndarray | float, reference: np.ndarray | float) -> np.ndarray:
    """Normalised returns, array: (J - J_random) / (J_reference - J_random), 0 for random play and 1 for the reference.

    >>> normalised(np.array([0.0, 5.0, 9.0, 10.0]), 0.0, 10.0).tolist()
    [0.0, 0.5, 0.9, 1.0]

    Raises:
        InputError: reference and random are the same.
    """
    low, high = np.asarray(random, float), np.asarray(reference, float)
    if not (np.abs(high - low) > 1e-12).all():
        raise InputError("normalised: reference and random must differ: what was trained is no better than chance")
    return np.asarray((np.asarray(returns, float) - low) / (high - low))


def recovery(norms: Sequence[float] | np.ndarray, level: float = 0.9) -> tuple[int, bool]:
    """(step, reached): first step, from 1, whose normalised return is >= `level`; (number of steps, False) if none.

    >>> recovery([0.0, 0.5, 0.9, 1.0]), recovery([0.0, 0.5])
    ((3, True), (2, False))
    """
    values = np.asarray(norms, float)
    reached = values >= level - 1e-9
    return (int(reached.argmax()) + 1, True) if reached.any() else (len(values), False)


def regret(norms: Sequence[float] | np.ndarray) -> float:
    """Regret after a shift: Σ max(1 - norm, 0) over a sequence of normalised returns.

    >>> round(regret([0.0, 0.5, 0.9, 1.0]), 9)
    1.6
    """
    return float(np.maximum(1 - np.asarray(norms, float), 0).sum())


def adaptability(rows: pl.DataFrame, *, level: float = 0.9) -> pl.DataFrame:
    """Table per shift (zero-shot, jumpstart, recovery, regret, forgetting) of rows shift, phase, step, return, anchors.

    A row per shift and magnitude; the anchors are the columns random and reference.

    Input is a table of returns per step; they are normalised here.

    Args:
        rows: shift, phase (`PHASES`), step (from 1), return, and random and reference, between which returns are
            normalised; also magnitude and seed, if there are any. Rows of the base task have its own random and
            reference.
        level: what counts as recovered.

    Returns:
        zero_shot (frozen); jumpstart (first step of the retrained team less that of a new one); recovery (a step, the
        median of the survival estimate, null if fewer than half recover); recovered (share of seeds); regret (mean over
        seeds whose returns are all known); forgetting (base task before less after). Null where a phase is missing; a
        return that is missing leaves the means.
    """
    need_columns("adaptability", rows.columns, NEEDED)
    if unknown := set(rows["phase"].cast(pl.String)) - set(PHASES):
        raise InputError(f"adaptability: phases {sorted(unknown)}; known are {', '.join(PHASES)}")
    for name in ("magnitude", "seed"):
        rows = rows if name in rows.columns else rows.with_columns(pl.lit(0.0).alias(name))
    norm = normalised(*(rows[name].to_numpy() for name in ("return", "random", "reference")))
    rows = rows.with_columns(norm=pl.Series(norm).fill_nan(None)).sort("step", maintain_order=True)
    found = []
    for (shift, magnitude), each in rows.group_by("shift", "magnitude", maintain_order=True):
        parts = {phase: each.filter(pl.col("phase") == phase) for phase in PHASES}
        seeds = parts["retrained"].group_by("seed", maintain_order=True)
        curves = [(part["step"].to_numpy(), part["norm"].to_numpy()) for _, part in seeds]
        means = {phase: part["norm"].mean() for phase, part in parts.items()}
        first = [parts[phase].filter(pl.col("step") == 1)["norm"].mean() for phase in ("retrained", "scratch")]
        found.append(
            {
                "shift": shift,
                "magnitude": magnitude,
                "zero_shot": means["frozen"],
                "jumpstart": _less(*first),
                **_recoveries(curves, level),
                "forgetting": _less(means["base_before"], means["base_after"]),
            }
        )
    schema = dict.fromkeys(("zero_shot", "jumpstart", "recovery", "recovered", "regret", "forgetting"), pl.Float64)
    return pl.DataFrame(found, schema_overrides=schema).sort("shift", "magnitude", maintain_order=True)


def _less(one: object, other: object) -> float | None:
    return None if one is None or other is None else float(one) - float(other)  # type: ignore[arg-type]


def _recoveries(curves: Sequence[tuple[np.ndarray, np.ndarray]], level: float) -> dict[str, float | None]:
    if not curves:
        return {"recovery": None, "recovered": None, "regret": None}
    places, done = zip(*(recovery(norms, level) for _, norms in curves), strict=True)
    steps = [step[place - 1] for (step, _), place in zip(curves, places, strict=True)]
    whole = [regret(norms) for _, norms in curves if not np.isnan(norms).any()]
    curve = kaplan_meier(steps, done).filter(pl.col("survival") <= 0.5)
    return {
        "recovery": float(curve["time"][0]) if len(curve) else None,
        "recovered": float(np.mean(done)),
        "regret": float(np.mean(whole)) if whole else None,
    }


@ANALYSES.register("adaptability")
def of_returns(level: float = 0.9) -> Analysis:
    """Returns a function (RETURNS file) -> table per shift: zero-shot, jumpstart, recovery, regret, forgetting.

    Columns of RETURNS: shift, phase, step, return, random, reference.
    """
    return lambda returns: adaptability(table(Path(returns), *NEEDED), level=level)
