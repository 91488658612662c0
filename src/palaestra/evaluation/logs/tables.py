"""Tables: our own (Parquet, CSV, JSONL with a column `task`), and TRL's completions (`completions_*.parquet`).

An own table keeps every column it has (in JSONL, if `episode` is one of them or it has turns; else what is unknown is
metadata). One without `episode` has an episode per row, or, with `turn`, one wherever the turn of a system's task does
not go on; a column `score` is the reward if there is none. Verdicts of a judge, as
`palaestra judge` writes them, become a row per judged item (`verdicts`).

TRL logs rewards per function and not their sum: the reward here is their sum, as with TRL's own default weights, and
each stands in `score.NAME`. What a reward function logged beside them is told from rewards by place, type and TRL's
advantages, and left out of the sum. Nothing is ever unpickled: Parquet holds numbers, texts and lists.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import takewhile
from pathlib import Path
from typing import Any

import polars as pl
import polars.selectors as cs

from palaestra.algebra.schema import unless_none
from palaestra.algebra.turns import SCHEMA, Turns
from palaestra.errors import InputError, PalaestraError, SchemaError
from palaestra.evaluation.logs.art import has_art_columns, read_art
from palaestra.evaluation.logs.columns import (
    MISSING,
    SUCCESS,
    TASKS,
    Names,
    is_key,
    read_text_table,
    task_of,
    with_names,
    with_whole_names,
)
from palaestra.evaluation.logs.files import Documents, content
from palaestra.evaluation.logs.messages import turns_of
from palaestra.evaluation.logs.readers import READERS, LogReader
from palaestra.evaluation.logs.rows import COLUMNS, TURN, Rows, dump, in_range, rest
from palaestra.evaluation.logs.systems import NAMES as SYSTEMS
from palaestra.evaluation.logs.systems import SEATS, plain, system_of, with_system
from palaestra.evaluation.logs.verdicts import VERDICT, has_verdict_columns, per_item
from palaestra.evaluation.trials import with_groups

NUMBERED = ("group", "episode")
"""Columns of keys that are numbers here and may be names in a table of somebody else."""


@READERS.register("parquet")
def parquet() -> LogReader:
    """Makes the `LogReader` of tables in Parquet: the library's own turns, or TRL's or ART's completions."""
    return LogReader(read_parquet, sees=lambda path, head: head[:4] == b"PAR1" or path.suffix == ".parquet")


@READERS.register("csv")
def csv() -> LogReader:
    """Makes the `LogReader` of text tables with commas, semicolons or tabs."""
    return LogReader(read_csv, sees=lambda path, head: path.suffix in (".csv", ".tsv"), order=1)


@READERS.register("rows")
def rows() -> LogReader:
    """Makes the `LogReader` of tables as JSON objects, an episode each, or a turn each."""
    return LogReader(read_records, fits=fits, order=9)


def fits(record: dict[str, Any]) -> bool:
    """Whether a JSON object is a row of a table: it has a task and a measured value (success, score, reward)."""
    names = {plain(name) for name in record}
    measured = bool({"success", "score", "reward", *SUCCESS[:-2]} & names)
    return not names.isdisjoint(("task", *TASKS)) and (measured or has_verdict_columns(record))


def _schema(path: Path) -> dict[str, pl.DataType]:
    """Of a Parquet file; empty of one that is damaged, which `Turns.load` says better."""
    try:
        return pl.scan_parquet(path, hive_partitioning=False, glob=False).collect_schema()
    except (pl.exceptions.PolarsError, OSError):
        return {}


def _wanted(schema: Mapping[str, pl.DataType], rows: Rows) -> list[str] | None:
    """The columns to read: those that are looked at, what may name the system, and one, so that rows are counted."""
    rows.names = tuple(schema)
    if rows.columns is None or has_trl_columns(list(schema)):
        return None
    looked_at = {name.casefold() for name in rows.columns} | (VERDICT if has_verdict_columns(schema) else set())
    for ours, others in (("task", TASKS), ("success", SUCCESS)):
        looked_at |= set() if ours in schema else {name.casefold() for name in schema if plain(name) in others}
    unnamed = not rows.system and "system" not in schema
    found = [
        name
        for name, kind in schema.items()
        if name.casefold() in looked_at or plain(name) in SYSTEMS or (unnamed and isinstance(kind, pl.Struct))
    ]
    return [*dict.fromkeys([*list(schema)[:1], *found])]


