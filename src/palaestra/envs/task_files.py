"""Files of tasks as an index on disk: JSON lines, Parquet, or a data set of the Hugging Face hub.

A file is read once, in parts, into an uncompressed Arrow file that is mapped into memory: a task is found by its place
in microseconds, a million of them cost their keys (8 MB) and what is looked at. The index lies in the user's cache
folder, under a name made of the file's path, size and time of change; it may be deleted at any time.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import re
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal
from urllib.parse import parse_qsl, urlsplit

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from palaestra.algebra.turns import clean
from palaestra.envs.task_keys import key_in, normalise, task_key
from palaestra.envs.task_scores import read_letter
from palaestra.errors import DamagedFileError, InputError, StorageError, missing_extra, nearest
from palaestra.foundation.files import atomic_write

Duplicates = Literal["refuse", "drop"]
LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
"""Of the choices of a question."""
PART = 2**16
"""Most tasks of a batch of the index."""
HUB = "hf://"
_ID = re.compile(r"(?!.*:[0-9a-f]{16}\Z)[\w.:/#-]+", re.ASCII)
"""A word, but no name `SOURCE:HEX`."""
_FORMAT = 4
_INDEX = pa.schema(
    [
        ("key", pa.uint64()),
        ("parent", pa.uint64()),
        ("id", pa.uint64()),
        ("an_id", pa.bool_()),
        ("prompt", pa.string()),
        ("answer", pa.string()),
        ("choices", pa.string()),
    ]
)


@dataclass(frozen=True)
class Columns:
    """Data of the column names of a task file: prompt (question), answer and, if given, choices, parent and id."""

    prompt: str = "prompt"
    answer: str = "answer"
    choices: str | None = None
    parent: str | None = None
    id: str | None = None

    def named(self) -> dict[str, str]:
        """Column names by purpose (`prompt`, `answer` …), of those that are given."""
        return {field: name for field, name in vars(self).items() if name is not None}

    def asked(self) -> Columns:
        """Columns of a held-out file: these without `parent`, for what its tasks were made from does not matter."""
        return replace(self, parent=None)


class TaskFile:
    """Read-only access to an indexed task file: rows by position, and uint64 keys of tasks and parents.

    path: as it was given. keys, parents, ids: uint64[tasks], parents and ids 0 where there is none. an_id: bool[tasks],
    where a parent is written as an id may be, in a word.
    """

    def __init__(self, path: str, index: Path) -> None:
        """See `open_tasks`."""
        self.path = path
        reader = pa.ipc.open_file(pa.memory_map(str(index)))
        self._parts = [reader.get_batch(number) for number in range(reader.num_record_batches)]
        self._ends = np.cumsum([part.num_rows for part in self._parts])  # a reader gives parts as short as it likes
        self.keys, parents, self.ids, self.an_id = (
            np.concatenate([part.column(name).to_numpy(zero_copy_only=False) for part in self._parts])
            for name in ("key", "parent", "id", "an_id")
        )
        self.parents = self.named(parents)

    def __len__(self) -> int:
        return len(self.keys)

    def row(self, place: int) -> tuple[str, str, list[str]]:
        """Question, answer (the letter of a choice, if there are any) and choices of a task."""
        number = int(np.searchsorted(self._ends, place, side="right"))
        part = self._parts[number]
        at = place - int(self._ends[number]) + part.num_rows
        choices = part.column("choices")[at].as_py()
        return part.column("prompt")[at].as_py(), part.column("answer")[at].as_py(), json.loads(choices or "[]")

    def line(self, place: int) -> str:
        """Location of a task, for messages: `tasks.jsonl, row 17 ('What is …')`."""
        text = self.row(place)[0]
        return f"{self.path}, row {place + 1} ({text[:57] + '...' if len(text) > 60 else text!r})"

    def named(self, keys: np.ndarray) -> np.ndarray:
        """Keys of tasks, uint64[...], in place of the hashes of their ids in this file; others stay as they are.

        Raises:
            InputError: two tasks have one id.
        """
        if not self.ids.any():
            return keys
        order = np.argsort(self.ids, kind="stable")
        known, tasks = self.ids[order], self.keys[order]
        if len(again := np.flatnonzero((known[1:] == known[:-1]) & (known[1:] > 0) & (tasks[1:] != tasks[:-1]))):
            one, two = (int(order[again[0] + more]) for more in (0, 1))
            raise InputError(f"{self.line(two)}: has the id of row {one + 1}; mend column id")
        at = np.minimum(np.searchsorted(known, keys), len(known) - 1)
        return np.where((known[at] == keys) & (keys > 0), tasks[at], keys)

    def places(self, duplicates: Duplicates, prompt: str) -> np.ndarray:
        """Positions of the tasks that count, int64[]: all, or with "drop" the first of each key.

        Raises:
            InputError: tasks say the same and `duplicates` is "refuse"; names the first two.
        """
        _, first, inverse = np.unique(self.keys, return_index=True, return_inverse=True)
        again = np.flatnonzero(first[inverse] != np.arange(len(self)))
        if len(again) and duplicates == "refuse":
            one, two = int(first[inverse[again[0]]]), int(again[0])
            raise InputError(
                f"{self.line(two)}: column {prompt!r} says the same as row {one + 1}, and {len(again)} rows in all "
                "repeat an earlier one; remove them, or write duplicates: drop to keep the first of each"
            )
        return np.sort(first)

    def roots(self) -> np.ndarray:
        """Key of each task's earliest ancestor, uint64[tasks], by column parent: its own without a parent.

        Raises:
            InputError: a task is its own ancestor.
        """
        roots = np.where(self.parents > 0, self.parents, self.keys)
        order = np.argsort(self.keys, kind="stable")
        known = self.keys[order]
        for _ in range(len(self) + 1):
            at = np.minimum(np.searchsorted(known, roots), len(known) - 1)
            next_ = self.parents[order[at]]
            further = (known[at] == roots) & (next_ > 0)
            if not further.any():
                return roots
            if (looped := further & (next_ == self.keys)).any():
                raise InputError(f"{self.line(int(np.argmax(looped)))}: is proposed from itself; mend column parent")
            roots = np.where(further, next_, roots)
        raise InputError(f"{self.path}: tasks are proposed from each other in a circle; mend column parent")


def open_tasks(path: str, columns: Columns) -> TaskFile:
    """Opens a task file or Hub data set with these `columns` as a `TaskFile`; cached until the file changes.

    Args:
        path: `tasks.jsonl`, `tasks.parquet`, or `hf://owner/name?config=main&split=train`.
        columns: names of its columns.

    Raises:
        DamagedFileError: the file is not there, or cannot be read.
        InputError: it is empty, lacks a column, or a question or an answer is empty; names the row and the fix.
        MissingExtraError: the hub's package is not installed.
    """
    return _opened(path, columns, state_of(path))


@functools.lru_cache(16)
def _opened(path: str, columns: Columns, state: str) -> TaskFile:
    digest = hashlib.blake2b(f"{_FORMAT} {state} {columns}".encode(), digest_size=12).hexdigest()
    for folder in (_cache(), Path(tempfile.gettempdir(), f"palaestra-tasks-{os.getpid()}")):
        index = folder / f"{digest}.arrow"
        if index.is_file():
            return TaskFile(path, index)
        try:
            with atomic_write(index) as temporary:
                _write(path, columns, temporary)
            return TaskFile(path, index)
        except StorageError as error:
            if isinstance(error, InputError):
                raise
    raise StorageError(f"dataset: cannot write an index of {path}: neither {_cache()} nor the temporary folder can")


def _cache() -> Path:
    given = os.environ.get("XDG_CACHE_HOME")
    return Path(given or Path.home() / ".cache", "palaestra", "tasks")


def state_of(path: str) -> str:
    """Fingerprint of a file as text: path, size and modification time, or the Hub data set's own fingerprint."""
    if path.startswith(HUB):
        return str(_hub(path)._fingerprint)
    try:
        found = Path(path).stat()
    except OSError as error:
        raise DamagedFileError(f"dataset: cannot read {path}: {error.strerror}") from error
    return f"{Path(path).resolve()} {found.st_size} {found.st_mtime_ns}"


