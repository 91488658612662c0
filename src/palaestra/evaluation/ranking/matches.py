"""Matches: who met whom, and what came of it. From a file, or from trials of several systems on the same tasks.

Left out: matches of more than two (make pairs of them) and margins of victory (a score is a win, a draw or a loss).
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import polars as pl
import scipy

from palaestra.algebra.schema import whole
from palaestra.errors import InputError, MissingColumnError, StorageError, nearest
from palaestra.evaluation.ranking import headers
from palaestra.evaluation.ranking.voting import widest_paths


@dataclass(frozen=True)
class RowCounts:
    """Data: counts of a match file's rows, all, used, tied among the used, and dropped by reason."""

    rows: int
    used: int
    tied: int
    dropped: dict[str, int]

    def __str__(self) -> str:
        left = self.rows - self.used
        why = "; ".join(f"{count} {why}" for why, count in self.dropped.items() if count)
        return (
            f"{self.used} of {self.rows} rows used, {self.tied} of them ties; {left} dropped{f' ({why})' * bool(why)}"
        )


@dataclass(frozen=True, eq=False)
class Matches:
    """Data of pairwise matches: competitors a, b (indices into `names`), score of a (1, 1/2 or 0) and weight.

    a, b: int[m]. score, weight: float64[m]; weight is how often a match counts.

    cluster: int[m], matches that are resampled together, e.g. those of one task; each its own by default, and if there
    is but one task. counts: of the file that they come from.
    """

    names: tuple[str, ...]
    a: np.ndarray
    b: np.ndarray
    score: np.ndarray
    weight: np.ndarray
    cluster: np.ndarray
    counts: RowCounts | None = None

    def __len__(self) -> int:
        return len(self.a)

    def wins(self) -> np.ndarray:
        """float64[n, n]: how often (by weight) the row beat the column."""
        return self._count(self.score == 1, self.score == 0)

    def ties(self) -> np.ndarray:
        """float64[n, n], symmetric: how often the two drew."""
        drawn = self.score == 0.5
        return self._count(drawn, drawn)

    def worth(self) -> np.ndarray:
        """float64[n, n], symmetric: the factor that makes the counts of a pair those of as many independent matches.

        1 if all weights are whole: what counts twice was played twice. Else Σ w / Σ w², so that they are Kish's
        effective number: many matches of small weights are many.
        """
        if not (self.weight % 1).any():
            return np.ones((len(self.names), len(self.names)))
        games, squares = (
            each.wins() + each.wins().T + each.ties() for each in (self, replace(self, weight=self.weight**2))
        )
        return np.asarray(games / np.where(squares > 0, squares, 1.0))

    def groups(self) -> np.ndarray:
        """int[n]: connected component of each system in the graph of who met whom; no comparison between components."""
        n = len(self.names)
        met = scipy.sparse.csr_array((np.ones(len(self)), (self.a, self.b)), shape=(n, n))
        return np.asarray(scipy.sparse.csgraph.connected_components(met, directed=False)[1])

    def with_upsets(self) -> Matches:
        """New `Matches`: these plus imaginary upsets, which keep the maximum-likelihood strengths finite.

        One for every step of the order that no result contradicts, with the result turned around; if all matches were
        drawn, one is won each way.

        For draws of a bootstrap: three wins in three matches, drawn again, would always be three wins, as if they
        proved an order. A step: from one set of systems who took points from each other in a circle to the next set
        below, so a clear order of n systems gets n - 1, however many matches there were.
        """
        decided = self.score != 0.5
        if not decided.any():
            extra, score = np.zeros(2, int), np.array([1.0, 0.0])
        else:
            points = self.wins() + self.ties() / 2
            kinds, kind = scipy.sparse.csgraph.connected_components(
                scipy.sparse.csr_array(points > 0), connection="strong"
            )
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
        """(wins, ties), float64[resamples, n, n] each, of bootstrap draws of whole clusters of matches."""
        n = len(self.names)
        cell = np.array([self.a * n + self.b, self.b * n + self.a])
        outcome = (self.score == 1, self.score == 0, self.score == 0.5)
        column = np.concatenate([cell[0][outcome[0]], cell[1][outcome[1]], n * n + cell[0][outcome[2]]])
        row = np.concatenate([self.cluster[each] for each in outcome])
        weight = np.concatenate([self.weight[each] for each in outcome])
        clusters = int(self.cluster.max()) + 1 if len(self) else 0
        table = scipy.sparse.csr_array((weight, (row, column)), shape=(clusters, 2 * n * n))
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