def read_parquet(path: Path, rows: Rows) -> pl.DataFrame | None:
    """Reads a Parquet file: returns the table if it is the library's own, else adds TRL's or ART's rows to a `Rows`."""
    try:
        schema = _schema(path)
        if has_art_columns([*schema]):  # its messages are no column of ours
            read_art(pl.read_parquet(path, hive_partitioning=False, glob=False), rows)
            return None
        wanted = _wanted(schema, rows)
        if any(_is_name(schema.get(name)) for name in (*NUMBERED, "success")):  # names and words of other people
            frame = pl.read_parquet(path, columns=wanted, hive_partitioning=False, glob=False)
        else:
            frame = Turns.load(path, wanted).frame
    except (PalaestraError, pl.exceptions.PolarsError, OSError) as error:
        rows.problem("", _short(error, rows.file))
        return None
    except BaseException as error:  # a panic of the Parquet decoder is no Exception
        if isinstance(error, KeyboardInterrupt | SystemExit | MemoryError):
            raise
        rows.problem("", f"not a readable Parquet file ({_short(error, rows.file)})")
        return None
    if has_trl_columns(frame.columns):
        read_trl(frame, rows)
        return None
    return _table(lambda: frame, rows)


def read_csv(path: Path, rows: Rows) -> pl.DataFrame | None:
    """Reads a text table's file to a DataFrame of turns; None, and a problem in a `Rows`, if it cannot be read so."""
    data = content(path, rows)
    if not data:
        return None
    if data[:2] in (b"\xff\xfe", b"\xfe\xff"):  # UTF-16, as spreadsheets write it
        data = data.decode("utf-16", "replace").encode()
    sign = separator(data)
    keys = {name.casefold() for name in Names(rows.system, rows.task).parts}
    return _table(lambda: _filled(read_text_table(data, sign, keys)), rows)


def _filled(frame: pl.DataFrame) -> pl.DataFrame:
    """The table without rows that hold nothing: blank lines."""
    return frame.filter(~pl.all_horizontal(pl.all().is_null()))


def read_records(found: Documents, rows: Rows) -> pl.DataFrame | None:
    """Adds an episode per (place, JSON object) pair to `Rows`; if some have `episode` or turns, returns a table."""
    told = Names(None, rows.task, rows.success)
    keys = Names(rows.system, rows.task).parts
    good = [(at, _whole_names(record, keys)) for at, record in found if fits(record) or told.parts & record.keys()]
    for where, record in found:
        if not fits(record) and not told.parts & record.keys():
            rows.problem(where, "a row without a task and one of success, score and reward")
    turns = [record.get("turn") for _, record in good]
    counted = any(turns) and all(isinstance(turn, int) for turn in turns)
    if counted or any(record.get("episode") is not None for _, record in good):
        return _table(lambda: pl.DataFrame(_columnar([record for _, record in good]), infer_schema_length=None), rows)
    try:
        good = _records(good, told, rows)
        named = system_of([record for _, record in good], rows)
    except InputError as error:
        rows.problem("", _short(error, rows.file))
        return None
    of_episode = ("system", "run", "task", "success", "error", "seed")
    for (where, record), system in zip(good, named, strict=True):
        scores = {name.removeprefix("score."): x for name, x in record.items() if name.startswith("score.")}
        turn = {name: record[name] for name in TURN if name in record}
        turn["metadata"] = rest(record, {*of_episode, *TURN, "score", *(f"score.{name}" for name in scores)})
        values = {name: record.get(name) for name in of_episode} | {"system": system}
        rows.episode(where, [turn], score=record.get("reward", record.get("score")), scores=scores, **values)
    return None


