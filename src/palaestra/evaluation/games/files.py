"""Games from files and names: a matrix (CSV, JSON, npz), a table of turns, or a game of OpenSpiel."""

from __future__ import annotations

import csv
import json
import re
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from palaestra.algebra.turns import Turns
from palaestra.errors import InputError, StorageError
from palaestra.evaluation.games.empirical import empirical_game
from palaestra.evaluation.games.game import Game, zero_sum
from palaestra.evaluation.games.tree import Tree, normal_form, openspiel_tree

MATRICES = (".csv", ".tsv", ".json", ".npz", ".npy")


def read_game(source: str | Path, by: str = "policy") -> Game | Tree:
    """Reads a `Game` (or `Tree`) from a matrix file, from turns (folder, Parquet), or by an OpenSpiel name.

    A game of OpenSpiel in which each player decides once, whatever the others do, is a `Game`, any other a `Tree`.

    Args:
        source: a path, or a game string such as `kuhn_poker(players=3)`.
        by: for turns, the column of the strategies.

    Raises:
        InputError: it is none of these, or the payoffs are no game; names file and place.
        StorageError: the file cannot be read.
    """
    path = Path(source)
    if path.suffix in MATRICES:
        if not path.is_file():
            raise InputError(f"{path}: there is no such file")
        try:
            return _told_apart(_READERS[path.suffix](path))
        except InputError as error:
            raise InputError(f"{path}: {error}") from error
        except (OSError, ValueError, zipfile.BadZipFile) as error:
            raise StorageError(f"{path}: cannot be read: {str(error).splitlines()[0]}") from error
    if path.exists():
        return empirical_game(Turns.load(path), by)
    named = re.fullmatch(r"\w+\(.*\)", str(source))  # whose parameters may be a path
    if (not named and "/" in str(source)) or path.suffix in (".parquet", ".jsonl"):
        raise InputError(f"{source}: there is no such file")
    tree = openspiel_tree(str(source))
    once = all(len(own) == 1 and own[0].sets.stop - own[0].sets.start == 1 for own in tree.levels)
    return normal_form(tree) if once and (tree.leaf < tree.legal.size).all() else tree


def _told_apart(game: Game) -> Game:
    """The game; InputError for strategies without a name, and for two of one name."""
    for who, own in zip(game.players, game.strategies, strict=True):
        wrong = [name for name in own if not name.strip() or own.count(name) > 1]
        if wrong:
            raise InputError(f"strategies of {who}: {wrong[0]!r} is {'twice there' if wrong[0].strip() else 'no name'}")
    return game


def _csv(path: Path) -> Game:
    """Payoffs of the row player, zero-sum; names of columns in the first line, of rows in the first column, if any.

    A first column without a heading has the names of rows, whatever they are: pandas numbers them.
    """
    with path.open(encoding="utf-8-sig", newline="") as file:
        rows = [
            row
            for row in csv.reader(file, delimiter="\t" if path.suffix == ".tsv" else ",")
            if any(map(str.strip, row))
        ]
    if not rows:
        raise InputError("an empty table")
    width = max(map(len, rows))
    for number, row in enumerate(rows, 1):
        if len(row) != width:
            raise InputError(f"line {number} has {len(row)} cells, others have {width}")
    corner = not rows[0][0].strip()
    header = (
        corner or any(_number(cell) is None for cell in rows[0][1:]) or (width == 1 and _number(rows[0][0]) is None)
    )
    body = rows[1:] if header else rows
    named = bool(body) and (corner or all(_number(row[0]) is None for row in body))
    if not body or width == int(named):
        raise InputError("no row of payoffs below the names")
    names: dict[str, Any] = {}
    if header or named:
        columns = rows[0][int(named) :] if header else list(map(str, range(width - int(named))))
        names["strategies"] = (
            tuple(row[0] if named else str(k) for k, row in enumerate(body)),
            tuple(columns),
        )
    payoffs = np.empty((len(body), width - int(named)))
    for r, row in enumerate(body):
        for c, cell in enumerate(row[int(named) :]):
            value = _number(cell)
            if value is None:
                raise InputError(f"line {r + 1 + int(header)}, column {c + 1 + int(named)}: {cell!r} is no number")
            payoffs[r, c] = value
    return zero_sum(payoffs, **names)


