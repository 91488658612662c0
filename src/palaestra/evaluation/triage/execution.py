"""[109] What tool calls give away: failures by their words, loops by their runs, exhaustion; and episodes that crashed.

Works on the columns `tool`, `arguments`, and what came back: `tool_error`, `status`, else the observation of the
agent's next turn; and on `error` and `limit` of the episode, with or without tools.
"""

from __future__ import annotations

import numpy as np
import polars as pl

from palaestra.algebra.codes import code_array
from palaestra.algebra.schema import episode_failed, unless_none
from palaestra.algebra.turns import Turns
from palaestra.evaluation.triage.detection import SCHEMA, Detection, found
from palaestra.evaluation.triage.failures import failures

RETRY, DRIFT, PERIODS, CYCLES = 3, 3, (2, 3, 4, 5), 3


def execution(turns: Turns) -> pl.DataFrame:
    """DataFrame of detections in tool calls of `Turns`: crashes, failed calls, loops, exhausted limits.

    `execution.crash.…`, `execution.failure.…`, `execution.loop.…`, `environment.exhaustion.…`.
    """
    parts = [failures(answers(turns)), found(loops(turns), "execution"), crashes(turns)]
    return pl.concat([part.select(pl.col(name).cast(kind) for name, kind in SCHEMA.items()) for part in parts])


def crashes(turns: Turns) -> pl.DataFrame:
    """DataFrame of detections of episodes of `Turns` that ended with an error or at a limit, on their last row.

    Type: by the failing boundary.
    """
    names = [name for name in ("error", "limit") if name in turns.columns]
    if not names or not len(turns):
        return pl.DataFrame(schema=SCHEMA)
    segments = turns.segments("episode")
    order = np.arange(len(turns)) if segments.order is None else segments.order
    owner = np.repeat(np.arange(len(segments.lengths)), segments.lengths)
    frame = turns.frame.select(unless_none(n) if n == "limit" else pl.col(n).cast(pl.String) for n in names)
    if "error" in names:  # what a team did without did not end its episode
        frame = frame.with_columns(pl.when(episode_failed()).then("error").alias("error"))
    frame = frame[order.tolist()].with_columns(row=order, owner=owner)
    ended = frame.group_by("owner", maintain_order=True).agg(pl.col("row").last(), pl.col(names).drop_nulls().last())
    parts = []
    if "error" in names:
        boundary = pl.col("error").str.extract(r"^\s*(env|policy|judge|reward|run)\s*:").fill_null("run")
        kind = pl.format("execution.crash.{}", boundary)
        crashed = ended.filter(pl.col("error").is_not_null())
        parts.append(crashed.select("row", type=kind, confidence=pl.lit(1.0), evidence=_line("error")))
    if "limit" in names:
        stopped = ended.filter(pl.col("limit").is_not_null())
        kind = pl.lit("environment.exhaustion.limit")
        parts.append(
            stopped.select("row", type=kind, confidence=pl.lit(0.8), evidence=pl.format("stopped by {}", "limit"))
        )
    return pl.concat(parts)


def _line(column: str) -> pl.Expr:
    return pl.col(column).str.replace_all(r"\s+", " ").str.slice(0, 200)


def answers(turns: Turns) -> pl.DataFrame:
    """Table (row, text, sure) of answers to tool calls in `Turns`, on the call's row; sure: logged as failed."""
    frame = turns.frame
    if "tool" not in frame.columns:
        return pl.DataFrame(schema={"row": pl.Int64, "text": pl.String, "sure": pl.Boolean})
    segments = turns.segments("episode", "agent") if "agent" in turns.columns else turns.segments("episode")
    order = np.arange(len(turns)) if segments.order is None else segments.order
    last = np.zeros(len(order), bool)
    last[segments.starts + segments.lengths - 1] = True
    after = np.full(len(turns), -1)
    after[order[:-1]] = np.where(last[:-1], -1, order[1:])
    heard = (
        frame["observation"].cast(pl.String)
        if "observation" in frame.columns
        else pl.Series([None] * len(frame), dtype=pl.String)
    )
    answered = heard.gather(np.maximum(after, 0)).set(pl.Series(after < 0), None) if len(frame) else heard
    nothing = pl.Series([None] * len(frame))
    error = frame.select(unless_none("tool_error"))["tool_error"] if "tool_error" in frame.columns else nothing
    status = frame["status"] if "status" in frame.columns else nothing
    table = pl.DataFrame(
        {
            "row": np.arange(len(frame)),
            "text": answered,
            "tool": frame["tool"].cast(pl.String),
            "wrong": error.cast(pl.String),
            "status": status.cast(pl.Int32, strict=False),  # a word is no status
        }
    )
    bad, fine = pl.col("status") >= 400, pl.col("status") < 400
    said = pl.coalesce("wrong", "text", pl.lit(""))
    with_status = pl.concat_str(pl.format("{} ", "status").fill_null(""), said)  # what the status says is sure
    table = table.with_columns(
        text=pl.when(bad)
        .then(with_status)
        .when(pl.col("wrong").is_not_null())
        .then("wrong")
        .when(fine)
        .then(None)  # a text about a call that went well is no failure
        .otherwise("text"),
        sure=(bad.fill_null(False) | pl.col("wrong").is_not_null()),
    )
    return table.filter(pl.col("tool").is_not_null() & pl.col("text").is_not_null()).select("row", "text", "sure")


