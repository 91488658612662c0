"""`SkilledSubAgents`: sub-agents are sets of skills, a space from which new ones are drawn or written, and tried out.

A task needs one skill. A sub-agent helps often with tasks whose skill it has, and seldom with others. Simulated: of
what a model writes only the named skills count, and nobody carries the instructions out.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from palaestra.envs.registry import ENVS
from palaestra.envs.replies import read_reply
from palaestra.envs.worlds.subagents import SubAgents, _SubagentsState
from palaestra.errors import InputError

NEEDS = {
    "reproduce": 0.03, "locate": 0.03, "repair": 0.8, "test": 0.02, "review": 0.02, "document": 0.02, "refactor": 0.02,
    "configure": 0.02, "migrate": 0.02, "release": 0.02,
}  # fmt: skip
"""Skills, and the share of tasks that need each."""


@ENVS.register("native/skilled_subagents")
class SkilledSubAgents(SubAgents):
    """Team building env whose sub-agents are all sets of `each` skills: `staff` picks from this space, as `SubAgents`.

    For the stage `recruit` it says what it is (`describe`), reads a sub-agent that a model wrote (`read_subagent`), and
    tries one out (`try_out`).

    Args:
        needs: skills, and how often a task needs each; together 1. each: skills of a sub-agent. rates: how often it
            helps with a task whose skill it has, and with others. members, batch, alone, noise: as of `SubAgents`.

    Raises:
        InputError: the numbers do not fit together.
    """

    def __init__(
        self,
        *,
        needs: Mapping[str, float] = NEEDS,
        each: int = 2,
        members: int = 3,
        batch: int = 12,
        rates: tuple[float, float] = (0.65, 0.1),
        alone: float = 0.15,
        noise: float = 0.1,
    ) -> None:
        if not 1 <= each <= len(needs) or min(needs.values()) < 0 or abs(sum(needs.values()) - 1) > 1e-9:
            raise InputError(f"SkilledSubAgents: {each=} of {len(needs)} skills, whose shares must add up to 1")
        self.skills, self.each = tuple(needs), each
        self.space = list(itertools.combinations(self.skills, each))
        super().__init__(
            size=len(self.space), good=(), members=members, batch=batch, rates=rates, alone=alone, noise=noise
        )
        self.shares = np.array([*needs.values()])
        has = np.array([[skill in own for skill in self.skills] for own in self.space])
        self.fits = np.where(has, rates[0], rates[1])
        """How often each sub-agent helps with a task that needs each skill, float64[sub-agents, skills]."""
        self.rates = self.fits @ self.shares
        self.choices = tuple("+".join(own) for own in self.space)

    def begin(self) -> tuple[str, _SubagentsState]:
        """Start with an empty team and new tasks."""
        task, state = super().begin()
        state.tasks = self._tasks(self.rng, self.batch)
        return task, state

    def _tasks(self, rng: np.random.Generator, number: int) -> np.ndarray:
        return rng.choice(len(self.skills), number, p=self.shares)

    def chances(self, member: int, tasks: Any) -> np.ndarray:
        """Probability that a member helps with each of the tasks."""
        return np.asarray(self.fits[member, tasks])

    def describe(self) -> str:
        """Description of the sub-agents that there can be, for who writes one."""
        return (
            f"A team of {self.members} sub-agents works on software tasks; each task needs one skill. A sub-agent has "
            f"{self.each} of these skills: {', '.join(self.skills)}. How often tasks need which skill is not known."
        )

    def read_subagent(self, reply: str) -> int:
        """Number of the sub-agent that a reply describes, by the skills that it names in JSON or a line `Skills: …`.

        Raises:
            ValueError: it describes none; says why.
        """
        part = read_reply(reply, "skills")
        if part.form not in ("json", "line"):
            raise ValueError("the reply names no skills")
        words = set(re.findall(r"\w+", part.text.casefold()))
        own = tuple(skill for skill in self.skills if skill.casefold() in words)
        if len(own) != self.each:
            raise ValueError(f"it has {len(own)} of the skills, not {self.each}")
        return self.space.index(own)

    def try_out(self, member: int, tasks: int, seed: int) -> float:
        """Share of so many new tasks with which a sub-agent helps alone, as the judge says."""
        rng = np.random.default_rng(seed)
        helps = rng.random(tasks) < self.chances(member, self._tasks(rng, tasks))
        return float((helps ^ (rng.random(tasks) < self.noise)).mean())
