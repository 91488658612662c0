"""Single-turn samples at turns that left something out: the turn again, and the turn after it, several times each."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from palaestra.algebra.turns import Turns
from palaestra.envs.helped import Help, HelpedEpisode
from palaestra.errors import InputError
from palaestra.learning.stages.guidance import ADDS, play_helped, with_helped
from palaestra.learning.stages.hints import hold_back
from palaestra.learning.stages.own_context import POLICY
from palaestra.learning.stages.stage import Context, Stage, stage

if TYPE_CHECKING:
    from palaestra.play.plan import Plan

KEY = ("group", "episode")
VIEWS = ("before", "after")


@stage
class omission_turns(Stage):
    """Stage: a `share` of each group is sampled from just before and after a turn with a non-empty list `omits`.

    Dual sampling of Agent-Omit [66] (arXiv 2602.04284): beside full episodes, samples of one turn, so that the decision
    to omit is learned in the context in which it is made, and the next action in the context that it leaves. Of each
    group a `share` is held back. One of its turns with an omission is drawn; half of the held-back episodes repeat the
    turns before it ("before"), the others also the turn itself ("after"). Each of the two is a group of its own, which
    begins in one context. The policy goes on from there; only its first action is learned from, and has the reward of
    the whole episode: `credit: "grpo() * col('sampled')"`. Groups that left out nothing play on as before.
    Envs must play the same episode for the same seed and actions. No code of this step is public: it is reconstructed.

    Metrics: omissions (turns that left something out), and the rows that were sampled before and after.

    Args:
        share: Share of each group's episodes that is held back.
        omits: Column with the list of what a turn left out; the turn is an omission if it is not empty.

    Raises:
        InputError: share is not in (0, 1).
    """

    adds = ADDS | {
        "view": "context in which the row's episode was sampled: full, before or after an omission",
        "sampled": "the row is learned from: all of full episodes, one turn of the others",
    }
    notes = ("_more",)

    def __init__(self, *, share: float = 0.5, omits: str = "omitted") -> None:
        if not 0 < share < 1:
            raise InputError(f"omission_turns: share={share} is not in (0, 1)")
        self.share, self.omits = share, omits
        self.needs = {*KEY, "turn", "seed", "action", "observation", "policy", omits}
        self._more: dict[int, int] = {}

    def plan(self, plan: Plan, context: Context) -> Plan:
        """Plan with fewer full episodes."""
        plan, self._more = hold_back(plan, self.share, "omission_turns")
        return plan

    def __call__(self, turns: Turns, context: Context) -> Turns:
        """The full episodes, with those that begin at an omission turn below them."""
        frame = turns.frame.sort(*KEY, "turn")
        omits = frame.filter(pl.col(self.omits).list.len() > 0)
        drawn = self._drawn(omits, context.rng)
        first = int(frame["group"].max()) + 1  # type: ignore[arg-type]
        wanted: list[tuple[int, HelpedEpisode]] = []
        starts: dict[int, tuple[str, int]] = {}
        for (group,), part in frame.group_by("group", maintain_order=True):
            number = int(group)  # type: ignore[call-overload]
            more, seed = self._more.get(number, 0), int(part["seed"][0])
            at = drawn.get(number)
            if at is None:
                wanted += [(number, HelpedEpisode(seed, {}))] * more
                continue
            said = part.filter(pl.col("episode") == at[0])["action"].to_list()
            for view, name in enumerate(VIEWS):
                start = at[1] + view
                if start == len(said):
                    continue
                forced = {turn: Help(action=said[turn]) for turn in range(start)}
                size = (more + 1 - view) // 2 if at[1] + 1 < len(said) else more
                wanted += [(first + len(starts), HelpedEpisode(seed, forced))] * size
                starts[first + len(starts)] = (name, start)
        made = play_helped(context, turns, wanted, source="repeated") if wanted else None
        whole = _marked(with_helped(turns, made).frame, starts)
        context.metrics["omissions"] = float(len(omits))
        context.metrics |= {name: float(((whole["view"] == name) & whole["sampled"]).sum()) for name in VIEWS}
        return Turns(whole)

    def _drawn(self, omits: pl.DataFrame, rng: np.random.Generator) -> dict[int, tuple[int, int]]:
        """Episode and turn of one omission of each group that has any."""
        order = omits.select(*KEY, "turn").with_columns(_at=pl.Series(rng.random(len(omits))))
        chosen = order.sort("_at").unique("group", keep="first", maintain_order=True)
        return {
            int(group): (int(episode), int(turn)) for group, episode, turn in chosen.select(*KEY, "turn").iter_rows()
        }


def _marked(frame: pl.DataFrame, starts: dict[int, tuple[str, int]]) -> pl.DataFrame:
    """The rows with their view, and whether they are learned from."""
    schema = {"group": pl.Int64, "view": pl.String, "_start": pl.Int64}
    known = pl.DataFrame([(group, *each) for group, each in starts.items()], schema, orient="row")
    known = known.with_columns(pl.col("group").cast(frame.schema["group"]))
    joined = frame.join(known, on="group", how="left", maintain_order="left")
    own = (pl.col("turn").cast(pl.Int64) == pl.col("_start")) & (pl.col("source") == POLICY)
    return joined.with_columns(
        view=pl.col("view").fill_null("full"), sampled=pl.col("_start").is_null() | own.fill_null(False)
    ).drop("_start")
