"""Partner selection, play and punishment, seat by seat."""

from __future__ import annotations

import numpy as np
import pytest

from palaestra.agents.policy import Request
from palaestra.envs import make
from palaestra.envs.protocol import Observation
from palaestra.errors import InputError
from palaestra.runs.scripts import make as make_script


def test_an_encounter_goes_from_choice_to_play_to_punishment():
    env = make("native/reputation", encounters=1)()
    (chooser,) = env.reset(0)
    assert chooser.startswith("select_")
    played = env.step({chooser: "anyone"})
    assert played.rewards == {}
    assert f"play_{chooser[7:]}" in played.observations
    watched = env.step(dict.fromkeys(played.observations, "cooperate"))
    assert len(watched.observations) == 2
    assert watched.rewards[chooser] == 3.0
    pairs = {seat[5:] for seat in played.observations}
    assert not pairs & {seat[7:] for seat in watched.observations}, "observers stand outside"
    last = env.step(dict.fromkeys(watched.observations, "pass"))
    assert last.terminated
    assert last.info["success"] is True


def test_without_stages_there_is_play_alone():
    env = make("native/reputation", players=2, encounters=3, selection=False, third=False)()
    seen = env.reset(0)
    for _ in range(3):
        assert set(seen) == {"play_0", "play_1"}
        result = env.step({"play_0": "defect", "play_1": "cooperate"})
        assert result.rewards == {"play_0": 4.0, "play_1": 1.0}
        seen = result.observations
    assert result.terminated


def test_who_is_wanted_and_not_there_is_replaced_by_anyone():
    env = make("native/reputation")()
    (chooser,) = env.reset(1)
    assert len(env.step({chooser: "cooperator"}).observations) == 2
    assert env.state.partner != env.state.chooser


def test_what_is_illegal_chooses_anyone_and_defects():
    env = make("native/reputation", encounters=1, third=False)()
    met = set()
    for seed in range(30):
        (chooser,) = env.reset(seed)
        env.state.last = [0, 1] * 5
        met.add(env.step({chooser: "me"}).info["met_defector"][chooser])
    assert met == {0.0, 1.0}
    pair = list(env.look())
    result = env.step({pair[0]: "?", pair[1]: "cooperate"})
    assert (result.rewards[pair[0]], result.rewards[pair[1]]) == (4.0, 1.0)
    assert result.info["success"] is False


def test_the_script_hits_defectors_with_its_share():
    rng = np.random.default_rng(0)

    def rate(text, share):
        play = make_script("punisher", {"share": share})
        asked = [Request(Observation(text, choices=("pass", "punish")), "punish_0", rng) for _ in range(300)]
        return np.mean([play(each) == "punish" for each in asked])

    assert rate("your partner defected", 1.0) == 1.0
    assert rate("your partner cooperated", 1.0) == 0.0
    assert rate("your partner defected", 0.5) == pytest.approx(0.5, abs=0.1)


@pytest.mark.parametrize("options", [{"players": 3}, {"payoffs": (1, 2)}, {"fine": -1.0}])
def test_what_is_out_of_range_is_named(options):
    with pytest.raises(InputError, match=next(iter(options))):
        make("native/reputation", **options)()
