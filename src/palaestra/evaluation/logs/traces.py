"""Traces into turns: a row per call of a model, or per agent whose calls were not recorded, and per tool it called.

An episode is a trace, or all traces of one conversation, unless they name several tasks; a span that names a `task` of
its own begins an episode within its trace. An agent is the nearest span of an agent around a call. Turns that overlap
in time share a number, as those of agents that act at the same time do. Who heard whom: `heard`. A model's call within
another one is the same call. The system is what a log says, else the model, where every episode has one only.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Sequence
from itertools import groupby
from typing import Any

import numpy as np

from palaestra.evaluation.logs.columns import task_of
from palaestra.evaluation.logs.heard import TraceTurn, listen
from palaestra.evaluation.logs.prompts import LoggedMessage, words_of
from palaestra.evaluation.logs.rows import Rows, rest, text
from palaestra.evaluation.logs.spans import Span, SpanTree

_ANYBODY = -2
"""Instead of the index of an agent's span: any of the episode."""


def add_episodes(spans: Sequence[Span], rows: Rows) -> None:
    """Adds all episodes of a list of `Span` to a `Rows`; a trace without agents, models and tools becomes a problem."""
    tree = SpanTree(spans, rows)
    spans = tree.spans
    if not spans:
        return
    kinds = np.array([span.kind for span in spans])
    acting = kinds != "other"
    around = tree.nearest(acting, above=True)
    agents = tree.nearest(kinds == "agent", above=True)
    inner = (kinds == "model") & (around >= 0) & (kinds[around] == "model")
    for number in np.flatnonzero(inner).tolist():  # an instrumented client below an instrumented framework
        _merge(spans[around[number]], spans[number])
    busy = np.zeros(len(spans), bool)
    outer = agents[acting & (kinds != "tool")]
    busy[outer[outer >= 0]] = True
    is_turn = ((kinds == "model") & ~inner) | ((kinds == "agent") & ~busy)
    episodes = _episodes(spans, tree)
    turns, owner = _turns(spans, np.flatnonzero(is_turn), agents, episodes)
    tools = _tools(spans, np.flatnonzero(kinds == "tool"), agents, episodes, turns, owner)
    _callers(spans, agents, turns, owner)
    listen([turn for turn, _ in turns])
    roots = _roots(spans, tree, episodes)
    models = _models(spans, episodes, rows)
    by_episode = {
        key: list(each) for key, each in groupby(range(len(turns)), key=lambda index: turns[index][0].episode)
    }
    silent = [spans[members[0]].where for episode, members in roots.items() if episode not in by_episode]
    if silent:
        more = f" ({len(silent)} such traces)" if len(silent) > 1 else ""
        rows.problem(silent[0], f"a trace without a call of a model or an agent; it is left out{more}")
    for episode, own in by_episode.items():
        members = roots[episode]
        _episode([spans[number] for number in members], own, turns, spans, tools, rows, models.get(episode))


def _merge(outer: Span, inner: Span) -> None:
    """Fields known only to the inner of two spans of one call."""
    outer.prompt = inner.prompt if outer.prompt is None else outer.prompt
    outer.said = inner.said if outer.said is None else outer.said
    outer.usage = outer.usage or inner.usage
    outer.model = outer.model or inner.model
    outer.cost = inner.cost if outer.cost is None else outer.cost


def _episodes(spans: Sequence[Span], tree: SpanTree) -> np.ndarray:
    """Number of each span's episode, int64[spans], in the order in which episodes begin in the file."""
    above = tree.parents.tolist()
    own = [
        "task" in span.facts and parent >= 0 and spans[parent].facts.get("task") != span.facts["task"]
        for span, parent in zip(spans, above, strict=True)
    ]
    begins = tree.nearest(np.array(own, bool)).tolist()
    said: dict[str, str] = {}
    for span in spans:
        if span.conversation is not None:
            said.setdefault(span.trace, f"conversation {span.conversation}")
    tasks: dict[str, set[str]] = defaultdict(set)
    for span, parent in zip(spans, above, strict=True):
        if parent < 0 and span.trace in said and "task" in span.facts:
            tasks[said[span.trace]].add(span.facts["task"])
    said = {trace: conversation for trace, conversation in said.items() if len(tasks[conversation]) < 2}
    keys = [
        (span.trace, spans[begin].id) if begin >= 0 else (said.get(span.trace, span.trace), "")
        for span, begin in zip(spans, begins, strict=True)
    ]
    numbers = {key: number for number, key in enumerate(dict.fromkeys(keys))}
    return np.array([numbers[key] for key in keys], np.int64)


