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


def _word(rng: np.random.Generator, length: int, letters: int, held_out: bool, share: float) -> str:
    """A word of this side of the split; a longer one where none of this length was found."""
    while True:
        for drawn in rng.integers(letters, size=(TRIES, length)):
            word = "".join(ALPHABET[letter] for letter in drawn)
            if is_held_out(task_key(word), share) == held_out:
                return word
        length += 1


@ENVS.register("native/backward")
class Backward(TaskEnv):
    """One-turn env: the question is a word; an answer that begins with the reversed word is paid 1, else 0.

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
        longest: int = 4,
        split: str = "train",
        held_out: float = 0.2,
        examples: bool = True,
    ) -> None:
        """See the class for the arguments."""
        if not 2 <= letters <= len(ALPHABET) or not 1 <= shortest <= longest:
            raise InputError(f"backward: {letters=} must be 2 to 26, and 1 <= shortest={shortest} <= longest={longest}")
        is_held_out(0, held_out)
        self.letters, self.shortest, self.longest = letters, shortest, longest
        self.split, self.held_out, self.examples = split, held_out, examples

    def draw(self, seed: int) -> Task:
        """A word of this split; an empty question in training without examples."""
        test = self.split == "test"
        if not (test or self.examples):
            return Task(f"backward:open-{seed}", "", lambda said: 0.0)
        rng = np.random.default_rng(seed)
        length = int(rng.integers(self.shortest, self.longest + 1))
        return _task(_word(rng, length, self.letters, test, self.held_out))

    def holds_out(self, question: str) -> bool:
        """Whether only "test" asks this word."""
        return bool(is_held_out(task_key(question), self.held_out))


def read_length(text: str, parent: Task, *, longest: int = 4, letters: int = 4, held_out: float = 0.2) -> Task:
    """Makes a `Task` of a proposed length `text`: a word of so many letters, drawn by `parent` (a `Task`) and length.

    Raises:
        ValueError: the text is no number from 1 to `longest`.

    >>> [len(read_length(text, _task("")).question) for text in ("1", "4")]
    [1, 4]
    """
    if not (text.isdecimal() and text.isascii() and 1 <= int(text) <= longest):
        raise ValueError(f"is no number of letters from 1 to {longest}")
    rng = np.random.default_rng([task_key(parent.name), int(text)])
    return _task(_word(rng, int(text), letters, False, held_out))


def read_word(text: str, parent: Task, *, longest: int = 4, letters: int = 4) -> Task:
    """Makes a `Task` of a proposed word, to be reversed (`parent` is ignored); ValueError if the word is not allowed.

    Raises:
        ValueError: it is none of the alphabet's first letters, or too long.

    >>> read_word("cab", _task("")).answer
    'bac'
    """
    if not 1 <= len(text) <= longest or not set(text) <= set(ALPHABET[:letters]):
        raise ValueError(f"is no word of at most {longest} of the letters {ALPHABET[:letters]}")
    return _task(text)


def babble(letters: int = 4, longest: int = 4, words: bool = False) -> Callable[[Any], Action]:
    """Makes a policy function (request -> action): random well-formed answers in `native/backward`, to warm-start.

    A solver says `longest` random letters, whatever is asked; a proposer a random number of letters, or with `words` a
    random word of a random length.
    """

    def play(request: Any) -> Action:
        rng = request.rng
        length = int(rng.integers(1, longest + 1)) if request.agent == "proposer" else longest
        if request.agent == "proposer" and not words:
            return str(length)
        return "".join(ALPHABET[letter] for letter in rng.integers(letters, size=length))

    return play
