"""The two small envs below need PettingZoo alone; its own games draw with pygame, which must be installed for them."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
import pytest

pytest.importorskip("pettingzoo")

from gymnasium.spaces import Box, Dict, Discrete
from pettingzoo import AECEnv, ParallelEnv

from palaestra.agents import ScriptedPolicy, Team
from palaestra.algebra.turns import Turns
from palaestra.credit import gae
from palaestra.envs.pettingzoo import pettingzoo
from palaestra.errors import EnvError, InputError, MissingExtraError
from palaestra.play.rollout import rollout
from palaestra.testing.env import check_env


class Countdown(AECEnv):
    """Each agent in turn takes 1 or 2 from its own pile; who has nothing left is out with reward 1."""

    metadata = {"name": "countdown"}

    def __init__(self, limit: int = 50) -> None:
        super().__init__()
        self.possible_agents = ["ann", "bob"]
        self.limit = limit

    def action_space(self, agent: str) -> Any:
        return Discrete(2, start=1)

    def observation_space(self, agent: str) -> Any:
        return Dict({"observation": Box(0, 9, (2,), np.int8), "action_mask": Box(0, 1, (2,), np.int8)})

    def reset(self, seed: int | None = None, options: Any = None) -> None:
        rng = np.random.default_rng(seed)
        self.agents = list(self.possible_agents)
        self.piles = {agent: int(rng.integers(1, 6)) for agent in self.agents}
        self.rewards = dict.fromkeys(self.agents, 0)
        self._cumulative_rewards = dict.fromkeys(self.agents, 0)
        self.terminations = dict.fromkeys(self.agents, False)
        self.truncations = dict.fromkeys(self.agents, False)
        self.infos = {agent: {} for agent in self.agents}
        self.agent_selection = "ann"
        self.taken = 0

    def observe(self, agent: str) -> Any:
        mine, others = self.piles[agent], sum(self.piles.values()) - self.piles[agent]
        return {"observation": np.array([mine, others], np.int8), "action_mask": np.array([1, mine > 1], np.int8)}

    def step(self, action: int | None) -> None:
        agent = self.agent_selection
        if self.terminations[agent] or self.truncations[agent]:
            self._was_dead_step(action)
            return
        assert 1 <= action <= self.piles[agent]
        self._clear_rewards()
        self.piles[agent] -= action
        self.taken += 1
        if self.piles[agent] == 0:
            self.rewards[agent] = 1
            self.terminations[agent] = True
        if self.taken == self.limit:
            self.truncations = dict.fromkeys(self.agents, True)
        self._accumulate_rewards()
        alive = [other for other in self.agents if not self.terminations[other]]
        if alive:
            later = [other for other in alive if other != agent]
            self.agent_selection = (later or alive)[0]
        self._deads_step_first()


class Walkers(ParallelEnv):
    """Agents walk to the end of a line of their own length; each leaves when it arrives."""

    metadata = {"name": "walkers"}

    def __init__(self, limit: int = 100) -> None:
        self.possible_agents = ["near", "far"]
        self.limit = limit

    def action_space(self, agent: str) -> Any:
        return Discrete(2)

    def observation_space(self, agent: str) -> Any:
        return Discrete(10)

    def _values(self) -> dict[str, int]:
        return {agent: self.left[agent] for agent in self.agents}

    def reset(self, seed: int | None = None, options: Any = None) -> Any:
        rng = np.random.default_rng(seed)
        self.agents, self.steps = list(self.possible_agents), 0
        self.left = {"near": int(rng.integers(1, 4)), "far": int(rng.integers(4, 8))}
        return self._values(), {agent: {"action_mask": np.array([0, 1])} for agent in self.agents}

    def step(self, actions: dict[str, int]) -> Any:
        assert list(actions) == self.agents
        self.steps += 1
        for agent, action in actions.items():
            self.left[agent] -= action
        over = {agent: self.left[agent] == 0 for agent in self.agents}
        late = {agent: self.steps == self.limit and not over[agent] for agent in self.agents}
        rewards = {agent: float(over[agent]) for agent in self.agents}
        self.agents = [agent for agent in self.agents if not over[agent] and not late[agent]]
        return self._values(), rewards, over, late, {agent: {} for agent in self.agents}


@pytest.mark.parametrize("illegal", ["lose", "random"])
@pytest.mark.parametrize("make", [Countdown, Walkers])
def test_both_apis_keep_the_protocol(make, illegal):
    check_env(pettingzoo(make, illegal=illegal))


def test_aec_agents_leave_and_are_rewarded_at_once():
    env = pettingzoo(Countdown, success=1.0)()
    seed = next(seed for seed in range(100) if env.reset(seed)["ann"].text == "2 3")
    seen = env.reset(seed)["ann"]
    assert (seen.choices, seen.legal) == (("0", "1"), ("0", "1"))
    assert env.task == f"Countdown:{seed}"
    one = env.step({"ann": "1"})  # takes 2: the action space starts at 1
    assert one.rewards == {"ann": 1.0, "bob": 0.0}
    assert list(one.observations) == ["bob"], "ann is out"
    two = env.step({"bob": "1"})
    assert (two.observations["bob"].text, two.observations["bob"].legal) == ("10", ("0",))
    last = env.step({"bob": "0"})
    assert last.rewards == {"bob": 1.0}
    assert (last.terminated, last.truncated, last.info["success"]) == (True, False, {"ann": True, "bob": True})


def test_aec_time_limits_truncate():
    env = pettingzoo(Countdown, limit=2)()
    seed = next(seed for seed in range(100) if env.reset(seed)["ann"].text == "5 5")
    env.reset(seed)
    env.step({"ann": "0"})
    last = env.step({"bob": "0"})
    assert (last.terminated, last.truncated) == (False, True)
    exact = pettingzoo(Countdown, limit=3)()
    exact.reset(next(seed for seed in range(100) if env.reset(seed)["ann"].text == "2 3"))
    exact.step({"ann": "1"})
    exact.step({"bob": "1"})
    last = exact.step({"bob": "0"})
    assert (last.terminated, last.truncated) == (True, False), "who arrives at the last moment has arrived"


@pytest.mark.parametrize(("make", "limit", "agents"), [(Countdown, 2, ("ann", "bob")), (Walkers, 3, ("near", "far"))])
def test_who_ended_by_the_rules_was_not_cut_off_with_the_rest(make, limit, agents):
    policy = ScriptedPolicy(lambda request: request.observation.legal[-1])
    played = rollout(pettingzoo(make, limit=limit), Team(dict.fromkeys(agents, policy)), groups=9, group_size=1).frame
    mixed = played.filter(pl.col("truncated").any().over("group"), pl.col("out").any().over("group"))
    out = pl.col("out").any().over("group", "agent").fill_null(False)
    assert mixed.select((pl.col("terminated") == out).all() & (pl.col("truncated") == ~out).all()).item()
    valued = Turns(mixed.with_columns(value=pl.lit(10.0)))
    last = mixed.with_columns(a=gae(gamma=1, lam=1).evaluate(valued)).filter(pl.col("out"))
    assert set(last["a"]) == {-9.0}, "reward 1 and nothing to come"


def test_parallel_agents_act_together_and_leave_one_by_one():
    env = pettingzoo(Walkers, success=1.0)()
    seed = next(seed for seed in range(100) if [seen.text for seen in env.reset(seed).values()] == ["1", "5"])
    first = env.reset(seed)
    assert {agent: seen.legal for agent, seen in first.items()} == {"near": ("1",), "far": ("1",)}, "mask from the info"
    assert first["far"].array is not None
    assert first["far"].array.tolist() == [0, 0, 0, 0, 0, 1, 0, 0, 0, 0]
    one = env.step({"near": 1, "far": 1})
    assert one.rewards == {"near": 1.0, "far": 0.0}
    assert list(one.observations) == ["far"]
    with pytest.raises(EnvError, match="near"):
        env.step({"near": 1, "far": 1})
    for _ in range(4):
        last = env.step({"far": 1})
    assert (last.terminated, last.info["success"]) == (True, {"near": True, "far": True})
    short = pettingzoo(Walkers, limit=1)()
    short.reset(seed)
    last = short.step({"near": 1, "far": 1})
    assert (last.terminated, last.truncated) == (False, True)


def test_illegal_actions_cost_the_penalty_or_are_replaced():
    env = pettingzoo(Walkers, penalty=-3.0)()
    env.reset(0)
    lost = env.step({"near": "run", "far": "1"})
    assert (lost.rewards, lost.terminated, lost.observations) == ({"near": -3.0}, True, {})
    assert lost.info["valid"] == {"near": False, "far": True}
    env = pettingzoo(Countdown, illegal="random")()
    env.reset(0)
    result = env.step({"ann": "9"})
    assert (result.info["valid"], result.terminated) == ({"ann": False}, False)


REAL = [
    ("classic.tictactoe_v3", "aec", {}, False),
    ("classic.connect_four_v3", "aec", {}, False),
    ("classic/rps_v2", "aec", {}, False),
    ("classic/rps_v2", "parallel", {"num_actions": 5}, False),
    ("sisl.pursuit_v5", "parallel", {"max_cycles": 3}, True),
]


@pytest.mark.parametrize(("name", "api", "options", "varied"), REAL)
def test_real_environments_keep_the_protocol(name, api, options, varied):
    pytest.importorskip("pygame")
    check_env(pettingzoo(name, api=api, **options), varied=varied, seeds=(0, 2**64 - 2))


def test_a_game_of_tic_tac_toe():
    pytest.importorskip("pygame")
    env = pettingzoo("classic.tictactoe_v3", success=1.0)()
    observations = env.reset(0)
    assert env.agents == ("player_1", "player_2")
    assert observations["player_1"].text == "0" * 18
    for move in ["0", "3", "1", "4", "2"]:
        ((agent, seen),) = observations.items()
        result = env.step({agent: move})
        observations = result.observations
    assert seen.legal == ("2", "5", "6", "7", "8")
    assert result.rewards == {"player_1": 1.0, "player_2": -1.0}
    assert result.info["success"] == {"player_1": True, "player_2": False}


def test_parallel_is_chosen_where_there_is_one():
    pytest.importorskip("pygame")
    assert len(pettingzoo("classic.rps_v2")().reset(0)) == 2
    assert len(pettingzoo("classic.rps_v2", api="aec")().reset(0)) == 1
    with pytest.raises(InputError, match="no 'parallel' API"):
        pettingzoo("classic.tictactoe_v3", api="parallel")
    with pytest.raises(InputError, match="sizes"):
        pettingzoo("classic.rps_v2", sizes=3)


def test_an_unknown_name_is_answered_with_the_nearest():
    with pytest.raises(InputError, match=r"did you mean 'classic\.tictactoe_v3'"):
        pettingzoo("classic.tictacto_v3")


def test_a_missing_package_is_named(monkeypatch):
    import importlib

    def absent(name: str) -> Any:
        raise ModuleNotFoundError("No module named 'pygame'")

    monkeypatch.setattr(importlib, "import_module", absent)
    with pytest.raises(MissingExtraError, match=r"pygame.*pip install 'pettingzoo\[classic\]'"):
        pettingzoo("classic.tictactoe_v3")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match=r"palaestra\[pettingzoo\]"):
        pettingzoo("classic.tictactoe_v3")


def test_continuous_actions_are_refused():
    class Drivers(Walkers):
        def action_space(self, agent: str) -> Any:
            return Box(-1, 1)

    with pytest.raises(InputError, match="Discrete"):
        pettingzoo(Drivers)


def test_wrappers_that_only_check_are_passed_by_and_no_others():
    """Those of PettingZoo's own games; a wrapper that changes something stays in the way."""
    from pettingzoo.classic import tictactoe_v3
    from pettingzoo.utils.wrappers import BaseWrapper

    class Doubled(BaseWrapper):
        def observe(self, agent):
            seen = super().observe(agent)
            return {**seen, "observation": 2 * seen["observation"]}

    def play(env):
        seen, found = env.reset(0), []
        while seen:
            ((agent, observation),) = seen.items()
            found.append(float(observation.array.sum()))
            seen = env.step({agent: int(observation.mask.argmax())}).observations
        return found

    plain = play(pettingzoo("classic.tictactoe_v3")())
    assert sum(plain) > 0
    assert play(pettingzoo(lambda: Doubled(tictactoe_v3.env()))()) == [2 * each for each in plain]
    inner = play(pettingzoo(lambda: tictactoe_v3.raw_env())())
    assert inner == plain