def _roots(spans: Sequence[Span], tree: SpanTree, episodes: np.ndarray) -> dict[int, list[int]]:
    """The spans of each episode without a parent in it, by their start."""
    parents = tree.parents
    outside = (parents < 0) | (episodes != episodes[parents])
    found: dict[int, list[int]] = defaultdict(list)
    for number in np.flatnonzero(outside):
        found[int(episodes[number])].append(int(number))
    return {episode: sorted(each, key=lambda n: (spans[n].start or 0, n)) for episode, each in found.items()}


def _turns(
    spans: Sequence[Span], numbers: np.ndarray, agents: np.ndarray, episodes: np.ndarray
) -> tuple[list[tuple[TraceTurn, int]], list[int]]:
    """Turns in their order with their spans, and the agent's span that each belongs to (-1: none)."""
    order = sorted(numbers.tolist(), key=lambda n: (episodes[n], spans[n].start or 0, n))
    found: list[tuple[TraceTurn, int]] = []
    owner: list[int] = []
    episode, number, first_end, acting = -1, 0, None, set[str | None]()
    for n in order:
        span = spans[n]
        above = n if span.kind == "agent" else int(agents[n])
        agent = span.name if span.kind == "agent" else span.agent or (spans[above].name if above >= 0 else None)
        if episodes[n] != episode:
            episode, number, first_end, acting = int(episodes[n]), 0, span.end, {agent}
        elif first_end is not None and span.start is not None and span.start < first_end and agent not in acting:
            first_end = min(first_end, span.end if span.end is not None else first_end)
            acting.add(agent)
        else:
            number, first_end, acting = number + 1, span.end, {agent}
        turn = TraceTurn(episode, number, agent, span.start, span.end, span.prompt, span.said)
        found.append((turn, n))
        owner.append(above)
    return found, owner


def _tools(
    spans: Sequence[Span],
    numbers: np.ndarray,
    agents: np.ndarray,
    episodes: np.ndarray,
    turns: Sequence[tuple[TraceTurn, int]],
    owner: Sequence[int],
) -> dict[int, list[Span]]:
    """Spans of tools by the turn that called them: the one that names the call, else the last before of its agent."""
    calls: dict[tuple[int, str], int] = {}
    own: dict[tuple[int, int], tuple[list[int], list[int]]] = defaultdict(lambda: ([], []))
    for index, (turn, _) in enumerate(turns):
        for call in turn.said.calls if turn.said else ():
            if call.id is not None:
                calls[turn.episode, call.id] = index
        for above in {owner[index], _ANYBODY}:
            starts, places = own[turn.episode, above]
            starts.append(turn.start or 0)
            places.append(index)
    found: dict[int, list[Span]] = defaultdict(list)
    for n in sorted(numbers.tolist(), key=lambda n: (spans[n].start or 0, n)):
        span, episode = spans[n], int(episodes[n])
        caller = calls.get((episode, span.call)) if span.call is not None else None
        if caller is None:
            starts, places = own.get((episode, int(agents[n])), own.get((episode, _ANYBODY), ([], [])))
            at = bisect_right(starts, span.start or 0) if span.start is not None else len(starts)
            caller = places[max(at - 1, 0)] if places else None
        if caller is not None:
            found[caller].append(span)
    return found


def _callers(
    spans: Sequence[Span], agents: np.ndarray, turns: Sequence[tuple[TraceTurn, int]], owner: Sequence[int]
) -> None:
    """The turn that called each agent which runs below another one: the outer agent's last before it."""
    own: dict[int, tuple[list[int], list[int]]] = defaultdict(lambda: ([], []))
    seen: set[int] = set()
    for index, (turn, _) in enumerate(turns):
        above = owner[index]
        if above >= 0 and above not in seen:
            seen.add(above)
            outer = int(agents[above])
            starts, places = own.get(outer, ([], []))
            at = bisect_right(starts, turn.start or 0)
            before = [place for place in places[:at][-1:] if turns[place][0].agent != turn.agent]
            if outer >= 0 and before and turns[before[0]][0].episode == turn.episode:
                turn.caller = before[0]
        starts, places = own[above]
        starts.append(turn.start or 0)
        places.append(index)


def _models(spans: Sequence[Span], episodes: np.ndarray, rows: Rows) -> dict[int, str]:
    """The only model of each episode, or of the file; empty if some have several, as teams do.

    That episodes without a system were of other models all the same is a problem in a `Rows`.
    """
    own: dict[int, set[str]] = {int(episode): set() for episode in episodes}
    for span, episode in zip(spans, episodes.tolist(), strict=True):
        if span.model is not None:
            own[episode].add(span.model)
    known = set[str]().union(*own.values())
    if known and all(len(each) < 2 for each in own.values()):
        return {episode: next(iter(each or known)) for episode, each in own.items() if each or len(known) == 1}
    if known and known not in own.values() and not any("system" in span.facts for span in spans):
        some = ", ".join(sorted(known)[:6])
        rows.problem("", f"episodes of different models ({some}) without a field system: they are one system here")
    return {}


