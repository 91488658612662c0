"""Tasks as a table: a row per task, where it came from, how hard it seems, and why it was refused.

    id, text    name of the task and what is asked; equal text, normalised, is one task
    parent      id of the task that it was proposed from; null for those that were given
    source      "env", or "proposer"
    proposer    policy that proposed it
    options     what else makes the task, as JSON: {"expected": …}
    seed        reset seed under which the env plays it; of a proposal, its parent's
    difficulty  1 - mean score of n answers; null without one
    created_at  iteration in which it was first met; updated_at: in which it was last
    status      "given", "accepted" or "refused", and `why`

A run keeps them in `tasks/`, a Parquet file for each iteration with the rows that were new or changed in it. Filters
are polars expressions or pure functions of the table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np
import polars as pl

from palaestra.envs.task_keys import key_in, normalise, task_keys
from palaestra.errors import DamagedFileError, InputError

TASKS = pl.Schema(
    {
        "id": pl.String,
        "parent": pl.String,
        "source": pl.String,
        "proposer": pl.String,
        "text": pl.String,
        "options": pl.String,
        "seed": pl.UInt64,
        "difficulty": pl.Float64,
        "n": pl.Int64,
        "created_at": pl.Int64,
        "updated_at": pl.Int64,
        "status": pl.String,
        "why": pl.String,
    }
)


def read_tasks(run: str | Path) -> pl.DataFrame:
    """Read a run's folder: table of its tasks as they are after the last iteration, in the order in which they came.

    Raises:
        DamagedFileError: the run has no tasks, or a file is not whole.
    """
    files = sorted(Path(run, "tasks").glob("iteration-*.parquet"))
    if not files:
        raise DamagedFileError(f"{run}: no tasks/; a run with task_table() among its stages keeps them")
    try:
        rows = pl.concat([pl.read_parquet(file, glob=False) for file in files])
    except (OSError, pl.exceptions.PolarsError) as error:
        raise DamagedFileError(f"{Path(run, 'tasks')}: cannot be read: {error}") from error
    return rows.unique("id", keep="last", maintain_order=True).sort("created_at", maintain_order=True)


def learnable(low: float = 0.05, high: float = 0.95) -> pl.Expr:
    """Polars expression: whether the chance of success, 1 - difficulty, lies in [low, high]; false without an answer.

    WebRL keeps [.05, .75] of its critic's value (arXiv 2411.02337).

    Raises:
        InputError: not 0 <= low <= high <= 1.

    >>> pl.DataFrame({"difficulty": [0.0, 0.5, 1.0, None]}).filter(learnable())["difficulty"].to_list()
    [0.5]
    """
    if not 0 <= low <= high <= 1:
        raise InputError(f"learnable: low={low} and high={high} must be rising chances in [0, 1]")
    return (1 - pl.col("difficulty")).is_between(low - 1e-12, high + 1e-12).fill_null(False)


def dedupe(tasks: pl.DataFrame, jaccard: float | None = None) -> pl.DataFrame:
    """Table of tasks without duplicates of the normalised column `text`; the first of each is kept.

    jaccard: also drop a task whose set of words has at least this Jaccard similarity with that of one that stays;
    AgentEvolver takes .8 (arXiv 2511.10395).

    Raises:
        InputError: jaccard is not in (0, 1].

    >>> dedupe(pl.DataFrame({"text": ["Add 2 and 3.", "add 2  and 3", "add 2 and 4"]}))["text"].to_list()
    ['Add 2 and 3.', 'add 2 and 4']
    """
    if jaccard is not None and not 0 < jaccard <= 1:
        raise InputError(f"dedupe: jaccard={jaccard} must be in (0, 1]")
    keyed = tasks.with_columns(_key=task_keys(tasks["text"].to_list()))
    first = keyed.unique("_key", keep="first", maintain_order=True).drop("_key")
    return first if jaccard is None else first.filter(_apart(first["text"].to_list(), jaccard))


def _apart(texts: list[str], jaccard: float) -> np.ndarray:
    """Which texts stay, bool[texts]; only those that share a word are compared."""
    holding: dict[str, list[int]] = {}
    sizes: list[int] = []
    stays = np.zeros(len(texts), bool)
    for at, text in enumerate(texts):
        words = set(normalise(text).split())
        sizes.append(len(words))
        shared = np.bincount([other for word in words for other in holding.get(word, ())], minlength=at)
        alike = shared >= jaccard * (len(words) + np.array(sizes[:at], int) - shared) - 1e-12
        stays[at] = not (alike & (shared > 0)).any()
        for word in words if stays[at] else ():
            holding.setdefault(word, []).append(at)
    return stays


def feasible(tasks: pl.DataFrame, check: Callable[[str], object]) -> pl.DataFrame:
    """Table of tasks; those on which `check` raises ValueError or returns False or None are marked "refused".

    The reason stands in `why`.
    """
    whys = [_why(check, text) for text in tasks["text"].to_list()]
    refused = pl.Series("why", whys, pl.String)
    return tasks.with_columns(
        status=pl.when(refused.is_not_null()).then(pl.lit("refused")).otherwise(pl.col("status")),
        why=pl.coalesce(refused, "why"),
    )


def _why(check: Callable[[str], object], text: str) -> str | None:
    try:
        found = check(text)
    except ValueError as error:
        return str(error) or "is not feasible"
    return "is not feasible" if found is False or found is None else None


def mix(given: pl.DataFrame, proposed: pl.DataFrame, ratio: float, rng: np.random.Generator) -> pl.DataFrame:
    """Table of all given tasks and `ratio` times as many proposed ones, drawn without replacement, or all there are.

    Raises:
        InputError: the ratio is negative.
    """
    if ratio < 0:
        raise InputError(f"mix: ratio={ratio} is negative")
    number = min(round(ratio * len(given)), len(proposed))
    return pl.concat([given, proposed[np.sort(rng.choice(len(proposed), number, replace=False))]])


def check_leaks(tasks: pl.DataFrame, held_out: np.ndarray | Iterable[str]) -> None:
    """Raise InputError if a table's task, if not refused, is, repeats or descends from a `held_out` key, name or text.

    tasks: with `id`, `parent`, `text` and `status`; refused ones train nobody. held_out: keys, uint64[], or names or
    texts.

    Raises:
        InputError: one is; names it, and the held-out task by its name.
    """
    held = held_out if isinstance(held_out, np.ndarray) else np.array([key_in(each) for each in held_out], np.uint64)
    trained = tasks.filter(pl.col("status") != "refused")
    ids, parents, texts = (trained[name].to_list() for name in ("id", "parent", "text"))
    known = dict(zip(ids, parents))
    found = np.isin(task_keys(texts), held) | np.isin(np.array([key_in(each) for each in ids], np.uint64), held)
    if found.any():
        raise _leak(ids, texts, int(np.argmax(found)), "is held out, or says what a held-out task says")
    forbidden = set(held.tolist())
    for at, parent in enumerate(parents):
        seen = set()
        while parent is not None and parent not in seen:
            if key_in(parent) in forbidden:
                raise _leak(ids, texts, at, f"was proposed from the held-out task {parent}")
            seen.add(parent)
            parent = known.get(parent)


def _leak(ids: list[str], texts: list[str], at: int, said: str) -> InputError:
    return InputError(
        f"task {ids[at]} ({texts[at][:60]!r}) {said}; take it out of training, or out of what is held out"
    )
