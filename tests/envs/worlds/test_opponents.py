"""Opponents of types: habits, and what memory is worth."""

from __future__ import annotations

import numpy as np
import pytest

from palaestra.agents import ScriptedPolicy, Team
from palaestra.envs import make
from palaestra.envs.worlds.opponents import MOVES, TYPES, best_payoff, habits, memoryless_payoff
from palaestra.errors import InputError
from palaestra.play.rollout import rollout


def after(move):
    """What beats a move."""
    return MOVES[(MOVES.index(move) + 1) % 3]


def test_habits_are_distributions_with_one_favourite():
    law = habits(TYPES, 0.7)
    np.testing.assert_allclose(law.sum(axis=-1), 1.0)
    assert (law[0].argmax(axis=-1) == 0).all()
    assert law[3].argmax(axis=-1).tolist() == [1, 2, 0]


@pytest.mark.parametrize("kind", TYPES)
def test_who_knows_the_type_earns_the_best_payoff(kind):
    def play(request):
        last = request.observation.text.removeprefix("it played ")
        favourite = kind if kind != "turning" else after(last) if last in MOVES else "rock"
        return after(favourite)

    env = make("native/opponents", types=[kind], rounds=40)
    frame = rollout(env, Team(ego=ScriptedPolicy(play)), groups=100, seed=0).frame
    later = frame.filter(frame["turn"] > 0)
    assert later["reward"].mean() * 40 == pytest.approx(best_payoff(0.7), abs=0.04)


def test_the_last_move_alone_is_worth_less():
    play = ScriptedPolicy(lambda request: after(request.observation.text.removeprefix("it played "))
                          if "played" in request.observation.text else "rock")  # fmt: skip
    frame = rollout(make("native/opponents", rounds=20), Team(ego=play), groups=400, seed=0).frame
    later = frame.filter(frame["turn"] > 0)
    assert later["reward"].mean() * 20 == pytest.approx(memoryless_payoff(TYPES, 0.7), abs=0.03)


def test_a_move_that_is_none_loses():
    env = make("native/opponents", rounds=2)()
    env.reset(0)
    assert env.step({"ego": "lizard"}).rewards == {"ego": -0.5}


@pytest.mark.parametrize("options", [{"types": ["lizard"]}, {"types": []}, {"habit": 0.1}, {"noise": -1}])
def test_options_out_of_range_are_named(options):
    with pytest.raises(InputError, match=next(iter(options))):
        make("native/opponents", **options)()
