"""Reward models: losses, kinds of models that are fitted to pairs or labels, and how they are fitted.

What needs torch is imported when it is first asked for.
"""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from palaestra.judges.protocol import SCORERS, Scorer
from palaestra.learning.reward_models.against import Against, AgainstBest
from palaestra.learning.reward_models.data import Labels, Preferences
from palaestra.learning.reward_models.reward_model import RewardModel

if TYPE_CHECKING:
    from palaestra.learning.reward_models.head import HeadReward
    from palaestra.learning.reward_models.implicit import ImplicitReward
    from palaestra.learning.reward_models.linear import LinearReward
    from palaestra.learning.reward_models.mixture import MixtureReward, hedge
    from palaestra.learning.reward_models.online import OnlineLinearReward
    from palaestra.learning.reward_models.pairwise import PairwiseTokenReward
    from palaestra.learning.reward_models.reference import ReferenceReward
    from palaestra.learning.reward_models.reward_model import REWARD_MODELS, load
    from palaestra.learning.reward_models.sequence import SequenceReward
    from palaestra.learning.reward_models.vector import VectorReward, unit

__all__ = [
    "REWARD_MODELS",
    "Against",
    "AgainstBest",
    "HeadReward",
    "ImplicitReward",
    "Labels",
    "LinearReward",
    "MixtureReward",
    "OnlineLinearReward",
    "PairwiseTokenReward",
    "Preferences",
    "ReferenceReward",
    "RewardModel",
    "SequenceReward",
    "VectorReward",
    "hedge",
    "load",
    "unit",
]

_HOMES = {
    "REWARD_MODELS": "reward_model",
    "HeadReward": "head",
    "ImplicitReward": "implicit",
    "LinearReward": "linear",
    "MixtureReward": "mixture",
    "OnlineLinearReward": "online",
    "PairwiseTokenReward": "pairwise",
    "ReferenceReward": "reference",
    "SequenceReward": "sequence",
    "VectorReward": "vector",
    "hedge": "mixture",
    "load": "reward_model",
    "unit": "vector",
}


@SCORERS.register()
def reward_model(path: str | Path, **options: Any) -> Scorer:
    """Scorer loaded from a folder: a model of `palaestra fit-reward`, or a sequence classifier of transformers.

    options: in place of those that were saved; code that the folder names must be given: `features="mine:numbers"`.
    """
    from palaestra.learning.reward_models.reward_model import load

    return load(path, **options)


@SCORERS.register("routed")
def routed_reward(path: str, pairs: str, *, features: str | None = None, eta: float = 1.0) -> Scorer:
    """Scorer by a mixture adapted to one person's pairs; in a recipe `routed("rm", "mine.parquet", features="x")`.

    The method is MiCRo [30].
    """
    from palaestra.learning.reward_models.mixture import routed

    return routed(path, pairs, features=features, eta=eta)


@SCORERS.register()
def implicit_reward(policy: str, reference: str, *, beta: float = 0.1) -> Scorer:
    """Scorer by DPO's implicit reward β·(log π - log π_ref), from two folders of causal models."""
    from palaestra.learning.reward_models.implicit import ImplicitReward

    return ImplicitReward(policy, reference, beta=beta)


if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
