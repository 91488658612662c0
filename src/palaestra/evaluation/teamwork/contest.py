"""An internal contest ([23] ContestTrade, arXiv 2508.00554): who earned lately gets the weight, who did not gets none.

Weights of a day follow from the days before it alone. The code's rule without a fitted model is followed: the plain
mean and deviation of the last days. Left out: its two gradient-boosted regressors, and the judges' marks they read.
"""

from __future__ import annotations

import numpy as np
import polars as pl

from palaestra.agents.allocation import Allocation, allocate
from palaestra.errors import InputError, need_columns

WILD = 0.4
"""A reward beyond this, up or down, is taken for a mistake, as the code does."""


def factor_reward(ratings: np.ndarray, changes: np.ndarray, *, limit: float = 0.2) -> float:
    """Mean of `ratings` (-2 to 2) × price `changes` clipped to ±`limit`, arrays by symbol, NaN left out; 0 without any.

    A symbol that lacks one of the two has NaN there.

    >>> factor_reward(np.array([2, -1, 1]), np.array([0.1, -0.5, np.nan]))
    0.2
    """
    worth = np.asarray(ratings, float) * np.clip(np.asarray(changes, float), -limit, limit)
    valid = worth[np.isfinite(worth)]
    return float(valid.mean()) if len(valid) else 0.0


def recent_scores(rewards: np.ndarray, *, window: int = 5, least: float = 0.01, days: int = 2) -> np.ndarray:
    """float64[..., days, agents]: mean / max(deviation, least) of rewards in the window before each day; NaN: too few.

    rewards: float64[..., days, agents], in order. What is missing or beyond ±0.4 does not count as earned or lost: it
    is the median of the window's other days, and a score needs `days` of those.

    Raises:
        InputError: window < 2, or least is not above 0.
    """
    if window < 2 or not least > 0 or not 1 <= days <= window:
        raise InputError(f"contest: window={window} of at least 2, least={least} above 0, days={days} of the window")
    given = np.asarray(rewards, float)
    seen = np.where(np.abs(given) <= WILD, given, np.nan)
    before = np.full((*seen.shape[:-2], window, seen.shape[-1]), np.nan)
    past = np.concatenate([before, seen], axis=-2)[..., :-1, :]
    windows = np.lib.stride_tricks.sliding_window_view(past, window, axis=-2)  # the days before each day
    known = np.isfinite(windows)
    count = known.sum(-1)
    with np.errstate(all="ignore"):
        middle = _median(windows, count)
        filled = np.where(known, windows, middle[..., None])
        score = filled.mean(-1) / np.maximum(filled.std(-1), least)
    return np.asarray(np.where(count >= days, score, np.nan))


def contest(
    frame: pl.DataFrame, *, window: int = 5, method: Allocation = "positive", most: int = 3, least: float = 0.01
) -> pl.DataFrame:
    """Table of daily weights of agents by a contest of their past rewards: day, agent, reward, score, weight.

    frame: day, agent, reward, at most one row for each. A weight for the next day: give its rows with missing rewards.
    Who has no row on a day has no weight then; the others share all of it.

    Raises:
        MissingColumnError, InputError: a column is missing, or an agent has two rewards on a day.
    """
    need_columns("contest", frame.columns, ("day", "agent", "reward"))
    if not len(frame):
        raise InputError("contest: the table is empty")
    if frame.select("day", "agent").is_duplicated().any():
        raise InputError("contest: an agent has two rewards on a day; give one")
    wide = frame.pivot(on="agent", index="day", values="reward").sort("day")
    agents = sorted(wide.columns[1:])
    scores = recent_scores(wide.select(agents).cast(pl.Float64).to_numpy(), window=window, least=least)
    rows = frame.select("day", "agent", _there=1.0).pivot(on="agent", index="day", values="_there").sort("day")
    there = rows.select(agents).to_numpy() == 1
    weights = there * allocate(np.where(there, scores, np.nan), method, most=most)
    total = weights.sum(-1, keepdims=True)
    weights = weights / np.where(total > 0, total, 1.0)
    long = pl.DataFrame(
        {
            "day": wide["day"].gather(np.repeat(np.arange(len(wide)), len(agents))),
            "agent": agents * len(wide),
            "score": scores.ravel(),
            "weight": weights.ravel(),
        }
    )
    told = frame.select("day", pl.col("agent").cast(pl.String), "reward")
    return told.join(long.with_columns(pl.col("score").fill_nan(None)), on=["day", "agent"], maintain_order="left")


def _median(windows: np.ndarray, count: np.ndarray) -> np.ndarray:
    """Median along the last axis of what is not NaN; NaN sorts last."""
    order = np.sort(windows, axis=-1)
    low, high = np.maximum(count - 1, 0) // 2, count // 2
    at = [np.take_along_axis(order, each[..., None], axis=-1)[..., 0] for each in (low, high)]
    return np.asarray((at[0] + at[1]) / 2)
