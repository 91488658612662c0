"""Learning curves as titled panels; the same ones serve a run (a line per policy) and a comparison (per variant)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from palaestra.foundation.registry import Registry
from palaestra.interface.report.load import Run, SeedRun, load_metrics
from palaestra.interface.report.phases import phase_marks
from palaestra.interface.report.plots import Series, curves, legend, over_seeds

Row = dict[str, Any]
Source = tuple[str, Sequence[SeedRun], Callable[[Row], Any]]
"""A line: its label, the seeds it is pooled over, and how to read its value off one iteration's metrics."""

Quantities = dict[str, tuple[str, str, bool]]
"""Per metric of a policy: the panel's title, its note, and whether it is a share."""

Teams = Sequence[tuple[str, Sequence[SeedRun]]]
"""Labels and their seeds."""

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
class Chart:
    """Data of a chart of the report: its title, a note on what is drawn, and the SVG."""

    title: str
    note: str
    svg: Markup


CHARTS: Registry[Chart | None] = Registry("chart", example="my_chart")
"""Further pictures of a run's page: functions of a `Run` to a `Chart`, or None where there is nothing to draw."""


def charts(run: Run) -> list[Chart]:
    """List of all registered charts of a loaded `Run`; one that fails is replaced by a note."""
    drawn: list[Chart | None] = []
    for name, draw in CHARTS.items():
        try:
            drawn.append(draw(run))
        except Exception as error:  # whatever a plugin does
            drawn.append(Chart(name, f"could not be drawn: {type(error).__name__}: {error}", Markup()))
    return [each for each in drawn if each is not None]


def panel(
    title: str,
    note: str,
    sources: Sequence[Source],
    *,
    percent: bool = False,
    marks: bool = False,
    start: Callable[[SeedRun], Any] = lambda seed: None,
) -> Chart | None:
    """`Chart` over iterations, a line per source (label, seeds, function that reads a row); None if no value is finite.

    start: the value before iteration 1.
    """
    lines = [
        over_seeds(
            label, i, [[(0, start(seed)), *((row["iteration"], read(row)) for row in seed.metrics)] for seed in seeds]
        )
        for i, (label, seeds, read) in enumerate(sources)
    ]
    drawn = [line for line in lines if line is not None]
    phases = phase_marks(seed.metrics for _, seeds, _ in sources for seed in seeds)
    return Chart(title, note, curves(drawn, what=title, percent=percent, marks=marks, phases=phases)) if drawn else None


def progress(teams: Teams) -> list[Chart]:
    """List of charts of training reward and success, held-out looks, extra metrics, a line per (label, seeds) pair."""

    def sources(read: Callable[[Row], Any]) -> list[Source]:
        return [(label, seeds, read) for label, seeds in teams]

    def look(field: str) -> Callable[[Row], Any]:
        return lambda row: (row.get("evaluation") or {}).get(field)

    def metric(name: str) -> Callable[[Row], Any]:
        return lambda row: row["metrics"].get(name)

    def before(field: str) -> Callable[[SeedRun], Any]:
        """Function of a seed: `field` before training. `value` there is success if later looks have it, else score."""

        def value(seed: SeedRun) -> Any:
            looks = [row["evaluation"] for row in seed.metrics if row.get("evaluation")]
            kind = "success" if any(look.get("success") is not None for look in looks) else "score"
            first = seed.metrics[0]["iteration"] if seed.metrics else 0
            return seed.start.get("value" if kind == field else field) if looks and first > 0 else None

        return value

    extra = sorted({name for _, seeds in teams for seed in seeds for row in seed.metrics for name in row["metrics"]})
    return [
        drawn
        for drawn in (
            panel(
                "Held-out success",
                "at periodic evaluations",
                sources(look("success")),
                percent=True,
                marks=True,
                start=before("success"),
            ),
            panel(
                "Held-out score", "at periodic evaluations", sources(look("score")), marks=True, start=before("score")
            ),
            *(panel(_title(name), "", sources(metric(name)), marks=True) for name in extra),
            panel("Training reward", "mean per episode", sources(lambda row: row.get("reward"))),
            panel("Training success", "with exploration", sources(lambda row: row.get("success")), percent=True),
        )
        if drawn
    ]


def by_policy(seeds: Sequence[SeedRun], quantities: Quantities) -> list[Chart]:
    """List of charts over iterations of `SeedRun`s' metrics, one per quantity, with a line per policy."""

    def read(name: str, field: str) -> Callable[[Row], Any]:
        return lambda row: (row["policies"].get(name) or {}).get(field)

    return _panels(quantities, lambda field: [(name, seeds, read(name, field)) for name in policies(seeds)])


def by_variant(teams: Teams, quantities: Quantities) -> list[Chart]:
    """List of charts over iterations, one per key of dict `quantities`, a line per (label, seeds): policies' mean."""

    def mean(field: str) -> Callable[[Row], Any]:
        def read(row: Row) -> float | None:
            values = [p[field] for p in row["policies"].values() if isinstance(p.get(field), int | float)]
            return sum(values) / len(values) if values else None

        return read

    return _panels(quantities, lambda field: [(label, seeds, mean(field)) for label, seeds in teams])


def _panels(quantities: Quantities, sources: Callable[[str], list[Source]]) -> list[Chart]:
    drawn = (panel(title, note, sources(name), percent=p) for name, (title, note, p) in quantities.items())
    return [item for item in drawn if item]


def policies(seeds: Sequence[SeedRun]) -> list[str]:
    """List of names of the policies in `SeedRun`s' metrics, in the order in which they first appear."""
    return list(dict.fromkeys(name for seed in seeds for row in seed.metrics for name in row["policies"]))


def _title(name: str) -> str:
    return name[:1].upper() + name[1:].replace("_", " ")


@CHARTS.register()
def model_and_truth(run: Run) -> Chart | None:
    """`Chart` of reward model's score beside true metric of a loaded `Run` and its controls; None if none is recorded.

    Where the lines part, the model is being hacked.
    """

    def curve(metrics: Sequence[Row], field: str) -> list[tuple[int, Any]]:
        told = (
            (row["iteration"], each)
            for row in metrics
            for each in (row.get("stages") or {}).values()
            if {"model_reward", "truth"} <= each.keys()
        )
        return [(iteration, each[field]) for iteration, each in told]

    trained: dict[str, list[Sequence[Row]]] = {"": [seed.metrics for seed in run.seeds]}
    for path in sorted(run.path.glob("seed-*/control-*/metrics.jsonl")):
        name = f"{path.parent.name.removeprefix('control-')}: "
        trained.setdefault(name, []).append(load_metrics(path)[0])
    lines: list[Series] = []
    labels: list[str] = []
    for name, seeds in trained.items():
        for field, label in (("model_reward", "model reward"), ("truth", "success")):
            line = over_seeds(f"{name}{label}", len(labels), [curve(metrics, field) for metrics in seeds])
            if line is not None:
                lines.append(line)
                labels.append(line.label)
    if not lines:
        return None
    title = "Model reward beside the truth"
    drawn = curves(lines, what=title, phases=phase_marks(seed.metrics for seed in run.seeds))
    return Chart(title, "mean over training turns", legend(labels) + drawn)
