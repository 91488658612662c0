"""A stage: from a table to a table, between play and learning; and, if it has a say in it, before play.

What is stateful or calls a model is a stage: critics, judges, probes, replay, curricula, budgets, memories of what was
seen. What only computes is a signal. A recipe names stages in the order in which they run:

    stages: [judge("helpful", rubric="rubric.yaml"), critic(), replay(k=1)]

The reward is computed before the first stage that needs it, credit after the last. Everything random in a stage is
drawn from its own stream, so that what one stage draws changes nothing of the others' draws.
"""

from __future__ import annotations

import copy
import difflib
import inspect
import io
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, runtime_checkable

import numpy as np
import polars as pl

from palaestra.algebra.turns import PROVIDERS, SCHEMA, Turns
from palaestra.errors import InputError, PalaestraError, SchemaError
from palaestra.foundation.registry import Registry

if TYPE_CHECKING:
    from palaestra.agents import Team
    from palaestra.agents.policy import Policy
    from palaestra.envs.protocol import EnvFactory
    from palaestra.judges.kept_calls import KeptCalls
    from palaestra.learning.protocol import Learner
    from palaestra.play.executors import Executor, Plan

F = TypeVar("F", bound=Callable[..., Any])

REWARD = "reward"
STREAM = 1
"""What a stage's streams are drawn for, beside the learner's minibatches (0)."""


@dataclass
class StageCost:
    """Counter of a stage's cost in one iteration: model calls, tokens, price; the runner counts rows and seconds.

    known: calls that were answered from a file of earlier ones. failed: calls without an answer; why: of the last.
    """

    calls: int = 0
    tokens: int = 0
    cost: float = 0.0
    known: int = 0
    failed: int = 0
    why: str | None = None

    def add(
        self,
        *,
        calls: int = 0,
        tokens: int = 0,
        cost: float = 0.0,
        known: int = 0,
        failed: int = 0,
        why: str | None = None,
    ) -> None:
        """Add to the counts."""
        self.calls, self.tokens, self.cost = self.calls + calls, self.tokens + tokens, self.cost + cost
        self.known, self.failed, self.why = self.known + known, self.failed + failed, why or self.why


@dataclass
class Context:
    """Data given to a stage beside the table: rng, env, team, executor, learner, advisers; it collects its metrics.

    rng: its own stream of this iteration. env, team, executor: to play more, to ask policies. learner: None where
    nothing is learned. seed: of the run. planned: iterations of the run, if known. spent: where it counts what it used.
    advisers: policies of the recipe that have no seat in the team, by name: judges, writers, guides.
    kept_calls: where calls of judges are kept; None: nowhere.
    metrics: numbers that it puts into the metrics of its iteration, by name. notes: sentences beside them.
    """

    rng: np.random.Generator
    iteration: int
    env: EnvFactory
    team: Team
    executor: Executor
    learner: Learner | None = None
    seed: int = 0
    planned: int | None = None
    spent: StageCost = field(default_factory=StageCost)
    metrics: dict[str, float] = field(default_factory=dict)
    notes: dict[str, str] = field(default_factory=dict)
    advisers: Mapping[str, Policy] = field(default_factory=dict)
    kept_calls: KeptCalls | None = None


class Stage:
    """Base class of stages: `plan` changes an iteration's plan before play, a call its table of turns before learning.

    needs: columns that the table must have. adds: columns that it fills, with one line on each. asks: policies of the
    recipe that it asks. notes: attributes in which `plan` leaves word for the call of the same iteration; a stage with
    a `plan` that names them (or none: `()`) can be planned ahead, with `train.lag`. A stage that adds or drops rows
    says so in its docstring. step: what kind of step it is in `palaestra.runs.steps`, if its columns do not tell.
    """

    needs: Collection[str] = ()
    adds: Mapping[str, str] = {}
    asks: Collection[str] = ()
    notes: Collection[str] | None = None
    step: str | None = None

    def plan(self, plan: Plan, context: Context) -> Plan:
        """Change the plan of an iteration before it is played, as budgets and curricula do; unchanged by default."""
        return plan

    def __call__(self, turns: Turns, context: Context) -> Turns:
        """Transform the table of an iteration's good episodes after play; unchanged by default."""
        return turns


