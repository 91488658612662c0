"""Reflection: a task that went badly is played again with what was wrong before (R³ [83])."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import polars as pl

from palaestra.algebra.parse import parse
from palaestra.algebra.turns import Turns
from palaestra.credit.repair import REFLECTION, reflections, remember
from palaestra.envs.prefixed import Reminded
from palaestra.errors import InputError
from palaestra.learning.stages.hints import hold_back, play_on
from palaestra.learning.stages.stage import Context, Stage, packed, stage, unpacked

if TYPE_CHECKING:
    from palaestra.play.plan import Plan


@stage
class reflect(Stage):
    """Stage: plays a `share` of each group's episodes last, with a reflection prompt if the task's past score is low.

    It needs one if the mean score of the task's past episodes is below `below`: then whoever plays reads `template`
    with {answer}, the last action of one of the task's failed episodes, before all else. The past: of each task the
    `last` successes and failures of earlier iterations. score: text of the signal that says how an episode went, above
    0.5 a success. In R³ all of a group reflect: compare within `over=("group", "reflected")` to keep them apart.

    Raises:
        InputError: share is not in (0, 1), last is less than 1, or the template lacks {answer}.
    """

    adds = {"reflected": "the episode was played after a reflection on an earlier failure"}
    notes = ("_more",)

    def __init__(
        self,
        *,
        share: float = 0.5,
        below: float = 0.5,
        last: int = 8,
        score: str = "success",
        template: str = REFLECTION,
    ) -> None:
        if not 0 < share < 1 or last < 1 or "{answer}" not in template:
            raise InputError(f"reflect: share={share} in (0, 1), last={last} >= 1, and {{answer}} in the template")
        self.share, self.below, self.last, self.template = share, below, last, template
        self.score = parse(score)
        self.needs = {"group", "episode", "task", "action", "seed"} | self.score.needs()
        self.buffer: Turns | None = None
        self._more: dict[int, int] = {}

    def plan(self, plan: Plan, context: Context) -> Plan:
        """Plan with fewer first episodes."""
        plan, self._more = hold_back(plan, self.share, "reflect")
        return plan

    def __call__(self, turns: Turns, context: Context) -> Turns:
        """The played rows, with the held-back ones below."""
        texts = {}
        if self.buffer is not None and len(self.buffer):
            how: dict[str, Any] = {"below": self.below, "score": self.score, "template": self.template}
            texts = reflections(self.buffer, context.rng, **how)
        starts = turns.frame.group_by("group").agg(pl.first("seed"), pl.max("episode")).sort("group")
        starts = starts.filter(pl.col("group").is_in([group for group, number in self._more.items() if number]))
        parts = [Turns(turns.frame.with_columns(reflected=pl.lit(False)))]
        if len(starts):
            played = play_on(context, starts, functools.partial(Reminded, context.env, texts), self._more, turns)
            parts.append(Turns(played.rename({"reminded": "reflected"})))
        whole = Turns.concat(parts)
        self.buffer = remember(self.buffer, whole, last=self.last, score=self.score)
        return whole

    def state_dict(self) -> dict[str, Any]:
        """State: past episodes as the bytes of a Parquet file, uint8; empty if there are none yet."""
        return {"buffer": packed(None if self.buffer is None else self.buffer.frame)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Inverse of `state_dict`."""
        past = unpacked(state["buffer"])
        self.buffer = None if past is None else Turns(past)
