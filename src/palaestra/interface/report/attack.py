"""The page of `palaestra attack`: what a team loses to a trained attacker, and the episodes in which it loses most."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from palaestra.errors import InputError
from palaestra.foundation.checksums import check_signed
from palaestra.foundation.files import read_object
from palaestra.interface.report.episodes import ShownEpisode, shown, table_of
from palaestra.interface.report.load import Interval, Run, load_run
from palaestra.interface.report.page import render, write_page
from palaestra.interface.report.panels import Chart, progress
from palaestra.interface.report.plots import intervals

_PARTS = {
    "loss": "with the trained attacker",
    "untrained": "with an untrained policy there",
    "added": "added by its training",
}
_SOURCES = {"before": "untrained attacker", "after": "trained attacker", "intact": "intact team"}
_OPEN = 2
"""Pairs of episodes that are shown unfolded."""


def write_attack(directory: Path) -> Path:
    """Write `report.html` of an attack into its folder, and return its path.

    Raises:
        InputError: the folder holds no attack.
        StorageError: a file in it is damaged, or the page cannot be written.
    """
    directory = Path(directory)
    summary = read_object(directory / "summary.json")
    if summary is None or "seat" not in summary:
        raise InputError(f"{directory}: no attack there; give the folder that `palaestra attack` wrote")
    check_signed(summary, directory / "summary.json", "run the same attack again")
    run = load_run(directory / "training")
    share = summary["measure"] == "success"
    target = summary.get("target")
    losses = _differences(summary["differences"], summary["measure"], share)
    page = render(
        "attack.html",
        title=f"{summary['recipe']}: attack on {summary['seat']}",
        summary=summary,
        facts=_facts(summary),
        comparison=[_levels(summary["systems"], summary["measure"], share), losses],
        targeted=[
            _levels(summary["target_systems"], "target", True),
            _differences(summary["target_differences"], "target", True),
        ]
        if target
        else [],
        progress=progress([("all seeds", run.seeds)]),
        episodes=_episodes(run, summary["worst"], summary["seat"]),
    )
    return write_page(directory / "report.html", page)


def _facts(summary: Mapping[str, Any]) -> list[tuple[str, str]]:
    return [
        ("Team", str(summary["run"])),
        ("Seat of the attacker", str(summary["seat"])),
        ("Kind of its policy", str(summary["kind"])),
        ("Paid for", str(summary["target"] or "minus the mean return of the other members")),
        ("Iterations", str(summary["iterations"])),
        ("Attackers", str(len(summary["seeds"]))),
        ("Trained teams", str(len(summary["teams"]))),
        ("Held-out tasks", f"{summary['n_tasks']} × {summary['trials']} trials"),
    ]


def _levels(systems: Mapping[str, Any], what: str, percent: bool) -> Chart:
    rows = [(name, read) for name, each in systems.items() if (read := Interval.read(each, name))]
    return Chart(
        what.capitalize() if what != "target" else "Episodes in which the target happened",
        "95\u00a0% interval",
        intervals(rows, what=f"{what} by system", percent=percent, colours={"trained": 0}),
    )


def _differences(differences: Mapping[str, Any], what: str, percent: bool) -> Chart:
    rows = [(said, read) for name, said in _PARTS.items() if (read := Interval.read(differences[name], name))]
    title = "What the attack adds to the target" if what == "target" else "What the team loses"
    note = f"{'points' if percent else f'in {what}'}, simultaneous 95\u00a0% intervals of 3 differences"
    return Chart(title, note, intervals(rows, what=f"differences in {what}", percent=percent, zero=True))


def _episodes(run: Run, worst: Sequence[Mapping[str, Any]], seat: str) -> list[ShownEpisode]:
    """Each of the worst episodes as the intact team played it, then with the trained attacker."""
    table = table_of(run)
    places = {seed.name.removeprefix("seed-"): place for place, seed in enumerate(run.seeds)}
    if table is None:
        return []
    keys = [
        (places[str(each["run"])], source, each["group"], each["episode"])
        for each in worst
        for source in ("intact", "after")
    ]
    found = (_unattacked(each, seat) if each.source == "intact" else each for each in shown(run, table, keys))
    return [
        replace(each, source=_SOURCES.get(each.source, each.source), open=number < 2 * _OPEN)
        for number, each in enumerate(found)
    ]


def _unattacked(episode: ShownEpisode, seat: str) -> ShownEpisode:
    """The same episode, its seat named after the team's own member, which the recipe calls attacker."""
    turns, folded = (
        tuple(replace(turn, policy="team's own") if turn.agent == seat else turn for turn in each)
        for each in (episode.turns, episode.folded)
    )
    return replace(episode, turns=turns, folded=folded)
