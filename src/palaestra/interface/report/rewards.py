"""The rewards section of a run's page: what each component paid, when, with what, and what the audits found.

A component is a column `r_<name>`. Distributions, correlations and audits are of the newest training turns of each
seed; shares over training are of the metrics' `components`, else of all turns that were kept.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from palaestra.algebra.turns import Turns
from palaestra.errors import PalaestraError
from palaestra.evaluation.audits import Finding, audit
from palaestra.evaluation.audits.components import PREFIX, component_columns, component_sum, episode_sums
from palaestra.interface.report.charts import Cell, Heat, heat_of, histogram
from palaestra.interface.report.formatting import number
from palaestra.interface.report.load import SeedRun
from palaestra.interface.report.panels import Chart
from palaestra.interface.report.phases import phase_marks
from palaestra.interface.report.plots import curves, over_seeds

WORST = ("fail", "warn", "pass", "cannot tell")
ROWS = 5


@dataclass(frozen=True)
class ComponentRow:
    """Data of a reward component's row in the report: mean per episode, share of all absolute values, share of turns.

    paid: share of the turns where it is not 0.
    """

    name: str
    mean: float
    share: float
    paid: float


@dataclass(frozen=True)
class AuditSummary:
    """Data of the gravest finding of one audit over the seeds, with the seeds that have this verdict.

    columns: what `rows` hold.
    """

    finding: Finding
    seeds: tuple[str, ...]
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class Rewards:
    """Data of the report's section on reward components: table, histograms, correlations and audits.

    turns, episodes: sizes of the distributions.
    """

    components: tuple[ComponentRow, ...]
    turns: int
    episodes: int
    histograms: list[Chart]
    shares: Chart | None
    labels: list[str]
    correlations: Heat
    findings: tuple[AuditSummary, ...]


def rewards(seeds: Sequence[SeedRun]) -> Rewards | None:
    """`Rewards` data of the report's section on reward components from `SeedRun`s' turns; None if none has one."""
    tables = {seed.name: Turns(seed.training) for seed in seeds if seed.training is not None and len(seed.training)}
    tables = {name: turns for name, turns in tables.items() if component_columns(turns)}
    if not tables:
        return None
    names = list(dict.fromkeys(name for turns in tables.values() for name in component_columns(turns)))
    sums: dict[str, list[np.ndarray]] = {name: [] for name in (*names, "reward", "success")}
    paid: dict[str, list[np.ndarray]] = {name: [] for name in names}
    for turns in tables.values():
        for name in (*names, "reward"):
            values = _values(turns, name)
            sums[name].append(episode_sums(turns, values))
            if name in paid:
                paid[name].append(values)
        sums["success"].append(_success(turns))
    whole = {name: np.concatenate(parts) for name, parts in sums.items()}
    each = {name: np.concatenate(parts) for name, parts in paid.items()}
    total = sum(float(np.abs(values).sum()) for values in each.values())
    shown = tuple(
        ComponentRow(
            _plain(name),
            float(whole[name].mean()),
            float(np.abs(each[name]).sum()) / total if total else 0.0,
            float((each[name] != 0).mean()),
        )
        for name in names
    )
    panels = [
        Chart(
            _plain(name),
            f"per episode, mean {number(float(whole[name].mean()))}",
            histogram(whole[name], what=f"{_plain(name)} per episode", index=i),
        )
        for i, name in enumerate(names)
    ]
    panels.append(Chart("Sum", "of all components, per episode", histogram(whole["reward"], what="reward", index=7)))
    return Rewards(
        components=shown,
        turns=sum(len(turns) for turns in tables.values()),
        episodes=len(whole["reward"]),
        histograms=panels,
        shares=_shares(seeds, names),
        labels=[_plain(name) for name in names],
        correlations=_correlations(whole, names),
        findings=tuple(_findings(tables)),
    )


def _plain(name: str) -> str:
    return name.removeprefix(PREFIX)


def _values(turns: Turns, name: str) -> np.ndarray:
    if name not in turns.columns:
        return np.zeros(len(turns))
    return turns[name].cast(pl.Float64).fill_null(0.0).fill_nan(0.0).to_numpy()


def _success(turns: Turns) -> np.ndarray:
    """float64[episodes]: NaN where nobody said."""
    codes = turns.codes("episode")
    value = np.full(codes.size, np.nan)
    if "success" in turns.columns:
        known = turns["success"].is_not_null().to_numpy()
        value[codes.ids[known]] = turns["success"].cast(pl.Float64).fill_null(0.0).to_numpy()[known]
    return value


def _shares(seeds: Sequence[SeedRun], names: Sequence[str]) -> Chart | None:
    """Each component's share of the return over training, mean and range over seeds."""
    lines = []
    for i, name in enumerate(names):
        pooled = []
        for seed in seeds:
            points = []
            for row in seed.metrics:
                parts = row.get("components") or seed.components.get(row["iteration"])
                if not isinstance(parts, Mapping):
                    continue
                sizes = {k.removeprefix(PREFIX): abs(v) for k, v in parts.items() if isinstance(v, int | float)}
                whole = sum(sizes.values())
                points.append((row["iteration"], sizes.get(_plain(name), 0.0) / whole if whole else None))
            pooled.append(points)
        lines.append(over_seeds(_plain(name), i, pooled))
    drawn = [line for line in lines if line is not None and len(line.x) > 1]
    if not drawn:
        return None
    phases = phase_marks(seed.metrics for seed in seeds)
    return Chart("Share of the return", "absolute values", curves(drawn, what="share", percent=True, phases=phases))


