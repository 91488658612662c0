"""Subgoals in the prompt: which are taken, when one gives way, and what is refused."""

from __future__ import annotations

import dataclasses
import functools

import numpy as np
import pytest

from palaestra.envs.protocol import Observation
from palaestra.envs.worlds import Corridor, Phrases, Review
from palaestra.errors import EnvError, InputError
from palaestra.teams import WORKFLOWS, Subgoals, subgoals
from palaestra.testing.env import check_env


def test_it_is_an_env_and_every_third_is_taken() -> None:
    env = subgoals(functools.partial(Corridor, cells=8), every=3)
    check_env(env, varied=False)
    made = env()
    made.reset(0)
    assert made.listed == [  # type: ignore[attr-defined]
        "cell 1, holding nothing", "cell 2, holding the key", "cell 5, holding the key", "the door is open"
    ]  # fmt: skip
    assert "subgoals" in WORKFLOWS


def test_only_the_current_one_is_checked_and_the_last_stays() -> None:
    env = Subgoals(functools.partial(Corridor, cells=3, horizon=9))
    seen = env.reset(0)["walker"].text
    assert seen == "cell 1 of 3, holding nothing; subgoal: cell 0, holding the key"
    first = env.step({"walker": "right"})
    assert (first.info["segment"], first.info["subgoal_done"]) == (0, False)
    for move in ("left", "left"):
        second = env.step({"walker": move})
    assert second.info["subgoal_done"]
    assert second.observations["walker"].text.endswith("subgoal: cell 1, holding the key")
    env.step({"walker": "right"})
    last = env.step({"walker": "right"})
    assert last.info["subgoal"] == "the door is open"
    assert last.info["success"]


def test_chat_models_read_it_too() -> None:
    class Talking(Corridor):
        def look(self) -> dict[str, Observation]:
            told = [{"role": "system", "content": "Walk."}, {"role": "user", "content": "Where to?"}]
            return {who: dataclasses.replace(each, messages=told) for who, each in super().look().items()}

    seen = Subgoals(Talking, only_last=True).reset(0)["walker"].conversation()
    assert [each["content"] for each in seen] == ["Walk.", "Where to?\n\nsubgoal: the door is open"]


def test_what_is_refused() -> None:
    with pytest.raises(InputError, match="Review has no subgoals"):
        subgoals(Review)
    with pytest.raises(InputError, match="every=0"):
        subgoals(Corridor, every=0)

    class Drawn(Phrases):
        def subgoals(self) -> list[str]:
            return ["done"]

        def met(self, subgoal: str) -> bool:
            return False

    assert Drawn().reset(0)["doer"].array is not None
    with pytest.raises(EnvError, match="arrays"):
        Subgoals(Drawn).reset(0)


def test_the_order_depends_on_the_seed_alone() -> None:
    env = Subgoals(functools.partial(Corridor, cells=12), shuffled=1.0)
    orders = []
    for seed in (3, 4, 3):
        env.reset(seed)
        orders.append(list(env.listed))
    assert orders[0] == orders[2]
    assert orders[0] != orders[1]
    assert len(np.unique(orders[0])) == len(orders[0])
