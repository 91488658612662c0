"""LaRe [51] with a network: step rewards decoded from latent factors, and factors written as code by a model.

`palaestra.credit.decomposition` has the linear decoder, whose result is a signal. Left out: the prompts of the paper,
which are those of its envs; batched evaluation functions (here a program sees one step, and runs in the sandbox).
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch

from palaestra.errors import InputError, nearest
from palaestra.judges.sandbox import Limits, run_table
from palaestra.learning.critics import network


class NetworkDecomposition:
    """A network r̂(factors) whose step rewards explain returns: (mean_t r̂_t - R/T)², mean over episodes (2412.11120).

    One hidden layer of 64 and Adam at 3e-4, as published. method "rrd": the mean over a random subset of K = `steps`
    steps in place of the whole, less its sampling variance, (1 - K/T)/(K(K-1)) · Σ (r̂ - mean r̂)², so that the loss is
    that of "rd" in expectation (2111.13485). Rows of several agents in an episode: every row gets its own reward.
    """

    def __init__(
        self,
        size: int,
        *,
        hidden: Sequence[int] = (64,),
        method: Literal["rd", "rrd"] = "rd",
        steps: int = 5,
        lr: float = 3e-4,
        seed: int = 0,
    ) -> None:
        if method not in ("rd", "rrd"):
            raise InputError(f"NetworkDecomposition: method={method!r}{nearest(str(method), ['rd', 'rrd'])}")
        if steps < 2 or not lr > 0:
            raise InputError(f"NetworkDecomposition: steps={steps} must be at least 2, lr={lr} above 0")
        self.method, self.steps, self.inputs = method, steps, size
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.network = network(size, hidden).double()
        self.optimiser = torch.optim.Adam(self.network.parameters(), lr=lr)

    def fit(
        self,
        features: np.ndarray,
        episode: np.ndarray,
        returns: np.ndarray,
        rng: np.random.Generator,
        *,
        updates: int = 1000,
        batch: int = 64,
    ) -> NetworkDecomposition:
        """Learn from `updates` batches of episodes.

        Args:
            features: float64[rows, size]. episode: int64[rows], its number from 0. returns: float64[episodes].

        Raises:
            InputError: a shape does not fit, an episode has no step, or a value is not finite.
        """
        inputs = self.network[0].in_features
        counts = np.bincount(episode, minlength=len(returns))
        if features.shape != (len(episode), inputs) or len(counts) != len(returns) or not counts.all():
            raise InputError(
                f"NetworkDecomposition.fit: features {features.shape} for {len(episode)} rows, {len(returns)} episodes "
                f"and {inputs} factors; give one row of factors per step, one return and some steps per episode"
            )
        if not (np.isfinite(features).all() and np.isfinite(returns).all()):
            raise InputError("NetworkDecomposition.fit: a factor or a return is not finite; leave those episodes out")
        order = np.argsort(episode, kind="stable")
        starts = np.cumsum(counts) - counts
        share = returns / counts
        for _ in range(updates):
            chosen = rng.choice(len(returns), min(batch, len(returns)), replace=False)
            taken = counts[chosen] if self.method == "rd" else np.minimum(counts[chosen], self.steps)
            owner = np.repeat(np.arange(len(chosen)), taken)
            rows = np.concatenate([
                starts[e] + (np.arange(n) if n == counts[e] else rng.choice(counts[e], n, replace=False))
                for e, n in zip(chosen, taken, strict=True)
            ])  # fmt: skip
            found = self.network(torch.from_numpy(features[order[rows]]))[:, 0]
            groups, number = torch.from_numpy(owner), torch.from_numpy(taken)
            means = torch.zeros(len(chosen), dtype=torch.double).index_add(0, groups, found) / number
            loss = (means - torch.from_numpy(share[chosen])).square()
            spread = (1 - taken / counts[chosen]) / np.maximum(taken * (taken - 1), 1)
            if spread.any():
                rest = (found - means[groups]).square() * torch.from_numpy(spread[owner])
                loss = loss - torch.zeros_like(loss).index_add(0, groups, rest)
            self.optimiser.zero_grad()
            loss.mean().backward()  # type: ignore[no-untyped-call]
            self.optimiser.step()
        return self

    def predict(self, features: np.ndarray) -> np.ndarray:
        """Reward of each step, float64[rows]; `turns.with_column(step=...)` makes a column of it."""
        with torch.no_grad():
            return np.asarray(self.network(torch.from_numpy(np.asarray(features, float)))[:, 0].numpy())

    def state_dict(self) -> dict[str, Any]:
        """Network and optimiser."""
        return {"network": self.network.state_dict(), "optimiser": self.optimiser.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Inverse of `state_dict`."""
        self.network.load_state_dict(state["network"])
        self.optimiser.load_state_dict(state["optimiser"])


