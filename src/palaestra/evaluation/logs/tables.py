"""Tables: our own (Parquet, CSV, JSONL with a column `task`), and TRL's completions (`completions_*.parquet`).

An own table keeps every column it has (in JSONL, if `episode` is one of them; else what is unknown is metadata). One
without `episode` has an episode per row; a column `score` is the reward if there is none.

TRL logs rewards per function and not their sum: the reward here is their sum, as with TRL's own default weights, and
each stands in `score.NAME`. Nothing is ever unpickled: Parquet holds numbers, texts and lists.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl

from palaestra.algebra.turns import Turns
from palaestra.errors import PalaestraError
from palaestra.evaluation.logs.chat import task_of
from palaestra.evaluation.logs.files import Documents
from palaestra.evaluation.logs.messages import turns_of
from palaestra.evaluation.logs.rows import TURN, Rows, dump, rest


def fits(record: dict[str, Any]) -> bool:
    """A row of a table: a task, and something that was measured."""
    return "task" in record and bool({"success", "score", "reward"} & record.keys())


def read_parquet(path: Path, rows: Rows) -> pl.DataFrame | None:
    """An own table or TRL's completions."""
    try:
        frame = Turns.load(path).frame
        if is_trl(frame.columns):
            read_trl(frame, rows)
            return None
        return own(frame)
    except (PalaestraError, pl.exceptions.PolarsError, OSError) as error:
        rows.problem("", _short(error, rows.file))
    except BaseException as error:  # a panic of the Parquet decoder is no Exception
        if isinstance(error, KeyboardInterrupt | SystemExit | MemoryError):
            raise
        rows.problem("", f"not a readable Parquet file ({_short(error, rows.file)})")
    return None


def read_csv(path: Path, rows: Rows) -> pl.DataFrame | None:
    """An own table as text; a line with too many fields is an error of the whole file, as polars names it."""
    try:
        return own(pl.read_csv(path, infer_schema_length=None, encoding="utf8"))
    except (PalaestraError, pl.exceptions.PolarsError, OSError) as error:
        rows.problem("", f"not a readable table ({_short(error, rows.file)})")
    return None


def read_records(found: Documents, rows: Rows) -> pl.DataFrame | None:
    """Own rows as JSON objects: an episode each, or, if they have `episode`, a turn each as in other tables."""
    good = [(where, record) for where, record in found if fits(record)]
    for where, record in found:
        if not fits(record):
            rows.problem(where, "a row without a task and one of success, score and reward")
    if any(record.get("episode") is not None for _, record in good):
        plain = [{name: dump(x) if isinstance(x, dict) else x for name, x in record.items()} for _, record in good]
        try:
            return own(pl.DataFrame(plain, infer_schema_length=None))
        except (PalaestraError, pl.exceptions.PolarsError, TypeError, OverflowError) as error:
            rows.problem("", f"not a readable table ({_short(error, rows.file)})")
            return None
    of_episode = ("system", "run", "task", "success", "error", "seed")
    for where, record in good:
        scores = {name.removeprefix("score."): x for name, x in record.items() if name.startswith("score.")}
        turn = {name: record[name] for name in TURN if name in record}
        turn["metadata"] = rest(record, {*of_episode, *TURN, "score", *(f"score.{name}" for name in scores)})
        values = {name: record.get(name) for name in of_episode}
        rows.episode(where, [turn], score=record.get("reward", record.get("score")), scores=scores, **values)
    return None


def own(frame: pl.DataFrame) -> pl.DataFrame:
    """The table as `Turns` take it."""
    if "reward" not in frame.columns and "score" in frame.columns:
        frame = frame.with_columns(reward=pl.col("score").cast(pl.Float64))
    if "success" not in frame.columns:
        frame = frame.with_columns(success=pl.lit(None, pl.Boolean))
    if "episode" not in frame.columns:
        numbers = pl.int_range(pl.len(), dtype=pl.Int32)
        frame = frame.drop("group", strict=False).with_columns(group=pl.lit(0, pl.Int32), episode=numbers)
    if "agent" not in frame.columns:  # beside logs that name agents, null would be nobody's row
        frame = frame.with_columns(agent=pl.lit("agent"))
    return Turns(frame).frame


# -- TRL --------------------------------------------------------------------------------------------------------------


def is_trl(columns: list[str]) -> bool:
    """What GRPOTrainer writes with `log_completions=True`."""
    return {"step", "prompt", "completion", "advantage"} <= set(columns)


def read_trl(frame: pl.DataFrame, rows: Rows) -> None:
    """One episode per completion; `iteration` is the step."""
    numeric = [n for n, d in frame.schema.items() if d.is_numeric() and n not in ("step", "advantage", "iteration")]
    rewards = [name for name in numeric if "reward" in name.lower()] or numeric
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


def _text(value: Any) -> str:
    return value if isinstance(value, str) else dump(value)


def _short(error: BaseException, file: str) -> str:
    return str(error).splitlines()[0].removeprefix(f"{file}: ")[:200] if str(error) else type(error).__name__
