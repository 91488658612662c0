"""Training that plays ahead of learning, and the rule of it written down for one process."""

from __future__ import annotations

import copy
import functools
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from signalling import Signalling

from palaestra.agents import LMPolicy, TabularPolicy, Team
from palaestra.algebra.turns import Turns
from palaestra.credit import agent_return, grpo
from palaestra.learning import PolicyGradient, Trainer
from palaestra.play.executors import EXECUTORS, Local, Plan

CREDIT = grpo(agent_return())
GROUPS, SIZE, SEED, SHARDS = 5, 4, 3, 3
ITERATIONS = 7

State = dict[str, dict[str, torch.Tensor]]


def players() -> Team:
    words = ["hear la", "hear mi so", "red green blue"]
    seeker = LMPolicy.tiny(words, name="seeker", hidden=16, layers=1, heads=2, max_new_tokens=2)
    return Team(guide=TabularPolicy(3, name="guide", capacity=8), seeker=seeker)


def learner_of(team: Team) -> PolicyGradient:
    return PolicyGradient(team, "surrogate(), kl(0.01)", lr=0.05, minibatch=16, epochs=2)


def state_of(team: Team) -> State:
    return copy.deepcopy(team.state_dict())


def same(one: State, other: State) -> bool:
    return one.keys() == other.keys() and all(
        one[name].keys() == other[name].keys() and all(torch.equal(one[name][k], other[name][k]) for k in one[name])
        for name in one
    )


def trainer(directory: Path | None = None, *, lag: int = 0, executor: str = "local", **options: Any) -> Trainer:
    team = Team.made(players)
    made = EXECUTORS.build(f"{executor}(shards={SHARDS})" if "(" not in executor else executor)
    settings: dict[str, Any] = {"iterations": ITERATIONS, "checkpoint_every": 2, "credit": CREDIT, "seed": SEED}
    settings |= {"groups": GROUPS, "group_size": SIZE, "directory": directory, "executor": made, "lag": lag}
    return Trainer(Signalling, team, learner=learner_of(team), **(settings | options))


@functools.cache
def simulate(lag: int, iterations: int = ITERATIONS) -> tuple[State, list[Turns]]:
    """One process, one thread: iteration i is played with the weights after max(0, i - 1 - lag) updates."""
    team = players()
    learner, weights, tables = learner_of(team), [state_of(team)], []
    for iteration in range(1, iterations + 1):
        updates = max(0, iteration - 1 - lag)
        player = players()
        player.load_state_dict(weights[updates])
        plan = Plan(GROUPS, SIZE, seed=SEED, iteration=iteration, version=updates)
        turns = Local(shards=SHARDS).play(Signalling, player, plan).with_column(advantage=CREDIT)
        learner.update(turns, rng=np.random.default_rng(np.random.SeedSequence(SEED, spawn_key=(iteration, 0))))
        weights.append(state_of(team))
        tables.append(turns)
    return weights[-1], tables


def slowly(directory: Path, lag: int, executor: str = "local") -> None:
    """Forty iterations, for somebody who wants to be in the middle of it."""
    torch.set_num_threads(1)

    def linger(iteration: int, team: Team) -> dict[str, float]:
        time.sleep(0.05)
        return {}

    trainer(directory, lag=lag, executor=executor, after_iteration=linger, iterations=40).run()
