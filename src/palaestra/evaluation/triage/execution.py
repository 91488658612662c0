"""[109] What tool calls give away: failures by their words, loops by their runs, exhaustion of the environment.

Works on the columns `tool`, `arguments`, and what came back: `tool_error`, `status`, else the observation of the
agent's next turn. Patterns and confidences follow the released code in kind; the expressions are our own.
"""

from __future__ import annotations

import numpy as np
import polars as pl

from palaestra.algebra.codes import code_array
from palaestra.algebra.turns import Turns
from palaestra.evaluation.triage.detection import SCHEMA, Found, found

FAILURES: tuple[tuple[str, float, str], ...] = (
    ("failure.invalid_args", 0.9, r"invalid (argument|parameter|input|type)|missing (required|argument|parameter)"
     r"|validation error|schema mismatch|typeerror|\b422\b"),
    ("failure.tool_not_found", 0.95, r"(tool|function|command) (\S+ )?(not found|does not exist|is unknown)"
     r"|unknown (tool|function)|no such tool"),
    ("failure.auth", 0.8, r"unauthori[sz]ed|forbidden|permission denied|access denied"
     r"|invalid (api )?(key|token|credentials)|\b40[13]\b"),
    ("failure.state", 0.85, r"already exists|not (initiali[sz]ed|logged in|connected|ready)|conflict|invalid state"
     r"|precondition|\b409\b"),
    ("failure.bad_query", 0.8, r"syntax error|malformed query|invalid (query|sql|regex)|could not parse"),
    ("failure.bad_query", 0.6, r"no (results|rows|matches|records) (found|returned)|not found|\b404\b"),
)  # fmt: skip
EXHAUSTION: tuple[tuple[str, float, str], ...] = (
    ("exhaustion.rate_limit", 0.95, r"rate limit|too many requests|quota exceeded|\b429\b"),
    ("exhaustion.timeout", 0.9, r"timed? ?out|deadline exceeded|\b50[48]\b"),
    ("exhaustion.network", 0.9, r"connection (refused|reset|aborted|error)|network (is )?(unreachable|error)"
     r"|\bdns\b|name resolution"),
    ("exhaustion.malformed_response", 0.85, r"(json|response) (decode|parse|parsing) error|malformed response"
     r"|unexpected (end of|token)"),
    ("exhaustion.context_overflow", 0.95, r"context (length|window)|maximum (context|number of tokens)|too many tokens"
     r"|prompt is too long"),
    ("exhaustion.api_error", 0.9, r"internal server error|service unavailable|bad gateway|api error|overloaded"
     r"|\b50[0-3]\b"),
)  # fmt: skip
RETRY, DRIFT, PERIODS, CYCLES = 3, 3, (2, 3, 4, 5), 3


def execution(turns: Turns) -> pl.DataFrame:
    """Detections of both layers: `execution.failure.…`, `execution.loop.…`, `environment.exhaustion.…`."""
    answers = _answers(turns)
    parts = [
        _by_pattern(answers, FAILURES, "execution"),
        _by_pattern(answers, EXHAUSTION, "environment"),
        found(loops(turns), "execution"),
    ]
    return pl.concat(parts)


def _answers(turns: Turns) -> pl.DataFrame:
    """(row, text): what each call was answered; the row is the call's."""
    frame = turns.frame
    if "tool" not in frame.columns:
        return pl.DataFrame(schema={"row": pl.Int64, "text": pl.String})
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
    said = [frame[name].cast(pl.String) if name in frame.columns else None for name in ("tool_error", "error")]
    status = frame["status"] if "status" in frame.columns else None
    text = pl.Series("text", answered)
    table = pl.DataFrame({"row": np.arange(len(frame)), "text": text, "tool": frame["tool"].cast(pl.String)})
    for extra in said:
        if extra is not None:
            table = table.with_columns(text=pl.when(extra.is_not_null()).then(extra).otherwise(pl.col("text")))
    if status is not None:  # what the status says is sure; a text about a successful call is not a failure
        failed = status.fill_null(-1) >= 400
        fine = status.is_not_null() & ~failed
        said_with = pl.concat_str(status.cast(pl.String).fill_null(""), pl.lit(" "), pl.col("text").fill_null(""))
        table = table.with_columns(
            text=pl.when(failed).then(said_with).when(fine).then(None).otherwise(pl.col("text"))
        )  # fmt: skip
    return table.filter(pl.col("tool").is_not_null() & pl.col("text").is_not_null()).select("row", "text")