def _correlations(sums: Mapping[str, np.ndarray], names: Sequence[str]) -> Heat:
    """Pearson correlations of episode sums, with the reward and with success."""
    used = [*names, "reward", *(["success"] if np.isfinite(sums["success"]).sum() > 2 else [])]
    cells = {}
    for a in used:
        for b in used:
            x, y = sums[a], sums[b]
            both = np.isfinite(x) & np.isfinite(y)
            if both.sum() > 2 and np.ptp(x[both]) > 0 and np.ptp(y[both]) > 0:
                r = float(np.corrcoef(x[both], y[both])[0, 1])
                cells[_plain(a), _plain(b)] = Cell("1" if a == b else f"{r:.2f}".replace("-", "−"), r)
    labels = [_plain(name) for name in used]
    note = "Pearson, of sums per episode. Empty: one of the two is the same in every episode."
    return heat_of("Correlations", note, labels, labels, cells)


def _findings(tables: Mapping[str, Turns]) -> list[AuditSummary]:
    """One per audit, the gravest first."""
    by_audit: dict[str, list[tuple[str, Finding]]] = {}
    for seed, turns in tables.items():
        try:
            for finding in audit(turns, component_sum(turns)):
                by_audit.setdefault(finding.audit, []).append((seed, finding))
        except PalaestraError as error:
            by_audit.setdefault("reward", []).append((seed, Finding("reward", "cannot tell", str(error))))
    found = []
    for pairs in by_audit.values():
        gravest = min(WORST.index(finding.verdict) for _, finding in pairs)
        same = [(seed, finding) for seed, finding in pairs if WORST.index(finding.verdict) == gravest]
        finding = same[0][1]
        columns = tuple(k for k in (finding.rows[0] if finding.rows else {}) if k != "state")
        rows = tuple(tuple(_short(row.get(k)) for k in columns) for row in finding.rows[:ROWS])
        found.append(AuditSummary(finding, tuple(seed for seed, _ in same), columns, rows))
    return sorted(found, key=lambda f: WORST.index(f.finding.verdict))


def _short(value: Any) -> str:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return number(value)
    text = "" if value is None else str(value)
    return text if len(text) <= 60 else f"{text[:57]}…"
