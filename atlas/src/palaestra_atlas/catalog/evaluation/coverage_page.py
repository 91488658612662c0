"""Tables of docs/coverage.md from the studies: `python -m palaestra_atlas.catalog.evaluation.coverage_page PAGE`.

The page keeps its text, its order and its notes; only the numbers of the studies that ran are replaced.
"""

from __future__ import annotations

import argparse
import math
import re
from collections.abc import Mapping
from pathlib import Path

from palaestra_atlas.catalog.evaluation import coverage

ROW = re.compile(r"^\| (\w+) \|[^|]*\|[^|]*\|[^|]*\|(.*)\|$", re.MULTILINE)
"""`| name | n | share | error | note |`, whose header has no name of a study."""


def names(page: str) -> list[str]:
    """What has a row in a table of the page."""
    return [row[1] for row in ROW.finditer(page) if row[1] != "name"]


def rewritten(page: str, found: Mapping[str, float], draws: int) -> str:
    """The page with these shares, each of `draws` data sets.

    Raises:
        KeyError: the page has no row for one of them.
    """
    if missing := found.keys() - set(names(page)):
        raise KeyError(f"the page has no row for {', '.join(sorted(missing))}")

    def row(match: re.Match[str]) -> str:
        if match[1] not in found:
            return match[0]
        share = found[match[1]]
        error = math.sqrt(share * (1 - share) / draws)
        return f"| {match[1]} | {draws} | {share:.3f} | {error:.3f} |{match[2]}|"

    return ROW.sub(row, page)


def main() -> None:
    """Run all studies, or those that are named, and write the page again."""
    asked = argparse.ArgumentParser(description=main.__doc__)
    asked.add_argument("page", type=Path)
    asked.add_argument("study", nargs="*")
    asked.add_argument("--draws", type=int, default=2000)
    asked.add_argument("--seed", type=int, default=0)
    given = asked.parse_args()
    for one in coverage.studies():
        if not given.study or one.__name__ in given.study:
            found = coverage.shares(one, coverage.stream(one, given.seed), given.draws)
            given.page.write_text(rewritten(given.page.read_text("utf-8"), found, given.draws), "utf-8")
            print(one.__name__, *coverage.misses(found), flush=True)


if __name__ == "__main__":
    main()
