"""Strategy auctions ([85], arXiv 2602.02751): all say how they would do it, the best plan for its price is carried out.

The workflow that plays it is `strategy_auction`. Left out: the paper's program for the weights, min Q such that the
chosen cost - value of every training task is at most Q: without a bound it falls without end (Q = -1.2, -15, -152 as
one weight grows from 1 to 100), with one it puts all weight on one signal, and outcomes do not enter.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import polars as pl
import scipy

from palaestra.errors import InputError, need_columns
from palaestra.foundation.archive import Archive, Entry


class Weights(NamedTuple):
    """Weights of a bid's score in an auction: cost (price · tokens), entropy of the plan, and jury marks."""

    cost: float = 1.0
    entropy: float = 0.0
    jury: float | tuple[float, ...] = 1.0


def award(bids: pl.DataFrame, weights: Weights = Weights()) -> pl.DataFrame:  # noqa: B008 a constant
    """Table of bids with `score` and `winner`, least score of each task: w_c·price·tokens - w_h·entropy - Σ w_j·γ_j.

    bids: task, agent, price, tokens, jury (marks γ, a list or a number), and if they count entropy and refined. A bid
    that is refined, made after all had bid, counts only if its agent is cheaper than the winner of the others' and it
    has a lower score; of several the lowest wins. Equal ones: the first row. A bid of which something that counts is
    missing has no score, and does not win.

    Raises:
        MissingColumnError, InputError: a column is missing, or there are not as many marks as weights of jurors.
    """
    need_columns(
        "award", bids.columns, ("task", "agent", "price", "tokens", "jury", *(("entropy",) if weights.entropy else ()))
    )
    features = _features(bids, weights.jury)
    score = sum((w * x for w, x in zip((weights.cost, weights.entropy, 1.0), features.T) if w), np.zeros(len(bids)))
    late = pl.col("refined").fill_null(False) if "refined" in bids.columns else pl.lit(False)
    frame = (
        bids.with_columns(score=pl.Series(score, dtype=pl.Float64).fill_nan(None))
        .with_row_index("_row")
        .with_columns(_late=late)
    )
    first = (
        frame.filter(~pl.col("_late"), pl.col("score").is_not_null())
        .sort("score", "_row")
        .group_by("task", maintain_order=True)
        .first()
    )
    frame = frame.join(
        first.select("task", _best="score", _price="price", _first="_row"), on="task", how="left", maintain_order="left"
    )
    beats = pl.col("_late") & (pl.col("price") < pl.col("_price")) & (pl.col("score") < pl.col("_best"))
    better = frame.filter(beats).sort("score", "_row").group_by("task").first()
    frame = frame.join(better.select("task", _second="_row"), on="task", how="left", maintain_order="left")
    wins = (pl.col("_row") == pl.col("_second").fill_null(pl.col("_first"))).fill_null(False)
    return frame.with_columns(winner=wins).drop("_row", "_late", "_best", "_price", "_first", "_second")


def fit_weights(bids: pl.DataFrame, worth: str, *, ridge: float = 1e-3) -> Weights:
    """`Weights` of an auction fitted to a table of bids: of two of a task that of more `worth` (a column) scores lower.

    The lowest score wins in `award`.

    min Σ d_ik · log(1 + e^{score_i - score_k}) over pairs of a task where i was worth d_ik more than k, all weights at
    least 0, plus `ridge` times their squares. Not the paper's: see above.

    Raises:
        MissingColumnError, InputError: no such column, or no two bids of a task were worth differently.
    """
    need_columns("fit_weights", bids.columns, [worth])
    features = _features(bids, 1.0)
    known = pl.Series(np.isfinite(features).all(1), dtype=pl.Boolean)
    frame = bids.with_row_index("_row").filter(known).select("_row", "task", _worth=pl.col(worth).cast(pl.Float64))
    frame = frame.with_columns(pl.col("_worth").fill_nan(None)).drop_nulls()
    pairs = frame.join(frame, on="task").filter(pl.col("_worth") > pl.col("_worth_right"))
    if not len(pairs):
        raise InputError(f"fit_weights: no two bids of a task differ in {worth!r}")
    more = (pairs["_worth"] - pairs["_worth_right"]).to_numpy()
    more = more / more.sum()
    gap = features[pairs["_row"].to_numpy()] - features[pairs["_row_right"].to_numpy()]
    scale = np.maximum(gap.std(0), 1e-12)
    gap = gap / scale

    def loss(weights: np.ndarray) -> tuple[float, np.ndarray]:
        margin = gap @ weights
        chance = scipy.special.expit(margin)
        value = more @ np.logaddexp(0, margin) + ridge * weights @ weights
        return float(value), gap.T @ (more * chance) + 2 * ridge * weights

    found = scipy.optimize.minimize(loss, np.ones(3), jac=True, bounds=[(0, None)] * 3).x / scale
    return Weights(*(float(each) for each in found))


def contrast(memory: Archive, embedding: np.ndarray, agent: str, k: int = 8) -> list[tuple[str, str]]:
    """List of (losing, winning) plans in an `Archive`, of the k tasks most like vector `embedding`, one plan `agent`'s.

    Entries are plans with the agent as owner, the task as key, 1 as score of the winner's, 0 of the others'; what is
    most like decides which tasks are near, so all plans of a task go in with the task's vector.
    """
    near = dict.fromkeys(entry.key for entry in memory.top(embedding, 16 * k))
    plans: dict[str, list[Entry]] = {}
    for entry in memory.entries:
        if entry.key in near:
            plans.setdefault(entry.key, []).append(entry)
    found = []
    for task in list(near)[:k]:
        won = [entry for entry in plans[task] if entry.score > 0]
        lost = [entry for entry in plans[task] if entry.score <= 0]
        found += [
            (str(low.content), str(high.content))
            for high in won[:1]
            for low in lost
            if agent in (low.owner, high.owner)
        ]
    return found


def _features(bids: pl.DataFrame, jury: float | Sequence[float]) -> np.ndarray:
    """Price · tokens, -entropy, -weighted marks, float64[bids, 3]."""
    marks = bids["jury"]
    if marks.dtype == pl.List:
        counts = set(marks.list.len().drop_nulls().to_list())
        weights = [jury] * max(counts or {0}) if isinstance(jury, int | float) else list(jury)
        if counts - {len(weights)}:
            raise InputError(f"award: {sorted(counts)} marks of the jury, {len(weights)} weights; give one for each")
        rows = [[np.nan] * len(weights) if each is None else each for each in marks.to_list()]
        given = np.array(rows, float).reshape(len(bids), len(weights)) @ np.array(weights, float)
    else:
        given = marks.cast(pl.Float64).to_numpy() * (jury if isinstance(jury, int | float) else sum(jury))
    told = "entropy" in bids.columns and bids["entropy"].count()
    entropy = bids["entropy"].cast(pl.Float64).to_numpy() if told else 0.0
    spent = (bids["price"].cast(pl.Float64) * bids["tokens"].cast(pl.Float64)).to_numpy()
    return np.stack([spent, np.broadcast_to(-np.asarray(entropy), spent.shape), -given], axis=1)
