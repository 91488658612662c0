"""The atlas of Palaestra: 219 published systems, what each of them is here, and the evidence that it works.

A system is a row (`catalog/FAMILY/sNNN_name.yaml`) and an experiment beside it (`sNNN_name.py`). `palaestra verify`
computes whether it works and writes `evidence/NNN.json`, which everything else reads.
"""

from __future__ import annotations

from difflib import get_close_matches

from palaestra.errors import InputError
from palaestra_atlas.rows import FAMILIES, System, read_rows

__all__ = ["FAMILIES", "System", "system", "systems"]


def systems() -> list[System]:
    """All systems, by id.

    Example:
        >>> len(systems())
        219
    """
    return list(read_rows().values())


def system(key: int | str) -> System:
    """The system with this id or this name; case does not matter.

    Raises:
        InputError: there is no such system; the message names the nearest.

    Example:
        >>> system(18).name, system("gigpo").id
        ('Dr. MAS', 62)
    """
    rows = read_rows()
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
