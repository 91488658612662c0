"""The metrics of a run: one JSON object per iteration, appended, and cut back when a run is resumed."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path
from typing import Any

import numpy as np

from palaestra.errors import StorageError


class Journal:
    """`lines` in memory and, if there is a path, the same lines on disk."""

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self.lines: list[dict[str, Any]] = []

    def append(self, line: dict[str, Any]) -> None:
        """Add a line. What is not finite becomes null, for JSON has no word for it.

        Raises:
            StorageError: the file cannot be written.
        """
        line = plain(line)
        self.lines.append(line)
        if self.path is not None:
            try:
                with self.path.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(line, ensure_ascii=False) + "\n")
            except OSError as error:
                raise StorageError(f"cannot write {self.path}: {error.strerror or error}") from error

    def rewind(self, iteration: int) -> None:
        """Read the file and forget, there too, what came after `iteration`.

        A last line that a killed process left half-written goes as well.

        Raises:
            StorageError: the file cannot be read or written.
        """
        self.lines = []
        if self.path is None or not self.path.exists():
            return
        try:
            written = self.path.read_text(encoding="utf-8", errors="replace")
        except OSError as error:
            raise StorageError(f"cannot read {self.path}: {error.strerror or error}") from error
        for text in written.splitlines():
            try:
                line = json.loads(text)
            except ValueError:
                break
            if line["iteration"] <= iteration:
                self.lines.append(line)
        write_text(self.path, "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in self.lines))


def write_json(path: Path, value: Any) -> None:
    """Write a JSON file, whole or not at all.

    Raises:
        StorageError: it cannot be written.
    """
    write_text(path, json.dumps(plain(value), indent=2, ensure_ascii=False) + "\n")


def write_text(path: Path, text: str) -> None:
    """Write a text file, whole or not at all.

    Raises:
        StorageError: it cannot be written.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        temporary.write_text(text, encoding="utf-8")
        os.replace(temporary, path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise StorageError(f"cannot write {path}: {error.strerror or error}") from error


def plain(value: Any) -> Any:
    """Python's own numbers; NaN and infinity become None."""
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, np.generic):
        value = value.item()
    return None if isinstance(value, float) and not math.isfinite(value) else value
