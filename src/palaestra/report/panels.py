"""Learning curves as titled panels. The same panels serve a run (a line per policy) and a comparison (a line per variant)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from palaestra.report.load import Seed
from palaestra.report.plots import curves, over_seeds

Row = dict[str, Any]
Source = tuple[str, Sequence[Seed], Callable[[Row], Any]]
"""A line: its label, the seeds it is pooled over, and how to read its value off one iteration's metrics."""

POLICY_PANELS = {
    "entropy": ("Entropy", "nats per sampled token", False),
    "kl": ("KL to the reference", "nats", False),
    "illegal": ("Illegal actions", "share of its turns", True),
    "distinct_actions": ("Distinct actions", "share of its turns", True),
}
OPTIMISER_PANELS = {
    "loss": ("Loss", "", False),
    "grad_norm": ("Gradient norm", "before clipping", False),
    "clip_fraction": ("Clipped ratios", "share of samples", True),
}
ZERO_CREDIT = {"zero_credit": ("Zero credit", "share of rows that teach nothing", True)}


@dataclass(frozen=True)
class Panel:
    """A picture with its title and a word on what is drawn."""

    title: str
    note: str
    svg: Markup


def panel(
    title: str, note: str, sources: Sequence[Source], *, percent: bool = False, points: bool = False
) -> Panel | None:
    """Curves of one quantity; None if no line has a finite value."""
    lines = [
        over_seeds(label, i, [[(row["iteration"], read(row)) for row in seed.metrics] for seed in seeds])
        for i, (label, seeds, read) in enumerate(sources)
    ]
    drawn = [line for line in lines if line is not None]
    return Panel(title, note, curves(drawn, what=title, percent=percent, points=points)) if drawn else None


def progress(teams: Sequence[tuple[str, Sequence[Seed]]]) -> list[Panel]:
    """Training reward and success, held-out success and score at the looks, and every extra metric. A line per team."""

    def sources(read: Callable[[Row], Any]) -> list[Source]:
        return [(label, seeds, read) for label, seeds in teams]

    def look(field: str) -> Callable[[Row], Any]:
        return lambda row: (row.get("evaluation") or {}).get(field)

    extra = sorted({name for _, seeds in teams for seed in seeds for row in seed.metrics for name in row["metrics"]})
    return [
        drawn
        for drawn in (
            panel("Held-out success", "at the looks", sources(look("success")), percent=True, points=True),
            panel("Held-out score", "at the looks", sources(look("score")), points=True),
            *(panel(_title(n), "", sources(lambda row, n=n: row["metrics"].get(n)), points=True) for n in extra),  # type: ignore[misc]
            panel("Training reward", "mean per episode", sources(lambda row: row.get("reward"))),
            panel("Training success", "with exploration", sources(lambda row: row.get("success")), percent=True),
        )
        if drawn
    ]


def by_policy(seeds: Sequence[Seed], quantities: dict[str, tuple[str, str, bool]]) -> list[Panel]:
    """A panel per quantity with a line per policy."""
    sources = {
        field: [(name, seeds, lambda row, n=name, f=field: (row["policies"].get(n) or {}).get(f)) for name in policies(seeds)]
        for field in quantities
    }
    drawn = [panel(title, note, sources[field], percent=p) for field, (title, note, p) in quantities.items()]  # type: ignore[arg-type]
    return [item for item in drawn if item]


def by_variant(
    teams: Sequence[tuple[str, Sequence[Seed]]], quantities: dict[str, tuple[str, str, bool]]
) -> list[Panel]:
    """A panel per quantity with a line per team: the mean over its policies."""

    def mean(field: str) -> Callable[[Row], Any]:
        def read(row: Row) -> float | None:
            values = [p[field] for p in row["policies"].values() if isinstance(p.get(field), int | float)]
            return sum(values) / len(values) if values else None

        return read

    drawn = [
        panel(title, note, [(label, seeds, mean(field)) for label, seeds in teams], percent=p)
        for field, (title, note, p) in quantities.items()
    ]
    return [item for item in drawn if item]


def policies(seeds: Sequence[Seed]) -> list[str]:
    """Names of the policies in the metrics, in the order in which they first appear."""
    return list(dict.fromkeys(name for seed in seeds for row in seed.metrics for name in row["policies"]))


def _title(name: str) -> str:
    return name[:1].upper() + name[1:].replace("_", " ")
