"""What a member of a team was worth, read from what was said: importance that flows back, likeness to the others.

Both read the table of turns and that of messages (`palaestra.algebra.messages`), so also other people's logs. Shapley
values, against which such proxies are judged, are in `palaestra.credit.teams`. Left out: judges of contributions, which
are a stage (`judge`).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl

from palaestra.algebra.messages import EPISODE
from palaestra.algebra.turns import Turns
from palaestra.errors import InputError, MissingColumnError, nearest


def importance_flow(
    turns: Turns, messages: pl.DataFrame, *, answer: str = "answer", final: str | None = None
) -> pl.DataFrame:
    """DyLAN's importance of each turn ([135], arXiv 2310.02170), float64 in the column `importance` of the turns.

    The last wave of an episode shares 1 among those who gave the final answer; before that, what a turn is worth is
    what it was worth to those who heard it: I_i = Σ_j w_ij · I_j, the weights of what j heard (and kept) scaled to sum
    to 1, or equal where all are 0. So the importance of a wave is 1 wherever everybody of the next heard somebody.

    answer: column of what counts as said. final: column of the team's answer; default: what most of the last wave say,
    of equal ones the first. A turn that the last wave does not follow from has importance 0.

    Raises:
        MissingColumnError: there is no such column.
    """
    for name in filter(None, (answer, final)):
        if name not in turns.columns:
            raise MissingColumnError(f"importance_flow: no column {name!r}{nearest(name, turns.columns)}")
    frame = turns.frame.select(
        pl.Series("_episode", turns.codes("episode").ids),
        pl.col("turn").cast(pl.Int64),
        pl.col(answer).cast(pl.String).alias("_said"),
        (pl.col(final).cast(pl.String) if final else pl.lit(None, pl.String)).alias("_final"),
    ).with_row_index("_row")
    last = frame.filter(pl.col("turn") == pl.col("turn").max().over("_episode"))
    votes = last.with_columns(_votes=pl.len().over("_episode", "_said")).sort(
        "_votes", "_row", descending=[True, False]
    )
    most = votes.group_by("_episode", maintain_order=True).agg(_most=pl.col("_said").first())
    right = pl.col("_final") if final else pl.col("_most")
    agreed = last.join(most, on="_episode").with_columns(_agrees=(pl.col("_said") == right).fill_null(False))
    shared = agreed.with_columns(_share=pl.col("_agrees") / pl.col("_agrees").sum().over("_episode"))
    importance = np.zeros(len(frame))
    importance[shared["_row"].to_numpy()] = shared["_share"].fill_nan(0.0).to_numpy()
    for heard, speaker, weight in _edges(turns, messages):
        np.add.at(importance, speaker, weight * importance[heard])
    return turns.frame.with_columns(importance=pl.Series(importance))


def _edges(turns: Turns, messages: pl.DataFrame) -> list[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """(receiver's row, sender's row, weight) of what was kept, by the receiver's turn, the latest first."""
    keys = [key for key in EPISODE if key in turns.columns]
    rows = turns.frame.select(
        *keys, pl.col("agent").cast(pl.String), pl.col("turn").cast(pl.Int64)
    ).with_row_index("_row")  # fmt: skip
    joined = messages.filter(pl.col("kept")) if "kept" in messages.columns else messages
    for role, name in (("receiver", "_to"), ("sender", "_from")):
        renamed = rows.rename({"agent": role, "turn": f"{role}_turn", "_row": name})
        joined = joined.join(renamed, on=[*keys, role, f"{role}_turn"], nulls_equal=True)
    weight = pl.col("weight").clip(lower_bound=0.0).fill_null(0.0)
    total = weight.sum().over("_to")
    scaled = pl.when(total > 0).then(weight / total).otherwise(1 / pl.len().over("_to"))
    edges = joined.select("receiver_turn", "_to", "_from", _weight=scaled).sort("receiver_turn", descending=True)
    return [
        (each["_to"].to_numpy(), each["_from"].to_numpy(), each["_weight"].to_numpy())
        for each in edges.partition_by("receiver_turn", maintain_order=True)
    ]


def cosine_contribution(turns: Turns, *, embedding: str = "embedding", over: Sequence[str] = ("group",)) -> np.ndarray:
    """SelfOrg's contribution ([40], arXiv 2510.00685): ψ_n = cos(r_n, mean r) among the turns of `over`, float64[rows].

    r: unit vectors. It approximates the Shapley value of v(S) = cos(mean r_S, mean r_all), says the paper; a row
    without an embedding is NaN.

    Raises:
        MissingColumnError, InputError: there is no such column, or the vectors differ in length.
    """
    vectors, known = unit_vectors(turns, embedding)
    codes = turns.codes(*over)
    ids, groups = codes.ids[known], codes.size
    means = np.zeros((groups, vectors.shape[1]))
    np.add.at(means, ids, vectors)
    means /= np.maximum(np.linalg.norm(means, axis=1, keepdims=True), 1e-300)
    found = np.full(len(turns), np.nan)
    found[known] = (vectors * means[ids]).sum(1)
    return found


def unit_vectors(turns: Turns, name: str) -> tuple[np.ndarray, np.ndarray]:
    """Unit vectors of the rows that have one, float64[known, d], and which rows these are, int64[known]."""
    if name not in turns.columns:
        raise MissingColumnError(f"no column {name!r}{nearest(name, turns.columns)}; the stage embed() gives one")
    lengths = turns[name].list.len().fill_null(0).to_numpy()
    known = np.flatnonzero(lengths > 0)
    if len(sizes := sorted(set(lengths[known].tolist()))) > 1:
        raise InputError(f"column {name!r}: vectors of {sizes[0]} and {sizes[1]} numbers; give equal ones")
    if not len(known):
        return np.zeros((0, 1)), known
    vectors = turns[name].gather(known).explode().cast(pl.Float64).to_numpy().reshape(len(known), -1)
    return vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-300), known
