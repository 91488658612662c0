"""[185] DocReward (arXiv 2510.11391): pairs of the same content make a scorer blind to the content.

A hundred documents, four renderings each; who says which is better looks at style and at content alike. Pairs inside a
document, where the content cannot decide, against all pairs. Then the published counts of what came first. Left out:
page images and the vision model.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from palaestra.algebra.turns import Turns
from palaestra.evaluation.audits.judges.position import position_bias_test
from palaestra.judges.pairs import pairs
from palaestra.learning.reward_models import LinearReward, Preferences
from palaestra_atlas.catalog.reward_models.made import rows
from palaestra_atlas.reproductions import Outcome, reproduction

DOCUMENTS, RENDERINGS = 100, 4
MATCHED = ("document",)
COUNTS = {"gpt_4o": (202, 271, 0.0017), "sonnet_4": (189, 284, 1.5e-5), "gpt_5": (240, 233, 0.78)}


def one(seed: int, match_on: tuple[str, ...]) -> tuple[float, float]:
    """Weight of the content beside that of the style, and accuracy on what style alone says of unseen pairs."""
    rng = np.random.default_rng([185, seed])
    document = np.repeat(np.arange(DOCUMENTS), RENDERINGS)
    style, content = rng.normal(size=len(document)), rng.normal(size=DOCUMENTS)[document]
    noise = 0.3 * rng.normal(size=len(document))
    turns = Turns({"group": [0] * len(document), "episode": range(len(document)), "document": document,
                   "liked": style + content + noise})  # fmt: skip
    found = pairs(turns, "liked", match_on=match_on)
    keep = rng.permutation(len(found))[:600]
    x = np.stack([style, content], 1)
    chosen, rejected = (rows(x[found[name].to_numpy()[keep]]) for name in ("chosen", "rejected"))
    model = LinearReward(ridge=0.01)
    model.fit(Preferences(chosen, rejected))
    assert model.weights is not None
    other = rng.normal(size=(2, 2000, 2))
    better = other[0, :, 0] > other[1, :, 0]
    lead = (other[0] - other[1]) @ model.weights > 0
    return float(model.weights[1] / model.weights[0]), float((lead == better).mean())


@reproduction(
    185,
    claim="What two sides of a pair have in common cannot be learned from it.",
    baseline="pairs across documents",
    criterion="inside a document the content's weight is below .02 of the style's and the scorer is right on style in "
    "99 % of pairs; across documents above .7 and in fewer than 85 %, in every run; published counts give .0017, "
    "1.5e-5 and .78",
    seeds=(0, 1, 2, 3, 4),
)
def measure(seeds: Sequence[int]) -> Outcome:
    """Weights and accuracy by the pairs, then the counts."""
    found = {name: np.array([one(seed, match_on) for seed in seeds])
             for name, match_on in (("matched", MATCHED), ("mixed", ()))}  # fmt: skip
    measured = {f"{what}_{name}": float(each[:, k].mean())
                for name, each in found.items() for k, what in enumerate(("content", "right"))}  # fmt: skip
    tests = {f"p_{name}": position_bias_test(a, b) for name, (a, b, _) in COUNTS.items()}
    same = all(abs(tests[f"p_{name}"] / p - 1) < 0.05 for name, (_, _, p) in COUNTS.items())
    blind = np.abs(found["matched"][:, 0]).max() < 0.02 and found["matched"][:, 1].min() > 0.99
    seeing = found["mixed"][:, 0].min() > 0.7 and found["mixed"][:, 1].max() < 0.85
    return Outcome(measured | tests, bool(blind and seeing and same))
