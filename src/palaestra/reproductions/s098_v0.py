"""[98] V₀ (arXiv 2602.03584): chances predicted from a policy's history spend a budget of rollouts where it teaches.

Five synthetic policies with their own strengths in eight dimensions; 256 earlier tasks with outcomes are the context of
each. Measured are the AUC and error of the library's value model on fresh tasks, and the expected share of mixed groups
when 8 rollouts a task are spread by its predictions. Left out: text embeddings and the pretrained tabular network.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.stats import rankdata

from palaestra.credit import ValueAtStart, allocate_budget, mixed_group_probability, rare_success
from palaestra.reproductions import Outcome, reproduction

SIZE, CONTEXT, TASKS, POLICIES, PER_TASK, STRENGTH = 8, 256, 100, 5, 8, 1.3
P = np.array([0.05, 0.2, 0.5, 0.95])


def worked_error() -> float:
    """Utilities and an allocation worked out by hand."""
    utility = [rare_success(p, b) for p, b in ((0.1, 4), (0.1, 16), (0.5, 8), (0.9, 4))]
    gaps = [*(np.array(utility) - [0.9756, 11.4352, 3.9688, 0.3996]), *(allocate_budget(P, 32) - [9, 9, 5, 9])]
    return float(np.abs(gaps).max())


def auc(score: np.ndarray, label: np.ndarray) -> float:
    """Chance that a success scores above a failure."""
    positives = int(label.sum())
    ranks = rankdata(score)[label].sum() - positives * (positives + 1) / 2
    return float(ranks / (positives * (len(label) - positives)))


def trial(seed: int) -> dict[str, float]:
    """Means over the policies of one seed."""
    rng = np.random.default_rng(seed)
    found: dict[str, list[float]] = {}
    for _ in range(POLICIES):
        strength, level = STRENGTH * rng.normal(size=SIZE), rng.normal()

        def tasks(number: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
            x = rng.normal(size=(number, SIZE))
            p = 1 / (1 + np.exp(-(x @ strength + level)))  # noqa: B023
            return x, p, rng.random(number) < p

        x, _, solved = tasks(CONTEXT)
        model = ValueAtStart().fit(x, solved)
        fresh, p, label = tasks(TASKS)
        guess = model.predict(fresh)
        uniform = np.full(TASKS, PER_TASK)
        allocations = {"uniform": uniform, "predicted": allocate_budget(guess, uniform.sum())}
        allocations["oracle"] = allocate_budget(p, uniform.sum())
        numbers = {f"mixed_{name}": float(mixed_group_probability(p, b).mean()) for name, b in allocations.items()}
        numbers |= {"auc": auc(guess, label), "error": float(np.abs(guess - p).mean())}
        for name, value in numbers.items():
            found.setdefault(name, []).append(value)
    return {name: float(np.mean(values)) for name, values in found.items()}


@reproduction(
    98,
    claim="A value model that knows a policy's history only spreads rollouts so that more groups teach something.",
    baseline="the same number of rollouts for every task; the true chances (oracle) as the upper end",
    criterion="worked numbers to 1e-4; predictions capture at least 60% of the oracle's gain in mixed groups",
    seeds=(0, 1, 2, 3, 4),
)
def measure(seeds: Sequence[int]) -> Outcome:
    """Worked numbers, then five policies per seed."""
    runs = [trial(seed) for seed in seeds]
    measured = {"worked_error": worked_error()} | {
        name: float(np.mean([run[name] for run in runs])) for name in runs[0]
    }
    gain = measured["mixed_predicted"] - measured["mixed_uniform"]
    possible = measured["mixed_oracle"] - measured["mixed_uniform"]
    captured = gain / possible if possible > 0 else 0.0
    return Outcome(measured | {"captured": captured}, measured["worked_error"] <= 1e-4 and captured >= 0.6)
