"""Protocols of scorers, judges and reward models: one signature and two tables.

A scorer says how good a row is: a verifier, a classifier, a judge at an endpoint, a discriminator between policies, a
mixture, the implicit reward of DPO, an ensemble, or a person's labels in a file. Whatever has the signature can be an
annotator in a recipe, a control in an evaluation, a member of an ensemble and an opponent in an audit.
"""

from __future__ import annotations

from typing import Final, Protocol, runtime_checkable

import polars as pl

from palaestra.foundation.registry import Registry


@runtime_checkable
class Scorer(Protocol):
    """Protocol of a scorer: `score(rows, …)` -> Series, one value per row, more is better; and `name`, for verdicts."""

    name: str

    def score(
        self, rows: pl.DataFrame, *, reference: pl.DataFrame | None = None, condition: pl.DataFrame | None = None
    ) -> pl.Series:
        """One value per row, in order: Float64, or Array(Float64, k) of a scorer with k heads. More is better.

        A value that could not be had (a call that failed, an answer that could not be read) is null, never a default.

        Args:
            rows: what is scored; text scorers read `prompt` and `response`, scorers on features `features`, a list
                column of one length. Others say in their docstring which columns they need.
            reference: a row for each row: the answer to compare with (a pairwise scorer gives the probability that the
                row is the better one), or a known right answer; the scorer's docstring says which.
            condition: a row for each row: a criterion, a principle, a user, weights of heads.

        Raises:
            InputError: a reference or condition that the scorer needs is missing or has another length.
            MissingColumnError: names the column.
        """


@runtime_checkable
class Judge(Scorer, Protocol):
    """Protocol of a scorer with `verdicts(rows, …)` -> table of each single verdict, with judge, order and price.

    For votes and audits.
    """

    def verdicts(
        self,
        rows: pl.DataFrame,
        *,
        reference: pl.DataFrame | None = None,
        condition: pl.DataFrame | None = None,
        samples: int = 1,
    ) -> pl.DataFrame:
        """The long table `VERDICTS` after `item`: the rows' column of that name, or else their numbers (UInt32).

        With a reference both orders of every pair are asked about. Sample number 3 is the same whether 4 or 10 are
        asked for.
        """


SCORERS: Registry[Scorer] = Registry(
    "scorer", home=("palaestra.judges", "palaestra.learning.reward_models"), example='judged("rubric.yaml")'
)
"""Every scorer by the name that recipes and commands take."""

VERDICTS: Final = {
    "criterion": pl.String,
    "judge": pl.String,
    "sample": pl.Int32,
    "order": pl.Int8,
    "value": pl.Float64,
    "answer": pl.String,
    "rationale": pl.String,
    "ok": pl.Boolean,
    "tokens": pl.Int64,
    "cost": pl.Float64,
}
"""The long table of a judge's answers, after `item` (any key, as the judged table has it).

sample: number of the vote. order: 0 as given, 1 with the two sides swapped, null where one answer was judged alone.
value: null exactly where `ok` is false; of a comparison, in either order, how likely the row beats its reference (1, 0,
0.5 for a tie). answer: the choice in the judge's words ("A" is what was shown first). cost: in the endpoint's currency.
"""

PAIRS: Final = {
    "chosen": pl.UInt32,
    "rejected": pl.UInt32,
    "criterion": pl.String,
    "weight": pl.Float64,
    "margin": pl.Float64,
    "source": pl.String,
    "tie": pl.Boolean,
}
"""The long table of comparisons, after `group`; chosen and rejected are row numbers of the table that was compared.

A tie is kept with `tie` true, and left out by whoever fits unless it says what it does with ties.
"""