@runtime_checkable
class Remembering(Protocol):
    """Protocol of a stage with a state of arrays and plain values for checkpoints: `state_dict`, `load_state_dict`."""

    def state_dict(self) -> dict[str, Any]:
        """State of the stage."""

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Inverse of `state_dict`."""


def packed(frame: pl.DataFrame | None) -> np.ndarray:
    """Pack a table for a checkpoint: the bytes of a Parquet file as a uint8 array; empty for no table."""
    file = io.BytesIO()
    if frame is not None and frame.width:
        frame.write_parquet(file, compression="zstd")
    return np.frombuffer(bytearray(file.getvalue()), np.uint8)


def unpacked(data: Any) -> pl.DataFrame | None:
    """Table from what `packed` gave; None if that is empty."""
    given = np.asarray(data).tobytes()
    return pl.read_parquet(io.BytesIO(given)) if given else None


STAGES: Registry[Stage] = Registry("stage", home=("palaestra.learning.stages",), example="replay(k=1)")
"""What a recipe's `stages` may name."""


def stage(make: F) -> F:
    """Decorator that registers a class or function that makes a stage, under its own name."""
    return STAGES.register()(make)


def build(listed: Iterable[str | Stage]) -> list[Stage]:
    """Stages built from texts of a recipe; objects are kept as they are.

    Raises:
        ExpressionError: a text names no stage, or gives one options that it does not take.
        InputError: what was made cannot be called with a table.
    """
    made = [STAGES.build(each) if isinstance(each, str) else each for each in listed]
    for each in made:
        if not callable(each):
            raise InputError(f"stage {each!r} ({type(each).__name__}) cannot be called with a table and a context")
    return made


def name_of(made: Stage) -> str:
    """Name of a stage in metrics and messages."""
    return getattr(made, "name", None) or type(made).__name__.lower()


class Stages(Sequence[Stage]):
    """Sequence of a run's stages, which runs them in order on plans and tables and keeps their metrics.

    Args:
        listed: texts or stages. seed: of the run; stage number n draws in iteration i from (seed, i, 1, n).
    """

    def __init__(self, listed: Iterable[str | Stage], *, seed: int = 0) -> None:
        listed = list(listed)
        self.made, self.seed = build(listed), seed
        self.texts = [each if isinstance(each, str) else repr(each) for each in listed]
        self.names = _distinct([name_of(each) for each in self.made])
        self.metrics: dict[str, dict[str, Any]] = {}
        first = [number for number, each in enumerate(self.made) if REWARD in getattr(each, "needs", ())]
        self.reward_at = min(first, default=len(self.made))
        """Number of the first stage that needs the reward."""

    def __len__(self) -> int:
        return len(self.made)

    def __getitem__(self, index: Any) -> Any:
        return self.made[index]

    def plan(self, plan: Plan, context: Callable[[np.random.Generator], Context]) -> Plan:
        """Plan of an iteration after every stage changed it, one after the other."""
        self.metrics = {name: {"seconds": 0.0, "calls": 0, "tokens": 0, "cost": 0.0} for name in self.names}
        for number, made in enumerate(self.made):
            if hasattr(made, "plan"):
                plan = self._timed(number, plan.iteration, context, made.plan, plan)
        return plan

    def check_overlap(self) -> None:
        """Raise InputError unless every stage can plan an iteration before the one before it was learned from.

        Raises:
            InputError: one cannot; names it.
        """
        for text, made in zip(self.texts, self.made):
            plans = getattr(type(made), "plan", None) not in (None, Stage.plan)
            if plans and getattr(made, "notes", None) is None:
                raise InputError(
                    f"stages: {text} plans an iteration from what the one before it brought, which is not there yet if "
                    "one plays ahead: take train.lag=0, or leave it out (one of your own: say what `notes` it keeps)"
                )

    def notes(self) -> dict[str, Any]:
        """Notes that the stages left when they planned the last iteration, and its cost."""
        kept = [{name: getattr(made, name) for name in getattr(made, "notes", None) or ()} for made in self.made]
        return {"metrics": self.metrics, "stages": copy.deepcopy(kept)}

    def recall(self, notes: Mapping[str, Any]) -> None:
        """Restore notes, to go on with an iteration that was planned earlier."""
        self.metrics = {name: dict(spent) for name, spent in notes["metrics"].items()}
        for made, kept in zip(self.made, notes["stages"], strict=True):
            for name, value in kept.items():
                setattr(made, name, value)

    def before_reward(self, turns: Turns, iteration: int, context: Callable[[np.random.Generator], Context]) -> Turns:
        """Run the stages that do not need the reward and stand before all that do."""
        return self._run(turns, range(self.reward_at), iteration, context)

    def after_reward(self, turns: Turns, iteration: int, context: Callable[[np.random.Generator], Context]) -> Turns:
        """Run the remaining stages, which need the reward or come after one that does."""
        return self._run(turns, range(self.reward_at, len(self.made)), iteration, context)

    def _run(
        self, turns: Turns, which: range, iteration: int, context: Callable[[np.random.Generator], Context]
    ) -> Turns:
        for number in which if len(turns) else ():
            before, made = len(turns), self.made[number]
            turns = self._timed(number, iteration, context, made, turns)
            if not isinstance(turns, Turns):
                raise SchemaError(f"stage {self.names[number]}: returned {type(turns).__name__}, expected Turns")
            self.metrics[self.names[number]]["added_rows"] = len(turns) - before
        return turns

    def _timed(self, number: int, iteration: int, context: Any, call: Callable[..., Any], given: Any) -> Any:
        name, began = self.names[number], time.perf_counter()
        stream = np.random.SeedSequence(self.seed, spawn_key=(iteration, STREAM, number))
        made: Context = context(np.random.default_rng(stream))
        try:
            result = call(given, made)
        except PalaestraError as error:
            raise type(error)(f"stage {self.texts[number]}: {error}") from error
        spent = self.metrics.setdefault(name, {"seconds": 0.0, "calls": 0, "tokens": 0, "cost": 0.0})
        spent["seconds"] += time.perf_counter() - began
        for field_ in ("calls", "tokens", "cost"):
            spent[field_] += getattr(made.spent, field_)
        for field_ in ("known", "failed"):
            if count := getattr(made.spent, field_):
                spent[field_] = spent.get(field_, 0) + count
        if made.spent.why is not None:
            spent["why"] = made.spent.why
        spent |= made.metrics | made.notes
        return result

    def tasks(self, iteration: int) -> pl.DataFrame | None:
        """Table of tasks that stages added to their tables, or changed, in an iteration; None if there are none."""
        told = [getattr(each, "told", None) for each in self.made]
        rows = [frame.filter(pl.col("updated_at") == iteration) for frame in told if isinstance(frame, pl.DataFrame)]
        return pl.concat(rows) if rows and any(map(len, rows)) else None

    def state_dict(self) -> list[dict[str, Any] | None]:
        """States of all stages, in order; None for one without a state."""
        return [each.state_dict() if isinstance(each, Remembering) else None for each in self.made]

    def load_state_dict(self, states: Sequence[dict[str, Any] | None]) -> None:
        """Inverse of `state_dict`."""
        for each, state in zip(self.made, states, strict=True):
            if isinstance(each, Remembering) and state is not None:
                each.load_state_dict(state)


