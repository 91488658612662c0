"""Failure against success: does the best way to fail earn as much as a success does?

Loops are one way to be paid without solving the task. Others have no loop: a bonus for stopping early, a score of
style. What they have in common is that some unsuccessful episode earns what successful ones earn.
"""

from __future__ import annotations

import numpy as np
import polars as pl

from palaestra.algebra.codes import Codes
from palaestra.algebra.signals import Signal
from palaestra.algebra.turns import Turns
from palaestra.evaluation.audits.cycles import turn_positions
from palaestra.evaluation.audits.finding import Finding, evidence_rows, per_turn, require

SHAPING = "episodes of one start all earn the same, as under shaping: judge it together with the task's own reward"


def outcome_audit(turns: Turns, reward: Signal, *, gamma: float = 1.0, tolerance: float = 1e-6) -> Finding:
    """Audit (`Finding`) of a reward `Signal` on `Turns`: whether successful episodes earn more than unsuccessful ones.

    An episode's earning is its discounted return, summed over agents. Where agents of one episode differ in success,
    as in a game with a winner, each agent's part counts by itself.

    Args:
        turns: needs `episode`, `agent` and `success`; null successes are left out.
        reward: per turn or per token.
        gamma: discount per turn of an agent.
        tolerance: differences below this share of the largest reward are rounding.

    Returns:
        `fail` if the best failure earns at least the median success, `warn` if it earns more than the worst one.
        numbers: `best_failure`, `median_success`, `worst_success`, and the counts `failures` and `successes`.

    Raises:
        MissingColumnError: `episode` or `agent` is missing.
    """
    require(turns, "episode", "agent")
    if "success" not in turns.columns or turns["success"].is_null().all():
        return Finding("outcome", "cannot tell", "the table does not say what succeeded (a column `success`)")
    values = per_turn(turns, reward)
    codes, solved, known = _plays(turns)
    earned = np.bincount(codes.ids, gamma ** turn_positions(turns).astype(float) * values, minlength=codes.size)
    failures, successes = np.flatnonzero(known & ~solved), np.flatnonzero(known & solved)
    if not len(failures) or not len(successes):
        found = f"{len(successes)} successes and {len(failures)} failures"
        return Finding("outcome", "cannot tell", f"it takes both, here are {found}")
    margin = tolerance * float(np.abs(values).max())
    if depends_on_start(turns, codes, earned, margin):
        return Finding("outcome", "cannot tell", SHAPING)
    best = failures[np.argmax(earned[failures])]
    worst, median = float(earned[successes].min()), float(np.median(earned[successes]))
    numbers = {
        "best_failure": float(earned[best]),
        "median_success": median,
        "worst_success": worst,
        "failures": float(len(failures)),
        "successes": float(len(successes)),
    }
    sentence = (
        f"the best of {len(failures)} failures earns {earned[best]:.4g}, the median of {len(successes)} successes "
        f"{median:.4g}, the worst {worst:.4g}"
    )
    if earned[best] <= worst + margin and earned[best] < median - margin:
        return Finding("outcome", "pass", sentence, numbers)
    rows = np.flatnonzero(codes.ids == best)
    proof = evidence_rows(turns, rows[np.argsort(-values[rows], kind="stable")[:3]], values)
    if earned[best] >= median - margin:
        return Finding("outcome", "fail", f"{sentence}: failing pays as much as success", numbers, proof)
    return Finding("outcome", "warn", f"{sentence}: some successes pay less than a failure", numbers, proof)


def _plays(turns: Turns) -> tuple[Codes, np.ndarray, np.ndarray]:
    """Keys of episodes, or of (episode, agent) where success differs within one; bool per key: solved, and known."""
    success = turns["success"].cast(pl.Float64).to_numpy()
    known = ~np.isnan(success)
    for keys in (("episode",), ("episode", "agent")):
        codes = turns.codes(*keys)
        scored = np.bincount(codes.ids[known], minlength=codes.size)
        won = np.bincount(codes.ids[known], success[known] > 0, minlength=codes.size)
        if ((won == 0) | (won == scored)).all():
            break
    return codes, won > 0, scored > 0


def depends_on_start(turns: Turns, codes: Codes, earned: np.ndarray, margin: float) -> bool:
    """Whether plays (`Codes` of `Turns`) of one start have one return in array `earned`, though they differ in length.

    One return: to a margin.
    A start is a `group`, else the first state. Plays that were cut off are left out: shaping pays them differently.
    """
    first = np.full(codes.size, len(turns))
    np.minimum.at(first, codes.ids, np.arange(len(turns)))
    key = "group" if "group" in turns.columns else "state" if "state" in turns.columns else None
    if key is None:
        return False
    start = turns.codes(key).ids[first]
    whole = np.ones(codes.size, bool)
    if "truncated" in turns.columns:
        whole[codes.ids[turns["truncated"].fill_null(False).to_numpy()]] = False
    lengths = np.bincount(codes.ids, minlength=codes.size)
    frame = pl.DataFrame({"start": start, "earned": earned, "length": lengths}).filter(pl.Series(whole))
    starts = frame.group_by("start").agg(
        pl.col("earned").max() - pl.col("earned").min(), compared=pl.col("length").n_unique() > 1
    )
    return bool(starts["compared"].any()) and bool((starts["earned"] <= margin).all())
