"""Pairs: which of two rows or episodes is better, as the long table `PAIRS`; who fits or trains reads that table.

A pairing is a function from a table of turns to its pairs; the presets make one, and a recipe names it by text:
`alternate(pairs='verified_vs_corrupted("rule")')`. `chosen` and `rejected` are numbers of rows: the first row of a unit
stands for it. What is left out: comparisons that cost a call, which a judge's verdicts are made of.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Literal

import numpy as np
import polars as pl

from palaestra.algebra.kernels import Evaluation
from palaestra.algebra.keys import joined
from palaestra.algebra.parse import parse
from palaestra.algebra.samples import exceeds
from palaestra.algebra.signals import Keys, Signal, SignalLike, as_signal, evaluate, mean
from palaestra.algebra.turns import Turns
from palaestra.errors import InputError, MissingColumnError, need_columns
from palaestra.foundation.registry import Registry
from palaestra.judges.protocol import PAIRS, Scorer
from palaestra.judges.scorers import build as build_scorer
from palaestra.rewards.judged.pairs import within

Pairing = Callable[[Turns], pl.DataFrame]
PAIRINGS: Registry[Pairing] = Registry(
    "pairing",
    home=("palaestra.judges.pairs", "palaestra.judges.matched", "palaestra.judges.value_pairs"),
    example='best_vs_worst("reward")',
)
"""Pair builders by the names that recipes take."""

Compare = Callable[[pl.DataFrame, pl.DataFrame], np.ndarray]
"""Rows of both sides to 1, 0 or -1 per pair: a pairwise judge, or a rule."""

TABLE: Final = {"group": pl.Int64, **PAIRS}


def pairs(
    turns: Turns,
    comparator: SignalLike | Compare,
    by: Keys = "group",
    *,
    match_on: Keys = (),
    min_gap: float = 0.0,
    ties: Literal["drop", "keep"] = "drop",
    unit: Keys = "episode",
    source: str = "pairs",
) -> pl.DataFrame:
    """Table of preference pairs (`group`, `PAIRS`) of all units of each key of `Turns`, by a signal or a function.

    Args:
        turns: the table that the pairs refer to by row number.
        comparator: a signal, or its text, of which more is better: its mean over the unit; a unit where that is missing
            takes no part, and the difference is the pair's margin. Or a function of both sides' rows.
        by: units of one value are compared.
        match_on: further columns that must be equal on both sides, so that what they hold cannot decide
            (content-matched pairs [185]).
        min_gap: a difference of the signal up to this is a tie.
        ties: dropped, or kept with `tie` true and margin 0.
        unit: what is a side of a pair.
        source: what the column `source` says.

    Raises:
        InputError: min_gap is negative, or ties is something else; a judge gives something else than 1, 0, -1.

    >>> turns = Turns({"group": [0] * 3, "episode": [0, 1, 2], "reward": [1.0, 0.0, 1.0]})
    >>> pairs(turns, "reward").select("chosen", "rejected", "margin").rows()
    [(0, 1, 1.0), (2, 1, 1.0)]
    """
    if not min_gap >= 0 or ties not in ("drop", "keep"):
        raise InputError(f"pairs: min_gap={min_gap} must not be negative, ties={ties!r} is 'drop' or 'keep'")
    signal = None if callable(comparator) and not isinstance(comparator, Signal) else _signal(comparator)
    key = (*_names(by), *_names(match_on))
    rows, value, ids = _units(turns, signal, key, unit)
    first, second = within(ids)
    if signal is not None:
        one, other = value[first], value[second]
        gap = one - other
        label = exceeds(one, other + min_gap).astype(float) - exceeds(other, one + min_gap)
    else:
        label = np.asarray(comparator(turns.frame[rows[first]], turns.frame[rows[second]]), float)  # type: ignore[operator]
        gap = label
        if label.shape != first.shape or not np.isin(label, (-1, 0, 1)).all():
            raise InputError(f"pairs: the comparator must give 1, 0 or -1 for each of {len(first)} pairs")
    kept = label != 0 if ties == "drop" else np.ones(len(label), bool)
    ahead, behind = np.where(label >= 0, first, second)[kept], np.where(label >= 0, second, first)[kept]
    margin = np.where(label == 0, 0.0, np.abs(gap))[kept]
    return table(turns, rows[ahead], rows[behind], margin=margin, tie=label[kept] == 0, source=source)


def table(
    turns: Turns,
    chosen: np.ndarray,
    rejected: np.ndarray,
    *,
    margin: np.ndarray | float | None = None,
    tie: np.ndarray | bool = False,
    criterion: list[str] | None = None,
    source: str = "given",
) -> pl.DataFrame:
    """Table of preference pairs (`PAIRS`) of `Turns`, of arrays of row numbers `chosen`, `rejected`; `group` of chosen.

    group: 0 where the turns have none.
    """
    frame = turns.frame
    group = frame["group"].to_numpy()[chosen] if "group" in frame.columns else np.zeros(len(chosen), np.int64)
    size = len(chosen)

    def spread(value: object) -> object:
        return np.broadcast_to(np.asarray(value), size)

    return pl.DataFrame(
        {
            "group": group,
            "chosen": chosen,
            "rejected": rejected,
            "criterion": [None] * size if criterion is None else criterion,
            "weight": np.ones(size),
            "margin": [None] * size if margin is None else spread(margin),
            "source": [source] * size,
            "tie": spread(tie),
        },
        schema_overrides=TABLE,
    )


def _names(keys: Keys) -> tuple[str | Signal, ...]:
    return (keys,) if isinstance(keys, str | Signal) else tuple(keys)  # type: ignore[arg-type]


def _signal(given: SignalLike) -> Signal:
    return parse(given) if isinstance(given, str) and not given.isidentifier() else as_signal(given)


def _units(turns: Turns, signal: Signal | None, key: Keys, unit: Keys) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Of each unit whose signal is known: its first row, its mean and the code of its key."""
    codes = Evaluation(turns).codes(joined(unit)).ids
    _, rows = np.unique(codes, return_index=True)
    rows = np.sort(rows)
    value = np.ones(len(turns)) if signal is None else np.asarray(evaluate(turns, mean(signal, over=unit))[0], float)
    rows = rows[~np.isnan(value[rows])]
    return rows, value[rows], Evaluation(turns).codes(joined(key)).ids[rows]


