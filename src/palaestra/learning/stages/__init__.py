"""Stages: what stands between play and learning, and before play. Importing this registers every file beside it."""

import importlib
import pkgutil

from palaestra.learning.stages.stage import STAGES, Context, Stage, StageCost, Stages, missing, stage

__all__ = ["STAGES", "Context", "Stage", "StageCost", "Stages", "missing", "stage"]

for _module in sorted(each.name for each in pkgutil.iter_modules(__path__)):
    importlib.import_module(f"{__name__}.{_module}")