def _distinct(names: Sequence[str]) -> list[str]:
    seen: dict[str, int] = {}
    for name in names:
        seen[name] = seen.get(name, 0) + 1
    count: dict[str, int] = {}
    found = []
    for name in names:
        count[name] = count.get(name, 0) + 1
        found.append(name if seen[name] == 1 else f"{name}-{count[name]}")
    return found


# -- what is missing, said before anything is played ------------------------------------------------------------------


def stages_that_fill(column: str) -> list[str]:
    """List of the registered stages that fill a column by default, as texts of calls: `["critic()"]`."""
    found = []
    for name in STAGES:
        make = STAGES[name]
        declared = getattr(make, "adds", None)
        if not isinstance(declared, Mapping):
            declared = getattr(inspect.unwrap(make), "adds", {})
        if column in declared:
            found.append(f"{name}()")
    return found


def remedy(column: str) -> str | None:
    """Advice how a run gets a column that no rollout fills; None if none is known."""
    if column in SCHEMA:
        return None
    found = stages_that_fill(column)
    return f"add {' or '.join(found)} to `stages`" if found else None


PROVIDERS.append(remedy)


def missing(
    needs: Mapping[str, Collection[str]], has: Collection[str], *, facts: Callable[[str], list[str]] | None = None
) -> str | None:
    """Message about the first column that something needs and nothing gives; None if all columns are there.

    Args:
        needs: by what needs them ("credit 'gae()'"), the columns.
        has: what the schema, the env and stages give.
        facts: names of envs that tell a column.

    >>> missing({"credit 'gae()'": {"reward", "valeu"}}, {"reward", "value"})
    "credit 'gae()' needs column 'valeu', which nothing here gives; did you mean 'value'?"
    """
    for who, columns in needs.items():
        for column in sorted(set(columns) - set(has)):
            told = facts(column) if facts else []
            ways = [remedy(column), f"play an env that tells it ({', '.join(told)})" if told else None]
            known = ", or ".join(way for way in ways if way)
            typo = difflib.get_close_matches(column, has, n=1, cutoff=0.8)  # a wrong hint would train on something else
            fix = f"; {known}" if known else f"; did you mean {typo[0]!r}?" if typo else ""
            return f"{who} needs column {column!r}, which nothing here gives{fix}"
    return None
