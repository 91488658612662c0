"""Contexts of play in a column, and an encoder that follows slowly."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
import pytest
import torch

from palaestra.agents import ContextualPolicy, MLPPolicy, Team
from palaestra.envs import make
from palaestra.errors import InputError
from palaestra.learning.stages import Context
from palaestra.learning.stages.agent_model import agent_model
from palaestra.learning.stages.critic import critic
from palaestra.play.rollout import rollout

ENV = make("recent", env="native/opponents", steps=6, noise=2, rounds=8)
SMALL: dict[str, Any] = {"least": 3, "batch": 8, "steps": 2}


def member() -> ContextualPolicy:
    return ContextualPolicy(6 * 6, 3, steps=6, context=2, name="ego")


def context(policy: Any, iteration: int = 0) -> Context:
    return Context(np.random.default_rng(iteration), iteration, ENV, Team(ego=policy), None)  # type: ignore[arg-type]


def test_the_column_holds_what_was_acted_on_and_null_elsewhere() -> None:
    policy = member()
    turns = rollout(ENV, Team(ego=policy), groups=6, seed=0)
    others = turns.with_column(policy=pl.when(pl.col("group") < 2).then(pl.lit("other")).otherwise(pl.lit("ego")))
    told = context(policy)
    found = agent_model("ego", **SMALL)(others, told).frame
    assert (found["context"].is_null() == (found["group"] < 2)).all()
    assert found["context"].drop_nulls().list.len().unique().to_list() == [2]
    assert {"loss", "margin", "rank"} <= told.metrics.keys()


def test_a_resumed_stage_goes_on_bit_for_bit() -> None:
    ends = []
    for stop in (False, True):
        policy, stage = member(), agent_model("ego", **SMALL)
        for iteration in range(3):
            told = context(policy, iteration)
            if stop and iteration == 2:
                state = stage.state_dict()
                stage = agent_model("ego", **SMALL)
                stage.load_state_dict(state)
            stage.plan(None, told)
            turns = stage(rollout(ENV, Team(ego=policy), groups=6, seed=0, iteration=iteration), told)
        ends.append((turns.frame["context"].to_list(), told.metrics))
    assert ends[0] == ends[1]


def test_the_policy_changes_in_the_next_iteration_only() -> None:
    policy, stage = member(), agent_model("ego", **SMALL)
    before = {name: each.clone() for name, each in policy.encoder.state_dict().items()}
    stage.plan(None, context(policy))
    stage(rollout(ENV, Team(ego=policy), groups=6, seed=0), context(policy))
    assert all(torch.equal(each, before[name]) for name, each in policy.encoder.state_dict().items())
    stage.plan(None, context(policy, 1))
    assert any(not torch.equal(each, before[name]) for name, each in policy.encoder.state_dict().items())


def test_a_critic_can_read_the_contexts() -> None:
    policy = member()
    turns = agent_model("ego", **SMALL)(rollout(ENV, Team(ego=policy), groups=6, seed=0), context(policy))
    reader = critic("network", gamma=0.0, lam=0.0, reads=["context"])
    reader(turns, context(policy))
    plain = critic("network", gamma=0.0, lam=0.0)
    plain(turns, context(policy))
    assert reader.network is not None
    assert plain.network is not None
    assert reader.network.inputs == plain.network.inputs + 2
    assert "context" in reader.needs


def test_two_policies_fill_one_column() -> None:
    others = {"others": 2, "own": 10, "window": 2}
    env = make("recent", env="native/traffic", steps=4, walkers=2, drivers=2, cells=5, horizon=4)
    members = [ContextualPolicy(4 * 17, 3, steps=4, others=others, name=f"walker_{k}") for k in range(2)]
    team = Team(walker_0=members[0], walker_1=members[1])
    turns = rollout(env, team, groups=4, seed=0)
    told = Context(np.random.default_rng(0), 0, env, team, None)  # type: ignore[arg-type]
    for name in team.policies:
        turns = agent_model(name, "predict", steps=1, batch=2)(turns, told)
    assert turns.frame["context"].null_count() == 0
    assert turns.frame["context"].list.len().unique().to_list() == [32]
    assert {"loss", "instant_loss", "rank"} <= told.metrics.keys()


def test_predictions_need_the_others() -> None:
    turns = rollout(ENV, Team(ego=member()), groups=2, seed=0)
    with pytest.raises(InputError, match=r"needs options\.others"):
        agent_model("ego", "predict")(turns, context(member()))


def test_what_does_not_fit_is_named() -> None:
    turns = rollout(ENV, Team(ego=member()), groups=2, seed=0)
    with pytest.raises(InputError, match="not of kind contextual"):
        agent_model("mlp")(turns, context(MLPPolicy(36, 3)))
    with pytest.raises(InputError, match="did you mean 'ego'"):
        agent_model("egos")(turns, context(member()))
    with pytest.raises(InputError, match="loss='contrastiv'"):
        agent_model("ego", "contrastiv")
    with pytest.raises(InputError, match="mask=1"):
        agent_model("ego", mask=1.0)
