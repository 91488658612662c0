"""Tasks with one answer: somebody reads a question, gives an answer, and the answer is scored.

`TaskEnv` is such a task for one agent; a workflow makes a game between roles of it. A subclass says in `draw` which
task a seed stands for; everything else is here.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from palaestra.envs.conversations import TEMPLATES, ChatMessage, Conversation, Reader, opening
from palaestra.envs.protocol import Action, Observation, StepResult
from palaestra.envs.replies import read_reply
from palaestra.envs.task_keys import normalise
from palaestra.errors import EnvError

UNREADABLE = (ValueError, SyntaxError, ArithmeticError, IndexError, RecursionError)
"""Exceptions of a scorer that mean that it cannot read the text."""


@dataclass(frozen=True)
class Task:
    """Data of a one-turn task: name, question, score function of an answer text, and a right answer if known.

    name: equal iff the question is equal, in every process. score: answer text -> number, at most 1; one of
    `UNREADABLE` means that the answer cannot be read, any other exception that the scorer fails, and with it the
    episode. answer: a right answer if one is known; it is never shown to an agent.
    says: answer text -> what it says, equal for answers that are one vote of a team; `UNREADABLE` as for score.
    parts: of the question, for a team whose members read one each. report: answer text -> what may be told of it to an
    agent, such as the outcome of the tests that are no secret.
    """

    name: str
    question: str
    score: Callable[[str], float]
    answer: str | None = None
    parts: tuple[str, ...] = ()
    report: Callable[[str], str] | None = None
    says: Callable[[str], str] = normalise


class TaskEnv(ABC):
    """Base class of one-turn envs: agent `solver` answers the task that `draw` returns; reward is its score.

    current: the task that the last `reset` drew. threshold: the least score that counts as success. facts: the column
    `expected`, a right answer if one is known.
    """

    agents: tuple[str, ...] = ("solver",)
    task: str = ""
    threshold: float = 1.0
    facts: Mapping[str, type] = {"expected": str}
    current: Task
    _asked = False

    @abstractmethod
    def draw(self, seed: int) -> Task:
        """The task that the reset seed stands for; subclasses define it."""

    @property
    def question(self) -> str:
        """Question that the agent reads."""
        return self.current.question

    @property
    def answer(self) -> str | None:
        """A right answer if one is known: for scripted policies and reports, not for agents."""
        return self.current.answer

    def reset(self, seed: int) -> Mapping[str, Observation]:
        """Ask the question of `seed`."""
        self.current = self.draw(seed)
        self.task = self.current.name
        self._asked = True
        return {"solver": Observation(self.question, messages=Conversation(self._written), fields=("answer",))}

    def _written(self, reader: Reader) -> tuple[ChatMessage, ...]:
        """For chat models."""
        asked = {"question": self.question, "structured": reader.structured}
        return opening(TEMPLATES.render("task", {}), TEMPLATES.render("question", asked))

    def step(self, actions: Mapping[str, Action]) -> StepResult:
        """Score the answer and end the episode."""
        if not self._asked or actions.keys() != {"solver"}:
            expected = ["solver"] if self._asked else []
            raise EnvError(f"actions of {sorted(actions)} were given, but the agents to act are {expected}")
        self._asked = False
        score = self.score(read_reply(read_answer(actions["solver"])).text)
        info: dict[str, Any] = {"valid": {"solver": score is not None}, "success": self.solved(score)}
        if self.answer is not None:
            info["expected"] = self.answer
        return StepResult({}, {"solver": score or 0.0}, terminated=True, info=info)

    def score(self, answer: str) -> float | None:
        """The score of `answer`; None if it is empty or the task cannot read it.

        Raises:
            EnvError: the scorer fails, by a mistake in it or because a judge cannot be asked.
        """
        if not answer:
            return None
        try:
            score = float(self.current.score(answer))
        except UNREADABLE:
            return None
        except Exception as error:
            raise EnvError(f"score: {type(error).__name__}: {error}") from error
        return score if math.isfinite(score) else None

    def says(self, answer: str) -> str:
        """What `answer` says, equal for answers that are the same; the normalised text if the task cannot read it."""
        try:
            return self.current.says(answer)
        except UNREADABLE:
            return normalise(answer)

    def solved(self, score: float | None) -> bool:
        """Whether this score is a success."""
        return score is not None and score >= self.threshold


def read_answer(action: Action) -> str:
    """The text of an action, stripped; "" for an action that is a number."""
    return action.strip() if isinstance(action, str) else ""
