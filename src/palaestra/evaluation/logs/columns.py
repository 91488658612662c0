"""Tables whose columns have other names: which of them is the task, and which says success.

A table with `question,model,correct` needs no option. `--task COLUMN`, `--success COLUMN` (in Python `task=`,
`success=`) name others.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Sequence
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import polars as pl

from palaestra.algebra.schema import whole
from palaestra.errors import InputError, nearest
from palaestra.evaluation.logs.systems import NAMES, plain
from palaestra.evaluation.trials import GROUPING

TASKS = (
    "task_id", "task_name", "question_id", "instance_id", "problem_id", "example_id", "sample_id", "case", "case_id",
    "question", "problem", "instance", "prompt", "input", "id",
)  # fmt: skip
"""What tables call the task, the likeliest first."""
SUCCESS = ("correct", "is_correct", "passed", "pass", "resolved", "solved", "succeeded", "outcome", "result")
"""What tables call success, the likeliest first."""
TRUE = (
    "true", "yes", "y", "t", "pass", "passed", "correct", "right", "success", "succeeded", "solved", "resolved", "1",
)  # fmt: skip
FALSE = (
    "false", "no", "n", "f", "fail", "failed", "failure", "incorrect", "wrong", "unsolved", "unresolved", "error", "0",
)  # fmt: skip
MISSING = ("", "nan", "na", "n/a", "null", "none")
"""Words by which tables leave open whether it was success."""
KEYS = frozenset(("task", *TASKS, "system", *NAMES, "run", "item"))
"""Usual names of the columns that hold names: of tasks, systems, runs and items."""
LONG = 80
"""Characters beyond which a text is no name of a task: its beginning and a digest are."""


class Names(NamedTuple):
    """Column names that a user gave for system, task and success, several with commas between; None: recognise them."""

    system: str | None = None
    task: str | None = None
    success: str | None = None

    @property
    def parts(self) -> set[str]:
        """All column names that were given, as a set."""
        return {name.strip() for each in self if each for name in each.split(",")}


RECOGNISED = Names()
"""No column was named."""


def read_text_table(source: Path | bytes, separator: str, keys: Collection[str] = ()) -> pl.DataFrame:
    """Reads a text table; names that look like numbers stay as they are written: 4.10 is not 4.1, and 001 not 1.

    Args:
        source: a file, or its content.
        separator: a character.
        keys: columns of names besides those that are called so (`KEYS`), in any case.

    Raises:
        PolarsError, OSError: it cannot be read.
    """
    frame = pl.read_csv(source, separator=separator, infer_schema_length=None, glob=False)
    named = [n for n, kind in frame.schema.items() if kind.is_numeric() and (is_key(n) or n.casefold() in keys)]
    if not named:
        return frame
    texts = pl.read_csv(source, separator=separator, columns=named, infer_schema=False, glob=False)
    same = [n for n in named if frame.schema[n].is_integer() and (frame[n].cast(pl.String) == texts[n]).all()]
    return frame.with_columns(texts.drop(same))


def is_key(name: str) -> bool:
    """Whether a column of this name holds names: of tasks, systems, runs, or what groups tasks."""
    return plain(name) in KEYS or plain(name).removesuffix("_id") in GROUPING


def with_whole_names(frame: pl.DataFrame) -> pl.DataFrame:
    """The table with whole numbers in columns of names where a missing value made floats of them."""
    return frame.with_columns(whole(frame[name]) for name in frame.columns if is_key(name))


def with_names(frame: pl.DataFrame, names: Names, file: str) -> pl.DataFrame:
    """A table with `task` and `success` (bool) set from the columns that a `Names` says, else from usual ones, if any.

    Raises:
        InputError: There is no such column, or its values are neither success nor failure.
    """
    if names.task is not None:
        parts = [_column(frame, name.strip(), "--task", file) for name in names.task.split(",")]
        joined = pl.DataFrame([part.alias(str(n)) for n, part in enumerate(parts)])
        frame = frame.with_columns(task=_short(joined.select(pl.concat_str(pl.all(), separator="/")).to_series()))
    elif "task" not in frame.columns and (found := _present(frame, TASKS)):
        frame = frame.with_columns(task=_short(frame[found[0]].cast(pl.String)))
    if names.success is not None:
        said = _column(frame, names.success, "--success", file)
        if (odd := _odd(said)) is not None:
            raise InputError(
                f"{file}: --success {names.success}: {odd!r} is neither success nor failure; it takes "
                "true/false, yes/no, pass/fail, correct/wrong or 1/0. Numbers are named with --score"
            )
        return frame.with_columns(success=_truths(said))
    if "success" in frame.columns:  # what is none of them is the schema's to refuse
        return frame if _odd(frame["success"]) is not None else frame.with_columns(success=_truths(frame["success"]))
    for name in _present(frame, SUCCESS):
        if (truth := as_truth(frame[name])) is not None:
            return frame.with_columns(success=truth)
    return frame


def as_truth(values: pl.Series) -> pl.Series | None:
    """Series of words or numbers as booleans of success; None if a value is neither success nor failure.

    Blank, `nan`, `na` and the like (`MISSING`) are null; None, too, if nothing else is there.

    >>> as_truth(pl.Series(["pass", "Fail", "NA", None])).to_list()
    [True, False, None, None]
    """
    if values.dtype == pl.Boolean:
        return values
    if values.dtype.is_nested() or _odd(values) is not None:
        return None
    found = _truths(values)
    return found if found.count() else None


def flag(rows: pl.DataFrame, name: str, what: str) -> pl.Series:
    """Series: a frame's column as Boolean, by true/false, yes/no or 1/0; InputError for any other value."""
    if (odd := _odd(rows[name])) is not None:
        raise InputError(f"{what}: column {name!r} takes true/false, yes/no or 1/0, not {odd!r}")
    return _truths(rows[name])


