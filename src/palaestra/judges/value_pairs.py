"""Pairs by value: siblings of one key, chosen above rejected by a gap, and never two answers that say nearly the same.

What MALT (arXiv 2412.01928), Agent-R (2501.11425), SPORT (2504.21561) and Retroformer (2308.02151) learn from differs
in which candidates may be chosen, which rejected, and how far apart they must be. `mine` says how many candidates each
rule left; `value_pairs` is the same as a pairing for recipes.
"""

from __future__ import annotations

import difflib
from typing import Literal, get_args

import numpy as np
import polars as pl

from palaestra.algebra.kernels import Evaluation
from palaestra.algebra.keys import joined
from palaestra.algebra.samples import exceeds
from palaestra.algebra.signals import Keys, SignalLike
from palaestra.algebra.turns import Turns
from palaestra.errors import InputError, nearest
from palaestra.judges.pairs import PAIRINGS, Pairing, _mask, _signal, _text, _units, table
from palaestra.rewards.judged.pairs import within

Per = Literal["best_worst", "best_rest", "all"]


def mine(
    turns: Turns,
    score: SignalLike = "reward",
    by: Keys = "group",
    *,
    per: Per = "all",
    min_gap: float = 0.0,
    min_chosen: float | None = None,
    max_rejected: float | None = None,
    distinct: float | None = None,
    failed: SignalLike | None = None,
    text: str = "action",
    unit: Keys = "episode",
    source: str = "value_pairs",
) -> tuple[pl.DataFrame, dict[str, int]]:
    """Pair (table of preference pairs of units of `Turns` by mean score, dict of how many each rule dropped).

    Args:
        turns: the table that the pairs refer to by row number.
        score: more is better; its mean over a unit counts.
        by: what both sides share, such as the parent of siblings or the state before a step.
        per: "all" pairs of a key, its best unit against each other one ("best_rest"), or against its worst.
        min_gap: the scores differ by more than this.
        min_chosen: the chosen one's is above it.
        max_rejected: the rejected one's is at most this.
        distinct: pairs whose texts are more alike are dropped: share of matching characters (`difflib`), from 0 to 1.
            The text of a side is that of all its rows in the order of play.
        failed: rows where it holds may be rejected however alike they are: what raised an error is no near-duplicate.
        text: the column of the texts.
        unit: what is a side, e.g. ("episode", "turn").
        source: what the column `source` says.

    Returns:
        the columns of `PAIRS` and `group`; counts: candidates, kept, and dropped_… by gap, min_chosen, max_rejected and
        distinct, each candidate by the first rule that it does not meet.

    Raises:
        InputError: an option is out of range.

    >>> turns = Turns({"group": [0] * 3, "episode": [0, 1, 2], "reward": [0.9, 0.2, 0.7]})
    >>> found, counts = mine(turns, min_gap=0.1, min_chosen=0.8)
    >>> found.select("chosen", "rejected").rows(), counts["dropped_min_chosen"]
    ([(0, 1), (0, 2)], 1)
    """
    if per not in get_args(Per):
        raise InputError(f"{source}: per={per!r}{nearest(str(per), get_args(Per))}")
    if not min_gap >= 0 or not (distinct is None or 0 <= distinct <= 1):
        raise InputError(f"{source}: min_gap={min_gap} must not be negative, distinct={distinct} from 0 to 1")
    rows, value, ids = _units(turns, _signal(score), by, unit)
    first, second = within(ids) if per == "all" else _against_best(ids, value, rows, worst=per == "best_worst")
    ahead = value[first] >= value[second]
    chosen, rejected = np.where(ahead, first, second), np.where(ahead, second, first)
    gap = value[chosen] - value[rejected]
    rules = {"gap": exceeds(value[chosen], value[rejected] + min_gap)}
    if min_chosen is not None:
        rules["min_chosen"] = exceeds(value[chosen], min_chosen)
    if max_rejected is not None:
        rules["max_rejected"] = ~exceeds(value[rejected], max_rejected)
    if distinct is not None:
        open_ = np.logical_and.reduce(list(rules.values()))
        said = _said(turns, _text(turns, text, source), unit)
        fine = np.ones(len(gap), bool)
        fine[open_] = ~_alike(said, rows[chosen[open_]], rows[rejected[open_]], distinct)
        if failed is not None:
            fine |= _mask(turns, failed)[rows[rejected]]
        rules["distinct"] = fine
    met = np.stack(list(rules.values()))
    kept = met.all(axis=0)
    reason = np.where(kept, len(rules), (~met).argmax(axis=0))
    number = np.bincount(reason, minlength=len(rules) + 1).tolist()
    counts = {"candidates": len(gap), "kept": number[-1]}
    counts |= {f"dropped_{rule}": count for rule, count in zip(rules, number, strict=False)}
    return table(turns, rows[chosen[kept]], rows[rejected[kept]], margin=gap[kept], source=source), counts


