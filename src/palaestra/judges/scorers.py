"""Scorers that ask no model: an expression of columns, a person's labels in a file, and several scorers as one."""

from __future__ import annotations

import ast
import io
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import polars as pl

from palaestra.algebra.parse import parse
from palaestra.algebra.schema import whole
from palaestra.algebra.signals import SignalLike, as_signal
from palaestra.algebra.turns import Ragged, Turns
from palaestra.errors import DamagedFileError, ExpressionError, InputError, MissingColumnError, nearest
from palaestra.evaluation.logs.columns import read_text_table
from palaestra.evaluation.logs.tables import separator
from palaestra.foundation.registry import Registry, read_call
from palaestra.judges.aggregate import METHODS, Method, Ties, aggregate
from palaestra.judges.judged import Asker
from palaestra.judges.protocol import SCORERS, VERDICTS, Judge, Scorer

_READ: dict[str, Callable[[bytes, set[str]], pl.DataFrame]] = {
    ".parquet": lambda data, keys: pl.read_parquet(io.BytesIO(data)),
    ".csv": lambda data, keys: read_text_table(data, separator(data), keys),
    ".json": lambda data, keys: pl.read_json(io.BytesIO(data), infer_schema_length=None),
    **dict.fromkeys(
        (".jsonl", ".ndjson"), lambda data, keys: pl.read_ndjson(io.BytesIO(data), infer_schema_length=None)
    ),
    **dict.fromkeys((".arrow", ".feather"), lambda data, keys: pl.read_ipc(io.BytesIO(data))),
}


def numbers(values: pl.Series, length: int, what: str) -> pl.Series:
    """Check a series of scores, of `length` numbers, and return it as Float64, NaN as null; else InputError.

    Raises:
        InputError: another length, or no numbers.
    """
    if len(values) != length:
        raise InputError(f"{what} gave {len(values)} scores for {length} rows")
    if not (values.dtype.is_numeric() or values.dtype in (pl.Boolean, pl.Null)):
        raise InputError(f"{what} gave {values.dtype}, expected a number for each row")
    return values.cast(pl.Float64).fill_nan(None)


class Verifier:
    """Scorer by an expression of the rows' columns (a signal); a reference's columns are called `reference.NAME`.

    >>> Verifier("0.5 * reward").score(pl.DataFrame({"reward": [1.0, None]})).to_list()
    [0.5, None]
    """

    def __init__(self, expression: SignalLike, *, name: str = "verifier") -> None:
        self.signal = parse(expression) if isinstance(expression, str) else as_signal(expression)
        self.name = name

    def score(
        self, rows: pl.DataFrame, *, reference: pl.DataFrame | None = None, condition: pl.DataFrame | None = None
    ) -> pl.Series:
        """One value per row, Float64: the expression evaluated on the rows. See `Scorer`."""
        for what, table in (("reference", reference), ("condition", condition)):
            if table is not None:
                if len(table) != len(rows):
                    raise InputError(f"verifier: {len(rows)} rows and {len(table)} of the {what}; give one for each")
                rows = rows.hstack(table.rename({name: f"{what}.{name}" for name in table.columns}))
        if not len(rows):
            return pl.Series("score", [], pl.Float64)
        found = self.signal.evaluate(Turns(rows))
        if isinstance(found, Ragged):
            raise InputError(f"verifier {self.signal}: has a value per token; reduce it with per_turn()")
        return numbers(pl.Series("score", found).cast(pl.Float64), len(rows), f"verifier {self.signal}")


