"""`Backward`: a word of a few letters, to be said backward. The longer the word, the harder the task.

The smallest grammar in which tasks can be proposed: every word is a task, and its answer is computed. Left out: words
with a meaning.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from palaestra.envs.protocol import Action
from palaestra.envs.registry import ENVS
from palaestra.envs.task_keys import is_held_out, task_id, task_key
from palaestra.envs.tasks import Task, TaskEnv
from palaestra.errors import InputError

ALPHABET = "abcdefghijklmnopqrstuvwxyz"
TRIES = 64


def _task(word: str) -> Task:
    answer = word[::-1]
    return Task(task_id("backward", task_key(word)), word, lambda said: float(said.startswith(answer)), answer)


@ENVS.register("native/backward")
class Backward(TaskEnv):
    """The question is a word; the same word backward scores 1, anything else 0.

    Lengths are equally likely, and so are letters. A share of the words is held out by a hash of their text. In
    training without `examples` nothing is asked: tasks are those that a seat proposes (workflow `proposer`).

    Args:
        letters: how many of the alphabet there are.
        shortest: fewest letters of a word.
        longest: most letters of a word.
        split: "train" or "test".
        held_out: share of the words that only "test" asks.
        examples: whether training asks words of its own.
    """

    def __init__(
        self,
        *,
        letters: int = 4,
        shortest: int = 1,
        longest: int = 6,
        split: str = "train",
        held_out: float = 0.2,
        examples: bool = True,
    ) -> None:
        """See the class for the arguments."""
        if not 2 <= letters <= len(ALPHABET) or not 1 <= shortest <= longest:
            raise InputError(f"backward: {letters=} must be 2 to 26, and 1 <= shortest={shortest} <= longest={longest}")
        is_held_out(0, held_out)
        self.alphabet, self.shortest, self.longest = ALPHABET[:letters], shortest, longest
        self.split, self.held_out, self.examples = split, held_out, examples

    def draw(self, seed: int) -> Task:
        """A word of this split; an empty question in training without examples."""
        if self.split == "train" and not self.examples:
            return Task("backward:open", "", lambda said: 0.0)
        rng = np.random.default_rng(seed)
        length = int(rng.integers(self.shortest, self.longest + 1))
        while True:  # of few short words none may be held out: then a longer one is asked
            for letters in rng.integers(len(self.alphabet), size=(TRIES, length)):
                word = "".join(self.alphabet[letter] for letter in letters)
                if self.holds_out(word) == (self.split == "test"):
                    return _task(word)
            length += 1

    def holds_out(self, question: str) -> bool:
        """Whether only "test" asks this word."""
        return bool(is_held_out(task_key(question), self.held_out))


def word_reader(longest: int = 6, letters: int = 4) -> Callable[[str, Task], Task]:
    """Reader of proposals: a word of the alphabet's first letters is a task.

    >>> word_reader(longest=3)("cab", _task("")).answer
    'bac'
    """

    def read(text: str, parent: Task) -> Task:
        if not 1 <= len(text) <= longest or not set(text) <= set(ALPHABET[:letters]):
            raise ValueError(f"is no word of at most {longest} of the letters {ALPHABET[:letters]}")
        return _task(text)

    return read


read_word = word_reader()
"""With the defaults of `Backward`."""


def babble(letters: int = 4, shortest: int = 1, longest: int = 6) -> Callable[[Any], Action]:
    """Scripted play that says random letters, whatever is asked: a warm start on how words look, and on no task.

    A proposer says words of any length, a solver as many letters as the longest has.
    """

    def play(request: Any) -> Action:
        rng = request.rng
        length = int(rng.integers(shortest, longest + 1)) if request.agent == "proposer" else longest
        return "".join(ALPHABET[letter] for letter in rng.integers(letters, size=length))

    return play
