"""Worlds in which judges and assistants are trained: what they pay and tell."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from palaestra.envs import make
from palaestra.envs.worlds import Judging, Proactive
from palaestra.envs.worlds.judging import examiner
from palaestra.errors import InputError
from palaestra.testing import check_env


@pytest.mark.parametrize("name", ["judging", "proactive"])
def test_they_keep_the_protocol(name: str) -> None:
    check_env(make(f"native/{name}"))


def judged(env: Judging, way: str, verdict: str | None, seed: int = 0) -> tuple[Any, Any]:
    """One way of looking and one verdict; None says what was seen."""
    env.reset(seed)
    first = env.step({"judge": way})
    seen = first.observations["judge"].text[-1]
    return first, env.step({"judge": verdict or seen})


def test_a_verdict_pays_if_it_is_right() -> None:
    env = Judging(accuracy=[[1.0, 0.0]], costs=[0.0, 0.2])
    _, last = judged(env, "solve", None)
    assert last.rewards == {"judge": 1.0}
    facts = {name: last.info[name] for name in ("result", "consistent", "formatted", "success")}
    assert facts == {"result": 1.0, "consistent": 1.0, "formatted": 1.0, "success": True}
    first, last = judged(env, "rubric", None)  # always shows the wrong one
    assert (first.rewards, last.rewards) == ({"judge": -0.2}, {"judge": -1.0})
    assert (last.info["result"], last.info["consistent"]) == (0.0, 1.0)


def test_no_verdict_is_wrong_for_a_missing_reward_would_spare_it() -> None:
    _, last = judged(Judging(), "solve", "both")
    assert last.rewards == {"judge": -1.0}
    assert (last.info["result"], last.info["formatted"], last.info["success"]) == (0.0, 0.0, False)


def test_each_way_is_as_good_as_it_says() -> None:
    env = Judging()
    for kind, way in ((0, "solve"), (1, "rubric"), (0, "rubric")):
        hits = []
        for seed in range(1500):
            env.reset(seed)
            if env.state.kind == kind:
                hits.append(judged(env, way, None, seed)[1].info["result"])
        assert np.mean(hits) == pytest.approx(env.accuracy[kind][env.ways.index(way)], abs=0.04)


def test_wrong_options_are_refused() -> None:
    with pytest.raises(InputError, match="1 to 4 chances"):
        Judging(accuracy=[[0.5], [0.5, 0.5]])
    with pytest.raises(InputError, match="1 costs for 2"):
        Judging(costs=[0.1])
    with pytest.raises(InputError, match="need=2"):
        Proactive(need=2)


def test_the_examiner_takes_the_right_way_as_often_as_asked() -> None:
    env = Judging()
    for right, wanted in ((1.0, 0.875), (0.0, 0.7375)):
        play, rng, hits = examiner(right=right), np.random.default_rng(0), []
        for seed in range(2000):
            seen, said = env.reset(seed), None
            while seen:
                asked = SimpleNamespace(observation=seen["judge"], rng=rng)
                said = env.step({"judge": play(asked)})
                seen = said.observations
            hits.append(said.info["result"])
        assert np.mean(hits) == pytest.approx(wanted, abs=0.03)


def test_silence_earns_nothing_and_proposals_what_the_judge_thinks() -> None:
    env = Proactive(events=200, blur=0.0, error=0.0)
    seen = env.reset(0)["assistant"]
    rewards, needs = [], []
    while True:
        result = env.step({"assistant": "propose help" if "searches" in seen.text else "stay silent"})
        rewards.append(result.rewards["assistant"])
        needs.append(result.info["needed"])
        assert result.info["accepted"]
        assert result.info.get("success") is (True if result.terminated else None)
        if result.terminated:
            break
        seen = result.observations["assistant"]
    assert rewards == [float(each) for each in needs]
    assert 0.2 < np.mean(needs) < 0.4


@pytest.mark.parametrize("wrong", range(3))
def test_an_episode_with_one_wrong_answer_is_no_success(wrong: int) -> None:
    env = Proactive(events=3, need=1.0, blur=0.0)
    env.reset(0)
    for event in range(3):
        result = env.step({"assistant": "stay silent" if event == wrong else "propose help"})
    assert result.terminated
    assert result.info["success"] is False