def _number(cell: str) -> float | None:
    try:
        return float(cell)
    except ValueError:
        return None


def _json(path: Path) -> Game:
    """A matrix (zero-sum), a tensor per player, or an object with `payoffs` and what else `Game` takes."""
    found = json.loads(path.read_text(encoding="utf-8"))
    if not isinstance(found, dict):
        return _tensors(found)
    allowed = ("payoffs", "players", "strategies", "variance", "error", "count", "mirrored")
    unknown = sorted(set(found) - set(allowed))
    if unknown or "payoffs" not in found:
        raise InputError(f"fields {unknown or ['payoffs missing']}; read are {', '.join(allowed)}")
    return _tensors(found.pop("payoffs"), **found)


def _npz(path: Path) -> Game:
    """`payoffs` (a matrix, or stacked tensors), and `variance`, `error`, `count` if they are there; .npy: payoffs."""
    loaded = np.load(path, allow_pickle=False)
    if isinstance(loaded, np.ndarray):
        return _tensors(loaded)
    found = dict(loaded)
    if "payoffs" not in found:
        raise InputError(f"no array `payoffs`; there are {sorted(found)}")
    return _tensors(**{name: found[name] for name in ("payoffs", "variance", "error", "count") if name in found})


_READERS = {".csv": _csv, ".tsv": _csv, ".json": _json, ".npz": _npz, ".npy": _npz}


def _tensors(
    payoffs: Any,
    players: Any = (),
    strategies: Any = (),
    variance: Any = None,
    error: Any = None,
    count: Any = None,
    mirrored: bool = False,
) -> Game:
    table = _array(payoffs, "payoffs")
    if table.ndim == 2:
        table = np.stack([table, -table])
    n = len(table)
    if table.ndim != n + 1:
        raise InputError(
            f"payoffs of shape {table.shape}: a matrix [rows, columns] is zero-sum, else give each of N players "
            "a tensor with N axes"
        )
    names = tuple(map(str, players)), tuple(tuple(map(str, own)) for own in strategies)
    spread = None if variance is None else tuple(_like(variance, table, "variance"))
    if error is None:
        return Game(tuple(table), *names, spread, mirrored=bool(mirrored))
    errors = np.stack(_like(error, table, "error"), axis=-1)
    if not (errors >= 0).all():
        raise InputError("error: standard errors must be numbers >= 0")
    covariance = errors[..., :, None] * errors[..., None, :] * np.eye(n)
    if n == 2 and np.allclose(table.sum(axis=0), table.sum(axis=0).flat[0], rtol=0, atol=1e-9):
        covariance = errors[..., :1, None] ** 2 * np.array([[1.0, -1.0], [-1.0, 1.0]])  # what one gets, the other loses
    counts = np.full(table.shape[1:], 10**6) if count is None else _array(count, "count").astype(int)
    return Game(tuple(table), *names, spread, covariance, counts, bool(mirrored))


def _like(value: Any, table: np.ndarray, what: str) -> list[np.ndarray]:
    found = _array(value, what)
    if found.shape == table.shape[1:]:
        found = np.stack([found] * len(table))
    if found.shape != table.shape:
        raise InputError(f"{what} has shape {found.shape}, payoffs have {table.shape}")
    return list(found)


def _array(value: Any, what: str) -> np.ndarray:
    try:
        return np.array(value, float)
    except (TypeError, ValueError) as error:
        raise InputError(f"{what}: not a table of numbers in which all rows have the same length") from error
