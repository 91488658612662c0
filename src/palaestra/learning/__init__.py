"""Learning: losses, learners, warm start, checkpoints and the training loop. Needs `pip install 'palaestra[train]'`."""

from palaestra.errors import missing_extra

try:
    import torch  # noqa: F401
except ImportError as error:
    raise missing_extra("torch", "train") from error

from palaestra.learning.learner import PolicyGradient
from palaestra.learning.protocol import LEARNERS, Learner
from palaestra.learning.trainer import Trainer
from palaestra.learning.warmstart import demonstrations, supervised_warm_start

__all__ = ["LEARNERS", "Learner", "PolicyGradient", "Trainer", "demonstrations", "supervised_warm_start"]
