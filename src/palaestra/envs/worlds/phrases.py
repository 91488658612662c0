"""`Phrases`: tasks out of a small grammar, from one word to many; words are shared, so what short ones teach helps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from palaestra.envs.protocol import Observation
from palaestra.envs.registry import ENVS
from palaestra.envs.worlds.native import Chosen, NativeEnv
from palaestra.errors import InputError


@dataclass
class _PhrasesState:
    words: tuple[int, ...]
    done: int = 0
    over: bool = False


@ENVS.register("native/phrases")
class Phrases(NativeEnv):
    """Env of word sequences: `doer` sees a phrase and picks an action per word; paid 1 if none is wrong.

    One wrong action ends it.

    A phrase has up to `longest` words; reward 1 for all of them.
    A wrong action ends the episode. Of `words` words the last `dead` have no right action: a phrase with one of them
    cannot be done. Which action is right is drawn from `draw`. Tasks that are drawn have at least `shortest` words. The
    phrase is read off the reset seed, and small seeds stand for all phrases, so that tasks can be made of tasks:
    `vary` gives the seed of a similar one, `feasible` says whether one can be done at all; `failure_tasks` asks both.
    features: the word and the one before it, not the task.

    An outcome model that errs in a share `errs` of the episodes says at the end whether it was done: P(yes) is evenly
    drawn from [.5, 1] for yes and from [0, .5) for no.

    facts: right, whether the action was; gold, the right one, null at a dead word; length, of the phrase; yes, P(yes).
    """

    agents: tuple[str, ...] = ("doer",)
    facts = {"right": bool, "gold": str, "length": int, "yes": float}

    def __init__(
        self,
        *,
        longest: int = 8,
        shortest: int = 1,
        words: int = 6,
        actions: int = 6,
        dead: int = 0,
        errs: float = 0.0,
        draw: int = 0,
    ) -> None:
        if not 1 <= shortest <= longest or actions < 2 or not 0 <= dead < words:
            raise InputError(
                f"Phrases: 1 <= shortest={shortest} <= longest={longest}, actions={actions} >= 2, "
                f"0 <= dead={dead} < words={words}"
            )
        if not 0 <= errs <= 1:
            raise InputError(f"Phrases: errs={errs} must be in [0, 1]")
        self.small = longest * words**longest
        if self.small > 2**26:
            raise InputError(f"Phrases: longest={longest} and words={words} make {self.small} phrases; at most 2**26")
        self.longest, self.words, self.dead, self.errs = longest, words, dead, errs
        self.shortest = shortest
        self.choices = tuple(f"do {number}" for number in range(actions))
        self.table = np.random.default_rng(draw).integers(actions, size=(words + 1, words))
        self.table[:, words - dead :] = -1

    def phrase(self, seed: int) -> tuple[int, ...]:
        """The words of the phrase that a seed stands for."""
        rest, length = divmod(seed, self.longest)
        if seed >= self.small:
            rest, more = divmod(seed, self.longest - self.shortest + 1)
            length = self.shortest + more - 1
        found = []
        for _ in range(length + 1):
            rest, word = divmod(rest, self.words)
            found.append(word)
        return tuple(found)

    def seed_of(self, words: tuple[int, ...]) -> int:
        """The smallest seed that stands for a phrase."""
        number = 0
        for word in reversed(words):
            number = number * self.words + word
        return number * self.longest + len(words) - 1

    def vary(self, seed: int, rng: np.random.Generator) -> int:
        """The seed of a similar phrase: one word changed, or the phrase cut off or one word longer."""
        words = list(self.phrase(seed))
        if rng.random() < 0.5:
            words[int(rng.integers(len(words)))] = int(rng.integers(self.words))
        else:
            length = int(rng.integers(1, len(words) + 2))
            words = [*words, int(rng.integers(self.words))][: min(length, self.longest)]
        return self.seed_of(tuple(words))

    def feasible(self, seed: int) -> bool:
        """Whether every word has a right action."""
        return max(self.phrase(seed)) < self.words - self.dead

    def reset(self, seed: int) -> Any:
        """Begin the phrase of `seed`."""
        self._drawn = self.phrase(seed)
        return super().reset(seed)

    def begin(self) -> tuple[str, _PhrasesState]:
        """Start the drawn phrase."""
        return "phrase " + " ".join(f"w{each}" for each in self._drawn), _PhrasesState(self._drawn)

    def look(self) -> dict[str, Observation]:
        """Observation of the doer: the phrase, the position in it, and the word before."""
        state = self.state
        if state.over:
            return {}
        word, before = self._place()
        said = " ".join(f"w{each}" for each in state.words)
        after = f"w{before}" if state.done else "nothing"
        text = f"{len(state.words)}-words {said} : at {state.done} now w{word} after {after}"
        seen = np.zeros(2 * self.words + 1, np.float32)
        seen[word] = seen[self.words + before] = 1
        return {"doer": Observation(text, choices=self.choices, array=seen)}

    def _place(self) -> tuple[int, int]:
        """The word, and the one before it; as many as there are words: none."""
        words, done = self.state.words, self.state.done
        return words[done], words[done - 1] if done else self.words

    def play(self, chosen: Chosen) -> tuple[dict[str, float], dict[str, Any]]:
        """Take the action for one word."""
        state = self.state
        word, before = self._place()
        gold = int(self.table[before, word])
        right = chosen["doer"] == gold
        state.done += right
        solved = state.done == len(state.words)
        state.over = solved or not right
        info: dict[str, Any] = {"right": right, "gold": self.choices[gold] if gold >= 0 else None}
        info["length"] = len(state.words)
        if state.over:
            said = solved ^ bool(self.rng.random() < self.errs)
            info["yes"] = 0.5 * float(self.rng.random()) + 0.5 * said
        return ({"doer": float(solved)}, info | {"success": solved}) if state.over else ({}, info)