def loops(turns: Turns) -> list[Detection]:
    """List of `Detection` of loops in each episode's tool calls in `Turns`: retries, parameter drift and oscillation.

    Retry: 3 equal calls or more in a row. Drift: 3 calls or more of one tool with two sets of arguments or more, no
    retry among them. Oscillation: a pattern of 2 to 5 calls with two tools or more, 3 times or more.

    The published rules look at calls alone. Here they also must not get on: polling that hears something new each time
    is no retry, and paging, or reading and writing file after file, is neither drift nor oscillation, unless half of it
    fails, all answers are the same, or, for the latter, the calls are equal with their arguments.
    """
    frame = turns.frame
    if "tool" not in frame.columns:
        return []
    segments = turns.segments("episode")
    order = np.arange(len(turns)) if segments.order is None else segments.order
    rows = order[frame["tool"].is_not_null().to_numpy()[order]]
    if not len(rows):
        return []
    episode = turns.codes("episode").ids[rows]
    names = frame["tool"].cast(pl.String).gather(rows)
    given = frame["arguments"].cast(pl.String).gather(rows).fill_null("") if "arguments" in frame.columns else names
    tool = code_array(names.to_arrow()).ids
    call = code_array((names + "\x00" + given).to_arrow()).ids
    heard, failed = _heard(turns, rows)
    result = []
    retried = np.zeros(len(rows), bool)
    for start, length in runs(np.append(False, (call[1:] == call[:-1]) & (episode[1:] == episode[:-1])), 1):
        span = slice(start, start + length)
        if length >= RETRY and not _gets_on(heard[span], failed[span]):
            retried[span] = True
            result.append(Detection(rows[start], "loop.retry", 0.95, f"{length} × {names[int(start)]}"))
    same = np.append(False, (tool[1:] == tool[:-1]) & (episode[1:] == episode[:-1]))
    for start, length in runs(same, 1):
        span = slice(start, start + length)
        varied = length >= DRIFT and not retried[span].any() and len(np.unique(call[span])) >= 2
        if varied and _stuck(heard[span], failed[span]):
            words = f"{length} × {names[int(start)]}, arguments vary"
            result.append(Detection(rows[start], "loop.parameter_drift", 0.85, words))
    covered = np.zeros(len(rows), bool)
    for period in PERIODS:
        if len(rows) < CYCLES * period:
            break
        equal = np.zeros(len(rows), bool)
        equal[period:] = (tool[period:] == tool[:-period]) & (episode[period:] == episode[:-period])
        for start, length in runs(equal, period):
            span = slice(start, start + length)
            pattern = tool[start : start + period]
            again = (call[start + period : start + length] == call[start : start + length - period]).all()
            stuck = (again and not _gets_on(heard[span], failed[span])) or _stuck(heard[span], failed[span])
            if length >= CYCLES * period and len(np.unique(pattern)) >= 2 and not covered[span].any() and stuck:
                covered[span] = True
                shown = " → ".join(names.gather(np.arange(start, start + period)).to_list())
                result.append(Detection(rows[start], "loop.oscillation", 0.9, f"{length // period} × ({shown})"))
    return result


def _heard(turns: Turns, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Of each call: what it was answered, as a number (-1: unknown), and whether it failed."""
    known = answers(turns)
    heard, failed = np.full(len(turns), -1), np.zeros(len(turns), bool)
    if len(known):
        heard[known["row"].to_numpy()] = code_array(known["text"].to_arrow()).ids
        failed[failures(known)["row"].to_numpy()] = True
    return heard[rows], failed[rows]


def _gets_on(heard: np.ndarray, failed: np.ndarray) -> bool:
    """Something new was heard each time, and nothing failed."""
    known = heard[heard >= 0]
    return len(known) >= 2 and len(np.unique(known)) == len(known) and not failed.any()


def _stuck(heard: np.ndarray, failed: np.ndarray) -> bool:
    """At least half of it failed, or all answers are the same."""
    known = heard[heard >= 0]
    return bool(2 * failed.sum() >= len(heard)) or (len(known) >= 2 and len(np.unique(known)) == 1)


def runs(equal: np.ndarray, period: int) -> list[tuple[int, int]]:
    """List of (start, length) of stretches of items with this period; `equal[i]`: item i equals item i - `period`.

    >>> runs(np.array([False, True, True, False, False, True]), 1)
    [(0, 3), (4, 2)]
    """
    edges = np.diff(np.concatenate([[0], equal.astype(int), [0]]))
    starts, stops = np.flatnonzero(edges == 1), np.flatnonzero(edges == -1)
    return [(int(a) - period, int(b - a) + period) for a, b in zip(starts, stops)]
