from __future__ import annotations

import re
import xml.etree.ElementTree as ET

import numpy as np
import pytest
from markupsafe import Markup

from palaestra.interface.report import plots
from palaestra.interface.report.charts import Edge, GraphNode, Priced, frontier_plot, graph_plot, rank_plot
from palaestra.interface.report.load import Interval
from palaestra.interface.report.plots import Series, _short, curves, intervals, legend, over_seeds, pairs


def line(label: str = "all seeds", index: int = 0) -> Series:
    series = over_seeds(label, index, [[(i, i * k / 10) for i in range(11)] for k in (1, 2)])
    assert series is not None
    return series


def drawings() -> list[Markup]:
    return [
        curves([line()], what="reward"),
        curves([line("$a_b$ <i>", 0), line("b", 9)], what="KL", percent=True, marks=True),
        intervals([("before", Interval(0.3, 0.2, 0.4)), ("<b>", Interval(0.5))], what="success", colours={"<b>": 0}),
        pairs([("0", 0.1, 0.4), ("1", 0.2, 0.1)], what="success"),
    ]


def test_over_seeds_is_the_mean_and_the_range_over_the_seeds_that_have_the_iteration() -> None:
    series = over_seeds("x", 3, [[(0, 1.0), (1, 2.0), (2, float("nan"))], [(0, 3.0), (1, None), (2, 5)]])
    assert series is not None
    assert series.index == 3
    np.testing.assert_array_equal(series.x, [0, 1, 2])
    np.testing.assert_array_equal(series.mean, [2, 2, 5])
    np.testing.assert_array_equal(series.low, [1, 2, 5])
    np.testing.assert_array_equal(series.high, [3, 2, 5])


def test_nothing_finite_is_no_series() -> None:
    assert over_seeds("x", 0, [[(0, None), (1, float("inf"))], []]) is None


@pytest.mark.parametrize("svg", drawings())
def test_the_page_decides_about_colours_and_size(svg: Markup) -> None:
    assert "var(--c0)" in svg
    assert "var(--muted)" in svg
    assert not re.search(r"#[0-9a-f]{6}[;\"]", svg), "a colour was not handed over to the style sheet"
    opening = svg[: svg.index(">")]
    assert "viewBox" in opening
    assert "width=" not in opening
    assert "height=" not in opening
    assert "<style" not in svg
    assert "<metadata" not in svg
    assert "http" not in svg


@pytest.mark.parametrize("svg", drawings())
def test_pictures_are_well_formed_and_described(svg: Markup) -> None:
    root = ET.fromstring(str(svg).replace("xlink:href", "href"))
    assert root.get("role") == "img"
    assert len(root.get("aria-label", "")) > 40
    used = set(re.findall(r"url\(#([^)]+)\)", svg)) | set(re.findall(r'href="#([^"]+)"', svg))
    ids = re.findall(r'\bid="([^"]+)"', svg)
    assert used <= set(ids)
    assert len(ids) == len(set(ids))


def test_descriptions_carry_the_numbers() -> None:
    svg = intervals([("after", Interval(0.214, 0.15, 0.27))], what="difference", percent=True, zero=True)
    assert "after: +21.4, from +15.0 to +27.0" in svg
    assert "all seeds: 0 at iteration 0, 1.5 at iteration 10" in curves([line()], what="reward")


def test_ids_of_different_pictures_do_not_meet() -> None:
    first, second = (set(re.findall(r'\bid="([^"]+)"', svg)) for svg in drawings()[:2])
    assert first
    assert second
    assert not first & second


def test_the_same_data_give_the_same_picture() -> None:
    assert drawings() == drawings()


def test_the_legend_escapes_and_keeps_the_order() -> None:
    html = legend(["<a>", "b"])
    assert "&lt;a&gt;" in html
    assert html.index("--c0") < html.index("--c1")
    assert legend([]) == ""


def test_long_names_wrap_and_keep_both_ends() -> None:
    one = _short("organisation/model-name-instruct-2026-01-01")
    assert one.replace("\n", "") == "organisation/model-name-instruct-2026-01-01"
    assert max(map(len, one.split("\n"))) <= 24
    a, b = (_short(f"{'x' * 60}-{end}") for end in ("first", "second"))
    assert a != b
    assert a.count("\n") == 1
    assert _short("short") == "short"


def test_every_rank_is_marked_and_edges_are_as_thick_as_the_traffic() -> None:
    ranks = rank_plot([("a", 1, 1, 2), ("b", 2, 1, 3), ("c", 3, 2, 3)], what="wins")
    assert [text for text in re.findall(r"<text[^>]*>(.*?)</text>", ranks) if text.strip().isdigit()] == ["1", "2", "3"]
    nodes = [GraphNode("a", 0, 1.0), GraphNode("b", 1, 0.5), GraphNode("c", 2, 0.0)]
    graph = graph_plot(nodes, [Edge("a", "b", 8.0), Edge("b", "c", 2.0)], worth="points")
    widths = {float(each) for each in re.findall(r"stroke-width: ([\d.]+)", graph)}
    assert {5.0, 1.85} <= widths  # from .8 to 5


def test_iterations_are_whole_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    ticks: list[list[float]] = []
    monkeypatch.setattr(plots, "_svg", lambda figure, what: ticks.append(list(figure.axes[0].get_xticks())))
    for iterations in ([3], range(2)):
        series = over_seeds("x", 0, [[(i, 0.5) for i in iterations]])
        assert series is not None
        curves([series], what="success")
    assert all(each == round(each) for shown in ticks for each in shown), ticks


def test_a_rate_that_hardly_moves_is_drawn_on_a_tenth_of_the_scale(monkeypatch: pytest.MonkeyPatch) -> None:
    limits = []
    monkeypatch.setattr(plots, "_svg", lambda figure, what: limits.append(figure.axes[0].get_ylim()))
    series = over_seeds("x", 0, [[(0, 0.5), (1, 0.51)]])
    assert series is not None
    curves([series], what="success", percent=True)
    assert limits == [pytest.approx((0.455, 0.555))]


def test_a_picture_of_pairs_is_24_points_higher_for_each_seed() -> None:
    def height(seeds: int) -> float:
        svg = pairs([(str(seed), 0.1, 0.4) for seed in range(seeds)], what="success")
        return float(re.findall(r'viewBox="0 0 [\d.]+ ([\d.]+)"', svg)[0])

    assert height(3) - height(1) == pytest.approx(2 * 24)


@pytest.mark.filterwarnings("error")
def test_names_in_any_script_are_drawn_without_warnings() -> None:
    svg = intervals([("\u667a\u80fd\u4f53", Interval(0.5, 0.4, 0.6)), ("b", Interval(0.1, 0.0, 0.2))], what="success")
    assert "\u667a\u80fd\u4f53" in svg


def test_names_of_systems_at_one_place_are_not_written_over_each_other() -> None:
    value = Interval(mean=0.5, low=0.4, high=0.6)
    names = ["one", "two", "three", "four"]
    svg = frontier_plot([Priced(name, 1.0, value, False, False) for name in names], what="success")
    places = re.findall(r'text-anchor: (\w+)[^>]*x="([\d.]+)" y="([\d.]+)"[^>]*>(one|two|three|four)<', svg)
    assert len(places) == 4
    assert len({place[:3] for place in places}) == 4
