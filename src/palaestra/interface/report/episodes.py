"""Ten episodes to read, turn by turn, chosen by a rule and not by taste.

Two held-out tasks before and after training (one that was failed before and is solved after, one that is failed after),
then successes and failures of the last training iteration, then errors; what is missing is filled from the rest. Seeds
take turns, and of the candidates the first on a task that is not shown yet is taken.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import polars as pl

from palaestra.algebra.schema import SKIPPED, episode_failed
from palaestra.foundation.scalars import float_or_zero
from palaestra.interface.report.load import Run

CLIP = 320  # characters of a text that are shown at once
LONGEST = 6000  # characters that are kept at all: the rest is in the Parquet file
OPEN_TURNS = 8
MOST_TURNS = 60

KEY = ["place", "source", "group", "episode"]


@dataclass(frozen=True)
class Text:
    """Data of a long text for display: its two ends, and the whole if it is longer."""

    head: str
    tail: str = ""
    whole: str = ""
    left_out: int = 0

    @staticmethod
    def of(value: str | None) -> Text:
        """A text clipped for display: most of the room for its beginning, some for its end."""
        text = value or ""
        if len(text) <= CLIP + 40:
            return Text(text)
        head, tail = text[: CLIP * 2 // 3].rstrip(), text[-CLIP // 3 :].lstrip()
        return Text(head, tail, text[:LONGEST], max(0, len(text) - LONGEST))


@dataclass(frozen=True)
class ShownTurn:
    """Data of a turn as the report shows it, with shades of reward and credit.

    reward_shade, credit_shade: -1 … 1, the share of the largest magnitude among the episodes shown.
    """

    number: int
    agent: str
    policy: str
    observation: Text
    action: Text
    valid: bool
    reward: float | None
    credit: float | None
    reward_shade: float = 0.0
    credit_shade: float = 0.0


@dataclass(frozen=True)
class ShownEpisode:
    """Data of an episode as the report shows it: `turns` first, `folded` ones behind a click; open: shown unfolded.

    outcome: success | failure | split (agents differ) | error | played (nobody said whether it succeeded). expected: a
    right answer, if the table has one (column `expected`).
    """

    seed: str
    source: str
    task: str
    outcome: str
    error: str | None
    truncated: bool
    returns: tuple[tuple[str, float | None], ...]
    turns: tuple[ShownTurn, ...]
    folded: tuple[ShownTurn, ...]
    left_out: int
    open: bool = False
    expected: str = ""

    @property
    def length(self) -> int:
        """Number of turns, shown or not."""
        return len(self.turns) + len(self.folded) + self.left_out


def sample(run: Run, count: int = 10) -> list[ShownEpisode]:
    """List of at most `count` `ShownEpisode` of a loaded `Run`: tasks whose outcome changed, last training, errors."""
    table = table_of(run)
    chosen = [] if table is None else _choose(_index(table), count)
    episodes = [] if table is None else shown(run, table, chosen)
    kinds = ["error" if e.error else e.source.startswith("training") for e in episodes]
    return [replace(e, open=kinds[:i].count(kind) < 2) for i, (e, kind) in enumerate(zip(episodes, kinds, strict=True))]


def shown(run: Run, table: pl.DataFrame, chosen: Sequence[tuple[Any, ...]]) -> list[ShownEpisode]:
    """List of `ShownEpisode` of a loaded `Run` with the keys `chosen`, from its turns (`table_of`), in this order.

    chosen: values of `KEY`.
    """
    if not chosen:
        return []
    keys = pl.DataFrame(chosen, schema={name: table.schema[name] for name in KEY}, orient="row").with_row_index("rank")
    rows = table.join(keys, on=KEY).sort("rank", "turn", maintain_order=True)
    scales = {name: _largest(rows, name) for name in ("reward", "advantage")}
    return [_episode(part.to_dicts(), run, scales) for part in rows.partition_by("rank", maintain_order=True)]


def table_of(run: Run) -> pl.DataFrame | None:
    """DataFrame of a loaded `Run`'s training and evaluation turns, all seeds, all report columns; None without any."""
    parts = []
    for place, seed in enumerate(run.seeds):
        if seed.training is not None:
            parts.append(seed.training.with_columns(place=pl.lit(place), source=pl.lit("training")))
        if seed.evaluation is not None:
            system = pl.col("system") if "system" in seed.evaluation.columns else pl.lit("evaluation")
            parts.append(seed.evaluation.with_columns(place=pl.lit(place), source=system))
    if not any(part.height for part in parts):
        return None
    table = pl.concat(parts, how="diagonal_relaxed")
    optional = {
        "iteration": pl.Int32, "policy": pl.String, "observation": pl.String, "action": pl.String, "valid": pl.Boolean,
        "reward": pl.Float64, "advantage": pl.Float64, "truncated": pl.Boolean, "error": pl.String,
        "success": pl.Boolean, "task": pl.String, "expected": pl.String,
    }  # fmt: skip
    absent = [pl.lit(None, dtype).alias(name) for name, dtype in optional.items() if name not in table.columns]
    return table.with_columns(absent).with_columns(pl.col("advantage", "reward").cast(pl.Float64))


