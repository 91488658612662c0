"""[189] A survey of foundation agents (arXiv 2504.01990): every system that is here has a place under its headings.

A survey claims nothing that could be measured; what is checked is the index that is made of it. Left out: the prose.
"""

from __future__ import annotations

from collections.abc import Sequence

from palaestra.errors import InputError
from palaestra_atlas import systems
from palaestra_atlas.reproductions import Outcome, reproduction
from palaestra_atlas.taxonomy import HEADINGS, taxonomy


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
