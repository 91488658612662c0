"""Table functions: what a trainer does to the table between play and credit, named in recipes under `repair`.

A signal adds a column; a table function adds or drops rows. It may remember: what `state_dict` returns is part of every
checkpoint, so that a resumed run goes on with the same buffer. Left out: functions that play more episodes (hints,
budgets), which need the env and the team.
"""

from __future__ import annotations

import ast
import inspect
import io
import operator
from collections.abc import Callable
from typing import Any, ParamSpec, Protocol, runtime_checkable

import numpy as np
import polars as pl

from palaestra.algebra.parse import parse
from palaestra.algebra.turns import Turns
from palaestra.credit.anchors import similar
from palaestra.credit.repair import inject, remember
from palaestra.errors import ExpressionError, InputError, nearest

P = ParamSpec("P")


class TableFunction(Protocol):
    """From the good episodes of an iteration to the rows that get credit; all that is random is drawn from rng."""

    def __call__(self, turns: Turns, rng: np.random.Generator) -> Turns:
        """Called once per iteration."""


@runtime_checkable
class Remembering(Protocol):
    """A table function with a state: arrays and plain values, as in a checkpoint."""

    def state_dict(self) -> dict[str, Any]:
        """All that it remembers."""

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Inverse of `state_dict`."""


TABLE_FUNCTIONS: dict[str, Callable[..., TableFunction]] = {}
"""What a recipe's `repair` may name."""


def table_function(make: Callable[P, TableFunction]) -> Callable[P, TableFunction]:
    """Make a function (or class) that returns a table function usable in recipes, under its own name."""
    TABLE_FUNCTIONS[make.__name__] = make
    return make


def parse_table_function(text: str) -> TableFunction:
    """A new table function from recipe text: a registered name, or a call of one with plain values.

    Raises:
        ExpressionError: the text is not such a call, the name is unknown, or it does not take these options.

    >>> parse_table_function("replay(k=2)").k
    2
    """
    try:
        tree = ast.parse(text.strip(), mode="eval").body
        call = tree if isinstance(tree, ast.Call) else ast.Call(tree, [], [])
        if not isinstance(call.func, ast.Name) or any(keyword.arg is None for keyword in call.keywords):
            raise ValueError("expected a name, or a call of one")
        values = [ast.literal_eval(each) for each in call.args]
        options = {str(keyword.arg): ast.literal_eval(keyword.value) for keyword in call.keywords}
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        reason = str(error).splitlines()[0]
        raise ExpressionError(f"cannot read {text!r}: {reason}; write e.g. replay(k=1)") from error
    name = call.func.id
    if name not in TABLE_FUNCTIONS:
        raise ExpressionError(f"{text!r}: unknown table function {name!r}{nearest(name, TABLE_FUNCTIONS)}")
    make = TABLE_FUNCTIONS[name]
    try:
        inspect.signature(make).bind(*values, **options)
    except TypeError as error:
        raise ExpressionError(f"{text!r}: {error}; it is {name}{inspect.signature(make)}") from error
    try:
        return make(*values, **options)
    except (TypeError, ValueError) as error:
        raise ExpressionError(f"{text!r}: {error}; it is {name}{inspect.signature(make)}") from error


class Replay:
    """R³'s replay [83] with its buffer: groups that all score the same get `k` past episodes that went the other way.

    `palaestra.credit.inject` into, then `remember` from, the table of each iteration. last: successes and failures kept
    of each task. tasks: the buffer holds only the tasks that were met last, so many. score: text of the signal that
    says how an episode went, `solved` the score above which it is a success. Replayed rows bring the log-probabilities
    of the policy that played them: the learner's ratios correct for the difference, `r3(off_policy=...)` weighs them.

    Raises:
        InputError: k, last or tasks is too small.
    """

    def __init__(
        self, k: int = 1, *, last: int = 8, tasks: int = 1000, score: str | None = None, solved: float = 0.5
    ) -> None:
        self.k, self.last, self.tasks = (operator.index(number) for number in (k, last, tasks))
        if k < 0 or last < 1 or tasks < 1:
            raise InputError(f"replay: k={k} must not be negative, last={last} and tasks={tasks} must be at least 1")
        self.solved = float(solved)
        self.score = None if score is None else parse(score)
        self.buffer: Turns | None = None

    def __call__(self, turns: Turns, rng: np.random.Generator) -> Turns:
        """The table with a column `replayed`, and rows where it is True."""
        how = {"score": self.score, "solved": self.solved}
        past = Turns(turns.frame.clear()) if self.buffer is None else self.buffer
        mixed = inject(turns, past, rng, k=self.k, **how)  # type: ignore[arg-type]
        kept = remember(self.buffer, turns, last=self.last, **how)  # type: ignore[arg-type]
        met = kept.frame.group_by("task", maintain_order=True).agg(pl.col("episode").max()).sort("episode")
        self.buffer = kept.filter(pl.col("task").is_in(met["task"].tail(self.tasks).implode()))
        return mixed

    def state_dict(self) -> dict[str, Any]:
        """The buffer as the bytes of a Parquet file, uint8; empty if nothing was met yet."""
        file = io.BytesIO()
        if self.buffer is not None:
            self.buffer.frame.write_parquet(file, compression="zstd")
        return {"buffer": np.frombuffer(bytearray(file.getvalue()), np.uint8)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Inverse of `state_dict`."""
        data = np.asarray(state["buffer"]).tobytes()
        self.buffer = Turns(pl.read_parquet(io.BytesIO(data))) if data else None


@table_function
def anchors(threshold: float = 0.95, *, column: str = "observation") -> TableFunction:
    """GiGPO's anchors [62] by the similarity of texts: `state` becomes the number of the text's cluster; see `similar`.

    Its credit is `gigpo()`, which compares steps by `state`.
    """
    similar(Turns({"group": [], column: []}), column=column, threshold=threshold)  # refuses before anything is played
    return lambda turns, rng: similar(turns, column=column, threshold=threshold)


@table_function
def replay(
    k: int = 1, *, last: int = 8, tasks: int = 1000, score: str | None = None, solved: float = 0.5
) -> TableFunction:
    """R³'s replay [83]; see `Replay`. Its credit is `r3()`."""
    return Replay(k, last=last, tasks=tasks, score=score, solved=solved)
