from __future__ import annotations

import polars as pl
import pytest

from palaestra.agents import ScriptedPolicy, Team
from palaestra.envs.tasks import Task, TaskEnv
from palaestra.errors import InputError
from palaestra.play.rollout import rollout
from palaestra.teams import self_organized

SAID = {"agent-1": "zzzz", "agent-2": "abcdeg", "agent-3": "abcde", "agent-4": "abcd"}


class Word(TaskEnv):
    def draw(self, seed):
        return Task("word", "which?", lambda text: float(text == "abcde"), "abcde")


def played(said=SAID, **options):
    team = Team(dict.fromkeys(said, ScriptedPolicy(lambda request: said[request.agent])))
    return rollout(self_organized(Word, 4, **options), team, groups=1, seed=0).frame


def test_the_strongest_opens_and_others_hear_those_before_them():
    frame = played(least=0.3)
    second = frame.filter(pl.col("round") == 1).sort("turn")
    assert second["agent"].cast(str).to_list() == ["agent-3", "agent-2", "agent-4", "agent-1"]
    heard = second.select(pl.col("heard_kept").list.sum()).to_series().to_list()
    assert heard == [0, 1, 2, 0]
    assert frame["success"].drop_nulls().to_list()[-1]


def test_a_team_that_agrees_is_asked_once():
    assert len(played(dict.fromkeys(SAID, "abcd"), rounds=3)) == 4


def test_likeness_is_a_share():
    with pytest.raises(InputError, match="least"):
        self_organized(Word, least=2)
