"""PettingZoo's own tests, run on ours."""

from __future__ import annotations

import functools
import warnings
from typing import Any

import numpy as np
import pytest

pytest.importorskip("pettingzoo")

from pettingzoo.test import api_test, parallel_api_test, seed_test

from palaestra.envs import make, to_pettingzoo
from palaestra.envs.pettingzoo import PettingZooAEC
from palaestra.envs.roles import Gui
from palaestra.errors import InputError
from palaestra.teams import pipeline
from palaestra.testing import check_env

ENVS: dict[str, Any] = {
    "turns": make("openspiel/kuhn_poker", illegal="random"),
    "board": make("openspiel/connect_four"),
    "at once": make("openspiel/goofspiel(num_cards=3,imp_info=True)"),
    "text and choices": make("native/bargaining", rounds=3),
    "several at once": make("native/queue"),
    "text": functools.partial(Gui, steps=3),
    "alone": make("native/corridor"),
    "one after the other": make("native/guardians"),
    "other choices in turn": make("native/procedure"),
    "text, then choices": make("native/graph_game"),
}


@pytest.mark.parametrize("name", ENVS)
@pytest.mark.parametrize("api", ["aec", "parallel"])
def test_petting_zoo_accepts_it(name: str, api: str) -> None:
    env = to_pettingzoo(ENVS[name], api=api)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if api == "aec":
            api_test(env, num_cycles=60)
            seed_test(lambda: to_pettingzoo(ENVS[name]), num_cycles=10)
        else:
            parallel_api_test(env, num_cycles=60)


def test_there_and_back_is_the_same_game() -> None:
    """Returns and ends of random games agree with those of the env itself, through both adapters."""
    ours, back = ENVS["turns"](), PettingZooAEC(functools.partial(to_pettingzoo, ENVS["turns"]), illegal="random")
    board = functools.partial(to_pettingzoo, ENVS["board"])
    check_env(functools.partial(PettingZooAEC, board), varied=False, seeds=(0, 1))
    for seed in range(20):
        rng = np.random.default_rng(seed)
        one, other = ours.reset(seed), back.reset(seed)
        totals = np.zeros(2), np.zeros(2)
        while one:
            ((agent, seen),) = one.items()
            assert list(other) == [agent]
            assert (other[agent].array == seen.array).all()
            move = int(rng.choice(np.flatnonzero(seen.mask)))
            results = ours.step({agent: move}), back.step({agent: move})
            for total, result in zip(totals, results, strict=True):
                total += [result.rewards.get(name) or 0.0 for name in ours.agents]
            one, other = (result.observations for result in results)
        assert not other
        assert totals[0].tolist() == totals[1].tolist()


def test_text_is_bytes_and_stands_in_the_info() -> None:
    env = to_pettingzoo(ENVS["text"], longest=40)
    env.reset(seed=3)
    text = env.infos["user_agent"]["text"]
    shown = env.observe("user_agent")["observation"]
    assert bytes(shown) == text.encode()[:40]
    env.step("click 1 1")
    assert env.infos["user_agent"]["gold_type"] == "click"


def test_agents_that_act_at_once_are_asked_one_after_the_other() -> None:
    env = to_pettingzoo(ENVS["several at once"])
    env.reset(seed=0)
    asked = []
    for _ in range(3):
        asked.append(env.agent_selection)
        assert not any(env.rewards.values())
        env.step(0)
    assert asked == ["a", "b", "c"]
    assert env.agent_selection == "a"


@pytest.mark.parametrize("name", ["guardians", "procedure", "assistance", "reputation", "review", "opponents"])
def test_the_mask_offers_no_action_that_the_env_does_not_have(name: str) -> None:
    env = to_pettingzoo(make(f"native/{name}"))
    for seed in range(5):
        env.reset(seed=seed)
        for agent in env.agent_iter(max_iter=60):
            observation, _, over, cut, _ = env.last()
            assert env.observation_space(agent).contains(observation)
            if over or cut:
                env.step(None)
                continue
            seen = env._seen[agent]
            mask = seen.mask if seen.mask is not None else [1] * len(seen.choices)
            padding = [0] * (env.action_space(agent).n - len(seen.choices))
            assert observation["action_mask"].tolist() == [*mask, *padding]
            env.step(int(env.action_space(agent).sample(observation["action_mask"])))


def test_an_env_that_breaks_in_random_play_is_opened_and_breaks_in_play() -> None:
    class Broken(Gui):
        agents = ("user_agent", "other")

        def step(self, actions: Any) -> Any:
            raise KeyError("no")

    env = to_pettingzoo(functools.partial(Broken, steps=3))
    assert env.action_space("other") == env.action_space("user_agent")
    env.reset(seed=0)
    with pytest.raises(KeyError):
        env.step("x")


def test_a_pipeline_of_roles_can_be_exported() -> None:
    env = to_pettingzoo(pipeline(make("reasoning_gym", datasets={"basic_arithmetic": {}})))
    env.reset(seed=0)
    assert env.agent_selection == "solver"


def test_what_does_not_exist_is_named() -> None:
    with pytest.raises(InputError, match="did you mean 'parallel'"):
        to_pettingzoo(ENVS["turns"], api="paralel")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="longest=0"):
        to_pettingzoo(ENVS["turns"], longest=0)
