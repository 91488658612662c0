"""Binary outcome of an answer of several parts: right if every part of it is among the right ones.

The scorer of multi-hop questions of Chain-of-Agents [7] (arXiv 2508.13167, `verl/utils/reward_score`, code read): the
answer is split at `|`, its parts are compared in lower case, without articles, punctuation and further spaces. No pay
for form. Left out: how the answer is read out of an action, which is the env's affair; answers that a judge compares.
"""

from __future__ import annotations

from collections.abc import Iterable

import polars as pl

from palaestra.algebra.signals import Signal, as_signal, register
from palaestra.rewards.match.words import text_of

SEPARATOR = "|"


@register()
def every_part(said: str, gold: str) -> Signal:
    """Signal: 1 if each part of the text `said`, split at "|", is in the list column `gold` (normalised), else 0.

    Missing where one of the columns is. An answer without any part is wrong; one that names some of the right ones is
    right, as in the released scorer.

    >>> from palaestra.algebra.turns import Turns
    >>> answers = {"said": ["the Ann.", "ann|bob", "ann|bob"], "gold": [["ann"], ["ann"], ["Bob", "Ann"]]}
    >>> every_part("said", "gold").evaluate(Turns(answers))
    array([1., 0., 1.])
    """
    return as_signal(_right(text_of(said), pl.col(gold)).cast(pl.Float64))


def names_right_parts(said: str, gold: Iterable[str]) -> bool:
    """Whether each part of a text, split at "|", is among the gold texts (normalised); `every_part` of one answer.

    >>> names_right_parts("a|b", ["a"]), names_right_parts("A!", ["a"])
    (False, True)
    """
    frame = pl.DataFrame({"said": [said], "gold": [list(gold)]}, schema={"said": pl.String, "gold": pl.List(pl.String)})
    return bool(frame.select(_right(pl.col("said"), pl.col("gold"))).item())


def _right(said: pl.Expr, gold: pl.Expr) -> pl.Expr:
    parts = said.str.split(SEPARATOR).list.eval(_normal(pl.element()))
    gold = gold.cast(pl.List(pl.String))  # a column of empty lists has no type
    return parts.list.set_difference(gold.list.eval(_normal(pl.element()))).list.len() == 0


def _normal(text: pl.Expr) -> pl.Expr:
    """As SQuAD: lower case, no punctuation, no articles, single spaces."""
    plain = text.str.to_lowercase().str.replace_all(r"[[:punct:]]", "").str.replace_all(r"\b(a|an|the)\b", " ")
    return plain.str.replace_all(r"\s+", " ").str.strip_chars()
