"""Column names of match files and their words for the winner, in one table.

Names are compared without case and with `_` for whatever stands between words: `Model A`, `model-a` and `model_a` are
one. A file that is not in the table is asked about: `--a`, `--b`, `--winner`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import polars as pl

from palaestra.errors import InputError, MissingColumnError, nearest

_NOUNS = (
    "model", "player", "system", "agent", "team", "name", "bot", "policy", "assistant", "engine", "llm",
    "competitor", "contestant", "entrant", "fighter", "participant",
)  # fmt: skip
PAIRS: tuple[tuple[str, str], ...] = (
    ("a", "b"), ("x", "y"), ("left", "right"), ("white", "black"), ("home", "away"), ("first", "second"),
    ("p1", "p2"), ("hometeam", "awayteam"), ("home_team", "away_team"), ("home_player", "away_player"),
    ("white_player", "black_player"), ("red", "blue"), ("team_home", "team_away"), ("challenger", "opponent"),
    *((f"{noun}_{x}", f"{noun}_{y}") for noun in _NOUNS
      for x, y in (("a", "b"), ("1", "2"), ("x", "y"), ("one", "two"))),
    *((f"{x}_{noun}", f"{y}_{noun}") for noun in _NOUNS
      for x, y in (("a", "b"), ("white", "black"), ("home", "away"))),
    *((f"{noun}{x}", f"{noun}{y}") for noun in _NOUNS for x, y in (("a", "b"), ("1", "2"))),
    *((f"{x}_{noun}", f"{y}_{noun}") for noun in _NOUNS for x, y in (("left", "right"), ("first", "second"))),
    *((noun, "opponent") for noun in _NOUNS), ("model", "baseline"),
)  # fmt: skip
"""Columns that name the two of a match."""
NUMBERS = (("id_a", "id_b"), ("id_1", "id_2"), ("id1", "id2"), *((f"{x}_id", f"{y}_id") for x, y in PAIRS[:8]))
"""The same, where no others do."""
WON = (
    ("winner", "loser"),
    ("winning", "losing"),
    ("winner_name", "loser_name"),
    ("winner_id", "loser_id"),
    *(
        (f"{x}_{noun}", f"{y}_{noun}")
        for noun in _NOUNS
        for x, y in (("winner", "loser"), ("winning", "losing"), ("chosen", "rejected"), ("preferred", "rejected"))
    ),
)
"""The same where the first is who won."""
OUTCOMES = (
    "winner", "result", "outcome", "winner_name", "winner_id", "winner_model", "winning_model", "winning_player",
    "winning_team", "winning_system", "preference", "preferred", "verdict", "ftr", "chosen", "label", "vote",
    "judgment", "judgement", "annotator_preference",
)  # fmt: skip
"""Columns that say in words who won."""
SCORES = ("score", "s", "points")
"""With nothing of b's beside it: what a got, 1, 1/2 or 0."""
OF_ONE = ("score", "scores", "points", "goals", "rating", "reward", "elo_score", "pts")
TASKS = ("task", "cluster", "question_id", "prompt_id", "task_id", "question", "prompt", "instruction_id")
WEIGHTS = ("weight",)
TIES = (
    "tie", "tied", "draw", "drawn", "d", "c", "both", "bothbad", "both_bad", "tie_bothbad", "tie_both_bad", "bothgood",
    "both_good", "tie_bothgood", "equal", "same", "neither", "no_preference", "1_2_1_2", "0_5_0_5", "½_½", "½",
)  # fmt: skip
_BEARERS = ("model", "player", "response", "assistant", "answer", "system", "team", "agent")
FIRST = ("a", "w", "won", "win", "1_0", "h", "first", "left", "x",
         *(f"{who}{sign}" for who in _BEARERS for sign in ("_a", "_1", "a", "1")))  # fmt: skip
SECOND = ("b", "l", "lost", "loss", "0_1", "second", "right", "y",
          *(f"{who}{sign}" for who in _BEARERS for sign in ("_b", "_2", "b", "2")))  # fmt: skip
