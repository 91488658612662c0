from __future__ import annotations

import pytest

from palaestra.agents import TabularPolicy, Team
from palaestra.errors import InputError
from palaestra.learning.play import PlayOnly
from palaestra.runs.inline import learn


def test_a_team_of_scripts_is_played_and_nothing_is_learned():
    short = {"iterations": 1, "groups": 2, "group_size": 2}
    found = learn("answers", {"policies": {"answerer": {"kind": "random"}}, "learn": {"kind": "play"}, "train": short})
    assert found.lines[0]["episodes"] == 4
    assert 0 <= found.lines[0]["success"] <= 1
    assert not found.lines[0]["policies"]
    assert not found.lines[0]["alarms"]


def test_whoever_could_learn_needs_a_learner():
    with pytest.raises(InputError, match="'table' could learn"):
        PlayOnly(Team(one=TabularPolicy(2, name="table")))
