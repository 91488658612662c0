"""Evidence files: what `palaestra verify` found of each system, one JSON file per system."""

from __future__ import annotations

import json
import platform
import subprocess
import sys
from datetime import UTC, datetime
from importlib import metadata
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from palaestra.errors import InputError
from palaestra.foundation.files import write_text

Status = Literal["works", "partly", "planned", "unverified"]


class CheckResult(BaseModel):
    """One check of a row on one block of seeds.

    Attributes:
        name: of an exact check or an experiment.
        seeds: of an experiment; empty for an exact check, which draws nothing.
        holds: whether its criterion held.
        measured: numbers by name; one that was not finite is None.
        seconds: wall time.
        error: the message of an assertion, or of an exception, where it did not hold.
    """

    model_config = ConfigDict(extra="forbid")

    name: str
    seeds: tuple[int, ...] = ()
    holds: bool
    measured: dict[str, float | None] = {}
    seconds: float
    error: str | None = None


class PartResult(BaseModel):
    """Whether a part of the mechanism turns a check red when it is taken out.

    Attributes:
        part: the part, as in the row.
        red: names of the checks that failed without it, on every block of seeds.
        problem: why the part counts as not shown, if it does.
    """

    model_config = ConfigDict(extra="forbid")

    part: str
    red: tuple[str, ...] = ()
    problem: str | None = None


class UseResult(BaseModel):
    """The line that a person uses, run to its end beside the same line without the method.

    Attributes:
        line: the command, without: the same without the method.
        seeds: on which both ran.
        values, values_without: the measure by seed.
        difference, error: mean difference over seeds, and its standard error.
        seconds: wall time of both.
        problem: why the use does not show what it declares, if so.
    """

    model_config = ConfigDict(extra="forbid")

    line: str
    without: str | None = None
    seeds: tuple[int, ...] = ()
    values: tuple[float, ...] = ()
    values_without: tuple[float, ...] = ()
    difference: float | None = None
    error: float | None = None
    seconds: float = 0.0
    problem: str | None = None


class Repeat(BaseModel):
    """Status of the system when it was judged again on another block of seeds.

    Attributes:
        fresh: first seed of the block.
        status, reasons: as in `Evidence`.
        digest, commit, date: of the code that was judged, and when.
    """

    model_config = ConfigDict(extra="forbid")

    fresh: int
    status: Status
    reasons: tuple[str, ...] = ()
    digest: str
    commit: str | None = None
    date: str = ""


class Evidence(BaseModel):
    """All that was found of one system.

    Attributes:
        id, status: the system, and what the findings amount to.
        reasons: why it is not `works`, one line each.
        digest: of the row and the code that it names; other code makes the evidence stale.
        fast: whether trainings were left out; then the status is no better than `unverified`.
        commit, date, machine: where the findings come from.
        fresh: first seed of the block that took part in no choice.
        checks, parts, use: the findings.
        untraced: names of `where:` and `use:` that no check executed.
        repeats: the same judgement on other blocks of seeds, one per block.
    """

    model_config = ConfigDict(extra="forbid")

    id: int
    status: Status
    reasons: tuple[str, ...] = ()
    digest: str
    fast: bool = False
    commit: str | None = None
    date: str = ""
    machine: dict[str, str] = {}
    fresh: int = 0
    checks: tuple[CheckResult, ...] = ()
    parts: tuple[PartResult, ...] = ()
    untraced: tuple[str, ...] = ()
    use: UseResult | None = None
    repeats: tuple[Repeat, ...] = ()

    def repeated(self, found: Evidence) -> Evidence:
        """This evidence with the status that `found` computed on another block; an earlier one of that block goes."""
        kept = [each for each in self.repeats if each.fresh != found.fresh]
        new = Repeat(**found.model_dump(include=set(Repeat.model_fields)))
        return self.model_copy(update={"repeats": tuple(sorted([*kept, new], key=lambda each: each.fresh))})

    def numbers(self) -> dict[str, Any]:
        """Numbers that notes quote.

        Returns:
            `CHECK.NAME` and `CHECK.seeds` on the documented seeds, `fresh.CHECK.NAME`, `use.difference`.
        """
        found: dict[str, Any] = {"fresh": {}}
        for check in self.checks:
            again = bool(check.seeds) and check.name in found  # the documented seeds come first, whatever they are
            place = found["fresh"] if again else found
            place[check.name] = check.measured | {"seeds": len(check.seeds)}
        if self.use is not None:
            found["use"] = self.use.model_dump(exclude_none=True)
        return found


def folder() -> Path:
    """Where the evidence of this package lies."""
    return Path(str(files(__package__.partition(".")[0]).joinpath("evidence")))


def read(number: int, directory: Path | None = None) -> Evidence | None:
    """The evidence of a system, or None if there is none.

    Raises:
        InputError: the file is damaged; names it.
    """
    path = (directory or folder()) / f"{number:03d}.json"
    if not path.exists():
        return None
    try:
        return Evidence(**json.loads(path.read_text(encoding="utf-8")))
    except ValueError as error:
        raise InputError(f"{path}: {error}; run `palaestra verify {number}` again") from error


def write(found: Evidence, directory: Path) -> Path:
    """Write the evidence of a system; the path."""
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / f"{found.id:03d}.json"
    write_text(path, json.dumps(found.model_dump(mode="json"), ensure_ascii=False, indent=1, allow_nan=False) + "\n")
    return path


def origin() -> dict[str, Any]:
    """Commit, date and machine of a finding; no names of hosts or folders."""
    describe = ["git", "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"]
    asked = subprocess.run(describe, cwd=Path(__file__).parent, capture_output=True, text=True)
    versions = {name: metadata.version(name) for name in ("palaestra", "numpy", "polars", "torch") if _there(name)}
    return {
        "commit": asked.stdout.strip() or None,
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
        "machine": {
            "system": platform.system(),
            "processor": platform.machine(),
            "python": sys.version.split()[0],
            **versions,
        },
    }


def _there(name: str) -> bool:
    try:
        metadata.version(name)
    except metadata.PackageNotFoundError:
        return False
    return True
