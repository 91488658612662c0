"""From the table to what an update needs: a policy's rows with credit, checked, and padded piece by piece."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import polars as pl
import torch
from torch import Tensor

from palaestra.agents.policy import Scored
from palaestra.algebra.list_columns import ragged
from palaestra.algebra.turns import Turns
from palaestra.errors import LearnerError, RewardError

_PLACE = ("run", "iteration", "group", "episode", "turn", "agent")


@dataclass(frozen=True)
class Batch:
    """Data: rows of one policy that take part in an update, with advantage and old log-probability of each token.

    rows: the table's rows.
    advantage, old: float32[all tokens], row after row; a token with advantage NaN takes no part.
    offsets, lengths: where a row's tokens begin and how many there are. counts: how many of them take part.
    size: prompt and action tokens, what a row costs. credited: the row has an advantage that is not 0.
    entropy: mean over tokens, as it was when they were sampled; None if the policy did not say.
    """

    rows: pl.DataFrame
    advantage: np.ndarray
    old: np.ndarray
    offsets: np.ndarray
    lengths: np.ndarray
    counts: np.ndarray
    size: np.ndarray
    credited: np.ndarray
    entropy: float | None

    def tensors(self, name: str, piece: np.ndarray, scored: Scored) -> tuple[Tensor, Tensor, Tensor]:
        """Advantage, old log-probabilities and mask of the rows `piece` as tensors: [rows, longest action].

        Raises:
            LearnerError: the policy scored another number of tokens than the table has.
        """
        lengths = self.lengths[piece]
        scored_lengths = scored.mask.sum(1).cpu().numpy()
        if not np.array_equal(scored_lengths, lengths):
            at = int(np.flatnonzero(scored_lengths != lengths)[0])
            raise LearnerError(
                f"policy {name!r} scored {scored_lengths[at]} tokens where the table has {lengths[at]} "
                f"({_place(self.rows, int(piece[at]))}); was the action sampled by another policy?"
            )
        places = np.arange(scored.mask.shape[1])
        real = places < lengths[:, None]
        at_token = np.where(real, self.offsets[piece][:, None] + places, 0)
        advantage = self.advantage[at_token]
        mask = real & ~np.isnan(advantage)
        device = scored.logprobs.device
        return (
            torch.from_numpy(np.where(mask, advantage, np.float32(0))).to(device),
            torch.from_numpy(np.where(mask, self.old[at_token], np.float32(0))).to(device),
            torch.from_numpy(mask).to(device),
        )


def make_batch(turns: Turns, policy: str, advantage: str | None) -> Batch:
    """Batch of `Turns` of `policy` without an error, with a value in column `advantage`; None: with `action_ids`.

    Without an advantage all tokens take part, with credit 0, and log-probabilities may be missing.

    Raises:
        MissingColumnError: a column that learning needs is absent.
        LearnerError: an advantage is not finite, or a row lacks what was sampled; names the rows.
    """
    for needed in ("policy", "action_ids", *(() if advantage is None else ("logprobs", advantage))):
        turns[needed]
    part = pl.col("policy").cast(pl.String) == policy
    if "error" in turns.columns:
        part = part & pl.col("error").is_null()
    rows = turns.frame.filter(part, pl.col(advantage or "action_ids").is_not_null())
    _refuse(rows, rows["action_ids"].is_null().to_numpy(), f"policy {policy!r}: no action_ids to learn from")
    _, _, lengths = ragged(rows["action_ids"])
    if advantage is None:
        old = credit = np.zeros(int(lengths.sum()))
    else:
        old, unknown, given = ragged(rows["logprobs"])
        _refuse(rows, given != lengths, f"policy {policy!r}: logprobs and action_ids differ in length")
        unusable = per_row(unknown | ~np.isfinite(old), lengths) > 0
        _refuse(rows, unusable, f"policy {policy!r}: a log-probability is missing or not finite")
        credit = _credit(rows, advantage, lengths)
    prompts = ragged(rows["prompt_ids"])[2] if "prompt_ids" in rows.columns else 0
    return Batch(
        rows=rows,
        advantage=credit.astype(np.float32),
        old=old.astype(np.float32),
        offsets=np.cumsum(lengths) - lengths,
        lengths=lengths,
        counts=per_row(~np.isnan(credit), lengths),
        size=lengths + prompts,
        credited=per_row(np.nan_to_num(credit) != 0, lengths) > 0,
        entropy=_mean_entropy(rows),
    )


def check_rewards(turns: Turns) -> None:
    """Raise RewardError if a reward in `Turns` is NaN or infinite; a null, not scored, is fine.

    Raises:
        RewardError: names the rows.
    """
    if "reward" in turns.columns:
        reward = turns["reward"].fill_null(0.0).to_numpy()
        bad = ~np.isfinite(reward)
        if bad.any():
            found = f"{reward[bad][0]} in {_name(turns.frame, bad)}"
            raise RewardError(f"column 'reward' must be finite or null (not scored): {found}; nothing was updated")


def per_row(values: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """Array int64[rows]: sum of the flat token `values` over each row's tokens (`lengths`); True counts 1."""
    rows = np.repeat(np.arange(len(lengths)), lengths)
    return np.bincount(rows, values, len(lengths)).astype(np.int64)


