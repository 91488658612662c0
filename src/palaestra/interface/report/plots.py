"""Small plots as inline SVG: curves with bands over seeds, intervals side by side, before and after per seed.

Drawn by matplotlib at phone width (so one size serves every screen) in stand-in colours, which are then replaced by CSS
variables: the page decides about light, dark and print. Titles and legends are HTML, outside the picture.
Left out on purpose: interaction, raster output, pyplot and its global state.
"""

from __future__ import annotations

import hashlib
import io
import re
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from markupsafe import Markup, escape

from palaestra.errors import missing_extra
from palaestra.interface.report.formatting import PERCENT, number, points
from palaestra.interface.report.load import Interval
from palaestra.interface.report.phases import PhaseMark

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLOURS = 8  # --c0 … --c7 in style.css
DASHES = ("solid", (0, (5, 2)), (0, (1.5, 1.5)), (0, (6, 2, 1.5, 2)))
INK, MUTED, RULE, PAPER = "#0a0b0c", "#7a7b7c", "#dadbdc", "#fafbfc"
_VARIABLES = {INK: "var(--ink)", MUTED: "var(--muted)", RULE: "var(--rule)", PAPER: "var(--paper)"} | {
    f"#5e{i:02x}e5": f"var(--c{i})" for i in range(COLOURS)
}
WIDTH = 360.0  # points = CSS pixels of the viewBox


def colour(index: int) -> str:
    """Placeholder hex colour that stands for the CSS variable `--c<index>` until the SVG is written."""
    return f"#5e{index % COLOURS:02x}e5"


@dataclass(frozen=True)
class Series:
    """Data of one line with a band for `curves`: iterations `x`, mean, and range over seeds (float64[n]).

    index: its place in the legend, which decides colour and dash.
    """

    label: str
    index: int
    x: np.ndarray
    mean: np.ndarray
    low: np.ndarray
    high: np.ndarray


def over_seeds(label: str, index: int, curves: Iterable[Sequence[tuple[int, Any]]]) -> Series | None:
    """Pool one curve per seed, [(iteration, value or None), …], into a `Series` (`label`, `index`), None if not finite.

    Where seeds have different lengths, an iteration is the mean over the seeds that have it.
    """
    pooled: dict[int, list[float]] = {}
    for curve in curves:
        for iteration, value in curve:
            if isinstance(value, int | float) and np.isfinite(value):
                pooled.setdefault(iteration, []).append(float(value))
    if not pooled:
        return None
    x = sorted(pooled)
    values = [pooled[i] for i in x]
    return Series(
        label,
        index,
        np.array(x),
        np.array([np.mean(v) for v in values]),
        np.array([min(v) for v in values]),
        np.array([max(v) for v in values]),
    )


def curves(
    series: Sequence[Series],
    *,
    what: str,
    percent: bool = False,
    marks: bool = False,
    over: str = "iteration",
    phases: Sequence[PhaseMark] = (),
) -> Markup:
    """SVG line plot of `Series` over iterations, or what `over` names. `marks`: show the measured points.

    phases: a vertical line where each begins, a band where seeds differ; its name where it begins for the first time.
    """
    with _figure(195) as (figure, axes):
        alpha = 0.16 if len(series) < 4 else 0.08
        for line in series:
            axes.fill_between(line.x, line.low, line.high, color=colour(line.index), alpha=alpha, linewidth=0)
            marker = "o" if marks or len(line.x) == 1 else ""
            style: Any = {"linestyle": DASHES[line.index % len(DASHES)], "marker": marker, "markersize": 3.6}
            axes.plot(line.x, line.mean, color=colour(line.index), linewidth=1.7, **style)
        if len(series) == 1:  # the last value, at the end of its line
            last = number(float(series[0].mean[-1]), percent=percent)
            end = (float(series[0].x[-1]), float(series[0].mean[-1]))
            tone = colour(series[0].index)
            axes.annotate(last, end, (6, 0), textcoords="offset points", va="center", color=tone, annotation_clip=False)
        axes.margins(x=0.02)
        axes.grid(axis="y", color=RULE, linewidth=0.8)
        _phase_lines(axes, phases)
        axes.set_xlabel(over)
        _ticks(axes.yaxis, percent)
        _ticks(axes.xaxis, False, whole=True)
        low, high = axes.get_ylim()
        if percent:  # a rate that hardly moves should look so; and a margin beyond 0 or 100 % means nothing
            pad = max(0.0, 0.1 - (high - low)) / 2
            axes.set_ylim(max(low - pad, -0.01), min(high + pad, 1.01))
        summary = "; ".join(
            f"{line.label}: {number(float(line.mean[0]), percent=percent)} at {over} {line.x[0]}, "
            f"{number(float(line.mean[-1]), percent=percent)} at {over} {line.x[-1]}"
            for line in series
        )
        if phases:
            summary += ". Phases: " + ", ".join(f"{each.name} from {each.at:g}" for each in phases)
        return _svg(figure, f"Line plot of {what} by {over}. {summary}.")