@PAIRINGS.register()
def value_pairs(
    score: SignalLike = "reward",
    by: Keys = "group",
    *,
    per: Per = "all",
    min_gap: float = 0.0,
    min_chosen: float | None = None,
    max_rejected: float | None = None,
    distinct: float | None = None,
    failed: SignalLike | None = None,
    text: str = "action",
    unit: Keys = "episode",
) -> Pairing:
    """Makes a pairing rule (turns -> pairs): units of a key whose scores differ by more than `min_gap`; see `mine`."""
    return lambda turns: mine(
        turns, score, by, per=per, min_gap=min_gap, min_chosen=min_chosen, max_rejected=max_rejected,
        distinct=distinct, failed=failed, text=text, unit=unit,
    )[0]  # fmt: skip


def _against_best(
    ids: np.ndarray, value: np.ndarray, rows: np.ndarray, *, worst: bool
) -> tuple[np.ndarray, np.ndarray]:
    """Each key's best unit, the first of equals, beside its others; or beside the worst of them alone."""
    order = np.lexsort((rows, -value, ids))
    begin = np.flatnonzero(np.diff(ids[order], prepend=-1))
    size = np.diff(np.append(begin, len(ids)))
    if worst:
        bad = np.lexsort((rows, value, ids))[begin]
        some = size > 1
        return order[begin][some], bad[some]
    best = np.repeat(order[begin], size)
    others = np.ones(len(ids), bool)
    others[begin] = False
    return best[others], order[others]


def _said(turns: Turns, texts: pl.Series, unit: Keys) -> pl.Series:
    """On each row the texts of its unit, a line for each of its rows in the order of play."""
    evaluation = Evaluation(turns)
    codes, order = evaluation.codes(joined(unit)).ids, evaluation.segments(joined(unit)).order
    played = pl.DataFrame({"unit": codes, "text": texts})[slice(None) if order is None else order]
    whole = played.group_by("unit", maintain_order=True).agg(pl.col("text").str.join("\n")).sort("unit")
    return whole["text"][codes]


def _alike(said: pl.Series, chosen: np.ndarray, rejected: np.ndarray, most: float) -> np.ndarray:
    """Whether the texts of both sides match in more than that share of their characters; each pair of texts once."""
    codes = said.fill_null("").rank("dense").to_numpy()
    both, at = np.unique(np.stack([codes[chosen], codes[rejected]]), axis=1, return_inverse=True)
    words = dict(zip(codes.tolist(), said.fill_null("").to_list(), strict=True))
    matcher = difflib.SequenceMatcher(autojunk=False)
    found = []
    for one, other in both.T.tolist():
        matcher.set_seqs(words[one], words[other])
        found.append(matcher.real_quick_ratio() > most and matcher.quick_ratio() > most and matcher.ratio() > most)
    return np.array(found, bool)[at.reshape(-1)] if found else np.zeros(0, bool)