def pieces(rows: np.ndarray, size: np.ndarray, limit: int) -> Iterator[np.ndarray]:
    """Generator of micro-batches of row numbers `rows`, shortest by array `size` first, at most `limit` padded tokens.

    A longer row is a batch of its own.
    """
    rows = rows[np.argsort(size[rows], kind="stable")]
    start = 0
    while start < len(rows):
        padded = np.arange(1, len(rows) - start + 1) * size[rows[start:]]
        count = max(int(np.searchsorted(padded, limit, side="right")), 1)
        yield rows[start : start + count]
        start += count


def minibatches(
    batch: Batch,
    epochs: int,
    size: int | None,
    together: str | None,
    rng: np.random.Generator | None,
    rows: np.ndarray | None = None,
) -> Iterator[np.ndarray]:
    """Generator of a `Batch`'s row numbers, `size` a step, for all epochs, shuffled by `rng`; without it all at once.

    together: column whose equal values come in one step, which may then be longer than `size`; a row without a value is
    by itself. rows: only these.
    """
    rows = np.arange(len(batch.size)) if rows is None else rows
    size = size or len(rows)
    for _ in range(epochs if len(rows) else 0):
        if size >= len(rows) or rng is None:
            yield rows
        elif together is None:
            order = rng.permutation(rows)
            yield from (order[start : start + size] for start in range(0, len(rows), size))
        else:
            of = batch.rows[together][rows].cast(pl.String).rank("dense").fill_null(0).to_numpy().astype(np.int64) - 1
            of[of < 0] = of.max() + 1 + np.arange((of < 0).sum())
            order = np.argsort(rng.permutation(of.max() + 1)[of], kind="stable")
            firsts = np.flatnonzero(np.diff(of[order], prepend=-1))
            starts = np.unique(firsts // size, return_index=True)[1]
            yield from np.split(rows[order], firsts[starts][1:])


def _credit(rows: pl.DataFrame, column: str, lengths: np.ndarray) -> np.ndarray:
    """Advantage of every token, float64[tokens]; NaN where a token has none."""
    if rows[column].dtype.base_type() not in (pl.List, pl.Array):
        credit = rows[column].cast(pl.Float64).to_numpy()
        _refuse(rows, ~np.isfinite(credit), f"column {column!r}: an advantage is not finite")
        return np.repeat(credit, lengths)
    credit, missing, given = ragged(rows[column])
    _refuse(rows, given != lengths, f"column {column!r}: the number of advantages is not that of action_ids")
    credit = credit.astype(np.float64)
    bad = per_row(~np.isfinite(credit) & ~missing, lengths) > 0
    _refuse(rows, bad, f"column {column!r}: an advantage is not finite")
    return np.where(missing, np.nan, credit)


def _mean_entropy(rows: pl.DataFrame) -> float | None:
    if "entropies" not in rows.columns:
        return None
    values, missing, _ = ragged(rows["entropies"])
    values = values[~missing]
    return float(values.mean(dtype=np.float64)) if len(values) else None


def _refuse(rows: pl.DataFrame, bad: np.ndarray, what: str) -> None:
    if bad.any():
        raise LearnerError(f"{what}: {_name(rows, bad)}; nothing was updated")


def _name(rows: pl.DataFrame, bad: np.ndarray) -> str:
    """`"2 rows (group 0, episode 1, turn 3, agent a; ...)"`."""
    places = np.flatnonzero(bad)
    named = "; ".join(_place(rows, int(at)) for at in places[:3]) + ("; ..." if len(places) > 3 else "")
    return f"{len(places)} row{'s' * (len(places) > 1)} ({named})"


def _place(rows: pl.DataFrame, at: int) -> str:
    known = {name: rows[name][at] for name in _PLACE if name in rows.columns}
    return ", ".join(f"{name} {value}" for name, value in known.items() if value is not None) or f"row {at}"