def _phase_lines(axes: Axes, phases: Sequence[PhaseMark]) -> None:
    named: set[str] = set()
    for each in phases:
        begin = each.at - 0.5  # between the last iteration of one and the first of the next
        if each.high > each.low:
            axes.axvspan(each.low - 0.5, each.high - 0.5, color=RULE, alpha=0.5, linewidth=0, zorder=0)
        axes.axvline(begin, color=MUTED, linewidth=0.9, linestyle=(0, (2, 2)), zorder=1)
        if each.name not in named:
            place = axes.get_xaxis_transform()
            axes.text(
                begin, 1.0, f" {_short(each.name, 12, 1)}", transform=place, va="bottom", fontsize=9.5, color=MUTED
            )
            named.add(each.name)


def intervals(
    rows: Sequence[tuple[str, Interval]],
    *,
    what: str,
    percent: bool = False,
    zero: bool = False,
    colours: Mapping[str, int] | None = None,
) -> Markup:
    """SVG forest plot of (label, `Interval`) rows: a dot and its interval each; `zero`: rows are differences."""
    tones = {label: colour(index) for label, index in (colours or {}).items()}

    def show(value: float | None) -> str:
        return points(value, percent=percent) if zero else number(value, percent=percent)

    with _figure(40 + _tall(label for label, _ in rows) * len(rows)) as (figure, axes):
        for i, (label, value) in enumerate(rows):
            tone = tones.get(label, MUTED)
            if value.low is not None and value.high is not None:
                axes.plot([value.low, value.high], [i, i], color=tone, linewidth=2.2, solid_capstyle="round")
            axes.plot([value.mean], [i], "o", color=tone, markersize=6)
            axes.text(1.03, i, show(value.mean), transform=axes.get_yaxis_transform(), va="center", color=tone)
        if zero:
            axes.axvline(0, color=INK, linewidth=0.9)
        axes.set_yticks(range(len(rows)), [_short(label) for label, _ in rows])
        axes.set_ylim(len(rows) - 0.4, -0.6)
        axes.spines["left"].set_visible(False)
        axes.grid(axis="x", color=RULE, linewidth=0.8)
        _ticks(axes.xaxis, percent, unit="" if zero else PERCENT, most=_room(label for label, _ in rows))
        summary = "; ".join(
            f"{label}: {show(v.mean)}" + (f", from {show(v.low)} to {show(v.high)}" if v.low is not None else "")
            for label, v in rows
        )
        return _svg(figure, f"Forest plot of {what}. {summary}.")


def pairs(rows: Sequence[tuple[str, float, float]], *, what: str, percent: bool = False) -> Markup:
    """SVG dot plot of before (hollow) and after (filled) training, a row per seed. rows: (seed, before, after)."""
    with _figure(40 + 24 * len(rows)) as (figure, axes):
        for i, (_, before, after) in enumerate(rows):
            axes.plot([before, after], [i, i], color=RULE, linewidth=3, solid_capstyle="round", zorder=1)
            axes.plot([before], [i], "o", color=MUTED, markerfacecolor=PAPER, markersize=6, markeredgewidth=1.6)
            axes.plot([after], [i], "o", color=colour(0), markersize=6.5)
        axes.set_yticks(range(len(rows)), [_short(f"seed {seed}") for seed, _, _ in rows])
        axes.set_ylim(len(rows) - 0.4, -0.6)
        axes.spines["left"].set_visible(False)
        axes.grid(axis="x", color=RULE, linewidth=0.8)
        _ticks(axes.xaxis, percent)
        summary = "; ".join(
            f"seed {seed}: {number(before, percent=percent)} before, {number(after, percent=percent)} after"
            for seed, before, after in rows
        )
        return _svg(figure, f"Dot plot of {what} per seed. {summary}.")


