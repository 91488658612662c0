"""Labels for messages, from a model that is slower than the game: a table, a queue, the newest first.

The rollout never waits: a message that has no label yet has none, and is queued; or gets that of a classifier of words,
where ONI trains a network of characters. Left out: its ranked variant (`rewards.pairs` fits pairwise preferences).
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence

import polars as pl

from palaestra.agents.policy import Policy
from palaestra.algebra.turns import Turns
from palaestra.errors import InputError
from palaestra.judges.asking import AnswerCache, ask
from palaestra.judges.reading import fenced
from palaestra.judges.templates import own_prompts, write_prompt


class MessageLabels:
    """Queue and cache of labels, 1 if a message shows progress to `goal`: `get` queues, `work` asks a policy; ONI [9].

    batch: most messages per call of `work`. The newest are asked about first, so that labels follow the policy's
    frontier. cache: where answers are remembered, so that nothing is asked twice, also after a restart. distilled: a
    message without a label gets what `distil` makes of the labels that are there; it is queued all the same.
    instructions: a Jinja template of the question, or its file `….j2`.
    """

    def __init__(
        self,
        goal: str,
        *,
        batch: int = 64,
        cache: AnswerCache | None = None,
        distilled: bool = False,
        instructions: str | None = None,
    ) -> None:
        self._own = own_prompts(instructions, ("message",), "MessageLabels")
        if batch < 1:
            raise InputError(f"MessageLabels: {batch=} must be at least 1")
        self.goal, self.batch, self.distilled = goal, batch, distilled
        self.cache = AnswerCache() if cache is None else cache
        self.labels: dict[str, float] = {}
        self.pending: dict[str, None] = {}

    def get(self, messages: Sequence[str | None]) -> list[float | None]:
        """Labels known so far, None for messages without one; those are queued, the latest as the newest."""
        for message in messages:
            if message is not None and message not in self.labels:
                self.pending.pop(message, None)
                self.pending[message] = None
        unknown = [message for message in dict.fromkeys(messages) if message is not None and message not in self.labels]
        guessed = distil(self.labels, unknown) if self.distilled and self.labels else {}
        known = {**self.labels, **guessed}
        return [None if message is None else known.get(message) for message in messages]

    def add(self, turns: Turns, *, message: str = "observation", column: str = "label") -> Turns:
        """The table with a column of the labels known so far; missing for messages that have none yet."""
        ordered = turns[message].cast(pl.String).to_list()
        return turns.with_column(**{column: pl.Series(self.get(ordered), dtype=pl.Float64)})

    def work(self, policy: Policy) -> int:
        """Ask the policy about the newest `batch` of the queue; returns how many got a label. Failed ones stay."""
        newest = [self.pending.popitem()[0] for _ in range(min(self.batch, len(self.pending)))]
        asked = [{"goal": self.goal, "message": fenced(message)} for message in newest]
        prompts = [(write_prompt("message", each, self._own), 0) for each in asked]
        answers = dict(zip(newest, ask(policy, prompts, read_label, cache=self.cache), strict=True))
        self.labels |= {message: label for message, label in answers.items() if label is not None}
        failed = [message for message, label in answers.items() if label is None]
        self.pending = dict.fromkeys([*reversed(failed), *self.pending])
        return len(newest) - len(failed)


def distil(labels: Mapping[str, float], messages: Sequence[str]) -> dict[str, float]:
    """Dict message -> label 0 or 1 of the texts `messages`, by naive Bayes on the words of those in dict `labels`.

    >>> distil({"the door opens": 1.0, "a wall": 0.0, "a rock": 0.0}, ["the gate opens", "a tree"])
    {'the gate opens': 1.0, 'a tree': 0.0}
    """
    counts: dict[bool, Counter[str]] = {True: Counter(), False: Counter()}
    number = Counter(label > 0.5 for label in labels.values())
    for message, label in labels.items():
        counts[label > 0.5].update(words_of(message))
    size = len({*counts[True], *counts[False]})
    found = {}
    for message in messages:
        chance = {
            kind: math.log((number[kind] + 1) / (len(labels) + 2))
            + sum(math.log((words[word] + 1) / (words.total() + size + 1)) for word in words_of(message))
            for kind, words in counts.items()
        }
        found[message] = float(chance[True] > chance[False])
    return found


def words_of(text: str) -> list[str]:
    """List of the words of a text in lower case, in order."""
    return re.findall(r"\w+", text.casefold())


def read_label(text: str) -> float | None:
    r"""Parse an answer's last line with `LABEL:` as a float; None unless it says 0 or 1 and nothing else.

    >>> read_label("It opens a door.\n**LABEL: 1**"), read_label("LABEL: 0.8")
    (1.0, None)
    """
    found = re.findall(r"LABEL:(.*)", text, re.IGNORECASE)
    said = found[-1].strip(" \t\r*_`.") if found else ""
    return float(said) if said in ("0", "1") else None
