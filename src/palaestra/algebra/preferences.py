"""Turns as data sets for TRL: `prompt, chosen, rejected` for its DPO and reward trainers, `prompt, completion` for SFT.

Prompts are messages if the table keeps any, a row without them as one message of the user with the text that was
observed, else that text. What is returned is a table;
`datasets.Dataset.from_polars` takes it, `write_parquet` keeps it. Left out: tools, and turns that were tokenised
already, which learn here.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
import polars as pl

from palaestra.algebra.binding import bound
from palaestra.algebra.kernels import evaluate
from palaestra.algebra.tree import Signal
from palaestra.algebra.turns import Ragged, Turns
from palaestra.errors import ExpressionError, InputError, SchemaError, nearest

Which = Literal["best_worst", "all"]
WHICH = ("best_worst", "all")
REPLY = pl.List(pl.Struct({"role": pl.String, "content": pl.String}))


@bound
def to_preferences(
    turns: Turns, by: str | Signal = "reward", *, which: Which = "best_worst", gap: float = 0.0
) -> pl.DataFrame:
    """Table of preference pairs of `Turns`, answers to one prompt by reward or `by`: prompt, chosen, rejected, gap.

    A column `group` is kept.
    Answers are turns of one agent that saw the same; ties, null values, errors and rows without an action are left out,
    equal texts too.

    Args:
        turns: played turns.
        by: a column or signal, more is better: of a turn. For a score of the whole episode: `episode_return()`.
        which: the best against the worst of a prompt (the first of equals), or every pair.
        gap: least difference.

    Raises:
        MissingColumnError: the table lacks `observation` and `messages`, `action`, or what `by` needs.
        InputError: there is no pair.
    """
    if which not in WHICH:
        raise InputError(f"to_preferences: which={which!r}{nearest(str(which), WHICH)}")
    frame, talks = _said(turns)
    kept = frame.with_columns(_value=_value(turns, by)).filter(pl.col("_value").is_not_null(), pl.col("_usable"))
    keys = list(turns.key_columns(["group"] if "group" in turns.columns else []))
    keys += ["agent"] if "agent" in turns.columns else []
    kept = kept.with_columns(_prompt=pl.struct([*keys, "_seen"]).rank("dense")).sort("_prompt", maintain_order=True)
    if which == "all":
        right = kept.select("_prompt", "_value", "_text", _at=pl.int_range(pl.len()))
        left = kept.with_columns(_at=pl.int_range(pl.len()))
        pairs = left.join(right, on="_prompt", how="inner", suffix="_other", maintain_order="left_right")
    else:
        top = kept.sort("_value", descending=True, maintain_order=True).unique("_prompt", keep="first")
        low = kept.sort("_value", maintain_order=True).unique("_prompt", keep="first")
        pairs = top.join(low.select("_prompt", "_value", "_text"), on="_prompt", suffix="_other").sort("_prompt")
    lead = pl.col("_value") - pl.col("_value_other")
    pairs = pairs.filter(lead > 0, lead >= gap, pl.col("_text") != pl.col("_text_other"))
    if not len(pairs):
        raise InputError(
            f"to_preferences: no prompt of {kept['_prompt'].n_unique()} has two answers of different value"
            f"{f' by at least {gap:g}' if gap else ''}; play more episodes per group"
        )
    return pairs.select(
        prompt=_asked(talks),
        chosen=_reply("_text", talks),
        rejected=_reply("_text_other", talks),
        gap=lead,
        **({"group": "group"} if "group" in pairs.columns else {}),
    )


@bound
def to_sft(turns: Turns, where: Signal | pl.Expr | None = None) -> pl.DataFrame:
    """Table of prompt and completion rows for supervised fine-tuning, one per turn of `Turns` without error.

    Args:
        turns: played turns.
        where: which turns, e.g. `col("success")`; default: all. Errors, illegal actions and missing ones are left out.

    Raises:
        MissingColumnError: the table lacks `observation` and `messages`, or `action`. InputError: nothing is left.
    """
    chosen = turns if where is None else turns.filter(where)
    frame, talks = _said(chosen)
    legal = pl.col("valid").fill_null(True) if "valid" in frame.columns else pl.lit(True)
    kept = frame.filter(pl.col("_usable"), legal)
    if not len(kept):
        raise InputError("to_sft: no turn is left; loosen `where`")
    return kept.select(prompt=_asked(talks), completion=_reply("_text", talks))


def _said(turns: Turns) -> tuple[pl.DataFrame, bool]:
    """The table with `_seen`, `_text` and `_usable`; and whether it is of messages."""
    frame = turns.frame
    talks = "messages" in frame.columns and frame["messages"].null_count() < len(frame)
    seen = "messages" if talks else "observation"
    for needed in ("action", seen):
        turns[needed]
    shown = pl.col(seen)
    if talks and "observation" in frame.columns:  # seats that keep no messages, as scripts, saw a text
        asked = pl.struct(role=pl.lit("user"), content="observation").struct.json_encode()
        text = pl.when(pl.col("observation").is_not_null()).then(pl.concat_str(pl.lit("["), asked, pl.lit("]")))
        shown = pl.coalesce("messages", text)
    fine = pl.col("error").is_null() if "error" in frame.columns else pl.lit(True)
    usable = fine & pl.col("action").is_not_null() & shown.is_not_null()
    return frame.with_columns(_seen=shown, _text=pl.col("action"), _usable=usable), talks


def _value(turns: Turns, by: str | Signal) -> pl.Series:
    if isinstance(by, str):
        found = turns[by]
        if not (found.dtype.is_numeric() or found.dtype in (pl.Boolean, pl.Null)):
            raise SchemaError(f"to_preferences: column {by!r} holds {found.dtype}, expected numbers")
        return found.cast(pl.Float64).fill_nan(None)
    (values,) = evaluate(turns, by)
    if isinstance(values, Ragged):
        raise ExpressionError(f"to_preferences: {by} has one value per token; wrap it in per_turn()")
    return pl.Series(np.asarray(values, float)).fill_nan(None)


def _asked(talks: bool) -> pl.Expr:
    """The text, or the messages, without what else they hold."""
    return pl.col("_seen").str.json_decode(REPLY) if talks else pl.col("_seen")


def _reply(name: str, talks: bool) -> pl.Expr:
    """The text, or a message of the assistant that says it."""
    if not talks:
        return pl.col(name)
    return pl.concat_list(pl.struct(role=pl.lit("assistant"), content=pl.col(name))).cast(REPLY)
