"""The influence of one seat on the others' next actions, in play whose answer is known."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
import pytest

from palaestra.agents import TabularPolicy, Team
from palaestra.algebra.turns import Turns
from palaestra.envs.protocol import Observation
from palaestra.errors import InputError
from palaestra.learning.critics import ValueNetwork
from palaestra.learning.opponent_model import ActionNetwork
from palaestra.learning.stages import Context
from palaestra.learning.stages.minority_influence import _rows_of, minority_influence

SMALL: dict[str, Any] = {"samples": 2000, "steps": 12, "hidden": (16,), "lr": 0.03}


class Echo:
    agents = ("a", "b")

    def reset(self, seed: int) -> dict[str, Observation]:
        return dict.fromkeys(self.agents, Observation("say", choices=("x", "y")))


def played(seed: int, episodes: int = 40) -> Turns:
    """Three turns; `b` says what `a` said in the turn before, and x costs `a` one."""
    said = np.random.default_rng(seed).integers(2, size=(episodes, 4))
    rows = [
        {"group": episode, "episode": 0, "turn": turn, "agent": agent, "policy": agent, "action": "xy"[action],
         "action_ids": [action], "observation": "say", "reward": float(agent == "b" and action == 0)}
        for episode in range(episodes)
        for turn in range(3)
        for agent, action in (("a", int(said[episode, turn + 1])), ("b", int(said[episode, turn])))
    ]  # fmt: skip
    return Turns(pl.DataFrame(rows).with_columns(state=pl.lit(1, pl.UInt64)))


def context(iteration: int) -> Context:
    team = Team(a=TabularPolicy(2, name="a"), b=TabularPolicy(2, name="b"))
    return Context(np.random.default_rng(iteration), iteration, Echo, team, None)  # type: ignore[arg-type]


def test_the_average_over_the_own_policy_is_half_of_the_way_to_the_target() -> None:
    stage, told = minority_influence("a", **SMALL), context(0)
    for iteration in range(4):
        told = context(iteration)
        found = stage(played(iteration), told)
    own = found.filter(pl.col("agent").cast(pl.String) == "a").frame
    np.testing.assert_allclose(own.filter(pl.col("turn") < 2)["influence"].to_numpy(), 1.0, atol=0.2)
    assert own.filter(pl.col("turn") == 2)["influence"].to_list() == [0.0] * 40  # nobody acts afterwards
    assert told.metrics["cross_entropy"] < 0.2
    assert told.metrics["target_probability"] > 0.9


def test_it_goes_on_after_a_stop() -> None:
    whole = minority_influence("a", **SMALL)
    found = [whole(played(n), context(n))["influence"].to_list() for n in range(3)]
    stopped, waiting, again = (minority_influence("a", **SMALL) for _ in range(3))
    stopped(played(0), context(0))
    stopped(played(1), context(1))
    waiting.load_state_dict(stopped.state_dict())
    again.load_state_dict(waiting.state_dict())  # saved before it was used again
    np.testing.assert_array_equal(again(played(2), context(2))["influence"].to_list(), found[2])


def test_pay_counts_from_the_next_turn_on_and_is_discounted() -> None:
    turns = played(0, episodes=1).with_column(reward=np.array([1.0, 10.0, 0.0, 4.0, 8.0, 0.0]))
    stage = minority_influence("a", "reward", gamma=0.5)
    assert stage._later_pay(turns, np.array([0, 2, 4])).tolist() == [8.0, 8.0, 0.0]


def test_bad_options_are_named() -> None:
    with pytest.raises(InputError, match="samples=0"):
        minority_influence("a", samples=0)
    with pytest.raises(InputError, match="3 different actions were met: there is room for 2"):
        ActionNetwork(2, 1, 2).meet(3)


def test_who_acts_in_a_turn_and_who_acts_next_is_found_though_one_waits() -> None:
    keys = [(0, "a"), (0, "b"), (1, "a"), (2, "a"), (2, "b")]
    rows = [{"group": 0, "episode": 0, "turn": turn, "agent": agent} for turn, agent in keys]
    now, later = _rows_of(Turns(pl.DataFrame(rows)), np.array([0, 2, 3]), ["b"])
    assert now[:, 0].tolist() == [1, -1, 4]
    assert later[:, 0].tolist() == [4, 4, -1]


def test_what_was_expected_is_no_gain(monkeypatch: pytest.MonkeyPatch) -> None:
    turns, stage, gains = played(0, episodes=4), minority_influence("a", **SMALL | {"steps": 1}), []
    worth = stage._later_pay(turns, np.arange(0, len(turns), 2))
    monkeypatch.setattr(ValueNetwork, "predict", lambda self, seen: worth)
    monkeypatch.setattr(ActionNetwork, "reinforce", lambda self, seen, done, gain, steps: gains.append(gain))
    stage(turns, context(0))
    assert worth.std() > 0
    np.testing.assert_allclose(gains, 0.0, atol=1e-9)


def test_there_is_room_for_as_many_actions_as_most_says() -> None:
    turns = played(0, episodes=4)
    own, nobody = np.arange(0, len(turns), 2), np.full((len(turns) // 2, 1), -1)

    def joint(most: int) -> np.ndarray:
        stage = minority_influence("a", most=most)
        return stage._joint(stage._codes(turns["action"]), own, nobody)

    assert joint(2)[:, :2].sum(axis=1).tolist() == [1.0] * len(own)
    with pytest.raises(InputError, match="2 different actions were met"):
        joint(1)
