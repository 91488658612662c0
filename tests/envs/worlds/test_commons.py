"""The commons: phases, rationing, and what is said."""

from __future__ import annotations

import numpy as np
import pytest

from palaestra.agents.policy import Request
from palaestra.envs import make
from palaestra.envs.worlds.exact.commons import collapsed, ration, regrown, threshold
from palaestra.errors import InputError
from palaestra.runs.scripts import make as make_script
from palaestra.testing.env import check_env


def test_free_speech_keeps_the_protocol():
    def speak(seen, rng):
        return "let us share" if seen.choices is None else seen.choices[rng.integers(len(seen.choices))]

    check_env(make("native/commons", talk="free", rounds=3, speakers=2), play=speak, varied=False, seeds=(0, 1))


def test_rationing_gives_out_the_whole_pool():
    rng = np.random.default_rng(0)
    drawn = np.array([ration([4, 0, 8], 6, "random", rng) for _ in range(400)])
    assert (drawn.sum(1) == 6).all()
    assert (drawn[:, 1] == 0).all()
    assert (drawn[:, 0] <= 4).all()
    assert drawn[:, 0].mean() == pytest.approx(184 / 64, abs=0.15), "each unit is a toss between the two who want it"
    assert ration([4, 2], 6).tolist() == [4, 2]


def test_the_pool_has_a_cap_and_a_limit():
    assert regrown(60.0) == 100.0
    assert regrown(80.0, inverse=True) == 100.0
    assert collapsed(4.9)
    assert not collapsed(5.0)
    assert collapsed(96, inverse=True)
    assert threshold(47, 5) == 4


def test_an_illegal_wish_takes_nothing_and_silence_is_heard():
    env = make("native/commons", people=2, speakers=1)()
    env.reset(0)
    result = env.step({"person_0": "all", "person_1": "take 3"})
    assert result.rewards == {"person_0": 0.0, "person_1": 3.0}
    assert result.info["valid"] == {"person_0": False, "person_1": True}
    assert "person_0: nothing" in env.step({"person_0": "hm"}).observations["person_1"].text


def test_an_inverse_commons_pays_for_what_is_not_removed():
    env = make("native/commons", people=2, inverse=True, talk="none")()
    env.reset(0)
    result = env.step({"person_0": "remove 20", "person_1": "remove 5"})
    assert result.rewards == {"person_0": 0.0, "person_1": 15.0}
    assert result.info["over_used"] == {"person_0": 1.0, "person_1": 1.0}
    assert result.info["threshold"] == 25


def test_the_script_keeps_to_what_it_is_told():
    play = make_script("commons", {"wish": 12})
    env = make("native/commons", universal=True, pool=60)()
    seen = env.reset(0)["person_0"]
    assert play(Request(seen, "person_0", np.random.default_rng(0))) == "take 6"


@pytest.mark.parametrize("options", [{"talk": "loud"}, {"rationing": "fair"}, {"speakers": 9}, {"pool": 3}])
def test_what_is_out_of_range_is_named(options):
    with pytest.raises(InputError, match=next(iter(options))):
        make("native/commons", **options)()
