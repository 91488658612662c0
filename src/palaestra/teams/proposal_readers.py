"""Readers of proposals: code that makes a task of a text, or says why it is none.

`read(text, parent) -> Task`; a ValueError is the reason. What a reader computes is what makes a task feasible: the
answer it finds is the proof that there is one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

from palaestra.envs.questions import solve
from palaestra.envs.task_keys import task_id, task_key
from palaestra.envs.task_scores import exact, number
from palaestra.envs.tasks import Task
from palaestra.errors import InputError, nearest
from palaestra.foundation.registry import load_object

Reader = Callable[[str, Task], Task]
SOURCE = "proposed"
"""Prefix of the names of proposed tasks."""
STATED = "####"


def solvable(text: str, parent: Task) -> Task:
    """Reads a proposed question as a `Task` if `palaestra.envs.questions.solve` can answer it; else ValueError.

    parent: not used.

    Raises:
        ValueError: it is of no such form, or has no answer.
    """
    answer = solve(text)
    if answer is None:
        raise ValueError("is no question whose answer can be computed")
    return Task(task_id(SOURCE, task_key(text)), text, lambda said: exact(said, answer), answer)


def stated(text: str, parent: Task) -> Task:
    """Reads `question #### answer` as a `Task`, numbers compare as numbers; raises ValueError if a part is missing.

    parent: not used.

    Raises:
        ValueError: one of them is missing.
    """
    question, found, answer = (part.strip() for part in text.rpartition(STATED))
    if not (question and found and answer):
        raise ValueError(f"does not read `question {STATED} answer`")

    def score(said: str) -> float:
        try:
            return number(said, answer)
        except ValueError:
            return exact(said, answer)

    return Task(task_id(SOURCE, task_key(question)), question, score, answer)


READERS: dict[str, Reader] = {"solvable": solvable, "stated": stated}


def reader_of(named: str | Reader) -> Reader:
    """The reader function (proposal text, parent task) -> `Task` of this name or `module:name`; a callable is returned.

    Raises:
        InputError: there is none.
    """
    if callable(named):
        return named
    if ":" in named:
        return cast(Reader, load_object(named, "proposer: read"))
    if named not in READERS:
        raise InputError(f"proposer: read={named!r}{nearest(named, READERS)} (or module:name)")
    return READERS[named]
