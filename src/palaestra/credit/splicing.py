"""Splices and relabels: examples that nobody played as they stand, made of rows that were.

A splice leads from an error to its correction: the bad path up to its first bad step (seen, not learned from), a
revision, and the good path from where the two parted. A relabel says what an episode achieved was its goal. Both are
functions of the table; every row that they make carries `source` and `loss_mask`, and says from which rows it is.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from typing import Literal

import numpy as np
import polars as pl

from palaestra.algebra.codes import densify
from palaestra.algebra.kernels import evaluate
from palaestra.algebra.signals import SignalLike, as_signal
from palaestra.algebra.turns import Turns
from palaestra.errors import InputError, nearest

NEITHER = pl.lit(None, pl.Int64)


def splice(
    turns: Turns,
    pairs: pl.DataFrame,
    bad: SignalLike = "bad",
    *,
    marker: str | None = None,
    same: Sequence[str] = ("observation", "action"),
) -> tuple[pl.DataFrame, dict[str, int]]:
    """Pair (table, counts): Agent-R's revision paths of `Turns`, bad prefix, good path, by frame `pairs` of rows.

    After arXiv 2501.11425.

    Args:
        turns: the table that the pairs are of.
        pairs: `chosen` and `rejected`, rows of a good and a bad episode of one agent, as pairings give them.
        bad: which rows are bad steps. The bad path is cut right after its first one; steps that both paths share are
            told once, and the good path goes on from the first that differs in one of the columns `same`.
        marker: action of the revision, which answers what the bad path saw after its bad step. None: the good path
            follows at once.
        same: columns in which a step of both paths must agree to be shared.

    Returns:
        a row for each row of the spliced episodes, in order: columns of the table with `turn` renumbered, episodes
        numbered on behind all others, and `source` ("prefix", "revision" or "good"), `loss_mask` (false on the prefix),
        `of_row` (the row of the table that it is from). counts: pairs, kept, dropped_no_error (no bad step),
        dropped_shared (the good path has it, too) and dropped_nothing_after (nothing is seen after it).

    Raises:
        MissingColumnError: the table lacks episode, turn, or one of `same`.
    """
    for name in ("episode", "turn", *same):
        turns._require(name, "splice: ")
    wrong = np.asarray(evaluate(turns, as_signal(bad))[0], float) == 1
    codes = turns.codes("episode").ids
    order = np.lexsort((np.arange(len(turns)), turns["turn"].to_numpy(), codes))
    size = np.bincount(codes, minlength=codes.max(initial=-1) + 1)
    start = np.cumsum(size) - size
    step = np.arange(len(turns)) - np.repeat(start, size)  # place in its episode, in the order of `order`
    first = np.full(len(size), -1)
    errors = np.flatnonzero(wrong[order])[::-1]
    first[codes[order[errors]]] = step[errors]

    good, ill = (codes[pairs[side].to_numpy()] for side in ("chosen", "rejected"))
    part = _parted(turns, same, order, start, size, good, ill)
    cut = first[ill]
    after = cut + 1 < size[ill] if marker is not None else np.ones(len(cut), bool)
    met = {"no_error": cut >= 0, "shared": part <= cut, "nothing_after": after}
    held = np.stack(list(met.values()))
    reason = np.where(held.all(axis=0), len(met), (~held).argmax(axis=0))
    number = np.bincount(reason, minlength=len(met) + 1).tolist()
    counts = {"pairs": len(good), "kept": number[-1]}
    counts |= {f"dropped_{name}": count for name, count in zip(met, number, strict=False)}

    used = reason == len(met)
    good, ill, cut, part = good[used], ill[used], cut[used], part[used]
    pieces = [(start[ill], cut + 1, "prefix"), (start[good] + part, size[good] - part, "good")]
    if marker is not None:
        pieces.insert(1, (start[ill] + cut + 1, np.ones(len(cut), np.int64), "revision"))
    rows, which, source = (np.concatenate(each) for each in zip(*map(_piece, pieces, range(len(pieces))), strict=True))
    place = np.lexsort((np.arange(len(rows)), source, which))
    words = pl.Series([name for _, _, name in pieces], dtype=pl.String).gather(source[place])
    return _examples(turns, order[rows[place]], which[place], words, marker), counts


def _parted(
    turns: Turns,
    same: Sequence[str],
    order: np.ndarray,
    start: np.ndarray,
    size: np.ndarray,
    one: np.ndarray,
    other: np.ndarray,
) -> np.ndarray:
    """Number of steps that two episodes share before they part."""
    key = turns.codes(*same).ids[order]
    length = np.minimum(size[one], size[other])
    begin = np.cumsum(length) - length
    place = np.arange(length.sum()) - np.repeat(begin, length)
    differs = key[np.repeat(start[one], length) + place] != key[np.repeat(start[other], length) + place]
    found = length.copy()
    at = np.flatnonzero(differs)[::-1]
    found[np.repeat(np.arange(len(one)), length)[at]] = place[at]
    return np.asarray(found)


def _piece(piece: tuple[np.ndarray, np.ndarray, str], number: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Places of a piece of each example, the example's number, and the piece's."""
    start, length, _ = piece
    begin = np.cumsum(length) - length
    place = np.arange(length.sum()) - np.repeat(begin - start, length)
    return place, np.repeat(np.arange(len(start)), length), np.full(len(place), number)


