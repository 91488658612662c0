"""Components: does one of them decide alone, and is one of them farmed?

A component is a column `r_<name>`. Left out: whether the weights are right; nobody knows that from a table.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

import numpy as np
import polars as pl
import scipy

from palaestra.algebra.signals import Signal, col
from palaestra.algebra.turns import Turns
from palaestra.evaluation.audits.finding import Finding, Verdict, evidence_rows, per_turn, require
from palaestra.foundation.scalars import float_or_zero

PREFIX = "r_"


def is_component(name: str) -> bool:
    """Whether a column name is that of a reward component: it begins with `r_`."""
    return name.startswith(PREFIX)


def component_columns(turns: Turns, reward: Signal | None = None) -> list[str]:
    """Names of numeric reward components (columns `r_…`) of `Turns`; given a reward `Signal`, those that it reads."""
    read = turns.columns if reward is None else reward.needs()
    return [
        n
        for n, t in turns.frame.schema.items()
        if is_component(n) and n in read and (t.is_numeric() or t == pl.Boolean)
    ]


def component_sum(turns: Turns) -> Signal:
    """Makes a `Signal` for `Turns`: sum of their `r_…` columns if it equals column `reward` everywhere, else `reward`.

    So audits can take the sum apart.
    """
    names = component_columns(turns)
    parts = reduce(Signal.__add__, map(col, names)) if names else col("reward")
    if not names or "reward" not in turns.columns:
        return parts
    alike = np.allclose(per_turn(turns, parts), per_turn(turns, col("reward")), atol=1e-6)
    return parts if alike else col("reward")


def episode_sums(turns: Turns, values: np.ndarray) -> np.ndarray:
    """Array float64[episodes]: sum over each episode of `Turns` of the given per-turn values, float64[rows]."""
    codes = turns.codes("episode")
    return np.bincount(codes.ids, values, minlength=codes.size)


def scale_sensitivity(turns: Turns, reward: Signal, *, factor: float = 10.0, least: float = 0.8) -> Finding:
    """Audit (`Finding`) of a reward `Signal` on `Turns`: whether scaling a component by `factor` keeps episodes' order.

    Scaled by `factor` and by 1 / factor.
    numbers: per component the smaller Spearman correlation of episode sums before and after, and `top` (overlap of the
    best tenth). A sum of components depends on their scales; a lexicographic order (arXiv 2309.02632), a product or
    signs do not. Warns if a correlation is below `least`.

    Raises:
        MissingColumnError: `episode` is missing.
    """
    require(turns, "episode")
    names = component_columns(turns, reward)
    if not names:
        why = f"the reward reads no component (a column {PREFIX}<name>)"
        return Finding("scale", "cannot tell", why)
    before = _levels(turns, per_turn(turns, reward))
    if len(before) < 3 or np.ptp(before) == 0:
        return Finding("scale", "cannot tell", f"{len(before)} episodes, all of one score: there is no order to keep")
    best = set(np.argsort(-before, kind="stable")[: max(1, len(before) // 10)].tolist())
    numbers, overlaps = {}, []
    for name in names:
        kept = []
        for times in (factor, 1 / factor):
            rescaled = turns.with_column(**{name: times * col(name)})
            after = _levels(turns, per_turn(rescaled, reward))
            kept.append(float(scipy.stats.spearmanr(before, after).statistic) if np.ptp(after) else 0.0)
            top = np.argsort(-after, kind="stable")[: len(best)].tolist()
            overlaps.append(len(best & set(top)) / len(best))
        numbers[name] = min(kept)
    weakest = min(numbers, key=lambda name: numbers[name])
    numbers["top"] = min(overlaps)
    sentence = (
        f"×{factor:g} on {weakest} leaves {len(before)} episodes in an order that correlates at {numbers[weakest]:.2f} "
        f"({numbers['top']:.0%} of the best tenth stay)"
    )
    return Finding("scale", "warn" if numbers[weakest] < least else "pass", sentence, numbers)


def _levels(turns: Turns, values: np.ndarray) -> np.ndarray:
    """int64[episodes]: the place of an episode's sum among all; sums that differ by rounding have the same."""
    sums, size = episode_sums(turns, values), episode_sums(turns, np.abs(values)).max(initial=0.0)
    order = np.argsort(sums, kind="stable")
    levels = np.zeros(len(sums), np.int64)
    levels[order[1:]] = np.cumsum(np.diff(sums[order]) > 1e-9 * size)
    return levels


def reward_shares(turns: Turns, names: Sequence[str]) -> dict[str, float]:
    """Dict: share of each column of `names` in the reward, its total absolute value in `Turns` over all theirs."""
    sizes = {n: float(np.abs(per_turn(turns, col(n))).sum()) for n in names}
    whole = sum(sizes.values())
    return {n: size / whole if whole else 0.0 for n, size in sizes.items()}


def _solved(turns: Turns) -> float:
    """Share of episodes, long or short; each agent's counts where there are agents."""
    keys = turns.key_columns(["episode", "agent"] if "agent" in turns.columns else ["episode"])
    return float_or_zero(turns.frame.group_by(keys).agg(pl.col("success").max())["success"].mean())


def component_farming(turns: Turns, reward: Signal, *, rise: float = 0.2) -> Finding:
    """Audit (`Finding`) of a reward `Signal` on `Turns`: whether return moved to one component without more success.

    Compares the first with the last fifth of the iterations. numbers: `before_<name>`, `after_<name>` (shares of the
    return), `success_before`, `success_after` (of episodes, of each agent's). Fails if a share rose by `rise` and
    success fell, warns if success did not rise.

    Raises:
        MissingColumnError: `episode` is missing.
    """
    require(turns, "episode")
    names = component_columns(turns, reward) or component_columns(turns)
    if len(names) < 2 or "iteration" not in turns.columns:
        why = (
            "it takes two components and an `iteration` column" if names else f"no component (a column {PREFIX}<name>)"
        )
        return Finding("farming", "cannot tell", f"nothing to compare: {why}")
    iteration = turns["iteration"].to_numpy()
    low, high = np.quantile(np.unique(iteration), [0.2, 0.8])
    if low == high:
        return Finding("farming", "cannot tell", "one iteration: nothing has been trained yet")
    early, late = (turns.filter(mask) for mask in (pl.col("iteration") <= low, pl.col("iteration") >= high))
    first, then = reward_shares(early, names), reward_shares(late, names)
    name = max(names, key=lambda n: then[n] - first[n])
    numbers = {f"before_{n}": first[n] for n in names} | {f"after_{n}": then[n] for n in names}
    sentence = f"{name} went from {first[name]:.0%} to {then[name]:.0%} of the return"
    if "success" not in turns.columns or turns["success"].is_null().all():
        verdict: Verdict = "warn" if then[name] - first[name] > rise else "pass"
        return Finding("farming", verdict, f"{sentence}; the table does not say what succeeded", numbers)
    solved = [_solved(early), _solved(late)]
    numbers |= {"success_before": solved[0], "success_after": solved[1]}
    sentence += f" while success went from {solved[0]:.0%} to {solved[1]:.0%}"
    if then[name] - first[name] <= rise or solved[1] > solved[0]:
        return Finding("farming", "pass", sentence, numbers)
    values = per_turn(turns, col(name))
    rows = np.flatnonzero(iteration >= high)
    worst = rows[np.argsort(-values[rows], kind="stable")[:3]]
    verdict = "fail" if solved[1] < solved[0] else "warn"
    return Finding("farming", verdict, sentence, numbers, evidence_rows(turns, worst, values))
