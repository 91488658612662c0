"""The columns of `Turns`: their types, what they mean, and how a table of other types is made to fit.

A table need not have them all, and may have others.
"""

from __future__ import annotations

from typing import NamedTuple

import polars as pl

from palaestra.errors import SchemaError

SCHEMA_VERSION = 1
VERSION_KEY = "palaestra.schema"

IDS = pl.List(pl.Int32)
FLOATS = pl.List(pl.Float32)
SKIPPED = "skipped"
"""Boundary of the error of a turn that its team did without: the episode went on."""
NO_ERROR = ("", "-", "none", "null", "nan", "n/a", "false", "no", "no error", "ok", "success", "0", "0.0", "{}", "[]")
"""Values of `error`, `limit` and `tool_error` that mean that there was none."""


def unless_none(name: str) -> pl.Expr:
    """A Polars expression: a column as text, null where its word says that there was none (`NO_ERROR`)."""
    text = pl.col(name).cast(pl.String)
    return pl.when(~text.str.strip_chars().str.to_lowercase().is_in(NO_ERROR)).then(text).alias(name)


def episode_failed() -> pl.Expr:
    """Makes the polars expression that is true where column `error` says that a whole episode failed, not a turn."""
    return pl.col("error").is_not_null() & ~pl.col("error").str.starts_with(f"{SKIPPED}:").fill_null(False)


class Column(NamedTuple):
    """Data: a column of the schema: its type, its meaning, and how a table that lacks it can get it."""

    dtype: pl.DataType | type[pl.DataType]
    meaning: str
    remedy: str = "it is filled by a rollout; for your own logs add it with with_column()"


SCHEMA: dict[str, Column] = {
    "run": Column(pl.String, "training run (its seed); statistics never mix runs"),
    "iteration": Column(pl.Int32, "training iteration; statistics never mix iterations"),
    "group": Column(pl.Int32, "same task and same initial state", "number the tasks, e.g. pl.col('uid').rank('dense')"),
    "episode": Column(pl.Int32, "one play-through, numbered within its group", "number each group's play-throughs"),
    "turn": Column(pl.Int32, "position in the episode; agents that act at once share it", "number an episode's rows"),
    "agent": Column(pl.Categorical, "the seat in the env", "name the role that acted in each row"),
    "policy": Column(pl.Categorical, "who filled the seat"),
    "policy_version": Column(pl.Int32, "updates that the learner had made when this was played"),
    "state": Column(pl.UInt64, "hash of what the agent saw (anchor state)", "e.g. state=pl.col('observation').hash()"),
    "observation": Column(pl.String, "what it saw, as text"),
    "messages": Column(
        pl.String, "the chat messages it was shown, JSON", "only envs that hold conversations tell them"
    ),
    "tools": Column(pl.String, "schemas of the tools it could call, JSON", "only envs with tools tell them"),
    "action": Column(pl.String, "what it did, as text"),
    "features": Column(FLOATS, "what it saw, as numbers"),
    "legal": Column(pl.List(pl.Boolean), "which discrete actions were legal"),
    "valid": Column(pl.Boolean, "the action could be parsed and was legal"),
    "reward": Column(pl.Float64, "received between this turn and the agent's next; null = not scored"),
    "terminated": Column(pl.Boolean, "the episode ended by the env's rules"),
    "truncated": Column(pl.Boolean, "the episode was cut off"),
    "error": Column(pl.String, "why the episode failed, null if it did not; `skipped: …`: why this turn alone did"),
    "success": Column(pl.Boolean, "the episode succeeded (for this agent)"),
    "task": Column(pl.String, "name of the task; trials of one task are compared"),
    "prompt_ids": Column(IDS, "tokens the model was given", "only language-model policies have tokens"),
    "action_ids": Column(IDS, "tokens it sampled", "only language-model policies have tokens"),
    "logprobs": Column(FLOATS, "log-probabilities of the sample, nats", "use a policy that reports log-probabilities"),
    "token_versions": Column(
        pl.List(pl.Int32),
        "updates that the learner had made when each token was sampled; null: policy_version of all",
        "only served policies whose weights change while they answer (train.inflight) have it",
    ),
    "entropies": Column(FLOATS, "entropy at each sampled token, nats", "use a policy that reports entropies"),
    "prefix": Column(
        pl.String,
        "how the prompt continues the agent's last turn: first, extends, retokenised, rewritten, anew",
        "only language models in conversations have it",
    ),
    "finish": Column(
        pl.String,
        "why the generation ended: stop, length (cut off), tool, filtered, aborted, or the server's own word",
        "only policies that generate text have it",
    ),
    "tokens_in": Column(pl.Int32, "prompt tokens"),
    "tokens_out": Column(pl.Int32, "sampled tokens"),
    "cost": Column(pl.Float64, "price of the call"),
    "duration": Column(pl.Float64, "seconds of the policy call"),
    "seed": Column(pl.UInt64, "seed of the env's reset"),
    "metadata": Column(pl.String, "JSON, whatever else the env said"),
}

