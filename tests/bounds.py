"""Tables of the least and the greatest value that an option may have, and a check that its maker keeps to them.

A line is `what: name >= least; name > least; name in [least, most]; …`, and goes on where the next one is indented.
Numbers with a point need not be whole. `with other=value …` after a range says what else is given.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

from palaestra.errors import PalaestraError
from palaestra.foundation.registry import REGISTRIES
from palaestra.interface.cli.names import HOMES


def table(text: str) -> dict[str, str]:
    """Ranges by what they are of."""
    lines = text.replace("\n    ", " ").strip().splitlines()
    return {what: ranges for what, _, ranges in (line.rpartition(": ") for line in lines)}


def registered(kind: str, word: str, known: Mapping[str, object] = {}) -> Callable[..., Any]:
    """Maker of what `word`, a name with options, stands for, which takes further options; known: names in `word`."""
    for home in HOMES:
        import_module(home)
    name = word.partition("(")[0]
    given, options = eval(word, {**known, name: lambda *given, **options: (given, options)})
    return lambda **more: REGISTRIES[kind][name](*given, **options | more)


def kept(make: Callable[..., object], ranges: str) -> None:
    """Assert that each end of a range is accepted if it belongs to it, and that nothing beyond is."""
    for each in map(str.strip, ranges.split(";")):
        said, _, others = each.partition(" with ")
        given = {name: eval(value) for name, value in (pair.split("=") for pair in others.split())}
        name, rest = said.split(" ", 1)
        for text, closed, out in _ends(rest):
            end, step = (float(text), 1e-9) if "." in text else (int(text), 1)
            inside, outside = (end, end + out * step) if closed else (end - out * step, end)
            assert not _refused(make, given | {name: inside}), (name, inside)
            assert _refused(make, given | {name: outside}), (name, outside)


def _refused(make: Callable[..., object], options: dict[str, Any]) -> bool:
    try:
        make(**options)
    except PalaestraError:
        return True
    return False


def _ends(said: str) -> list[tuple[str, bool, int]]:
    """Of a range, each end as it is written, whether it belongs to the range, and which way is out of it."""
    if found := re.fullmatch(r"in ([\[(])(\S+), (\S+)([\])])", said):
        opens, least, most, closes = found.groups()
        return [(least, opens == "[", -1), (most, closes == "]", 1)]
    sign, end = said.split()
    return [(end, sign[1:] == "=", -1 if sign[0] == ">" else 1)]