def _episode(
    roots: list[Span],
    own: list[int],
    turns: Sequence[tuple[TraceTurn, int]],
    spans: Sequence[Span],
    tools: dict[int, list[Span]],
    rows: Rows,
    only: str | None,
) -> None:
    facts: dict[str, Any] = {}
    scores: dict[str, Any] = {}
    for root in roots:
        facts |= {
            name: value for name, value in root.facts.items() if name not in facts or name in ("success", "score")
        }
        scores |= root.scores
    before: dict[str | None, tuple[Sequence[LoggedMessage], LoggedMessage | None]] = {}
    found: list[dict[str, Any]] = []
    for index in own:
        turn, n = turns[index]
        found += _rows(turn, spans[n], turns, tools.get(index, []), before)
    found[-1]["metadata"] = (found[-1].get("metadata") or {}) | {
        k: v for each in roots for k, v in each.metadata.items()
    }
    for row in found:
        row["metadata"] = rest(row.get("metadata") or {}, ())
    error = next((root.error for root in roots if root.error is not None), None)
    rows.episode(
        roots[0].where,
        found,
        system=facts.get("system") or only,
        task=facts.get("task") or _task(roots, [turns[index][0] for index in own]),
        run=facts.get("run"),
        seed=facts.get("seed"),
        score=facts.get("score"),
        scores=scores,
        success=facts.get("success"),
        error=None if error is None else f"run: {error}",
    )


def _task(roots: Sequence[Span], turns: Sequence[TraceTurn]) -> str | None:
    """First message of a user, else the name of the trace."""
    for turn in turns:
        for message in turn.prompt or ():
            if message.role == "user" and message.text:
                return task_of(message.text)
    return next((root.name for root in roots if root.name), None)


def _rows(
    turn: TraceTurn,
    span: Span,
    turns: Sequence[tuple[TraceTurn, int]],
    tools: Sequence[Span],
    before: dict[str | None, tuple[Sequence[LoggedMessage], LoggedMessage | None]],
) -> list[dict[str, Any]]:
    """The rows of one turn: the first has its words and tokens, each further call of a tool one more.

    before: prompt and answer of each agent's turn before, so that an observation is what is new.
    """
    row = {
        "turn": turn.number,
        "agent": turn.agent,
        "policy": span.model,
        "observation": None
        if turn.prompt is None
        else words_of(_new(turn.prompt, *before.get(turn.agent, ((), None)))),
        "action": turn.said.text if turn.said else None,
        "duration": (span.end - span.start) / 1e9 if span.start is not None and span.end is not None else None,
        "cost": span.cost,
        "heard": [turns[each][0].agent or "agent" for each in turn.heard],
        "heard_turn": [turns[each][0].number for each in turn.heard],
        "heard_source": turn.source,
        "metadata": None if span.error is None else {"turn_error": span.error},
        **span.usage,
    }
    if turn.prompt is not None:
        before[turn.agent] = (turn.prompt, turn.said)
    calls = _calls(turn, tools)
    more = [{"turn": turn.number, "agent": turn.agent, "policy": span.model, **call} for call in calls[1:]]
    return [row | (calls[0] if calls else {}), *more]


def _new(
    prompt: Sequence[LoggedMessage], known: Sequence[LoggedMessage], said: LoggedMessage | None
) -> Sequence[LoggedMessage]:
    """Messages of a prompt that are new to its agent and not its own."""
    if not known or list(prompt[: len(known)]) != list(known):
        return prompt
    new = list(prompt[len(known) :])
    own = next((n for n, each in enumerate(new) if said is not None and _same(each, said)), None)
    return new if own is None else new[:own] + new[own + 1 :]


def _same(one: LoggedMessage, other: LoggedMessage) -> bool:
    calls = [[call.id for call in each.calls] for each in (one, other)]
    return one.role == "assistant" and (one.text or "") == (other.text or "") and calls[0] == calls[1]


def _calls(turn: TraceTurn, tools: Sequence[Span]) -> list[dict[str, Any]]:
    """Calls that the turn made, each with what became of it; spans of tools that no call names come last."""
    left = list(tools)
    found = []
    for call in turn.said.calls if turn.said else ():
        done = next((each for each in left if each.call is not None and each.call == call.id), None)
        done = done or next((each for each in left if each.call is None and each.name == call.name), None)
        if done is not None:
            left.remove(done)
        found.append(_call(call.name, call.arguments, done))
    return found + [_call(each.name or "tool", each.arguments, each) for each in left]


def _call(name: str, arguments: Any, done: Span | None) -> dict[str, Any]:
    row: dict[str, Any] = {"tool": name, "arguments": arguments}
    if done is not None:
        row["arguments"] = done.arguments if arguments is None else arguments
        row["tool_error"] = None if done.error is None else text(done.error)
        if done.start is not None and done.end is not None:
            row["tool_duration"] = (done.end - done.start) / 1e9
    return row
