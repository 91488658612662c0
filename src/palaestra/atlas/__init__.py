"""The atlas: 219 published systems, and what each of them is here.

One YAML file per family beside this one, one line per system. A row may only claim what exists: a test imports every
name in `where` and looks up every reproduction. Left out on purpose: abstracts, headline numbers, rankings.
"""

from __future__ import annotations

from difflib import get_close_matches
from functools import lru_cache
from importlib.resources import files
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, PositiveInt, model_validator

from palaestra.algebra.yaml import read as read_yaml
from palaestra.errors import InputError

__all__ = ["FAMILIES", "System", "system", "systems"]

FAMILIES = ("rewards", "credit", "reward_models", "teams", "self_improvement", "games", "evaluation")


Verified = Literal["code run", "code read", "text", "secondary text", "reconstruction"]
"""How a mechanism was checked: the authors' code run beside ours; their code read; the paper's text; what others write
of it (abstract, survey, page); or in none of these, reconstructed."""


class System(BaseModel):
    """One published system.

    id: its number here, for ever. name: what people call it; title: of the paper. arxiv: the paper's id, if known.
    status: `works` (its mechanism is here and its reproduction holds), `partly` (some of it is) or `planned`.
    where: dotted names of the Python objects. expression: what the first of them stands for, as recipe text.
    reproduce: the command. use: the one with which a person uses it, which CI executes (training for two iterations):
    `palaestra train RECIPE field=value …`, or one on files.
    verified: how the default was checked, in the words of `Verified`; or that of "default" and of each flavour.
    note: one line on what the reproduction shows.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    id: PositiveInt
    name: str
    title: str
    family: str
    arxiv: str | None = None
    status: Literal["works", "partly", "planned"] = "planned"
    where: tuple[str, ...] = ()
    expression: str | None = None
    reproduce: str | None = None
    use: str | None = None
    verified: Verified | dict[str, Verified] | None = None
    note: str | None = None

    @model_validator(mode="after")
    def _claims_what_its_status_allows(self) -> System:
        if self.status == "planned" and (
            self.where or self.expression or self.use or self.reproduce or self.verified or self.note
        ):
            raise ValueError("a planned system has no where, expression, use, reproduce, verified or note")
        if self.status != "planned" and not self.where:
            raise ValueError(f"a system that is {self.status!r} says where it lives")
        if self.status == "works" and not (self.reproduce and self.verified and self.note):
            raise ValueError("a system that works has reproduce, verified and note")
        return self

    def to_dict(self) -> dict[str, Any]:
        """What `palaestra systems --json` prints; `model_dump()` has every field."""
        return self.model_dump(mode="json", include={"id", "name", "family", "status", "where", "reproduce"})


@lru_cache(maxsize=1)
def _all() -> dict[int, System]:
    """Every system by id; reading the files takes some 20 ms, once."""
    found: dict[int, System] = {}
    for family in FAMILIES:
        text = files(__package__).joinpath(f"{family}.yaml").read_text(encoding="utf-8")
        for row in read_yaml(text, fast=True):
            entry = System(family=family, **row)
            if entry.id in found:
                raise ValueError(f"atlas: id {entry.id} is in {found[entry.id].family}.yaml and in {family}.yaml")
            found[entry.id] = entry
    return dict(sorted(found.items()))


def systems() -> list[System]:
    """All systems, by id.

    >>> len(systems())
    219
    """
    return list(_all().values())


def system(key: int | str) -> System:
    """The system with this id or this name (case does not matter).

    Raises:
        InputError: there is no such system; the message names the nearest.

    >>> system(18).name, system("gigpo").id
    ('Dr. MAS', 62)
    """
    rows = _all()
    text = str(key).strip()
    if text.isdecimal():
        if int(text) in rows:
            return rows[int(text)]
        raise InputError(f"there is no system {text}; ids run from {min(rows)} to {max(rows)}")
    by_name = {entry.name.casefold(): entry for entry in rows.values()}
    if text.casefold() in by_name:
        return by_name[text.casefold()]
    close = [by_name[name].name for name in get_close_matches(text.casefold(), by_name, n=3, cutoff=0.5)]
    hint = f"did you mean {' or '.join(map(repr, close))}?" if close else "`palaestra systems` lists all of them"
    raise InputError(f"there is no system named {text!r}; {hint}")