def _examples(turns: Turns, rows: np.ndarray, which: np.ndarray, source: pl.Series, marker: str | None) -> pl.DataFrame:
    frame = turns.frame
    made = frame[rows].with_columns(
        _example=pl.Series(which, dtype=pl.Int64),
        of_row=pl.Series(rows, dtype=pl.Int64),
        source=source,
        turn=pl.Series(np.arange(len(which)) - np.searchsorted(which, which), dtype=frame.schema["turn"]),
        loss_mask=source != "prefix",
    )
    if marker is not None:
        revised = pl.col("source") == "revision"
        made = made.with_columns(action=pl.when(revised).then(pl.lit(marker)).otherwise("action"))
        names = [name for name in ("action_ids", "logprobs", "token_versions", "entropies") if name in frame.columns]
        made = made.with_columns(pl.when(~revised).then(name).alias(name) for name in names)
    return numbered_on(frame, made)


def numbered_on(frame: pl.DataFrame, made: pl.DataFrame) -> pl.DataFrame:
    """Rows `made` with `episode` = `_example` counted on from the last episode of `frame`, so that none is reused."""
    last = int(frame["episode"].max()) if len(frame) else -1  # type: ignore[arg-type]
    return made.with_columns(episode=(last + 1 + pl.col("_example")).cast(frame.schema["episode"])).drop("_example")


