"""Episodes of a team as arrays: observations, actions and rewards by turn and agent."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import polars as pl

from palaestra.algebra.turns import Turns
from palaestra.errors import InputError

KEYS = ("run", "iteration", "group", "episode")


class TeamPlay(NamedTuple):
    """Data: episodes of a team as arrays, padded to the longest.

    Attributes:
        seen: float32[episodes, turns, agents, features].
        did: int64[episodes, turns, agents], action ids.
        paid: float32[episodes, turns, agents], rewards.
        there: bool[episodes, turns, agents], who acted.
        ended: bool[episodes, turns], true at the last turn of an episode that ended by its rules.
    """

    seen: np.ndarray
    did: np.ndarray
    paid: np.ndarray
    there: np.ndarray
    ended: np.ndarray


def team_play(turns: Turns, agents: list[str]) -> TeamPlay:
    """`TeamPlay` of a table's episodes: arrays by episode, turn and agent; turns are numbered anew from 0.

    Raises:
        InputError: a row has no array or action id, arrays differ in length, or actions are masked.
    """
    frame = turns.frame
    if (
        frame["features"].null_count()
        or frame["action_ids"].null_count()
        or frame["features"].list.len().n_unique() > 1
    ):
        raise InputError("world model: each row needs an array, of one length for all agents, and an action id")
    if "legal" in frame.columns and frame["legal"].null_count() < len(frame):
        raise InputError("world model: the env masks actions; it imagines those of envs without masks only")
    keys = [name for name in KEYS if name in frame.columns]
    order = frame.select(
        pl.struct(keys).rank("dense").cast(pl.Int64).alias("_episode") - 1,
        pl.col("turn").rank("dense").over(keys).cast(pl.Int64).alias("_turn") - 1,
        pl.col("agent").cast(pl.String).replace_strict(agents, list(range(len(agents))), return_dtype=pl.Int64),
    )
    at = tuple(order[name].to_numpy() for name in ("_episode", "_turn", "agent"))
    shape = (int(at[0].max()) + 1, int(at[1].max()) + 1, len(agents))
    rows = np.full(shape, -1)
    rows[at] = np.arange(len(frame))
    there = rows >= 0
    features = frame["features"].explode().to_numpy().astype(np.float32).reshape(len(frame), -1)
    did = frame["action_ids"].list.first().to_numpy()
    length = there.any(-1).sum(-1)
    ended = np.zeros(shape[:2], bool)
    rules = frame["terminated"].fill_null(False).to_numpy()[rows.max((1, 2))]
    ended[np.arange(len(length)), length - 1] = rules
    return TeamPlay(
        features[rows] * there[..., None],
        np.where(there, did[rows], 0).astype(np.int64),
        np.where(there, frame["reward"].fill_null(0.0).to_numpy()[rows], 0.0).astype(np.float32),
        there,
        ended,
    )


def joined_play(old: TeamPlay | None, new: TeamPlay, most: int) -> TeamPlay:
    """`TeamPlay` of the newest `most` of old and new episodes, padded to one length."""
    if old is None:
        return TeamPlay(*(each[-most:] for each in new))
    longest = max(old.ended.shape[1], new.ended.shape[1])

    def padded(each: np.ndarray) -> np.ndarray:
        return np.pad(each, [(0, 0), (0, longest - each.shape[1]), *[(0, 0)] * (each.ndim - 2)])

    return TeamPlay(*(np.concatenate([padded(a), padded(b)])[-most:] for a, b in zip(old, new, strict=True)))


def smoothed(paid: np.ndarray, there: np.ndarray, width: float) -> np.ndarray:
    """Rewards float64[episodes, turns, agents], each spread by a Gaussian of `width` over the agent's turns; same sum.

    Turn s gives turn t the share w(t - s) / Σₜ w(t - s) of its reward, with w(d) = exp(-d² / 2 width²), over the turns
    of the agent in the episode. The paper's kernel is not known; this one is a reconstruction.

    Args:
        paid: rewards, [episodes, turns, agents].
        there: which turns exist, of the same shape.
        width: in turns; 0 changes nothing.

    Returns:
        float64 of the same shape.

    >>> smoothed(np.array([0, 0, 0, 1.0]).reshape(1, 4, 1), np.ones((1, 4, 1), bool), 1.0).ravel().round(4).tolist()
    [0.0063, 0.0772, 0.346, 0.5705]
    """
    if width == 0:
        return np.asarray(paid * there, float)
    apart = np.arange(paid.shape[1])[:, None] - np.arange(paid.shape[1])
    weights = np.exp(-0.5 * (apart / width) ** 2)[None, :, :, None] * there[:, :, None]
    return np.asarray(
        np.einsum("etsa,esa->eta", weights / np.maximum(weights.sum(1, keepdims=True), 1e-12), paid * there)
    )
