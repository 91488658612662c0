"""Triage of logs file by file: what is kept of each are its episodes' ratings; those that are chosen are read again.

The choice is that of `triage` on the one table of all files, which is never made.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import polars as pl

from palaestra.algebra.turns import Turns
from palaestra.evaluation.logs import Logs, Names, Part, table_of
from palaestra.evaluation.logs.columns import RECOGNISED
from palaestra.evaluation.triage.select import by_system, check_budget, detect, pick, rate
from palaestra.evaluation.trials import KEPT, run_of_system

COLUMNS = (
    "run", "iteration", "group", "episode", "turn", "agent", "role", "system", "task", "success", "score", "error",
    "limit", "observation", "action", "tool", "arguments", "tool_error", "status", "episode_name",
)  # fmt: skip
"""All that the detectors and the page look at."""


class Survey(NamedTuple):
    """Result of `survey`: the chosen episodes, their turns and detections, and counts over all logs.

    chosen: as `triage` returns it, with `episode_code` as in `turns`. turns, detections: of the chosen episodes.
    total: episodes in all. kinds: `type, n, episodes` of all detections.
    """

    chosen: pl.DataFrame
    turns: Turns
    detections: pl.DataFrame
    total: int
    kinds: pl.DataFrame
    logs: Logs


@dataclass
class _Seen:
    """The files in the order in which they were rated, and whether systems share episodes in one."""

    files: list[Path | pl.DataFrame] = field(default_factory=list)
    shared: bool = False

    def rate(self, frame: pl.DataFrame, file: Path | None) -> pl.DataFrame:
        """A file's episodes. _file, _code: where to find them again; run is as in the file."""
        turns = Turns(frame)
        apart = by_system(turns)
        found = rate(apart, detect(apart))
        if apart is not turns:
            self.shared = True
            begins = pl.Series(apart.codes("episode").ids)
            runs = frame["run"] if "run" in frame.columns else pl.Series([None] * len(frame), dtype=pl.String)
            first = pl.DataFrame({"episode_code": begins, "was": runs}).unique("episode_code", keep="first")
            found = found.join(first, on="episode_code", how="left", maintain_order="left")
            found = found.with_columns(run="was").drop("was", *([] if "run" in frame.columns else ["run"]))
        copies = [name for name in KEPT if name in frame.columns]
        if copies:
            first = frame.select(copies).with_columns(episode_code=pl.Series(apart.codes("episode").ids))
            first = first.unique("episode_code", keep="first")
            found = found.join(first, on="episode_code", how="left", maintain_order="left")
        self.files.append(frame if file is None else file)
        return found.rename({"episode_code": "_code"}).with_columns(_file=pl.lit(len(self.files) - 1))

    def read(self, number: int, format: str | None, names: Names, part: Part) -> Turns:
        """A file once more."""
        file = self.files[number]
        frame = table_of(file, format, names, part)[0] if isinstance(file, Path) else file
        return by_system(Turns(frame))


def survey(
    read: Callable[[Part], Logs],
    budget: int,
    *,
    format: str | None = None,
    names: Names = RECOGNISED,
    random: float = 0.0,
    seed: int = 0,
) -> Survey:
    """`Survey`: triage of logs larger than memory, file by file, by function `read` (`Part` -> `Logs`); keeps `budget`.

    read: reads the logs (`read_logs`) by part. format, names: those that it was given. The rest as in `triage`.

    Raises:
        InputError: as `triage`, or nothing could be read.
    """
    check_budget(budget, random)
    seen = _Seen()
    part = Part(COLUMNS, seen.rate)
    logs = read(part)
    rated = logs.turns.frame
    if seen.shared:
        rated = rated.with_columns(run=run_of_system(rated.columns))
    rated = rated.with_columns(episode_code=pl.Series(Turns(rated).codes("episode").ids))
    of_all = rated.select("_file", "_code", "types").explode("types").drop_nulls("types").rename({"types": "type"})
    each = of_all.unique(["_file", "_code", "type"]).group_by("type").agg(episodes=pl.len())
    kinds = of_all.group_by("type").agg(n=pl.len()).join(each, on="type")
    chosen = pick(rated, budget, random, seed).drop("types", *KEPT, strict=False)
    turns, code = _turns_of(seen, chosen, format, names, part)
    chosen = chosen.drop("episode_code").join(code, on=["_file", "_code"], how="left", maintain_order="left")
    chosen = chosen.drop("_file", "_code")
    return Survey(chosen, turns, detect(turns), len(rated), kinds, logs)


def _turns_of(
    seen: _Seen, chosen: pl.DataFrame, format: str | None, names: Names, part: Part
) -> tuple[Turns, pl.DataFrame]:
    """The turns of the chosen episodes, numbered as groups; and the number of each."""
    parts: list[Turns] = []
    for (number,), wanted in chosen.sort("_file", "_code").group_by("_file", maintain_order=True):
        turns = seen.read(int(number), format, names, part)
        local = turns.frame.with_columns(_code=pl.Series(turns.codes("episode").ids), _file=pl.lit(number))
        mine = local.join(wanted.select("_code"), on="_code", how="semi", maintain_order="left")
        parts.append(Turns(mine))
    frame = Turns.concat(parts).frame
    place = ["_file", "_code"]
    number = pl.struct(place).rank("dense").cast(pl.Int32) - 1
    scope = [name for name in ("run", "iteration") if name in frame.columns]
    frame = frame.drop(scope).with_columns(group=number, episode=pl.lit(0, pl.Int32))
    turns = Turns(frame.drop(place))
    code = frame.select(*place, episode_code=pl.Series(turns.codes("episode").ids)).unique(maintain_order=True)
    return turns, code
