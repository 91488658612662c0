"""What tests of reproductions share: a stand-in for trainings that measures what it is told."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from types import ModuleType
from typing import Any

import numpy as np

from palaestra_atlas import reproductions
from palaestra_atlas.reproductions import Arms

Table = Mapping[str, Mapping[str, Any]]
"""By arm and number what a training measured, alike for all seeds or one for each."""


def module_of(number: int) -> ModuleType:
    """The reproduction of a system."""
    return importlib.import_module(reproductions._modules("palaestra_atlas")[number])


def told(tables: Sequence[Table]) -> Callable[..., Arms]:
    """Stands for `train_arms`: each call gives the next table."""
    left = list(tables)

    def arms_of(recipe: Any, arms: Mapping[str, Any], seeds: Sequence[int], *rest: Any, **options: Any) -> Arms:
        table = left.pop(0)
        return Arms({
            arm: {name: np.broadcast_to(np.asarray(x, float), len(seeds)) for name, x in table[arm].items()}
            for arm in arms
        })  # fmt: skip

    return arms_of
