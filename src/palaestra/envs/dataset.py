"""Questions of a file or a hub: a table of tasks that somebody else made, one question an episode.

    env: {make: dataset, options: {path: gsm8k.jsonl, prompt: question, answer: answer, score: number}}

A question is for training or held out by the key of its normalised text (`palaestra.envs.task_keys`); one that was
proposed from another is on the side of its earliest ancestor. Left out: several turns, tools and files of a question.
"""

from __future__ import annotations

import functools
import re
from typing import Literal

import numpy as np

from palaestra.envs.protocol import EnvFactory
from palaestra.envs.task_files import LETTERS, Columns, Duplicates, TaskFile, open_tasks, state_of
from palaestra.envs.task_keys import is_held_out, normalise, task_id, task_key
from palaestra.envs.task_scores import SAYS, score_of
from palaestra.envs.tasks import Task, TaskEnv
from palaestra.errors import InputError, nearest

Split = Literal["train", "test", "all"]
_CHOICES = re.compile(r"(?:\n[A-Z]\) .*)+\Z")
SPLITS = ("train", "test", "all")


class DatasetEnv(TaskEnv):
    """One-turn env that asks the questions of a task file; the reset seed modulo their number selects the question.

    task: `name:key`, of file and text.
    """

    def __init__(
        self,
        path: str,
        *,
        prompt: str = "prompt",
        answer: str = "answer",
        choices: str | None = None,
        parent: str | None = None,
        id: str | None = None,
        score: str = "exact",
        split: Split = "train",
        held_out: float | str = 0.2,
        duplicates: Duplicates = "refuse",
        threshold: float = 1.0,
    ) -> None:
        """See `dataset` for the arguments."""
        for found, known in ((split, SPLITS), (duplicates, ("refuse", "drop"))):
            if found not in known:
                raise InputError(f"dataset: {found!r} is not one of {', '.join(known)}{nearest(found, known)}")
        self._says = SAYS.get(score, normalise)
        self._score, self.threshold, self.split = score_of(score), threshold, split
        self._name = path.rpartition("/")[2].partition("?")[0].rpartition(".")[0] or path.rpartition("/")[2]
        states = tuple(state_of(each) for each in (path, held_out) if isinstance(each, str))
        columns = Columns(prompt, answer, choices, parent, id)
        self.file, self.places = _side(path, columns, split, held_out, duplicates, states)
        self._held = np.sort(open_tasks(held_out, columns.asked()).keys) if isinstance(held_out, str) else held_out

    def draw(self, seed: int) -> Task:
        """The question at position `seed` modulo the number of questions of the split."""
        place = int(self.places[seed % len(self.places)])
        question, answer, choices = self.file.row(place)
        if choices:
            question = "\n".join([question, *(f"{letter}) {text}" for letter, text in zip(LETTERS, choices))])
        name = task_id(self._name, int(self.file.keys[place]))
        return Task(name, question, lambda said: self._score(said, answer), answer, says=self._says)

    def holds_out(self, question: str) -> bool:
        """Whether a question, of the file or not, with its choices or without, belongs to the held-out split."""
        key = task_key(_CHOICES.sub("", question))
        same = np.flatnonzero((self.file.keys == np.uint64(key)) & (self.file.parents > 0))
        if len(same):
            key = int(self.file.roots()[same[0]])
        if isinstance(self._held, np.ndarray):
            at = int(np.searchsorted(self._held, np.uint64(key)))
            return at < len(self._held) and int(self._held[at]) == key
        return bool(is_held_out(key, self._held))