SIGNS = {"a>b": 1.0, "a>>b": 1.0, "b>a": 0.0, "b>>a": 0.0, "a<b": 0.0, "a<<b": 0.0, "a=b": 0.5, "b=a": 0.5}
NOBODY = ("", "null", "none", "nan", "na", "n/a", "-", "*", "abandoned", "invalid", "unknown")
"""Words of a match without a result."""


@dataclass(frozen=True)
class Layout:
    """Data on the columns of a match file: the two competitors, the outcome, and how the outcome is written."""

    a: str
    b: str
    kind: str
    outcome: tuple[str, ...]


def normalised_header(name: str) -> str:
    """Column header normalised for comparison: lower case, words joined by underscores.

    >>> normalised_header(" Model A "), normalised_header("winner-model_a"), normalised_header("1/2-1/2")
    ('model_a', 'winner_model_a', '1_2_1_2')
    """
    return re.sub(r"[^a-z0-9½]+", "_", name.strip().casefold()).strip("_")


def find_layout(
    columns: list[str], what: str, a: str | None = None, b: str | None = None, winner: str | None = None
) -> Layout:
    """`Layout` of a match file's columns: finds those that hold the competitors and the result; raises if it cannot.

    Args:
        columns: its header.
        what: the file, for messages.
        a: column of one competitor that somebody named.
        b: column of the other.
        winner: column of the winner or result.

    Raises:
        MissingColumnError: the table of names does not hold this header, or a named column is not there.
        InputError: two pairs of columns could be the two of a match.
    """
    for option, name in (("--a", a), ("--b", b), ("--winner", winner)):
        if name is not None and name not in columns:
            raise MissingColumnError(f"{what}: {option} {name}: no such column{nearest(name, columns)}")
    if (a is None) != (b is None):
        raise InputError(f"{what}: name both, --a and --b")
    by = {normalised_header(name): name for name in reversed(columns)}
    if a is not None and b is not None:
        return _outcome(Layout(a, b, "", ()), by, what, winner)
    named, numbered = ([(by[x], by[y]) for x, y in some if x in by and y in by] for some in (PAIRS, NUMBERS))
    pairs = list(dict.fromkeys(named or numbered))
    won = [(by[x], by[y]) for x, y in WON if x in by and y in by]
    if not pairs and winner is None and won:
        ties = tuple(by[name] for name in ("tie", "draw", "tied", "result", "outcome") if name in by)[:1]
        return Layout(*won[0], "loser", ties)
    if len(pairs) == 1:
        return _outcome(Layout(*pairs[0], "", ()), by, what, winner)
    if pairs:
        said = " or ".join(f"{x!r} and {y!r}" for x, y in pairs)
        raise InputError(f"{what}: the two of a match are {said}? say --a COLUMN --b COLUMN")
    raise MissingColumnError(
        f"{what}: no column 'b' or other pair of names (a and b, model_a and model_b, winner and loser, white and "
        f"black …); it has: {', '.join(columns)}; say --a COLUMN --b COLUMN --winner COLUMN"
    )


def _outcome(found: Layout, by: dict[str, str], what: str, winner: str | None) -> Layout:
    a, b = normalised_header(found.a), normalised_header(found.b)
    if winner is not None:
        return Layout(found.a, found.b, "winner", (winner,))
    hot = [by.get(f"winner_{side}") for side in (a, b)]
    if hot[0] and hot[1]:
        tie = by.get("winner_tie")
        return Layout(found.a, found.b, "one of three", (hot[0], hot[1], *([tie] if tie else [])))
    words = [by[name] for name in OUTCOMES if name in by and by[name] not in (found.a, found.b)]
    if words:
        kind = "winner" if normalised_header(words[0]).startswith(("winner", "winning")) else "words"
        return Layout(found.a, found.b, kind, (words[0],))
    for of in OF_ONE:
        for x, y in _sides(a, b, of):
            if x in by and y in by:
                return Layout(found.a, found.b, "two scores", (by[x], by[y]))
    if "fthg" in by and "ftag" in by:
        return Layout(found.a, found.b, "two scores", (by["fthg"], by["ftag"]))
    score = [by[name] for name in (*SCORES, "score_a") if name in by]
    if score:
        return Layout(found.a, found.b, "a's score", (score[0],))
    raise MissingColumnError(
        f"{what}: neither a column 'winner' nor 'score', nor any other that is known to say who won; it has: "
        f"{', '.join(by.values())}; say --winner COLUMN"
    )


