"""[212] POLAR (arXiv 2507.05197): a reward that tells policies apart, learned without a label.

200 random bigram policies over eight symbols; what one of them said twice against what another said. The reward reads
counts of transitions beside those of a reference, and is asked about 50 policies that it never saw. Left out: language
models, the fine-tuning on ranked answers.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl

from palaestra.judges.matched import policy_pairs
from palaestra.learning.reward_models import Preferences, ReferenceReward
from palaestra_atlas.catalog.reward_models.made import rows
from palaestra_atlas.reproductions import Outcome, reproduction

SYMBOLS, LENGTH, SAID = 8, 12, 10
SHARES = (0.0, 0.25, 0.5, 0.75, 1.0)


def spoken(chance: np.ndarray, count: int, rng: np.random.Generator) -> np.ndarray:
    """Counts of transitions of so many sequences of each policy, float64[policies · count, SYMBOLS²]."""
    table = np.repeat(chance.cumsum(-1), count, axis=0)
    at = rng.integers(SYMBOLS, size=len(table))
    counts, every = np.zeros((len(table), SYMBOLS, SYMBOLS)), np.arange(len(table))
    for _ in range(LENGTH - 1):
        after = (rng.random(len(table))[:, None] > table[every, at]).sum(1).clip(max=SYMBOLS - 1)
        counts[every, at, after] += 1
        at = after
    return counts.reshape(len(table), -1)


def triples(x: np.ndarray, seed: int, passes: int) -> Preferences:
    """References, chosen and rejected sequences of policies that said `SAID` each."""
    found = policy_pairs(pl.DataFrame({"policy": np.arange(len(x)) // SAID}), by=(), seed=seed, passes=passes)
    chosen, rejected, reference = (rows(x[found[name].to_numpy()]) for name in ("chosen", "rejected", "reference"))
    return Preferences(chosen, rejected, reference=reference)


def one(seed: int) -> dict[str, float]:
    """Accuracy on unseen policies with the right reference and with anybody's, and rewards by distance."""
    rng = np.random.default_rng([212, seed])
    policies = rng.dirichlet(np.full(SYMBOLS, 0.3), size=(250, SYMBOLS))
    model = ReferenceReward()
    model.fit(triples(spoken(policies[:200], SAID, rng), seed, 3), epochs=10, lr=2e-3, batch=128, seed=seed)
    new = policies[200:]
    unseen = triples(spoken(new, SAID, rng), seed, 4)
    assert unseen.reference is not None
    blind = Preferences(unseen.chosen, unseen.rejected, reference=unseen.reference[rng.permutation(len(unseen))])
    found = {"right": float(model.agrees(unseen).mean()), "right_wrong_reference": float(model.agrees(blind).mean())}
    own, other = spoken(new, 40, rng), np.roll(new, 1, axis=0)
    for share in SHARES:
        mixed = spoken((1 - share) * new + share * other, 40, rng)
        found[f"reward_{share:g}"] = float(model.score(rows(mixed), reference=rows(own)).mean())  # type: ignore[arg-type]
    return found


@reproduction(
    212,
    claim="A reward that learned who says what, without labels, ranks unseen policies by their distance to a target.",
    baseline="the same reward with somebody else's reference",
    criterion="right on more than 75 % of pairs of unseen policies (with another's reference on less than 60 %), and "
    "the mean reward falls with every step away from the target, in every run",
    seeds=(0, 1, 2),
    slow=True,
)
def measure(seeds: Sequence[int]) -> Outcome:
    """Means over runs; the criterion looks at each."""
    runs = [one(seed) for seed in seeds]
    falls = all(np.diff([run[f"reward_{share:g}"] for share in SHARES]).max() < 0 for run in runs)
    sure = min(run["right"] for run in runs) > 0.75 and max(run["right_wrong_reference"] for run in runs) < 0.6
    return Outcome({name: float(np.mean([run[name] for run in runs])) for name in runs[0]}, bool(falls and sure))
