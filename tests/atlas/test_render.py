"""The atlas in a terminal."""

from __future__ import annotations

from io import StringIO

from rich.console import Console, RenderableType

from palaestra_atlas import System, system, systems
from palaestra_atlas.render import page, status_of, table


def printed(what: RenderableType, width: int = 80) -> list[str]:
    screen = StringIO()
    Console(file=screen, width=width).print(what)
    return screen.getvalue().splitlines()


def test_the_table_has_a_line_per_system_in_eighty_columns() -> None:
    lines = printed(table(systems()))
    assert max(map(len, lines)) <= 80
    for entry in systems():
        (line,) = [line for line in lines if line.split()[:1] == [str(entry.id)] and entry.name in line]
        assert entry.family in line
        assert status_of(entry) in line
    counts = {status: sum(status_of(entry) == status for entry in systems()) for status in ("unverified", "planned")}
    for status, count in counts.items():
        assert (f"{count} {status}" in lines[-1]) == (count > 0)


def test_a_narrow_table_keeps_the_ids() -> None:
    lines = printed(table(systems(), width=40), width=40)
    assert [n for line in lines if (n := line[:4].strip()).isdigit()][:219] == [str(n) for n in range(1, 220)]


def test_the_table_shows_where_a_system_lives_on_its_line() -> None:
    (line,) = [line for line in printed(table([system(18)])) if "Dr. MAS" in line]
    assert "credit.dr_mas" in line


def test_a_page_says_what_where_how_and_how_to_check() -> None:
    text = "\n".join(printed(page(system(62)), width=100))
    for part in (
        "[62] GiGPO",
        "Group-in-Group Policy Optimization",
        "2505.10978",
        "palaestra.credit.gigpo",
        "gigpo() = standardise(episode_return(), over=",
        'palaestra apply "gigpo()" TURNS.parquet -o OUT.parquet',
        "palaestra reproduce 62",
        "palaestra verify 62",
    ):
        assert part in text


def test_a_planned_page_promises_nothing() -> None:
    text = "\n".join(printed(page(System(id=900, name="A", title="B", family="credit", kind="train"))))
    assert "planned" in text
    assert "Not built yet" in text
    assert "palaestra reproduce" not in text
    assert "where" not in text
