"""Writes docs/systems.md, the table of all systems with what was checked when: `python tools/systems.py`."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from palaestra_atlas import systems
from palaestra_atlas.render import status_of
from palaestra_atlas.reproductions import Exact, checks_of
from palaestra_atlas.rows import System, read_mechanism
from palaestra_atlas.verification import evidence

PAGE = Path(__file__).parents[1] / "docs" / "systems.md"
HEAD = """# Systems

<!-- Written by tools/systems.py from the evidence; run it after `palaestra verify`. -->

{counts}. {repeats} [Evidence](evidence.md) says how a row is judged; `palaestra systems ID` shows one in full, and
`palaestra verify ID` judges it again. `make verify` repeats what was verified before the code of a row changed.

- Parts: bound to an edit that takes them out, of all parts of the mechanism.
- Shown: parts without which a check failed, on the documented seeds and on a fresh block.
- Use: what the line that a person uses has more (+) or less (−) of its measure than the same line without the method,
  mean over three fresh seeds, or as many as the row asks for.
- Again: first seed of another block on which the row was judged once more, with the status if it differs.

| id | system | family | status | exact checks | parts | shown | use | date | again | why not |
| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |
"""


def line(row: System) -> str:
    """Row of the table."""
    found = evidence.read(row.id)
    bound = [part for part in read_mechanism(row.id).parts if part.out or part.missing or part.indistinguishable]
    exact = sum(isinstance(check, Exact) for check in checks_of(row.id))
    parts = f"{len(bound)}/{len(read_mechanism(row.id).parts)}" if row.where else ""
    shown = use = date = again = why = ""
    if found is not None:
        shown = f"{sum(not part.problem for part in found.parts)}/{len(found.parts)}"
        date = found.date
        again = ", ".join(str(one.fresh) + _differs(one, found) for one in found.repeats)
        why = found.reasons[0] if found.reasons else ""
        if found.use is not None and found.use.difference is not None:
            use = f"{found.use.difference:+.3g}".replace("-", "−")
    why = (why if len(why) <= 160 else why[:157] + "…").replace("|", "\\|").replace("\n", " ")
    cells = [row.id, row.name, row.family, status_of(row), exact or "", parts, shown, use, date, again, why]
    return f"| {' | '.join(map(str, cells))} |"


def _differs(repeat: evidence.Repeat, found: evidence.Evidence) -> str:
    return "" if repeat.status == found.status else f" ({repeat.status})"


def repeats() -> str:
    """How many rows were judged on a second block of seeds, and which had another status there."""
    found = [one for row in systems() if row.where and (one := evidence.read(row.id)) and one.repeats]
    other = [f"[{one.id}]" for one in found if any(_differs(each, one) for each in one.repeats)]
    return f"{len(found)} were judged again on other seeds; another status there: {' '.join(other) or 'none'}."


def text() -> str:
    """The page."""
    rows = [row for row in systems() if row.where]
    counts = Counter(status_of(row) for row in systems())
    said = ", ".join(f"{counts[each]} {each}" for each in ("works", "partly", "unverified", "planned") if counts[each])
    planned = ", ".join(f"[{row.id}] {row.name}" for row in systems() if not row.where)
    return (
        HEAD.format(counts=f"Of {len(systems())} systems: {said}", repeats=repeats())
        + "\n".join(map(line, rows))
        + (f"\n\n## Planned\n\n{planned}.\n" if planned else "\n")
    )


def main() -> None:
    """Write the page."""
    PAGE.write_text(text(), encoding="utf-8")
    print(PAGE.relative_to(PAGE.parents[1]))


if __name__ == "__main__":
    main()
