"""Help in play: a hint after a group failed [178], a random action put in [146]; learned from as if there was none.

Whatever is helped says so in `source`, and unless `visible` is asked for its rows are read and scored anew without the
help (`own_context`). Everything is played within the iteration's number of episodes: a share of each group is held
back. Left out: hints that a model writes; here they are what the env says of the right solution.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from palaestra.algebra.parse import parse
from palaestra.algebra.signals import mean
from palaestra.algebra.turns import Turns
from palaestra.envs.helped import Help, Helped, HelpedEpisode
from palaestra.errors import InputError
from palaestra.learning.stages.asking import Adviser
from palaestra.learning.stages.explained import explained
from palaestra.learning.stages.hints import hold_back
from palaestra.learning.stages.own_context import POLICY, below, refuse_help, rescored, unhelped
from palaestra.learning.stages.stage import Context, Stage, stage
from palaestra.teams.thoughts import parted

if TYPE_CHECKING:
    from palaestra.play.plan import Plan

ADDS = {
    "helped": "the episode was played with help",
    "source": "who chose the action: policy, or who helped",
    "help": "the text that was shown with the turn",
    "rescored": "the row was read and scored again without the help",
}


def play_helped(
    context: Context,
    turns: Turns,
    wanted: Sequence[tuple[int, HelpedEpisode]],
    *,
    source: str,
    visible: bool = False,
) -> pl.DataFrame:
    """Plays the `wanted` (group, `HelpedEpisode`)s after those of `Turns`; table of rows, rescored as learners see it.

    A group that was not played so far begins with episode 0.

    Args:
        context: of the stage that asks.
        turns: what was played so far.
        wanted: of each episode its group and its help; without any it is a plain one.
        source: what a turn that was helped says in `source`.
        visible: the learner sees the help, too.

    Raises:
        InputError: not one of them could be played.
    """
    from palaestra.play.plan import Plan

    plan = Plan(
        groups=len(wanted),
        group_size=1,
        seed=int(context.rng.integers(2**31)),
        iteration=context.iteration,
        run=turns["run"][0] if "run" in turns.columns else None,
        env_seeds=list(range(len(wanted))),
        version=context.learner.updates if context.learner else 0,
    )
    played = context.executor.play(
        functools.partial(Helped, context.env, [each for _, each in wanted]), context.team, plan
    )
    failed = played["error"].drop_nulls()
    if failed.len() and not played["error"].is_null().any():
        raise InputError(f"no further episode could be played ({failed[0]})")
    last = dict(turns.frame.group_by("group").agg(pl.col("episode").max()).iter_rows())
    place: dict[int, int] = {}
    numbers = []
    for number, (group, each) in enumerate(wanted):
        place[group] = place.get(group, int(last.get(group, -1))) + 1
        numbers.append((number, group, place[group], each.seed, bool(each.help)))
    schema = {"group": pl.Int32, "_group": pl.Int32, "_episode": pl.Int32, "_seed": pl.Int64, "helped": pl.Boolean}
    kept = played.frame.filter(pl.col("error").is_null())
    kept = kept.join(pl.DataFrame(numbers, schema, orient="row"), on="group", how="left", maintain_order="left")
    kept = kept.with_columns(
        group=pl.col("_group").cast(kept.schema["group"]),
        episode=pl.col("_episode").cast(kept.schema["episode"]),
        seed=pl.col("_seed").cast(kept.schema["seed"]),
    ).drop("_group", "_episode", "_seed")
    kept = kept.with_columns(
        action=pl.coalesce("done_action", "action"),
        source=pl.when(pl.col("done_for") | pl.col("help").is_not_null())
        .then(pl.lit(source))
        .otherwise(pl.lit(POLICY)),
    )
    if not visible:
        kept = unhelped(kept)
    kept = kept.with_columns(rescored=(pl.col("source") != POLICY) & (pl.lit(not visible) | pl.col("done_for")))
    ids = pl.coalesce("done_id", pl.col("action_ids").list.first().cast(pl.Int64, strict=False))
    made = rescored(kept.with_columns(_number=ids), context, "rescored", number="_number")
    refuse_help(Turns(made), visible=visible)
    return made.drop("done_for", "done_action", "done_id", "_number", strict=False)


def with_helped(turns: Turns, made: pl.DataFrame | None) -> Turns:
    """`Turns`: the played rows, marked as unhelped, with the helped rows of table `made`, if any, below them."""
    plain = {"helped": pl.lit(False), "source": pl.lit(POLICY), "rescored": pl.lit(False)}
    own = turns.frame.with_columns(**plain, help=pl.lit(None, pl.String))
    return Turns(own) if made is None else below(own, made)


@stage
class guidance(Stage):
    """Stage: adds rows: in groups whose attempts all failed, held-back ones are told some right actions (Agent-RLVR).

    Agent-RLVR [178] (arXiv 2506.11425). The hints name the right action at `places` of the turns that the group's first
    failed attempt got wrong; whoever reads them does them. Groups of which an attempt succeeded go on without hints.
    The hints are not in the rows that are learned from, unless `strip` is false. Its credit is `agent_rlvr()`. Its
    metrics count groups, failed, helped (episodes) and solved (of these).

    Args:
        hint: a column with the right actions of the task, a list of texts, one for each turn. share: of each group
            that is held back. score: text of the signal that says how an episode went; above `solved` it succeeded.
        template: of a hint, with {action}.

    Raises:
        InputError: a number is out of range, or the template lacks {action}.
    """

    adds = ADDS
    notes = ("_more",)

    def __init__(
        self,
        hint: str = "reference",
        *,
        share: float = 0.5,
        places: int = 4,
        score: str = "success",
        solved: float = 0.5,
        strip: bool = True,
        template: str = "hint: {action}",
    ) -> None:
        if not 0 < share < 1 or places < 1 or "{action}" not in template:
            raise InputError(f"guidance: share={share} in (0, 1), places={places} >= 1, and {{action}} in the template")
        self.hint, self.share, self.places, self.solved, self.strip = hint, share, places, solved, strip
        self.score, self.template = parse(score, columns=(score,)), template
        self.needs = {"group", "episode", "turn", "seed", "action", "observation", "policy", hint} | self.score.needs()
        self._more: dict[int, int] = {}

    def plan(self, plan: Plan, context: Context) -> Plan:
        """Plan with fewer first attempts."""
        plan, self._more = hold_back(plan, self.share, "guidance")
        return plan

    def __call__(self, turns: Turns, context: Context) -> Turns:
        """The first attempts, with the held-back ones below them."""
        frame = turns.with_column(_score=mean(self.score, over="episode")).frame
        wanted, failed = [], 0
        for part in frame.sort("group", "episode", "turn").partition_by("group", maintain_order=True):
            group, seed = int(part["group"][0]), int(part["seed"][0])
            bad = part.filter(pl.col("_score") <= self.solved)
            lost = len(bad) > 0 and not (part["_score"] > self.solved).any()
            failed += lost
            for _ in range(self._more.get(group, 0)):
                given = self._hints(bad, context.rng) if lost else {}
                wanted.append((group, HelpedEpisode(seed, given)))
        made = play_helped(context, turns, wanted, source="guided", visible=not self.strip) if wanted else None
        whole = with_helped(turns, made)
        ends = whole.frame.filter("helped").unique(["group", "episode"], keep="last")
        context.metrics |= {"groups": float(len(self._more)), "failed": float(failed), "helped": float(len(ends))}
        if "success" in ends.columns:
            context.metrics["solved"] = float(ends["success"].fill_null(False).sum())
        return whole

    def _hints(self, bad: pl.DataFrame, rng: np.random.Generator) -> dict[int, Help]:
        """Right actions at some of the turns that the first of the failed attempts got wrong."""
        first = bad.filter(pl.col("episode") == bad["episode"][0])
        right = first[self.hint][0]
        wrong = [
            int(turn)
            for turn, said in first.select("turn", "action").iter_rows()
            if right is not None and turn < len(right) and said != right[turn]
        ]
        chosen = rng.permutation(wrong)[: self.places].tolist()
        return {turn: Help(self.template.format(action=right[turn]), right[turn]) for turn in sorted(chosen)}


@stage
class injection(Stage):
    """Stage: adds rows: after a failure, held-back attempts are played with one random action at a random turn.

    A³T [146] (arXiv 2403.14589): exploration by acting first. The turn says `source` "injected", and is scored as its
    policy would have said it. Groups without a failure go on as they are. Options as of `guidance`.

    Args:
        choices: a column with the actions that there were, a list of texts; default: those that the table has.
        explain: a policy of the recipe without a seat, or `module:function`, that writes the reason after the act
            (ActRe), in an env with `thoughts(…)`: see `palaestra.learning.stages.explained`.

    Raises:
        InputError: share is out of range; when it is called: such a policy is missing, or the env has no such choice.
    """

    adds = ADDS
    notes = ("_more",)

    def __init__(
        self,
        *,
        share: float = 0.5,
        score: str = "success",
        solved: float = 0.5,
        choices: str | None = None,
        explain: str | None = None,
    ) -> None:
        if not 0 < share < 1:
            raise InputError(f"injection: share={share} is not in (0, 1)")
        self.share, self.solved, self.choices, self.score = share, solved, choices, parse(score, columns=(score,))
        self.needs = {"group", "episode", "turn", "seed", "action", "policy"} | self.score.needs()
        self.needs |= {choices} if choices else set()
        self.adviser = None if explain is None else Adviser(explain)
        self.asks = self.adviser.asks if self.adviser else ()
        self._more: dict[int, int] = {}

    def plan(self, plan: Plan, context: Context) -> Plan:
        """Plan with fewer first attempts."""
        plan, self._more = hold_back(plan, self.share, "injection")
        return plan

    def __call__(self, turns: Turns, context: Context) -> Turns:
        """The first attempts, with those that have an injected action below them."""
        frame = turns.with_column(_score=mean(self.score, over="episode")).frame
        known = sorted({parted(each)[1] for each in frame["action"].drop_nulls().to_list()})
        wanted = []
        for part in frame.sort("group", "episode", "turn").partition_by("group", maintain_order=True):
            group, seed = int(part["group"][0]), int(part["seed"][0])
            length = int(part["turn"].to_numpy().max()) + 1
            lost = bool((part["_score"] <= self.solved).any())
            actions = list(part[self.choices][0]) if self.choices else known
            for _ in range(self._more.get(group, 0)):
                put = {int(context.rng.integers(length)): Help(action=str(context.rng.choice(actions)))} if lost else {}
                wanted.append((group, HelpedEpisode(seed, put)))
        made = play_helped(context, turns, wanted, source="injected") if wanted else None
        if made is not None and self.adviser is not None:
            made = explained(made, self.adviser.begin(context), context)
        whole = with_helped(turns, made)
        context.metrics["injected"] = float((whole["source"] == "injected").sum())
        return whole

    def state_dict(self) -> dict[str, Any]:
        """State of the adviser: amounts spent and answers."""
        return self.adviser.state_dict() if self.adviser else {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Inverse of `state_dict`."""
        if self.adviser:
            self.adviser.load_state_dict(state)