def _columnar(records: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The records with objects as JSON, and lists too where a column is text or its lists are not of one kind."""
    plain = [{name: dump(x) if isinstance(x, dict) else x for name, x in record.items()} for record in records]
    texts = set()
    for name in {name for record in plain for name, x in record.items() if isinstance(x, list)}:
        if name in SCHEMA and SCHEMA[name].dtype == pl.String:
            texts.add(name)
        elif name not in SCHEMA:
            try:
                pl.DataFrame([{name: record.get(name)} for record in plain], infer_schema_length=None)
            except (pl.exceptions.PolarsError, TypeError, OverflowError):
                texts.add(name)
    return [
        {name: dump(x) if name in texts and isinstance(x, list) else x for name, x in record.items()}
        for record in plain
    ]


def _whole_names(record: dict[str, Any], keys: Collection[str]) -> dict[str, Any]:
    floats = [name for name, x in record.items() if isinstance(x, float) and x.is_integer()]
    return record | {name: int(record[name]) for name in floats if is_key(name) or name in keys}


def _records(good: Documents, told: Names, rows: Rows) -> Documents:
    """The objects with `task` and `success`, whatever they call them."""
    flat = [{name: x for name, x in record.items() if not isinstance(x, dict | list)} for _, record in good]
    frame = pl.DataFrame(flat, infer_schema_length=None, strict=False)
    found = with_names(frame, told, rows.file)
    new = [name for name in ("task", "success") if name in found.columns]
    return [(where, {**record, **row}) for (where, record), row in zip(good, found.select(new).to_dicts(), strict=True)]


def separator(data: bytes) -> str:
    """Separator of a text table given as bytes: the most frequent of , ; tab and | in its first line."""
    first = data.removeprefix(b"\xef\xbb\xbf").lstrip().partition(b"\n")[0]
    return max(",;\t|", key=lambda sign: first.count(sign.encode()))


def _table(make: Callable[[], pl.DataFrame], rows: Rows) -> pl.DataFrame | None:
    try:
        frame = _named(per_item(_without_nan(with_whole_names(make()))), rows)
        return with_required_columns(in_range(with_system(_by_turn(frame, rows), rows), rows))
    except InputError as error:  # what to do about it stands in the message
        wrong = _short(error, rows.file)
        rows.problem("", f"not a readable table ({wrong})" if isinstance(error, SchemaError) else wrong)
    except (PalaestraError, pl.exceptions.PolarsError, OSError, TypeError, OverflowError) as error:
        rows.problem("", f"not a readable table ({_short(error, rows.file)})")
    return None


def _without_nan(frame: pl.DataFrame) -> pl.DataFrame:
    """The table with NaN as null; and so the words for it, which make a text of a whole column of numbers."""
    frame = frame.with_columns(cs.float().fill_nan(None))
    for name in frame.select(cs.string()).columns:
        if COLUMNS.get(name) not in (pl.Float64, pl.Int32) and name.partition(".")[0] != "score":
            continue
        missing = pl.col(name).str.strip_chars().str.to_lowercase().is_in(MISSING)
        said = frame.select(pl.when(~missing).then(name).alias(name)).to_series()
        numbers = said.cast(pl.Float64, strict=False)
        frame = frame.with_columns(numbers if numbers.null_count() == said.null_count() else said)
    return frame


def _named(frame: pl.DataFrame, rows: Rows) -> pl.DataFrame:
    return with_names(frame, Names(None, rows.task, rows.success), rows.file)


def with_required_columns(frame: pl.DataFrame) -> pl.DataFrame:
    """The table with what `Turns` need filled in: reward from score, success, numbers of group and episode, agent."""
    if "reward" not in frame.columns and "score" in frame.columns:
        frame = frame.with_columns(reward=pl.col("score").cast(pl.Float64))
    if "success" not in frame.columns:
        frame = frame.with_columns(success=pl.lit(None, pl.Boolean))
    named = [n for n in ("error", "limit", "tool_error") if n in frame.columns and not frame.schema[n].is_nested()]
    frame = frame.with_columns(map(unless_none, named))
    if "episode" not in frame.columns:
        numbers = pl.int_range(pl.len(), dtype=pl.Int32)
        frame = frame.drop("group", strict=False).with_columns(group=pl.lit(0, pl.Int32), episode=numbers)
    frame = with_groups(_numbered(frame))
    if "episode_name" in frame.columns and "group" not in frame.columns:  # else a number goes on in the next file
        frame = frame.with_columns(group=pl.lit(0, pl.Int32))
    if "agent" not in frame.columns:  # beside logs that name agents, null would be nobody's row
        frame = frame.with_columns(agent=pl.lit("agent"))
    return Turns(frame).frame


def _is_name(kind: pl.DataType | None) -> bool:
    return isinstance(kind, pl.String | pl.Categorical | pl.Enum)


def _numbered(frame: pl.DataFrame) -> pl.DataFrame:
    """The table with groups and episodes that have names by number, in the order in which a file names them.

    What the file called them stands in `group_name` and `episode_name`. Names hold in one file: an episode that goes on
    in another one is two.
    """
    for name in NUMBERED:
        if not _is_name(frame.schema.get(name)):
            continue
        said = frame[name].cast(pl.String)
        if said.cast(pl.Int32, strict=False).null_count() == said.null_count():
            continue  # numbers after all
        order = pl.DataFrame({name: said.drop_nulls().unique(maintain_order=True)}).with_row_index("number")
        numbers = said.to_frame().join(order, on=name, how="left", maintain_order="left")["number"].cast(pl.Int32)
        frame = frame.with_columns(numbers.alias(name), said.alias(f"{name}_name"))
    return frame


def _by_turn(frame: pl.DataFrame, rows: Rows) -> pl.DataFrame:
    """The table with `episode`, if it has none but turns: one goes on while the turns of its system and task grow.

    A turn that is the same, of another agent, belongs to it, too.
    """
    if "episode" in frame.columns or not {"turn", "task"} <= set(frame.columns):
        return frame
    named = {name.strip() for name in (rows.system or "").split(",")}
    systems = [name for name in frame.columns if plain(name) in SYSTEMS and plain(name) not in SEATS]
    named.update(("system", "run", "iteration", "seed", "task", *systems))
    key = [name for name in frame.columns if name in named and name != "agent" and not frame.schema[name].is_nested()]
    named_agent = "agent" in frame.columns and not frame.schema["agent"].is_nested()
    agent = pl.col("agent") if named_agent else pl.lit("agent")
    turns = pl.col("turn").cast(pl.Float64, strict=False)
    table = frame.select(*key, row=pl.int_range(pl.len()), agent=agent, turn=turns)
    table = table.with_columns(step=(pl.col("turn") != pl.col("turn").shift()).fill_null(True).cum_sum().over(key))
    table = table.with_columns(again=pl.int_range(pl.len()).over(*key, "step", "agent"))
    turn, again = pl.col("turn"), pl.col("again")
    same = (turn == turn.shift()) & (again <= again.shift())
    goes_on = ((turn > turn.shift()) | same).fill_null(False)
    table = table.with_columns(episode=(~goes_on).cum_sum().over(key))
    first = pl.col("row").first().over(*key, "episode")
    numbers = table.select(first.rank("dense").cast(pl.Int32) - 1).to_series()
    return frame.drop("group", strict=False).with_columns(group=pl.lit(0, pl.Int32), episode=numbers)


# -- TRL --------------------------------------------------------------------------------------------------------------


_TRL = ("step", "prompt", "completion", "advantage", "iteration")


def has_trl_columns(columns: list[str]) -> bool:
    """Whether the columns are those of TRL's GRPOTrainer with `log_completions=True`."""
    return {"step", "prompt", "completion", "advantage"} <= set(columns)


def read_trl(frame: pl.DataFrame, rows: Rows) -> None:
    """Adds an episode per completion (row) of TRL's table to a `Rows`; `iteration` is the step."""
    rewards = _rewards(frame, rows)
    for number, record in enumerate(frame.iter_rows(named=True)):
        prompt, completion = record["prompt"], record["completion"]
        talk = [*prompt, *completion] if isinstance(prompt, list) and isinstance(completion, list) else None
        turns: list[dict[str, Any]] = [{"observation": _text(prompt), "action": _text(completion)}]
        turns = (turns_of(talk) or turns) if talk else turns
        scores = {name: record[name] for name in rewards if record[name] is not None and record[name] == record[name]}
        turns[-1]["metadata"] = rest(record, {"step", "prompt", "completion", *rewards})
        rows.episode(
            f"row {number}",
            turns,
            task=task_of(_text(prompt)),
            iteration=record["step"],
            score=sum(scores.values()) if scores else None,
            scores=scores,
        )


def _rewards(frame: pl.DataFrame, rows: Rows) -> list[str]:
    """Names of the rewards: TRL writes them as floats, before what its `log_extra` was given.

    Of these floats, the most from the first on whose sum the advantages follow, as an extra one would break that.
    """
    own = [name for name in frame.columns if name not in _TRL]
    numeric = [name for name in own if frame.schema[name].is_numeric()]
    floats = [*takewhile(lambda name: frame.schema[name].is_float(), own)]
    first = floats or numeric
    leading = (first[:count] for count in range(len(first), 0, -1))
    found = next((names for names in leading if _followed(frame, names)), first)
    said = f"reward is the sum of {', '.join(found)}"
    if left := [name for name in numeric if name not in found]:
        rows.problem("", f"{said}; {', '.join(left)} not, by place, type or the advantages")
    elif len(found) > 1 and not _followed(frame, found):
        rows.problem("", f"{said}, which the advantages do not follow (TRL's weights, or another credit)")
    return found


def _followed(frame: pl.DataFrame, rewards: list[str]) -> bool:
    """Whether TRL's advantages are, within each group, the sum of these rewards but for level and scale."""
    known = pl.col(rewards).fill_nan(None)
    prompts = pl.Series([_text(each) for each in frame["prompt"]], dtype=pl.String)
    table = frame.select(
        group=prompts.rle_id(),
        total=pl.sum_horizontal(known),
        paid=pl.col("advantage").cast(pl.Float64, strict=False),
        scored=pl.any_horizontal(known.is_not_null()),
    )
    sums = (
        table.filter("scored")
        .group_by("group")
        .agg(cov=pl.cov("total", "paid", ddof=0), **{name: pl.var(name, ddof=0) for name in ("total", "paid")})
    )
    on_a_line = pl.col("cov") > 0.999 * (pl.col("total") * pl.col("paid")).sqrt()
    still = (pl.col("total") < 1e-9) & (pl.col("paid") < 1e-2)  # TRL divides what float32 rounded by 1e-4
    return bool(sums.select((on_a_line | still).all()).item())


def _text(value: Any) -> str:
    return value if isinstance(value, str) else dump(value)


def _short(error: BaseException, file: str) -> str:
    return str(error).splitlines()[0].removeprefix(f"{file}: ")[:200] if str(error) else type(error).__name__
