"""Messages between agents, read from a trace: whose words stand in the prompt of a call, else who had just spoken.

A turn heard an earlier turn of another agent if its prompt holds what that turn said, or a tool call that it made or
the answer to it; a text counts as well where it stands within a message ("solver says: …"). Where the log keeps no
words, the order has to do: a turn heard the turns just before it that were over when it began, as in a pipeline. Which
of the two it was stands in `heard_source`: "prompt" or "order".
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

import polars as pl

from palaestra.evaluation.logs.prompts import LoggedMessage

LONG_ENOUGH = 16
"""Characters from which on a text that stands within a message is no accident; a shorter one needs its agent's name."""
_FEW = 20_000
"""Comparisons of texts with texts that are made one by one; more of them by Aho-Corasick."""


@dataclass(slots=True)
class TraceTurn:
    """Data of one turn of a trace, reduced to what `listen` needs to find the earlier turns that it read.

    Attributes:
        episode: Number of the episode.
        number: Of the turn in its episode; turns at the same time share one.
        agent: Who took it.
        start, end: Nanoseconds; None if unknown.
        prompt: What it was asked, None if the log keeps no words.
        said: What it answered.
        caller: Index of the turn that started this agent by a call, known from the spans; None if it is none.
        heard: Indices of the turns that it heard, in their order; filled in by `listen`.
        source: "prompt" or "order".
    """

    episode: int
    number: int
    agent: str | None
    start: int | None
    end: int | None
    prompt: Sequence[LoggedMessage] | None
    said: LoggedMessage | None
    caller: int | None = None
    heard: list[int] = field(default_factory=list)
    source: str = "order"


def listen(turns: Sequence[TraceTurn]) -> None:
    """Sets `heard` (indices of earlier turns whose output a turn read) and `source` of sorted `TraceTurn`s, in place.

    The turns are sorted by episode and number.
    """
    by_words = _by_words(turns)
    before: dict[int, list[int]] = {}
    now: list[int] = []
    place = (-1, -1)
    for index, turn in enumerate(turns):
        if (turn.episode, turn.number) != place:
            before = {turn.episode: now} if turn.episode == place[0] else {}
            now, place = [], (turn.episode, turn.number)
        now.append(index)
        if turn.prompt is not None:
            turn.source = "prompt"
            told = by_words[index] if turn.caller is None else {*by_words[index], turn.caller}
            turn.heard = sorted(told)
            continue
        last = before.get(turn.episode, [])
        others = [each for each in last if turns[each].agent != turn.agent and _over(turns[each], turn)]
        own = [each for each in last if turns[each].agent == turn.agent]
        turn.heard = others or (turns[own[-1]].heard if own else [])


def _over(first: TraceTurn, second: TraceTurn) -> bool:
    return first.end is None or second.start is None or first.end <= second.start


def _by_words(turns: Sequence[TraceTurn]) -> dict[int, set[int]]:
    """Of each turn, whose words its prompt holds. A text that stands there n times is of the last n that said it."""
    codes: dict[str, int] = {}
    texts: list[str] = []

    def code(words: str) -> int:
        if words not in codes:
            codes[words] = len(codes)
            texts.append(words)
        return codes[words]

    said: list[tuple[int, int, int]] = []  # episode, turn, text
    asked: list[tuple[int, int, int]] = []
    plain: dict[int, set[int]] = defaultdict(set)  # episode -> texts of prompts
    for index, turn in enumerate(turns):
        if turn.said is not None:
            said += [(turn.episode, index, code(key)) for key in _keys(turn.said)]
        for message in turn.prompt or ():
            if message.role == "system":
                continue
            for key in _keys(message):
                asked.append((turn.episode, index, code(key)))
                if not key.startswith("\0"):
                    plain[turn.episode].add(codes[key])
    within = _within(turns, said, plain, texts)
    schema = {"episode": pl.Int64, "turn": pl.Int64, "text": pl.Int64}
    spoken = pl.DataFrame(said, schema=schema, orient="row").unique(maintain_order=True)
    prompts = pl.DataFrame(asked, schema=schema, orient="row")
    if within:
        more = pl.DataFrame(within, schema={"episode": pl.Int64, "text": pl.Int64, "of": pl.Int64}, orient="row")
        inside = prompts.join(more, on=["episode", "text"]).select("episode", "turn", text="of")
        prompts = pl.concat([prompts, inside])
    names = pl.Series([turn.agent for turn in turns], dtype=pl.String)
    start, end = (pl.Series([getattr(turn, name) for turn in turns], dtype=pl.Int64) for name in ("start", "end"))
    counted = prompts.group_by("episode", "turn", "text").len("times")
    pairs = counted.join(spoken.rename({"turn": "by"}), on=["episode", "text"]).filter(pl.col("by") < pl.col("turn"))
    by, at = pairs["by"], pairs["turn"]
    over = (end.gather(by) <= start.gather(at)).fill_null(True)
    numbers = pl.Series([turn.number for turn in turns], dtype=pl.Int64)
    pairs = pairs.filter(over & (numbers.gather(by) < numbers.gather(at)))
    latest = pl.col("by").rank("ordinal", descending=True).over("turn", "text") <= pl.col("times")
    pairs = pairs.filter(latest)
    others = names.gather(pairs["by"]).ne_missing(names.gather(pairs["turn"]))
    found: dict[int, set[int]] = defaultdict(set)
    for turn_index, speaker in pairs.filter(others).select("turn", "by").iter_rows():
        found[turn_index].add(speaker)
    return found


def _keys(message: LoggedMessage) -> list[str]:
    """Marks by which a message is recognised: its words, the calls that it makes and those that it answers."""
    words = (message.text or "").strip()
    calls = [f"\0{call.id}" for call in message.calls if call.id]
    return ([words] if words else []) + calls + [f"\0{each}" for each in message.answers]


def _within(
    turns: Sequence[TraceTurn], said: Sequence[tuple[int, int, int]], plain: dict[int, set[int]], texts: Sequence[str]
) -> list[tuple[int, int, int]]:
    """(episode, text of a prompt, text that stands within it) for texts that nobody said as they are."""
    spoken: dict[int, dict[int, set[str]]] = defaultdict(lambda: defaultdict(set))
    for episode, turn, words in said:
        if not texts[words].startswith("\0"):
            spoken[episode][words].add(turns[turn].agent or "")
    found: list[tuple[int, int, int]] = []
    for episode, by in spoken.items():
        wholes = [each for each in plain.get(episode, ()) if each not in by]
        long = [each for each in by if len(texts[each]) >= LONG_ENOUGH]
        short = [each for each in by if len(texts[each]) < LONG_ENOUGH]
        if len(wholes) * len(long) <= _FEW:
            found += [(episode, w, each) for w in wholes for each in long if texts[each] in texts[w]]
        else:
            patterns = {texts[each]: each for each in long}
            hits = pl.Series([texts[w] for w in wholes]).str.extract_many(list(patterns), overlapping=True)
            found += [
                (episode, w, patterns[hit])
                for w, many in zip(wholes, hits)
                for hit in (() if many is None else many.unique())
            ]
        for each in short if len(wholes) * len(short) <= _FEW else ():
            word = re.compile(rf"(?<!\w){re.escape(texts[each])}(?!\w)")
            names = [name for name in by[each] if name]
            found += [
                (episode, w, each) for w in wholes if any(name in texts[w] for name in names) and word.search(texts[w])
            ]
    return found
