"""Processes of tests, forked as those of seeds are: they start in a second, for torch and transformers are there."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from palaestra.play import forkserver


def fork(
    target: Callable[..., None], *arguments: Any, said: Path, environment: Mapping[str, str] | None = None
) -> BaseProcess:
    """A process that calls `target(*arguments)`, has begun, and writes all it says to the file `said`."""
    given = (os.environ | dict(environment or {}), said, target, arguments)
    process = forkserver.context(*forkserver.TORCH, *forkserver.LANGUAGE).Process(target=_run, args=given)
    process.start()
    return process


def _run(environment: Mapping[str, str], said: Path, target: Callable[..., None], arguments: tuple[Any, ...]) -> None:
    forkserver.begin(environment)
    with said.open("wb") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    target(*arguments)