# -- factors that a model writes --------------------------------------------------------------------------------------

FUNCTION = "factors"
TASK = """{task}

Write a Python function `{function}(observation)` that returns a list of numbers, always of the same length: the few
quantities of this one step that decide how much it contributes to the final outcome. Answer with one code block."""
SUMMARISE = """{task}

These functions were proposed:

{proposals}

Combine the best of them into one `{function}(observation)` that returns one list of numbers. Answer with one code
block."""
REPAIR = """{task}

This function was tried on sample observations:

```python
{source}
```

It failed: {problem}. Correct it. Answer with one code block."""


@dataclass(frozen=True)
class WrittenFactors:
    """Code for latent factors that works on samples; `size` numbers per step. asked: how often the model was."""

    source: str
    size: int
    asked: int

    def __call__(self, observations: Sequence[Any], *, limits: Limits | None = None) -> np.ndarray:
        """float64[rows, size] in the sandbox; NaN where the program fails or returns something else."""
        found = np.full((len(observations), self.size), np.nan)
        outcomes = run_table(self.source, FUNCTION, [[each] for each in observations], limits=limits)
        for row, outcome in enumerate(outcomes):
            if _problem_of([outcome.value], [outcome.error], self.size) is None:
                found[row] = outcome.value
        return found


def write_factors(
    ask: Callable[[str, float], str],
    task: str,
    samples: Sequence[Any],
    *,
    candidates: int = 5,
    repairs: int = 5,
    limits: Limits | None = None,
) -> WrittenFactors:
    """LaRe's factors: `candidates` proposals at temperature 1, one summary at 0.3, `repairs` corrections at most.

    ask: prompt and temperature to a model's answer, of which the last code block counts. task: what the observations
    mean and what the team wants. samples: plain values (lists, numbers, text) of some steps, on which the program must
    return lists of one length, all finite; what it did instead goes back to the model.

    Raises:
        InputError: there is no sample, or the last correction still fails; names the problem.
    """
    if not len(samples) or candidates < 1 or repairs < 0:
        raise InputError(f"write_factors: {len(samples)} samples, candidates={candidates}, repairs={repairs}: "
                         "give at least one sample and one candidate")  # fmt: skip
    about = {"task": task, "function": FUNCTION}
    proposals = [_code(ask(TASK.format(**about), 1.0)) for _ in range(candidates)]
    shown = "\n\n".join(f"```python\n{each}\n```" for each in proposals)
    source = _code(ask(SUMMARISE.format(proposals=shown, **about), 0.3))
    for attempt in range(repairs + 1):
        outcomes = run_table(source, FUNCTION, [[each] for each in samples], limits=limits)
        values = [outcome.value for outcome in outcomes]
        size = len(values[0]) if isinstance(values[0], list) else 0
        problem = _problem_of(values, [outcome.error for outcome in outcomes], size)
        if problem is None:
            return WrittenFactors(source, size, candidates + 1 + attempt)
        if attempt < repairs:
            source = _code(ask(REPAIR.format(source=source, problem=problem, **about), 0.3))
    raise InputError(f"write_factors: after {repairs} corrections the program still fails: {problem}")


def _problem_of(values: Sequence[Any], errors: Sequence[str | None], size: int) -> str | None:
    """What is wrong with the first value that is, in words for whoever wrote the program."""
    for row, (value, error) in enumerate(zip(values, errors, strict=True)):
        if error is not None:
            return f"sample {row}: {error}"
        if not isinstance(value, list) or not value:
            return f"sample {row}: it returned {value!r}, not a list of numbers"
        if len(value) != size:
            return f"sample {row}: it returned {len(value)} numbers where sample 0 gave {size}"
        if not all(each is not None and math.isfinite(each) for each in value):
            return f"sample {row}: a number in {value!r} is missing or not finite"
    return None


def _code(answer: str) -> str:
    """The last fenced block, or all of it."""
    blocks = re.findall(r"```(?:python)?\s*\n(.*?)```", answer, re.DOTALL)
    return (blocks[-1] if blocks else answer).strip() + "\n"