class HumanLabels:
    """Scorer by a person's labels in a file, joined by a key that the rows have; rows without a label are missing.

    Keys are compared as text, in CSV as they are written. There is a warning if none matches.

    Raises:
        DamagedFileError: the file cannot be read. InputError: a key stands there twice with different labels.
        MissingColumnError: the file lacks a column.
    """

    def __init__(self, path: str | Path, *, key: str | Sequence[str] = "item", value: str = "value") -> None:
        self.path, self.value, self.name = Path(path), value, f"labels {Path(path).name}"
        self.key = [key] if isinstance(key, str) else list(key)
        try:
            read = _READ[self.path.suffix.casefold()]
            table = read(self.path.read_bytes(), {name.casefold() for name in self.key})
        except KeyError:
            raise InputError(f"{path}: labels are one of {', '.join(_READ)}") from None
        except (OSError, pl.exceptions.PolarsError, ValueError) as error:
            raise DamagedFileError(f"{path}: cannot be read as labels ({str(error).splitlines()[0]})") from error
        for name in (*self.key, value):
            if name not in table.columns:
                raise MissingColumnError(f"{path}: labels have no column {name!r}{nearest(name, table.columns)}")
        labels = _keys(table, self.key).with_columns(score=numbers(table[value], len(table), str(path))).unique()
        twice = labels.filter(pl.struct(self.key).is_duplicated())
        if len(twice):
            raise InputError(f"{path}: {dict(zip(self.key, twice.row(0), strict=False))} has several labels; keep one")
        self.labels = labels

    def score(
        self, rows: pl.DataFrame, *, reference: pl.DataFrame | None = None, condition: pl.DataFrame | None = None
    ) -> pl.Series:
        """One label per row, Float64, joined by the key; neither reference nor condition is looked at. See `Scorer`."""
        for name in self.key:
            if name not in rows.columns:
                raise MissingColumnError(f"labels: rows have no key {name!r}{nearest(name, rows.columns)}")
        keys = _keys(rows, self.key)
        known = keys.join(self.labels, on=self.key, how="semi", nulls_equal=True)
        if len(keys) and len(self.labels) and not len(known):
            first, other = (dict(zip(self.key, each.row(0), strict=False)) for each in (keys, self.labels))
            warnings.warn(
                f"{self.path}: labels none of these rows: they are like {first}, its keys like {other}", stacklevel=2
            )
        return keys.join(self.labels, on=self.key, how="left", nulls_equal=True, maintain_order="left")["score"]


def _keys(table: pl.DataFrame, names: Sequence[str]) -> pl.DataFrame:
    """As text, however each table writes its numbers."""
    return table.select(whole(table[name]).cast(pl.String) for name in names)


class Members:
    """Mixin of scorers composed of other scorers, `members`: which policies they ask, and binding them."""

    members: Sequence[Any] = ()

    @property
    def asks(self) -> tuple[str, ...]:
        """Policies of a recipe that the members need."""
        return tuple(policy for member in self.members for policy in getattr(member, "asks", ()))

    def bind(self, find: Callable[[str], Asker]) -> None:
        """Find the recipe's policies that the members need with `find`, and ask those from now on."""
        for member in self.members:
            if hasattr(member, "bind"):
                member.bind(find)


class Ensemble(Members):
    """Scorer that combines the scores of others by a rule of `aggregate`; a member with no value takes no part.

    least: members that must have one, else the row is missing. weights: by the member's name, for `weighted`.

    >>> low, high = Verifier("reward", name="low"), Verifier("2 * reward", name="high")
    >>> Ensemble([low, high], method="min").score(pl.DataFrame({"reward": [1.0]})).to_list()
    [1.0]
    """

    def __init__(
        self,
        members: Sequence[Scorer],
        method: Method = "mean",
        *,
        ties: Ties = "missing",
        weights: Mapping[str, float] | None = None,
        least: int = 1,
        name: str = "ensemble",
    ) -> None:
        names = [member.name for member in members]
        if method not in METHODS:
            raise InputError(f"ensemble: method={method!r}{nearest(method, METHODS)}")
        if not 1 <= least <= len(members):
            raise InputError(
                f"ensemble: {least=} of {len(members)} members; give one at least, and least from 1 to all"
            )
        if len(set(names)) < len(names):
            names = [f"{each} {number}" for number, each in enumerate(names)]
        self.members, self.names, self.method, self.ties, self.weights = list(members), names, method, ties, weights
        self.least, self.name = least, name

    def verdicts(
        self,
        rows: pl.DataFrame,
        *,
        reference: pl.DataFrame | None = None,
        condition: pl.DataFrame | None = None,
        samples: int = 1,
    ) -> pl.DataFrame:
        """The members' verdicts, `judge` naming the member; of a member that has none its scores are one each."""
        item = rows["item"] if "item" in rows.columns else pl.Series("item", range(len(rows)), pl.UInt32)
        parts = []
        for name, member in zip(self.names, self.members, strict=True):
            if isinstance(member, Judge):
                part = member.verdicts(rows, reference=reference, condition=condition, samples=samples)
            else:
                value = numbers(member.score(rows, reference=reference, condition=condition), len(rows), name)
                part = pl.DataFrame([item, value.alias("value")]).with_columns(
                    criterion=pl.lit("score"),
                    sample=pl.lit(0),
                    order=pl.lit(None),
                    answer=pl.lit(None),
                    rationale=pl.lit(None),
                    ok=pl.col("value").is_not_null(),
                    tokens=pl.lit(0),
                    cost=pl.lit(0.0),
                )
            parts.append(part.with_columns(judge=pl.lit(name)))
        kinds = VERDICTS.items()
        return pl.concat(each.select("item", *(pl.col(name).cast(kind) for name, kind in kinds)) for each in parts)

    def score(
        self, rows: pl.DataFrame, *, reference: pl.DataFrame | None = None, condition: pl.DataFrame | None = None
    ) -> pl.Series:
        """The members' scores combined; several criteria or orders of one member are first made one score."""
        scores = [member.score(rows, reference=reference, condition=condition) for member in self.members]
        item = pl.int_range(pl.len(), dtype=pl.UInt32)
        table = pl.concat(
            numbers(each, len(rows), name).alias("value").to_frame().with_columns(item=item, judge=pl.lit(name))
            for name, each in zip(self.names, scores, strict=True)
        )
        found = aggregate(table, by=("item",), method=self.method, ties=self.ties, weights=self.weights)
        return found.select(score=pl.when(pl.col("read") >= self.least).then("value"))["score"]


