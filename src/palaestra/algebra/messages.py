"""The messages of a team as a table: one row for each that was on its way, beside the table of turns.

    run  iteration  group  episode  round  sender  sender_turn  receiver  receiver_turn  weight  tokens  kept  reason

Teams tell with each turn what it heard (columns `heard`, `heard_turn`, `heard_weight`, `heard_kept`, `heard_reason`);
this is the same by message. A log of somebody else's that has those columns, or such a table, is read by whatever reads
teams. A key that the turns lack is left out. Left out: what was said, which is the sender's `action`.
"""

from __future__ import annotations

import polars as pl

from palaestra.algebra.turns import Turns
from palaestra.errors import MissingColumnError

EPISODE = ("run", "iteration", "group", "episode")
LISTS = {
    "heard": "sender",
    "heard_turn": "sender_turn",
    "heard_weight": "weight",
    "heard_kept": "kept",
    "heard_reason": "reason",
}


def messages(turns: Turns) -> pl.DataFrame:
    """Table of the messages between agents in `Turns`, a row each, in the order of the receivers' turns.

    weight: what its gate gave it. tokens: of the sender's action, as the policy counted them; null if it did not.
    kept: whether it arrived. reason: why not; null if it did.

    Raises:
        MissingColumnError: the turns do not say who heard whom.
    """
    frame = turns.frame
    for column in ("heard", "heard_turn"):
        if column not in frame.columns:
            raise MissingColumnError(
                f"messages: no column {column!r}: play a workflow (palaestra names workflow), or name for each turn "
                "whom it heard (list of agents) and when they spoke (list of turns)"
            )
    keys = [key for key in EPISODE if key in frame.columns]
    lists = {name: renamed for name, renamed in LISTS.items() if name in frame.columns}
    also = [name for name in ("round",) if name in frame.columns]
    rows = (
        frame.select(
            *keys,
            *also,
            pl.col("agent").cast(pl.String).alias("receiver"),
            pl.col("turn").cast(pl.Int64).alias("receiver_turn"),
            *lists,
        )
        .filter(pl.col("heard").list.len() > 0)
        .explode(list(lists))
        .rename(lists)
    )
    if "weight" not in rows.columns:
        rows = rows.with_columns(weight=pl.lit(1.0))
    if "kept" not in rows.columns:
        rows = rows.with_columns(kept=pl.lit(True))
    reason = pl.when(~pl.col("kept")).then(pl.col("reason")) if "reason" in rows.columns else pl.lit(None, pl.String)
    spoken = frame.select(
        *keys,
        pl.col("agent").cast(pl.String).alias("sender"),
        pl.col("turn").cast(pl.Int64).alias("sender_turn"),
        _tokens(frame).alias("tokens"),
    ).unique([*keys, "sender", "sender_turn"], keep="first", maintain_order=True)
    joined = rows.with_columns(reason=reason).join(
        spoken, on=[*keys, "sender", "sender_turn"], how="left", nulls_equal=True, maintain_order="left"
    )
    order = ["sender", "sender_turn", "receiver", "receiver_turn", "weight", "tokens", "kept", "reason"]
    return joined.select(*keys, *also, *order)


def _tokens(frame: pl.DataFrame) -> pl.Expr:
    """How many a turn said."""
    if "tokens_out" in frame.columns:
        return pl.col("tokens_out").cast(pl.Int64)
    if "action_ids" in frame.columns:
        return pl.col("action_ids").list.len().cast(pl.Int64)
    return pl.lit(None, pl.Int64)
