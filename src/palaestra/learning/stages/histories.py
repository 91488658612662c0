"""History alignment: thoughts that led to right actions replace recorded ones in the history of later steps ([193])."""

from __future__ import annotations

import itertools
from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from palaestra.algebra.parse import parse
from palaestra.algebra.signals import evaluate
from palaestra.algebra.turns import Turns
from palaestra.envs.helped import Help, HelpedEpisode
from palaestra.errors import InputError
from palaestra.learning.stages.guidance import ADDS, play_helped, with_helped
from palaestra.learning.stages.hints import hold_back
from palaestra.learning.stages.stage import Context, Stage, packed, stage, unpacked

if TYPE_CHECKING:
    from palaestra.play.plan import Plan

Place = tuple[str, int]
"""Trace and step."""


@stage
class align_histories(Stage):
    """Stage: plays a `share` of each group after a history of the policy's own right thoughts ([193] UI-Venus).

    UI-Venus [193] (arXiv 2508.10833). Tasks are single steps of recorded traces. What the policy said in a step where
    its action was right is kept in that step's pool. In later iterations the history of a step shows, for each earlier
    step of its trace, the thought of the pool whose length is nearest to `length`, and the recorded thought where the
    pool is empty. Steps of rare kinds get up to `variants` different histories, drawn from the product of the pools.
    The history stands before what is seen, and is part of what is learned from. The others of a group are played as
    the env shows them. Its metrics count steps with a pool, and aligned: the share of the shown thoughts from pools.

    Args:
        trace: Column with the trace.
        step: Column with the number of the step in its trace.
        kind: Column with the kind of the right action.
        recorded: Column with the thought that was recorded for the step.
        thought: Column with what the policy thought.
        right: Text of the signal that is above 0.5 where the action was right.
        share: Share of each group that is played with an aligned history.
        variants: Most histories of a step of a rare kind.
        rare: A kind is rare if a smaller share of the known steps has it.
        length: Target length of a thought, in characters; None: the shortest is taken.
        last: Most thoughts of a pool, the newest.
        template: Of what is shown, with {history}, a line for each earlier step.

    Raises:
        InputError: share or rare is out of range, variants or last is below 1, or the template lacks {history}.
    """

    adds = ADDS
    notes = ("_more",)

    def __init__(
        self,
        *,
        trace: str = "trace",
        step: str = "step",
        kind: str = "kind",
        recorded: str = "recorded",
        thought: str = "action",
        right: str = "success",
        share: float = 0.5,
        variants: int = 3,
        rare: float = 0.1,
        length: int | None = None,
        last: int = 8,
        template: str = "Earlier steps:\n{history}",
    ) -> None:
        if not 0 < share < 1 or not 0 <= rare <= 1 or min(variants, last) < 1 or "{history}" not in template:
            raise InputError(
                f"align_histories: share={share} in (0, 1), rare={rare} in [0, 1], variants={variants} and last={last} "
                "at least 1, and {history} in the template"
            )
        self.columns = {"trace": trace, "step": step, "kind": kind, "recorded": recorded, "thought": thought}
        self.right = parse(right, columns=(right,))
        self.share, self.variants, self.rare, self.length, self.last = share, variants, rare, length or 0, last
        self.template = template
        self.needs = {"group", "episode", "turn", "seed", "observation", *self.columns.values()} | self.right.needs()
        self.pools: dict[Place, list[str]] = {}
        self.known: dict[Place, tuple[str, str]] = {}
        self._more: dict[int, int] = {}

    def plan(self, plan: Plan, context: Context) -> Plan:
        """Plan with fewer episodes as the env shows them."""
        plan, self._more = hold_back(plan, self.share, "align_histories")
        return plan

    def __call__(self, turns: Turns, context: Context) -> Turns:
        """The episodes as the env shows them, with those with aligned histories below."""
        table = self._table(turns)
        for trace, step, kind, recorded in table.select("trace", "step", "kind", "recorded").unique().iter_rows():
            self.known[trace, step] = kind or "", recorded or ""
        wanted, shown, aligned = [], 0, 0
        firsts = table.unique("group", maintain_order=True, keep="first")
        for group, seed, trace, step in firsts.select("group", "seed", "trace", "step").iter_rows():
            texts = self.histories((trace, step), context.rng)
            earlier = [place for place in self.known if place[0] == trace and place[1] < step]
            for number in range(self._more.get(group, 0)):
                text = texts[number % len(texts)]
                help_ = {0: Help(self.template.format(history=text))} if text else {}
                wanted.append((group, HelpedEpisode(seed, help_)))
                shown, aligned = shown + len(earlier), aligned + sum(bool(self.pools.get(each)) for each in earlier)
        made = play_helped(context, turns, wanted, source="aligned", visible=True) if wanted else None
        whole = with_helped(turns, made)
        self._remember(whole)
        context.metrics |= {"pools": float(len(self.pools)), "aligned": aligned / max(shown, 1)}
        return whole

    def histories(self, place: Place, rng: np.random.Generator) -> list[str]:
        """Histories of a step, several if its kind is rare; a line for each earlier step of its trace."""
        trace, step = place
        earlier = sorted(number for name, number in self.known if name == trace and number < step)
        pools = [self._pool((trace, number)) for number in earlier]
        found = ["\n".join(pool[0] for pool in pools)]
        kinds = Counter(kind for kind, _ in self.known.values())
        if kinds[self.known[place][0]] < self.rare * len(self.known):
            total = int(np.prod([len(pool) for pool in pools], dtype=float))
            drawn = itertools.product(*pools) if total <= 64 else (_one_of_each(pools, rng) for _ in range(64))
            others = list(dict.fromkeys("\n".join(each) for each in drawn))
            others = [others[at] for at in rng.permutation(len(others)) if others[at] != found[0]]
            found += others[: self.variants - 1]
        return found

    def _pool(self, place: Place) -> list[str]:
        """Right thoughts of a step, that of the best length first; the recorded one if there are none."""
        pool = self.pools.get(place) or [self.known[place][1]]
        return sorted(pool, key=lambda thought: abs(len(thought) - self.length))

    def _table(self, turns: Turns) -> pl.DataFrame:
        """Keys and the columns of the steps, in the order of play."""
        columns = {name: pl.col(column) for name, column in self.columns.items()}
        texts = {name: columns[name].cast(pl.String) for name in ("trace", "kind", "recorded", "thought")}
        (right,) = evaluate(turns, self.right)
        frame = turns.frame.select("group", "episode", "turn", "seed", step=columns["step"].cast(pl.Int64), **texts)
        ordered = frame.with_columns(right=pl.Series(np.asarray(right, float) > 0.5))
        ordered = ordered.filter(pl.col("trace").is_not_null() & pl.col("step").is_not_null())
        return ordered.sort("group", "episode", "turn")

    def _remember(self, turns: Turns) -> None:
        """Put right thoughts into the pools of their steps, each once."""
        good = self._table(turns).filter(pl.col("right") & pl.col("thought").is_not_null())
        for trace, step, thought in good.select("trace", "step", "thought").iter_rows():
            pool = self.pools.setdefault((trace, step), [])
            if thought not in pool:
                pool.append(thought)
                del pool[: -self.last]

    def state_dict(self) -> dict[str, Any]:
        """State: known steps and pools as the bytes of a Parquet file, uint8; empty before the first call."""
        rows = [(*place, *self.known[place], self.pools.get(place, [])) for place in self.known]
        names = ["trace", "step", "kind", "recorded", "pool"]
        frame = pl.DataFrame(rows, names, schema_overrides={"pool": pl.List(pl.String)}, orient="row") if rows else None
        return {"steps": packed(frame)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Inverse of `state_dict`."""
        found = unpacked(state["steps"])
        self.known, self.pools = {}, {}
        for trace, step, kind, recorded, pool in () if found is None else found.iter_rows():
            self.known[trace, step] = kind, recorded
            if pool:
                self.pools[trace, step] = list(pool)


def _one_of_each(pools: list[list[str]], rng: np.random.Generator) -> tuple[str, ...]:
    return tuple(pool[int(rng.integers(len(pool)))] for pool in pools)
