"""Files that are written whole or not at all, never through a link, and read with errors that name them."""

from __future__ import annotations

import contextlib
import json
import math
import os
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import numpy as np

from palaestra.errors import StorageError


@contextlib.contextmanager
def atomic_write(path: str | Path) -> Iterator[Path]:
    """Context manager for an atomic write: yields a temporary path that replaces `path` at the end, or is removed.

    Raises:
        StorageError: it cannot be written; nothing has changed.
    """
    path = Path(path)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary.unlink(missing_ok=True)  # it may be a link
        yield temporary
        os.replace(temporary, path)
    except OSError as error:
        raise StorageError(f"cannot write {path}: {error.strerror or error}") from error
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink()


def alive(process: int) -> bool:
    """Whether a process of this number runs on this machine; always true where that cannot be asked (Windows)."""
    if os.name != "posix":
        return True
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        return True
    return True


def left_behind(folder: Path, name: str) -> Iterator[Path]:
    """Yields the temporary files of `atomic_write` below a folder whose processes are gone; `name`: a pattern."""
    for each in folder.rglob(f".{name}.*.tmp"):
        process = each.name.split(".")[-2]
        if process.isdecimal() and not alive(int(process)):
            yield each


def refuse_link(path: str | Path) -> None:
    """Raise StorageError if `path` is a symbolic or hard link, so that writing would change a file elsewhere.

    Raises:
        StorageError: it is one; names it and the cure.
    """
    path = Path(path)
    try:
        found = path.lstat()
    except OSError:  # whoever opens it finds out why
        return
    kind = None
    if stat.S_ISLNK(found.st_mode):
        kind = f"a symbolic link to {os.readlink(path)}"
    elif stat.S_ISREG(found.st_mode) and found.st_nlink > 1:
        kind = "a hard link: the same file has another name"
    if kind:
        raise StorageError(
            f"cannot write {path}: it is {kind}, and writing would change that file; "
            "remove the link, or put a copy of the file in its place"
        )


def refuse_links(folder: str | Path) -> None:
    """Raise StorageError if any file in a folder, at any depth, is a link.

    Raises:
        StorageError: one is; names it and the cure.
    """
    for path in (Path(folder), *Path(folder).rglob("*")):
        refuse_link(path)


def open_to_append(path: str | Path) -> IO[str]:
    """Open a text file for reading and appending, made if it is missing; links are refused.

    Raises:
        OSError: it cannot be opened.
        StorageError: it is a link.
    """
    refuse_link(path)
    return open(path, "a+", encoding="utf-8", errors="replace", newline="\n", opener=_not_through_a_link)


def _not_through_a_link(path: str, flags: int) -> int:
    return os.open(path, flags | getattr(os, "O_NOFOLLOW", 0), 0o666)


@contextlib.contextmanager
def whole_folder(path: str | Path) -> Iterator[Path]:
    """Context manager for an atomic write of a folder: yields a temporary one that replaces `path` at the end.

    Raises:
        StorageError: it cannot be written; what is there stays.
    """
    path = Path(path)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        remove(temporary)
        temporary.mkdir(parents=True)
        yield temporary
        remove(path)
        temporary.rename(path)
    except OSError as error:
        raise StorageError(f"cannot write {path}: {error.strerror or error}") from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def remove(path: Path) -> None:
    """Delete a folder with its content, a file, or a link, but not what a link points to."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    """Write a text file atomically.

    Raises:
        StorageError: it cannot be written.
    """
    with atomic_write(path) as temporary:  # a model may have produced half a surrogate pair
        temporary.write_text(text, encoding="utf-8", errors="replace")


def write_json(path: Path, value: Any) -> None:
    """Write a JSON file atomically; NaN and infinity become null.

    Raises:
        StorageError: it cannot be written.
    """
    write_text(path, json.dumps(plain(value), indent=2, ensure_ascii=False) + "\n")


def read_text(path: Path) -> str | None:
    """The text of a UTF-8 file; None if there is no file.

    Raises:
        StorageError: it is there and cannot be read as text.
    """
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise StorageError(f"{path}: cannot be read as text: {error}") from error


def read_object(path: Path) -> dict[str, Any] | None:
    """Read a JSON object from a file as a dict; None if there is no file, StorageError if it is damaged.

    Raises:
        StorageError: the file is damaged; names it.
    """
    text = read_text(path)
    return None if text is None else parse_object(text, str(path))


def parse_object(text: str, where: str) -> dict[str, Any]:
    """Parse a text as a JSON object, a dict; raises StorageError otherwise.

    Raises:
        StorageError: it holds none; `where` names the file.
    """
    try:
        value = json.loads(text)
    except ValueError as error:
        raise StorageError(f"{where}: damaged: {error}; delete it, or restore it from a backup") from error
    if not isinstance(value, dict):
        raise StorageError(f"{where}: expected a JSON object, found {type(value).__name__}")
    return value


def plain(value: Any) -> Any:
    """A nested value as JSON-ready data: NumPy numbers as Python's, tuples as lists, NaN and infinity as None."""
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, np.generic):
        value = value.item()
    return None if isinstance(value, float) and not math.isfinite(value) else value