@functools.lru_cache(16)
def _side(
    path: str, columns: Columns, split: str, held_out: float | str, duplicates: Duplicates, states: tuple[str, ...]
) -> tuple[TaskFile, np.ndarray]:
    """File and places of a split; remembered as long as the files are in these states."""
    file = open_tasks(path, columns)
    other = open_tasks(held_out, columns.asked()) if isinstance(held_out, str) else file
    _check_parents(columns, file, other)
    places = file.places(duplicates, columns.prompt)
    if split == "all":
        return file, places
    if isinstance(held_out, str):
        check_apart(file, other)
        return (file, places) if split == "train" else (other, other.places(duplicates, columns.prompt))
    outside = is_held_out(file.roots(), held_out)[places]
    chosen = places[outside if split == "test" else ~outside]
    if not len(chosen):
        raise InputError(
            f"{path}: none of its {len(places)} tasks is of the {split} split with held_out={held_out}; "
            "take another share, or give a file of held-out tasks: held_out: test.jsonl"
        )
    return file, chosen


def _check_parents(columns: Columns, file: TaskFile, other: TaskFile) -> None:
    """Raises InputError if most parents look like ids and are neither of these files.

    A text may well be of a third file, but of an id nobody knows on which side its task is.
    """
    if not file.parents.any():
        return
    lost = file.an_id & ~np.isin(file.parents, np.concatenate([file.keys, other.keys, other.ids]))
    if 2 * lost.sum() > (file.parents > 0).sum():
        raise InputError(
            f"{file.line(int(np.argmax(lost)))}: its parent, and that of {lost.sum()} rows in all, is no task that is "
            f"there; if column {columns.parent!r} holds ids, write id: and the column with the ids of the tasks"
        )


def check_apart(trained: TaskFile, held_out: TaskFile) -> None:
    """Raises InputError if a task of `trained` (`TaskFile`) is in `held_out` (by normalised text) or proposed from one.

    Raises:
        InputError: one is; names both rows and the fix.
    """
    held = np.sort(held_out.keys)
    for keys, said in ((trained.keys, "is"), (held_out.named(trained.parents), "is proposed from")):
        at = np.minimum(np.searchsorted(held, keys), len(held) - 1)
        found = np.flatnonzero(held[at] == keys)
        if len(found):
            place = int(np.flatnonzero(held_out.keys == keys[found[0]])[0])
            raise InputError(
                f"{trained.line(int(found[0]))}: {said} a held-out task, {held_out.path}, row {place + 1}, "
                f"and {len(found)} rows in all; remove them from {trained.path}"
            )


def dataset(
    path: str,
    *,
    prompt: str = "prompt",
    answer: str = "answer",
    choices: str | None = None,
    parent: str | None = None,
    id: str | None = None,
    score: str = "exact",
    split: Split = "train",
    held_out: float | str = 0.2,
    duplicates: Duplicates = "refuse",
    threshold: float = 1.0,
) -> EnvFactory:
    """Env factory of one-turn questions from a task file (JSONL, Parquet, Hub), which is read and checked at once.

    Args:
        path: `tasks.jsonl`, `tasks.parquet`, or `hf://owner/name?config=main&split=train` (extra `data`).
        prompt: column of the question.
        answer: column of a right answer, which is no text but JSON where it is a number.
        choices: column with a list of choices, or `{"text": [...], "label": [...]}`, shown with letters from A; the
            answer is a label, a choice, its letter, or its place from 0.
        parent: column with the task that a task was proposed from: its text, its name `SOURCE:HEX`, or its id.
        id: column with ids of tasks, if `parent` holds such.
        score: how an answer is scored: "exact", "number", "math" (extra `math`), "choice", or `module:name`, a function
            of (answer, expected).
        split: "train", "test" (what is held out) or "all".
        held_out: share of tasks that are held out, by the key of their text; or a file of them, of which none may be
            in `path`.
        duplicates: tasks that say the same are refused, or all but the first are dropped ("drop").
        threshold: the least score that counts as success.

    Raises:
        InputError: a column, a row or an argument is wrong; names it and the fix.
    """
    factory = functools.partial(
        DatasetEnv, path, prompt=prompt, answer=answer, choices=choices, parent=parent, id=id, score=score,
        split=split, held_out=held_out, duplicates=duplicates, threshold=threshold,
    )  # fmt: skip
    factory()
    return factory
