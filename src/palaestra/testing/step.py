"""Checks of an env's reset and step: observations, rewards, info and ends.

A breach is an `AssertionError`, one sentence that begins with where it was.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from palaestra.algebra.turns import SCHEMA
from palaestra.envs.facts import facts_of, read_facts
from palaestra.envs.protocol import Action, Env, Observation, StepResult
from palaestra.errors import EnvError, InputError


def check_result(env: Env, actions: Mapping[str, Action], result: StepResult, where: str) -> None:
    """Check one `StepResult` of an env against the agents that just acted; raises AssertionError."""
    if not isinstance(result, StepResult):
        gym = "; Gym's (observation, reward, terminated, truncated, info) is not read" if _is_tuple(result) else ""
        raise AssertionError(
            f"{where}: step returned {type(result).__name__}, expected "
            f"palaestra.envs.StepResult(observations, rewards){gym}"
        )
    check_observations(env, result.observations, where)
    if not isinstance(result.rewards, Mapping) or not isinstance(result.info, Mapping):
        raise AssertionError(
            f"{where}: rewards is {short(result.rewards)} and info {short(result.info)}; expected "
            "rewards={agent: number} and info={name: value}"
        )
    if (result.terminated or result.truncated) == bool(result.observations):
        state = f"terminated={result.terminated}, truncated={result.truncated}"
        raise AssertionError(f"{where}: {state}, but {len(result.observations)} agents are observed")
    for agent, reward in result.rewards.items():
        if agent not in env.agents:
            raise AssertionError(f"{where}: {agent!r} is rewarded, but the agents are {env.agents}")
        if reward is not None and (isinstance(reward, str) or not _is_number(reward)):
            raise AssertionError(f"{where}: the reward of {agent!r} is {short(reward)}, expected a number or None")
        if reward is not None and not math.isfinite(reward):
            raise AssertionError(f"{where}: the reward of {agent!r} is {reward}; an unknown reward is None")
    valid = result.info.get("valid", {})
    if not isinstance(valid, Mapping) or not set(valid) <= set(actions):
        raise AssertionError(f"{where}: info['valid'] is {valid!r}, but {sorted(actions)} acted")
    try:
        read_facts(result.info, facts_of(env), actions, env.agents)
    except (EnvError, InputError) as error:
        raise AssertionError(f"{where}: {error}") from error
    if taken := (SCHEMA.keys() - {"valid", "success"}) & result.info.keys():
        raise AssertionError(f"{where}: info[{min(taken)!r}] has the name of a column; give it another name")
    success = result.info.get("success")
    if isinstance(success, Mapping):
        if not set(success) <= set(env.agents):
            raise AssertionError(f"{where}: info['success'] names {sorted(success)}, but the agents are {env.agents}")
        success = all(isinstance(value, bool) for value in success.values())
    if not (success is None or isinstance(success, bool)):
        raise AssertionError(f"{where}: info['success'] must be a bool or {{agent: bool}}")


def check_names(env: Env) -> None:
    """Check that the env's agents are a non-empty sequence of different names; raises AssertionError."""
    agents = env.agents
    if (
        not isinstance(agents, Sequence)
        or isinstance(agents, str)
        or not agents
        or not all(isinstance(agent, str) for agent in agents)
        or len(set(agents)) < len(agents)
    ):
        raise AssertionError(f"env.agents is {agents!r}; it must be a tuple of different names")


def _is_tuple(value: Any) -> bool:
    return isinstance(value, tuple)


def _is_number(value: Any) -> bool:
    try:
        float(value)
    except (TypeError, ValueError):
        return False
    return True


def check_observations(env: Env, observations: Mapping[str, Observation], where: str) -> None:
    """Check observations by agent of an env: agents, choices, masks and arrays; raises AssertionError."""
    if not isinstance(observations, Mapping):
        gym = "; Gym's (observation, info) is not read" if _is_tuple(observations) else ""
        raise AssertionError(
            f"{where}: observations are {short(observations)} ({type(observations).__name__}), expected a mapping "
            f"{{agent: palaestra.envs.Observation(text)}}{gym}"
        )
    for agent, seen in observations.items():
        at = f"{where}: agent {agent!r}"
        if agent not in env.agents:
            raise AssertionError(f"{at} is observed, but the agents are {env.agents}")
        if not isinstance(seen, Observation) or not isinstance(seen.text, str):
            raise AssertionError(f"{at} sees {short(seen)}, expected palaestra.envs.Observation(text)")
        if seen.array is not None:
            if not isinstance(seen.array, np.ndarray) or seen.array.dtype != np.float32:
                raise AssertionError(f"{at}: array is not float32")
            if not np.isfinite(seen.array).all():
                raise AssertionError(f"{at}: array has a value that is not finite")
        if seen.choices is None:
            if seen.mask is not None:
                raise AssertionError(f"{at}: there is a mask, but there are no choices")
            continue
        if seen.mask is not None and (seen.mask.dtype != np.bool_ or seen.mask.shape != (len(seen.choices),)):
            raise AssertionError(
                f"{at}: mask is {seen.mask.dtype}{list(seen.mask.shape)} for {len(seen.choices)} choices"
            )
        if not seen.legal:
            raise AssertionError(f"{at}: no action is legal")
        for index in range(len(seen.choices)) if seen.mask is None else np.flatnonzero(seen.mask):
            if seen.index(seen.choices[index]) != index:
                raise AssertionError(f"{at}: two choices are called {seen.choices[index]!r} (case does not count)")


def short(value: Any) -> str:
    """A value's repr for a message, cut to 300 characters."""
    text = repr(value)
    return text if len(text) < 300 else text[:300] + "..."
