"""Learning: learners, terms, stages, warm start, checkpoints and the training loop.

What needs torch (`pip install 'palaestra[train]'`) is imported when it is first asked for.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from palaestra.errors import missing_extra

if TYPE_CHECKING:
    from palaestra.learning.learner import PolicyGradient
    from palaestra.learning.protocol import LEARNERS, Learner
    from palaestra.learning.trainer import Trainer
    from palaestra.learning.warmstart import demonstrations, supervised_warm_start

__all__ = [
    "LEARNERS",
    "Learner",
    "PolicyGradient",
    "Trainer",
    "demonstrations",
    "need_torch",
    "supervised_warm_start",
]

_HOMES = {
    "LEARNERS": "protocol",
    "Learner": "protocol",
    "PolicyGradient": "learner",
    "Trainer": "trainer",
    "demonstrations": "warmstart",
    "supervised_warm_start": "warmstart",
}


def need_torch() -> None:
    """Check that torch can be imported; raise MissingExtraError with one line of advice if it is not installed.

    Raises:
        MissingExtraError: it is not.
    """
    try:
        import torch  # noqa: F401
    except ImportError as error:
        raise missing_extra("torch", "train") from error


if not TYPE_CHECKING:  # for a type checker there is what is imported above, and nothing else

    def __getattr__(name: str) -> Any:
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        need_torch()
        return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
