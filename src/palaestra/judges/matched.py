"""Pairs that teach a reward model one thing only: who played, whatever the prompt; or one principle, whatever the rest.

Both give the long table `PAIRS` with a column more: `reference`, a row number, or `condition`, a list of numbers; that
is what `palaestra fit-reward` reads.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import polars as pl

from palaestra.algebra.turns import Turns
from palaestra.errors import InputError, MissingColumnError, nearest, need_columns
from palaestra.judges.aggregate import swap_consistent
from palaestra.judges.pairs import PAIRINGS, Pairing
from palaestra.judges.protocol import PAIRS


def pairs_table(chosen: np.ndarray, rejected: np.ndarray, source: str, **more: pl.Series | np.ndarray) -> pl.DataFrame:
    """Table of preference pairs (`PAIRS`) of arrays of row numbers `chosen`, `rejected` and a text `source`; weight 1.

    No margin.

    There are no ties either. more: further columns.
    """
    count = len(chosen)
    plain: dict[str, Any] = {"weight": np.ones(count), "source": [source] * count, "tie": np.zeros(count, bool)}
    found = {"chosen": chosen, "rejected": rejected} | plain
    blank = {name: pl.Series(name, [None] * count, kind) for name, kind in PAIRS.items() if name not in found}
    typed = {name: pl.Series(name, value, PAIRS[name]) for name, value in found.items()}
    return pl.DataFrame({name: (typed | blank)[name] for name in PAIRS} | more)


def policy_pairs(
    rows: pl.DataFrame, *, policy: str = "policy", by: Sequence[str] = ("group",), seed: int = 0, passes: int = 1
) -> pl.DataFrame:
    """Table of POLAR's [212] unlabelled pairs of rows: `reference`, `chosen` of one policy, `rejected` of another.

    arXiv 2507.05197.

    All three answer one prompt (`by`). Every row is chosen `passes` times, with a random reference and a random
    rejected row; where its policy has no second row, or there is no other policy, it is not.

    Raises:
        MissingColumnError: a column is not there. InputError: no prompt has two rows of one policy beside another.
    """
    for name in (policy, *by):
        if name not in rows.columns:
            raise MissingColumnError(f"policy_pairs: no column {name!r}{nearest(name, rows.columns)}")
    keys = rows.select(
        group=pl.struct(*by).rank("dense") if by else pl.lit(1, pl.UInt32),
        own=pl.struct(*by, policy).rank("dense"),
        who=pl.col(policy),
    )
    group, own = (keys[name].to_numpy().astype(np.int64) for name in ("group", "own"))
    order = np.lexsort([own, group])
    group, own = group[order], own[order]  # rows of a policy stand together, inside those of their prompt

    def spans(code: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        starts = np.flatnonzero(np.r_[True, code[1:] != code[:-1]]) if len(code) else np.zeros(0, np.int64)
        sizes = np.diff(np.r_[starts, len(code)])
        return np.repeat(starts, sizes), np.repeat(sizes, sizes)

    (first, many), (start, mine) = spans(group), spans(own)
    known = keys["who"].is_not_null().to_numpy()[order]
    at = np.tile(np.flatnonzero((mine > 1) & (many > mine) & known), passes)
    if not len(at):
        raise InputError(f"policy_pairs: no {' and '.join(by) or 'table'} has two rows of one policy beside another's")
    rng = np.random.default_rng(seed)
    other = start[at] + rng.integers(mine[at] - 1)
    other += other >= at  # any of its own but itself
    against = first[at] + rng.integers(many[at] - mine[at])
    against += np.where(against >= start[at], mine[at], 0)  # any of the prompt but its own
    reference = pl.Series("reference", order[other], pl.UInt32)
    return pairs_table(order[at], order[against], "policies", reference=reference)


def principle_scores(lead: np.ndarray) -> np.ndarray:
    """Array float64[pairs, principles]: `lead` of the pairs' first answers, divided by each principle's variance.

    The variance and not its root, as SALMON's code has it; a principle that never decides stays 0.

    >>> principle_scores(np.array([[2.0, 0.0], [-2.0, 0.0]]))
    array([[ 0.5,  0. ],
           [-0.5,  0. ]])
    """
    known = np.isfinite(lead)
    count = np.maximum(known.sum(axis=0), 1)
    middle = np.where(known, lead, 0.0).sum(axis=0) / count
    variance = np.where(known, (lead - middle) ** 2, 0.0).sum(axis=0) / count
    return np.asarray(lead / np.where(variance > 0, variance, 1.0))


def principle_pairs(
    first: np.ndarray,
    second: np.ndarray,
    scores: np.ndarray,
    *,
    passes: int = 4,
    stop: float = 0.2,
    most: int = 8,
    negate: float = 0.5,
    flip: float = 0.1,
    seed: int = 0,
) -> pl.DataFrame:
    """Table of SALMON's [188] `chosen`, `rejected` rows by random principles from leads [pairs, principles].

    arXiv 2310.05910. `condition` has 1 for each principle, -1 if negated.

    In each pass a pair gets min(Geometric(stop), most) random principles, each negated with chance `negate`, which
    turns its score; the answer is preferred that the principle with the largest |score| prefers. Pairs that it does
    not decide are left out, and a share `flip` of the labels is turned.

    Args:
        first: row numbers of one answer, int[pairs].
        second: row numbers of the other, int[pairs].
        scores: lead of the first by each principle, float64[pairs, principles], see `principle_scores` and
            `judges.aggregate.swap_consistent`; NaN: unknown.
        passes: how often principles are drawn for each pair.
        stop: parameter of the geometric number of principles, in (0, 1].
        most: most principles at once.
        negate: chance that a principle is negated.
        flip: share of the labels that is turned.
        seed: of the draws.

    Raises:
        InputError: a share is not in [0, 1], `stop` is 0, or the arrays do not fit.
    """
    if not (len(first) == len(second) == len(scores)) or scores.ndim != 2 or not scores.shape[1]:
        raise InputError(f"principle_pairs: {len(first)} and {len(second)} rows for scores of shape {scores.shape}")
    if not (0 < stop <= 1 and 0 <= negate <= 1 and 0 <= flip <= 1 and most >= 1 and passes >= 1):
        raise InputError(
            f"principle_pairs: stop={stop}, negate={negate} and flip={flip} must be in [0, 1], stop above "
            f"0, most={most} and passes={passes} at least 1"
        )
    rng = np.random.default_rng(seed)
    lead, count = np.nan_to_num(np.tile(scores, (passes, 1))), len(first) * passes
    principles = scores.shape[1]
    number = np.minimum(rng.geometric(stop, count), min(most, principles))
    drawn = rng.random((count, principles)).argsort(1).argsort(1) < number[:, None]
    condition = drawn * np.where(rng.random((count, principles)) < negate, -1.0, 1.0)
    turned = lead * condition
    decides = np.abs(turned).argmax(1)
    best = turned[np.arange(count), decides]
    wins = np.where(rng.random(count) < flip, -best, best) > 0
    kept = best != 0
    a, b = np.tile(first, passes), np.tile(second, passes)
    given = pl.Series("condition", condition[kept].tolist(), pl.List(pl.Float64))
    return pairs_table(np.where(wins, a, b)[kept], np.where(wins, b, a)[kept], "principles", condition=given)


# -- by the names that recipes and commands take -----------------------------------------------------------------------


@PAIRINGS.register("policy_pairs")
def by_policy(policy: str = "policy", by: str | Sequence[str] = "group", *, seed: int = 0, passes: int = 1) -> Pairing:
    """Makes a pairing rule (turns -> pairs): own row chosen, another policy's rejected, own one as reference [212].

    Two rows of one policy against one of another, of the same `by`; see `policy_pairs`.
    """
    keys = (by,) if isinstance(by, str) else tuple(by)
    return lambda turns: policy_pairs(turns.frame, policy=policy, by=keys, seed=seed, passes=passes)


@PAIRINGS.register("principle_pairs")
def by_principle(lead: str = "lead", swapped: str = "swapped", by: str = "group", **options: Any) -> Pairing:
    """Makes a pairing rule (turns -> pairs): the first two rows of each key under random principles [188].

    See `principle_pairs`.

    lead, swapped: lists, on the first row: by how much a judge preferred it under each principle, shown first and shown
    second. The condition has a place for each principle and one for each negation, which is another sentence.
    """

    def build(turns: Turns) -> pl.DataFrame:
        need_columns("principle_pairs", turns.columns, [lead, swapped, by])
        rows = turns.frame.select(by, lead, swapped).with_row_index("row")
        two = rows.group_by(by, maintain_order=True).agg(
            pl.col("row").first().alias("first"), pl.col("row").get(1, null_on_oob=True).alias("second"),
            pl.col(lead, swapped).first(),
        ).drop_nulls()  # fmt: skip
        asked = (np.array(two[name].to_list(), float) for name in (lead, swapped))
        scores = principle_scores(swap_consistent(*asked))
        found = principle_pairs(two["first"].to_numpy(), two["second"].to_numpy(), scores, **options)
        signs = np.array(found["condition"].to_list(), float).reshape(len(found), -1)
        both = np.concatenate([signs > 0, signs < 0], 1).astype(float)
        return found.with_columns(condition=pl.Series(both.tolist(), dtype=pl.List(pl.Float64)))

    return build
