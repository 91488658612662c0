"""`Referential`: a speaker names an object, a listener points at one; scripted partners speak codes of their own."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from palaestra.envs.protocol import Observation
from palaestra.envs.registry import ENVS
from palaestra.envs.worlds.native import Chosen, NativeEnv
from palaestra.errors import InputError

SYMBOLS = "abcdefghijklmnopqrstuvwxyz"


@dataclass
class _ReferentialState:
    target: int
    word: int | None = None
    over: bool = False


@ENVS.register("native/referential")
class Referential(NativeEnv):
    """Referential game env: `speaker` sees an object and says a word, `listener` picks an object; both paid 1 if equal.

    Objects are all combinations of attributes, and there are as many words: one symbol per attribute, with symbols of
    its own. In the human code symbol k of a word is value k of the attribute. Any other bijection does as well, so
    what a word means is a convention between two players.

    Both seats see arrays of one form and have the same choices, words then objects, of which only their own are legal:
    one network can sit in both. The array is one-hot: the object's values, then the word's symbols; what a seat does
    not see is 0. facts: target, message, numbers of the object and of the word said (missing, if none was said);
    agrees, whether it is the human code's word.

    Args:
        values: how many values each attribute has; (2, 4) are 8 objects.

    Raises:
        InputError: an attribute has fewer than one value, or there are more than 26 values in all, or one object.
    """

    agents: tuple[str, ...] = ("speaker", "listener")
    facts = {"target": int, "message": int, "agrees": bool}

    def __init__(self, *, values: Sequence[int] = (2, 4)) -> None:
        if not values or min(values) < 1 or sum(values) > len(SYMBOLS) or math.prod(values) < 2:
            raise InputError(f"Referential: values={values}: at least 1 each, 26 in all, and 2 objects are needed")
        self.values = tuple(values)
        self.objects = np.array(list(itertools.product(*map(range, self.values))))
        self.size = len(self.objects)
        starts = np.cumsum([0, *self.values[:-1]])
        words = ["".join(SYMBOLS[at] for at in row) for row in (self.objects + starts).tolist()]
        things = ["object " + ",".join(map(str, row)) for row in self.objects.tolist()]
        self.choices = (*words, *things)
        self.one_hot = np.zeros((self.size, sum(self.values)), np.float32)
        np.put_along_axis(self.one_hot, self.objects + starts, 1.0, axis=1)

    def begin(self) -> tuple[str, _ReferentialState]:
        """Draw the object."""
        target = int(self.rng.integers(self.size))
        return self.choices[self.size + target], _ReferentialState(target)

    def look(self) -> dict[str, Observation]:
        """The speaker sees the object, then the listener the word; without a word it sees zeros."""
        state, nothing = self.state, np.zeros(sum(self.values), np.float32)
        if state.over:
            return {}
        mask = np.arange(2 * self.size) < self.size
        if state.word is None:
            seen, text = np.concatenate([self.one_hot[state.target], nothing]), self.choices[self.size + state.target]
            return {"speaker": Observation(f"name {text}", self.choices, mask, seen)}
        heard = nothing if state.word < 0 else self.one_hot[state.word]
        text = "nothing was said" if state.word < 0 else f"the speaker said {self.choices[state.word]}"
        return {"listener": Observation(text, self.choices, ~mask, np.concatenate([nothing, heard]))}

    def play(self, chosen: Chosen) -> tuple[dict[str, float], dict[str, Any]]:
        """Record the speaker's word, or take the listener's object and pay both."""
        state = self.state
        if state.word is None:
            said = chosen["speaker"]
            state.word = -1 if said is None else int(said)
            message = None if state.word < 0 else state.word
            return {"speaker": 0.0}, {"target": state.target, "message": message, "agrees": message == state.target}
        state.over = True
        right = chosen["listener"] == self.size + state.target
        message = None if state.word < 0 else state.word
        told = {"target": state.target, "message": message, "agrees": message == state.target, "success": right}
        return dict.fromkeys(self.agents, float(right)), told


def meanings(number: int, size: int, shared: int = 0) -> np.ndarray:
    """Permutation from object to word in code `number`, int64[size]: 0 is the identity; the first `shared` words stay.

    Args:
        number: of the code, from which the permutation is drawn.
        size: number of objects.
        shared: the first so many objects have their human word in every code.

    Example:
        >>> meanings(0, 4).tolist(), sorted(meanings(3, 4, shared=2)[:2].tolist())
        ([0, 1, 2, 3], [0, 1])
    """
    found = np.arange(size)
    if number:
        found[shared:] = np.random.default_rng([number, 117]).permutation(found[shared:])
    return found


def coder(request: Any, *, number: int | None = 0, noise: float = 0.0, shared: int = 0) -> str:
    """Action (str) for a request in `native/referential`: word of an object seen, or object of a word; code `number`.

    Both by a code; see the script `code`.
    """
    seen = request.observation
    choices, size = seen.choices or (), len(seen.choices or ()) // 2
    told = next((at for at, name in enumerate(choices) if seen.text.endswith(f" {name}")), -1)
    speaks = told >= size
    if told < 0 or request.rng.random() < noise:
        return str(seen.legal[int(request.rng.integers(size))])
    code = meanings(int(request.rng.integers(1, 2**31)) if number is None else number, size, shared)
    return str(choices[code[told - size]] if speaks else choices[size + int(np.argsort(code)[told])])
