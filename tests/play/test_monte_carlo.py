"""Values by playing on, and envs that go on from a snapshot."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest

from palaestra.agents.policy import Decision, Request
from palaestra.envs.openspiel import openspiel
from palaestra.envs.protocol import Action, Observation, StepResult
from palaestra.errors import EnvError
from palaestra.play.monte_carlo import Restartable, mc_value
from palaestra.testing import check_env


class Coin:
    """Guess heads in each of two throws; each hit pays 1. `broken` forgets what was earned, `forgetful` the throw."""

    agents = ("a",)

    def __init__(self, broken: bool = False) -> None:
        self.task, self.broken, self.rng = "coin", broken, np.random.default_rng(0)

    def reset(self, seed: int) -> Mapping[str, Observation]:
        self.rng, self.left = np.random.default_rng(seed), 2
        return self._see()

    def _see(self) -> Mapping[str, Observation]:
        return {"a": Observation(f"{self.left} left", choices=("tails", "heads"))} if self.left else {}

    def step(self, actions: Mapping[str, Action]) -> StepResult:
        chosen = self._see()["a"].index(actions["a"])
        self.left -= 1
        hit = chosen == int(self.rng.integers(2))
        return StepResult(
            self._see(), {"a": float(hit)}, terminated=not self.left, info={"valid": {"a": chosen is not None}}
        )

    def snapshot(self) -> Any:
        return self.left, self.rng.bit_generator.state

    def restore(self, snapshot: Any, seed: int | None = None) -> Mapping[str, Observation]:
        self.left = snapshot[0]
        if not self.broken:
            self.rng.bit_generator.state = snapshot[1]
        if seed is not None:
            self.rng = np.random.default_rng(seed)
        return self._see()


class Heads:
    name = "heads"

    def act(self, requests: Sequence[Request]) -> list[Decision]:
        return [Decision("heads") for _ in requests]


def broken() -> Coin:
    return Coin(broken=True)


def test_a_value_is_the_mean_of_fresh_continuations() -> None:
    env = Coin()
    env.reset(0)
    start = env.snapshot()
    env.step({"a": "heads"})
    found = mc_value(env, [start, env.snapshot()], Heads(), np.random.default_rng(0), k=4000)
    np.testing.assert_allclose(found, [1.0, 0.5], atol=0.04)
    shared = mc_value(env, [start, start], Heads(), np.random.default_rng(0), k=3, keys=["same", "same"])
    assert shared[0] == shared[1]


def test_an_env_without_snapshots_is_named_with_the_fix() -> None:
    class Plain:
        agents, task = ("a",), "t"

        def reset(self, seed: int) -> Mapping[str, Observation]:
            return {}

        def step(self, actions: Mapping[str, Action]) -> StepResult:
            return StepResult({})

    with pytest.raises(EnvError, match=r"Plain cannot be restarted: it has no snapshot\(\) and restore\(\); add both"):
        mc_value(Plain(), [None], Heads(), np.random.default_rng(0))


def test_the_conformance_suite_replays_from_snapshots() -> None:
    check_env(Coin, varied=False)
    with pytest.raises(AssertionError, match=r"restored .*: the next step pays"):
        check_env(broken, varied=False)


@pytest.mark.parametrize("game", ["kuhn_poker", "pig(players=2,winscore=15)", "goofspiel(num_cards=3)"])
def test_openspiel_goes_on_from_a_snapshot(game: str) -> None:
    factory = openspiel(game)
    assert isinstance(factory(), Restartable)
    check_env(factory, seeds=(0, 1), varied=False)


def test_chance_that_is_to_come_is_drawn_anew_on_request() -> None:
    env: Any = openspiel("pig(players=2,winscore=15)")()
    env.reset(0)
    start = env.snapshot()
    seen = set()
    for seed in range(8):
        env.restore(start, seed=seed)
        seen.add(repr(env.step({"player_0": "roll"}).observations))
    assert len(seen) > 2
