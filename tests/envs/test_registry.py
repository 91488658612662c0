from __future__ import annotations

import importlib
import pickle
import subprocess
import sys
from collections.abc import Mapping

import pytest

from palaestra import envs
from palaestra.envs.protocol import Action, Env, Observation, StepResult
from palaestra.errors import InputError, MissingExtraError
from palaestra.testing.env import check_env


class Coin:
    """Guess the coin, `sides` sides."""

    agents = ("guesser",)
    task = ""

    def __init__(self, sides: int = 2) -> None:
        self.sides = sides

    def reset(self, seed: int) -> Mapping[str, Observation]:
        self.side, self.task = seed % self.sides, f"coin:{seed % self.sides}"
        names = tuple(map(str, range(self.sides)))
        self.seen = Observation(f"guess {seed % self.sides}", names)
        return {"guesser": self.seen}

    def step(self, actions: Mapping[str, Action]) -> StepResult:
        guess = self.seen.index(actions["guesser"])
        return StepResult(
            {}, {"guesser": float(guess == self.side)}, True, info={"valid": {"guesser": guess is not None}}
        )


envs.register("test/coin", Coin)


def test_a_registered_env_is_made_by_its_name_with_options():
    factory = envs.make("test/coin", sides=3)
    env = factory()
    assert isinstance(env, Env)
    assert (env.reset(5)["guesser"].legal, env.task) == (("0", "1", "2"), "coin:2")
    check_env(factory)


def test_a_name_belongs_to_one_factory():
    envs.register("test/coin", Coin)
    for name in ("test/coin", "openspiel", "openspiel/mine"):
        with pytest.raises(InputError, match="taken"):
            envs.register(name, lambda: Coin())


@pytest.mark.parametrize(
    ("spec", "options", "agents"),
    [
        ("openspiel/kuhn_poker(players=3)", {"illegal": "random"}, ("player_0", "player_1", "player_2")),
        ("textarena/Nim-v0", {"observation": "short", "piles": [1, 2]}, ("player_0", "player_1")),
        ("gymnasium/FrozenLake-v1", {"is_slippery": False}, ("player",)),
        ("reasoning_gym/chain_sum", {"split": "test"}, ("solver",)),
        ("reasoning_gym", {"datasets": {"gcd": {"max_value": 20}}}, ("solver",)),
    ],
)
def test_libraries_are_named_before_the_slash(spec, options, agents):
    pytest.importorskip({"openspiel": "pyspiel"}.get(spec.split("/")[0], spec.split("/")[0]))
    factory = envs.make(spec, **options)
    assert factory().agents == agents
    one, other = factory(), pickle.loads(pickle.dumps(factory))()
    assert {a: o.text for a, o in one.reset(1).items()} == {a: o.text for a, o in other.reset(1).items()}


@pytest.mark.parametrize(
    ("spec", "options", "message"),
    [
        ("opnspiel/kuhn_poker", {}, "no env 'opnspiel/kuhn_poker'; did you mean 'openspiel'"),
        ("test/coi", {}, "no env 'test/coi'"),
        ("test/coin", {"side": 3}, "'side'; did you mean 'sides'"),
        ("openspiel/kuhn_poker", {"ilegal": "lose"}, "'ilegal'; did you mean 'illegal'"),
        ("reasoning_gym", {}, "datasets"),
    ],
)
def test_an_unknown_name_or_option_is_answered_with_the_nearest(spec, options, message):
    with pytest.raises(InputError, match=message):
        envs.make(spec, **options)


@pytest.mark.parametrize(
    ("spec", "module", "extra"),
    [
        ("openspiel/kuhn_poker", "pyspiel", "openspiel"),
        ("textarena/Nim-v0", "textarena", "textarena"),
        ("gymnasium/CartPole-v1", "gymnasium", "gymnasium"),
        ("reasoning_gym/lcm", "reasoning_gym", "reasoning-gym"),
        ("overcooked/cramped_room", "overcooked_ai_py", "overcooked"),
    ],
)
def test_a_library_that_is_not_installed_is_one_line(monkeypatch, spec, module, extra):
    monkeypatch.setitem(sys.modules, module, None)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match=rf"pip install 'palaestra\[{extra}\]'"):
        envs.make(spec)


def test_importing_the_package_imports_no_library():
    code = (
        "import sys, palaestra.envs, palaestra.teams, palaestra.testing.env\n"
        "heavy = {'pyspiel', 'textarena', 'pettingzoo', 'gymnasium', 'reasoning_gym', 'torch'} & set(sys.modules)\n"
        "assert not heavy, heavy"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_functions_shadow_their_modules_and_both_can_be_reached():
    from palaestra.envs.openspiel import OpenSpielEnv

    assert callable(envs.openspiel)
    assert OpenSpielEnv.__module__ == "palaestra.envs.openspiel"
