"""Trained networks that act on shifted observations."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch

from palaestra.agents import MLPPolicy, Team
from palaestra.agents.perturbed import PerturbedPolicy
from palaestra.agents.policy import Request
from palaestra.envs.protocol import Observation
from palaestra.errors import InputError
from palaestra.interface import library
from palaestra.learning.stages import Context
from palaestra.learning.stages.preference_reward import preference_reward
from palaestra.runs import observation_attacks
from palaestra.runs.jobs import train
from palaestra.runs.perturbed_policies import perturbed_policy
from palaestra.runs.recipe import validate
from palaestra.runs.seed import run_seed

TARGET = "is_in('agent', ('walker_0',)) & is_in('action', ('left',)) & (col('turn') == 1)"
RECIPE: dict[str, Any] = {
    "name": "meet",
    "env": {"make": "native/rendezvous", "options": {"walkers": 2, "cells": 4, "horizon": 2}},
    "policies": {"walker": {"kind": "mlp", "options": {"hidden": [8]}}},
    "team": {"*": "walker"},
    "train": {"iterations": 1, "groups": 4, "group_size": 4, "evaluate_every": 9, "checkpoint_every": 9},
    "evaluation": {"tasks": 6, "trials": 2, "look_tasks": 2, "look_trials": 1},
    "seeds": 1,
}


@pytest.fixture(scope="module")
def team(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder, recipe = tmp_path_factory.mktemp("perturbed") / "run", validate(RECIPE)
    run_seed(recipe, 0, folder / "seed-0")
    (folder / "recipe.yaml").write_text(recipe.dump())
    return folder


def made(**options: Any) -> PerturbedPolicy:
    return PerturbedPolicy(4, 3, hidden=(8,), victim_hidden=(8,), **options)


def test_it_acts_as_the_victim_does_at_the_shifted_observation() -> None:
    policy, victim = made(epsilon=0.3, aim="away"), MLPPolicy(4, 3, hidden=(8,))
    seen = [Observation("", choices=("a", "b", "c"), array=x) for x in np.eye(4, dtype=np.float32)]
    moved = policy.shifted(torch.eye(4))
    expected = torch.softmax(victim.logits([Observation("", array=x.numpy()) for x in moved]), -1)
    np.testing.assert_allclose(policy.choice_probabilities(seen)[0], expected.detach().numpy(), atol=1e-6)
    assert float((moved - torch.eye(4)).abs().max()) <= 0.3 + 1e-6
    wrong = Request(Observation("", choices=("a", "b", "c"), array=np.zeros(3)), "x", np.random.default_rng(0))
    assert "has 3 features" in str(policy.act([wrong])[0].error)


def test_noise_depends_on_the_observation_alone() -> None:
    policy = made(epsilon=0.5, aim="noise")
    both = policy.shifted(torch.eye(4))
    torch.testing.assert_close(policy.shifted(torch.eye(4)[2:]), both[2:])
    torch.testing.assert_close((both - torch.eye(4)).abs(), torch.full((4, 4), 0.5))


def test_bad_options_are_named() -> None:
    with pytest.raises(InputError, match="aim='nose'; did you mean 'noise'"):
        made(epsilon=0.1, aim="nose")
    with pytest.raises(InputError, match="epsilon=-1"):
        made(epsilon=-1)
    with pytest.raises(InputError, match="pairs=0"):
        preference_reward("a", "reward", pairs=0)


def test_an_attack_keeps_the_victim_and_is_stored_with_it(team: Path, tmp_path: Path) -> None:
    found = library.attack(
        team, "walker_0", observations="epsilon=1", target=TARGET, directory=tmp_path / "out", jobs=1, seeds=1
    )
    assert {"intact", "noise", "untrained", "trained"} == found["target_systems"].keys()
    assert found["observations"] == "epsilon=1"
    assert (tmp_path / "out" / "report.html").exists()
    training = tmp_path / "out" / "training"
    stored: Any = Team.load(training)["walker_0"]
    victim: Any = Team.load(team)["walker_0"]
    kept = stored.module["victim"].state_dict()
    assert all(torch.equal(value, kept[name]) for name, value in victim.module.state_dict().items())
    hardened: Any = perturbed_policy(str(training), "attacker", epsilon=0.5, learns="victim")
    intention = stored.module["intention"].state_dict()
    assert all(torch.equal(value, intention[name]) for name, value in hardened.module["intention"].state_dict().items())
    assert {id(each) for each in hardened.parameters()} == {id(each) for each in hardened.module["victim"].parameters()}


def test_a_network_of_shifts_is_stored_and_taken_over(team: Path, tmp_path: Path) -> None:
    shift = "epsilon=1, aim='network', hidden=[8]"
    library.attack(team, "walker_0", observations=shift, target=TARGET, directory=tmp_path / "out", jobs=1, seeds=1)
    training = tmp_path / "out" / "training"
    stored: Any = Team.load(training)["walker_0"]
    hardened: Any = perturbed_policy(str(training), "attacker", epsilon=1.0, learns="victim")
    torch.testing.assert_close(hardened.shifted(torch.eye(4)), stored.shifted(torch.eye(4)))
    assert float(stored.shifted(torch.eye(4)).detach().sub(torch.eye(4)).abs().max()) > 0
    for weights, words in ((True, "weights=True"), (False, "weights=False")):
        made = f"{shift}, weights={weights}"
        recipe = observation_attacks.derive(validate(RECIPE), team, [0], seat="walker_0", shift=made, target=TARGET)
        assert words in str(recipe.stages[-1])


def test_what_cannot_be_shifted_is_named(team: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="give --target with it"):
        library.attack(team, "walker_0", observations="epsilon=1", directory=tmp_path)
    recipe = validate(RECIPE)
    with pytest.raises(InputError, match="expected options by name with epsilon"):
        observation_attacks.derive(recipe, team, [0], seat="walker_0", shift="1.0", target=TARGET)
    with pytest.raises(InputError, match=r"no such seat .*did you mean .walker_"):
        observation_attacks.attack_observations(team, train=train, seat="walker", shift="epsilon=1", target=TARGET)


def test_preferences_go_on_after_a_stop() -> None:
    from palaestra.algebra.turns import Turns

    def play(n: int) -> Turns:
        rng = np.random.default_rng(n)
        return Turns(
            pl.DataFrame(
                {"episode": np.arange(24) // 2, "turn": np.arange(24) % 2, "agent": ["a"] * 24,
                 "observation": ["o"] * 24, "action": rng.choice(["x", "y"], 24), "reward": rng.random(24)}
            )
        )  # fmt: skip

    def told(n: int) -> Context:
        return Context(np.random.default_rng(n), n, None, None, None)  # type: ignore[arg-type]

    whole, stopped, again = (preference_reward("a", "reward") for _ in range(3))
    found = [whole(play(n), told(n))["preference"].to_list() for n in range(3)]
    stopped(play(0), told(0))
    stopped(play(1), told(1))
    again.load_state_dict(stopped.state_dict())
    assert again(play(2), told(2))["preference"].to_list() == found[2]


def test_an_episode_nobody_judged_is_neither_better_nor_worse() -> None:
    from palaestra.algebra.turns import Turns
    from palaestra.learning.stages.preference_reward import _pairs

    rows = {"episode": [0, 1, 2], "turn": [0] * 3, "agent": ["a"] * 3, "observation": ["o"] * 3, "action": list("xyz")}
    for judged in ([-1.0, None, None], [None] * 3):
        told = Context(np.random.default_rng(0), 1, None, None, None)  # type: ignore[arg-type]
        judge = pl.Series(judged, dtype=pl.Float64)
        preference_reward("a", "col('judge')")(Turns(pl.DataFrame(rows | {"judge": judge})), told)
        assert "agreement" not in told.metrics, "one episode is no pair"
    better, worse = _pairs(np.array([0.0, np.nan, 1.0]), 64, np.random.default_rng(0))
    assert set(better) == {2}
    assert set(worse) == {0}
