"""Base class of workflows around a task with one answer."""

from __future__ import annotations

from typing import Any

from palaestra.envs.protocol import EnvFactory
from palaestra.envs.tasks import TaskEnv
from palaestra.errors import InputError


class TaskTeamEnv:
    """Base class of team envs around a `TaskEnv` (`inner`): properties `question` and, if known, the right `answer`.

    inner: the `TaskEnv`, or the first of several workflows around the same one.
    """

    inner: Any

    @property
    def question(self) -> str:
        """Question of the wrapped task."""
        found: str = self.inner.question
        return found

    @property
    def answer(self) -> str | None:
        """A right answer if one is known: for scripted policies and reports, not for agents."""
        found: str | None = self.inner.answer
        return found


def made_task(tasks: EnvFactory, workflow: str) -> TaskEnv:
    """Make the `TaskEnv` of a factory; raises InputError if it makes another kind of env.

    Raises:
        InputError: it is no task with one answer.
    """
    inner = tasks()
    if not isinstance(inner, TaskEnv):
        raise InputError(f"{workflow}: {type(inner).__name__} is no task with one answer (a TaskEnv)")
    return inner
