"""Reproductions: one small experiment per system, with a claim, a measurement and a verdict.

Each lives in a file of its own, `s<id>_<name>.py`, and is imported only when it is asked for. It measures, compares
with its baseline and says whether its criterion holds; nothing that it reports is typed in. Left out on purpose: the
scale of the papers. These are trials of a mechanism that run on a laptop, not of a paper's headline number.
"""

from __future__ import annotations

import functools
import importlib
import math
import pkgutil
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from palaestra.errors import InputError

if TYPE_CHECKING:
    from palaestra.algebra.turns import Turns
    from palaestra.runs.inline import Learned

__all__ = [
    "Arms",
    "Outcome",
    "Reproduction",
    "Result",
    "all_ids",
    "find",
    "reached",
    "reproduce",
    "reproduction",
    "train_arms",
]

_registry: dict[int, Reproduction] = {}


@dataclass(frozen=True)
class Outcome:
    """What one run of an experiment found: numbers by name, and whether the criterion holds for them."""

    measured: Mapping[str, float]
    holds: bool


@dataclass(frozen=True)
class Reproduction:
    """An experiment and what it is meant to show.

    claim: the mechanism, in one sentence. baseline: what it is compared with. criterion: when it holds, in words and
    numbers. seeds: independent repetitions by default. slow: more than some four seconds of CPU, so CI leaves it out.
    """

    id: int
    claim: str
    baseline: str
    criterion: str
    seeds: tuple[int, ...]
    slow: bool
    measure: Callable[[Sequence[int]], Outcome]


@dataclass(frozen=True)
class Result:
    """The verdict on one system, as `palaestra reproduce ID --json` prints it."""

    id: int
    claim: str
    baseline: str
    measured: dict[str, float]
    criterion: str
    holds: bool
    seconds: float

    def to_dict(self) -> dict[str, Any]:
        """As plain values; a number that is not finite, which JSON cannot say, becomes null."""
        finite = {name: value if math.isfinite(value) else None for name, value in self.measured.items()}
        return asdict(self) | {"measured": finite}


def reproduction(
    id: int, *, claim: str, baseline: str, criterion: str, seeds: Sequence[int] = (0,), slow: bool = False
) -> Callable[[Callable[[Sequence[int]], Outcome]], Reproduction]:
    """Register a function of the seeds as the reproduction of system `id`."""

    def register(measure: Callable[[Sequence[int]], Outcome]) -> Reproduction:
        _registry[id] = Reproduction(id, claim, baseline, criterion, tuple(seeds), slow, measure)
        return _registry[id]

    return register


@dataclass(frozen=True)
class Arms:
    """What several variants of one recipe measured: by arm and number, one value per seed."""

    values: Mapping[str, Mapping[str, np.ndarray]]

    def mean(self, arm: str, name: str) -> float:
        """Mean over seeds."""
        return float(np.mean(self.values[arm][name]))

    def gain(self, arm: str, baseline: str, name: str) -> tuple[float, float]:
        """Mean difference over the seeds that both arms share, and its standard error (paired by seed)."""
        difference = self.values[arm][name] - self.values[baseline][name]
        error = float(difference.std(ddof=1) / math.sqrt(len(difference))) if len(difference) > 1 else math.inf
        return float(difference.mean()), error

    def measured(self) -> dict[str, float]:
        """The means, as `NAME_ARM`."""
        return {f"{name}_{arm}": self.mean(arm, name) for arm, found in self.values.items() for name in found}


def train_arms(
    recipe: str | Mapping[str, Any],
    arms: Mapping[str, Mapping[str, Any]],
    seeds: Sequence[int],
    measure: Callable[[Learned], Mapping[str, Any]],
    *,
    on_turns: Callable[[str, int, Turns], None] | None = None,
) -> Arms:
    """Train every variant of a recipe on every seed, as `palaestra train` would: rollout, stages, credit, learner.

    recipe: a shipped one, or plain data. arms: by name, the fields that it changes. measure: numbers of one training.
    on_turns: shown (arm, iteration, training turns) while it trains.
    """
    from palaestra.runs.inline import learn  # brings torch

    found: dict[str, dict[str, list[float]]] = {name: {} for name in arms}
    for name, changes in arms.items():
        watch = None if on_turns is None else functools.partial(on_turns, name)
        for seed in seeds:
            for key, value in measure(learn(recipe, changes, seed=seed, on_turns=watch)).items():
                found[name].setdefault(key, []).append(float(value))
    return Arms({name: {key: np.array(each) for key, each in values.items()} for name, values in found.items()})


def reached(curve: Sequence[float], level: float, *, window: int = 5) -> int:
    """Iterations before the first `window` whose mean is at least `level`; all of them if there is none.

    >>> reached([0, 0, 1, 1, 1], 0.9, window=2), reached([0, 0.5], 0.9, window=2)
    (2, 2)
    """
    means = np.convolve(np.nan_to_num(np.asarray(curve, float)), np.ones(window) / window, "valid")
    return int((means >= level).argmax()) if (means >= level).any() else len(curve)


def _modules() -> dict[int, str]:
    """Module name by id, from the file names alone."""
    package = importlib.import_module("palaestra.atlas.reproductions")
    names = (module.name for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."))
    return {int(match[1]): match[0] for match in (re.fullmatch(r".*\.s(\d+)_\w+", name) for name in names) if match}


def all_ids() -> list[int]:
    """Ids of the systems that have a reproduction.

    >>> 62 in all_ids()
    True
    """
    return sorted(_modules())


def find(id: int) -> Reproduction:
    """The reproduction of one system.

    Raises:
        InputError: the system has none.
    """
    modules = _modules()
    if id not in modules:
        raise InputError(f"system {id} has no reproduction; these have one: {', '.join(map(str, sorted(modules)))}")
    importlib.import_module(modules[id])
    return _registry[id]


def reproduce(id: int, *, seeds: Sequence[int] | None = None) -> Result:
    """Run the experiment of one system and judge it, by default with the seeds that its criterion was set for.

    Raises:
        InputError: the system has no reproduction.
    """
    experiment = find(id)
    start = time.perf_counter()
    outcome = experiment.measure(experiment.seeds if seeds is None else seeds)
    seconds = time.perf_counter() - start
    measured = {name: float(value) for name, value in outcome.measured.items()}
    holds = bool(outcome.holds) and all(math.isfinite(value) for value in measured.values())
    return Result(id, experiment.claim, experiment.baseline, measured, experiment.criterion, holds, round(seconds, 3))
