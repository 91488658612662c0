"""Pay-offs between the members of a league as a heat map, and who the answer is made of."""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from palaestra.errors import StorageError
from palaestra.interface.report.charts import Cell, Heat, heat_of
from palaestra.interface.report.formatting import number, span
from palaestra.interface.report.load import Interval, Run

SHOWN = 16
"""Members that a heat map shows at most; of more the oldest, the youngest and some between."""

COLUMNS = {
    "member": pl.String,
    "opponent": pl.String,
    "mean": pl.Float64,
    "low": pl.Float64,
    "high": pl.Float64,
    "n": pl.Int64,
}


@dataclass(frozen=True)
class LeagueSection:
    """Data of the report's section on a league: payoff heat map, and the mixture of members that answers it.

    seed: whose league. members: how many. answer: members and their probabilities, largest first.
    """

    seed: str
    members: int
    heat: Heat
    answer: list[tuple[str, float]]
    others: list[str]


def league(run: Run) -> LeagueSection | None:
    """`LeagueSection` data of a loaded `Run`, from the first seed that has a league; None if it has none.

    Raises:
        StorageError: the file is damaged.
    """
    found = [(seed, run.path / f"seed-{seed.name}" / "league" / "payoffs.csv") for seed in run.seeds]
    there = [(seed, path) for seed, path in found if path.is_file()]
    if not there:
        return None
    seed, path = there[0]
    try:
        table = pl.read_csv(path, schema_overrides=COLUMNS, glob=False).select(*COLUMNS)
    except (pl.exceptions.PolarsError, OSError) as error:
        raise StorageError(f"{path}: not the table of a league: {str(error).splitlines()[0]}") from error
    names = table["opponent"].unique(maintain_order=True).to_list()
    names = [name for name in names if not name.isdigit()] + sorted((n for n in names if n.isdigit()), key=int)
    shown = names if len(names) <= SHOWN else [names[round(i * (len(names) - 1) / (SHOWN - 1))] for i in range(SHOWN)]
    largest = max(float(table["mean"].fill_null(0.0).abs().to_numpy().max(initial=0.0)), 1e-12)
    cells = {
        (row["member"], row["opponent"]): Cell(
            number(row["mean"]),
            row["mean"] / largest,
            f"{span(Interval(row['mean'], row['low'], row['high']))}\n{row['n']} episodes",
        )
        for row in table.to_dicts()
    }
    rows = [name for name in shown if any(key[0] == name for key in cells)]
    note = "Mean return of the row against the column, with its 95 % interval."
    answers = [line["league"]["answer"] for line in seed.metrics if (line.get("league") or {}).get("answer")]
    answer = sorted(answers[-1].items(), key=lambda each: -each[1]) if answers else []
    return LeagueSection(
        seed.name,
        len(names),
        heat_of("Who earns what against whom", note, rows, shown, cells),
        answer,
        [other.name for other, _ in there[1:]],
    )
