"""Small worlds played as a recipe plays them, by scripts; what the rows of this family have in common."""

from __future__ import annotations

from typing import Any

import polars as pl


def played(
    world: str, options: dict[str, Any], script: str | None = None, groups: int = 8, **of_script: Any
) -> pl.DataFrame:
    """Turns of the recipe `world` on a native world, played by a script for every seat; without one, at random."""
    from palaestra.runs.inline import learn  # brings torch

    policy = {"kind": "script", "options": {"script": script, **of_script}} if script else {"kind": "random"}
    changes = {
        "env": {"make": f"native/{world}", "options": options},
        "policies": {"table": policy},
        "learn": {"kind": "play"},
        "train": {"iterations": 1, "groups": 2, "group_size": 1},
    }
    return learn("world", changes).play(groups=groups).frame
