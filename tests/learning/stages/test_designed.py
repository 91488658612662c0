"""Designed and learned rewards in a run: the designer's own table, what a resume finds, what an env must tell."""

from __future__ import annotations

import functools
import itertools
from typing import Any

import numpy as np
import pytest
from stage_play import context, trained

from palaestra.agents import TabularPolicy, Team
from palaestra.algebra.turns import Turns
from palaestra.envs.worlds import Maze, Talk
from palaestra.errors import InputError
from palaestra.learning.stages.designed import bilevel, designed, explors
from palaestra.play.rollout import rollout
from palaestra.rewards import BilevelReward, explicable
from palaestra.rewards.shaping.mdp import optimal_q

LINE = functools.partial(Maze, "S......G", bonus={"S": 0.3})


def played(seed: int = 0, env: Any = LINE) -> tuple[Turns, Any]:
    team = Team(walker=TabularPolicy(2))
    return rollout(env, team, groups=4, seed=seed), context(env=env, team=team)


def test_the_model_of_a_maze_is_how_it_is_played() -> None:
    model = Maze("rooms").model()
    turns = rollout(functools.partial(Maze, "rooms"), Team(walker=TabularPolicy(4)), groups=20, seed=0)
    state, action = model.rows(turns["state"].to_list(), turns["action"].to_list())
    assert (state >= 0).all()
    assert (action >= 0).all()
    segments = turns.segments("episode", "agent")
    inner = np.setdiff1d(np.arange(len(turns) - 1), segments.starts + segments.lengths - 1)
    order = np.arange(len(turns)) if segments.order is None else segments.order
    here, there = order[inner], order[inner + 1]
    assert (model.transitions[state[here], action[here], state[there]] == 1).all()
    with pytest.raises(InputError, match="beacons"):
        Maze("rooms", beacons="KD").model()


def test_exprd_pays_what_its_linear_programme_says() -> None:
    turns, here = played()
    stage = designed(size=2)
    made = stage(turns, here)
    model = Maze("S......G").model()
    support, design = explicable(model.transitions, model.rewards["reward"], 0.9, 2)[-1]
    state, action = model.rows(turns["state"].to_list(), turns["action"].to_list())
    assert made["designed"].to_list() == pytest.approx(design.reward[state, action].tolist())
    assert set(np.flatnonzero(np.abs(made["designed"]) > 1e-9)) <= set(np.flatnonzero(np.isin(state, support)))
    again = designed(size=2)
    again.load_state_dict(stage.state_dict())
    assert again(turns, here).frame.equals(made.frame)


def test_expadard_keeps_the_optimum_for_the_policy_as_it_is() -> None:
    turns, here = played()
    stage = designed(adapt=2)
    stage(turns, here)
    assert stage.table is not None
    assert (optimal_q(LINE().model().transitions, stage.table, 0.9).argmax(axis=1) == 1).all()


def test_an_env_without_a_model_is_named() -> None:
    turns, here = played()
    with pytest.raises(InputError, match=r"env Talk has no model\(\)"):
        designed()(turns, context(env=Talk))
    with pytest.raises(InputError, match=r"no table of 'aux', but of reward, bonus"):
        bilevel("aux")(turns, here)


def test_explors_pays_for_new_states_and_goes_on_after_a_stop() -> None:
    (first, here), (second, _) = played(), played(1)
    whole = explors(every=1)
    one, two = whole(first, here), whole(second, here)
    assert one["explored"].to_numpy()[0] == pytest.approx(1 / np.sqrt(1 + _arrivals(first)))
    assert two["explored"].mean() < one["explored"].mean()
    stopped, again = explors(every=1), explors(every=1)
    stopped(first, here)
    again.load_state_dict(stopped.state_dict())
    assert again(second, here).frame.equals(two.frame)


def _arrivals(turns: Turns) -> int:
    """How often the state of the second turn was arrived at."""
    frame = turns.frame
    later = frame.filter(frame["turn"] > 0)
    return int((later["state"] == frame["state"][1]).sum())


@pytest.mark.parametrize("options", [{}, {"gamma": 0.9, "per_state": True, "hypergradient": "neumann"}])
def test_barfi_is_its_own_outer_loop(options: dict[str, Any]) -> None:
    """So many outer steps before the first iteration, one more in each later one, also after a stop."""
    turns, here = played()
    stage = bilevel(first=3, **options)
    made = stage(turns, here)["aligned"].to_list()
    model = LINE().model()
    reward, bonus = model.rewards["reward"], model.rewards["bonus"]
    own = BilevelReward(model.transitions, model.start, reward, bonus, **{"gamma": 0.95, "per_state": False} | options)
    state, action = model.rows(turns["state"].to_list(), turns["action"].to_list())
    for _ in range(3):
        own.step()
    assert made == pytest.approx(own.reward[state, action].tolist())
    again = bilevel(first=3, **options)
    again.load_state_dict(stage.state_dict())
    own.step()
    for each in (stage, again):
        assert each(turns, here)["aligned"].to_list() == pytest.approx(own.reward[state, action].tolist())


def test_a_run_trains_on_a_designed_reward() -> None:
    changes = {"stages": ["designed(size=3)"], "reward": "col('designed')", "train": {"iterations": 25}}
    designed_run, _ = trained("maze", changes)
    assert np.mean(designed_run.curve()[-5:]) > 0.8


def test_one_designed_state_is_enough_and_none_is_not() -> None:
    assert designed(size=1, adapt=1).size == 1
    for options in ({"size": 0}, {"adapt": 0}):
        with pytest.raises(InputError, match="must be at least 1"):
            designed(**options)


def test_with_adapt_3_the_reward_is_designed_anew_in_iterations_1_and_4() -> None:
    turns, here = played()
    stage, tables = designed(adapt=3), []
    for iteration in (1, 2, 4):
        here.iteration = iteration
        stage(turns, here)
        tables.append(stage.table)
    assert [one is not other for one, other in itertools.pairwise(tables)] == [False, True]
