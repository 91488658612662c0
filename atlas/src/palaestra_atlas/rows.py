"""One row per published system: the paper, where it lives here, how a person uses it, and the parts of its mechanism.

A row is a YAML file of two documents beside the system's experiment, `catalog/FAMILY/sNNN_name.yaml`. The first says
what stands here. The second lists the parts of the mechanism, each with the edit that takes it out.
"""

from __future__ import annotations

import functools
import re
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, PositiveInt, model_validator

from palaestra.foundation.yaml import read as read_yaml
from palaestra_atlas.verification.edits import Edit

FAMILIES = ("rewards", "credit", "reward_models", "teams", "self_improvement", "games", "evaluation")

Verified = Literal["code run", "code read", "text", "secondary text", "reconstruction"]
"""How a mechanism was checked: the authors' code run beside ours; their code read; the paper's text; what others write
of it (abstract, survey, page); or in none of these, reconstructed."""

Kind = Literal["train", "play", "decide", "env", "judge", "survey", "theory"]


class Paper(BaseModel):
    """What the paper's mechanism asks of a use, written from the paper and not from the code.

    Attributes:
        use: what a person does with the system.
        effect: measure, with, without, direction and size of the effect that a use must show.
        cannot_here: what needs a large model, people or a robot.
        traps: known ways in which a check stays green without the mechanism.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    use: str
    effect: dict[str, str]
    cannot_here: str = ""
    traps: str = ""


class Part(BaseModel):
    """One part of a mechanism, and what happens when it is taken out.

    Attributes:
        part: the part, in the paper's terms.
        neutral: what stands in for it.
        red: which number changes then, and how.
        out: the edits that put the stand-in into the code; None: not bound yet.
        checks: names of the row's checks, at least one of which must fail without the part.
        indistinguishable: why no check can tell; the row is `partly` then.
        missing: why the part is not here (a large model, people, a robot); the row is `partly` then.
        wrong: what is wrong in `part` against the paper, as corrected here.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    part: str
    neutral: str
    red: str
    out: tuple[Edit, ...] | None = None
    checks: tuple[str, ...] = ()
    indistinguishable: str | None = None
    missing: str | None = None
    wrong: str | None = None

    @model_validator(mode="before")
    @classmethod
    def _one_edit_or_several(cls, data: Any) -> Any:
        if isinstance(data, dict) and isinstance(data.get("out"), dict):
            return data | {"out": [data["out"]]}
        return data

    @model_validator(mode="after")
    def _names_its_checks(self) -> Part:
        if self.out is not None and not self.checks:
            raise ValueError(f"part {self.part!r}: `out` needs `checks`, the names of what must turn red")
        return self


class Use(BaseModel):
    """The line with which a person uses a system, beside the same line without the method.

    Attributes:
        line: a command, `palaestra train RECIPE field=value …`, or one that reads files.
        without: the same command without the method.
        data: `module:function`; called with (seed, directory), it writes the files that the command reads.
        measure: what is compared, a call from `palaestra_atlas.verification.measures`, or `module:function(…)`.
        direction: `higher` or `lower` with the method; `found`: true with it, false without; `refused`: exit code 2.
        least: smallest mean difference over seeds that counts; it has to be two standard errors as well.
        seeds: number of seeds on which it is judged.
        columns: columns of the saved turns that must be there, not all null and not constant.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    line: str = Field(pattern=r"^palaestra \S+")
    without: str | None = None
    data: str | None = None
    measure: str | None = None
    direction: Literal["higher", "lower", "found", "refused"] | None = None
    least: float = Field(0.0, ge=0)
    seeds: int = Field(3, ge=2)
    columns: tuple[str, ...] = ()

    @property
    def judged(self) -> bool:
        """Whether an effect is declared that can be measured."""
        return bool(self.without and self.measure and self.direction)


class System(BaseModel):
    """One published system.

    Attributes:
        id: its number here, for ever.
        name: what people call it.
        title: title of the paper.
        family: the family that it belongs to, one of `FAMILIES`.
        arxiv: the paper's id, if known.
        kind: what a person does with it: train, play, decide, judge; or an env, a survey, a theory.
        where: dotted names of the Python objects; empty: planned.
        expression: what the first of them stands for, as recipe text.
        use: the line with which a person uses it.
        verified: how the default was checked; or that of "default" and of each flavour.
        note: what the evidence shows; numbers are filled in from evidence, `{training.success:.2f}`.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    id: PositiveInt
    name: str
    title: str
    family: str
    arxiv: str | None = None
    kind: Kind
    where: tuple[str, ...] = ()
    expression: str | None = None
    use: Use | None = None
    verified: Verified | dict[str, Verified] | None = None
    note: str | None = None

    @model_validator(mode="after")
    def _claims_what_it_can(self) -> System:
        claims = (self.expression, self.use, self.verified, self.note)
        if not self.where and any(claims):
            raise ValueError(f"[{self.id}] is planned: it has no expression, use, verified or note")
        if self.where and not self.verified:
            raise ValueError(f"[{self.id}] says where it lives, so it says how it was verified")
        return self


class Mechanism(BaseModel):
    """The second document of a row: the paper's demands and the parts of the mechanism."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    paper: Paper
    parts: tuple[Part, ...] = Field(min_length=1)


def row_files(package: str = __name__.partition(".")[0]) -> dict[int, tuple[str, Traversable]]:
    """Family and file of every row of a package, by id.

    Args:
        package: an importable package with a folder `catalog/FAMILY/sNNN_name.yaml`.
    """
    found: dict[int, tuple[str, Traversable]] = {}
    for family in files(package).joinpath("catalog").iterdir():
        if not family.is_dir():
            continue
        for file in family.iterdir():
            if match := re.fullmatch(r"s(\d+)_\w+\.yaml", file.name):
                if int(match[1]) in found:
                    raise ValueError(f"{package}: two rows have the id {int(match[1])}")
                found[int(match[1])] = family.name, file
    return dict(sorted(found.items()))


def _documents(file: Traversable) -> list[str]:
    return re.split(r"^---\n", file.read_text(encoding="utf-8"), flags=re.MULTILINE)


@functools.lru_cache
def read_rows(package: str = __name__.partition(".")[0]) -> dict[int, System]:
    """Every system of a package by id; of each file only the first document is parsed.

    Raises:
        ValueError: a row is not valid; names its file.
    """
    found = {}
    for number, (family, file) in row_files(package).items():
        try:
            row = System(family=family, **read_yaml(_documents(file)[0], fast=True))
        except ValueError as error:
            raise ValueError(f"{file.name}: {error}") from error
        if row.id != number:
            raise ValueError(f"{file.name}: says id {row.id}")
        found[number] = row
    return found


@functools.lru_cache
def read_mechanism(number: int, package: str = __name__.partition(".")[0]) -> Mechanism:
    """The parts of one system.

    Raises:
        ValueError: the second document is not valid; names its file.
    """
    file = row_files(package)[number][1]
    try:
        return Mechanism(**read_yaml(_documents(file)[1], fast=True))
    except (ValueError, IndexError) as error:
        raise ValueError(f"{file.name}: {error}") from error