def relabel(
    turns: Turns,
    *,
    achieved: str = "achieved",
    goal: str = "goal",
    method: Literal["final", "future"] = "final",
    rng: np.random.Generator | None = None,
    texts: Sequence[str] = ("observation",),
) -> tuple[pl.DataFrame, dict[str, int]]:
    """Pair (table, counts): hindsight copies of episodes of `Turns`, the goal replaced by what they achieved, paid 1.

    After arXiv 1707.01495.
    Every episode once: with what its last row achieved ("final"), or, each row for itself, what a drawn row from it on
    achieved ("future"). The episode ends where its new goal is first achieved; what comes later is left out. `reward`
    is 1 on that row and 0 before; `success` and `terminated` are true, and `truncated` is false: nothing cut it off.

    Args:
        turns: the table.
        achieved: the column that says what was achieved after the row's action; null: nothing.
        goal: the column of the goal that was asked for.
        method: "final" or "future".
        rng: draws of "future".
        texts: columns in which the new goal replaces the old one, as a whole phrase.

    Returns:
        the rows, with `source` "hindsight", `loss_mask` true and `of_row`; counts: episodes, kept (examples made),
        dropped_nothing (nothing achieved) and dropped_same (the goal was the one asked for).

    Raises:
        InputError: `method` is unknown, or "future" has no rng. MissingColumnError: a column is not there.
    """
    if method not in ("final", "future") or (method == "future" and rng is None):
        raise InputError(
            f"relabel: method={method!r}{nearest(str(method), ('final', 'future'))}; 'future' draws: give rng="
        )
    for name in ("episode", "turn", achieved, goal, *texts):
        turns._require(name, "relabel: ")
    codes = densify(turns.codes("episode").ids).ids
    order = np.lexsort((np.arange(len(turns)), turns["turn"].to_numpy(), codes))
    size = np.bincount(codes)
    start = np.cumsum(size) - size
    reached = turns.frame[achieved].cast(pl.String)[order]
    if method == "final":
        at = start + size - 1
        begin = start
    else:
        step = np.arange(len(turns)) - np.repeat(start, size)
        at = np.arange(len(turns)) + rng.integers(0, np.repeat(size, size) - step)  # type: ignore[union-attr]
        begin = np.arange(len(turns))
    wish, asked = reached.gather(at), turns.frame[goal].cast(pl.String)[order].gather(begin)
    nothing = wish.is_null().to_numpy()
    same = ~nothing & (wish == asked).fill_null(False).to_numpy()
    counts = {"episodes": len(at), "kept": int((~nothing & ~same).sum())}
    counts |= {"dropped_nothing": int(nothing.sum()), "dropped_same": int(same.sum())}
    use = np.flatnonzero(~nothing & ~same)
    kind = reached.rank("dense").fill_null(0).to_numpy()
    place, which, _ = _piece((begin[use], at[use] - begin[use] + 1, ""), 0)
    hit = kind[place] == kind[at[use]][which]
    earlier = np.cumsum(hit) - hit
    head = np.searchsorted(which, np.arange(len(use)))
    fresh = earlier == earlier[head][which] if len(use) else np.zeros(0, bool)
    place, which, hit = place[fresh], which[fresh], hit[fresh]
    frame, rows = turns.frame, order[place]
    made = frame[rows].with_columns(
        _example=pl.Series(which, dtype=pl.Int64),
        of_row=pl.Series(rows, dtype=pl.Int64),
        source=pl.lit("hindsight"),
        loss_mask=pl.lit(True),
        _wish=wish.gather(use).gather(which),
        _hit=pl.Series(hit),
    )
    made = made.with_columns(*(_reworded(made, name, goal) for name in texts))
    made = made.with_columns(pl.int_range(pl.len()).over("_example").cast(frame.schema["turn"]).alias("turn"))
    made = made.with_columns(pl.col("_wish").cast(frame.schema[goal]).alias(goal))
    ended = {"success": True, "terminated": True, "truncated": False}  # on every row of an episode, as in recordings
    paid = {"reward": pl.col("_hit").cast(pl.Float64)} | {name: pl.lit(told) for name, told in ended.items()}
    made = made.with_columns(each.alias(name) for name, each in paid.items() if name in frame.columns)
    return numbered_on(frame, made).drop("_wish", "_hit"), counts


def _reworded(made: pl.DataFrame, name: str, goal: str) -> pl.Series:
    """A column of texts with the new goal for the old one; each text of each goal once."""
    said = made.select(text=pl.col(name), old=pl.col(goal).cast(pl.String), new="_wish")
    kinds = said.unique(maintain_order=True)
    texts = [
        text
        if text is None or not old
        else re.sub(rf"(?<!\w){re.escape(old)}(?!\w)", functools.partial(_instead, new), text)
        for text, old, new in kinds.iter_rows()
    ]
    found = said.join(kinds.with_columns(_said=pl.Series(texts, dtype=pl.String)), on=said.columns, how="left",
                      maintain_order="left", nulls_equal=True)  # fmt: skip
    return found["_said"].alias(name)


def _instead(text: str, found: re.Match[str]) -> str:
    """The text as it is, whatever it looks like to a regular expression."""
    return text