def _index(table: pl.DataFrame) -> pl.DataFrame:
    """One row per episode, with its outcome."""
    facts = table.group_by(KEY, maintain_order=True).agg(
        episode_failed().any().alias("failed"),
        pl.col("success").all().alias("won"),
        pl.col("success").any().alias("some"),
        pl.col("success").is_not_null().any().alias("scored"),
        pl.col("task").first(),
    )
    outcome = (
        pl.when("failed")
        .then(pl.lit("error"))
        .when(~pl.col("scored"))
        .then(pl.lit("played"))
        .when("won")
        .then(pl.lit("success"))
        .when("some")
        .then(pl.lit("split"))
        .otherwise(pl.lit("failure"))
    )
    return facts.with_columns(outcome=outcome).sort(KEY)


def _choose(index: pl.DataFrame, count: int) -> list[tuple[Any, ...]]:
    """Keys of the episodes, in the order in which they are shown."""
    chosen: list[tuple[Any, ...]] = []
    seeds = int(float_or_zero(index["place"].max())) + 1

    def take(candidates: pl.DataFrame, first_seed: int) -> None:
        shown = [key[KEY.index("group")] for key in chosen]
        turn = (pl.col("place") - first_seed) % seeds
        ranked = candidates.sort(turn, pl.col("group").is_in(shown), maintain_order=True)
        fresh = (key for key in ranked.select(KEY).iter_rows() if key not in chosen)
        if len(chosen) < count and (key := next(fresh, None)):
            chosen.append(key)

    def rows(source: str, *outcomes: str) -> pl.DataFrame:
        return index.filter(pl.col("source") == source, pl.col("outcome").is_in(outcomes) if outcomes else True)

    same = ["place", "group", "episode"]
    learned = rows("after", "success").join(rows("before", "failure", "error"), on=same, how="semi")
    for turn, pool in enumerate((learned, rows("after", "failure"))):
        known = len(chosen)
        take(pool, turn)
        if len(chosen) > known:  # what the team did with it before training comes first
            after = chosen.pop()
            partner = rows("before").filter(*(pl.col(k) == after[KEY.index(k)] for k in same))
            take(partner, turn)
            chosen.append(after)
    for turn, outcome in enumerate(("success", "failure", "success", "failure")):
        take(rows("training", outcome, "split"), turn)
    for turn, source in enumerate(("training", "after")):
        take(rows(source, "error"), turn)
    for turn in range(count):
        take(rows("training") if turn % 2 else rows("after"), turn)
    for turn in range(count):
        take(index, turn)
    return chosen


def _largest(rows: pl.DataFrame, name: str) -> float:
    values = rows[name].drop_nulls().drop_nans().abs()
    return float_or_zero(values.max())


def _episode(rows: Sequence[dict[str, Any]], run: Run, scales: dict[str, float]) -> ShownEpisode:
    first = rows[0]
    acted = [row for row in rows if row["agent"] is not None]
    returns: dict[str, float | None] = {}
    for row in acted:
        before = returns.setdefault(row["agent"], None)
        if row["reward"] is not None:
            returns[row["agent"]] = (before or 0.0) + row["reward"]
    wins = [row["success"] for row in rows if row["success"] is not None]
    error = next((e for row in rows if (e := row["error"]) and not e.startswith(f"{SKIPPED}:")), None)
    outcome = (
        "error" if error else "played" if not wins else "success" if all(wins) else "split" if any(wins) else "failure"
    )
    turns = tuple(_turn(row, scales) for row in acted[:MOST_TURNS])
    source = first["source"]
    if source == "training" and first["iteration"] is not None:
        source = f"training, iteration {first['iteration']}"
    return ShownEpisode(
        seed=run.seeds[first["place"]].name,
        source=source,
        task=first["task"] or f"group {first['group']}",
        outcome=outcome,
        error=error,
        truncated=bool(first["truncated"]),
        returns=tuple(returns.items()),
        turns=turns[:OPEN_TURNS],
        folded=turns[OPEN_TURNS:],
        left_out=len(acted) - len(turns),
        expected=next((str(row["expected"]) for row in rows if row["expected"] is not None), ""),
    )


def _turn(row: dict[str, Any], scales: dict[str, float]) -> ShownTurn:
    def shade(name: str) -> float:
        value = row[name]
        known = value is not None and math.isfinite(value) and scales[name] > 0
        return max(-1.0, min(1.0, value / scales[name])) if known else 0.0

    return ShownTurn(
        number=row["turn"],
        agent=row["agent"],
        policy=row["policy"] or "",
        observation=Text.of(row["observation"]),
        action=Text.of(row["action"]),
        valid=row["valid"] is not False,
        reward=row["reward"],
        credit=row["advantage"],
        reward_shade=shade("reward"),
        credit_shade=shade("advantage"),
    )
