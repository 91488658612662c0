"""Questions of two hops: the index, the split, and that one look-up is not enough."""

from __future__ import annotations

from typing import Literal

import pytest

from palaestra.agents import ScriptedPolicy, Team
from palaestra.envs import make
from palaestra.envs.roles.multi_hop import COLOURS, WARES, MultiHop, lookups, multi_hop_index, ships
from palaestra.errors import InputError
from palaestra.play.rollout import rollout
from palaestra.runs.envs import env
from palaestra.runs.recipe import load
from palaestra.testing import check_env


def test_it_keeps_the_protocol() -> None:
    check_env(make("roles/multi_hop"), play=lambda seen, rng: "salt")


def test_the_answer_is_two_documents_away() -> None:
    asked = MultiHop()
    for seed in range(40):
        asked.reset(seed)
        ship = next(each for each in ships() if f" {each} " in asked.question or f" {each}?" in asked.question)
        found, problem = multi_hop_index().run({"query": asked.question})
        assert problem is None
        assert "sails from" in found, "the port of the question is not named in it"
        first, _ = multi_hop_index().run({"query": ship})
        assert ships()[ship].name in first
        second, _ = multi_hop_index().run({"query": ships()[ship].name})
        assert asked.answer in second


def test_no_ship_is_on_both_sides() -> None:
    train, test = MultiHop().ships, MultiHop(split="test").ships
    assert not {*train} & {*test}
    assert {*train} | {*test} == {*ships()}
    assert len(test) == 36


@pytest.mark.parametrize("held_out", [0.1, 0.25, 0.5, 0.7])
@pytest.mark.parametrize("split", ["train", "test", "all"])
def test_each_answer_is_right_equally_often(split: Literal["train", "test", "all"], held_out: float) -> None:
    homes = [ships()[ship] for ship in MultiHop(split=split, held_out=held_out).ships]
    for words, answers in ((WARES, [port.sells for port in homes]), (COLOURS, [port.lamp for port in homes])):
        assert [answers.count(word) for word in words] == [len(homes) // 12] * 12


def test_a_share_is_met_within_a_twelfth() -> None:
    for share in (0.05, 0.3, 0.62, 0.9):
        assert len(MultiHop(split="test", held_out=share).ships) / 144 == pytest.approx(share, abs=1 / 12)


@pytest.mark.parametrize("workflow", [None, "single()"])
def test_a_perfect_player_answers_everything(workflow: str | None) -> None:
    part = load("two-lookups").env
    made = env(part if workflow is None else part.model_copy(update={"workflow": workflow, "tool_turns": 3}), "test")
    team = Team(dict.fromkeys(made().agents, ScriptedPolicy(lookups())))
    turns = rollout(made, team, groups=20, group_size=1, seed=0)
    assert turns["success"].all()
    assert turns.frame.filter(tool="search").height == 40


def test_what_cannot_be_is_said() -> None:
    for wrong in ({"split": "tset"}, {"held_out": 1.0}):
        with pytest.raises(InputError, match=r"split='tset'; did you mean 'test'|held_out=1.0"):
            MultiHop(**wrong)
    for wrong_call in (lambda: lookups(2.0), lambda: multi_hop_index(0)):
        with pytest.raises(InputError, match="must be"):
            wrong_call()
