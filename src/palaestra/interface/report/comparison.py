"""The page of `palaestra compare`: several variants of one recipe, with the same pieces as the report of a run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from palaestra.errors import InputError, StorageError
from palaestra.foundation.files import read_object
from palaestra.interface.report.formatting import short_verdict
from palaestra.interface.report.health import TrainingHealth, health
from palaestra.interface.report.limits import comparison_limits
from palaestra.interface.report.load import Interval, Run, load_run
from palaestra.interface.report.page import render, write_page
from palaestra.interface.report.panels import OPTIMISER_PANELS, POLICY_PANELS, ZERO_CREDIT, Chart, by_variant, progress
from palaestra.interface.report.plots import intervals, legend
from palaestra.interface.report.sections import RunResult, contributions, facts, result
from palaestra.interface.report.team import frontier

UNTOLD = ("cannot tell", ", one seed: ")
"""What the verdict of a pair says that was not told apart."""
GRADIENT = {"grad_norm": OPTIMISER_PANELS["grad_norm"]}


@dataclass(frozen=True)
class Variant:
    """Data of a variant in the report of a comparison: its run, result, facts and health.

    link: its own report, relative to the page; None if there is none.
    """

    name: str
    run: Run
    result: RunResult | None
    facts: dict[str, str]
    health: TrainingHealth
    link: str | None


@dataclass(frozen=True)
class PairComparison:
    """Data of the comparison of two variants, a − b: interval, p-value (Holm), verdict, and seeds that it needs."""

    a: str
    b: str
    difference: Interval | None
    p_holm: Any
    verdict: str
    seeds_needed: Any = None


def write_comparison(directory: Path) -> Path:
    """Write `report.html` of a comparison from its folder's `comparison.json` and the runs it names; returns the path.

    comparison.json: `{"variants": {name: run directory}, "pairs": [{"a", "b", "difference", "p_holm", "verdict",
    "seeds_needed"}]}`; run directories are absolute or relative to `directory`.

    Raises:
        InputError: there is no comparison.json, or a run directory is missing.
        StorageError: a file is damaged, or the page cannot be written.
    """
    directory = Path(directory)
    source = directory / "comparison.json"
    content = read_object(source)
    if content is None:
        raise InputError(f"{source}: no such file; give the directory that `palaestra compare --out` wrote")
    variants, pairs = _variants(content, source, directory), _pairs(content, source)
    measured = next((v.result for v in variants if v.result), None)
    percent = measured.percent if measured else True
    teams = [(v.name, v.run.seeds) for v in variants]
    prices = [row for row in content.get("economy") or [] if isinstance(row, Mapping)]
    headline = _headline(variants, pairs)
    page = render(
        "comparison.html",
        headline=headline,
        told=headline,
        directory=directory,
        title=str(content.get("recipe") or directory.resolve().name),
        description=content.get("description"),
        variants=variants,
        pairs=pairs,
        measure=measured.measure if measured else "success",
        percent=percent,
        budget=str(content.get("budget_said") or ""),
        prices=prices,
        frontier=[frontier(prices)] if len(prices) > 1 else [],
        legend=legend([v.name for v in variants]),
        forests=_forests(variants, pairs, measured.measure if measured else "success", percent),
        progress=progress(teams),
        policies=by_variant(teams, ZERO_CREDIT | GRADIENT | POLICY_PANELS),
        limits=comparison_limits([(v.name, v.run) for v in variants]),
        shares=[(v.name, shares) for v in variants if (shares := contributions(v.run.seeds))],
    )
    return write_page(directory / "report.html", page)


def _headline(variants: list[Variant], pairs: list[PairComparison]) -> str:
    """How many pairs were told apart; the verdict itself, in short, if there is one pair."""
    if len(pairs) == 1 and pairs[0].verdict:
        return short_verdict(pairs[0].verdict)
    apart = sum(not any(said in pair.verdict for said in UNTOLD) for pair in pairs if pair.verdict)
    return f"{len(variants)} variants compared" + (f": {apart} of {len(pairs)} pairs told apart" if pairs else "")


def _variants(content: Mapping[str, Any], source: Path, directory: Path) -> list[Variant]:
    named = content.get("variants")
    if not isinstance(named, Mapping) or not named:
        raise StorageError(f"{source}: 'variants' should map names to run directories")
    variants = []
    for name, folder in named.items():
        run = load_run(directory / str(folder))
        page = run.path / "report.html"
        inside = page.exists() and page.resolve().is_relative_to(directory.resolve())
        link = page.resolve().relative_to(directory.resolve()).as_posix() if inside else None
        variants.append(Variant(name, run, result(run), dict(facts(run)), health(run.seeds), link))
    return variants


def _pairs(content: Mapping[str, Any], source: Path) -> list[PairComparison]:
    rows = content.get("pairs") or []
    if not isinstance(rows, list) or not all(isinstance(row, Mapping) for row in rows):
        raise StorageError(f"{source}: 'pairs' should be a list of objects")
    return [
        PairComparison(
            a=str(row.get("a")),
            b=str(row.get("b")),
            difference=_difference(row, f"{source}: pairs[{i}].difference"),
            p_holm=row.get("p_holm"),
            verdict=str(row.get("verdict") or ""),
            seeds_needed=row.get("seeds_needed"),
        )
        for i, row in enumerate(rows)
    ]


def _difference(pair: Mapping[str, Any], where: str) -> Interval | None:
    """Difference of a pair; of an exact measure one seed gives no interval."""
    read = Interval.read(pair.get("difference"), where)
    return Interval(read.mean) if read and UNTOLD[1] in str(pair.get("verdict")) else read


def _forests(variants: list[Variant], pairs: list[PairComparison], measure: str, percent: bool) -> list[Chart]:
    """Where each variant ended, what each gained, and how the pairs differ."""
    after = [(v.name, v.result.after) for v in variants if v.result and v.result.after]
    gained = [(v.name, v.result.difference) for v in variants if v.result and v.result.difference]
    apart = [(f"{p.a} − {p.b}", p.difference) for p in pairs if p.difference]
    wanted = [
        (f"{measure.capitalize()} after training", after, False),
        ("Gain over its own start", gained, True),
        ("Difference within pairs", apart, True),
    ]
    colours = {v.name: i for i, v in enumerate(variants)}
    return [
        Chart(
            title,
            "points" if zero and percent else "95\u00a0% interval",
            intervals(rows, what=title.lower(), percent=percent, zero=zero, colours=colours),
        )
        for title, rows, zero in wanted
        if rows
    ]
