from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from palaestra.agents import ScriptedPolicy, Team
from palaestra.envs.worlds import Dilemma, Exchange
from palaestra.errors import EnvError, InputError
from palaestra.play.rollout import rollout
from palaestra.teams import WORKFLOWS, turn_tree
from palaestra.teams.turn_tree import TurnNode, expandable, softmax_chances
from palaestra.testing.env import check_env


def play(env, choose, groups=2):
    policies = {name: ScriptedPolicy(choose, name=name) for name in Exchange.agents}
    team = Team({seat: policies[seat.partition("-")[0]] for seat in env().agents})
    return rollout(env, team, groups=groups, group_size=1, seed=0).frame


def anything(request):
    return int(request.rng.integers(5))


def test_every_conversation_is_played_to_its_end_and_names_tell_the_way():
    frame = play(turn_tree(Exchange, 4, 2), anything, groups=6)
    assert frame.group_by("group").agg(pl.col("leaf").sum())["leaf"].to_list() == [8] * 6
    assert (frame["node"].str.replace(r"\.\d+$", "") == frame["parent"]).all()
    share = frame.filter("leaf").group_by("group").agg(pl.col("reward").mean())
    won = frame.group_by("group").agg(pl.col("success").last()).join(share, on="group")
    assert (won["success"] == (won["reward"] > 0.5)).all()
    assert (frame.filter(~pl.col("leaf"))["reward"] == 0).all()


def test_equal_answers_are_one_node_whose_chance_is_drawn_anew():
    frame = play(turn_tree(lambda: Exchange(values=2), 1, 8), lambda request: 4, groups=10)
    assert frame["node"].unique().to_list() == ["0.1"]
    assert frame.group_by("group").agg(pl.col("reward").n_unique())["reward"].max() == 2


def test_expansions_begin_neither_at_leaves_nor_beside_what_was_expanded():
    def node(talk, *children):
        return TurnNode("0", talk=talk, children=list(children))

    leaf = node("leaf")
    far = node("aaaa", node("aaaa bbbb", leaf))
    near = node("cccc", node("cccc dddd", node("cccc dddd eeee", leaf)))
    near.children[0].expanded = True
    root = node("", far, near, leaf)
    root.expanded = True
    assert [each.talk for each in expandable(root)] == ["aaaa", "cccc"]
    near.children[0].talk = "cccd"
    assert [each.talk for each in expandable(root, apart=0.3)] == ["aaaa"]


def test_good_conversations_are_gone_on_from_more_often():
    np.testing.assert_allclose(softmax_chances([0.9, 0.5, 0.1]), [0.4718, 0.3162, 0.2120], atol=5e-5)
    assert softmax_chances([3.0, 1.0, 2.0], most=1).tolist() == [1, 0, 0]
    node = TurnNode("0")
    for value in (1.0, 0.0, 0.5):
        node.add(value)
    assert (node.value, node.rollouts) == (0.5, 3)


def test_held_out_conversations_are_played_once():
    frame = play(turn_tree(lambda: Exchange(split="test"), 8, 3), lambda request: 0)
    assert frame["agent"].cast(pl.String).unique().sort().to_list() == ["ann-1", "bob-1"]
    assert frame.filter(pl.col("group") == 0)["node"].to_list() == ["0" + ".1" * k for k in range(1, 9)]


def test_it_is_an_env_and_says_what_it_cannot_do():
    check_env(turn_tree(Exchange, 2, 2, seats=3))
    assert "turn_tree" in WORKFLOWS
    with pytest.raises(InputError, match="at least the rollouts"):
        turn_tree(Exchange, 2, 3, seats=2)
    with pytest.raises(EnvError, match="act at once"):
        turn_tree(Dilemma, 2)().reset(0)
