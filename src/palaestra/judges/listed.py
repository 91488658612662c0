"""A judge that is shown several answers to one task at once and puts them in order: a listwise scorer.

Its score of an answer is the share of the others that it stands before, from 0 (last) to 1 (first). Answers to a task
are the rows of one `prompt`; where there are more than a window holds, windows slide over them (`search.listwise`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import polars as pl

from palaestra.agents.policy import Policy
from palaestra.errors import InputError
from palaestra.judges.asking import Reply
from palaestra.judges.endpoint import Endpoint
from palaestra.judges.judged import Asker, PolicyAsker, asker_of, text_of
from palaestra.judges.protocol import SCORERS
from palaestra.judges.reading import fenced
from palaestra.judges.search import listwise
from palaestra.judges.templates import own_prompts, write_prompt

_LINE = re.compile(r"\border[*_`]*[ \t]*:[*_` \t]*([0-9> \t,]+?)[*_`. \t]*$", re.IGNORECASE | re.MULTILINE)


def read_order(answer: str, count: int) -> list[int] | None:
    r"""Parse an answer's last line `ORDER: 2 > 1` as indices from 0; None unless it names each of `count` answers once.

    >>> read_order("Two is right.\nORDER: 2 > 1 > 3", 3), read_order("ORDER: 2 > 2", 2)
    ([1, 0, 2], None)
    """
    found = _LINE.findall(answer)
    numbers = [int(each) - 1 for each in re.findall("[0-9]{1,6}", found[-1])] if found else []
    return numbers if sorted(numbers) == list(range(count)) else None


class Listed:
    """Listwise scorer: a model orders the answers to each prompt; 1 is the best, 0 the last, null an unreadable order.

    A reference's `response` is shown as an answer that is known to be right; an only answer has 0.5.

    Args:
        question: what is better. asker: whom it asks; None until `bind` gives it the policy.
        window, step: of a list that is longer than a window.
        instructions: see `listed`.
    """

    def __init__(
        self,
        question: str,
        asker: Asker | None = None,
        *,
        policy: str | None = None,
        window: int = 20,
        step: int = 10,
        instructions: str | None = None,
    ) -> None:
        if not 1 <= step <= window or window < 2:
            raise InputError(f"listed: {step=} is from 1 to {window=}, which is at least 2")
        self.question, self.asker, self.policy, self.window, self.step = question, asker, policy, window, step
        self._own = own_prompts(instructions, ("listed",), "listed")
        self.name = asker.name if asker else str(policy or "judge")

    @property
    def asks(self) -> tuple[str, ...]:
        """Names of the recipe's policies that must be bound before scoring."""
        return () if self.policy is None else (self.policy,)

    def bind(self, find: Callable[[str], Asker]) -> None:
        """Find the recipe's policy of this name with `find`, and ask that from now on."""
        for policy in self.asks:
            self.asker = find(policy)

    def score(
        self, rows: pl.DataFrame, *, reference: pl.DataFrame | None = None, condition: pl.DataFrame | None = None
    ) -> pl.Series:
        """One score per row from the model's order of each prompt's rows; a condition is not looked at. See `Scorer`.

        Raises:
            InputError: nobody is there to be asked.
        """
        tasks, texts = text_of(rows, "prompt", needed=False), text_of(rows, "response")
        right = None if reference is None else text_of(reference, "response")
        lists = pl.DataFrame({"task": tasks}).with_row_index("row").group_by("task", maintain_order=True)
        members = [part["row"].to_list() for _, part in lists]
        values = np.full(len(rows), np.nan)

        def asked(shown: Sequence[int]) -> str:
            values = {
                "task": fenced(tasks[shown[0]]) if tasks[shown[0]] else "",
                "reference": fenced(right[shown[0]]) if right else "",
                "answers": [fenced(texts[row]) for row in shown],
                "question": self.question,
            }
            return write_prompt("listed", values, self._own)

        short = [rows_ for rows_ in members if 2 <= len(rows_) <= self.window]
        ordered = list(zip(short, self._orders([(asked(each), len(each)) for each in short]), strict=True))
        for each in members:
            if len(each) == 1:
                values[each] = 0.5
            elif len(each) > self.window:
                ordered.append((each, self._slide(each, asked)))
        for each, order in ordered:
            if order is not None:
                values[np.array(each)[order]] = 1 - np.arange(len(each)) / (len(each) - 1)
        return pl.Series("score", values, nan_to_null=True)

    def _slide(self, rows: Sequence[int], asked: Callable[[Sequence[int]], str]) -> list[int] | None:
        """Order of a long list; None if a window's order cannot be read, and then no further one is asked for."""
        unread = False

        def best_first(places: list[int]) -> list[int]:
            nonlocal unread
            order = None if unread else self._orders([(asked([rows[place] for place in places]), len(places))])[0]
            unread = order is None
            return places if order is None else [places[at] for at in order]

        found = listwise(range(len(rows)), best_first, self.window, self.step)
        return None if unread else found

    def _orders(self, asked: Sequence[tuple[str, int]]) -> list[list[int] | None]:
        if self.asker is None:
            raise InputError(f"listed: the policy {self.policy!r} is not here; give model=… and base_url=…")
        if isinstance(self.asker, PolicyAsker):
            self.asker.reads = [_reader(count) for _, count in asked]
        said: list[Reply] = self.asker.ask([(text, 0) for text, _ in asked]) if asked else []
        return [
            None if reply.text is None or reply.error else read_order(reply.text, count)
            for reply, (_, count) in zip(said, asked, strict=True)
        ]


def _reader(count: int) -> Callable[[str], list[int] | None]:
    return lambda answer: read_order(answer, count)


@SCORERS.register()
def listed(
    question: str = "Which answer is better?",
    *,
    policy: str | Policy | None = None,
    model: str | None = None,
    window: int = 20,
    step: int = 10,
    instructions: str | None = None,
    **endpoint: Any,
) -> Listed:
    """Makes a scorer by a model that orders all answers to a task: `listed("Which is shorter?", policy="judge")`.

    Args:
        question: what is better.
        policy: of the recipe by name, `module:name` of a function of a request, or an object.
        model: name of the model at an `Endpoint`, instead of a policy.
        window: most answers that are shown at once.
        step: places by which the window moves over a longer list.
        instructions: a Jinja template of the question, or its file `….j2`; its variables are those of `listed` in
            `palaestra.judges.templates.KNOWN`.
        **endpoint: further options of `Endpoint`.

    Raises:
        InputError: none or both of policy and model.
    """
    if (policy is None) == (model is None):
        raise InputError("listed: give policy=…, or model=… of an endpoint")
    name = policy if isinstance(policy, str) and ":" not in policy else None
    asker: Asker | None = Endpoint(model, **endpoint) if model is not None else asker_of(policy)
    return Listed(question, asker, policy=name, window=window, step=step, instructions=instructions)
