"""A worker on a stream of pipelines that learns from rewards alone: no weight changes, only what it remembers.

The procedure is Agent K's [138] (arXiv 2411.03562), of which no code is public: set-up stages one after the other, each
of which must pass its unit test; then Bayesian optimisation and an ensemble. Working memory holds what failed in the
stage that is worked on; long-term memory holds attempts of all tasks with the reward that they earned, and is asked by
reward. Left out: a language model that writes the stages; an attempt here is the choice of one of several fixes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from palaestra.errors import InputError
from palaestra.foundation.bayes import maximise

Retrieval = Literal["reward", "random", "none"]


@dataclass(frozen=True)
class Attempt:
    """Data of an attempt in a set-up stage of a kind: number of the fix, reward 1 if the unit test passed, else -1."""

    kind: str
    fix: int
    reward: float


@dataclass
class NestedMemory:
    """Memory of a pipeline worker: attempts of all tasks (long-term), and failed fixes of the current stage (working).

    Attributes:
        retrieve: of the attempts of the same kind "reward" gives the one that earned most, if that is above 0, and
            keeps away from those that failed; "random" gives any; "none" gives none.
        long_term: attempts of all tasks, in order.
        working: fixes that failed in the stage that is worked on.
    """

    retrieve: Retrieval = "reward"
    long_term: list[Attempt] = field(default_factory=list)
    working: set[int] = field(default_factory=set)

    def begin(self) -> None:
        """Start a new stage: empty the working memory."""
        self.working.clear()

    def propose(self, kind: str, fixes: int, rng: np.random.Generator) -> int:
        """The fix to try next: the retrieved one, unless it failed in this stage; else an untried one."""
        found = self._retrieved(kind, rng)
        if found is not None and found.fix not in self.working and found.fix < fixes:
            return found.fix
        known = {each.fix for each in self.long_term if each.kind == kind and each.reward < 0}
        avoid = self.working | known if self.retrieve == "reward" else self.working
        left = [fix for fix in range(fixes) if fix not in avoid]
        left = left or [fix for fix in range(fixes) if fix not in self.working] or list(range(fixes))
        return int(left[int(rng.integers(len(left)))])

    def remember(self, attempt: Attempt) -> None:
        """Store an attempt; a failed fix is also kept out of the current stage."""
        self.long_term.append(attempt)
        if attempt.reward < 0:
            self.working.add(attempt.fix)

    def _retrieved(self, kind: str, rng: np.random.Generator) -> Attempt | None:
        alike = [each for each in self.long_term if each.kind == kind]
        if self.retrieve == "none" or not alike:
            return None
        if self.retrieve == "random":
            return alike[int(rng.integers(len(alike)))]
        best = max(alike, key=lambda each: each.reward)
        return best if best.reward > 0 else None


@dataclass(frozen=True)
class Setup:
    """Data of a task's set-up stages: their kinds, the fix that each needs, and the number of fixes to choose from."""

    kinds: Sequence[str]
    needed: Sequence[int]
    fixes: int


@dataclass(frozen=True)
class SetupResult:
    """Data that `set_up` returns: which stages passed, which at once, attempts, and whether the pipeline is valid.

    passed: whether each stage passed its unit test; first: whether at once; attempts: all; valid: none is broken.
    """

    passed: tuple[bool, ...]
    first: tuple[bool, ...]
    attempts: int
    valid: bool


def set_up(setup: Setup, memory: NestedMemory, rng: np.random.Generator, *, tries: int = 3) -> SetupResult:
    """`SetupResult` of a `Setup`'s stages in order, fixes by a `NestedMemory`, updated here; `tries` failures end it.

    Raises:
        InputError: `tries` is below 1.
    """
    if tries < 1:
        raise InputError(f"set_up: tries={tries} must be at least 1")
    passed: list[bool] = []
    first: list[bool] = []
    right: list[bool] = []
    attempts = 0
    for kind, needed in zip(setup.kinds, setup.needed, strict=True):
        memory.begin()
        before = attempts
        for _ in range(tries):
            fix = memory.propose(kind, setup.fixes, rng)
            attempts += 1
            works = unit_test(fix, needed)
            memory.remember(Attempt(kind, fix, 1.0 if works else -1.0))
            if works:
                break
        passed.append(works)
        first.append(works and attempts == before + 1)
        right.append(fix == needed)
        if not works:
            break
    return SetupResult(tuple(passed), tuple(first), attempts, len(right) == len(setup.kinds) and all(right))


def unit_test(fix: int, needed: int) -> bool:
    """Whether the chosen fix, a number, equals the one that the stage needs."""
    return fix == needed


def solve(
    train: Callable[[np.ndarray], np.ndarray],
    score: Callable[[np.ndarray], float],
    size: int,
    rng: np.random.Generator,
    *,
    budget: int = 16,
    members: int = 3,
) -> tuple[np.ndarray, int]:
    """(predictions, number of models): ensemble of `train(point)`s, `size` settings, of a Bayesian search by `score`.

    Args:
        train: predictions of the model with these settings, float64[rows].
        score: of predictions on validation data, the higher the better.
        size: number of settings, each in [0, 1].
        rng: of the search.
        budget: models that are trained.
        members: best models that are averaged, as long as each of them raises the validation score.

    Returns:
        The predictions, and how many models are in the ensemble.
    """
    made: list[np.ndarray] = []

    def evaluated(point: np.ndarray) -> float:
        made.append(train(point))
        return score(made[-1])

    _, values = maximise(evaluated, size, budget, rng)
    order = np.argsort(-values, kind="stable")
    best = made[order[0]]
    count = 1
    for at in order[1:members]:
        joined = (best * count + made[at]) / (count + 1)
        if score(joined) > score(best):
            best, count = joined, count + 1
    return best, count