def read_matches(
    source: str | Path | pl.DataFrame,
    *,
    a: str | None = None,
    b: str | None = None,
    winner: str | None = None,
    cluster: str | None = None,
) -> Matches:
    """Reads `Matches` from a CSV, TSV, Parquet, JSON or JSONL file, or a table, with a row per match.

    Who met and who won stands in columns by the names of `headers`: `model_a`, `model_b` and `winner`; `winner` and
    `loser`; `White`, `Black` and `Result`; `home_team`, `away_team` and their scores; and others. A row without a
    result is left out and counted. Optional: `task`, whose matches are resampled together, and `weight`, how often a
    row counts.

    Args:
        source: the file or table.
        a: column of one competitor, where the name is another.
        b: column of the other.
        winner: column of the winner or result.
        cluster: one whose matches are resampled together, in the place of the task: a passage, a template, a
            tournament.

    Raises:
        InputError: a value that cannot be read, or that could mean two things; names the row.
        MissingColumnError: no such columns.
        StorageError: the file cannot be read.
    """
    frame = source if isinstance(source, pl.DataFrame) else _read(Path(source))
    what = "matches" if isinstance(source, pl.DataFrame) else str(source)
    how = headers.find_layout(frame.columns, what, a, b, winner)
    if cluster is not None and cluster not in frame.columns:
        raise MissingColumnError(f"{what}: --cluster {cluster}: no such column{nearest(cluster, frame.columns)}")
    by = {headers.normalised_header(name): name for name in reversed(frame.columns)}
    extra = {
        key: next((by[n] for n in names if n in by), None)
        for key, names in (("task", headers.TASKS), ("weight", headers.WEIGHTS))
    }
    extra["task"] = cluster or extra["task"]
    columns = [_text(frame[how.a]).alias("a"), _text(frame[how.b]).alias("b"), *(_text(frame[n]) for n in how.outcome)]
    table = pl.DataFrame(columns).with_row_index("row")
    table = table.with_columns(_text(frame[name]).alias(f"_{key}") for key, name in extra.items() if name is not None)
    table = table.with_columns(pl.col("a", "b").str.strip_chars())
    for wrong, why in (
        (table.filter((pl.col("a").fill_null("") == "") | (pl.col("b").fill_null("") == "")), "a name is missing"),
        (table.filter(pl.col("a") == pl.col("b")), "it meets itself"),
    ):
        if len(wrong):
            raise InputError(f"{what}: row {wrong['row'][0] + 1}: {why}; {len(wrong)} such rows")
    table = table.with_columns(_score=headers.scores(table, how, what))
    used = table.drop_nulls("_score")
    score = used["_score"].to_numpy()
    weight = np.ones(len(used))
    if extra["weight"] is not None:
        weight = used["_weight"].cast(pl.Float64, strict=False).to_numpy()
        bad = np.flatnonzero(~((weight > 0) & (weight < 1e15)))
        if len(bad):
            row = used.row(int(bad[0]), named=True)
            raise InputError(f"{what}: row {row['row'] + 1}: a weight must be positive, not {row['_weight']!r}")
    if not len(used):
        raise InputError(f"{what}: a ranking needs at least one match; {len(table)} rows, none of them with a result")
    task = used["_task"] if extra["task"] is not None else None
    counts = RowCounts(len(table), len(used), int((score == 0.5).sum()), {"without a result": len(table) - len(used)})
    return replace(matches(used["a"].to_list(), used["b"].to_list(), score, weight, task), counts=counts)


