"""`archetypes`: one seat speaks for all people with the same attributes, and each of them draws by its answer.

    archetypes(by=["age", "job"])                a call for each group whose question is new
    archetypes(by=["age"], copies=5)             five calls, whose mean is the answer
    archetypes(by=[])                            one seat for everybody

The archetypes of AgentTorch [87] (arXiv 2409.10568). Left out: attributes with weights, and memories of archetypes.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from palaestra.envs.facts import facts_of
from palaestra.envs.protocol import Action, EnvFactory, Observation, StepResult
from palaestra.errors import EnvError, InputError, nearest


class Crowd(Protocol):
    """Protocol of an env of many simulated people, for `ArchetypeEnv`: their attributes, questions, answers and steps.

    Attributes:
        attributes: The values that each attribute of a person may have.
    """

    agents: tuple[str, ...]
    task: str
    attributes: Mapping[str, tuple[str, ...]]

    @property
    def people(self) -> Mapping[str, np.ndarray]:
        """Index of every person's value in each of `attributes`, int[people]; after `start`."""

    @property
    def over(self) -> bool:
        """Whether the episode has ended."""

    def start(self, seed: int) -> None:
        """Begin the episode of `seed`."""

    def seen(self) -> np.ndarray:
        """Observations of all people now, float64[people, features]."""

    def question(self, key: Mapping[str, str], size: int, seen: np.ndarray) -> Observation:
        """The question to a group of `size` people with these attributes; `seen`: the mean of what they see."""

    def read(self, action: Action | None) -> float | None:
        """Parse an answer as a probability; None if it cannot be read."""

    def advance(self, rates: np.ndarray) -> tuple[np.ndarray, dict[str, Any]]:
        """Simulate a step in which people act by their rates, float64[people]; returns rewards and facts."""


class ArchetypeEnv:
    """Env over a `Crowd` with one seat per group of people of equal attributes `by`, which answers for all of them.

    In every step a group's question is written of what its members see on average. A question that the group was
    asked before in this episode is not asked again: its answer is known. Who is not asked does not act; if nobody is,
    the steps go on. An answer is a probability, by which every member draws for itself. With `copies`, several seats
    are asked the same, and the mean of the answers counts. An answer that cannot be read leaves the mean, and its
    turn is not `valid`; if none of a group's can be, the group goes on as before and is asked again.

    A seat is paid the mean over its members, also for steps in which it was not asked.

    Args:
        env: Makes the crowd.
        by: Names of attributes; none: everybody is one group.
        copies: Seats of a group.

    facts: those of `env`; asked, number of seats that were asked in this step; members, of the seat's group; rate, the
    probability that its group draws by.

    Raises:
        InputError: `env` is no crowd, an attribute is unknown, or there are no copies.
    """

    def __init__(self, env: EnvFactory, *, by: Sequence[str], copies: int = 1) -> None:
        crowd: Any = env()
        known = getattr(crowd, "attributes", None)
        if known is None or not hasattr(crowd, "advance"):
            raise InputError(f"archetypes: {type(crowd).__name__} has no columns of people; `native/epidemic` has")
        if isinstance(by, str) or copies < 1 or len(set(by)) < len(by):
            raise InputError(f"archetypes: by={by!r} must be a list of different names, copies={copies} at least 1")
        for name in by:
            if name not in known:
                raise InputError(f"archetypes: unknown attribute {name!r}{nearest(name, known)}")
        self.inner: Crowd = crowd
        self.by, self.copies, self.task = tuple(by), copies, ""
        self.sizes = tuple(len(known[name]) for name in self.by)
        self.keys = [
            {name: known[name][place] for name, place in zip(self.by, places, strict=True)}
            for places in np.ndindex(*self.sizes)
        ]
        labels = ["-".join(key.values()) or "everybody" for key in self.keys]
        self.seats = [[f"{label}#{k}" if copies > 1 else label for k in range(copies)] for label in labels]
        self.agents: tuple[str, ...] = tuple(seat for group in self.seats for seat in group)
        self.facts: dict[str, Any] = {**facts_of(crowd), "asked": int, "members": int, "rate": float}

    def reset(self, seed: int) -> Mapping[str, Observation]:
        """Begin the episode, and ask every group that has a member."""
        self.inner.start(seed)
        self.task = self.inner.task
        codes = [self.inner.people[name] for name in self.by]
        size = len(self.inner.agents)
        self.group = np.ravel_multi_index(codes, self.sizes) if codes else np.zeros(size, int)
        self.members = np.bincount(self.group, minlength=len(self.keys))
        self.rates = np.zeros(len(self.keys))
        self._known: dict[tuple[int, str], float] = {}
        return self._ask()

    def step(self, actions: Mapping[str, Action]) -> StepResult:
        """Take the groups' answers and simulate; steps without a new question pass at once."""
        if actions.keys() != self._asked.keys() or not actions:
            raise EnvError(f"actions of {sorted(actions)} were given, but the agents to act are {sorted(self._asked)}")
        said = {seat: self.inner.read(action) for seat, action in actions.items()}
        for group, question in self._due.items():
            read = [said[seat] for seat in self.seats[group] if said[seat] is not None]
            if read:
                self.rates[group] = self._known[self._place(group, question)] = float(np.mean(read))  # type: ignore[arg-type]
        asked, calls, total = self._due, len(said), np.zeros(len(self.keys))
        while True:
            paid, info = self.inner.advance(self.rates[self.group])
            total += np.bincount(self.group, paid, minlength=len(self.keys)) / np.maximum(self.members, 1)
            seen = {} if self.inner.over else self._ask()
            if seen or self.inner.over:
                break
        of_group = {seat: group for group in asked for seat in self.seats[group]}
        info |= {"valid": {seat: each is not None for seat, each in said.items()}, "asked": calls}
        info["members"] = {seat: int(self.members[group]) for seat, group in of_group.items()}
        info["rate"] = {seat: float(self.rates[group]) for seat, group in of_group.items()}
        rewards = {seat: float(total[g]) for g in np.flatnonzero(self.members).tolist() for seat in self.seats[g]}
        return StepResult(seen, rewards, terminated=not seen, info=info)

    def _place(self, group: int, question: str) -> tuple[int, str]:
        """The key of an answer: who was asked, and what."""
        return group, question

    def _ask(self) -> dict[str, Observation]:
        """Questions to the groups whose answers are not known; the others' answers count at once."""
        seen = self.inner.seen()
        sums = np.stack([np.bincount(self.group, column, minlength=len(self.keys)) for column in seen.T], 1)
        self._due: dict[int, str] = {}
        self._asked: dict[str, Observation] = {}
        for group in np.flatnonzero(self.members).tolist():
            size = int(self.members[group])
            asked = self.inner.question(self.keys[group], size, sums[group] / size)
            known = self._known.get(self._place(group, asked.text))
            if known is not None:
                self.rates[group] = known
                continue
            self._due[group] = asked.text
            self._asked |= dict.fromkeys(self.seats[group], asked)
        return dict(self._asked)


def archetypes(env: EnvFactory, *, by: Sequence[str], copies: int = 1) -> EnvFactory:
    """Env factory from another, `env`, of a `Crowd`: a seat answers for each group of people of equal attributes `by`.

    See `ArchetypeEnv`.
    """
    factory = functools.partial(ArchetypeEnv, env, by=by, copies=copies)
    factory()
    return factory
