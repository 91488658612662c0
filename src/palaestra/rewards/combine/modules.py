"""Modules of one pipeline as a team: the answer pays all of them, and each keeps the rules of its own output."""

from __future__ import annotations

import polars as pl

from palaestra.algebra.signals import (
    Keys,
    Signal,
    SignalLike,
    as_signal,
    is_in,
    mean,
    register,
    where,
)
from palaestra.errors import ExpressionError

_SELECTED = r"^\s*Document \d+(\s*,\s*Document \d+)*\s*$"


@register()
def rewriting_penalty(text: str = "action", *, parts: int = 4, length: int = 300, pays: float = -0.5) -> Signal:
    """Signal: `pays` where a rewriting has over `parts` sub-questions or `length` characters, else 0.

    Sub-questions are split at ";" or lines.
    """
    said = pl.col(text).cast(pl.String).fill_null("")
    asked = said.str.replace_all("\n", ";").str.split(";").list.eval(pl.element().str.strip_chars() != "").list.sum()
    return as_signal(pl.when((asked > parts) | (said.str.len_chars() > length)).then(pays).otherwise(0.0))


@register()
def selection_penalty(text: str = "action", found: str = "found", *, pays: float = -1.0) -> Signal:
    """Signal: `pays` where a text is no list "Document 3, Document 1" of found documents, each named once; else 0."""
    said = pl.col(text).cast(pl.String).fill_null("")
    named = said.str.extract_all(r"\d+").list.eval(pl.element().cast(pl.Int64, strict=False))
    known = named.list.set_difference(pl.col(found).cast(pl.List(pl.Int64))).list.len() == 0
    fine = said.str.contains(_SELECTED) & (named.list.n_unique() == named.list.len()) & known.fill_null(False)
    return as_signal(pl.when(fine).then(0.0).otherwise(pays))


@register()
def answer_penalty(text: str = "action", *, words: int = 30, pays: float = -1.0) -> Signal:
    """Signal: `pays` where an answer has more than `words` words, else 0."""
    said = pl.col(text).cast(pl.String).fill_null("")
    return as_signal(pl.when(said.str.count_matches(r"\S+") > words).then(pays).otherwise(0.0))


@register()
def mmoa_rag_reward(
    outcome: SignalLike = "answer_f1",
    *,
    text: str = "action",
    found: str = "found",
    penalties: float = 1.0,
    over: Keys = ("group", "episode"),
) -> Signal:
    """Signal: the episode's outcome plus a penalty by each role's own rules, as in MMOA-RAG (arXiv 2501.15228).

    Agents are `rewriter`, `selector` and `generator`: -.5 for more than 4 sub-questions or 300 characters, -1 for a
    selection that cannot be read, repeats or was not found, -1 for more than 30 words. outcome: of the episode, on any
    of its rows. penalties: their weight.
    """
    shared = mean(outcome, over=over)
    rules = {"rewriter": rewriting_penalty(text), "selector": selection_penalty(text, found)}
    own: Signal = answer_penalty(text)
    for role, rule in rules.items():
        own = where(is_in("agent", role), rule, own)
    return shared + penalties * own


@register()
def role_periods(advantage: SignalLike, *periods: tuple[str, int], start: int = 0) -> Signal:
    """Signal: the advantage, 0 for a role of pairs (role, n) in iterations after `start` that n does not divide.

    Period 0: always 0.

    Roles without a period learn in every iteration, and so do all of them up to iteration `start`. 0 for the roles that
    rest: with it no row of theirs moves a shared policy.

    Raises:
        ExpressionError: a period is negative, or no pair.

    >>> from palaestra.algebra.turns import Turns
    >>> rows = {"agent": ["a", "b", "a", "b"], "iteration": [1, 1, 2, 2], "x": [1.0] * 4}
    >>> role_periods("x", ("b", 2)).evaluate(Turns(rows))
    array([1., 0., 1., 1.])
    """
    made = as_signal(advantage)
    for pair in periods:
        if not isinstance(pair, tuple) or len(pair) != 2 or not isinstance(pair[1], int) or pair[1] < 0:
            raise ExpressionError(f'role_periods: {pair!r} is no pair such as ("rewriter", 2)')
        role, period = pair
        idle = pl.lit(True) if period == 0 else pl.col("iteration") % period != 0
        rests = as_signal((idle & (pl.col("iteration") > start)).cast(pl.Boolean))
        made = where(is_in("agent", role) & rests, 0.0, made)
    return made