def matches(
    a: list[str], b: list[str], score: np.ndarray, weight: np.ndarray | None = None, task: pl.Series | None = None
) -> Matches:
    """Makes `Matches` of lists of names a, b and array `score` of a (1, .5, 0); matches of a task are resampled whole.

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
    """Makes `Matches` of a table of trials: systems meet once per (run, task) of both, the larger mean of `value` wins.

    Means that differ by no more than `tie` draw. The task is the cluster, or `cluster` if the trials have it.
    """
    x = pl.col(value).cast(pl.Float64).fill_nan(None)
    family = pl.col("cluster" if "cluster" in trials.columns else "task").first().alias("family")
    cell = trials.group_by("system", "run", "task").agg(family, x=x.mean()).drop_nulls()
    pairs = cell.join(cell, on=["run", "task"], suffix="_b").filter(pl.col("system") < pl.col("system_b"))
    pairs = pairs.sort("system", "system_b", "run", "task")
    gap = (pairs["x"] - pairs["x_b"]).to_numpy()
    score = np.where(np.abs(gap) <= tie + 1e-12, 0.5, gap > 0)
    return matches(pairs["system"].to_list(), pairs["system_b"].to_list(), score, task=pairs["family"])


def _text(column: pl.Series) -> pl.Series:
    if column.dtype.is_nested() or column.dtype == pl.Null:
        return pl.Series(column.name, [None] * len(column), dtype=pl.String)
    return whole(column).cast(pl.String)


def _read(path: Path) -> pl.DataFrame:
    """Every column of a text file as text: what begins with numbers may go on with words."""
    kinds = (".csv", ".tsv", ".txt", ".parquet", ".json", ".jsonl", ".ndjson")
    if path.suffix not in kinds:
        raise InputError(f"{path}: matches are read from {', '.join(kinds)}")
    if not path.is_file():
        raise InputError(f"{path}: there is no such file")
    try:
        if path.suffix == ".parquet":
            return pl.read_parquet(path, glob=False)
        data = path.read_bytes()
        if path.suffix in (".csv", ".tsv", ".txt"):
            data = data.removeprefix(b"\xef\xbb\xbf")
            first = data.lstrip().partition(b"\n")[0]
            sign = max(",;\t|", key=lambda sign: first.count(sign.encode()))
            return pl.read_csv(data, separator=sign, infer_schema=False, glob=False)
        return _objects(data, path)
    except (pl.exceptions.PolarsError, OSError, UnicodeDecodeError) as error:
        raise StorageError(f"{path}: cannot be read: {str(error).splitlines()[0]}") from error


def _objects(data: bytes, path: Path) -> pl.DataFrame:
    text = data.decode("utf-8-sig")
    try:
        found = json.loads(text)
        if isinstance(found, dict):  # one match, or matches under a name
            lists = [each for each in found.values() if isinstance(each, list) and each and isinstance(each[0], dict)]
            found = lists[0] if len(lists) == 1 else [found]
        places = [f"entry {n}" for n in range(len(found))] if isinstance(found, list) else []
    except RecursionError:
        raise StorageError(f"{path}: cannot be read: nested too deeply") from None
    except ValueError as error:
        if path.suffix == ".json" and not text.lstrip().startswith("{"):
            raise StorageError(f"{path}: cannot be read: {error}") from error
        lines = [(number, line) for number, line in enumerate(text.split("\n"), 1) if line.strip()]
        found, places = [], []
        for number, line in lines:
            try:
                found.append(json.loads(line))
            except (ValueError, RecursionError) as wrong:
                raise StorageError(f"{path}: line {number} cannot be read: {wrong}") from wrong
            places.append(f"line {number}")
    if not isinstance(found, list):
        raise StorageError(f"{path}: cannot be read: expected a list of matches, found {type(found).__name__}")
    for place, each in zip(places, found, strict=True):
        if not isinstance(each, dict):
            raise StorageError(f"{path}: {place} cannot be read: expected an object, found {type(each).__name__}")
    names = dict.fromkeys(name for each in found for name in each)
    plain = {str, int, float, bool}
    columns = {
        name: [str(value) if type(value := each.get(name)) in plain else None for each in found] for name in names
    }
    return pl.DataFrame(columns, schema=dict.fromkeys(names, pl.String))
