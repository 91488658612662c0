"""Empirical games: payoffs between policies estimated from a table of turns, with the errors of every cell."""

from __future__ import annotations

import numpy as np
import polars as pl

from palaestra.algebra.schema import episode_failed
from palaestra.algebra.turns import Turns
from palaestra.errors import InputError
from palaestra.evaluation.games.game import Game
from palaestra.evaluation.games.society import EPISODE

_LEAGUE = "; of a league all pairs are in seed-N/league/payoffs.json"


def empirical_game(turns: Turns, by: str = "policy", *, reward: str = "reward") -> Game:
    """`Game` estimated from `Turns`: strategies are values of column `by`, payoffs the mean returns of their episodes.

    Players are the agents, strategies the values of `by` that each agent has, and payoffs the mean returns of an
    episode. Episodes of one group (same task and start) are one draw for the errors, unless every cell has one group
    alone. Episodes that failed are left out.

    Args:
        turns: with agent, episode, `by` and `reward`; `EPISODE` has the columns that tell episodes apart.
        by: the column that says which strategy an agent plays in an episode.
        reward: column of the rewards; null counts as none.

    Raises:
        MissingColumnError: a column is missing.
        InputError: a strategy changes within an episode, an agent is missing from some episodes, or strategies never
            met; names them.
    """
    for name in ("agent", "episode", by, reward):
        turns._require(name, "empirical_game: ")
    episode = turns.codes(*(name for name in EPISODE if name in turns.columns)).ids
    group = turns.codes("group").ids if "group" in turns.columns else episode
    rows = turns.frame.select(
        agent=pl.col("agent").cast(pl.String),
        by=pl.col(by).cast(pl.String),
        x=pl.col(reward).cast(pl.Float64).fill_null(0.0),
        failed=episode_failed() if "error" in turns.columns else pl.lit(False),
    ).with_columns(e=episode, g=group)
    rows = rows.filter(~pl.col("failed").any().over("e"))
    if not len(rows):
        raise InputError("empirical_game: there is no episode, or all have failed")
    if rows["by"].null_count():
        raise InputError(f"empirical_game: column {by!r} is null in {rows['by'].null_count()} rows")
    seats = rows.group_by("e", "agent").agg(
        pl.col("by").first(), n=pl.col("by").n_unique(), x=pl.col("x").sum(), g=pl.col("g").first()
    )
    changed = seats.filter(pl.col("n") > 1)
    if len(changed):
        row = changed.row(0, named=True)
        raise InputError(
            f"empirical_game: agent {row['agent']!r} has {row['n']} values of {by!r} in one episode ({len(changed)} "
            "such seats); a strategy is fixed for an episode"
        )
    players = sorted(seats["agent"].unique())
    played = seats.pivot("agent", index=["e", "g"], values=["by", "x"], separator="\x00").sort("e")
    names, returns = [f"by\x00{player}" for player in players], [f"x\x00{player}" for player in players]
    for player, name in zip(players, names, strict=True):
        lacking = played[name].null_count()
        if lacking:
            raise InputError(
                f"empirical_game: agent {player!r} has no turn in {lacking} of {len(played)} episodes; a cell needs a "
                "strategy of every player"
            )
    strategies = tuple(tuple(sorted(played[name].unique())) for name in names)
    shape = tuple(map(len, strategies))
    places = [
        np.searchsorted(np.array(own), played[name].to_numpy()) for own, name in zip(strategies, names, strict=True)
    ]
    cell = np.ravel_multi_index(places, shape)
    x = played.select(returns).to_numpy()
    cells, n = int(np.prod(shape)), len(players)
    count = np.bincount(cell, minlength=cells)
    empty = np.flatnonzero(count == 0)
    if len(empty):
        at = np.unravel_index(empty[0], shape)
        pairs = ", ".join(f"{who}={own[k]}" for who, own, k in zip(players, strategies, at, strict=True))
        raise InputError(
            f"empirical_game: nobody played ({pairs}); {len(empty)} of {cells} cells are empty: play them, or filter "
            f"the turns to values of {by!r} that all met{_LEAGUE if 'opponent' in turns.columns else ''}"
        )
    mean = np.stack([np.bincount(cell, x[:, i], cells) / count for i in range(n)], axis=-1)
    centred = x - mean[cell]
    squares = np.stack([np.bincount(cell, centred[:, i] ** 2, cells) for i in range(n)], axis=-1)
    variance = squares / np.maximum(count - 1, 1)[:, None]
    covariance, groups = _covariance(centred, cell, played["g"].to_numpy(), count)
    tables = tuple(mean[:, i].reshape(shape) for i in range(n))
    spread = tuple(variance[:, i].reshape(shape) for i in range(n))
    return Game(tables, tuple(players), strategies, spread, covariance.reshape(*shape, n, n), groups.reshape(shape))


def _covariance(
    centred: np.ndarray, cell: np.ndarray, group: np.ndarray, count: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Covariance of each cell's mean, and how many groups it comes from; of episodes, if no cell has two groups.

    One group says nothing about the spread between groups: where other cells have several, its covariance is NaN.
    """
    cells, n = len(count), centred.shape[1]
    key, unit = np.unique(np.stack([cell, group]), axis=1, return_inverse=True)
    of_cell, groups = key[0], np.bincount(key[0], minlength=cells)
    if (groups < 2).all():
        unit, of_cell, groups = np.arange(len(cell)), cell, count
    total = np.stack([np.bincount(unit.ravel(), centred[:, i], len(of_cell)) for i in range(n)], axis=-1)
    scale = np.where(groups > 1, groups / np.maximum(groups - 1, 1), np.nan) / count**2
    found = np.empty((cells, n, n))
    for i in range(n):
        for j in range(n):
            found[:, i, j] = np.bincount(of_cell, total[:, i] * total[:, j], cells) * scale
    return found, groups
