"""`OrderedPolicy`: a point on a scale of actions that have an order."""

from __future__ import annotations

import numpy as np
import pytest

from palaestra.agents import OrderedPolicy
from palaestra.agents.policy import Request
from palaestra.envs.protocol import Observation
from palaestra.errors import InputError

CHOICES = tuple(str(k / 10) for k in range(11))


def seen(*features):
    return Observation("?", choices=CHOICES, array=np.array(features, np.float32))


@pytest.mark.parametrize(("features", "place"), [((0.0,), 5), ((0.3,), 8), ((-0.5,), 0), ((9.0,), 10)])
def test_it_plays_near_its_point(features, place):
    rule = OrderedPolicy(1, 11, start=[1.0, 0.5])
    probabilities, _ = rule.choice_probabilities([seen(*features)])
    assert probabilities[0].argmax() == place
    assert probabilities[0, place] > 0.99
    assert rule.act([Request(seen(*features), "a", np.random.default_rng(0))])[0].action == place


def test_noise_spreads_what_is_played():
    wide = OrderedPolicy(1, 11, noise=0.2).choice_probabilities([seen(0.0)])[0][0]
    places = np.linspace(0, 1, 11)
    assert np.sqrt(wide @ (places - 0.5) ** 2) == pytest.approx(0.2, abs=0.03)


def test_starts_are_drawn_from_the_seed():
    one, same, other = (OrderedPolicy(2, 5, spread=[0.5, 0.5, 0.0], seed=seed).state_dict() for seed in (1, 1, 2))
    assert one["0.weight"].equal(same["0.weight"])
    assert not one["0.weight"].equal(other["0.weight"])
    assert float(one["0.bias"]) == 0.5


def test_it_is_saved_and_loaded(tmp_path):
    rule = OrderedPolicy(2, 5, spread=1.0, seed=3, noise=0.3)
    rule.save(tmp_path)
    again = OrderedPolicy.load(tmp_path)
    looked = Observation("?", choices=CHOICES[:5], array=np.ones(2, np.float32))
    assert (again.choice_probabilities([looked])[0] == rule.choice_probabilities([looked])[0]).all()


@pytest.mark.parametrize("options", [{"noise": 0.0}, {"start": [1.0]}, {"spread": [1.0, 1.0]}])
def test_what_does_not_fit_is_named(options):
    with pytest.raises(InputError, match=next(iter(options))):
        OrderedPolicy(2, 5, **options)