def legend(labels: Sequence[str]) -> Markup:
    """HTML legend of plots whose series have these labels in this order; empty without labels."""
    if not labels:
        return Markup("")
    items = Markup("").join(
        Markup(
            '<li><svg class="key" viewBox="0 0 26 8" aria-hidden="true"><line x1="0" y1="4" x2="26" y2="4" '
            'stroke="var(--c{})" stroke-width="2.4" stroke-dasharray="{}"/></svg>{}</li>'
        ).format(i % COLOURS, ("none", "8 3", "2.5 2.5", "9 3 2.5 3")[i % 4], label)
        for i, label in enumerate(labels)
    )
    return Markup('<ul class="legend">{}</ul>').format(items)


def _short(label: str, length: int = 24, lines: int = 2) -> str:
    """A name on at most `lines` lines, broken behind what separates its parts; what is too long loses its middle."""
    most = length * lines
    if len(label) > most:
        label = f"{label[: most // 2 - 1]}…{label[-(most - most // 2) :]}"
    broken: list[str] = []
    while len(label) > length and len(broken) < lines - 1:
        at = max((label.rfind(mark, length // 2, length) + 1 for mark in " /_-:.|"), default=0) or length
        broken.append(label[:at].rstrip())
        label = label[at:]
    return "\n".join([*broken, label])


def _room(labels: Iterable[str]) -> int:
    """Ticks that fit beside these names."""
    return 3 if max(map(len, labels), default=0) > 14 else 5


def _tall(labels: Iterable[str]) -> int:
    """Pixels of a row with these names."""
    return 36 if any("\n" in _short(label) for label in labels) else 27


def _ticks(axis: Any, percent: bool, *, unit: str = PERCENT, whole: bool = False, most: int = 5) -> None:
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    axis.set_major_locator(MaxNLocator(most, steps=[1, 2, 2.5, 5, 10], integer=whole, min_n_ticks=1 if whole else 2))
    if percent:
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{100 * value:.10g}{unit}".replace("-", "−")))


def _style() -> Any:
    return {
        "svg.fonttype": "none", "svg.hashsalt": "palaestra", "text.parse_math": False, "axes.unicode_minus": True,
        "font.size": 12, "font.family": "sans-serif", "text.color": MUTED, "axes.labelcolor": MUTED,
        "axes.edgecolor": RULE, "xtick.color": MUTED, "ytick.color": MUTED, "axes.spines.top": False,
        "axes.spines.right": False, "axes.axisbelow": True, "xtick.major.size": 0, "ytick.major.size": 0,
        "axes.linewidth": 1, "figure.facecolor": "none", "axes.facecolor": "none", "savefig.facecolor": "none",
        "path.simplify": True,
    }  # fmt: skip


def need_matplotlib() -> None:
    """Check that pages can be drawn, before the work whose page is asked for.

    Raises:
        MissingExtraError: matplotlib is not installed.
    """
    try:
        import matplotlib  # noqa: F401
    except ModuleNotFoundError as error:
        raise missing_extra("matplotlib", "report") from error


@contextmanager
def _figure(height: float) -> Iterator[tuple[Figure, Axes]]:
    """An empty picture in the house style; the style holds inside the `with` only.

    Raises:
        MissingExtraError: matplotlib is not installed.
    """
    need_matplotlib()
    import matplotlib
    from matplotlib.figure import Figure

    with matplotlib.rc_context(_style()):
        figure = Figure(figsize=(WIDTH / 72, height / 72), layout="constrained")
        yield figure, figure.subplots()


def _svg(figure: Figure, description: str) -> Markup:
    """The picture without what would leak into the page around it: global styles, ids, metadata, fixed size."""
    buffer = io.StringIO()
    with warnings.catch_warnings():  # text stays text, so that the page's fonts draw it
        warnings.filterwarnings("ignore", "Glyph .* missing from font")
        figure.savefig(buffer, format="svg")
    svg = buffer.getvalue()
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>|<style.*?</style>", "", svg, count=2, flags=re.DOTALL)
    svg = re.sub(r'<g id="[^"]*"', "<g", svg)
    svg = re.sub(r"font-family: [^;\"]*(; )?", "", svg)
    svg = re.sub(r"#[0-9a-f]{6}(?=[;\"])", lambda m: _VARIABLES.get(m[0], m[0]), svg)
    box = re.search(r'viewBox="[^"]*"', svg)
    body = svg[svg.index(">") + 1 :]
    own = hashlib.blake2b(body.encode(), digest_size=4).hexdigest()  # ids are unique in the page, and reproducible
    body = re.sub(r'(\bid="|url\(#|href="#)', rf"\g<1>x{own}-", body)
    head = f'<svg class="plot" role="img" {box[0] if box else ""} aria-label="{escape(description)}">'
    return Markup(head + re.sub(r"\s*\n\s*", " ", body))
