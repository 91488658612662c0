"""Shared parts of the adapters: reading actions, arrays as text, and global random state kept local.

Left out: continuous action spaces; every adapter here offers numbered or free-text actions.
"""

from __future__ import annotations

import functools
import random
import re
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Literal

import numpy as np

from palaestra.envs.protocol import Action, Observation
from palaestra.errors import EnvError, InputError, nearest

Illegal = Literal["lose", "random"]
"""After an illegal action: the episode ends at the offender's cost, or a random legal action is played instead."""

LONGEST = 1000
"""Arrays with more numbers than this are not spelled out in `Observation.text`."""


def check_illegal(illegal: str) -> None:
    """Raises InputError unless `illegal` is "lose" or "random", the two ways to treat illegal actions."""
    if illegal not in ("lose", "random"):
        raise InputError(
            f"illegal={illegal!r} is not a way to treat illegal actions{nearest(illegal, ['lose', 'random'])}"
        )


def read_turn(actions: Mapping[str, Action], turn: Mapping[str, Observation]) -> dict[str, int | None]:
    """Ids of a turn's `actions` by its observations, {agent: id, None if illegal}; EnvError unless just the asked act.

    Raises:
        EnvError: the actions are not those of exactly the agents that were last observed.
    """
    if actions.keys() != turn.keys():
        raise EnvError(f"actions of {sorted(actions)} were given, but the agents to act are {sorted(turn)}")
    return {agent: seen.index(actions[agent]) for agent, seen in turn.items()}


class Slips:
    """Random generator of one episode that draws a legal action id in place of an illegal action.

    They have a stream of their own, so that an illegal action does not shift the env's other randomness.
    """

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._rng: np.random.Generator | None = None

    def legal(self, seen: Observation) -> int:
        """A legal action id, drawn uniformly."""
        if self._rng is None:
            self._rng = np.random.default_rng((self._seed, 1))
        options = range(len(seen.choices or ())) if seen.mask is None else np.flatnonzero(seen.mask)
        return int(options[self._rng.integers(len(options))])


def describe(value: Any) -> str:
    """A short text form of an observation: `0110` for bits, numbers with up to three decimals otherwise.

    >>> describe(np.array([[0.0, 1.0], [1.0, 0.0]])), describe((14, 10, 0)), describe(np.float32(0.12345))
    ('0110', '14 10 0', '0.123')
    """
    if isinstance(value, Mapping):
        return " ".join(f"{key}:{describe(value[key])}" for key in value)
    if isinstance(value, tuple | list):
        return " ".join(describe(part) for part in value)
    if isinstance(value, str | int):
        return str(value)
    array = np.asarray(value)
    if array.size > LONGEST:
        return f"array {'x'.join(map(str, array.shape))}"
    flat = array.ravel()
    if array.size > 1 and ((flat == 0) | (flat == 1)).all():
        return flat.astype(np.uint8).tobytes().translate(_BITS).decode()
    return " ".join([f"{number:.3f}".rstrip("0").rstrip(".") for number in flat.tolist()])


_BITS = bytes([48, 49]) + bytes(254)


class _Turnstile:
    """One thread at a time, which may enter more than once."""

    def __init__(self) -> None:
        self._free = threading.Condition()
        self._inside: threading.Thread | None = None
        self._block: isolated | None = None
        self._depth = 0

    def enter(self, block: isolated) -> isolated | None:
        """The block of whoever was left behind in it, who will not put the former state back."""
        me = threading.current_thread()
        with self._free:
            while self._inside not in (None, me) and not getattr(self._inside, "abandoned", False):
                self._free.wait(0.05)
            if self._inside is me:
                self._depth += 1
                return None
            left, self._block, self._inside, self._depth = self._block, block, me, 1
            return left

    def mine(self) -> bool:
        return self._inside is threading.current_thread()

    def leave(self) -> None:
        with self._free:
            self._depth -= 1
            if not self._depth:
                self._inside = self._block = None
                self._free.notify()


_INSIDE = _Turnstile()


class isolated:
    """Context manager that seeds Python's global generator for a block and restores its state afterwards.

    For libraries that draw from `random`; about 14 microseconds. `numpy=True` adds NumPy's global generator (50 more).
    The generators are global, so one thread at a time is inside such a block, and the others wait for it; but not for
    one that was left behind because it hangs (`thread.abandoned`), which puts nothing back when it wakes up.
    """

    __slots__ = ("_numpy", "_numpy_state", "_python_state", "_seed")

    def __init__(self, seed: int, *, numpy: bool = False) -> None:
        self._seed = seed
        self._numpy = numpy
        self._python_state: Any = None
        self._numpy_state: Any = None

    def __enter__(self) -> None:
        left = _INSIDE.enter(self)
        self._python_state = left._python_state if left else random.getstate()
        random.seed(self._seed)
        if left and left._numpy:
            self._numpy = True
        if self._numpy:
            self._numpy_state = left._numpy_state if left and left._numpy else np.random.get_state()  # noqa: NPY002
            np.random.seed(self._seed % 2**32)  # noqa: NPY002

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not _INSIDE.mine():
            return
        random.setstate(self._python_state)
        if self._numpy:
            np.random.set_state(self._numpy_state)  # noqa: NPY002
        _INSIDE.leave()


@functools.cache
def source_mentions(module: str, pattern: str) -> bool:
    """Whether a regular expression matches the source of a loaded module or its submodules; True without source.

    It answers "may this draw from a global generator?" without running it; where there is no source the answer is yes.
    """
    found = [value for name, value in sys.modules.items() if name == module or name.startswith(module + ".")]
    files = [getattr(value, "__file__", None) or "" for value in found]
    if not all(file.endswith(".py") for file in files):
        return True
    return any(re.search(pattern, Path(file).read_text(encoding="utf-8")) for file in files)


NUMPY_RANDOM = r"\b(np|numpy)\.random\b"
