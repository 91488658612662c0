"""[189] A survey of foundation agents (arXiv 2504.01990): every system that is here has a place under its headings.

A survey claims nothing that could be measured; what is checked is the index that is made of it. Left out: the prose.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from unittest.mock import patch

from palaestra.errors import InputError
from palaestra_atlas import systems
from palaestra_atlas import taxonomy as module
from palaestra_atlas.reproductions import Outcome, exact, reproduction
from palaestra_atlas.rows import System
from palaestra_atlas.taxonomy import HEADINGS, taxonomy
from palaestra_atlas.verification.measures import Left, Measure

PARTS = {"core": 9, "self-enhancement": 5, "collaboration": 6, "safety": 6}
EMPTY = {"tools", "prompt injection", "hallucination", "poisoning", "privacy"}
"""Headings of the survey below which nothing of the atlas stands."""
PLACES = {
    "palaestra.rewards.count_bonus": "reward: intrinsic", "palaestra.rewards.emotion": "emotion",
    "palaestra.foundation.archive.GoalMemory": "memory", "palaestra.teams.conducted": "workflows",
    "palaestra.teams.workflows.debate": "topology and messages", "palaestra.envs.worlds.guardians": "jailbreaks",
    "palaestra.agents.bandits.BanditPolicy": "cognition: learning", "palaestra.credit.teams": "benchmarks of teams",
}  # fmt: skip
PLACED = {18: "cognition: learning", 111: "topology and messages", 129: "workflows", 181: "memory"}
"""Systems whose heading the survey's words leave no doubt of."""


def row_of(number: int, name: str) -> System:
    """A made-up row with one object."""
    like = next(entry for entry in systems() if entry.id == 111)
    return like.model_copy(update={"id": number, "where": (name,)})


def refused() -> str:
    """What is said of a table that cannot be made; nothing if it can."""
    try:
        taxonomy()
    except InputError as error:
        return str(error)
    return ""


@exact
def four_parts() -> None:
    """So many headings in each of the survey's four parts."""
    table = taxonomy()
    assert dict(table.group_by("part").len().iter_rows()) == PARTS


@exact
def named_if_unplaced() -> None:
    """A row whose object no heading names is refused by that object's name; without it all rows are placed."""
    made = row_of(9001, "palaestra.nowhere.x")
    with patch.object(module, "systems", lambda: [*systems(), made]):
        said = refused()
    assert "palaestra.nowhere.x" in said, said
    assert "9001" in said, said
    placed = set(taxonomy()["ids"].explode().drop_nulls())
    assert placed == {entry.id for entry in systems() if entry.where} - {189}


@exact
def made_from_rows() -> None:
    """A new row stands at once below the heading of its object."""
    made = row_of(9002, "palaestra.rewards.count_bonus")
    with patch.object(module, "systems", lambda: [*systems(), made]):
        table = taxonomy()
    (row,) = table.filter(table["heading"] == "reward: intrinsic").to_dicts()
    assert 9002 in row["ids"]


@exact
def empty_headings_shown() -> None:
    """Headings below which nothing stands are there, with nothing."""
    table = taxonomy()
    assert set(table.filter(table["ids"].list.len() == 0)["heading"]) == EMPTY


@exact
def by_mechanism() -> None:
    """Objects stand below the heading of what they do."""
    found = {name: module.place(name)[1] for name in PLACES}
    assert found == PLACES


def placed_systems() -> Measure:
    """Share of known systems that the printed table has below their heading."""

    def measured(left: Left) -> list[float]:
        rows = json.loads(left.stdout)
        below = {row.get("heading"): row.get("ids", ()) for row in rows}
        return [float(all(number in below.get(heading, ()) for number, heading in PLACED.items()))]

    return measured


def unplaced(heading: tuple[str, str]) -> bool:
    """Whether without a heading's names something has no place, or another one."""
    without = HEADINGS | {heading: ()}
    try:
        return not taxonomy(without).equals(taxonomy())
    except InputError:
        return True


@reproduction(
    189,
    claim="The survey's headings hold everything that is here: no system is without a place, no heading's names "
    "without an object, and headings without any are named.",
    baseline="the same headings, each in turn without its names",
    criterion="every system that works or partly works stands below a heading (this one aside); every heading that "
    "names something holds an object, and without its names something is lost or elsewhere (exact)",
)
def measure(seeds: Sequence[int]) -> Outcome:
    """Place everything; take each heading out."""
    table = taxonomy()
    here = {entry.id for entry in systems() if entry.where} - {189}
    placed = set(table["ids"].explode().drop_nulls().to_list())
    named = {heading for heading, names in HEADINGS.items() if names}
    filled = {(part, heading) for part, heading, objects, _ in table.iter_rows() if objects}
    measured = {
        "systems": float(len(here)), "placed": float(len(here & placed)), "headings": float(len(table)),
        "empty": float(len(table) - len(filled)), "needed": float(sum(map(unplaced, named))),
    }  # fmt: skip
    return Outcome(measured, here == placed and named == filled and measured["needed"] == len(named))
