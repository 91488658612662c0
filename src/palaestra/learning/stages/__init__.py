"""Stages: what stands between play and learning, and before play. Importing this registers them."""

from palaestra.learning.stages import (  # noqa: F401
    budget,
    designed,
    judges,
    novelty,
    programs,
    replay,
    shaping,
    tasks,
)
from palaestra.learning.stages.base import STAGES, Context, Spent, Stage, Stages, missing, stage

__all__ = ["STAGES", "Context", "Spent", "Stage", "Stages", "missing", "stage"]
