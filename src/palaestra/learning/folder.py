"""Run folder: what training writes and reads again on resume."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from palaestra.algebra.messages import messages
from palaestra.algebra.turns import Turns
from palaestra.errors import InputError
from palaestra.foundation import checksums
from palaestra.foundation.files import atomic_write
from palaestra.learning import checkpoints
from palaestra.learning.journal import Journal


@dataclass(frozen=True)
class RunFolder:
    """Directory of a training run: metrics, checkpoints, and tables of turns and of messages.

    journal: its metrics. keep: checkpoints that stay beside the start. files: patterns of what a checkpoint seals
    beside the metrics.
    """

    path: Path
    journal: Journal
    keep: int
    files: tuple[str, ...]

    @property
    def checkpoints(self) -> Path:
        """Path of the folder of checkpoints."""
        return self.path / "checkpoints"

    def begin(self, size: int, resume: bool) -> Path | None:
        """Path of the checkpoint to resume from; None: begin at the start. size: bytes of a checkpoint.

        Raises:
            InputError: a run is there that is not to be resumed, or has no checkpoint.
            StorageError: it cannot be written, or is too small.
        """
        checkpoints.check_writable(self.path, 2 * (self.keep + 3) * size)
        found = checkpoints.latest(self.checkpoints)
        there = checkpoints.existing_file(self.path)
        if there and found is None:
            raise InputError(
                f"{self.path} holds {there}, but no whole checkpoint to go on from: restore checkpoints/, or "
                "delete the directory to begin again"
            )
        if there and not resume:
            raise InputError(
                f"{self.path} holds a run already ({Path(there).name}): resume it, or choose another directory"
            )
        return found if resume else None

    def load(self, found: Path, settings: Mapping[str, Any]) -> dict[str, Any]:
        """State of a checkpoint, after checking that settings and sealed files are the same.

        Raises:
            InputError: a setting was another one.
            StorageError: the checkpoint, or a file that it seals, is not what it was.
        """
        state = checkpoints.load(found)
        made = {"lag": 0, "inflight": False} | state["settings"]
        for name, value in settings.items():
            if made.get(name) != value:
                raise InputError(
                    f"{self.path}: the run was made with {name}={made.get(name)!r}, not {value!r}; "
                    "resume it with the same settings, or choose another directory"
                )
        checksums.check(self.path, state.get("files", {}), found.name, f"delete {self.path} to begin it again")
        return state

    def start(self) -> dict[str, Any] | None:
        """States of the policies before any training (checkpoint 0); None if they are damaged."""
        kept = checkpoints.path_of(self.checkpoints, 0)
        return None if checkpoints.damage(kept) else checkpoints.load(kept)["policies"]

    def write_checkpoint(self, iteration: int, state: dict[str, Any]) -> None:
        """Write a checkpoint with checksums of the run's files, and remove older checkpoints."""
        sealed = checksums.checksums(self.path, ("metrics.jsonl", *self.files))
        checkpoints.save(self.checkpoints, iteration, state | {"files": sealed})
        checkpoints.prune(self.checkpoints, self.keep)

    def write_turns(self, iteration: int, turns: Turns, *, alone: bool) -> None:
        """Write an iteration's turns and, of a team, its messages. alone: remove those of other iterations."""
        name = f"iteration-{iteration:06d}.parquet"
        turns.save(self.path / "turns" / name)
        if {"heard", "heard_turn"} <= set(turns.columns):
            with atomic_write(self.path / "messages" / name) as temporary:
                messages(turns).write_parquet(temporary)
        for path in self._tables() if alone else ():
            if path.name != name:
                path.unlink()

    def write_tasks(self, iteration: int, tasks: pl.DataFrame) -> None:
        """Write the tasks that an iteration added or changed."""
        with atomic_write(self.path / "tasks" / f"iteration-{iteration:06d}.parquet") as temporary:
            tasks.write_parquet(temporary)

    def forget_after(self, iteration: int) -> None:
        """Remove what was written after `iteration`, the last checkpoint of a killed run."""
        self.journal.rewind(iteration)
        for path in (*self._tables(), *(self.path / "tasks").glob("iteration-*.parquet")):
            if checkpoints.iteration_of(path.with_suffix("")) > iteration:
                path.unlink()
        while (late := checkpoints.newest(self.checkpoints)) and checkpoints.iteration_of(late) > iteration:
            shutil.rmtree(late)  # it is damaged, and would be kept in place of one that is whole

    def _tables(self) -> list[Path]:
        return [path for name in ("turns", "messages") for path in (self.path / name).glob("iteration-*.parquet")]
