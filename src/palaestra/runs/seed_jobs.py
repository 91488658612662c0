"""The seed of a run as a job for another process, and how far it is, from the files that it writes."""

from __future__ import annotations

import concurrent.futures
import json
import re
from pathlib import Path
from typing import Any, NamedTuple

from palaestra.foundation.progress import Bars, read_report
from palaestra.runs.recipe import Recipe

LOG = "actor.log"
"""File in a seed's folder with what its actor says on stderr, where it runs in one."""

NOTE = ".progress.json"
"""File in a seed's folder with its phase and iteration, which the process that shows them reads."""


class SeedJob(NamedTuple):
    """Data of one training job: recipe, seed, directory and title."""

    recipe: Recipe
    seed: int
    directory: Path
    title: str


class WatchedSeed:
    """Progress display of a `SeedJob`: its phase, and its alarms, each kind once; the report counts them all."""

    def __init__(self, job: SeedJob, bars: Bars) -> None:
        self.job, self.bars, self.report = job, bars, bars.task(job.title)
        self.read, self.kinds, self.over = 0, set[str](), False
        self.heard = log.stat().st_size if (log := job.directory / LOG).exists() else 0

    def show(self, future: concurrent.futures.Future[Any]) -> None:
        """Bring the display up to date."""
        if self.over or not (future.running() or future.done()):
            return
        self.over = future.done()  # before the files are read for the last time; what is over is said once
        path = self.job.directory / "metrics.jsonl"
        lines = path.read_bytes().split(b"\n")[:-1] if path.exists() else []
        self._repeat()
        self._warn(lines[self.read :])
        self.read = len(lines)
        total = self.job.recipe.train.iterations
        if self.over:
            failed = future.cancelled() or future.exception() is not None
            self.report("stopped" if failed else "done", self.read if failed else total, total)
        else:
            self.report(*(read_report(self.job.directory / NOTE) or ("starting", 0, total, "")))

    def _repeat(self) -> None:
        """Print what an actor has said since on stderr; processes of this machine have the terminal themselves."""
        if (log := self.job.directory / LOG).exists():
            with log.open("rb") as file:
                file.seek(self.heard)
                *lines, _ = file.read().split(b"\n")
            self.heard += sum(len(line) + 1 for line in lines)
            for line in lines:
                self.bars.say(line.decode(errors="replace"))

    def _warn(self, lines: list[bytes]) -> None:
        for line in map(json.loads, lines):
            for alarm in line.get("alarms", []):
                kind = re.sub(r"[\d.]+", "", alarm)
                if kind not in self.kinds:
                    self.bars.say(f"{self.job.title}, iteration {line['iteration']}: {alarm}")
                self.kinds.add(kind)