NAMES = ("run", "task")
"""Columns of names, which may be written as numbers."""
SCOPE = ("run", "iteration")
"""Columns that every key is prefixed with, where a table has them."""


def empty() -> pl.DataFrame:
    """Empty polars frame with every column of the schema."""
    return pl.DataFrame(schema={name: column.dtype for name, column in SCHEMA.items()})


def conform(frame: pl.DataFrame) -> pl.DataFrame:
    """The frame with its columns cast to the types of the schema; other columns are kept.

    Raises:
        SchemaError: a column has a type that cannot be converted without loss.
    """
    casts = []
    for name, dtype in frame.schema.items():
        expected = SCHEMA.get(name)
        if expected is None or dtype == expected.dtype:
            continue
        given = frame[name]
        if dtype.is_float() and not expected.dtype.is_float():
            given = given.fill_nan(None)  # how other tables keep null among whole numbers
        wrong = f"column {name!r} has type {dtype}, expected {expected.dtype} ({expected.meaning})"
        series = whole(given) if name in NAMES else given
        if name == "duration" and dtype == pl.Duration:
            series = series.dt.total_microseconds() / 1e6
        elif dtype.is_temporal() and expected.dtype != pl.String:  # polars takes it for the number that stores it
            raise SchemaError(f"{wrong}: write numbers")
        try:
            series = series.cast(expected.dtype, strict=True)
        except pl.exceptions.PolarsError as error:
            fix = "" if expected.remedy == Column._field_defaults["remedy"] else f"; {expected.remedy}"
            raise SchemaError(f"{wrong}: {str(error).splitlines()[0]}{fix}") from error
        if _loses(given, series):
            raise SchemaError(f"{wrong}: its values would change")
        casts.append(series)
    return frame.with_columns(casts) if casts else frame


def whole(numbers: pl.Series) -> pl.Series:
    """The series as whole numbers if it holds floats that are, as a missing value makes of them; else as it is.

    >>> whole(pl.Series([1.0, None])).to_list()
    [1, None]
    """
    known = numbers.drop_nulls().drop_nans() if numbers.dtype.is_float() else None
    if known is None or not ((known % 1 == 0) & (known.abs() < 2**53)).all():
        return numbers
    return numbers.fill_nan(None).cast(pl.Int64)


def _loses(before: pl.Series, after: pl.Series) -> bool:
    """Whether a cast that polars allows loses something: 0.5 as a whole number, 2 as a truth value, "1" beside "01"."""
    if isinstance(before.dtype, pl.List) and isinstance(after.dtype, pl.List):
        before, after = before.explode(), after.explode()
    if before.dtype == pl.String and after.dtype.is_integer():
        return before.n_unique() > after.n_unique()
    if not before.dtype.is_numeric() or not (after.dtype.is_integer() or after.dtype == pl.Boolean):
        return False
    common = pl.Float64 if before.dtype.is_decimal() else before.dtype
    return not (after.cast(common) == before.cast(common)).all()


def clean(text: str) -> str:
    r"""The text with each lone surrogate, half a character that no table can hold, replaced by `?`.

    >>> clean("half an emoji: \ud83d")
    'half an emoji: ?'
    """
    return text if text.isascii() else text.encode("utf-8", "replace").decode()
