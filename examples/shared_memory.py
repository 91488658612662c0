"""Does a team learn better with a shared memory? Two tables learn from nothing what to write, and what it means.

A ball is under one of three cups. `first` reads under which, and one swap of two cups; `second` reads the next swap and
says where the ball is. They hear nobody. `first` may write one entry into the team's memory, or say something that is
lost. The same team is trained five times, with the same seed, and plays the same rounds afterwards:

    messages    without a memory; second hears first, the usual team
    memory      second is shown the entries
    entry       as memory, but the entry is another one, drawn at random: that there is one is all that it says
    turn        as memory, but all that first does is drawn at random: another episode's memory
    nothing     neither memory nor messages

    python examples/shared_memory.py
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import polars as pl
import torch

from palaestra import PolicyGradient, TabularPolicy, Team, Turns
from palaestra.agents import Decision, Request
from palaestra.credit import grpo
from palaestra.envs import EnvFactory, Observation, make
from palaestra.envs.tool_calls import Call, write
from palaestra.evaluation import comparison_table, trials, verdict
from palaestra.play.rollout import rollout
from palaestra.teams import shared_memory, workflows

CUPS = ("a", "b", "c")
NOTES = tuple(write([Call("remember", {"text": cup})]) for cup in CUPS)
ARMS = ("memory", "messages", "entry", "turn", "nothing")


class SayingTable(TabularPolicy):
    """Table of logits over a few texts, one of which is said; `drawn` "entry" or "turn" says another one instead."""

    def __init__(self, texts: Sequence[str], *, name: str, drawn: str = "") -> None:
        super().__init__(len(texts), name=name, capacity=64)
        self.texts, self.drawn = texts, drawn

    def misfit(self, observation: Observation) -> str | None:
        """Free text fits."""
        return None

    def act(self, requests: Sequence[Request]) -> list[Decision]:
        """Decisions of the table, as texts; with `drawn` another text is said, but the table learns from its own."""
        decisions = super().act(requests)
        for decision, request in zip(decisions, requests, strict=True):
            said = self.texts[int(decision.action)]
            if self.drawn == "turn":
                said = self.texts[int(request.rng.integers(len(self.texts)))]
            elif self.drawn == "entry" and said in NOTES:
                said = NOTES[int(request.rng.integers(len(NOTES)))]
            decision.action = said
        return decisions


def env_of(arm: str) -> EnvFactory:
    """Env factory of the two readers: with messages, with a memory, or with neither."""
    two: dict[str, Any] = {"roles": ["first", "second"], "steps": ["first", "second"], "aggregate": "of('second')"}
    edges = {"second": ["first"]} if arm == "messages" else "none"
    env = workflows.graph(make("native/cups", cups=3, pages=2, filler=0), **two, edges=edges, reads="part")
    if arm in ("messages", "nothing"):
        return env
    return shared_memory(env, write="first", read="second", recall=0, turns=1)


def team_of(arm: str) -> Team:
    """Two tables that have learned nothing: all texts are equally likely."""
    drawn = arm if arm in ("entry", "turn") else ""
    first = SayingTable((*NOTES, *CUPS), name="first", drawn=drawn)
    return Team(first=first, second=SayingTable(CUPS, name="second"))


def train(arm: str, seed: int, *, lr: float = 0.3, iterations: int = 50, groups: int = 16) -> Team:
    """The team of an arm after training."""
    team = team_of(arm)
    learner = PolicyGradient(team, lr=lr)
    for iteration in range(1, iterations + 1):
        turns = rollout(env_of(arm), team, groups=groups, group_size=4, seed=seed, iteration=iteration, timeout=None)
        learner.update(turns.with_column(advantage=grpo()))
    return team


def played(arm: str, team: Team, seed: int, groups: int = 200) -> Turns:
    """Rounds from seeds that training never uses."""
    run = str(seed)
    turns = rollout(env_of(arm), team, groups=groups, group_size=2, seed=seed, stream="eval", run=run, timeout=None)
    return Turns(turns.frame.with_columns(system=pl.lit(arm)).select("system", *COLUMNS))


COLUMNS = ("run", "iteration", "group", "episode", "turn", "agent", "task", "reward", "success", "error")


def main(seeds: Sequence[int] = range(3)) -> None:
    torch.set_num_threads(1)
    found = []
    for arm in ARMS:
        began = time.process_time()
        for seed in seeds:
            found.append(played(arm, train(arm, seed), seed))
        print(f"{arm}: {(time.process_time() - began) / len(seeds):.1f} CPU-seconds a training")
    for row in comparison_table(trials(Turns.concat(found)), baseline="nothing"):
        s = row.success
        print(f"{row.system:9s} {s.mean:.0%} (95 % interval {s.low:.0%} to {s.high:.0%}): {verdict(row)}")


if __name__ == "__main__":
    main()
