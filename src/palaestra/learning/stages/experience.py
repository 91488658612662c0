"""Experience in a part of the rollouts, stripped before learning: successes on similar tasks are shown ([82])."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl

from palaestra.algebra.parse import parse
from palaestra.algebra.signals import mean
from palaestra.algebra.turns import Turns
from palaestra.envs.helped import Help, HelpedEpisode
from palaestra.errors import InputError
from palaestra.evaluation.triage.talk import jaccard
from palaestra.learning.stages.guidance import ADDS, play_helped, with_helped
from palaestra.learning.stages.hints import hold_back
from palaestra.learning.stages.stage import Context, Stage, packed, stage, unpacked

if TYPE_CHECKING:
    from palaestra.play.plan import Plan


@stage
class experience(Stage):
    """Stage: plays a `share` of each group's episodes with like tasks' successes in the prompt, scored without them.

    Self-navigating of AgentEvolver [82] (arXiv 2511.10395). An experience is what a successful episode began with and
    what was done in it, the best one of each task. The `k` experiences whose beginning shares most words with the
    group's own (Jaccard index) stand before what is seen, at every turn. The others of the group play without. Unless
    `strip` is false, the experience is taken out of the rows, which are read and scored again without it
    (`own_context`). Its metrics count remembered tasks, helped episodes, and those of them that succeeded (solved).
    The term `boosted()` gives helped rows the paper's wider clip. Left out: experience that a model writes.

    Args:
        share: Share of each group that is played with experience.
        k: Number of experiences that are shown.
        score: Text of the signal that says how an episode went.
        solved: An episode whose mean score is above this is remembered.
        strip: Whether the experience is stripped before learning.
        take: Whether the actions of the most similar experience are also taken, turn by turn, for policies that cannot
            read; they must be choices of the task.
        template: One experience, with {task} and {actions}.

    Raises:
        InputError: share is not in (0, 1), k is below 1, or the template lacks {actions}.
    """

    adds = ADDS
    notes = ("_more",)

    def __init__(
        self,
        *,
        share: float = 0.5,
        k: int = 3,
        score: str = "success",
        solved: float = 0.5,
        strip: bool = True,
        take: bool = False,
        template: str = "experience: {task}: {actions}",
    ) -> None:
        if not 0 < share < 1 or k < 1 or "{actions}" not in template:
            raise InputError(f"experience: share={share} in (0, 1), k={k} >= 1, and {{actions}} in the template")
        self.share, self.k, self.solved, self.strip, self.take = share, k, solved, strip, take
        self.score, self.template = parse(score, columns=(score,)), template
        self.needs = {"group", "episode", "turn", "seed", "task", "action", "observation", "policy"}
        self.needs |= self.score.needs()
        self.memory: dict[str, tuple[float, str, list[str]]] = {}
        self._more: dict[int, int] = {}

    def plan(self, plan: Plan, context: Context) -> Plan:
        """Plan with fewer plain episodes."""
        plan, self._more = hold_back(plan, self.share, "experience")
        return plan

    def __call__(self, turns: Turns, context: Context) -> Turns:
        """The plain episodes, with those played with experience below; all are stored as experience for later."""
        ordered = turns.frame.sort("group", "episode", "turn")
        wanted = []
        for part in ordered.partition_by("group", maintain_order=True):
            group, shown = int(part["group"][0]), self._shown(part["observation"][0] or "")
            wanted += [(group, HelpedEpisode(int(part["seed"][0]), shown)) for _ in range(self._more.get(group, 0))]
        made = play_helped(context, turns, wanted, source="experience", visible=not self.strip) if wanted else None
        whole = with_helped(turns, made)
        self._remember(whole)
        helped = whole.frame.filter("helped").unique(["group", "episode"], keep="last", maintain_order=True)
        context.metrics |= {"remembered": float(len(self.memory)), "helped": float(len(helped))}
        if "success" in helped.columns:
            context.metrics["solved"] = float(helped["success"].fill_null(False).sum())
        return whole

    def _shown(self, beginning: str) -> dict[int, Help]:
        """Help at each turn: the experiences of the most similar tasks, equally similar ones by their score."""
        words = beginning.split()
        ranked = sorted(self.memory.values(), key=lambda each: (-jaccard(words, each[1].split()), -each[0]))[: self.k]
        if not ranked:
            return {}
        lines = [self.template.format(task=task, actions="; ".join(actions)) for _, task, actions in ranked]
        done = ranked[0][2] if self.take else []
        length = max(len(actions) for _, _, actions in ranked)
        return {turn: Help("\n".join(lines), done[turn] if turn < len(done) else None) for turn in range(length)}

    def _remember(self, turns: Turns) -> None:
        """Keep the best successful episode of each task; of equally good ones the first."""
        frame = turns.with_column(_score=mean(self.score, over="episode")).frame
        good = frame.filter((pl.col("_score") > self.solved) & pl.col("task").is_not_null())
        for _, part in good.sort("turn", maintain_order=True).group_by("group", "episode", maintain_order=True):
            task, score = str(part["task"][0]), float(part["_score"][0])
            if task not in self.memory or score > self.memory[task][0]:
                actions = part["action"].cast(pl.String).fill_null("").to_list()
                self.memory[task] = score, self._beginning(part), actions

    def _beginning(self, episode: pl.DataFrame) -> str:
        """What the episode began with, without the experience that it was played with."""
        seen, shown = episode["observation"][0] or "", episode["help"][0]
        return str(seen).removeprefix(f"{shown}\n\n")

    def state_dict(self) -> dict[str, Any]:
        """State: the stored experiences as the bytes of a Parquet file, uint8; empty if nothing succeeded yet."""
        rows = [(task, *each) for task, each in self.memory.items()]
        names = ["task", "score", "beginning", "actions"]
        return {"memory": packed(pl.DataFrame(rows, names, orient="row") if rows else None)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Inverse of `state_dict`."""
        found = unpacked(state["memory"])
        self.memory = {} if found is None else {task: tuple(each) for task, *each in found.iter_rows()}  # type: ignore[misc]