@functools.lru_cache(4)
def _hub(path: str) -> Any:
    """A split of a data set of the hub, or of a folder on disk in its form."""
    if find_spec("datasets") is None:
        raise missing_extra("datasets", "data")
    import datasets

    parts = urlsplit(path)
    given = dict(parse_qsl(parts.query))
    if wrong := sorted(given.keys() - {"config", "split", "revision"}):
        raise InputError(f"dataset: {path}: {wrong[0]!r} is not one of config, split and revision")
    name = parts.netloc + parts.path
    try:
        return datasets.load_dataset(
            name, given.get("config"), split=given.get("split", "train"), revision=given.get("revision")
        )
    except Exception as error:  # the hub's own errors, the network's, and those of whoever wrote the data set
        said = str(error).splitlines()[0] if str(error) else ""
        raise InputError(
            f"dataset: {path} cannot be loaded ({type(error).__name__}: {said}); write "
            "hf://owner/name?config=…&split=… of a data set that is there"
        ) from error


def _write(path: str, columns: Columns, index: Path) -> None:
    with pa.OSFile(str(index), "wb") as file, pa.ipc.new_file(file, _INDEX) as writer:
        rows = 0
        for part in _parts(path, columns):
            writer.write_batch(_checked(path, columns, rows, part))
            rows += len(part["prompt"])
    if not rows:
        raise InputError(f"{path}: holds no tasks; write one a row")


