"""Steps of demonstrations, progress towards goals in objects, prices of limits."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from stage_play import context, trained

from palaestra.agents import ScriptedPolicy, Team
from palaestra.algebra.turns import Turns
from palaestra.envs.worlds import Film
from palaestra.envs.worlds.film import demonstrator
from palaestra.errors import InputError
from palaestra.learning.stages.shaping import goal_progress, hops, multipliers, step_rewards
from palaestra.play.rollout import rollout


def test_steps_are_told_apart_after_a_few_demonstrations(tmp_path: Path) -> None:
    guide = ScriptedPolicy(demonstrator(), name="guide")
    shown = rollout(Film, Team(walker=guide), groups=5, seed=3)
    stage = step_rewards(guide, features="frame", most=6)
    made = stage(shown, context(env=Film))
    by_turn = made.frame.group_by("turn").agg(pl.col("step_2").mean(), pl.col("step_3").mean()).sort("turn")
    second, third = by_turn["step_2"].to_numpy(), by_turn["step_3"].to_numpy()
    assert second[3:7].min() > 1.5 * max(second[:3].max(), second[7:].max())
    assert third[7:].min() > 1.5 * third[:7].max()
    again = step_rewards(guide, features="frame")
    again.load_state_dict(stage.state_dict())
    assert again(shown, context(env=None)).frame.equals(made.frame)
    shown.save(tmp_path / "films.parquet")
    filmed = step_rewards(films=str(tmp_path / "films.parquet"), features="frame")(shown, context())
    assert filmed["step_3"].to_numpy()[-1] > 0.3
    with pytest.raises(InputError, match="guide or films"):
        step_rewards()


def test_hops_follow_the_first_film_in_the_order_of_its_turns(tmp_path: Path) -> None:
    path = tmp_path / "films.parquet"
    forth = {"group": [0] * 5, "episode": [0] * 5, "turn": range(5), "agent": ["a"] * 5, "frame": np.eye(5).tolist()}
    film = pl.DataFrame(forth)
    back = film.with_columns(pl.lit(1, pl.Int64).alias("group"), frame=pl.col("frame").reverse())
    found = []
    for films in (film, pl.concat([film, back]), film[[3, 0, 4, 1, 2]]):
        Turns(films).save(path)
        found.append(hops(films=str(path), features="frame", pairs=200)(Turns(film), context())["hop.forward"])
    assert found[0].to_list() == found[1].to_list() == found[2].to_list()
    assert found[0].to_numpy()[-1] > 0.9, "the last frame is the end of the way"


def things(place: str) -> str:
    return json.dumps([{"description": "mug", "attributes": {"place": place}}])


def test_progress_by_a_similarity_of_ones_own() -> None:
    turns = Turns({"objects": [things("sink"), things("fridge"), None], "wanted": [things("fridge")] * 3})
    assert goal_progress()(turns, context())["progress"].to_list() == [0, 1, None]
    alike = goal_progress(similarity=lambda one, other: 1.0 if one == other else 0.5)
    assert alike(turns, context())["progress"].to_list() == [0.5, 1, None]
    with pytest.raises(InputError, match="column 'objects' holds 'mug'"):
        goal_progress()(Turns({"objects": ["mug"], "wanted": [things("x")]}), context())


def test_a_limit_that_is_broken_costs_more_from_now_on() -> None:
    stage = multipliers({"broken": 0.2}, rate=0.5)
    bad, good = Turns({"broken": [1.0, 0.6, None]}), Turns({"broken": [0.0, 0.0, 0.0]})
    prices = [stage(table, context(n))["price.broken"][0] for n, table in enumerate([bad, bad, good], 1)]
    assert prices == pytest.approx([0, 0.3, 0.6])
    again = multipliers({"broken": 0.2}, rate=0.5)
    again.load_state_dict(stage.state_dict())
    assert again(good, context(4))["price.broken"].to_list() == pytest.approx([0.5] * 3)
    unknown = Turns({"broken": pl.Series([None], dtype=pl.Float64)})
    assert (
        again(unknown, context(5))["price.broken"][0]
        == again(unknown, context(6))["price.broken"][0]
        == pytest.approx(0.4)
    )


def test_a_demand_is_a_negative_cost() -> None:
    stage = multipliers({"lost": -0.5}, of={"lost": "-col('success')"}, rate=1.0)
    turns = Turns({"success": [False, False]})
    stage(turns, context())
    assert stage(turns, context(2))["price.lost"].to_list() == [0.5, 0.5]
    with pytest.raises(InputError, match="needs limits"):
        multipliers({})


def test_a_limit_waits_for_the_demand_that_comes_first() -> None:
    stage = multipliers({"lost": -0.5, "broken": 0.0}, of={"lost": "-col('success')"}, first="lost", rate=1.0)
    lost, won = ({"success": [success], "broken": [1.0]} for success in (False, True))
    prices = [stage(Turns(each), context(n))["price.broken"][0] for n, each in enumerate([lost, lost, won, won], 1)]
    assert prices == [0, 0, 0, 1]
    with pytest.raises(InputError, match="first='los' has no limit"):
        multipliers({"lost": 0.0}, first="los")


def test_a_run_holds_a_limit_that_it_would_break() -> None:
    reward = 'lagrangian("reward", ("broken", "price.broken"))'
    limited = {"stages": ['multipliers({"broken": 0.2}, rate=0.05)'], "reward": reward}
    train = {"train": {"iterations": 80}, "credit": "centre('reward', over=())", "learn": {"lr": 0.1}}
    costs = {}
    for name, changes in {"free": {}, "limited": limited}.items():
        _, tables = trained("arms", changes | train)
        costs[name] = float(np.mean([table["broken"].mean() for table in tables[-40:]]))
    assert costs["free"] > 0.9
    assert costs["limited"] < 0.5
