"""Refinement of one answer by who gave it, with feedback on the best so far ([116], arXiv 2504.01931).

    refine(8, condition="best", feedback="marks", worst=True)

What is read is the question, the best answer so far, the worst one, and feedback on the best. Left out: critiques in
words, which a model writes.
"""

from __future__ import annotations

from itertools import zip_longest
from typing import Any, Literal, get_args

import numpy as np

from palaestra.envs.protocol import EnvFactory
from palaestra.errors import InputError, nearest
from palaestra.teams.deliberation import Deliberation
from palaestra.teams.graph import Graph
from palaestra.teams.rules import Message

Feedback = Literal["nothing", "score", "marks"]


def feedback_on(said: Message, expected: str | None, kind: Feedback) -> str:
    """Feedback text on a `Message` by kind: its score, the text with characters unlike `expected` as `_`, or "".

    Args:
        said: the answer.
        expected: a right one, if one is known.
        kind: "score", the verifier's, with two decimals; "marks", the answer with `_` for each character that is not
            the right one at its place, as a checker of parts tells it; or "nothing".
    """
    if kind == "score":
        return "" if said.score is None else f"{said.score:.2f}"
    if kind == "marks" and expected is not None:
        return "".join("_" if own != right else own for own, right in zip_longest(said.text, expected))
    return ""


class Refinement(Deliberation):
    """Team env (of a `TaskEnv` factory): `Deliberation`; a role that answers again reads feedback on earlier answers.

    Args:
        feedback: what is told of the answer that it goes on from, see `feedback_on`.
        worst: whether its worst answer so far by the verifier is shown, too, if it is another one.

    Raises:
        InputError: there is no such feedback.
    """

    def __init__(
        self, tasks: EnvFactory, graph: Graph, *, feedback: Feedback = "nothing", worst: bool = False, **options: Any
    ) -> None:
        if feedback not in get_args(Feedback):
            raise InputError(f"refine: feedback={feedback!r}{nearest(str(feedback), get_args(Feedback))}")
        super().__init__(tasks, graph, **options)
        self._feedback, self._worst = feedback, worst

    def _notes(self, role: str, own: Message | None) -> list[tuple[str, str]]:
        if own is None or not self.graph.own:
            return []
        notes = []
        if self._worst:
            said = [each for each in self._every if each.role == role]
            worst = min(said, key=lambda each: -np.inf if each.score is None else each.score)
            if worst.text != own.text:
                notes.append(("Worst answer so far", worst.text))
        if told := feedback_on(own, self.inner.answer, self._feedback):
            notes.append(("Feedback on it" if not notes else "Feedback on the best", told))
        return notes
