"""Attribution of a team's result to members from their messages: importance flowing back, similarity to others.

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
from palaestra.errors import InputError, MissingColumnError, nearest, need_columns


def importance_flow(
    turns: Turns, messages: pl.DataFrame, *, answer: str = "answer", final: str | None = None
) -> pl.DataFrame:
    """Table of `Turns` with `importance`: DyLAN's credit passed back from final answers along table `messages` ([135]).

    arXiv 2310.02170.

    The last wave of an episode shares 1 among those who gave the final answer; before that, what a turn is worth is
    what it was worth to those who heard it: I_i = Σ_j w_ij · I_j, the weights of what j heard (and kept) scaled to sum
    to 1, or equal where all are 0. So the importance of a wave is 1 wherever everybody of the next heard somebody.

    answer: column of what counts as said. final: column of the team's answer; default: what most of the last wave say,
    of equal ones that of the first agent by name. A turn that the last wave does not follow from has importance 0.

    Raises:
        MissingColumnError: there is no such column.
    """
    need_columns("importance_flow", turns.columns, filter(None, (answer, final)))
    frame = turns.frame.select(
        pl.Series("_episode", turns.codes("episode").ids),
        pl.col("turn").cast(pl.Int64),
        pl.col(answer).cast(pl.String).alias("_said"),
        pl.col("agent").cast(pl.String).alias("_agent"),
        (pl.col(final).cast(pl.String) if final else pl.lit(None, pl.String)).alias("_final"),
    ).with_row_index("_row")
    last = frame.filter(pl.col("turn") == pl.col("turn").max().over("_episode"))
    votes = (
        last.drop_nulls("_said")
        .with_columns(_votes=pl.len().over("_episode", "_said"))
        .sort("_votes", "_agent", descending=[True, False])
    )
    most = votes.group_by("_episode", maintain_order=True).agg(_most=pl.col("_said").first())
    right = pl.col("_final") if final else pl.col("_most")
    agreed = last.join(most, on="_episode", how="left", maintain_order="left").with_columns(
        _agrees=(pl.col("_said") == right).fill_null(False)
    )
    shared = agreed.with_columns(_share=pl.col("_agrees") / pl.col("_agrees").sum().over("_episode"))
    importance = np.zeros(len(frame))
    importance[shared["_row"].to_numpy()] = shared["_share"].fill_nan(0.0).to_numpy()
    for heard, speaker, weight in _edges(turns, messages):
        np.add.at(importance, speaker, weight * importance[heard])
    return turns.frame.with_columns(importance=pl.Series(importance))


def _edges(turns: Turns, messages: pl.DataFrame) -> list[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """(receiver's row, sender's row, weight) of what was kept, by the receiver's turn, the latest first."""
    keys = [key for key in EPISODE if key in turns.columns]
    kept = messages.filter(pl.col("kept")) if "kept" in messages.columns else messages
    spoken = turns.frame.select(*keys, pl.col("agent").cast(pl.String), pl.col("turn").cast(pl.Int64))
    names = pl.Enum(spoken["agent"].unique().sort())
    longest = int(spoken["turn"].fill_null(0).to_numpy().max(initial=0)) + 1
    episodes = spoken.select(keys).unique(maintain_order=True).with_row_index("_episode")

    def place(agent: str, turn: str) -> pl.Expr:
        """One number for who spoke when; null for whom no turn is of."""
        who = pl.col(agent).cast(pl.String).cast(names, strict=False).to_physical().cast(pl.Int64)
        when = pl.when(pl.col(turn).is_between(0, longest - 1)).then(pl.col(turn).cast(pl.Int64))
        return (pl.col("_episode").cast(pl.Int64) * len(names.categories) + who) * longest + when

    rows = (
        spoken.join(episodes, on=keys, nulls_equal=True, maintain_order="left")
        .select(place("agent", "turn").alias("_place"))
        .with_row_index("_row")
    )
    joined = kept.join(episodes, on=keys, nulls_equal=True).select(
        place("receiver", "receiver_turn").alias("_to"),
        place("sender", "sender_turn").alias("_from"),
        "receiver_turn",
        _weight=pl.col("weight").cast(pl.Float64).fill_nan(None).clip(lower_bound=0.0).fill_null(0.0),
    )
    for name in ("_to", "_from"):
        joined = joined.join(rows.rename({"_place": name, "_row": f"{name}_row"}), on=name)
    to, sender = joined["_to_row"].to_numpy(), joined["_from_row"].to_numpy()
    weight, when = joined["_weight"].to_numpy(), joined["receiver_turn"].to_numpy()
    total, count = np.bincount(to, weight, len(spoken))[to], np.bincount(to, minlength=len(spoken))[to]
    scaled = np.where(total > 0, weight / np.where(total > 0, total, 1.0), 1 / np.maximum(count, 1))
    order = np.argsort(-when, kind="stable")
    cuts = np.flatnonzero(np.diff(when[order])) + 1
    return [(to[part], sender[part], scaled[part]) for part in np.split(order, cuts) if len(part)]


