"""Value-order correlation: does a score rise along play that succeeds? And two rewards on one table: how far apart?"""

from __future__ import annotations

import numpy as np
import polars as pl
from scipy import stats

from palaestra.audits.distance import _pearson_distance, epic_canonical
from palaestra.audits.finding import Finding, per_turn, prove, require
from palaestra.signals import Signal
from palaestra.turns import Turns


def value_order_correlation(turns: Turns, score: Signal) -> tuple[np.ndarray, np.ndarray]:
    """Spearman correlation of a score with time in each (episode, agent) of three turns or more: values, key numbers.

    1 for a score that always rises, -1 for the same play reversed, 0 where the score is constant (arXiv 2512.23703).
    """
    values = per_turn(turns, score)
    segments = turns.segments("episode", "agent")
    order = np.arange(len(turns)) if segments.order is None else segments.order
    kept = np.flatnonzero(segments.lengths >= 3)
    key = np.repeat(np.arange(len(segments.lengths)), segments.lengths)
    time = np.arange(len(order)) - segments.starts[key]
    ranks = _ranks(values[order], key)
    centred = ranks - (segments.lengths[key] - 1) / 2
    ticks = time - (segments.lengths[key] - 1) / 2
    n = len(segments.lengths)
    top = np.bincount(key, centred * ticks, minlength=n)
    size = np.sqrt(np.bincount(key, centred**2, minlength=n) * np.bincount(key, ticks**2, minlength=n))
    return np.divide(top, size, out=np.zeros(n), where=size > 1e-12)[kept], kept


def _ranks(values: np.ndarray, key: np.ndarray) -> np.ndarray:
    """Average ranks from 0 within each key (keys in sequence)."""
    frame = pl.DataFrame({"key": key, "value": values})
    return frame.select(pl.col("value").rank("average").over("key") - 1).to_series().to_numpy()


def order_audit(turns: Turns, reward: Signal, *, least: float = 0.2) -> Finding:
    """Does the score rise with time where play succeeded? For a score of progress, not for a reward paid at the end.

    numbers: `voc` (mean over agents' episodes), `low`, `high` (95 %, Student's t), `episodes`. Warns below `least`.

    Raises:
        MissingColumnError: `episode` or `agent` is missing.
    """
    require(turns, "episode", "agent")
    solved = turns
    if "success" in turns.columns and turns["success"].any():
        solved = turns.filter(pl.col("success"))
    voc, kept = value_order_correlation(solved, reward)
    if len(voc) < 2:
        return Finding("value order", "cannot tell", f"{len(voc)} episodes of three turns or more that succeeded")
    mean, half = float(voc.mean()), float(stats.t.ppf(0.975, len(voc) - 1) * voc.std(ddof=1) / np.sqrt(len(voc)))
    numbers = {"voc": mean, "low": max(-1.0, mean - half), "high": min(1.0, mean + half), "episodes": float(len(voc))}
    sentence = (
        f"correlates with time at {mean:.2f} [{numbers['low']:.2f}, {numbers['high']:.2f}] over {len(voc)} episodes"
    )
    if mean >= least:
        return Finding("value order", "pass", sentence, numbers)
    segments = solved.segments("episode", "agent")
    order = np.arange(len(solved)) if segments.order is None else segments.order
    worst = int(kept[np.argmin(voc)])
    rows = order[segments.starts[worst] : segments.starts[worst] + segments.lengths[worst]][:5]
    return Finding("value order", "warn", sentence, numbers, prove(solved, rows, per_turn(solved, reward)))


def compare_rewards(turns: Turns, first: Signal, second: Signal, *, gamma: float = 1.0) -> Finding:
    """EPIC distance of two rewards on the table's own transitions, and how alike they order its episodes.

    numbers: `epic` (0 equal up to shaping, .71 unrelated, 1 opposite; in (0, 1) it is an estimate from what was played)
    and `rank` (Spearman correlation of episode sums). Warns above .5.
    """
    require(turns, "episode", "agent", "state")
    forms = [per_turn(turns, epic_canonical(reward, gamma=gamma)) for reward in (first, second)]
    codes = turns.codes("episode")
    sums = [np.bincount(codes.ids, per_turn(turns, reward), minlength=codes.size) for reward in (first, second)]
    rank = float(stats.spearmanr(*sums).statistic) if np.ptp(sums[0]) and np.ptp(sums[1]) else 0.0
    numbers = {"epic": _pearson_distance(*forms), "rank": rank}
    sentence = f"EPIC distance {numbers['epic']:.2f} on {len(turns)} transitions; episodes correlate at {rank:.2f}"
    return Finding("distance", "warn" if numbers["epic"] > 0.5 else "pass", sentence, numbers)
