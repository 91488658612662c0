"""Palaestra: train teams of agents with reinforcement learning, and prove that they got better.

`Turns` is the table of experience, `Signal` an expression over it; `palaestra.credit` and `palaestra.rewards` name the
field's. Policies, learning and reports need `pip install 'palaestra[train]'` and are loaded when first used.
"""

from __future__ import annotations

import importlib
from typing import Any

from palaestra import credit, rewards
from palaestra.algebra.parse import parse
from palaestra.algebra.signals import Signal, as_signal, col, evaluate, register
from palaestra.algebra.turns import Turns
from palaestra.errors import PalaestraError
from palaestra.play.rollout import rollout  # at once: a submodule of this name would take its place when first imported

__version__ = "0.1.0"

_LAZY = {
    "envs": "palaestra.envs",
    "Team": "palaestra.agents:Team",
    "LMPolicy": "palaestra.agents:LMPolicy",
    "ChatPolicy": "palaestra.agents:ChatPolicy",
    "ScriptedPolicy": "palaestra.agents:ScriptedPolicy",
    "TabularPolicy": "palaestra.agents:TabularPolicy",
    "MLPPolicy": "palaestra.agents:MLPPolicy",
    "PolicyGradient": "palaestra.learning:PolicyGradient",
    "Trainer": "palaestra.learning:Trainer",
    "pipeline": "palaestra.teams:pipeline",
}

__all__ = [
    "PalaestraError",
    "Signal",
    "Turns",
    "__version__",
    "as_signal",
    "col",
    "credit",
    "evaluate",
    "parse",
    "register",
    "rewards",
    "rollout",
    *_LAZY,
]


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module 'palaestra' has no attribute {name!r}")
    module, _, attribute = _LAZY[name].partition(":")
    loaded = importlib.import_module(module)
    value = getattr(loaded, attribute) if attribute else loaded
    globals()[name] = value
    return value
