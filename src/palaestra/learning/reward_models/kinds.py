"""The kinds of reward models that ship, imported so that they are registered."""

from palaestra.learning.reward_models.head import HeadReward
from palaestra.learning.reward_models.implicit import ImplicitReward
from palaestra.learning.reward_models.linear import LinearReward
from palaestra.learning.reward_models.mixture import MixtureReward
from palaestra.learning.reward_models.online import OnlineLinearReward
from palaestra.learning.reward_models.pairwise import PairwiseTokenReward
from palaestra.learning.reward_models.reference import ReferenceReward
from palaestra.learning.reward_models.sequence import SequenceReward
from palaestra.learning.reward_models.vector import VectorReward

__all__ = [
    "HeadReward",
    "ImplicitReward",
    "LinearReward",
    "MixtureReward",
    "OnlineLinearReward",
    "PairwiseTokenReward",
    "ReferenceReward",
    "SequenceReward",
    "VectorReward",
]
