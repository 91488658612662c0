"""Multi-agent distillation: episodes of a team as sequences of one model, filtered, to be cloned."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import polars as pl

from palaestra.algebra.parse import parse
from palaestra.algebra.selection import Selection, conditions, selection
from palaestra.algebra.turns import Turns
from palaestra.envs.helped import Help, Helped, HelpedEpisode
from palaestra.errors import InputError
from palaestra.learning.stages.own_context import POLICY, below, rescored
from palaestra.learning.stages.stage import Context, Stage, stage

if TYPE_CHECKING:
    from palaestra.play.plan import Plan

EPISODE = ("group", "episode")


def linearised(turns: pl.DataFrame, *, result: str = "result") -> pl.DataFrame:
    """Table of a team's turns as turns of one model: all agents' in the order of play, each behind its role's tag.

    The model's turn ends where a tool answers, so that no observation is part of what it says.

    Args:
        turns: Rows of whole episodes; columns group, episode, turn, agent, action.
        result: Column of the tool's answer to a turn, null where there is none.

    Returns:
        group, episode, part (its number in the episode, from 0), action: lines "agent: action".
    """
    ordered = turns.sort(*EPISODE, "turn", maintain_order=True)
    ended = pl.col(result).is_not_null().cast(pl.Int64)
    part = (ended.cum_sum() - ended).over(EPISODE)
    line = pl.concat_str(pl.col("agent").cast(pl.String), pl.lit(": "), pl.col("action"))
    joined = ordered.select(*EPISODE, part=part, line=line).group_by(*EPISODE, "part", maintain_order=True)
    return joined.agg(action=pl.col("line").str.join("\n"))


@stage
class linearise(Stage):
    """Stage: adds rows: what a team of advisers said in its good episodes, as if said by one model, to be cloned.

    Multi-agent distillation of Chain-of-Agents [7] (arXiv 2508.13167). It needs the workflow `one_model`, whose team
    the advisers play. Its episodes are filtered, joined by `linearised`, and read again in the seat of the model, so
    `prompt_ids` are what the model sees in its own play; only what was said is learned from, never what a tool
    answered. `loss_mask` is true on these rows and false on the model's own; learn by `clone(column="loss_mask")`,
    and with `rows: conversation` from one sequence an episode. `source` is "team" or "policy". Its metrics count
    episodes, kept, and dropped by each filter, the first that an episode does not meet.

    Filters are reconstructed from summaries of the paper: success, no easy questions, reflection or correction.

    Args:
        team: An adviser for all seats, or one for each by seat.
        groups: Questions in each iteration.
        group_size: Episodes of each question.
        keep: Text of the signal that is 1 on episodes worth learning from, by the name of the filter, in order.

    Raises:
        InputError: A number is below 1; when it is called: no such adviser or seat, or another workflow.
    """

    adds = {"loss_mask": "the row is learned from", "source": "who chose the action: policy, or team"}

    def __init__(
        self,
        team: str | Mapping[str, str],
        *,
        groups: int = 16,
        group_size: int = 4,
        keep: Mapping[str, str] | None = None,
    ) -> None:
        if min(groups, group_size) < 1:
            raise InputError(f"linearise: groups={groups} and group_size={group_size} must be at least 1")
        self.groups, self.group_size = groups, group_size
        self.team = team if isinstance(team, str) else dict(team)
        self.filters: dict[str, Any] = {}
        for name, text in (keep or {"success": "success"}).items():
            found = conditions(parse(text, columns=(text,)), between=(1, 1), unit=EPISODE)
            self.filters[name] = found["missing"] & found["between"]
        self.asks = tuple({team} if isinstance(team, str) else set(team.values()))
        self.needs = {*EPISODE, "turn", "agent", "policy", "action", "observation"}

    def __call__(self, turns: Turns, context: Context) -> Turns:
        """The model's own rows, and below them those of the team."""
        played = self._played(context)
        found = self._filtered(played)
        context.metrics |= {name: float(count) for name, count in found.counts.items() if name != "units"}
        context.metrics["episodes"] = float(found.counts["units"])
        own = turns.frame.with_columns(loss_mask=pl.lit(False), source=pl.lit(POLICY))
        kept = played.frame.filter(pl.Series(found.kept))
        if not len(kept):
            return Turns(own)
        made = self._recited(kept, context, 1 + int(own["group"].max()))  # type: ignore[arg-type]
        return below(own, made)

    def _filtered(self, played: Turns) -> Selection:
        """Which episodes are learned from, and why others are not."""
        return selection(played, self.filters)

    def _played(self, context: Context) -> Turns:
        """Good episodes of the team."""
        from palaestra.agents import Team

        team: Any = getattr(context.env(), "team", None)
        if team is None:
            raise InputError("linearise: the env is no team as one model; write env.workflow: one_model()")
        seats = team().agents
        names = dict.fromkeys(seats, self.team) if isinstance(self.team, str) else self.team
        if set(names) != set(seats) or not set(names.values()) <= set(context.advisers):
            raise InputError(
                f"linearise: team={self.team} must name one of the policies without a seat "
                f"{sorted(context.advisers)} for each seat of {sorted(seats)}"
            )
        advisers = Team({seat: context.advisers[name] for seat, name in names.items()})
        plan = self._plan(context, self.groups, self.group_size)
        frame = context.executor.play(team, advisers, plan).frame
        good = frame.filter(pl.col("error").is_null().all().over(EPISODE))
        if good.is_empty():
            raise InputError(f"linearise: no episode of the team could be played ({frame['error'].drop_nulls()[0]})")
        return Turns(good)

    def _recited(self, kept: pl.DataFrame, context: Context, first: int) -> pl.DataFrame:
        """Rows of the model in whose seat the team's episodes are said again, with groups from `first` on."""
        from palaestra.agents import ScriptedPolicy, Team

        seeds = kept.group_by(EPISODE, maintain_order=True).agg(pl.first("seed"))
        said = linearised(kept).group_by(EPISODE, maintain_order=True).agg("action")
        both = seeds.join(said, on=EPISODE, how="left", maintain_order="left")
        episodes = [
            HelpedEpisode(int(seed), {turn: Help(action=each) for turn, each in enumerate(actions)})
            for seed, actions in both.select("seed", "action").iter_rows()
        ]
        ((seat, policy),) = context.team.items()
        plan = self._plan(context, len(episodes), 1, env_seeds=range(len(episodes)))
        silent = ScriptedPolicy(lambda request: "", name=policy.name)
        frame = context.executor.play(
            functools.partial(Helped, context.env, episodes), Team({seat: silent}), plan
        ).frame
        good = pl.col("error").is_null() & pl.col("valid").fill_null(True)
        frame = frame.filter(good.all().over(EPISODE)).with_columns(
            group=(pl.col("group") + first).cast(frame.schema["group"]),
            action=pl.col("done_action"),
            loss_mask=pl.lit(True),
            source=pl.lit("team"),
        )
        return rescored(frame, context, "loss_mask", messages=True)

    def _plan(self, context: Context, groups: int, size: int, **more: Any) -> Plan:
        from palaestra.play.plan import Plan

        return Plan(groups, size, seed=int(context.rng.integers(2**31)), iteration=context.iteration, **more)
