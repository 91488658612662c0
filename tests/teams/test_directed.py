from __future__ import annotations

import polars as pl
import pytest

from palaestra.agents import ScriptedPolicy, Team
from palaestra.envs.tasks import Task, TaskEnv
from palaestra.errors import InputError
from palaestra.play.rollout import rollout
from palaestra.teams import directed

SAID = {"debater-1": "0", "debater-2": "1", "debater-3": "1"}


class Zero(TaskEnv):
    def draw(self, seed):
        return Task("zero", "which?", lambda text: float(text == "0"), "0")


def played(**options):
    team = Team(dict.fromkeys(SAID, ScriptedPolicy(lambda request: SAID[request.agent])))
    return rollout(directed(Zero, 3, 5, **{"keep": 1, "first": 1} | options), team, groups=10, seed=0).frame


def test_edges_of_good_exchanges_stay_open():
    last = played(eta=0.5).filter(pl.col("round") == 4, pl.col("agent") != "debater-1")
    assert last["heard_grade"].to_list() == [[1.0]] * 20
    assert set(last.explode("heard_reason")["heard_reason"]) == {"", "closed by the director"}


def test_all_edges_are_a_plain_debate():
    frame = played(keep=2)
    assert frame.filter(pl.col("round") > 0)["heard_kept"].to_list() == [[True, True]] * 120


@pytest.mark.parametrize("options", [{"keep": 0}, {"keep": 3}, {"eta": 0}, {"first": 0}, {"grade": "nothing"}])
def test_what_cannot_be_is_said(options):
    with pytest.raises(InputError):
        played(**options)


def test_of_several_first_answers_one_is_drawn_from_the_first_that_differ():
    """`0 / 0 / 1 / 2 / 3` with first=3 is one of 0, 1 and 2; a single answer is taken as it is."""
    team = Team(dict.fromkeys(SAID, ScriptedPolicy(lambda request: "0 / 0 / 1 / 2 / 3")))
    frame = rollout(directed(Zero, 3, 2, keep=1, first=3), team, groups=30, seed=0).frame
    first = frame.filter(pl.col("round") == 0)
    assert set(first["answer"]) == {"0", "1", "2"}
    team = Team(dict.fromkeys(SAID, ScriptedPolicy(lambda request: "1")))
    frame = rollout(directed(Zero, 3, 2, keep=1, first=3), team, groups=2, seed=0).frame
    assert set(frame["answer"]) == {"1"}
