"""Empirical pay-offs between the members of a league: sums per pair, from which mean, interval and game follow.

Rows are who has the seats of the learner, columns who has the seats of the opponents. Cells share no episodes, except
two that mirror each other.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import scipy

from palaestra.algebra.schema import episode_failed
from palaestra.errors import InputError
from palaestra.evaluation.games.game import Game
from palaestra.foundation.files import atomic_write, write_json

SUMS = ("n", "own", "own_squares", "other", "other_squares", "won", "drawn")
"""Statistics of each pair: episodes, sums and sums of squares of both returns, and how often the row won or drew."""

FILES = ("payoffs.json", "payoffs.csv", "matches.csv")


class Payoffs:
    """Empirical pay-off matrix between the members of a league.

    Args:
        mirrored: whether an episode of (row, column) is one of (column, row) as well, with the sides exchanged.

    Attributes:
        names: of the members, in the order of rows and columns.
        sums: of each name in `SUMS`, float64[members, members].
    """

    def __init__(self, *, mirrored: bool = False) -> None:
        self.mirrored = mirrored
        self.names: list[str] = []
        self.sums: dict[str, np.ndarray] = {name: np.zeros((0, 0)) for name in SUMS}

    def grow(self, name: str) -> None:
        """Add a member, with empty cells."""
        self.names.append(name)
        self.sums = {key: np.pad(table, (0, 1)) for key, table in self.sums.items()}

    def add(self, row: int, column: int, own: np.ndarray, other: np.ndarray) -> None:
        """Add the returns of episodes between two members.

        Args:
            row: number of who had the learner's seats.
            column: number of who had the opponents' seats.
            own: mean return of the learner's seats, float64[episodes].
            other: mean return of the opponents' seats, float64[episodes].
        """
        if self.mirrored and row == column:  # one policy on both sides: neither side is the learner's
            own = other = (own + other) / 2
        for name, value in tally(own, other).items():
            self.sums[name][row, column] += value
        if self.mirrored and row != column:
            for name, value in tally(other, own).items():
                self.sums[name][column, row] += value

    def mean(self) -> np.ndarray:
        """Mean return of the row's side, float64[members, members]; NaN where no episode was played."""
        return _ratio(self.sums["own"], self.sums["n"])

    def errors(self) -> np.ndarray:
        """Standard error of each mean return, float64[members, members]; NaN below two episodes."""
        return _error(self.sums["n"], self.sums["own"], self.sums["own_squares"])

    def points(self) -> np.ndarray:
        """Share of episodes that the row's side won, draws half, float64[members, members]; NaN without episodes."""
        return _ratio(self.sums["won"] + self.sums["drawn"] / 2, self.sums["n"])

    def complete(self) -> np.ndarray:
        """Numbers of the members who met all others, the rows of `game`, int64[n]."""
        n = self.sums["n"]
        return np.flatnonzero((n > 0).all(axis=1)) if len(n) else np.zeros(0, np.int64)

    def game(self) -> Game:
        """Empirical game between the members who met all others (rows: past selves) and all members (columns).

        Raises:
            InputError: there is nobody who has; names a pair that did not play.
        """
        n = self.sums["n"]
        rows = self.complete()
        if not len(rows):
            pair = " and ".join(self.names[at] for at in np.argwhere(n == 0)[-1]) if len(n) else "nobody is there"
            raise InputError(f"league: a pair has not played ({pair}); set opponents.matches to 2 or more")
        n = n[rows]
        own, other = (self.sums[key][rows] / n for key in ("own", "other"))
        error = np.nan_to_num(self.errors()[rows])
        constant = np.ptp(own + other) <= 1e-9 * max(float(np.abs(own).max()), 1e-300)
        errors = (
            error if constant else np.nan_to_num(_error(n, self.sums["other"][rows], self.sums["other_squares"][rows]))
        )
        covariance = np.zeros((*n.shape, 2, 2))
        covariance[..., 0, 0], covariance[..., 1, 1] = error**2, errors**2
        if constant:  # what one side gets, the other loses
            covariance[..., 0, 1] = covariance[..., 1, 0] = -(error**2)
        names = tuple(self.names[row] for row in rows), tuple(self.names)
        known: dict[str, Any] = {"covariance": covariance, "count": n.astype(np.int64), "mirrored": self.mirrored}
        return Game((own, other), ("learner", "opponent"), names, **known)

    def table(self, level: float = 0.95) -> pl.DataFrame:
        """Table `member, opponent, mean, low, high, n` of each pair that has played, with Student's t interval."""
        n, mean, error = self.sums["n"], self.mean(), self.errors()
        row, column = np.nonzero(n > 0)
        margin = error * scipy.stats.t.ppf((1 + level) / 2, np.maximum(n - 1, 1))
        names = np.array(self.names, dtype=object)
        columns: dict[str, Any] = {"member": names[row].tolist(), "opponent": names[column].tolist()}
        numbers = {"mean": mean, "low": mean - margin, "high": mean + margin}
        columns |= {name: table[row, column] for name, table in numbers.items()}
        return pl.DataFrame(columns).with_columns(
            pl.col("low", "high").fill_nan(None), n=n[row, column].astype(np.int64)
        )

    def matches(self) -> pl.DataFrame:
        """Table `player, opponent, score, weight`: how often each pair ended in 1, .5 or 0, for `palaestra rank`."""
        lost = self.sums["n"] - self.sums["won"] - self.sums["drawn"]
        size, parts = len(self.names), []
        counted = np.tri(size, k=-1) if self.mirrored else 1 - np.eye(size)
        for score, count in ((1.0, self.sums["won"]), (0.5, self.sums["drawn"]), (0.0, lost)):
            row, column = np.nonzero(count * counted > 0)
            names = np.array(self.names, dtype=object)
            who = {"player": names[row].tolist(), "opponent": names[column].tolist(), "score": [score] * len(row)}
            parts.append(pl.DataFrame(who | {"weight": count[row, column]}, schema_overrides=_MATCHES))
        return pl.concat(parts)

    def write(self, folder: Path) -> None:
        """Write `payoffs.json` (for `palaestra solve`), `matches.csv` (for `palaestra rank`) and `payoffs.csv`.

        Nothing is written while nobody has played.
        """
        if not (self.sums["n"] > 0).all(axis=1).any():
            return
        game = self.game()
        assert game.error is not None
        assert game.count is not None
        data = {
            "payoffs": [table.tolist() for table in game.payoffs],
            "players": list(game.players),
            "strategies": [list(own) for own in game.strategies],
            "error": [table.tolist() for table in game.error],
            "count": game.count.tolist(),
            "mirrored": game.mirrored,
        }
        write_json(folder / FILES[0], data)
        for name, table in ((FILES[1], self.table()), (FILES[2], self.matches())):
            with atomic_write(folder / name) as temporary:
                table.write_csv(temporary)

    def state_dict(self) -> dict[str, Any]:
        """Names and sums, for a checkpoint."""
        return {"names": list(self.names), "sums": {name: table.copy() for name, table in self.sums.items()}}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Inverse of `state_dict`."""
        self.names = list(state["names"])
        self.sums = {name: np.array(state["sums"][name], float) for name in SUMS}


def tally(own: np.ndarray, other: np.ndarray) -> dict[str, float]:
    """Dict of sums over episodes of two sides' returns, arrays `own` and `other`: count, sums, squares, wins, draws.

    Its keys are the names in `SUMS`.

    >>> {name: float(value) for name, value in tally(np.array([1.0, -1, 0]), np.array([-1.0, 1, 0])).items()}["won"]
    1.0
    """
    sums = (
        len(own),
        own.sum(),
        (own**2).sum(),
        other.sum(),
        (other**2).sum(),
        (own > other).sum(),
        (own == other).sum(),
    )
    return {name: float(value) for name, value in zip(SUMS, sums, strict=True)}


def sides(turns: pl.DataFrame, opponents: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
    """Pair of float64[episodes] from a table of turns: mean return of the learner's and of the `opponents`' seats.

    Episodes that failed are left out. A seat that had no turn, because a game may end before it, counts with what it
    received; a side that had none and received nothing has 0.
    """
    keys = ["group", "episode"]
    kept = turns.filter(~episode_failed().any().over(keys))
    rewards = kept.select(*keys, pl.col("agent").cast(pl.String), pl.col("reward").cast(pl.Float64))
    if "metadata" in kept.columns:
        told = kept.filter(pl.col("metadata").str.contains(_UNSEATED, literal=True)).select(*keys, "metadata").rows()
        rows = [(g, e, *item) for g, e, text in told for item in json.loads(text).get(_UNSEATED, {}).items()]
        rewards = rewards.vstack(pl.DataFrame(rows, schema=rewards.schema, orient="row"))
    met = pl.col("agent").is_in(list(opponents))
    found = (
        rewards.group_by(*keys, "agent", maintain_order=True)
        .agg(pl.col("reward").sum())
        .group_by(keys, maintain_order=True)
        .agg(own=pl.col("reward").filter(~met).mean(), other=pl.col("reward").filter(met).mean())
        .fill_null(0.0)
    )
    return found["own"].to_numpy(), found["other"].to_numpy()


_UNSEATED = "rewards_without_turn"
_MATCHES = {"player": pl.String, "opponent": pl.String, "score": pl.Float64, "weight": pl.Float64}


def _ratio(above: np.ndarray, below: np.ndarray) -> np.ndarray:
    return np.asarray(np.divide(above, below, out=np.full(np.shape(above), np.nan), where=below > 0))


def _error(n: np.ndarray, total: np.ndarray, squares: np.ndarray) -> np.ndarray:
    variance = np.maximum(_ratio(squares, n) - _ratio(total, n) ** 2, 0.0)
    return np.asarray(np.sqrt(_ratio(variance, np.where(n > 1, n - 1, 0))))
