"""Palaestra: train teams of agents with reinforcement learning, and prove that they got better.

`Turns` is the table of experience, `Signal` an expression over it; `palaestra.credit` and `palaestra.rewards` name the
field's. `train`, `compare`, `evaluate`, `rank`, `audit`, `triage` and `report` are the commands as functions. Policies,
learning and reports need `pip install 'palaestra[train]'` and are loaded when first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from palaestra import credit, rewards
from palaestra.algebra.parse import parse
from palaestra.algebra.signals import Signal, as_signal, col, register, where
from palaestra.algebra.turns import Turns
from palaestra.errors import PalaestraError
from palaestra.play.rollout import rollout

if TYPE_CHECKING:
    from palaestra import envs
    from palaestra.agents import (
        ChatPolicy,
        LMPolicy,
        MLPPolicy,
        Policy,
        ScriptedPolicy,
        ServedPolicy,
        TabularPolicy,
        Team,
    )
    from palaestra.envs.protocol import Env
    from palaestra.interface.library import apply, audit, compare, evaluate, rank, report, train, triage
    from palaestra.learning import Learner, PolicyGradient, Trainer
    from palaestra.learning.stages.stage import Stage
    from palaestra.play.executors import Executor
    from palaestra.runs.recipe import Recipe
    from palaestra.teams import pipeline

__version__ = "0.1.0"

_LAZY = {
    "ChatPolicy": "palaestra.agents:ChatPolicy",
    "Env": "palaestra.envs.protocol:Env",
    "Executor": "palaestra.play.executors:Executor",
    "LMPolicy": "palaestra.agents:LMPolicy",
    "Learner": "palaestra.learning:Learner",
    "MLPPolicy": "palaestra.agents:MLPPolicy",
    "Policy": "palaestra.agents:Policy",
    "PolicyGradient": "palaestra.learning:PolicyGradient",
    "Recipe": "palaestra.runs.recipe:Recipe",
    "ScriptedPolicy": "palaestra.agents:ScriptedPolicy",
    "ServedPolicy": "palaestra.agents:ServedPolicy",
    "Stage": "palaestra.learning.stages.stage:Stage",
    "TabularPolicy": "palaestra.agents:TabularPolicy",
    "Team": "palaestra.agents:Team",
    "Trainer": "palaestra.learning:Trainer",
    "apply": "palaestra.interface.library:apply",
    "audit": "palaestra.interface.library:audit",
    "compare": "palaestra.interface.library:compare",
    "envs": "palaestra.envs",
    "evaluate": "palaestra.interface.library:evaluate",
    "pipeline": "palaestra.teams:pipeline",
    "rank": "palaestra.interface.library:rank",
    "report": "palaestra.interface.library:report",
    "train": "palaestra.interface.library:train",
    "triage": "palaestra.interface.library:triage",
}

__all__ = [
    "ChatPolicy",
    "Env",
    "Executor",
    "LMPolicy",
    "Learner",
    "MLPPolicy",
    "PalaestraError",
    "Policy",
    "PolicyGradient",
    "Recipe",
    "ScriptedPolicy",
    "ServedPolicy",
    "Signal",
    "Stage",
    "TabularPolicy",
    "Team",
    "Trainer",
    "Turns",
    "__version__",
    "apply",
    "as_signal",
    "audit",
    "col",
    "compare",
    "credit",
    "envs",
    "evaluate",
    "parse",
    "pipeline",
    "rank",
    "register",
    "report",
    "rewards",
    "rollout",
    "train",
    "triage",
    "where",
]


if not TYPE_CHECKING:  # for a type checker there is what is imported above, and nothing else

    def __getattr__(name: str) -> Any:
        if name not in _LAZY:
            raise AttributeError(f"module 'palaestra' has no attribute {name!r}")
        module, _, attribute = _LAZY[name].partition(":")
        loaded = importlib.import_module(module)
        value = getattr(loaded, attribute) if attribute else loaded
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted(__all__)