def _by_pattern(answers: pl.DataFrame, patterns: tuple[tuple[str, float, str], ...], layer: str) -> pl.DataFrame:
    """The first pattern that an answer matches."""
    text = pl.col("text").str.slice(0, 2000).str.to_lowercase()
    kind, sure = pl.lit(None, pl.String), pl.lit(None, pl.Float64)
    for name, confidence, pattern in reversed(patterns):
        hit = text.str.contains(pattern)
        kind = pl.when(hit).then(pl.lit(f"{layer}.{name}")).otherwise(kind)
        sure = pl.when(hit).then(pl.lit(confidence)).otherwise(sure)
    evidence = pl.col("text").str.replace_all(r"\s+", " ").str.slice(0, 200)
    hits = answers.select(pl.col("row").cast(pl.Int64), type=kind, confidence=sure, evidence=evidence)
    return hits.filter(pl.col("type").is_not_null()).select(SCHEMA.keys())


def loops(turns: Turns) -> list[Found]:
    """Retries, parameter drift and oscillation in each episode's list of calls, by run lengths.

    Retry: 3 equal calls or more in a row. Drift: 3 calls or more of one tool with two sets of arguments or more, no
    retry among them. Oscillation: a pattern of 2 to 5 calls with two tools or more, 3 times or more.
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
    result = []
    retried = np.zeros(len(rows), bool)
    for start, length in runs(np.append(False, (call[1:] == call[:-1]) & (episode[1:] == episode[:-1])), 1):
        if length >= RETRY:
            retried[start : start + length] = True
            result.append(Found(rows[start], "loop.retry", 0.95, f"{length} × {names[int(start)]}"))
    same = np.append(False, (tool[1:] == tool[:-1]) & (episode[1:] == episode[:-1]))
    for start, length in runs(same, 1):
        span = slice(start, start + length)
        if length >= DRIFT and not retried[span].any() and len(np.unique(call[span])) >= 2:
            result.append(
                Found(rows[start], "loop.parameter_drift", 0.85, f"{length} × {names[int(start)]}, arguments vary")
            )
    covered = np.zeros(len(rows), bool)
    for period in PERIODS:
        if len(rows) < CYCLES * period:
            break
        equal = np.zeros(len(rows), bool)
        equal[period:] = (tool[period:] == tool[:-period]) & (episode[period:] == episode[:-period])
        for start, length in runs(equal, period):
            pattern = tool[start : start + period]
            if length >= CYCLES * period and len(np.unique(pattern)) >= 2 and not covered[start : start + length].any():
                covered[start : start + length] = True
                shown = " → ".join(names.gather(np.arange(start, start + period)).to_list())
                result.append(Found(rows[start], "loop.oscillation", 0.9, f"{length // period} × ({shown})"))
    return result


def runs(equal: np.ndarray, period: int) -> list[tuple[int, int]]:
    """(start, length) of stretches in which each element equals the one a period before; the first period included.

    >>> runs(np.array([False, True, True, False, False, True]), 1)
    [(0, 3), (4, 2)]
    """
    edges = np.diff(np.concatenate([[0], equal.astype(int), [0]]))
    starts, stops = np.flatnonzero(edges == 1), np.flatnonzero(edges == -1)
    return [(int(a) - period, int(b - a) + period) for a, b in zip(starts, stops)]