def _checked(path: str, columns: Columns, first: int, part: Mapping[str, list[Any]]) -> pa.RecordBatch:
    """A batch of the index; each row has a question and an answer."""
    made: dict[str, list[Any]] = {}
    for field, name in (("prompt", columns.prompt), ("answer", columns.answer)):
        raw = next((at for at, value in enumerate(part[field]) if isinstance(value, bytes)), None)
        if raw is not None:
            raise InputError(f"{path}, row {first + raw + 1}: column {name!r} holds bytes; write text or a number")
        texts = [_text(value) for value in part[field]]
        empty = next((at for at, text in enumerate(texts) if not text.strip()), None)
        if empty is not None:
            raise InputError(f"{path}, row {first + empty + 1}: column {name!r} is empty; fill it, or remove the row")
        made[field] = texts
    nothing = [None] * len(made["prompt"])
    made["choices"] = list(nothing)
    for at, given in enumerate(part.get("choices", nothing)):
        if given not in (None, "", []):
            try:
                choices, made["answer"][at] = _chosen(given, made["answer"][at])
            except ValueError as error:
                raise InputError(f"{path}, row {first + at + 1}: {error}") from error
            made["choices"][at] = json.dumps(choices)
    for field in ("parent", "id"):
        made[field] = [0 if each in (None, "") else key_in(str(each)) for each in part.get(field, nothing)]
    made["an_id"] = [each is not None and bool(_ID.fullmatch(str(each))) for each in part.get("parent", nothing)]
    made["key"] = [task_key(text) for text in made["prompt"]]
    return pa.record_batch([pa.array(made[field.name], field.type) for field in _INDEX], schema=_INDEX)


