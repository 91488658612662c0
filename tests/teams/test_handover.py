"""Another one goes on in a seat."""

from __future__ import annotations

import functools

import pytest

from palaestra.agents import Team, fixed
from palaestra.envs.protocol import Observation
from palaestra.envs.worlds.corridor import Corridor
from palaestra.envs.worlds.halves import Halves
from palaestra.envs.worlds.native import NativeEnv
from palaestra.errors import EnvError, InputError
from palaestra.play.rollout import rollout
from palaestra.teams import handover
from palaestra.testing.env import check_env

HALVES = functools.partial(Halves, talk=False, density=0.0, horizon=5)


@pytest.mark.parametrize("after", [0, 2, 99])
def test_it_keeps_the_protocol(after):
    check_env(handover(HALVES, "a", "late", after))
    check_env(handover(Corridor, "walker", "late", after), varied=False)


def test_the_first_turns_are_those_of_the_first():
    team = Team(a=fixed("wait", name="one"), b=fixed("wait", name="two"), late=fixed("wait", name="three"))
    turns = rollout(handover(HALVES, "a", "late", 2), team, groups=3).frame
    assert turns.filter(turns["agent"] == "a")["turn"].unique().sort().to_list() == [0, 1]
    assert turns.filter(turns["agent"] == "late")["turn"].unique().sort().to_list() == [2, 3, 4]
    assert turns.filter(turns["agent"] == "b").height == 15
    assert turns["agreed"].null_count() == 0


class Alternate(NativeEnv):
    """Two seats that act in turn, four times; b begins."""

    agents = ("a", "b")

    def begin(self):
        return "alternate", []

    def look(self):
        return {} if len(self.state) == 4 else {"ba"[len(self.state) % 2]: Observation("go")}

    def play(self, chosen):
        self.state = [*self.state, *chosen]
        return {}, {}


def test_turns_of_others_do_not_count():
    env = handover(Alternate, "a", "late", 1)()
    (seen, *met) = (list(env.reset(0)),)
    while seen:
        met += seen
        seen = list(env.step({seen[0]: "go"}).observations)
    assert met == ["b", "a", "b", "late"]


def test_it_is_the_env_itself_and_both_are_paid():
    env, plain = handover(HALVES, "b", "late", 1)(), HALVES()
    seen, also = env.reset(5), plain.reset(5)
    assert {agent: each.text for agent, each in seen.items()} == {agent: each.text for agent, each in also.items()}
    with pytest.raises(EnvError, match=r"agents to act are \['a', 'b'\]"):
        env.step({"a": "up", "late": "up"})
    result = env.step({"a": "wait", "b": "nonsense"})
    assert result.info["valid"] == {"a": True, "b": False}
    state = env.inner.state
    steps = ["down"] * (state.goal[0] - state.cell[0]) + ["up"] * (state.cell[0] - state.goal[0])
    steps += ["right"] * (state.goal[1] - state.cell[1]) + ["left"] * (state.cell[1] - state.goal[1])
    env.inner.horizon = 99
    for word in steps:
        assert result.observations.keys() == {"a", "late"}
        result = env.step({"a": word, "late": word})
    assert result.terminated
    assert result.rewards == {"a": 1.0, "b": 1.0, "late": 1.0}


def test_what_cannot_be_is_named():
    for options, complaint in (
        (("c", "late", 1), "seat='c' is no agent"), (("a", "b", 1), "to='b' must be a new name"),
        (("a", "late", -1), "after=-1"),
    ):  # fmt: skip
        with pytest.raises(InputError, match=complaint):
            handover(HALVES, *options)