def cosine_contribution(turns: Turns, *, embedding: str = "embedding", over: Sequence[str] = ("group",)) -> np.ndarray:
    """SelfOrg's contribution ([40]), float64[rows] of `Turns`: cosine of the row's embedding to its group's mean.

    Source: arXiv 2510.00685.

    r: unit vectors. It approximates the Shapley value of v(S) = cos(mean r_S, mean r_all), says the paper; a row
    without an embedding is NaN.

    Raises:
        MissingColumnError, InputError: there is no such column, or the vectors differ in length.
    """
    vectors, known = unit_vectors(turns, embedding)
    codes = turns.codes(*over)
    found = np.full(len(turns), np.nan)
    found[known] = contributions(vectors, codes.ids[known])
    return found


def contributions(vectors: np.ndarray, groups: np.ndarray | None = None) -> np.ndarray:
    """float64[n]: cosine of each unit vector, float64[n, d], to the mean of its group, int[n], or of all.

    >>> contributions(np.array([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]])).round(3).tolist()
    [0.894, 0.894, 0.447]
    """
    ids = np.zeros(len(vectors), np.int64) if groups is None else groups
    means = np.zeros((int(ids.max(initial=-1)) + 1, vectors.shape[1]))
    np.add.at(means, ids, vectors)
    means /= np.maximum(np.linalg.norm(means, axis=1, keepdims=True), 1e-300)
    return np.asarray((vectors * means[ids]).sum(1))


def hindsight_credit(turns: Turns, verdict: str, *, members: Sequence[str] = ()) -> pl.DataFrame:
    """Table per agent of `Turns`: episodes, invoked, helpful (share of episodes where a judge's column `verdict` > 0).

    BOAD [129], arXiv 2512.23631; helpful is float64.

    helpful: share of all episodes in which a judge, who knows how it ended, says that one of the member's turns helped
    (column `verdict`); an episode in which a member was not invoked counts against it, one whose verdicts are all
    missing is left out. members: those that could have been invoked, if not all of them ever were.

    Raises:
        MissingColumnError: there is no such column.
    """
    need_columns("hindsight_credit", turns.columns, [verdict])
    episodes = turns.codes("episode")
    frame = turns.frame.select(
        pl.Series("_episode", episodes.ids),
        pl.col("agent").cast(pl.String),
        _said=pl.col(verdict).cast(pl.Float64).fill_nan(None),
    )
    judged = frame.group_by("agent", "_episode").agg(pl.col("_said").max())
    found = judged.group_by("agent").agg(
        invoked=pl.len(), _missing=pl.col("_said").null_count(), _helped=(pl.col("_said") > 0).sum()
    )
    silent = [name for name in members if name not in set(found["agent"])]
    rows = pl.concat([found, pl.DataFrame({"agent": silent}, schema={"agent": pl.String})], how="diagonal")
    counted = episodes.size - pl.col("_missing").fill_null(0)
    return rows.select(
        "agent",
        episodes=counted.cast(pl.Int64),
        invoked=pl.col("invoked").fill_null(0).cast(pl.Int64),
        helpful=pl.when(counted > 0).then(pl.col("_helped").fill_null(0) / counted),
    ).sort("helpful", "agent", descending=[True, False], nulls_last=True)


def unit_vectors(turns: Turns, name: str) -> tuple[np.ndarray, np.ndarray]:
    """(vectors float64[known, d], rows int64[known]): embeddings in column `name` of `Turns`, where given, of length 1.

    A vector with a number that is missing is none.
    """
    if name not in turns.columns:
        raise MissingColumnError(f"no column {name!r}{nearest(name, turns.columns)}; the stage embed() gives one")
    given = turns[name].arr.to_list() if turns[name].dtype.base_type() is pl.Array else turns[name]
    if given.dtype.base_type() is not pl.List or not given.dtype.inner.is_numeric():  # type: ignore[attr-defined]
        raise InputError(f"column {name!r} holds {given.dtype}, expected lists of numbers")
    lengths = given.list.len().fill_null(0).to_numpy()
    known = np.flatnonzero(lengths > 0)
    if len(sizes := sorted(set(lengths[known].tolist()))) > 1:
        raise InputError(f"column {name!r}: vectors of {sizes[0]} and {sizes[1]} numbers; give equal ones")
    if not len(known):
        return np.zeros((0, 1)), known
    vectors = given.gather(known).explode().cast(pl.Float64).to_numpy().reshape(len(known), -1)
    whole = np.isfinite(vectors).all(1)
    vectors, known = vectors[whole], known[whole]
    return vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-300), known
