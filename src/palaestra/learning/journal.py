"""The metrics of a run: one JSON object per iteration, appended, and cut back when a run is resumed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from palaestra.errors import StorageError
from palaestra.foundation.files import open_to_append, plain, write_text


class Journal:
    """Log of a run's metrics: `lines` in memory and, if there is a path, the same lines in a JSONL file."""

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self.lines: list[dict[str, Any]] = []

    def append(self, line: dict[str, Any]) -> None:
        """Add a line to memory and file. A number that is not finite becomes null, as JSON has none.

        Raises:
            StorageError: the file cannot be written.
        """
        line = plain(line)
        self.lines.append(line)
        if self.path is not None:
            try:
                with open_to_append(self.path) as file:
                    file.write(json.dumps(line, ensure_ascii=False) + "\n")
            except OSError as error:
                raise StorageError(f"cannot write {self.path}: {error.strerror or error}") from error

    def rewind(self, iteration: int) -> None:
        """Load the lines of the file up to `iteration` into memory, and remove later ones from the file.

        A last line that a killed process left half-written goes as well. That what is left is whole is for whoever
        sealed it to say; see `foundation.checksums`.

        Raises:
            StorageError: the file cannot be read or written, or a line that should stay is none of ours.
        """
        self.lines = []
        if self.path is None or not self.path.exists():
            return
        try:
            written = self.path.read_text(encoding="utf-8", errors="replace")
        except OSError as error:
            raise StorageError(f"cannot read {self.path}: {error.strerror or error}") from error
        kept, last = "", 0
        for number, text in enumerate(written.split("\n")[:-1], start=1):  # not splitlines: a name may hold U+2028
            try:
                line = json.loads(text)
                last = int(line["iteration"])
            except (ValueError, KeyError, TypeError) as error:
                if last >= iteration:
                    break
                raise StorageError(
                    f"{self.path}, line {number}: damaged: {error!r}; restore it from a backup"
                ) from error
            if last <= iteration:
                self.lines.append(line)
                kept += text + "\n"
        if kept != written:
            write_text(self.path, kept)
