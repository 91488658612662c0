"""A progress bar on stderr, or silence."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence

Report = Callable[[int, str, Sequence[str]], None]
"""How many steps are done, a note behind the bar, and lines to print above it."""


@contextlib.contextmanager
def progress_bar(title: str, steps: int, *, shown: bool) -> Iterator[Report]:
    """Yields what to call after each step; it does nothing if the bar is not shown."""
    if not shown:
        yield lambda done, note, lines: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn(title), BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[note]}"))
    with Progress(*columns, TimeRemainingColumn(), console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(title, total=steps, note="")

        def report(done: int, note: str, lines: Sequence[str]) -> None:
            bar.update(task, completed=done, note=note)
            for line in lines:
                bar.console.print(line, style="yellow", highlight=False, markup=False)

        yield report
