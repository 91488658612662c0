"""Checks of systems: worked numbers that are exact, and experiments with a claim, a measurement and a verdict.

They live beside the row of a system, in `catalog/FAMILY/sNNN_name.py`, and are imported only when they are asked for.
An experiment compares with a baseline and says whether its criterion holds. Nothing that it reports is typed in. The
scale of the papers is left out on purpose: these are trials of a mechanism that run on a laptop.
"""

from __future__ import annotations

import functools
import importlib
import math
import re
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.resources import files
from typing import TYPE_CHECKING, Any

import numpy as np

from palaestra.errors import InputError

if TYPE_CHECKING:
    from palaestra.algebra.turns import Turns
    from palaestra.runs.inline import TrainingResult

__all__ = [
    "Arms",
    "Exact",
    "Outcome",
    "Reproduction",
    "Result",
    "all_ids",
    "checks_of",
    "exact",
    "find",
    "reached",
    "reproduce",
    "reproduction",
    "train_arms",
]


@dataclass(frozen=True)
class Exact:
    """A check without chance that takes milliseconds: worked numbers, an identity.

    Attributes:
        name: name of the function, unique in its row.
        function: asserts what must hold.
    """

    name: str
    function: Callable[[], None]

    def __call__(self) -> None:
        """Run it; AssertionError if it does not hold. Its networks begin with the same weights, whatever ran before."""
        if (torch := sys.modules.get("torch")) is not None:
            torch.manual_seed(0)
        self.function()


@dataclass(frozen=True)
class Outcome:
    """What one run of an experiment found: numbers by name, and whether the criterion holds for them."""

    measured: Mapping[str, float]
    holds: bool


@dataclass(frozen=True)
class Reproduction:
    """An experiment and what it is meant to show.

    Attributes:
        id: of the system.
        name: of the experiment, unique in its row.
        claim: the mechanism, in one sentence.
        baseline: what it is compared with.
        criterion: when it holds, in words and numbers.
        seeds: independent repetitions by default.
        slow: more than some four seconds of CPU, so CI leaves it out.
        measure: the experiment, a function of the seeds.
    """

    id: int
    name: str
    claim: str
    baseline: str
    criterion: str
    seeds: tuple[int, ...]
    slow: bool
    measure: Callable[[Sequence[int]], Outcome]


@dataclass(frozen=True)
class Result:
    """The verdict on one experiment, as `palaestra reproduce ID --json` prints it."""

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


def exact(function: Callable[[], None]) -> Exact:
    """Decorator: a function that asserts worked numbers becomes an exact check of its system."""
    return Exact(function.__name__, function)


def reproduction(
    id: int,
    *,
    claim: str,
    baseline: str,
    criterion: str,
    seeds: Sequence[int] = (0,),
    slow: bool = False,
    name: str = "experiment",
) -> Callable[[Callable[[Sequence[int]], Outcome]], Reproduction]:
    """Decorator: a function of the seeds becomes an experiment of system `id`; see `Reproduction`."""

    def register(measure: Callable[[Sequence[int]], Outcome]) -> Reproduction:
        return Reproduction(id, name, claim, baseline, criterion, tuple(seeds), slow, measure)

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
    measure: Callable[[TrainingResult], Mapping[str, Any]],
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


@functools.cache
def _modules(package: str) -> dict[int, str]:
    """Module name by id, from the file names alone."""
    found = {}
    for family in files(package).joinpath("catalog").iterdir():
        for file in family.iterdir() if family.is_dir() else ():
            if match := re.fullmatch(r"(s(\d+)_\w+)\.py", file.name):
                found[int(match[2])] = f"{package}.catalog.{family.name}.{match[1]}"
    return found


def all_ids(package: str = "palaestra_atlas") -> list[int]:
    """Ids of the systems that have an experiment; others may have exact checks alone.

    Example:
        >>> 62 in all_ids()
        True
    """
    return sorted(id for id, name in _modules(package).items() if _has_experiment(name))


@functools.cache
def _has_experiment(module: str) -> bool:
    """Read from the file, for to import all of them takes seconds."""
    package, family, name = module.rsplit(".", 2)
    return "@reproduction(" in files(package).joinpath(family, f"{name}.py").read_text(encoding="utf-8")


def checks_of(id: int, package: str = "palaestra_atlas") -> list[Exact | Reproduction]:
    """The checks of one system in the order of its file; none if it has no file."""
    name = _modules(package).get(id)
    if name is None:
        return []
    defined = vars(importlib.import_module(name)).values()
    return [each for each in defined if isinstance(each, Exact | Reproduction) and _home(each) == name]


def _home(check: Exact | Reproduction) -> str:
    return (check.function if isinstance(check, Exact) else check.measure).__module__


def find(id: int, package: str = "palaestra_atlas") -> list[Reproduction]:
    """The experiments of one system.

    Raises:
        InputError: the system has none.
    """
    found = [check for check in checks_of(id, package) if isinstance(check, Reproduction)]
    if not found:
        known = ", ".join(map(str, all_ids(package)))
        raise InputError(f"system {id} has no reproduction; these have one: {known}")
    return found


def reproduce(id: int, *, seeds: Sequence[int] | None = None) -> list[Result]:
    """Run the experiments of one system and judge them, by default on the seeds that their criteria were set for.

    Raises:
        InputError: the system has no experiment.
    """
    return [_judged(experiment, experiment.seeds if seeds is None else seeds) for experiment in find(id)]


def _judged(experiment: Reproduction, seeds: Sequence[int]) -> Result:
    start = time.perf_counter()
    outcome = experiment.measure(seeds)
    seconds = round(time.perf_counter() - start, 3)
    measured = {name: float(value) for name, value in outcome.measured.items()}
    holds = bool(outcome.holds) and all(math.isfinite(value) for value in measured.values())
    return Result(experiment.id, experiment.claim, experiment.baseline, measured, experiment.criterion, holds, seconds)
