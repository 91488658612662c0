"""Policies: things that act, and some that learn. What needs torch is imported when it is first asked for."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from palaestra.agents.human import HumanPolicy
from palaestra.agents.policy import Decision, Learnable, Policy, Request, Scored
from palaestra.agents.scripted import ScriptedPolicy, fixed, from_choices, random_legal
from palaestra.agents.team import Team
from palaestra.errors import missing_extra

if TYPE_CHECKING:
    from palaestra.agents.bandits import BanditPolicy
    from palaestra.agents.chat import ChatPolicy
    from palaestra.agents.contextual import ContextualPolicy
    from palaestra.agents.factored import FactoredPolicy
    from palaestra.agents.lm import LMPolicy
    from palaestra.agents.mlp import MLPPolicy
    from palaestra.agents.ordered import OrderedPolicy
    from palaestra.agents.pointer import PointerPolicy
    from palaestra.agents.population import PopulationPolicy
    from palaestra.agents.q_network import QNetworkPolicy
    from palaestra.agents.qtable import QTablePolicy
    from palaestra.agents.relational import RelationalPolicy
    from palaestra.agents.served import ServedPolicy
    from palaestra.agents.split_mlp import SplitMLPPolicy
    from palaestra.agents.tabular import TabularPolicy

__all__ = [
    "BanditPolicy",
    "ChatPolicy",
    "ContextualPolicy",
    "Decision",
    "FactoredPolicy",
    "HumanPolicy",
    "LMPolicy",
    "Learnable",
    "MLPPolicy",
    "OrderedPolicy",
    "PointerPolicy",
    "Policy",
    "PopulationPolicy",
    "QNetworkPolicy",
    "QTablePolicy",
    "RelationalPolicy",
    "Request",
    "Scored",
    "ScriptedPolicy",
    "ServedPolicy",
    "SplitMLPPolicy",
    "TabularPolicy",
    "Team",
    "fixed",
    "from_choices",
    "random_legal",
]

_LAZY = {
    "BanditPolicy": "bandits",
    "ChatPolicy": "chat",
    "ContextualPolicy": "contextual",
    "FactoredPolicy": "factored",
    "LMPolicy": "lm",
    "MLPPolicy": "mlp",
    "OrderedPolicy": "ordered",
    "PointerPolicy": "pointer",
    "PopulationPolicy": "population",
    "QNetworkPolicy": "q_network",
    "QTablePolicy": "qtable",
    "RelationalPolicy": "relational",
    "ServedPolicy": "served",
    "SplitMLPPolicy": "split_mlp",
    "TabularPolicy": "tabular",
}


if not TYPE_CHECKING:  # for a type checker there is what is imported above, and nothing else

    def __getattr__(name: str) -> Any:
        if name not in _LAZY:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        try:
            return getattr(importlib.import_module(f"{__name__}.{_LAZY[name]}"), name)
        except ModuleNotFoundError as error:
            if error.name != "torch":
                raise
            raise missing_extra("torch", "train") from None
