"""The off-switch game: who decides, what is paid, and what counts as success."""

from __future__ import annotations

import numpy as np
import pytest

from palaestra.envs import make
from palaestra.envs.worlds.exact.deference import allowed, deference_value, gaussian_deference
from palaestra.errors import InputError


def test_the_human_may_be_a_seat_that_sees_the_utility():
    env = make("native/off_switch", beliefs=[(0.5, 1.0, 0.0)], seat=True)()
    assert "worth 0.5, give or take 1" in env.reset(3)["robot"].text
    asked = env.step({"robot": "wait"})
    assert set(asked.observations) == {"human"}
    assert asked.rewards.get("robot", 0.0) == 0
    done = env.step({"human": "allow"})
    assert done.terminated
    assert done.rewards["robot"] == done.rewards["human"] == done.info["utility"]
    assert f"{done.info['utility']:.2f}" in asked.observations["human"].text
    assert done.info["success"] is True


@pytest.mark.parametrize(("action", "paid"), [("act", True), ("off", False), ("nonsense", False)])
def test_only_what_is_carried_out_pays(action, paid):
    env = make("native/off_switch", beliefs=[(1.0, 1.0, 1.0)])()
    env.reset(0)
    result = env.step({"robot": action})
    assert result.rewards["robot"] == (result.info["utility"] if paid else 0.0)
    assert result.info["success"] is True, "waiting does not pay here"


def test_a_certain_robot_is_paid_its_mean():
    env = make("native/off_switch", beliefs=[(0.25, 1.0, 1.0)], certainty=1.0)()
    for seed in range(5):
        env.reset(seed)
        assert env.step({"robot": "act"}).rewards["robot"] == 0.25


def test_samples_and_closed_form_agree():
    draws = np.random.default_rng(0).normal(0.25, 1.0, 200_000)
    for error in (0.0, 1.0, 5.0):
        found = deference_value(draws, allowed(draws, error)).incentive
        assert found == pytest.approx(gaussian_deference(0.25, 1.0, error).incentive, abs=0.01)


def test_what_is_out_of_range_is_named():
    with pytest.raises(InputError, match="certainty"):
        make("native/off_switch", certainty=2)()
    with pytest.raises(InputError, match="beliefs"):
        make("native/off_switch", beliefs=[(0.0, -1.0, 0.0)])()
    with pytest.raises(InputError, match="error"):
        allowed(0.0, -1.0)
    with pytest.raises(InputError, match="samples"):
        deference_value(np.zeros(2), np.zeros(3))


@pytest.mark.parametrize("error", [0.0, 0.5])
def test_in_another_unit_waiting_is_worth_that_many_more(error):
    one, three = (gaussian_deference(0.25 * unit, 1.0 * unit, error * unit) for unit in (1, 3))
    assert three == pytest.approx([3 * each for each in one])
