"""Value-order correlation: does a score rise along play that succeeds? And two rewards on one table: how far apart?"""

from __future__ import annotations

import numpy as np
import scipy

from palaestra.algebra.signals import Signal, count, evaluate, highest
from palaestra.algebra.turns import Turns
from palaestra.evaluation.audits.cycles import turn_positions
from palaestra.evaluation.audits.distance import table_starc
from palaestra.evaluation.audits.finding import Finding, evidence_rows, per_turn, require, scores
from palaestra.evaluation.audits.outcome import SHAPING, depends_on_start
from palaestra.rewards.shaping.potential import voc


def value_order_correlation(turns: Turns, score: Signal) -> tuple[np.ndarray, np.ndarray]:
    """(correlations, segment numbers): value-order correlation of a `Signal` in agents' episodes of >= 3 scored turns.

    Of `Turns`; in [-1, 1].
    arXiv 2512.23703.

    1 for a score that always rises, -1 for the same play reversed, 0 where the score is constant.
    """
    segments = turns.segments("episode", "agent")
    order = np.arange(len(turns)) if segments.order is None else segments.order
    plain = turns.with_column(score=scores(turns, score))
    found, number = (np.asarray(x) for x in evaluate(plain, voc("score"), count("score", over=("episode", "agent"))))
    first = order[segments.starts[segments.lengths > 0]]
    kept = np.flatnonzero(number[first] >= 3)
    return found[first[kept]], kept


def order_audit(turns: Turns, reward: Signal, *, gamma: float = 1.0, least: float = 0.2) -> Finding:
    """Audit (`Finding`) of a reward `Signal` on `Turns`: whether it rises in successful episodes, as progress should.

    Not meant for a reward at the end.

    numbers: `voc` (mean over agents' episodes), `low`, `high` (95 %, Student's t), `episodes`. Warns below `least`.
    Shaping is no score of progress but its difference, so of it nothing is said. gamma: discount of the return.

    Raises:
        MissingColumnError: `episode` or `agent` is missing.
    """
    require(turns, "episode", "agent")
    codes = turns.codes("episode")
    values = per_turn(turns, reward)
    earned = np.bincount(codes.ids, gamma ** turn_positions(turns).astype(float) * values, minlength=codes.size)
    if np.ptp(values) and depends_on_start(turns, codes, earned, 1e-6 * float(np.abs(values).max())):
        return Finding("order", "cannot tell", SHAPING)
    solved = turns
    if "success" in turns.columns and turns["success"].any():
        solved = turns.filter(highest("success", over=("episode", "agent")))  # some tell it on the last turn only
    found, kept = value_order_correlation(solved, reward)
    if len(found) < 2:
        which = "with three scored turns or more" + (" that succeeded" if solved is not turns else "")
        return Finding("order", "cannot tell", f"it takes two episodes {which}, here are {len(found)}")
    mean, half = (
        float(found.mean()),
        float(scipy.stats.t.ppf(0.975, len(found) - 1) * found.std(ddof=1) / np.sqrt(len(found))),
    )
    numbers = {"voc": mean, "low": max(-1.0, mean - half), "high": min(1.0, mean + half), "episodes": float(len(found))}
    sentence = (
        f"correlates with time at {mean:.2f} [{numbers['low']:.2f}, {numbers['high']:.2f}] over {len(found)} episodes"
    )
    if mean >= least:
        return Finding("order", "pass", sentence, numbers)
    segments = solved.segments("episode", "agent")
    order = np.arange(len(solved)) if segments.order is None else segments.order
    worst = int(kept[np.argmin(found)])
    rows = order[segments.starts[worst] : segments.starts[worst] + segments.lengths[worst]][:5]
    return Finding("order", "warn", sentence, numbers, evidence_rows(solved, rows, per_turn(solved, reward)))


def compare_rewards(
    turns: Turns, first: Signal, second: Signal, *, gamma: float = 1.0, canonical: bool = True
) -> Finding:
    """Audit (`Finding`): STARC distance of two reward `Signal`s on `Turns`, and rank correlation of episode sums.

    numbers: `starc` (0 equal up to shaping and redistribution, .71 unrelated, 1 opposite; see `canonical_on_table`) and
    `rank` (Spearman correlation of episode sums). Warns above .5. canonical: False compares them as they are.

    Raises:
        MissingColumnError: `episode`, `agent` or `state` is missing.
        InputError: the process cannot be known from the table.
    """
    require(turns, "episode", "agent", "state")
    paid = np.stack([per_turn(turns, reward) for reward in (first, second)])
    if not any(np.ptp(each) for each in paid):
        return Finding("distance", "cannot tell", f"both pay the same everywhere on {len(turns)} transitions")
    codes = turns.codes("episode")
    sums = [np.bincount(codes.ids, each, minlength=codes.size) for each in paid]
    rank = float(scipy.stats.spearmanr(*sums).statistic) if np.ptp(sums[0]) and np.ptp(sums[1]) else 0.0
    numbers = {"starc": table_starc(turns, paid, gamma=gamma, canonical=canonical), "rank": rank}
    sentence = f"STARC distance {numbers['starc']:.2f} on {len(turns)} transitions; episodes correlate at {rank:.2f}"
    return Finding("distance", "warn" if numbers["starc"] > 0.5 else "pass", sentence, numbers)