def _text(turns: Turns, name: str, what: str) -> pl.Series:
    need_columns(what, turns.columns, [name])
    return turns.frame[name].cast(pl.String)


def _mask(turns: Turns, given: SignalLike) -> np.ndarray:
    """Where a signal is 1; a missing one is not. A column of texts is where there is one."""
    if isinstance(given, str) and given in turns.columns and turns.frame[given].dtype in (pl.String, pl.Categorical):
        return turns.frame[given].is_not_null().to_numpy()
    return np.asarray(np.asarray(evaluate(turns, _signal(given))[0], float) == 1)


def _first(ids: np.ndarray, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Codes that occur in these rows, and the first row of each."""
    found, at = np.unique(ids[rows], return_index=True)
    return found, rows[at]


# -- presets -----------------------------------------------------------------------------------------------------------


@PAIRINGS.register()
def best_vs_worst(score: SignalLike = "reward", by: Keys = "group", *, min_gap: float = 0.0, unit: Keys = "episode",
                  source: str = "best_vs_worst") -> Pairing:  # fmt: skip
    """Makes a pairing rule (turns -> pairs): per key, the unit of highest mean score is preferred to the lowest.

    Of equal units the first counts.

    A key whose scores are within `min_gap` of each other has no pair.
    """
    signal = _signal(score)
    if not min_gap >= 0:
        raise InputError(f"{source}: min_gap={min_gap} must not be negative")

    def build(turns: Turns) -> pl.DataFrame:
        rows, value, ids = _units(turns, signal, by, unit)
        order = np.lexsort((rows, -value, ids))
        _, best = _first(ids, order)
        order = np.lexsort((rows, value, ids))
        _, worst = _first(ids, order)
        gap = value[best] - value[worst]
        kept = exceeds(value[best], value[worst] + min_gap)
        return table(turns, rows[best][kept], rows[worst][kept], margin=gap[kept], source=source)

    return build


@PAIRINGS.register()
def all_pairs(
    score: SignalLike = "reward",
    by: Keys = "group",
    *,
    match_on: Keys = (),
    min_gap: float = 0.0,
    unit: Keys = "episode",
) -> Pairing:
    """Makes a pairing rule (turns -> pairs): all pairs of units of a key, the one of higher mean score preferred.

    See `pairs`. match_on: both sides are equal in it ([185]).
    """
    signal = _signal(score)
    return lambda turns: pairs(turns, signal, by, match_on=match_on, min_gap=min_gap, unit=unit, source="all_pairs")


@PAIRINGS.register()
def original_vs_regenerated(
    judge: str | Scorer, *, original: str = "original", by: Keys = "group", min_gap: float = 0.0
) -> Pairing:
    """Makes a pairing rule (turns -> pairs): an original beats its regenerations, which scorer `judge` orders; [185].

    DocReward, arXiv 2510.11391.

    The original of a person wins over every regenerated one. Of two regenerated ones that wins which the judge gives
    more beside the original, its reference; within `min_gap` they tie. A content without an original has no pair.
    """
    scorer = build_scorer(judge)

    def build(turns: Turns) -> pl.DataFrame:
        human, ids = _mask(turns, original), Evaluation(turns).codes(joined(by)).ids
        keys, first = _first(ids, np.flatnonzero(human))
        place = np.full(ids.max(initial=-1) + 1, -1)
        place[keys] = first
        made = np.flatnonzero(~human & (place[ids] >= 0))
        given = scorer.score(turns.frame[made], reference=turns.frame[place[ids[made]]])
        value = np.full(len(turns), np.nan)
        value[made] = given.cast(pl.Float64).fill_null(np.nan).to_numpy()
        one, other = within(ids[made])
        first, second = value[made[one]], value[made[other]]
        ahead, behind = exceeds(first, second + min_gap), exceeds(second, first + min_gap)
        decided = ahead | behind
        better, worse = np.where(ahead, one, other)[decided], np.where(ahead, other, one)[decided]
        chosen = np.concatenate([place[ids[made]], made[better]])
        rejected = np.concatenate([made, made[worse]])
        return table(turns, chosen, rejected, source="original_vs_regenerated")

    return build


@PAIRINGS.register()
def siblings(q: SignalLike = "q", *, state: Keys = "state", action: str = "action", min_gap: float = 0.0) -> Pairing:
    """Makes a pairing rule (turns -> pairs): in each state the action of highest mean q is preferred to the lowest.

    Step-level Q [68] (arXiv 2409.09345).

    States whose actions are worth the same have no pair. The first row with the action stands for it. That the
    rejected one is the lowest is a reconstruction of the paper.
    """
    return best_vs_worst(q, state, min_gap=min_gap, unit=(*_names(state), action), source="siblings")


@PAIRINGS.register()
def verified_vs_corrupted(verified: SignalLike = "rule", corrupted: str = "corrupted", by: Keys = "group") -> Pairing:
    """Makes a pairing rule (turns -> pairs): per key, the first accepted row is preferred to the first corrupted one.

    Cooper [10] (arXiv 2508.05613): a precise rule accepts, the second is known to be wrong.
    A key without either has none.

    What the rule refuses is nobody's negative: it may be right in words that the rule does not read.
    """

    def build(turns: Turns) -> pl.DataFrame:
        if corrupted not in turns.columns:
            raise MissingColumnError(f"verified_vs_corrupted: no column {corrupted!r}; add rows with corrupt()")
        wrong, ids = _mask(turns, corrupted), Evaluation(turns).codes(joined(by)).ids
        right, chosen = _first(ids, np.flatnonzero(_mask(turns, verified) & ~wrong))
        bad, rejected = _first(ids, np.flatnonzero(wrong))
        _, one, other = np.intersect1d(right, bad, assume_unique=True, return_indices=True)
        return table(turns, chosen[one], rejected[other], source="verified_vs_corrupted")

    return build


@PAIRINGS.register()
def current_vs_reference(reference: SignalLike = "reference", by: Keys = "group", *, text: str = "action") -> Pairing:
    """Makes a pairing rule (turns -> pairs): per key, the first reference row is preferred to every other row.

    PRefLexOR's pairs [105] (arXiv 2410.12375).

    Rows that say the same as the reference are ties, and dropped. With rows of people as reference: human_vs_generated.
    """

    def build(turns: Turns) -> pl.DataFrame:
        said = _text(turns, text, "current_vs_reference")
        ids, given = Evaluation(turns).codes(joined(by)).ids, _mask(turns, reference)
        keys, first = _first(ids, np.flatnonzero(given))
        place = np.full(ids.max(initial=-1) + 1, -1)
        place[keys] = first
        rejected = np.flatnonzero(~given & (place[ids] >= 0))
        chosen = place[ids[rejected]]
        kept = said[rejected].ne_missing(said[chosen]).to_numpy()
        return table(turns, chosen[kept], rejected[kept], source="current_vs_reference")

    return build


@PAIRINGS.register()
def hindsight(intent: str, by: Keys = (), *, unit: Keys = "episode", seed: int = 0) -> Pairing:
    """Makes a pairing rule (turns -> pairs): for what an episode achieved (column `intent`), it beats one that did not.

    What it achieved is the pair's intent, and the other one achieved something else.

    ARMAP's triplets [17] (arXiv 2502.12130).

    intent: a column that says, after the fact, what the unit achieved (its last turn counts); it is the pair's
    `criterion`, which the score is conditioned on. The negative is drawn from the units of the key that achieved
    something else; a unit without one, or without an intent, has no pair.
    """

    def build(turns: Turns) -> pl.DataFrame:
        told = _text(turns, intent, "hindsight")
        evaluation = Evaluation(turns)
        _, first = np.unique(evaluation.codes(joined(unit)).ids, return_index=True)
        played = evaluation.segments(joined(unit))
        last = played.starts + played.lengths - 1
        said = told[last if played.order is None else played.order[last]]
        known = np.flatnonzero(said.is_not_null().to_numpy())
        rows, wish = first[known], said.gather(known).to_numpy()
        key = evaluation.codes(joined(by)).ids[rows]
        _, goal = np.unique(wish.astype(str), return_inverse=True)
        order = np.lexsort((goal, key))
        key, goal, rows, wish = key[order], goal[order], rows[order], wish[order]
        start, size = _blocks(key)
        own, same = _blocks(key * (goal.max(initial=0) + 1) + goal)
        others = size - same
        draw = np.random.default_rng(seed).integers(0, np.maximum(others, 1))
        other = start + (own - start + same + draw) % size  # behind those of the same intent, round the key
        kept = others > 0
        found = table(turns, rows[kept], rows[other][kept], criterion=wish[kept].tolist(), source="hindsight")
        return found.sort("chosen")

    return build


def _blocks(sorted_ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Of each element the place where its run of equal ids begins, and how long that is."""
    if not len(sorted_ids):
        return np.zeros(0, np.int64), np.ones(0, np.int64)
    begin = np.flatnonzero(np.concatenate([[True], sorted_ids[1:] != sorted_ids[:-1]]))
    size = np.diff(np.append(begin, len(sorted_ids)))
    return np.repeat(begin, size), np.repeat(size, size)


# -- for terms that read pairs -----------------------------------------------------------------------------------------


def marked(turns: Turns, found: pl.DataFrame, *, unit: Keys = "episode") -> Turns:
    """A copy of `Turns` with columns `pair` and `chosen` of a table of pairs, as `dpo()` reads; ties are left out.

    All rows of a unit are its side of the pair. A unit in several pairs has its rows once for each; rows in no pair
    stay as they are, with both columns null.
    """
    decided = found.filter(~pl.col("tie"))
    codes = pl.Series(Evaluation(turns).codes(joined(unit)).ids)
    rows = pl.DataFrame({"unit": codes, "row": np.arange(len(turns))})
    sides = pl.concat(
        pl.DataFrame({"pair": np.arange(decided.height), "unit": codes.gather(decided[side])}).with_columns(
            chosen=pl.lit(side == "chosen")
        )
        for side in ("chosen", "rejected")
    )
    joined_rows = rows.join(sides, on="unit", how="left").sort("pair", "row", nulls_last=True)
    frame = turns.frame[joined_rows["row"].to_numpy()]
    return Turns(frame.with_columns(joined_rows["pair"], joined_rows["chosen"]))
