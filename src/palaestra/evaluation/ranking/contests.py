"""Contests: many systems ranked at once, by rank or by score, with medals by the public rule of Kaggle.

`palaestra rank CONTESTS.csv --method elo_mmr` rates them in time order; other methods get each contest as the matches
of its pairs. Left out: prizes, and points that decay with time.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import polars as pl
import scipy

from palaestra.errors import InputError, need_columns
from palaestra.evaluation.intervals import RESAMPLES
from palaestra.evaluation.ranking.elo_mmr import Rated, elo_mmr
from palaestra.evaluation.ranking.intransitivity import transitivity
from palaestra.evaluation.ranking.matches import Matches, _read
from palaestra.evaluation.ranking.table import Ranking, rank

KEYS = ("contest", "competition")
"""Names of the column that tells contests apart."""


ISO = r"^\d{4}-\d\d(-\d\d([T ]\d\d:\d\d(:\d\d(\.\d+)?)?Z?)?)?$"
"""Times that sort as text."""


@dataclass(frozen=True)
class Contests:
    """Data of contests of many systems in time order, such as competitions with ranks.

    names: of the systems. rows: `contest, system, rank, teams` in time order, ranks from 1, ties with the better.
    """

    names: tuple[str, ...]
    rows: pl.DataFrame

    def __len__(self) -> int:
        return self.rows["contest"].n_unique()

    def places(self) -> list[tuple[np.ndarray, np.ndarray]]:
        """Per contest in time order: indices of its participants, int[k], and their ranks, float64[k]."""
        at = {name: place for place, name in enumerate(self.names)}
        return [
            (each["system"].replace_strict(at, return_dtype=pl.Int64).to_numpy(), each["rank"].to_numpy().astype(float))
            for _, each in self.rows.group_by("contest", maintain_order=True)
        ]

    def matches(self) -> Matches:
        """The contests as pairwise `Matches`: every pair of each contest; those of a contest are one cluster."""
        a, b, score, cluster = [], [], [], []
        for number, (who, places) in enumerate(self.places()):
            i, j = np.triu_indices(len(who), 1)
            a.append(who[i])
            b.append(who[j])
            score.append((np.sign(places[j] - places[i]) + 1) / 2)
            cluster.append(np.full(len(i), number))
        joined = [np.concatenate(each) for each in (a, b, score, cluster)]
        return Matches(self.names, joined[0], joined[1], joined[2], np.ones(len(joined[0])), joined[3])

    def rated(self) -> Rated:
        """Elo-MMR ratings (`Rated`) of the systems after all contests in time order."""
        return elo_mmr(self.places(), len(self.names))

    def medals(self) -> pl.DataFrame:
        """Table of the systems' medal counts: `system, gold, silver, bronze`."""
        won = [medal(rank, teams) for rank, teams in self.rows.select("rank", "teams").rows()]
        marked = self.rows.with_columns(medal=pl.Series(won, dtype=pl.String))
        return marked.group_by("system", maintain_order=True).agg(
            *((pl.col("medal") == name).sum().alias(name) for name in ("gold", "silver", "bronze"))
        )


def medal(rank: float, teams: int) -> str | None:
    """Kaggle medal of a rank among so many teams: "gold", "silver", "bronze" or None.

    Below 100 teams the first 10, 20 and 40 %; below 250 the first 10, 20 % and 40 %; below 1000 the first 10 and one
    more for each 500 teams, 50 and 100; from 1000 on as many gold, 5 % and 10 %. Shares are rounded down, at least 1.

    >>> [medal(rank, 99) for rank in (9, 10, 19, 20, 39, 40)]
    ['gold', 'silver', 'silver', 'bronze', 'bronze', None]

    Source: the public rule of Kaggle's progression system; rounding is our reading of it.

    Raises:
        InputError: there is no such rank.
    """
    if teams < 1 or not 1 <= rank <= teams:
        raise InputError(f"medal: rank {rank:g} of {teams} teams")

    def share(percent: float) -> int:
        return max(math.floor(percent * teams / 100 + 1e-9), 1)

    more = teams // 500
    if teams < 100:
        limits = (share(10), share(20), share(40))
    elif teams < 250:
        limits = (10, share(20), share(40))
    elif teams < 1000:
        limits = (10 + more, 50, 100)
    else:
        limits = (10 + more, share(5), share(10))
    return next((name for name, last in zip(("gold", "silver", "bronze"), limits) if rank <= last), None)


def is_contests(columns: list[str]) -> bool:
    """Whether a table with these column names holds contests: contest, system, and rank or score."""
    return any(key in columns for key in KEYS) and "system" in columns and ("rank" in columns or "score" in columns)