def _chosen(given: Any, answer: str) -> tuple[list[str], str]:
    """Texts of the choices, and the letter of the right one.

    Raises:
        ValueError: they are no list, too many, or the answer is none of them.
    """
    labels: Any = []
    if isinstance(given, Mapping) and given.keys() >= {"text", "label"}:
        given, labels = given["text"], given["label"]
    if not isinstance(given, list) or not isinstance(labels, list):
        raise ValueError(f"its choices are {given!r}, expected a list, or text and label, a list each")
    if len(given) > len(LETTERS):
        raise ValueError(f"has {len(given)} choices, but there are {len(LETTERS)} letters")
    if not given:
        return [], answer
    texts = [_text(each) for each in given]
    places = [str(at) for at in range(len(texts))]
    for names in ([_text(each) for each in labels], texts, LETTERS[: len(texts)], places):
        if answer in list(names):
            return texts, LETTERS[list(names).index(answer)]
    same = [at for at, text in enumerate(texts) if normalise(text) == normalise(answer)]
    try:
        at = same[0] if len(same) == 1 else LETTERS.index(read_letter(answer))
    except ValueError:
        at = len(texts)
    if at >= len(texts):
        raise ValueError(f"{answer!r} is none of its choices {texts}; write one, its letter, or its place from 0")
    return texts, LETTERS[at]


def _text(value: Any) -> str:
    """As a person would write it: dates and decimals stand in no quotes, truth values and lists as in JSON."""
    if isinstance(value, bool | int | float | list | dict):
        return json.dumps(value, ensure_ascii=False, default=str)
    return "" if value is None else clean(str(value))


def _parts(path: str, columns: Columns) -> Iterator[dict[str, list[Any]]]:
    """Columns of the file, so many rows at a time."""
    if path.startswith(HUB):
        found = _hub(path)
        named = _there(path, found.column_names, columns)
        for part in found.with_format("arrow").iter(PART):
            yield {field: part.column(name).to_pylist() for field, name in named.items()}
    elif path.endswith(".parquet"):
        try:
            file = pq.ParquetFile(path)
            named = _there(path, file.schema_arrow.names, columns)
            for part in file.iter_batches(PART, columns=list(dict.fromkeys(named.values()))):
                yield {field: part.column(name).to_pylist() for field, name in named.items()}
        except (pa.ArrowException, OSError) as error:
            raise DamagedFileError(f"dataset: {path} is no whole Parquet file: {error}") from error
    elif path.endswith((".jsonl", ".ndjson")):
        yield from _lines(path, columns)
    else:
        raise InputError(f"dataset: {path!r} is no .jsonl, no .parquet and no hf://owner/name")


def _lines(path: str, columns: Columns) -> Iterator[dict[str, list[Any]]]:
    named = columns.named()
    part: dict[str, list[Any]] = {field: [] for field in named}
    there: set[str] = set()
    if not os.access(path, os.R_OK):
        raise DamagedFileError(f"dataset: cannot read {path}: no permission")
    with open(path, "rb") as file:
        for number, line in enumerate(file, start=1):
            if not line.strip():
                continue
            try:
                row = json.loads(line)
            except ValueError as error:
                raise DamagedFileError(f"{path}, row {number}: is not JSON ({error}); one object a line") from error
            if not isinstance(row, dict):
                raise DamagedFileError(f"{path}, row {number}: {type(row).__name__} is no object; one object a line")
            for field, name in named.items():
                if name not in row and field in ("prompt", "answer"):
                    _need(f"{path}, row {number}", row, {field: name})
                part[field].append(row.get(name))
            there |= row.keys()
            if len(part["prompt"]) == PART:
                yield part
                part = {field: [] for field in named}
    if there:
        _there(path, sorted(there), columns)
    if part["prompt"]:
        yield part


def _there(path: str, names: Iterable[str], columns: Columns) -> dict[str, str]:
    """Names of the columns, all of which are needed, but ids only to find parents."""
    names, named = list(names), columns.named()
    if columns.parent is None and columns.id not in names:
        named.pop("id", None)
    _need(path, names, named)
    return named


def _need(where: str, there: Any, named: Mapping[str, str]) -> None:
    for field, name in named.items():
        if name not in there:
            raise InputError(f"{where}: no column {name!r}; write {field}: and its name{nearest(name, there)}")