def _sides(a: str, b: str, of: str) -> list[tuple[str, str]]:
    """Names of score columns of two sides: score_a, a_score, score1, home_goals, model_a_score."""
    ends = [(a, b), ("a", "b"), ("1", "2"), ("home", "away"), ("white", "black"), ("left", "right"), ("x", "y")]
    ends += [(a.removesuffix("_team"), b.removesuffix("_team"))]
    return [
        pair for x, y in ends for pair in ((f"{of}_{x}", f"{of}_{y}"), (f"{x}_{of}", f"{y}_{of}"), (of + x, of + y))
    ]


def scores(table: pl.DataFrame, layout: Layout, what: str) -> pl.Series:
    """Series, score of side a in each row of a match table by its `Layout`: 1, 1/2 or 0; null without a result.

    table: `row`, `a`, `b` and the columns of the outcome as text.

    Raises:
        InputError: a value that says something else; names the row.
    """
    if layout.kind == "loser":
        if not layout.outcome:
            return pl.Series([1.0] * len(table), dtype=pl.Float64)
        tied = _plain(layout.outcome[0]).is_in([*TIES, "1", "true", "yes"]).fill_null(False)
        return table.select(pl.when(tied).then(0.5).otherwise(1.0)).to_series()
    numbers = [table[name].str.strip_chars().cast(pl.Float64, strict=False) for name in layout.outcome]
    if layout.kind == "one of three":
        ones = [(number == 1).fill_null(False) for number in numbers]
        if len(ones) == 2:  # no column for ties: neither is one
            ones.append(~ones[0] & ~ones[1] & numbers[0].is_not_null() & numbers[1].is_not_null())
        total = ones[0].cast(pl.Int8) + ones[1].cast(pl.Int8) + ones[2].cast(pl.Int8)
        _refuse(table, total > 1, layout, what, "more than one of them is 1")
        first, second, third = (pl.lit(one) for one in ones)
        return table.select(pl.when(first).then(1.0).when(second).then(0.0).when(third).then(0.5)).to_series()
    if layout.kind == "two scores":
        for name, number in zip(layout.outcome, numbers, strict=True):
            wrong = number.is_null() & ~table.select(_empty(name)).to_series()
            _refuse(table, wrong, layout, what, "a score is a number")
        return ((numbers[0] - numbers[1]).sign() + 1) / 2 if len(table) else numbers[0]
    if layout.kind == "a's score":
        said = ~table.select(_empty(layout.outcome[0])).to_series()
        wrong = said & ~numbers[0].is_in([0.0, 0.5, 1.0]).fill_null(False)
        if wrong.any():
            at = int(wrong.arg_max() or 0)
            given = table[layout.outcome[0]][at]
            raise InputError(f"{what}: row {table['row'][at] + 1}: a score of {given}; it is 1, 0.5 or 0")
        return numbers[0]
    return _words(table, layout, what, numbers[0])


