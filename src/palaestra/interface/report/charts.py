"""Pictures of an evaluation and of rewards, in the style of `plots`: cost against success, calibration, histograms.

Heat maps are tables of the page, not pictures: `heat`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from markupsafe import Markup

from palaestra.interface.report.formatting import number, points
from palaestra.interface.report.load import Interval
from palaestra.interface.report.plots import INK, MUTED, PAPER, RULE, _figure, _short, _svg, _tall, _ticks, colour

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Priced:
    """Data of a system in a plot of cost against success: its name, cost, value, and whether it is Pareto-optimal.

    best: nobody is better at this price. hull: nor any mixture of two.
    """

    name: str
    cost: float
    value: Interval
    best: bool
    hull: bool


def frontier_plot(
    rows: Sequence[Priced], *, what: str, percent: bool = False, axis: str = "cost of a trial, $"
) -> Markup:
    """SVG plot of a list of `Priced`, cost against success: filled dots are Pareto-optimal, the line is their hull."""
    sign = "$" if "$" in axis else ""
    with _figure(230) as (figure, axes):
        hull = sorted((row for row in rows if row.hull), key=lambda row: row.cost)
        axes.plot(
            [row.cost for row in hull], [row.value.mean for row in hull], color=colour(0), linewidth=1.4, zorder=1
        )
        for row in rows:
            tone = colour(0) if row.best else MUTED
            if row.value.low is not None and row.value.high is not None:
                axes.plot([row.cost] * 2, [row.value.low, row.value.high], color=tone, linewidth=1.6, alpha=0.55)
            face = tone if row.best else PAPER
            axes.plot([row.cost], [row.value.mean], "o", color=tone, markerfacecolor=face, markersize=6.5)
        axes.margins(x=0.16, y=0.1)
        axes.grid(color=RULE, linewidth=0.8)
        axes.set_xlabel(axis)
        _ticks(axes.yaxis, percent)
        _ticks(axes.xaxis, False)
        tones = [colour(0) if row.best else MUTED for row in rows]
        _name_points(
            figure, axes, [(row.name, row.cost, row.value.mean, tone) for row, tone in zip(rows, tones, strict=True)]
        )
        said = "; ".join(
            f"{row.name}: cost {sign}{number(row.cost)}, {number(row.value.mean, percent=percent)}"
            + (", Pareto-optimal" if row.best else "")
            for row in rows
        )
        return _svg(figure, f"Cost against {what}. {said}.")


def _name_points(figure: Figure, axes: Axes, points: Sequence[tuple[str, float, float, str]]) -> None:
    """Write names beside (name, x, y, colour) points, each on the side where it covers the least of dots and names."""
    from matplotlib.transforms import Bbox

    figure.draw_without_rendering()  # places are known once it is laid out
    dots = axes.transData.transform([(x, y) for _, x, y, _ in points])
    taken = [Bbox.from_bounds(x - 4, y - 4, 8, 8) for x, y in dots]
    for name, x, y, tone in points:
        labels = [
            axes.annotate(_short(name, 18, lines=1), (x, y), place, textcoords="offset points", color=tone, ha=side)
            for place, side in (((7, -11), "left"), ((7, 4), "left"), ((-7, -11), "right"), ((-7, 4), "right"))
        ]
        boxes = [label.get_window_extent() for label in labels]
        met = [[Bbox.intersection(box, other) for other in taken] for box in boxes]
        covered = [sum(part.width * part.height for part in parts if part is not None) for parts in met]
        best = int(np.argmin(covered))
        taken.append(boxes[best])
        for i, label in enumerate(labels):
            if i != best:
                label.remove()


def calibration_plot(bins: Sequence[dict[str, Any]], *, what: str) -> Markup:
    """SVG plot of confidence against success of a list of dicts, one per bin: confidence, success, low, high, n."""
    with _figure(240) as (figure, axes):
        axes.plot([0, 1], [0, 1], color=MUTED, linewidth=1.0, linestyle="dashed", zorder=1)
        most = max(row["n"] for row in bins)
        for row in bins:
            axes.plot([row["confidence"]] * 2, [row["low"], row["high"]], color=colour(0), linewidth=1.6, alpha=0.55)
            size = 3.5 + 5 * np.sqrt(row["n"] / most)
            axes.plot([row["confidence"]], [row["success"]], "o", color=colour(0), markersize=size)
        axes.set_xlim(-0.02, 1.02)
        axes.set_ylim(-0.02, 1.02)
        axes.grid(color=RULE, linewidth=0.8)
        axes.set_xlabel("confidence")
        _ticks(axes.xaxis, True)
        _ticks(axes.yaxis, True)
        said = "; ".join(
            f"said {number(row['confidence'], percent=True)}, was right {number(row['success'], percent=True)}"
            f" (n = {row['n']})"
            for row in bins
        )
        return _svg(figure, f"Calibration of {what}. {said}.")


def histogram(values: np.ndarray, *, what: str, index: int = 0, bins: int = 30) -> Markup:
    """SVG histogram of float64[n], finite; on a logarithmic axis if one bar hides all others."""
    with _figure(150) as (figure, axes):
        low, high = float(values.min()), float(values.max())
        few = np.unique(values)
        if len(few) <= 12:  # these values alone, so the bars are narrow
            reach = high - low or max(abs(low), 1.0)
            gap = min(np.diff(few).min(), reach / 8) if len(few) > 1 else reach / 8
            counts = np.array([(values == x).sum() for x in few])
            axes.bar(few, counts, width=0.8 * gap, color=colour(index))
            axes.set_xlim(low - 0.25 * reach, high + 0.25 * reach)
        else:
            counts, edges = np.histogram(values, bins=bins, range=(low, high))
            axes.bar(edges[:-1], counts, width=np.diff(edges) * 0.92, align="edge", color=colour(index))
        if counts.max() > 50 * np.median(counts[counts > 0]):
            axes.set_yscale("log")
        elif counts.max() < 5:
            axes.set_ylim(0, 5)
        if low < 0 < high:
            axes.axvline(0, color=INK, linewidth=0.9)
        axes.grid(axis="y", color=RULE, linewidth=0.8)
        _ticks(axes.xaxis, False)
        axes.tick_params(axis="y", which="minor", length=0)
        if axes.get_yscale() == "linear":
            _ticks(axes.yaxis, False, whole=True)
        said = f"{len(values)} values from {number(low)} to {number(high)}, mean {number(float(values.mean()))}"
        return _svg(figure, f"Histogram of {what}: {said}.")


def rank_plot(rows: Sequence[tuple[str, int, int, int]], *, what: str) -> Markup:
    """SVG plot of ranks with intervals. rows: (system, rank, first and last rank that it may have)."""
    with _figure(40 + _tall(name for name, *_ in rows) * len(rows)) as (figure, axes):
        for i, (_, rank, first, last) in enumerate(rows):
            tone = colour(0) if last == 1 else MUTED
            axes.plot([first, last], [i, i], color=tone, linewidth=2.2, solid_capstyle="round")
            axes.plot([rank], [i], "o", color=tone, markersize=6)
        axes.set_yticks(range(len(rows)), [_short(name) for name, *_ in rows])
        axes.set_ylim(len(rows) - 0.4, -0.6)
        axes.set_xlim(0.7, len(rows) + 0.3)
        axes.spines["left"].set_visible(False)
        axes.grid(axis="x", color=RULE, linewidth=0.8)
        _ticks(axes.xaxis, False, whole=True)
        if len(rows) <= 12:
            axes.set_xticks(range(1, len(rows) + 1))
        said = "; ".join(f"{name}: {rank}, from {first} to {last}" for name, rank, first, last in rows)
        return _svg(figure, f"Intervals of ranks by {what}. {said}.")


@dataclass(frozen=True)
class GraphNode:
    """Data of a member in `graph_plot`: name, first turn, and its contribution.

    first: the turn in which it first speaks. worth: what it contributed.
    """

    name: str
    first: int
    worth: float


@dataclass(frozen=True)
class Edge:
    """Data of messages from one member to another in `graph_plot`: `amount`, in tokens or messages per episode."""

    sender: str
    receiver: str
    amount: float


def graph_plot(nodes: Sequence[GraphNode], edges: Sequence[Edge], *, worth: str, percent: bool = False) -> Markup:
    """SVG graph of who messages whom, of lists of `GraphNode` and `Edge`: left to right as they first speak.

    Edges: as thick as what was said. Colour: the darker, the more its speaker contributed (`worth`, or points).
    """

    def show(value: float) -> str:
        return points(value) if percent else number(value)

    columns = sorted({node.first for node in nodes})
    tallest = max(sum(node.first == first for node in nodes) for first in columns)
    at: dict[str, tuple[float, float]] = {}
    for column, first in enumerate(columns):
        names = [node.name for node in nodes if node.first == first]
        at |= {name: (column, (len(names) - 1) / 2 - row) for row, name in enumerate(names)}
    most = max((abs(node.worth) for node in nodes), default=0.0) or 1.0
    strength = {node.name: 0.15 + 0.85 * max(node.worth, 0.0) / most for node in nodes}
    widest = max((edge.amount for edge in edges), default=0.0) or 1.0
    pairs = {(edge.sender, edge.receiver) for edge in edges}
    with _figure(100 + 62 * (tallest - 1) + (30 if len(columns) > 4 else 0)) as (figure, axes):
        for edge in edges:
            (x, y), (x2, y2) = at[edge.sender], at[edge.receiver]
            beside = abs(x2 - x) > 1 or x == x2 or (edge.receiver, edge.sender) in pairs
            arrow = {
                "arrowstyle": "-|>",
                "color": colour(0),
                "alpha": strength[edge.sender],
                "linewidth": 0.8 + 4.2 * edge.amount / widest,
                "shrinkA": 13,
                "shrinkB": 13,
                "mutation_scale": 11,
                "connectionstyle": f"arc3,rad={0.22 if beside else 0}",
            }
            axes.annotate("", (x2, y2), (x, y), arrowprops=arrow)
        for node in nodes:
            place = at[node.name]
            axes.plot(*place, "o", markersize=19, color=PAPER, markeredgecolor=PAPER, zorder=3)
            axes.plot(*place, "o", markersize=19, color=colour(0), alpha=strength[node.name], zorder=4)
            drop = -20 - (13 if len(columns) > 4 and columns.index(node.first) % 2 else 0)
            text = f"{_short(node.name, 12, lines=1)}\n{show(node.worth)}"
            axes.annotate(text, place, (0, drop), textcoords="offset points", ha="center", va="top", fontsize=10)
        axes.set_xlim(-0.6, len(columns) - 0.4)
        axes.set_ylim(-(tallest - 1) / 2 - 0.95, (tallest - 1) / 2 + 0.5)
        axes.set_axis_off()
        said = "; ".join(f"{edge.sender} to {edge.receiver}: {number(edge.amount)}" for edge in edges)
        values = "; ".join(f"{node.name}: {show(node.worth)}" for node in nodes)
        return _svg(figure, f"Graph of messages. Per episode: {said}. {worth}: {values}.")


@dataclass(frozen=True)
class Cell:
    """Data of one cell of a heat map: its text; shade, -1 … 1; note, below the number and in the tooltip."""

    text: str
    shade: float = 0.0
    note: str = ""


@dataclass(frozen=True)
class Heat:
    """Data of a heat map: title, note, row and column names, cells; `margin`: the last row and column are means.

    They are means over the others.
    """

    title: str
    note: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, tuple[Cell, ...]], ...]
    margin: bool = False


def heat_of(
    title: str,
    note: str,
    rows: Sequence[str],
    columns: Sequence[str],
    cells: dict[tuple[str, str], Cell],
    *,
    margin: bool = False,
) -> Heat:
    """Makes a `Heat` (map) of names of rows and columns and a dict (row, column) -> `Cell`; missing cells are empty."""
    body = tuple((row, tuple(cells.get((row, column), Cell("")) for column in columns)) for row in rows)
    return Heat(title, note, tuple(columns), body, margin)
