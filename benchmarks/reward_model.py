"""A linear Bradley-Terry reward on a million pairs of 512 numbers, beside scikit-learn; padding of batches by length.

    python benchmarks/reward_model.py [--pairs 1000000] [--columns 512] [--skip-sklearn]

Ours is Newton's method on differences in float32, to a gradient of 1e-5. scikit-learn's is logistic regression by
L-BFGS without an intercept, half of the same differences turned round: the same problem, to its own tolerance. The
table is 2 GB; scikit-learn needs that again.
"""

from __future__ import annotations

import argparse
import json
import sys
import time

import numpy as np

from palaestra.learning.reward_models.network import WASTE, by_length
from palaestra.rewards.judged.linear import fit_differences

SECONDS = 60.0
"""Of CPU, at most: then also on the clock, however many cores there are."""


def differences(pairs: int, columns: int) -> tuple[np.ndarray, np.ndarray]:
    """float32[pairs, columns] of pairs that weights decided, and those weights; made in parts."""
    rng = np.random.default_rng(0)
    truth = (2 * rng.normal(size=columns) / np.sqrt(columns)).astype(np.float32)
    gap = np.empty((pairs, columns), np.float32)
    for start in range(0, pairs, 65536):
        part = rng.standard_normal((min(65536, pairs - start), columns), dtype=np.float32)
        lost = rng.random(len(part)) > 1 / (1 + np.exp(-part @ truth))
        part[lost] *= -1
        gap[start : start + len(part)] = part
    return gap, truth


def main() -> None:
    """Print both times, how near both are to the truth, and the padding."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--pairs", type=int, default=1_000_000)
    parser.add_argument("--columns", type=int, default=512)
    parser.add_argument("--skip-sklearn", action="store_true")
    given = parser.parse_args()
    gap, truth = differences(given.pairs, given.columns)
    found: dict[str, float] = {"pairs": given.pairs, "columns": given.columns}
    began, cpu = time.perf_counter(), time.process_time()
    ours = fit_differences(gap, ridge=1e-6, tolerance=1e-5)
    found |= {"seconds": time.perf_counter() - began, "cpu_seconds": time.process_time() - cpu}
    found["correlation"] = float(np.corrcoef(ours, truth)[0, 1])
    if not given.skip_sklearn:
        from sklearn.linear_model import LogisticRegression

        label = np.random.default_rng(1).random(len(gap)) < 0.5
        gap[label] *= -1  # it wants both classes; a pair may be written either way
        began = time.perf_counter()
        theirs = LogisticRegression(C=1e6 / len(gap), fit_intercept=False, max_iter=1000).fit(gap, ~label).coef_[0]
        found["sklearn_seconds"] = time.perf_counter() - began
        found["ratio"] = found["sklearn_seconds"] / found["seconds"]
        found["largest_difference"] = float(np.abs(theirs - ours).max())
    lengths = np.random.default_rng(0).lognormal(5, 0.8, 20000).astype(int) + 1
    parts = list(by_length(lengths, 64))
    cells = sum(len(part) * int(lengths[part].max()) for part in parts)
    plain = [lengths[i : i + 64] for i in range(0, len(lengths), 64)]
    found["padding"] = 1 - float(lengths.sum()) / cells
    found["padding_in_the_given_order"] = 1 - float(lengths.sum()) / sum(len(p) * int(p.max()) for p in plain)
    found["batches"], found["batches_in_the_given_order"] = len(parts), len(plain)
    met = found["cpu_seconds"] <= SECONDS and found["padding"] <= WASTE
    print(json.dumps(found | {"met": met}, indent=1))
    sys.exit(not met)


if __name__ == "__main__":
    main()
