"""Matching what was given with what was right: sets, bags of words, entities, points.

Each is a signal over two columns, lists or text; boxes and tiers of a distance are in `graded`, tool calls in `calls`,
factorised states and embeddings in `goals`. Left out: how an answer is read out of an action; that is a column.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
import polars as pl

from palaestra.algebra.codes import Codes, code_array, combine
from palaestra.algebra.kernels import Evaluation, kernel
from palaestra.algebra.keys import joined
from palaestra.algebra.signals import Keys, Signal, SignalLike, as_signal, register
from palaestra.algebra.turns import Ragged
from palaestra.errors import ExpressionError

Measure = Literal["jaccard", "f1"]
BLOCK = 1 << 15


@register()
def jaccard(given: str, gold: str, *, empty: float = 0.0) -> Signal:
    """Signal: Jaccard index |A ∩ B| / |A ∪ B| of two columns as sets of list items or words; `empty` if both are.

    Words are compared without case.

    Missing where one of the columns is.

    >>> from palaestra.algebra.turns import Turns
    >>> jaccard("selected", "gold").evaluate(Turns({"selected": [[3, 7], []], "gold": [[3, 7, 9], [1]]})).round(4)
    array([0.6667, 0.    ])
    """
    return overlap(given, gold, measure="jaccard", empty=empty, distinct=True)


@register()
def multiset_jaccard(given: str, gold: str, *, empty: float = 1.0) -> Signal:
    """Signal: multiset Jaccard index of two columns, Σ min / Σ max of their counts of each item or word."""
    return overlap(given, gold, measure="jaccard", empty=empty)


@register()
def token_f1(given: str, gold: str, *, empty: float = 1.0) -> Signal:
    """Signal: F1 of the words of two text columns, 2·|shared| / (|A| + |B|), without case.

    Repeated words count. Unlike in SQuAD's, so do articles, and punctuation is part of its word.

    >>> from palaestra.algebra.turns import Turns
    >>> token_f1("action", "truth").evaluate(Turns({"action": ["buy two red apples"], "truth": ["two red apples"]}))
    array([0.85714286])
    """
    return overlap(given, gold, measure="f1", empty=empty)


@register()
def overlap(given: str, gold: str, *, measure: Measure, empty: float, distinct: bool = False) -> Signal:
    """Signal: raw node behind `jaccard`, `token_f1` …: overlap of two columns' words; `empty` if both are."""
    return Signal("overlap", column(given), column(gold), measure=measure, empty=float(empty), distinct=bool(distinct))


def column(name: SignalLike) -> Signal:
    """The name or signal as a plain column `Signal`; ExpressionError for any other expression.

    Raises:
        ExpressionError: it is something else.
    """
    signal = as_signal(name)
    if signal.op != "col":
        raise ExpressionError(f"{signal} is not a column; give its name")
    return signal


def text_of(name: SignalLike) -> pl.Expr:
    """Polars expression of a named column, cast to text.

    Raises:
        ExpressionError: it is something else than a column.
    """
    return pl.col(column(name).options["name"]).cast(pl.String)


def texts(evaluation: Evaluation, node: Signal) -> pl.DataFrame:
    """Data frame of a signal node's input columns as text, named "0", "1" …; ExpressionError unless text.

    Raises:
        ExpressionError: one holds something else.
    """
    columns = [evaluation.turns[child.options["name"]] for child in node.inputs]
    for each in columns:
        if each.dtype not in (pl.String, pl.Categorical, pl.Null):
            raise ExpressionError(f"{node}: column {each.name!r} holds {each.dtype}, not text; write it as JSON")
    return pl.DataFrame([each.cast(pl.String).alias(str(at)) for at, each in enumerate(columns)])