def _words(table: pl.DataFrame, layout: Layout, what: str, number: pl.Series) -> pl.Series:
    """A name of the two, the name of their column, or one of the words above; a number if it means one thing."""
    column = layout.outcome[0]
    winner, said = pl.col(column).str.strip_chars(), _plain(column)
    first, second = {*FIRST, normalised_header(layout.a)}, {*SECOND, normalised_header(layout.b)}
    for name, words in ((layout.a, first), (layout.b, second)):
        words |= {
            side
            for side in ("white", "black", "home", "away", "red", "blue")
            if side in normalised_header(name).split("_")
        }
    if normalised_header(layout.b).startswith("away") and not table.select(said.eq("b").any()).item():
        first, second = first - {"a"}, second | {"a"}  # H, D and A
    score = (
        pl.when(winner == pl.col("a")).then(1.0)
        .when(winner == pl.col("b")).then(0.0)
        .when(_empty(column)).then(None)
        .when(pl.lit(number).is_not_null()).then(pl.lit(_numbers(table, layout, what, number)))
        .when(said.is_in(TIES)).then(0.5)
        .when(said.is_in(sorted(first))).then(1.0)
        .when(said.is_in(sorted(second))).then(0.0)
        .otherwise(winner.str.to_lowercase().str.replace_all(r"[\[\]\s]", "")
                   .replace_strict(SIGNS, default=None, return_dtype=pl.Float64))
    )  # fmt: skip
    found = table.select("row", "a", "b", winner=winner, score=score, empty=_empty(column))
    wrong = found.filter(pl.col("score").is_null() & ~pl.col("empty"))
    if len(wrong):
        row = wrong.row(0, named=True)
        known = (row["a"], row["b"], "tie")
        raise InputError(
            f"{what}: row {row['row'] + 1}: {column} {row['winner']!r} is none of {row['a']!r}, {row['b']!r}, 'tie'"
            f"{nearest(str(row['winner']), known)}"
        )
    return found["score"]


def _numbers(table: pl.DataFrame, layout: Layout, what: str, number: pl.Series) -> pl.Series:
    """A winner as a number is a player's, counted from 0 or from 1; a result as a number is what a got.

    Raises:
        InputError: it could be one or the other.
    """
    column = layout.outcome[0]
    named = table.select((pl.col(column) == pl.col("a")) | (pl.col(column) == pl.col("b"))).to_series().fill_null(False)
    values = set(number.filter(~named).drop_nulls().to_list())
    if not values:
        return number
    readings: list[dict[float, float]] = []
    if layout.kind == "winner":
        readings += [{0.0: 1.0, 1.0: 0.0}, {1.0: 1.0, 2.0: 0.0}]
    if 0.5 in values or normalised_header(column) in ("result", "outcome"):
        readings.append({0.0: 0.0, 0.5: 0.5, 1.0: 1.0})
    if -1 in values:
        readings.append({-1.0: 0.0, 0.0: 0.5, 1.0: 1.0})
    fitting = [reading for reading in readings if values <= reading.keys()]
    if len({tuple(reading[value] for value in values) for reading in fitting}) == 1:
        return number.replace_strict(fitting[0], default=None, return_dtype=pl.Float64)
    shown = ", ".join(f"{value:g}" for value in sorted(values)[:5])
    raise InputError(
        f"{what}: {column} holds {shown}: players counted from 0 or from 1, or what the first one got? Write their "
        "names, or a, b and tie; or call the column 'score' if it is 1, 0.5 and 0 of the first"
    )


def _plain(column: str) -> pl.Expr:
    """`normalised_header` of a column of texts."""
    return pl.col(column).str.strip_chars().str.to_lowercase().str.replace_all(r"[^a-z0-9½]+", "_").str.strip_chars("_")


def _empty(column: str) -> pl.Expr:
    return pl.col(column).is_null() | pl.col(column).str.strip_chars().str.to_lowercase().is_in(NOBODY)


def _refuse(table: pl.DataFrame, wrong: pl.Series, layout: Layout, what: str, why: str) -> None:
    if wrong.any():
        at = int(wrong.arg_max() or 0)
        said = ", ".join(f"{name}={table[name][at]!r}" for name in layout.outcome)
        raise InputError(f"{what}: row {table['row'][at] + 1}: {said}: {why}")
