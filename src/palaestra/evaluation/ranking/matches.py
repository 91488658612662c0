"""Matches: who met whom, and what came of it. From a file, or from trials of several systems on the same tasks.

Left out: matches of more than two (make pairs of them) and margins of victory (a score is a win, a draw or a loss).
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components

from palaestra.errors import InputError, MissingColumnError, StorageError, nearest
from palaestra.evaluation.ranking.voting import widest_paths

_ALIASES = {
    "a": ("a", "model_a", "player_a", "left", "system_a", "x"),
    "b": ("b", "model_b", "player_b", "right", "system_b", "y"),
    "winner": ("winner", "result", "outcome"),
    "score": ("score", "score_a"),
    "task": ("task", "cluster", "question_id", "prompt_id"),
    "weight": ("weight",),
}
_WORDS = {
    "tie": 0.5, "draw": 0.5, "tie (bothbad)": 0.5, "bothbad": 0.5, "both": 0.5, "0.5": 0.5, "1/2-1/2": 0.5,
    "a": 1.0, "model_a": 1.0, "player_a": 1.0, "left": 1.0, "1": 1.0, "1.0": 1.0, "1-0": 1.0, "x": 1.0, "win": 1.0,
    "b": 0.0, "model_b": 0.0, "player_b": 0.0, "right": 0.0, "0": 0.0, "0.0": 0.0, "0-1": 0.0, "y": 0.0, "loss": 0.0,
}  # fmt: skip


@dataclass(frozen=True, eq=False)
class Matches:
    """a, b: int[m] into `names`. score: float64[m], what `a` got: 1, 1/2 or 0. weight: how often it counts.

    cluster: int[m], matches that are resampled together, e.g. those of one task; each its own by default, and if there
    is but one task.
    """

    names: tuple[str, ...]
    a: np.ndarray
    b: np.ndarray
    score: np.ndarray
    weight: np.ndarray
    cluster: np.ndarray

    def __len__(self) -> int:
        return len(self.a)

    def wins(self) -> np.ndarray:
        """float64[n, n]: how often the row beat the column."""
        return self._count(self.score == 1, self.score == 0)

    def ties(self) -> np.ndarray:
        """float64[n, n], symmetric: how often the two drew."""
        drawn = self.score == 0.5
        return self._count(drawn, drawn)

    def groups(self) -> np.ndarray:
        """int[n]: systems of one group met, or are linked by who met whom; between groups nothing is known."""
        n = len(self.names)
        met = csr_array((np.ones(len(self)), (self.a, self.b)), shape=(n, n))
        return np.asarray(connected_components(met, directed=False)[1])

    def with_upsets(self) -> Matches:
        """The same, and an imaginary match for every step of the order that no result contradicts, with the result
        turned around; if all matches were drawn, one is won each way.

        For draws of a bootstrap: three wins in three matches, drawn again, would always be three wins, as if they
        proved an order. A step: from one set of systems who took points from each other in a circle to the next set
        below, so a clear order of n systems gets n - 1, however many matches there were.
        """
        decided = self.score != 0.5
        if not decided.any():
            extra, score = np.zeros(2, int), np.array([1.0, 0.0])
        else:
            points = self.wins() + self.ties() / 2
            kinds, kind = connected_components(csr_array(points > 0), connection="strong")
            first = np.where(self.score == 1, self.a, self.b), np.where(self.score == 1, self.b, self.a)
            above, below = kind[first[0]], kind[first[1]]
            beats = np.zeros((kinds, kinds))
            beats[above, below] = decided & (above != below)
            reach = widest_paths(beats)
            steps = (beats > 0) & ~(reach @ reach > 0)
            rows = np.flatnonzero(decided & steps[above, below])
            extra = rows[np.unique(above[rows] * kinds + below[rows], return_index=True)[1]]
            score = 1 - self.score[extra]
        last = int(self.cluster.max()) + 1
        return Matches(
            self.names,
            np.append(self.a, self.a[extra]),
            np.append(self.b, self.b[extra]),
            np.append(self.score, score),
            np.append(self.weight, np.ones(len(extra))),
            np.append(self.cluster, last + np.arange(len(extra))),
        )

    def resampled(self, resamples: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """Wins and ties, float64[resamples, n, n] each, of bootstrap draws of whole clusters."""
        n = len(self.names)
        cell = np.array([self.a * n + self.b, self.b * n + self.a])
        outcome = (self.score == 1, self.score == 0, self.score == 0.5)
        column = np.concatenate([cell[0][outcome[0]], cell[1][outcome[1]], n * n + cell[0][outcome[2]]])
        row = np.concatenate([self.cluster[each] for each in outcome])
        weight = np.concatenate([self.weight[each] for each in outcome])
        clusters = int(self.cluster.max()) + 1 if len(self) else 0
        table = csr_array((weight, (row, column)), shape=(clusters, 2 * n * n))
        if clusters == len(self) and (self.weight == 1).all():  # matches that are alike are drawn as one kind
            kinds = np.bincount(column, minlength=2 * n * n)
            drawn = rng.multinomial(clusters, kinds / clusters, size=resamples).astype(float)
        else:
            step = max(1, (1 << 23) // max(clusters, 1))
            parts = []
            for start in range(0, resamples, step):
                size = min(step, resamples - start)
                counts = rng.multinomial(clusters, np.full(clusters, 1 / clusters), size=size)
                parts.append((table.T @ counts.T.astype(float)).T)
            drawn = np.concatenate(parts)
        wins, ties = drawn.reshape(resamples, 2, n, n).swapaxes(0, 1)
        return wins, ties + ties.swapaxes(-1, -2)

    def _count(self, forward: np.ndarray, backward: np.ndarray) -> np.ndarray:
        n = len(self.names)
        cell = np.concatenate([(self.a * n + self.b)[forward], (self.b * n + self.a)[backward]])
        weight = np.concatenate([self.weight[forward], self.weight[backward]])
        return np.bincount(cell, weight, minlength=n * n).reshape(n, n)


def read_matches(source: str | Path | pl.DataFrame) -> Matches:
    """A CSV, Parquet or JSONL file, or a table, a row per match.

    Two names (`a`, `b`, or `model_a`, `model_b` …) and either `winner` (a name of the two, "a", "b" or "tie"; null is
    left out) or `score` (1, 1/2 or 0 of the first). Optional: `task`, whose matches are resampled together, and
    `weight`, how often a row counts.

    Raises:
        InputError: a value that cannot be read; names the row.
        MissingColumnError: no such columns.
        StorageError: the file cannot be read.
    """
    frame = source if isinstance(source, pl.DataFrame) else _read(Path(source))
    what = "matches" if isinstance(source, pl.DataFrame) else str(source)
    columns = {name.casefold().strip(): name for name in frame.columns}
    found = {key: columns[hit[0]] for key, names in _ALIASES.items() if (hit := [n for n in names if n in columns])}
    for key in ("a", "b"):
        if key not in found:
            raise MissingColumnError(f"{what}: no column {key!r} (or {', '.join(_ALIASES[key][1:])}); it has: "
                                     f"{', '.join(frame.columns)}")  # fmt: skip
    if "winner" not in found and "score" not in found:
        raise MissingColumnError(f"{what}: neither a column 'winner' nor 'score'; it has: {', '.join(frame.columns)}")
    table = frame.select(pl.col(found[key]).alias(key) for key in found).with_row_index("row")
    table = table.with_columns(pl.col("a", "b").cast(pl.String).str.strip_chars())
    for wrong, why in (
        (table.filter(pl.col("a").is_null() | pl.col("b").is_null()), "a name is missing"),
        (table.filter(pl.col("a") == pl.col("b")), "it meets itself"),
    ):
        if len(wrong):
            raise InputError(f"{what}: row {wrong['row'][0] + 1}: {why}; {len(wrong)} such rows")
    table = table.drop_nulls("winner" if "winner" in found else "score")
    score = _scores(table, what) if "winner" in found else table["score"].cast(pl.Float64, strict=False).to_numpy()
    bad = np.flatnonzero(~np.isin(score, (0.0, 0.5, 1.0)))
    if len(bad):
        raise InputError(f"{what}: row {table['row'][int(bad[0])] + 1}: a score of {score[bad[0]]}; it is 1, 0.5 or 0")
    weight = table["weight"].cast(pl.Float64, strict=False).to_numpy() if "weight" in found else np.ones(len(table))
    bad = np.flatnonzero(~((weight > 0) & np.isfinite(weight)))
    if len(bad):
        row = table.row(int(bad[0]), named=True)
        raise InputError(f"{what}: row {row['row'] + 1}: a weight must be positive, not {row['weight']!r}")
    return matches(
        table["a"].to_list(), table["b"].to_list(), score, weight, table["task"] if "task" in found else None
    )


def matches(
    a: list[str], b: list[str], score: np.ndarray, weight: np.ndarray | None = None, task: pl.Series | None = None
) -> Matches:
    """From columns; names in alphabetical order. task: whose matches are resampled together.

    Raises:
        InputError: there is no match.
    """
    names, ids = np.unique(np.array([*a, *b], dtype=str), return_inverse=True)
    if len(names) < 2:
        raise InputError("a ranking needs at least one match between two")
    cluster = np.arange(len(a))
    if task is not None and task.n_unique() > 1:
        known = task.rank("dense").cast(pl.Int64).to_numpy().astype(float)  # a match without a task is its own
        cluster = np.unique(np.where(np.isnan(known), -1.0 - cluster, known), return_inverse=True)[1]
    weight = np.ones(len(a)) if weight is None else np.asarray(weight, float)
    return Matches(tuple(map(str, names)), ids[: len(a)], ids[len(a) :], np.asarray(score, float), weight, cluster)


def matches_from_trials(trials: pl.DataFrame, *, value: str = "success", tie: float = 0.0) -> Matches:
    """Every pair of systems meets once per (run, task) that both have: the larger mean of `value` wins.

    Means that differ by no more than `tie` draw. The task is the cluster.
    """
    x = pl.col(value).cast(pl.Float64).fill_nan(None)
    cell = trials.group_by("system", "run", "task").agg(x=x.mean()).drop_nulls()
    pairs = cell.join(cell, on=["run", "task"], suffix="_b").filter(pl.col("system") < pl.col("system_b"))
    pairs = pairs.sort("system", "system_b", "run", "task")
    gap = (pairs["x"] - pairs["x_b"]).to_numpy()
    score = np.where(np.abs(gap) <= tie + 1e-12, 0.5, gap > 0)
    return matches(pairs["system"].to_list(), pairs["system_b"].to_list(), score, task=pairs["task"])


def _scores(table: pl.DataFrame, what: str) -> np.ndarray:
    winner = pl.col("winner").cast(pl.String).str.strip_chars()
    score = (
        pl.when(winner == pl.col("a"))
        .then(1.0)
        .when(winner == pl.col("b"))
        .then(0.0)
        .otherwise(winner.str.to_lowercase().replace_strict(_WORDS, default=None, return_dtype=pl.Float64))
    )
    found = table.select("row", "a", "b", winner.alias("winner"), score=score)
    wrong = found.filter(pl.col("score").is_null())
    if len(wrong):
        row = wrong.row(0, named=True)
        known = (row["a"], row["b"], "tie")
        raise InputError(
            f"{what}: row {row['row'] + 1}: winner {row['winner']!r} is none of {row['a']!r}, {row['b']!r}, 'tie'"
            f"{nearest(str(row['winner']), known)}"
        )
    return found["score"].to_numpy()


def _read(path: Path) -> pl.DataFrame:
    readers = {".csv": pl.read_csv, ".parquet": pl.read_parquet, ".jsonl": pl.read_ndjson, ".ndjson": pl.read_ndjson}
    if path.suffix not in readers:
        raise InputError(f"{path}: matches are read from {', '.join(readers)}")
    if not path.is_file():
        raise InputError(f"{path}: there is no such file")
    try:
        return readers[path.suffix](path)  # type: ignore[operator, no-any-return]
    except (pl.exceptions.PolarsError, OSError) as error:
        raise StorageError(f"{path}: cannot be read: {str(error).splitlines()[0]}") from error
