"""Reference answers beside those of the policy of now, and the part of an answer that is learned from ([105])."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import polars as pl

from palaestra.algebra.turns import Turns
from palaestra.errors import InputError
from palaestra.judges.refine import label_mask
from palaestra.learning.stages.stage import Context, Stage, stage


@stage
class references(Stage):
    """Stage: adds to each group a row with the reference answer of a column, marked `reference_row`, reward null.

    PRefLexOR [105] (arXiv 2410.12375): with `preferences("current_vs_reference('reference_row')", unit="turn")` and
    `dpo(loss="exo_pair", smoothing=.005)` every iteration's pairs are fresh: the rejected side is the policy of now.
    The rows are tokenised as the policy that answered would say them, have no log-probabilities and no reward, and are
    episodes of their own. For groups of one turn per episode.

    Args:
        column: the reference answer, the same on all rows of a group.
    """

    step = "construct"

    def __init__(self, column: str = "reference") -> None:
        self.column = column
        self.needs = {"group", "episode", "policy", "observation", "action", "action_ids", "reward", column}
        self.adds = {"reference_row": "the row says the reference answer, nobody sampled it"}

    def __call__(self, turns: Turns, context: Context) -> Turns:
        """The table with the reference rows."""
        frame = turns.frame.with_columns(reference_row=pl.lit(False))
        firsts = frame.filter(pl.col(self.column).is_not_null()).unique("group", maintain_order=True)
        if not firsts.height:
            return Turns(frame)
        highest = frame.group_by("group").agg(pl.col("episode").max().alias("_last"))
        ids = [self._ids(context, row) for row in firsts.iter_rows(named=True)]
        unknown = [
            name
            for name in ("logprobs", "token_versions", "entropies", "reward", "success", "valid")
            if name in frame.columns
        ]
        rows = firsts.join(highest, on="group", maintain_order="left").with_columns(
            pl.lit(None, frame.schema[name]).alias(name) for name in unknown
        )
        rows = rows.with_columns(
            reference_row=pl.lit(True),
            action=pl.col(self.column).cast(frame.schema["action"]),
            action_ids=pl.Series(ids, dtype=frame.schema["action_ids"]),
            episode=(pl.col("_last") + 1).cast(frame.schema["episode"]),
        ).drop("_last")
        return Turns(pl.concat([frame, rows.select(frame.columns)]))

    def _ids(self, context: Context, row: dict[str, Any]) -> list[int]:
        policy = context.team.policies[str(row["policy"])]
        if not hasattr(policy, "encode"):
            raise InputError(f"references: policy {policy.name!r} has no tokenizer to say {self.column!r} with")
        return [int(token) for token in policy.encode(row["observation"], row[self.column])[1]]


@stage
class thinking(Stage):
    """Stage: column `label_mask`, the tokens of an answer that count in comparisons of pairs: those after the thinking.

    method: "after_last", only what stands behind the last `close`; or "fraction", all but a share `p` of what stands
    between `open` and `close`. The marks are tokenised as the policy that answered does. See
    `palaestra.judges.refine.label_mask` ([105]).
    """

    needs = ("policy", "action_ids")
    adds = {"label_mask": "1 for a token that takes part in comparisons, else 0"}

    def __init__(
        self,
        open: str = "<think>",
        close: str = "</think>",
        *,
        method: Literal["fraction", "after_last"] = "after_last",
        p: float = 0.2,
    ) -> None:
        label_mask("", open, close, method=method, p=p)
        self.open, self.close, self.method, self.p = open, close, method, p

    def __call__(self, turns: Turns, context: Context) -> Turns:
        """The table with `label_mask`; null where there are no tokens."""
        marks: dict[str, tuple[list[int], list[int]]] = {}
        for policy in context.team.policies.values():
            if hasattr(policy, "tokenizer"):
                encode = policy.tokenizer
                marks[policy.name] = tuple(
                    encode(mark, add_special_tokens=False)["input_ids"] for mark in (self.open, self.close)
                )
        found: list[list[float] | None] = []
        for name, ids in zip(turns["policy"].cast(pl.String), turns["action_ids"], strict=True):
            if ids is None or name not in marks:
                found.append(None if ids is None else [1.0] * len(ids))
                continue
            mask = label_mask(ids.to_list(), *marks[name], method=self.method, p=self.p, rng=context.rng)
            found.append(np.asarray(mask, float).tolist())
        return turns.with_column(label_mask=pl.Series(found, dtype=pl.List(pl.Float64)))
