"""State of a `DiversitySearch` for checkpoints: arrays and plain values."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import numpy as np
import polars as pl

from palaestra.learning.diversity.archives import Evaluated, table
from palaestra.learning.diversity.emitters import Emitter
from palaestra.learning.diversity.schedules import Chunk
from palaestra.learning.diversity.search import DiversitySearch

_KEPT = ("population", "latest", "novel", "rewarded")
_PLAIN = ("mode", "evaluations", "spent", "gained", "generation", "fits", "explored")


def of_search(search: DiversitySearch | None) -> dict[str, Any] | None:
    """Complete state of a `DiversitySearch` as a dict, for a checkpoint; None before the first generation."""
    if search is None or search.latest is None:
        return None
    emitters = search.emitters

    def at(wanted: Emitter) -> int:
        return next(number for number, each in enumerate(emitters) if each is wanted)

    return {
        "pending": search.pending,
        "kept": {name: None if (kept := getattr(search, name)) is None else kept.arrays() for name in _KEPT},
        "plain": {name: getattr(search, name) for name in _PLAIN},
        "chunks": [asdict(each) for each in search.chunks],
        "emitters": [each.state_dict() for each in emitters],
        "asked": [[at(emitter), count] for emitter, count in search.asked],
        "running": [at(emitter) for emitter in search.running],
        "log": list(search.log),
        "descriptor": search.descriptor.state_dict(),
    }


def restore(search: DiversitySearch, state: dict[str, Any]) -> None:
    """Set a `DiversitySearch` in place to the state (dict) that `of_search` gave of a search with the same options."""
    for name in _PLAIN:
        setattr(search, name, state["plain"][name])
    for name, kept in state["kept"].items():
        setattr(search, name, None if kept is None else Evaluated(**kept))
    search.pending, search.log = np.asarray(state["pending"]), list(state["log"])
    search.chunks = [Chunk(**each) for each in state["chunks"]]
    search.emitters = [Emitter.of(each) for each in state["emitters"]]
    search.asked = [(search.emitters[at], int(count)) for at, count in state["asked"]]
    search.running = [search.emitters[at] for at in state["running"]]
    search.descriptor.load_state_dict(state["descriptor"])


def archives(state: dict[str, Any] | None) -> pl.DataFrame:
    """Table with a row per genome in a search's state (see `of_search`): archive, reward, place_0 …, genome.

    archive: "rewarded", "novelty", or "candidate" for a rewarded genome that no emitter has begun with yet.
    """
    kept = {} if state is None else {"rewarded": state["kept"]["rewarded"], "novelty": state["kept"]["novel"]}
    waiting = [] if state is None else [Emitter.of(each) for each in state["emitters"] if not each["means"]]
    tables = [table(Evaluated(**each), name) for name, each in kept.items() if each is not None]
    if waiting:
        tables.append(table(Evaluated.concat([each.parents for each in waiting]), "candidate"))
    return pl.concat(tables) if tables else pl.DataFrame(schema={"archive": pl.String, "reward": pl.Float64})
