"""Was it right to act? The table of proposals and of silence, and how well a metric predicts what it is for."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
import polars as pl
import scipy

from palaestra.errors import InputError, need_columns
from palaestra.evaluation.intervals import Estimate, wilson
from palaestra.evaluation.logs.columns import flag
from palaestra.evaluation.scorers.groups import known

Correlation = Literal["spearman", "pearson", "kendall"]


@dataclass(frozen=True)
class Confusion:
    """Counts tp, fp, tn, fn of acting or not, with derived rates; `missing` rows have no verdict and do not count."""

    tp: int
    fp: int
    tn: int
    fn: int
    missing: int = 0

    @property
    def recall(self) -> float:
        """Recall, TP / (TP + FN)."""
        return _share(self.tp, self.tp + self.fn)

    @property
    def precision(self) -> float:
        """Precision, TP / (TP + FP)."""
        return _share(self.tp, self.tp + self.fp)

    @property
    def accuracy(self) -> float:
        """Accuracy, (TP + TN) / all that have a verdict."""
        return _share(self.tp + self.tn, self.tp + self.fp + self.tn + self.fn)

    @property
    def false_alarm(self) -> float:
        """False-alarm rate of Proactive Agent, FP / (TP + FP) = 1 - precision; not FP / (FP + TN)."""
        return _share(self.fp, self.tp + self.fp)

    @property
    def f1(self) -> float:
        """F1 score, 2 TP / (2 TP + FP + FN)."""
        return _share(2 * self.tp, 2 * self.tp + self.fp + self.fn)

    @property
    def acted(self) -> float:
        """Share of rows with an action: (TP + FP) / all that have a verdict."""
        return _share(self.tp + self.fp, self.tp + self.fp + self.tn + self.fn)

    def table(self, level: float = 0.95) -> pl.DataFrame:
        """The measures as a table: `measure, value, low, high, n`, with Wilson's intervals.

        F1's interval is that of a share of 2 TP + FP + FN.
        """
        of = {
            "recall": (self.tp, self.tp + self.fn),
            "precision": (self.tp, self.tp + self.fp),
            "accuracy": (self.tp + self.tn, self.tp + self.fp + self.tn + self.fn),
            "false_alarm": (self.fp, self.tp + self.fp),
            "f1": (self.tp, self.tp + (self.fp + self.fn) / 2),
            "acted": (self.tp + self.fp, self.tp + self.fp + self.tn + self.fn),
        }
        rows = []
        for name, (hits, n) in of.items():
            low, high = (float(x) for x in wilson(hits, n, level=level)) if n else (math.nan, math.nan)
            rows.append({"measure": name, "value": _share(hits, n), "low": low, "high": high, "n": float(n)})
        return pl.DataFrame(rows).with_columns(pl.col("value", "low", "high").fill_nan(None))


def confusion(
    rows: pl.DataFrame, *, action: str = "action", accepted: str = "accepted", action_null_ok: bool = True
) -> Confusion:
    """`Confusion` counts of rows action, accepted: acting or staying silent, each accepted or rejected by a judge.

    arXiv 2410.12361.

    action: null or blank is silence (of booleans, or of 0 and 1, false is): acted and accepted TP, acted and rejected
    FP, silent and accepted TN, silent and rejected FN. action_null_ok: silence is an answer; False: a row without an
    action is missing.
    accepted: null (a verdict that could not be read) leaves every count and is counted in `missing`.

    Raises:
        MissingColumnError: names the column. InputError: a verdict is neither accepted nor rejected.
    """
    need_columns("confusion", rows.columns, (action, accepted))
    said = rows[action]
    if said.dtype == pl.String:
        said = said.set(said.str.strip_chars() == "", None)
    elif said.dtype.is_float():
        said = said.fill_nan(None)
    told = said.dtype.is_numeric() and ((said == 0) | (said == 1)).all()  # of a CSV
    acted = said.cast(pl.Boolean) if told or said.dtype == pl.Boolean else said.is_not_null()
    acted = acted.fill_null(False) if action_null_ok else acted.set(said.is_null(), None)
    table = pl.DataFrame({"a": acted, "ok": flag(rows, accepted, "confusion")})
    found = table.drop_nulls()
    tp, fp, tn, fn = (
        int(((found["a"] == a) & (found["ok"] == ok)).sum())
        for a, ok in ((True, True), (True, False), (False, True), (False, False))
    )
    return Confusion(tp, fp, tn, fn, len(table) - len(found))


def rank_correlation(metric: Any, downstream: Any, *, kind: Correlation = "spearman", level: float = 0.95) -> Estimate:
    """`Estimate` of the correlation over scorers of a metric with downstream success, with Fisher's interval.

    z = artanh r, with variance (1 + r²/2)/(n - 3) for Spearman's (Bonett & Wright 2000), 1/(n - 3) for Pearson's and
    .437/(n - 4) for Kendall's (Fieller et al. 1957). A scorer that lacks one of the two leaves.

    Raises:
        InputError: lengths differ, or fewer than 3 scorers have both.
    """
    known("rank_correlation", "kind", kind, get_args(Correlation))
    both = np.stack([np.asarray(pl.Series(x).cast(pl.Float64).to_numpy(), float) for x in _alike(metric, downstream)])
    x, y = both[:, np.isfinite(both).all(0)]
    n, lost = len(x), both.shape[1] - len(x)
    if n < 3:
        raise InputError(f"rank_correlation: {n} scorers have both numbers; it takes 3, and says something from 10 on")
    stats = scipy.stats
    measured = {"spearman": stats.spearmanr, "pearson": stats.pearsonr, "kendall": stats.kendalltau}[kind]
    r = float(measured(x, y).statistic) if np.ptp(x) and np.ptp(y) else math.nan
    freedom = n - (4 if kind == "kendall" else 3)
    top = {"spearman": 1 + r**2 / 2, "pearson": 1.0, "kendall": 0.437}[kind]
    z = float(scipy.stats.norm.ppf((1 + level) / 2)) * math.sqrt(top / freedom) if freedom > 0 else math.nan
    inside = float(np.clip(r, -1 + 1e-12, 1 - 1e-12))
    low, high = (math.tanh(math.atanh(inside) + side * z) for side in (-1, 1))
    few = f"{n} scorers: an interval of so few is rough" if n < 10 else ""
    left = f"{lost} scorers lack one of the two and are left out" if lost else ""
    return Estimate(r, low, high, n, n, 1, f"Fisher's z, {kind}", caution="; ".join(filter(None, (left, few))))


def _alike(a: Any, b: Any) -> tuple[Any, Any]:
    if len(a) != len(b):
        raise InputError(f"rank_correlation: {len(a)} and {len(b)} numbers; give one of each per scorer")
    return a, b


def _share(hits: float, n: float) -> float:
    return hits / n if n else math.nan