@kernel("overlap", range="row")
def _computed_overlap(evaluation: Evaluation, node: Signal) -> np.ndarray:
    series = [_lists(evaluation.turns[child.options["name"]], node) for child in node.inputs]
    (one, sizes), (other, other_sizes) = _comparable(*series)
    starts, other_starts = np.cumsum(sizes) - sizes, np.cumsum(other_sizes) - other_sizes
    shared, left, right = np.zeros((3, len(sizes)))
    by_length = np.argsort(np.maximum(sizes, other_sizes), kind="stable")
    for block in np.split(by_length, np.arange(BLOCK, len(by_length), BLOCK)):
        first = _padded(one, starts[block], sizes[block])
        second = _padded(other, other_starts[block], other_sizes[block])
        if node.options["distinct"]:
            _drop_repeats(first)
            _drop_repeats(second)
        left[block], right[block] = (first >= 0).sum(axis=0), (second >= 0).sum(axis=0)
        shared[block] = _pairs(first, second)
    top = 2 * shared if node.options["measure"] == "f1" else shared
    bottom = left + right if node.options["measure"] == "f1" else left + right - shared
    result = np.where(bottom == 0, node.options["empty"], top / np.where(bottom == 0, 1.0, bottom))
    missing = (series[0].is_null() | series[1].is_null()).to_numpy()
    return np.where(missing, np.nan, result)


def _lists(series: pl.Series, node: Signal) -> pl.Series:
    if series.dtype in (pl.String, pl.Categorical):
        return series.cast(pl.String).str.to_lowercase().str.extract_all(r"\S+")
    if isinstance(series.dtype, pl.List):
        return series
    raise ExpressionError(f"{node}: column {series.name!r} holds {series.dtype}, not lists or text")


def _comparable(*columns: pl.Series) -> list[tuple[np.ndarray, np.ndarray]]:
    """Items as integers, equal iff the items are and -1 for a missing one, and how many there are in each row."""
    sizes = [each.list.len().fill_null(0).to_numpy().astype(np.int64) for each in columns]
    kinds = [each.dtype.inner for each in columns]  # type: ignore[attr-defined]
    numbers = all(kind.is_numeric() for kind in kinds)
    common = pl.Float64 if numbers and any(kind.is_float() for kind in kinds) else pl.Int64 if numbers else pl.String
    common = pl.String if common == pl.Int64 and pl.UInt64 in kinds else common  # not every one is an Int64
    flat = [
        each.filter(pl.Series(size > 0, dtype=pl.Boolean)).explode().cast(common)
        for each, size in zip(columns, sizes, strict=True)
    ]
    both = pl.concat(flat)
    low, high = (0, 0) if both.dtype != pl.Int64 else (both.min() or 0, both.max() or 0)
    if both.dtype == pl.Int64 and high - low < 2**62:  # type: ignore[operator]
        ids = (both - low).fill_null(-1).to_numpy()
    else:
        ids = np.where(both.is_null().to_numpy(), -1, code_array(both.to_arrow()).ids)
    return [(ids[: len(flat[0])], sizes[0]), (ids[len(flat[0]) :], sizes[1])]


