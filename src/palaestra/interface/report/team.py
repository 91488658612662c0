"""The team section of a run's page: who hears whom, who mattered, what coordination costs, who was overruled.

It reads the turns of the final comparison (of a run that was stopped: the newest training turns) where they say who
heard whom, so it stands on every run with messages. Left out: what was said, which is in the episodes to read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from palaestra.algebra.messages import EPISODE, messages
from palaestra.algebra.turns import Turns
from palaestra.errors import StorageError
from palaestra.evaluation import teamwork
from palaestra.foundation.scalars import float_or_zero
from palaestra.interface.report.charts import Edge, GraphNode, Priced, frontier_plot, graph_plot
from palaestra.interface.report.load import Interval, Run
from palaestra.interface.report.panels import Chart

COLUMNS = (
    "system", "run", "iteration", "group", "episode", "turn", "round", "agent", "action", "answer", "score", "success",
    "task", "tokens_in", "tokens_out", "heard", "heard_turn", "heard_weight", "heard_kept", "heard_reason", "embedding",
)  # fmt: skip


@dataclass(frozen=True)
class MemberStatistics:
    """Data of one agent's statistics, per episode.

    Attributes:
        right: share of its turns that were right; an answer that could not be read is not right.
        overruled: turns that were right in an episode that failed.
    """

    name: str
    turns: float
    tokens: float | None
    importance: float
    shapley: Interval | None
    right: float | None
    overruled: int | None


@dataclass(frozen=True)
class Group:
    """Data of the report's section on the team: charts, members, coordination, channels and economy.

    system: whose play it is. channels: effective number of different members, of how many.
    """

    system: str
    episodes: int
    panels: list[Chart]
    members: list[MemberStatistics]
    baseline: str | None
    coordination: list[dict[str, Any]]
    channels: tuple[float, float, str] | None
    flips: list[dict[str, Any]]
    kept: tuple[int, int]
    economy: list[dict[str, Any]]


def team(run: Run) -> Group | None:
    """`Group` data of the report's section on a loaded `Run`'s team; None if no messages or answers are recorded."""
    table = _table(run)
    if table is None or "answer" not in table.columns:
        return None
    heard = messages(Turns(table.filter(pl.col("heard").list.len() > 0)))["receiver"]
    talking = table.filter(pl.col("heard").list.len() > 0)["system"].unique(maintain_order=True).to_list()
    if not len(heard):
        return None
    system = "after" if "after" in talking else talking[0]
    turns = Turns(table.filter(pl.col("system") == system))
    sent = messages(turns)
    summary = run.summary or {}
    shapley = {
        name: found
        for name, value in (summary.get("shapley") or {}).items()
        if (found := Interval.read(value, f"summary.json: shapley.{name}"))
    }
    members = _members(turns, sent, shapley)
    alone = [s for s in table["system"].unique(maintain_order=True) if s not in talking and _agents(table, s) == 1]
    baseline = max(alone, key=lambda s: _success(table, s), default="before" if "before" in talking else None)
    economy = [row for row in summary.get("economy") or [] if isinstance(row, Mapping)]
    panels = [_graph(turns, sent, members)]
    panels += [frontier(economy)] if len(economy) > 1 else []
    return Group(
        system=system,
        episodes=turns.codes("episode").size,
        panels=panels,
        members=members,
        baseline=baseline,
        coordination=_coordination(table, baseline),
        channels=_channels(turns),
        flips=_flips(turns),
        kept=(int(sent["kept"].sum()), len(sent)),
        economy=[dict(row) for row in economy],
    )


def _table(run: Run) -> pl.DataFrame | None:
    """The turns that say who heard whom, of all seeds: of the comparison, or of the newest iterations."""
    for pattern in ("evaluation.parquet", "turns/iteration-*.parquet"):
        parts = []
        for seed in run.seeds:
            folder = run.path / f"seed-{seed.name}"
            path = max(folder.glob(pattern), key=lambda p: (len(p.name), p.name), default=None)
            if path is None:
                continue
            try:
                table = pl.scan_parquet(path, glob=False)
                schema = table.collect_schema()
                if not {"heard", "heard_turn"} <= set(schema):
                    return None
                part = table.select(name for name in COLUMNS if name in schema).collect()
            except (pl.exceptions.PolarsError, OSError) as error:
                raise StorageError(f"{path}: not a whole Parquet file: {str(error).splitlines()[0]}") from error
            system = pl.col("system").cast(pl.String) if "system" in schema else pl.lit("in training")
            # several systems play the same groups: what tells the episodes apart is the run
            parts.append(
                part.with_columns(pl.col("agent").cast(pl.String), system=system).with_columns(
                    run=pl.lit(seed.name) + " " + pl.col("system")
                )
            )
        if parts:
            return pl.concat(parts, how="diagonal_relaxed")
    return None


def _agents(table: pl.DataFrame, system: str) -> int:
    return table.filter(pl.col("system") == system)["agent"].n_unique()


def _success(table: pl.DataFrame, system: str) -> float:
    return float_or_zero(table.filter(pl.col("system") == system)["success"].cast(pl.Float64).mean())


def _members(turns: Turns, sent: pl.DataFrame, shapley: Mapping[str, Interval]) -> list[MemberStatistics]:
    flow = teamwork.importance_flow(turns, sent)
    episodes = turns.codes("episode").size
    right = pl.col("score").cast(pl.Float64) >= 1 if "score" in flow.columns else pl.lit(None, pl.Boolean)
    tokens = pl.col("tokens_out") if "tokens_out" in flow.columns else pl.lit(None, pl.Int64)
    rows = flow.group_by("agent", maintain_order=True).agg(
        turns=pl.len() / episodes,
        tokens=pl.when(tokens.count() > 0).then(tokens.sum() / episodes),
        importance=pl.col("importance").sum() / episodes,
        right=pl.when(right.count() > 0).then(right.fill_null(False).mean()),
        overruled=pl.when(right.count() > 0).then((right & ~pl.col("success").fill_null(False)).sum()),
    )
    return [
        MemberStatistics(shapley=shapley.get(row["agent"]), name=row.pop("agent"), **row) for row in rows.to_dicts()
    ]


def _graph(turns: Turns, sent: pl.DataFrame, members: Sequence[MemberStatistics]) -> Chart:
    """Nodes in the order in which they first speak, edges as thick as what was said over them."""
    by = {member.name: member for member in members}
    worth = {m.name: m.shapley.mean if m.shapley else m.importance for m in members}
    first = turns.frame.group_by("agent", maintain_order=True).agg(pl.col("turn").min())
    nodes = [GraphNode(name, int(turn), worth[name]) for name, turn in first.iter_rows() if name in by]
    amount = pl.col("tokens").sum() if sent["tokens"].null_count() == 0 else pl.len()
    over = sent.filter(pl.col("kept")).group_by("sender", "receiver", maintain_order=True).agg(amount.alias("amount"))
    episodes = turns.codes("episode").size
    edges = [Edge(s, r, amount / episodes) for s, r, amount in over.iter_rows() if s in by and r in by]
    what = "Shapley value" if any(m.shapley for m in members) else "importance"
    note = f"thick: {'tokens' if sent['tokens'].null_count() == 0 else 'messages'}; dark: {what} of who speaks"
    return Chart("Who hears whom", note, graph_plot(nodes, edges, worth=what, percent=what != "importance"))


def frontier(economy: Sequence[Mapping[str, Any]]) -> Chart:
    """`Chart` of cost against success from dicts, rows of `evaluation.teamwork.economy`."""
    unit = str(economy[0].get("unit") or "cost")
    rows = [
        Priced(
            str(row["system"]),
            float(row["cost"]),
            Interval(row["value"], row["value_low"], row["value_high"]),
            bool(row["frontier"]),
            bool(row["hull"]),
        )
        for row in economy
    ]
    svg = frontier_plot(rows, what="success", percent=True, axis=f"{unit} of a trial")
    return Chart("Cost and success", "● best at its price, 95\u00a0% interval", svg)


def _coordination(table: pl.DataFrame, baseline: str | None) -> list[dict[str, Any]]:
    if baseline is None or "success" not in table.columns or table["success"].null_count() == len(table):
        return []
    return teamwork.coordination(Turns(table), baseline=baseline).to_dicts()


def _channels(turns: Turns) -> tuple[float, float, str] | None:
    """K* among the last words of an episode's members, its mean; of how many; by what they were told apart."""
    keys = [key for key in EPISODE if key in turns.columns]
    last = turns.frame.sort("turn").group_by(*keys, "agent", maintain_order=True).last()
    if "embedding" in last.columns and last["embedding"].null_count() == 0:
        found = teamwork.channels(Turns(last), over=keys)
        return float_or_zero(found["channels"].mean()), float_or_zero(found["answers"].mean()), "embeddings"
    said = "answer" if "answer" in last.columns else "action"
    counts = last.group_by(
        *keys, said
    ).len()  # answers that differ are at right angles: K* is 2^entropy of their shares
    share = pl.col("len") / pl.col("len").sum().over(keys)
    entropy = counts.with_columns(h=-share * share.log(2)).group_by(keys).agg(pl.col("h").sum(), pl.col("len").sum())
    return float(np.exp2(entropy["h"].to_numpy()).mean()), float_or_zero(entropy["len"].mean()), "answers"


def _flips(turns: Turns) -> list[dict[str, Any]]:
    """Of agents that speak more than once."""
    if "score" not in turns.columns:
        return []
    moved = ("stayed_right", "stayed_wrong", "to_right", "to_wrong")
    rows = teamwork.flips(turns).to_dicts()
    return [row for row in rows if any(row[name] for name in moved)]
