"""Progress reports: a live bar on a terminal, elsewhere a line now and then.

Names and words of logs and models are text here, neither markup nor commands: all goes through the console's
`render_str`. Left out: nested bars.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any, Protocol

from palaestra.errors import StorageError
from palaestra.foundation.files import write_json

if TYPE_CHECKING:
    from rich.console import Console

EVERY = 30.0
"""Seconds between two lines of a task where there is no terminal; a new phase is said at once."""
OFTEN = 0.25
"""Seconds between two notes to another process."""


class Report(Protocol):
    """Protocol of a progress callback: phase, steps done, total, note and lines to print."""

    def __call__(self, phase: str, done: int, total: int, note: str = "", lines: Sequence[str] = ()) -> None:
        """`done` of `total` steps of a phase, a note for the end of the line, and lines to print above it."""


def silent(phase: str, done: int, total: int, note: str = "", lines: Sequence[str] = ()) -> None:
    """A `Report` that does nothing."""


@contextlib.contextmanager
def reporting(progress: bool | Report, title: str) -> Iterator[Report]:
    """Context manager that yields a `Report`: the given one; for True a bar on stderr; for False a silent one."""
    if not isinstance(progress, bool):
        yield progress
    elif not progress:
        yield silent
    else:
        with Bars(transient=True) as bars:
            yield bars.task(title)


class Bars:
    """Context manager of progress bars of several tasks on a console, default stderr; `task` adds one as a `Report`."""

    def __init__(self, console: Console | None = None, *, transient: bool = False) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, ProgressColumn
        from rich.progress import Task as Row

        self.console = console or Console(stderr=True, markup=False, emoji=False, highlight=False)
        bars = self

        class Words(ProgressColumn):
            """A column of plain text."""

            def __init__(self, field: str) -> None:
                self.field = field
                super().__init__()

            def render(self, task: Row) -> Any:
                text = task.description if self.field == "title" else str(task.fields[self.field])
                return bars.console.render_str(text, markup=False, highlight=False)

        columns = (Words("title"), BarColumn(), Words("count"), Words("phase"), Words("note"))
        self.live = Progress(*columns, console=self.console, transient=transient, disable=not self.console.is_terminal)

    def __enter__(self) -> Bars:
        self.live.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.live.stop()

    def task(self, title: str) -> Report:
        """Add a bar; returns its `Report`, to be called after each step."""
        return _Task(self, title)

    def say(self, line: str, style: str | None = None) -> None:
        """Print a line above the bars."""
        self.console.print(line, style=style, markup=False, highlight=False, soft_wrap=True)


class _Task:
    def __init__(self, bars: Bars, title: str) -> None:
        self.bars, self.title = bars, title
        self.phase, self.since, self.first, self.said = "", 0.0, 0, 0.0
        self.row = bars.live.add_task(title, total=None, count="", phase="waiting", note="")

    def __call__(self, phase: str, done: int, total: int, note: str = "", lines: Sequence[str] = ()) -> None:
        for line in lines:
            self.bars.say(line, "yellow")
        now, new = monotonic(), phase != self.phase
        if new:
            self.phase, self.since, self.first = phase, now, done
        spent, steps = now - self.since, done - self.first
        left = f"{_clock((total - done) * spent / steps)} left" if steps > 0 and done < total else ""
        count = f"{done}/{total}" if total else ""
        words = "  ".join(word for word in (note, left) if word)
        if self.bars.console.is_terminal:
            self.bars.live.update(self.row, completed=done, total=total or None, count=count, phase=phase, note=words)
        elif new or now - self.said >= EVERY:
            self.said = now
            said = " ".join(word for word in (phase, count) if word)
            self.bars.say(f"{self.title}: {', '.join(word for word in (said, note, left) if word)}")


def _clock(seconds: float) -> str:
    """Whole seconds as h:mm:ss.

    >>> _clock(83.4), _clock(3723)
    ('1:23', '1:02:03')
    """
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


# -- from one process to another --------------------------------------------------------------------------------------


@contextlib.contextmanager
def report_to_file(path: Path) -> Iterator[Report]:
    """Context manager that yields a `Report` that writes to a file, which another process reads with `read_report`.

    The file is gone at the end.
    """
    last: list[Any] = [None, 0.0]

    def report(phase: str, done: int, total: int, note: str = "", lines: Sequence[str] = ()) -> None:
        if phase == last[0] and monotonic() - last[1] < OFTEN:
            return
        last[:] = phase, monotonic()
        with contextlib.suppress(StorageError):  # nothing is lost but the view
            write_json(path, {"phase": phase, "done": done, "total": total, "note": note})

    try:
        yield report
    finally:
        with contextlib.suppress(OSError):
            path.unlink()


def read_report(path: Path) -> tuple[str, int, int, str] | None:
    """(phase, done, total, note) of the last report in a file that `report_to_file` writes; None if there is none."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        return str(found["phase"]), int(found["done"]), int(found["total"]), str(found["note"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
