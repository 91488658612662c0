"""The small worlds on which rewards are compared: they keep the protocol, pay and tell what they say."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest

from palaestra.agents import ScriptedPolicy, Team
from palaestra.agents.scripted import fixed, random_legal
from palaestra.algebra.turns import Turns
from palaestra.envs import make
from palaestra.envs.worlds import Arms, CodesEnv, Film, Kitchen, Maze, Stakeholder, Talk, Voxels, Working
from palaestra.errors import InputError
from palaestra.play.rollout import rollout
from palaestra.testing import check_env


@pytest.mark.parametrize(
    "name", ["arms", "codes", "film", "kitchen", "maze", "stakeholder", "talk", "trade", "voxels", "working"]
)
def test_they_keep_the_protocol(name: str) -> None:
    check_env(make(f"native/{name}"), varied=name in ("codes", "voxels"))


def play(env: Any, *actions: Any) -> Turns:
    """One episode in which these are done one after the other, then the last for ever."""
    left = list(actions)
    policy = ScriptedPolicy(lambda request: left.pop(0) if len(left) > 1 else left[0], name="script")
    return rollout(env, Team(dict.fromkeys(env().agents, policy)), groups=1, seed=0)


def test_a_maze_ends_at_the_goal_and_is_cut_off_elsewhere() -> None:
    reached = play(functools.partial(Maze, "S..G"), "right")
    assert reached["reward"].to_list() == [0, 0, 1]
    assert reached["progress"].to_list() == pytest.approx([0, 1 / 3, 2 / 3])
    assert (reached["before"] - reached["distance"]).to_list() == [1, 1, 1]
    assert reached["terminated"].all()
    cut = play(functools.partial(Maze, "S..G", horizon=5), "left")
    assert (cut["truncated"].all(), cut["terminated"].any(), len(cut), cut["success"].any()) == (True, False, 5, False)


def test_messages_of_one_s_own_stand_where_their_sign_is() -> None:
    told = play(functools.partial(Maze, "SabG", messages={"a": "a rat", "b": "a cat"}), "right")
    assert told["message"].to_list() == ["a rat", "a cat", None]


def test_a_click_tells_the_supervoxel_of_the_largest_error_where_it_belongs() -> None:
    env = Voxels(cells=8, rounds=2, clicks=True)
    env.reset(3)
    moves = dict.fromkeys(env.agents, "+0.1") | {"cell_2": "-0.4" if env.state.truth[2] else "+0.4"}
    seen = env.step(moves).observations
    assert seen["cell_2"].text.endswith("inside" if env.state.truth[2] else "outside")
    assert env.state.told[2] == (1 if env.state.truth[2] else -1)


def test_a_manager_who_pays_for_questions_may_stop() -> None:
    env = functools.partial(Stakeholder, price=0.1)
    stopped = play(env, "ask about quality 0", "hand in")
    assert stopped["questions"].to_list() == [None, 1]
    assert len(play(env, *(f"ask about quality {number}" for number in range(6)))) == 6


def test_lava_doors_keys_messages_and_beacons() -> None:
    lava = play(functools.partial(Maze, "SLG"), "right")
    assert (lava["lava"].to_list(), lava["success"].to_list(), lava["reward"].to_list()) == ([True], [False], [0])
    shut = play(functools.partial(Maze, "KSDG", horizon=4), "right")
    assert shut["arrived"].to_list() == [1, 1, 1, 1]
    opened = play(functools.partial(Maze, "KSDG", beacons="KD", bonus={"D": 0.5}), "left", "right")
    assert opened["milestone"].to_list() == [0, None, 1, None]
    assert opened["bonus"].to_list() == [0, 0, 0.5, 0]
    assert opened["success"].all()
    assert "seek (0, 0)" in opened["observation"][0]
    told = play(functools.partial(Maze, "SmG"), "right")
    assert told["message"].to_list() == ["you see something useful", None]
    wrong = rollout(
        functools.partial(Maze, "S...KG", beacons="K", accuracy=0.5), Team(walker=random_legal()), groups=200, seed=0
    )
    first = wrong.frame.filter(wrong["turn"] == 0)["observation"]
    assert 0.4 < first.str.contains("seek (0, 4)", literal=True).mean() < 0.8


@pytest.mark.parametrize(
    "options", [{"map": "...G"}, {"map": "S.../..G"}, {"map": "S..."}, {"beacons": "K"}, {"accuracy": 2}]
)
def test_a_map_that_cannot_be_walked_is_refused(options: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="Maze"):
        Maze(**options)


def test_the_right_answer_needs_careful_work() -> None:
    careful = play(Working, "careful", "careful", "careful", "answer")
    assert careful["score"].to_list() == [0.85] * 3 + [0.9]
    many = {how: np.mean([answered(seed, how) for seed in range(60)]) for how in ("careful", "sloppy", "answer")}
    assert many["careful"] > 0.5 > 0.4 > many["sloppy"] > many["answer"] == 0
    assert len(play(Working, "repeat")) == 20


def answered(seed: int, how: str) -> float:
    env = Working()
    env.reset(seed)
    for _ in range(3 if how != "answer" else 0):
        env.step({"solver": how})
    return env.step({"solver": "answer"}).rewards.get("solver", 0.0)


def test_what_else_they_tell() -> None:
    arms = play(functools.partial(Arms, [1.0, 0.5], shows={"price": [3.0, 4.0]}), "arm 1")
    assert (arms["price"].to_list(), arms["reward"].to_list(), arms["success"].to_list()) == ([4.0], [0.5], [False])
    copied = rollout(
        CodesEnv, Team(player=ScriptedPolicy(lambda r: "sign " + r.observation.text[-1], name="copy")), groups=3, seed=0
    )
    assert copied["success"].all()
    assert copied["depth"].to_list() == [1, 2, 3, 4] * 3
    film = play(functools.partial(Film, noise=0.0), "right")
    assert np.array(film["frame"].to_list())[:, :6].argmax(axis=1).tolist() == [0] * 3 + [2] * 4 + [4] * 4
    assert film["reward"].to_list() == [0] * 10 + [1]
    talk = play(Talk, "greet", "ask", "shrug")
    assert talk["fits"].to_list() == [True, True, False, False]
    assert talk["reward"][3] == 0.5
    cooked = play(functools.partial(Kitchen, things=1), "make the mug be in the fridge", "make the mug be warm")
    assert cooked["reward"].to_list() == [0, 1]
    assert '"in the fridge"' in cooked["objects"][1]
    asked = play(functools.partial(Stakeholder, asked=4), 0, 1, 2, 3)
    assert asked["success"].all(), "what the stakeholder cares for was asked"
    assert asked["ndcg"][3] == pytest.approx(1)


def test_every_cell_is_told_its_own_loss() -> None:
    turns = rollout(
        functools.partial(Voxels, cells=8, rounds=2),
        Team(dict.fromkeys(Voxels(cells=8).agents, fixed("+0.1"))),
        seed=1,
        groups=1,
    )
    first = turns.frame.filter(turns["turn"] == 0)
    assert first["ce"].to_list() == pytest.approx([np.log(2)] * 8)
    assert sorted({round(x, 6) for x in first["ce_after"]}) == pytest.approx([-np.log(0.6), -np.log(0.4)], abs=1e-5)
    later = turns.frame.filter(turns["turn"] == 1)
    assert later["ce"].to_list() == first["ce_after"].to_list()
    assert later["reward"].n_unique() == 1
