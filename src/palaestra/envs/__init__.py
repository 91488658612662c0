"""Environments: the protocol, the adapters, and the registry by which recipes name them.

`openspiel`, `textarena`, `pettingzoo`, `gymnasium`, `momaland`, `reasoning_gym` and `dataset` are functions here (each
shadows the submodule that it comes from; `from palaestra.envs.openspiel import OpenSpielEnv` works all the same). Each
checks its arguments at once and returns a picklable factory. No library is imported before its function is called.
`native/...` are the small worlds of this package.
"""

from __future__ import annotations

from palaestra.envs.dataset import dataset
from palaestra.envs.faults import faulty, with_faults, with_parameters, with_prompts
from palaestra.envs.gymnasium import gymnasium
from palaestra.envs.making import find, make, register, telling
from palaestra.envs.momaland import momaland
from palaestra.envs.openspiel import openspiel
from palaestra.envs.pettingzoo import pettingzoo, to_pettingzoo
from palaestra.envs.protocol import Action, Env, EnvFactory, Observation, StepResult
from palaestra.envs.reasoning_gym import reasoning_gym
from palaestra.envs.recent import recent, with_recent
from palaestra.envs.registry import ENVS
from palaestra.envs.tasks import Task, TaskEnv
from palaestra.envs.textarena import textarena

__all__ = [
    "ENVS",
    "Action",
    "Env",
    "EnvFactory",
    "Observation",
    "StepResult",
    "Task",
    "TaskEnv",
    "dataset",
    "find",
    "gymnasium",
    "make",
    "momaland",
    "openspiel",
    "pettingzoo",
    "reasoning_gym",
    "register",
    "telling",
    "textarena",
    "to_pettingzoo",
    "with_faults",
    "with_parameters",
    "with_prompts",
    "with_recent",
]

ENVS.add("faulty", faulty)
ENVS.add("recent", recent)
