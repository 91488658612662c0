"""Episodes that a model of the team imagines, as rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
import pytest

from palaestra.agents import MLPPolicy, Team
from palaestra.agents.scripted import random_legal
from palaestra.algebra.turns import Turns
from palaestra.envs import make
from palaestra.errors import InputError
from palaestra.learning.stages import Context
from palaestra.learning.stages.imagine import imagine
from palaestra.play.rollout import rollout

ENV = make("native/landmarks", walkers=2, shows="own", horizon=4)
SMALL: dict[str, Any] = {"episodes": 6, "horizon": 3, "steps": 2, "size": 8}


def walkers() -> Team:
    return Team(
        {name: MLPPolicy(4, 4, hidden=(8,), name=name, seed=k) for k, name in enumerate(("walker_0", "walker_1"))}
    )


def context(team: Any, iteration: int = 0) -> Context:
    return Context(np.random.default_rng(iteration), iteration, ENV, team, None)  # type: ignore[arg-type]


def test_imagined_rows_stand_below_those_of_play() -> None:
    team = walkers()
    turns = rollout(ENV, team, groups=5, seed=0)
    found = imagine(**SMALL)(turns, context(team)).frame
    rows = found.filter(pl.col("source") == "model")
    assert found.head(len(turns)).drop("source").equals(turns.frame)
    assert rows["group"].min() == 5
    assert rows["group"].n_unique() == 6
    ends = rows.group_by("group").agg(pl.col("turn").max() - pl.col("turn").min(), pl.col("terminated").n_unique())
    assert ends["turn"].max() < 3  # type: ignore[operator]
    assert (ends["terminated"] == 1).all()
    assert (rows["terminated"] ^ rows["truncated"]).all()
    assert rows.schema["agent"] == turns.frame.schema["agent"]


def test_sources_of_earlier_stages_stay() -> None:
    team = walkers()
    turns = rollout(ENV, team, groups=5, seed=0).with_column(source=pl.lit("good"))
    found = imagine(**SMALL)(turns, context(team)).frame
    assert set(found["source"]) == {"good", "model"}


def test_a_resumed_stage_goes_on_bit_for_bit() -> None:
    ends, team = [], walkers()
    for stop in (False, True):
        stage = imagine(**SMALL)
        for iteration in range(3):
            if stop and iteration == 2:
                state = stage.state_dict()
                stage = imagine(**SMALL)
                stage.load_state_dict(state)
            turns = rollout(ENV, team, groups=4, seed=0, iteration=iteration)
            found = stage(turns, context(team, iteration)).frame
        ends.append(found.filter(pl.col("source") == "model"))
    assert ends[0].equals(ends[1])


def test_memory_holds_the_newest_episodes() -> None:
    team, stage = walkers(), imagine(memory=7, **SMALL)
    for iteration in range(2):
        turns = rollout(ENV, team, groups=5, seed=0, iteration=iteration)
        stage(turns, context(team, iteration))
    assert stage.kept is not None
    assert len(stage.kept.ended) == 7


def test_what_cannot_be_imagined() -> None:
    scripted = Team(dict.fromkeys(("walker_0", "walker_1"), random_legal()))
    turns = rollout(ENV, walkers(), groups=3, seed=0)
    with pytest.raises(InputError, match="one number of actions"):
        imagine(**SMALL)(turns, context(scripted))
    masked = turns.with_column(legal=pl.lit([True] * 4))
    with pytest.raises(InputError, match="masks"):
        imagine(**SMALL)(masked, context(walkers()))
    with pytest.raises(InputError, match="needs an array"):
        imagine(**SMALL)(Turns(turns.frame.with_columns(features=pl.lit(None))), context(walkers()))
    for wrong in ({"horizon": 0}, {"kl": -1.0}, {"lr": 0.0}):
        with pytest.raises(InputError, match="imagine"):
            imagine(**wrong)  # type: ignore[arg-type]