def _padded(items: np.ndarray, starts: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """int64[most items, rows], -1 beyond the end."""
    place = np.arange(sizes.max(initial=0))[:, None]
    inside = place < sizes
    found = np.full(inside.shape, -1)
    found[inside] = items[(starts + place)[inside]]
    return found


def _drop_repeats(items: np.ndarray) -> None:
    for later in range(1, len(items)):
        items[later][(items[:later] == items[later]).any(axis=0)] = -1


def _pairs(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """How many items of each row can be paired with an equal one of the other list."""
    free, found = second.copy(), np.zeros(first.shape[1])
    for item in first:
        taken = np.zeros(len(item), bool)
        for place in range(len(free)):
            hit = (free[place] == item) & (item >= 0) & ~taken
            free[place][hit] = -1
            taken |= hit
        found += taken
    return found


@register()
def entity_recall(text: str, entities: str, *, over: Keys = "episode") -> Signal:
    """Signal: share of the gold entities that appear, as whole phrases, in any text of the key (episode).

    entities: a list column, the same on every row of an episode; missing where it is missing or empty. An empty text
    is no entity. A phrase is whole if no further letter or digit continues its first or last word; letters of scripts
    without case, such as Chinese, continue none.

    >>> from palaestra.algebra.turns import Turns
    >>> gold = [["Ada Lovelace", "London"]] * 2
    >>> turns = Turns({"episode": [0, 0], "action": ["in London", None], "gold": gold})
    >>> entity_recall("action", "gold").evaluate(turns)
    array([0.5, 0.5])
    """
    return Signal("entity_recall", column(text), column(entities), over=joined(over))


def _whole(phrase: pl.Expr) -> pl.Expr:
    """Regular expression of a phrase, bounded on each side that is a digit or a letter of a script with case."""
    letter = r"\p{Lu}\p{Ll}\p{N}"
    before = pl.when(phrase.str.contains(f"^[{letter}]")).then(pl.lit(f"(?:^|[^{letter}])")).otherwise(pl.lit(""))
    after = pl.when(phrase.str.contains(f"[{letter}]$")).then(pl.lit(f"(?:$|[^{letter}])")).otherwise(pl.lit(""))
    return before + phrase.str.escape_regex() + after


@kernel("entity_recall")
def _entity_recall(evaluation: Evaluation, node: Signal) -> np.ndarray:
    turns = evaluation.turns
    text, gold = (turns[child.options["name"]] for child in node.inputs)
    if not isinstance(gold.dtype, pl.List):
        raise ExpressionError(f"{node}: column {gold.name!r} holds {gold.dtype}, not lists of text")
    gold = gold.cast(pl.List(pl.String)).list.eval(pl.element().filter(pl.element().ne_missing("")))
    sizes = gold.list.len().fill_null(0).to_numpy().astype(np.int64)
    rows = np.repeat(np.arange(len(turns)), sizes)
    entity = gold.filter(pl.Series(sizes > 0, dtype=pl.Boolean)).explode()
    pairs = pl.DataFrame({"text": text.cast(pl.String).gather(rows), "entity": entity})
    inside = pl.col("text").str.contains(pl.col("entity"), literal=True).fill_null(False)
    seen = pairs.select(inside)["text"].to_numpy().copy()
    near = np.flatnonzero(seen)  # few: an expression of its own for each row is slow
    seen[near] = pairs[near].select(pl.col("text").str.contains(_whole(pl.col("entity"))))["text"].to_numpy()
    episode = evaluation.codes(node.options["over"])
    key = combine(Codes(episode.ids[rows], episode.size), code_array(entity.to_arrow()))
    found, owner = np.zeros(key.size), np.zeros(key.size, np.int64)
    np.maximum.at(found, key.ids, seen.astype(float))
    owner[key.ids] = episode.ids[rows]
    matched = np.bincount(owner, found, minlength=episode.size)
    number = np.bincount(owner, minlength=episode.size)
    share = np.where(number > 0, matched / np.maximum(number, 1), np.nan)[episode.ids]
    return np.where(sizes > 0, share, np.nan)


@register()
def point_in_box(point: SignalLike, box: SignalLike, scale: SignalLike = 1.0) -> Signal:
    """Signal: 1 if point · scale lies in the box (left, top, right, bottom), edges included, else 0.

    Missing without one of them.

    point, box: list columns of 2 and 4 numbers; scale: from the coordinates of the model's image to the screen's.
    """
    return Signal("point_in_box", as_signal(point), as_signal(box), as_signal(scale))


@kernel("point_in_box", range="row")
def _point_in_box(evaluation: Evaluation, node: Signal) -> np.ndarray:
    point, box = (matrix(evaluation, child, width, node) for child, width in zip(node.inputs[:2], (2, 4), strict=True))
    scale = np.asarray(evaluation(node.inputs[2]), float)
    (x, y), (left, top, right, bottom) = point.T * scale, box.T
    inside = (left <= x) & (x <= right) & (top <= y) & (y <= bottom)
    return np.where(np.isnan(x + y + left + top + right + bottom), np.nan, inside)


def matrix(evaluation: Evaluation, child: Signal, width: int | None, node: Signal) -> np.ndarray:
    """Array float64[rows, width] of a list column, signal `child` of an `Evaluation`; NaN in rows of another length.

    width: left out, that of the longest row.

    Raises:
        ExpressionError: it is not a list column.
    """
    value = evaluation(child)
    if not isinstance(value, Ragged):
        raise ExpressionError(f"{node}: {child} is not a list column of numbers")
    width = int(value.lengths.max(initial=0)) if width is None else width
    whole = value.lengths == width
    if whole.all():
        return value.values.reshape(len(whole), width)
    found = np.full((len(value.lengths), width), np.nan)
    found[whole] = value.values[np.repeat(whole, value.lengths)].reshape(-1, width)
    return found
