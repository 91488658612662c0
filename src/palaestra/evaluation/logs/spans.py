"""Spans of traces, whoever wrote them, and whose they are: the form that every reader of traces fills.

A span is what an agent did, what a model or a tool was asked, or anything else in between. Readers say of each what the
log says; `traces` makes turns of them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Literal

import numpy as np

from palaestra.evaluation.logs.columns import SUCCESS, truth_of
from palaestra.evaluation.logs.prompts import LoggedMessage
from palaestra.evaluation.logs.rows import Rows, text

Kind = Literal["agent", "model", "tool", "other"]
"""Kind of a span; only agents, models and tools make rows."""
_TASK = ("task", "task_id", "task_name", "question_id", "instance_id", "problem_id", "example_id", "sample_id")
_SUCCESS = ("success", *(name for name in SUCCESS if name not in ("pass", "outcome", "result")))
_FACTS = {
    "task": _TASK,
    "success": _SUCCESS,
    "score": ("score", "reward"),
    "system": ("system", "system_name"),
    "run": ("run",),
    "seed": ("seed",),
}
_METADATA = re.compile(
    r"((langfuse|langsmith|ai)\.(\w+\.)?)?metadata(\.|$)|traceloop\.association\.properties$|resource$"
)
"""Prefixes under which tracers keep what a user said: any other is a convention's, whose `system` is a provider."""
_TEXTS = ("parent", "name", "agent", "model", "call", "conversation")
"""Fields that a damaged log may hold anything in."""


@dataclass(slots=True)
class Span:
    """Data of one span of a trace: ids, kind, times, agent, model, prompt and answer, under names of this library.

    Attributes:
        trace, id, parent: Which it is; ids need not be unique beyond their trace.
        where: Its place in the file, for messages.
        kind: What it is.
        name: Of the tool or agent, or any.
        start, end: Nanoseconds since 1970, None if the log does not say.
        agent: Who asked, where the span says so itself.
        model: Who answered.
        prompt: What it was asked; None if the log keeps no words.
        said: What it answered.
        usage: As `usage.tokens` gives it.
        call: Which call of a message a tool's span carries out.
        error: Why it failed.
        conversation: Traces of one conversation are one episode.
        facts: Task, success, score, system, run and seed, where the log says them; see `facts_of`.
        scores: More of them, by name.
        metadata: What else is worth keeping of an episode's first span.
        delivered: Messages that it brought somebody, where a framework's spans do (AutoGen's).
    """

    trace: str
    id: str
    parent: str | None
    where: str
    kind: Kind = "other"
    name: str | None = None
    start: int | None = None
    end: int | None = None
    agent: str | None = None
    model: str | None = None
    prompt: list[LoggedMessage] | None = None
    said: LoggedMessage | None = None
    usage: dict[str, Any] = field(default_factory=dict)
    cost: Any = None
    call: str | None = None
    arguments: Any = None
    error: str | None = None
    conversation: str | None = None
    facts: dict[str, Any] = field(default_factory=dict)
    scores: dict[str, Any] = field(default_factory=dict)
    metadata: dict[str, Any] = field(default_factory=dict)
    delivered: list[dict[str, Any]] = field(default_factory=list)


class SpanTree:
    """Parent links of all spans of a file, for looking up ancestors of every span at once.

    Attributes:
        spans: Each once; of several with the same trace and id the last.
        parents: Index of each span's parent, int64[spans]; -1 if the file does not have it.
    """

    def __init__(self, spans: Sequence[Span], rows: Rows) -> None:
        for span in spans:
            for name in _TEXTS:
                value = getattr(span, name)
                setattr(span, name, None if value is None else text(value))
        place = {(span.trace, span.id): number for number, span in enumerate(spans)}
        if len(place) < len(spans):
            spans = [spans[number] for number in sorted(place.values())]
            place = {(span.trace, span.id): number for number, span in enumerate(spans)}
        self.spans = spans
        above = (-1 if span.parent is None else place.get((span.trace, span.parent), -1) for span in spans)
        self.parents = np.fromiter(above, np.int64, len(spans))
        ends = self._up(np.zeros(len(spans), bool))  # a root, or one of a circle
        if len(loops := np.unique(ends[self.parents[ends] >= 0])):
            one = spans[int(loops[0])]
            rows.problem(
                one.where, f"its parents go round in a circle ({len(loops)} such spans); they are read as roots"
            )
            self.parents[loops] = -1

    def nearest(self, marked: np.ndarray, *, above: bool = False) -> np.ndarray:
        """Index of each span's nearest marked ancestor or itself, int64[spans]; -1 if there is none.

        marked: bool[spans]. above: look for an ancestor only. Doubles its steps: a chain of n takes log n.
        """
        found = self._up(marked)
        found = np.where(marked[found], found, -1) if len(found) else found
        return np.where(self.parents >= 0, found[self.parents], -1) if above else found

    def _up(self, marked: np.ndarray) -> np.ndarray:
        here = np.arange(len(self.parents))
        jump = np.where(marked | (self.parents < 0), here, self.parents)
        for _ in range(len(here).bit_length() + 1):
            jump, before = jump[jump], jump
            if np.array_equal(jump, before):
                break
        return jump


def own_name(key: Any) -> str | None:
    """Name of an attribute that a user gave, in lower case, without the prefix of metadata; None of a convention's.

    >>> own_name("langfuse.trace.metadata.Task"), own_name("gen_ai.system")
    ('task', None)
    """
    prefix, _, name = str(key).casefold().rpartition(".")
    return name if not prefix or _METADATA.match(prefix) else None


def facts_of(*sources: Mapping[str, Any]) -> dict[str, Any]:
    """Dict of task, success, score, system, run, seed found in a log's mappings by the usual names a user gives them.

    >>> facts_of({"langsmith.metadata.task_id": "a", "correct": "yes", "gen_ai.system": "openai"})
    {'task': 'a', 'success': True}
    """
    named: dict[str, Any] = {}
    for source in sources:
        for key, value in source.items():
            if (name := own_name(key)) and value is not None and not isinstance(value, dict | list):
                named.setdefault(name, value)
    found = {}
    for fact, names in _FACTS.items():
        for name in names:
            value = named.get(name)
            if isinstance(value, str) and value[:1] == value[-1:] == '"':  # Langfuse's metadata are JSON
                value = value[1:-1]
            if fact == "success" and value is not None:
                value = truth_of(value)
            if value is not None:
                found[fact] = text(value) if fact in ("task", "system", "run") else value
                break
    return found


def nanoseconds(value: Any) -> int | None:
    """A datetime, or a time in ISO 8601, as nanoseconds since 1970 (UTC without a zone); None for anything else.

    >>> nanoseconds("1970-01-01T00:00:01.5Z")
    1500000000
    """
    if isinstance(value, str):
        try:
            value = datetime.fromisoformat(value.strip())
        except ValueError:
            return None
    if not isinstance(value, datetime):
        return None
    zoned = value if value.tzinfo else value.replace(tzinfo=UTC)
    since = zoned - datetime(1970, 1, 1, tzinfo=UTC)
    return (since.days * 86_400 + since.seconds) * 1_000_000_000 + since.microseconds * 1_000