def contests(frame: pl.DataFrame, where: str | Path = "contests") -> Contests:
    """Makes `Contests` of a table with `contest` (or `competition`), `system`, and `rank` or `score`.

    Also: `time`, by which contests are ordered, otherwise they come as they stand; `lower`, true where a lower score is
    better; `teams`, how many took part in all, otherwise those that are listed. A missing score is the last rank. Times
    are numbers, dates, or texts in the form of ISO 8601 (2024-02-09, 2024-02-09T10:00), which sort as text.

    Raises:
        InputError: a system is twice in a contest, a rank is missing, or a score or a time is none.
    """
    frame = frame.rename(
        {key: "contest" for key in KEYS[1:] if key in frame.columns and "contest" not in frame.columns}
    )
    need_columns(where, frame.columns, ("contest", "system"))
    if "rank" not in frame.columns:
        need_columns(where, frame.columns, ("score",))
        lower = pl.lit(False)
        if "lower" in frame.columns:
            lower = pl.col("lower").cast(pl.String).str.to_lowercase().is_in(["true", "1", "yes"])
        frame, score = frame.with_columns(_numbers(frame, "score", where)), pl.col("score")
        points = pl.when(lower).then(-score).otherwise(score).fill_nan(None).fill_null(-math.inf)
        frame = frame.with_columns(rank=(-points).rank("min").over("contest"))
    if frame["rank"].null_count() or frame["contest"].null_count() or frame["system"].null_count():
        raise InputError(f"{where}: contest, system and rank of every row are needed")
    if frame.select("contest", "system").is_duplicated().any():
        raise InputError(f"{where}: a system is twice in one contest; keep its best entry")
    if "time" in frame.columns:
        time = frame["time"]
        when = time.cast(pl.Float64, strict=False)
        unsorted = when.null_count() > time.null_count() and time.dtype == pl.String
        if unsorted and len(odd := time.drop_nulls().filter(~time.drop_nulls().str.contains(ISO))):
            raise InputError(f"{where}: time {odd[0]!r} does not sort as text; write it as 2024-02-09, or as a number")
        frame = frame.sort("time" if when.null_count() else when, maintain_order=True)
    teams: pl.Series | pl.Expr = pl.len().over("contest")
    if "teams" in frame.columns:
        teams = _numbers(frame, "teams", where).cast(pl.Int64)
    rows = frame.select(pl.col("contest", "system").cast(pl.String), _numbers(frame, "rank", where), teams=teams)
    return Contests(tuple(sorted(set(rows["system"]))), rows)


def _numbers(frame: pl.DataFrame, name: str, where: str | Path) -> pl.Series:
    found = frame[name].cast(pl.Float64, strict=False)
    if found.null_count() > frame[name].null_count():
        odd = frame[name].filter(found.is_null() & frame[name].is_not_null())[0]
        raise InputError(f"{where}: {name} {odd!r} is no number; where there is none, leave it blank")
    return found


def read_contests(source: str | Path) -> Contests | None:
    """Reads `Contests` from a table file; None if its columns are not those of contests.

    Raises:
        InputError: as `contests`. StorageError: the file cannot be read.
    """
    frame = _read(Path(source))
    return contests(frame, source) if is_contests(frame.columns) else None


def rank_contests(found: Contests, method: str = "auto", *, resamples: int = RESAMPLES, seed: int = 0) -> Ranking:
    """`Ranking` of the systems of `Contests`, with medals: "elo_mmr" rates them in time order, others as `rank`.

    Raises:
        InputError: there is no such method.
    """
    if method != "elo_mmr":
        ranking = rank(found.matches(), method, resamples=resamples, seed=seed)
        return replace(ranking, table=ranking.table.join(found.medals(), on="system", maintain_order="left"))
    played = found.matches()
    test = transitivity(played.wins(), played.ties(), resamples=resamples, seed=seed)
    table = mmr_table(found)
    first = table.filter(pl.col("rank_low") == 1)["system"].to_list()
    settled = f"{first[0]} is first" if len(first) == 1 else f"cannot tell who is first: {', '.join(first[:6])}"
    return Ranking(table, "elo_mmr", test, f"{settled} ({len(found)} contests in time order, elo_mmr; {test.reason})")


def mmr_table(found: Contests, *, level: float = 0.95) -> pl.DataFrame:
    """Ranking table of `Contests` by Elo-MMR, a row per system, with medals and normal intervals by rating deviation.

    Returns:
        `system, score, low, high, rank, rank_low, rank_high, n, wins, losses, draws, contests, gold, silver, bronze`,
        the best first; wins: systems that were beaten in the contests; n: all that were met in them, once in each. A
        rank may be taken by any whose interval meets.
    """
    rated, played = found.rated(), found.matches()
    margin = float(scipy.stats.norm.ppf((1 + level) / 2)) * rated.sigma
    low, high = rated.mu - margin, rated.mu + margin
    wins, ties = played.wins(), played.ties()
    count = found.rows.group_by("system").len("contests")
    table = pl.DataFrame({
        "system": found.names, "score": rated.mu, "low": low, "high": high,
        "rank": scipy.stats.rankdata(-np.round(rated.mu, 9), method="min").astype(int),
        "rank_low": 1 + (low[None] > high[:, None]).sum(1), "rank_high": len(low) - (high[None] < low[:, None]).sum(1),
        "n": (wins + wins.T + ties).sum(1), "wins": wins.sum(1), "losses": wins.sum(0), "draws": ties.sum(1),
    })  # fmt: skip
    table = table.join(count, on="system").join(found.medals(), on="system")
    order = ("system", "score", "low", "high", "rank", "rank_low", "rank_high", "n", "wins", "losses", "draws")
    return table.select(*order, "contests", "gold", "silver", "bronze").sort("rank", "system")
