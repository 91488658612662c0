"""A teacher that is replaced by its pupil: demonstrations of an adviser, later of what the learner has become."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from palaestra.errors import InputError
from palaestra.learning.stages.demonstrate import demonstrate
from palaestra.learning.stages.stage import Context, stage

if TYPE_CHECKING:
    from palaestra.agents import Team

OWN = "tuned"
"""`source` of what a frozen copy of the learner demonstrated."""


@stage
class evolving_teacher(demonstrate):
    """Stage: a teacher plays a `share` of each group: an adviser, after `after` iterations a copy of the learner.

    Rows, columns and options are those of `demonstrate`.
    Self-evolving distillation of MaskSearch [219] (arXiv 2505.20285). A copy is made at iteration `after` + 1 and anew
    every `every` iterations; its rows have the `source` "tuned". With `keep` only episodes that a judge accepts are
    learned from, whoever played them.

    Args:
        adviser: The first teacher, a policy of the recipe without a seat.
        after: Number of iterations of the first teacher.
        every: Number of iterations of each copy; None: one copy for good.
        share: Share of each group's episodes that is demonstrated.
        verdict: Text of the signal that is 1 on right turns.
        keep: Text of the signal that is 1 on episodes worth learning from.

    Raises:
        InputError: A number is out of range.
    """

    def __init__(
        self,
        adviser: str,
        *,
        after: int = 10,
        every: int | None = None,
        share: float = 0.5,
        verdict: str = "valid",
        keep: str | None = None,
    ) -> None:
        if after < 1 or (every is not None and every < 1):
            raise InputError(f"evolving_teacher: after={after} and every={every} must be at least 1")
        super().__init__(adviser, share=share, verdict=verdict, keep=keep)
        self.after, self.every = after, every
        self.copied: Team | None = None
        self.since = 0
        """Iteration in which the copy was made; 0: none was."""
        self._saved: dict[str, Any] = {}

    def taught(self, context: Context) -> tuple[Context, str]:
        """The context with this iteration's teacher in every seat, and the teacher's name."""
        if context.iteration <= self.after:
            return super().taught(context)
        if self.copied is None and self.since:
            self.copied = context.team.frozen_copy()
            self.copied.load_state_dict(self._saved)
        if self.copied is None or (self.every is not None and context.iteration - self.since >= self.every):
            self.copied, self.since = context.team.frozen_copy(), context.iteration
        return dataclasses.replace(context, team=self.copied), OWN

    def state_dict(self) -> dict[str, Any]:
        """State: the copied learner, and the iteration at which it was copied."""
        return {"since": self.since, "copied": self._saved if self.copied is None else self.copied.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Inverse of `state_dict`."""
        self.since, self._saved, self.copied = int(state["since"]), dict(state["copied"]), None