def build(scorer: Any, registry: Registry[Any] = SCORERS) -> Any:
    """Make a scorer from recipe text, which may nest scorers; an object is returned as it is.

    registry: what the outermost name is of; what stands inside is a scorer.

    Raises:
        ExpressionError: the text names none, or gives it options that it does not take.

    >>> build("vote(stub(right=1), n=3)").name
    'vote of 3 by stub'
    """
    if not isinstance(scorer, str):
        return scorer
    try:
        call = ast.parse(scorer.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return registry.build(scorer)  # says what is wrong; or module:name(…), which is no Python
    inner: dict[str, Scorer] = {}
    outer = _Inner(inner).visit(call) if isinstance(call, ast.Call) else call
    if not inner:
        return registry.build(scorer)
    name, values, options = read_call(ast.unparse(outer), registry.example)
    try:
        return registry.find(name)(*_put(values, inner), **_put(options, inner))
    except TypeError as error:
        raise ExpressionError(f"{scorer!r}: {error}; it is {registry.signature(name)}") from error


class _Inner(ast.NodeTransformer):
    """Puts a mark where a call stands inside of the outermost one, and makes what it calls."""

    def __init__(self, made: dict[str, Scorer]) -> None:
        self.made, self.depth = made, 0

    def visit_Call(self, node: ast.Call) -> ast.AST:
        """Marks are text that nobody writes."""
        if self.depth:
            mark = f"\0{len(self.made)}"
            self.made[mark] = build(ast.unparse(node))
            return ast.Constant(mark)
        self.depth += 1
        return self.generic_visit(node)


def _put(value: Any, made: Mapping[str, Scorer]) -> Any:
    if isinstance(value, str):
        return made.get(value, value)
    if isinstance(value, list | tuple):
        return type(value)(_put(each, made) for each in value)
    return {name: _put(each, made) for name, each in value.items()} if isinstance(value, dict) else value


@SCORERS.register()
def verifier(expression: str, *, name: str = "verifier") -> Verifier:
    """Makes a `Verifier` scorer of an expression of columns: `verifier("exact_match('response', 'answer')")`."""
    return Verifier(expression, name=name)


@SCORERS.register()
def labels(path: str, *, key: str | Sequence[str] = "item", value: str = "value") -> HumanLabels:
    """Makes a `HumanLabels` scorer: a person's labels in a table (.csv, .parquet, .jsonl …), joined by a key."""
    return HumanLabels(path, key=key, value=value)


@SCORERS.register()
def ensemble(members: Sequence[str | Any], method: Method = "mean", **options: Any) -> Ensemble:
    """Makes an `Ensemble` scorer of a list of scorers or texts: `ensemble([verifier('reward'), stub()], "median")`."""
    return Ensemble([build(member) for member in members], method, **options)