def _truths(values: pl.Series) -> pl.Series:
    if values.dtype == pl.Boolean:
        return values
    kinds = {each: truth_of(each) for each in values.drop_nulls().unique()}
    return values.replace_strict(kinds, default=None, return_dtype=pl.Boolean)


def _odd(values: pl.Series) -> str | None:
    """The first value that is neither success nor failure, nor missing."""
    if values.dtype == pl.Boolean:
        return None
    known = (*TRUE, *FALSE, *MISSING)
    return next((str(x)[:40] for x in values.drop_nulls().unique(maintain_order=True) if _word(x) not in known), None)


def truth_of(value: object) -> bool | None:
    """True if a word or number means success (`pass`, 1 …), False for failure; None if neither."""
    word = _word(value)
    return True if word in TRUE else False if word in FALSE else None


def _word(value: object) -> str:
    return str(value).strip().casefold().removesuffix(".0")


def _present(frame: pl.DataFrame, names: Sequence[str]) -> list[str]:
    columns = {plain(name): name for name in reversed(frame.columns)}
    found = [columns[name] for name in names if name in columns]
    return [name for name in found if not frame[name].dtype.is_nested() and frame[name].null_count() < len(frame)]


def _column(frame: pl.DataFrame, name: str, option: str, file: str) -> pl.Series:
    columns = {each.casefold(): each for each in reversed(frame.columns)}
    if name.casefold() not in columns:
        known = ", ".join(frame.columns)
        raise InputError(
            f"{file}: {option} {name}: there is no such column{nearest(name, frame.columns)}; its columns are {known}"
        )
    return whole(frame[columns[name.casefold()]]).cast(pl.String)


def _short(task: pl.Series) -> pl.Series:
    if not (task.str.len_chars() > LONG).any():
        return task
    return task.map_elements(lambda text: text if len(text) <= LONG else task_of(text), return_dtype=pl.String)


@lru_cache(4096)
def task_of(prompt: str) -> str:
    """A name for a task that has only a prompt: the beginning of the prompt and a digest of it."""
    digest = hashlib.sha256(prompt.encode("utf-8", "replace")).hexdigest()[:10]
    return f"{' '.join(prompt.split())[:40]} #{digest}"
