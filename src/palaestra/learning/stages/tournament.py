"""Tournaments: the episodes of a group are compared in pairs, and `arena` says who came how far (ArenaRL [100]).

Who compares is a policy, a function, or a column. Left out: judges that see more than two episodes.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import polars as pl
import scipy

from palaestra.agents.policy import Policy
from palaestra.algebra.parse import parse
from palaestra.algebra.returns import episode_score
from palaestra.algebra.signals import as_signal
from palaestra.algebra.turns import Turns
from palaestra.credit.tournaments import Topology, by_group
from palaestra.credit.tournaments import tournament as compare
from palaestra.errors import InputError, PolicyError, nearest
from palaestra.foundation.registry import load_object
from palaestra.judges.asking import ask
from palaestra.learning.stages.stage import Context, Stage, stage

PROMPT = (
    "{task}\n\nAnswer A:\n{first}\n\nAnswer B:\n{second}\n\nScore both from 0 to 10. Reply with two numbers, A's first."
)


@stage
class tournament(Stage):
    """Stage: column `arena`, each episode's score in a tournament of its group, decided by `judge` (default: reward).

    It is ArenaRL [100]; larger is better.

    See `palaestra.credit.tournament` for topologies and their cost.

    judge: a column or the text of a signal, of which more is better: 10·σ(±lead) points, lead the difference with
    N(0, noise²) drawn anew each time; or `policy:NAME`, a policy of the team that is asked, or
    `module:name`, a policy or a function of two texts that gives two scores. The last three compare what stands in
    `column` on the episode's last row. An episode with nothing to compare takes no part. prompt: with {task}, {first},
    {second}; the first two numbers of the answer count, and an answer without them is 5 to 5.

    Its credit is `arena_rl()`.

    Raises:
        InputError: the topology is unknown, noise is negative, or the judge is nobody.
    """

    adds = {"arena": "standing of the episode in its group's tournament, larger is better"}

    def __init__(
        self,
        judge: str = "reward",
        *,
        topology: Topology = "seeded_single",
        noise: float = 0.0,
        column: str = "action",
        prompt: str = PROMPT,
    ) -> None:
        if noise < 0:
            raise InputError(f"tournament: noise={noise} is negative")
        compare(
            [], lambda a, b: (0, 0), topology=topology, rng=np.random.default_rng()
        )  # refuses what it does not know
        self.judge, self.topology, self.noise, self.column, self.prompt = judge, topology, noise, column, prompt
        self.signal = None if ":" in judge else as_signal(judge) if judge.isidentifier() else parse(judge)
        asked = {column, "observation"} if self.signal is None else self.signal.needs()
        self.needs = {"group", "episode", "turn"} | asked

    def __call__(self, turns: Turns, context: Context) -> Turns:
        """The table with `arena`."""
        if self.signal is not None:
            marked = turns.with_column(_item=episode_score(self.signal))
            ranked = by_group(
                marked, self._standing(self._by_score(context.rng), context), name="arena", column="_item"
            )
            return Turns(ranked.frame.drop("_item"))
        judge = self._judge(context)
        seen = pl.col("observation").sort_by("turn").first().over("group", "episode")
        text = pl.col(self.column).cast(pl.String)
        item = pl.when(text.is_not_null()).then(pl.struct(task=seen, text=text))
        marked = Turns(turns.frame.with_columns(_item=item))
        ranked = by_group(marked, self._standing(judge, context), name="arena", column="_item")
        return Turns(ranked.frame.drop("_item"))

    def _standing(self, judge: Callable[[Any, Any], tuple[float, float]], context: Context) -> Any:
        def of(items: list[Any]) -> np.ndarray:
            return compare(items, judge, topology=self.topology, rng=context.rng).score

        return of

    def _by_score(self, rng: np.random.Generator) -> Callable[[float, float], tuple[float, float]]:
        def judge(first: float, second: float) -> tuple[float, float]:
            lead = first - second + (self.noise * rng.normal() if self.noise else 0.0)
            share = float(scipy.special.expit(lead))
            return 10 * share, 10 - 10 * share

        return judge

    def _judge(self, context: Context) -> Callable[[Any, Any], tuple[float, float]]:
        owner, _, name = self.judge.partition(":")
        if owner == "policy":
            if name not in context.team.policies:
                raise InputError(f"the team has no policy {name!r}{nearest(name, context.team.policies)}")
            found: Any = context.team.policies[name]
        else:
            found = load_object(self.judge, "tournament: judge")
        if not isinstance(found, Policy):
            return lambda first, second: found(first["text"], second["text"])
        seed = int(context.rng.integers(2**31))

        def asked(first: Any, second: Any) -> tuple[float, float]:
            prompt = self.prompt.format(task=first["task"], first=first["text"], second=second["text"])
            context.spent.add(calls=1)
            (answer,) = ask(found, [(prompt, 0)], _two_numbers, seed=seed)
            if answer is None:
                raise PolicyError(f"{found.name}: no two numbers in its answer")
            return answer

        return asked


def _two_numbers(text: str) -> tuple[float, float] | None:
    found = re.findall(r"-?\d+(?:\.\d+)?", text)
    return (float(found[0]), float(found[1])) if len(found) >= 2 else None
