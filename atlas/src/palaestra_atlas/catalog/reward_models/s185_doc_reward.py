"""[185] DocReward (arXiv 2510.11391): pairs of the same content make a scorer blind to the content.

A hundred documents, four renderings each; who says which is better looks at style and at content alike. What is read
of the content differs a little between renderings, so that a weight of 0 has to be learned and does not follow from a
difference of exactly 0. Pairs inside a document, where the content cannot decide, against all pairs. Then the
published counts of what came first. Left out: page images and the vision model.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from palaestra.algebra.signals import absolute, col
from palaestra.algebra.turns import Turns
from palaestra.evaluation.audits.judges.position import position_bias_test
from palaestra.judges import PAIRINGS, Verifier
from palaestra.judges.pairs import original_vs_regenerated
from palaestra.learning.reward_models import LinearReward, Preferences, load
from palaestra.rewards import best_of_n
from palaestra_atlas.catalog.reward_models.made import rows
from palaestra_atlas.reproductions import Outcome, exact, reproduction
from palaestra_atlas.verification.measures import Left, Measure

DOCUMENTS, RENDERINGS = 100, 4
MATCHED = """all_pairs("liked", match_on="document")"""
MIXED = """all_pairs("liked")"""
COUNTS = {"gpt_4o": (202, 271, 0.0017), "sonnet_4": (189, 284, 1.5e-5), "gpt_5": (240, 233, 0.78)}


def renderings(rng: np.random.Generator) -> Turns:
    """Style and content of each rendering of some documents, and how it was liked; documents are in tens."""
    document = np.repeat(np.arange(DOCUMENTS), RENDERINGS)
    style, content = rng.normal(size=len(document)), rng.normal(size=DOCUMENTS)[document]
    noise, misread = 0.3 * rng.normal(size=(2, len(document)))
    x = rows(np.stack([style, content + misread], 1), "x")
    table = {"group": document // 10, "episode": range(len(document)), "document": document, **x.to_dict()}
    return Turns(table | {"liked": style + content + noise})


def right_on_style(model: LinearReward, rng: np.random.Generator) -> float:
    """Accuracy on what style alone says of pairs of unlike content."""
    x = rng.normal(size=(2, 2000, 2))
    better = (x[0, :, 0] > x[1, :, 0])[:, None]
    chosen, rejected = np.where(better, x[0], x[1]), np.where(better, x[1], x[0])
    return float(model.agrees(Preferences(rows(chosen, model.features), rows(rejected, model.features))).mean())


def one(seed: int, pairing: str) -> tuple[float, float]:
    """Weight of the content beside that of the style, and accuracy on style."""
    rng = np.random.default_rng([185, seed])
    turns = renderings(rng)
    found = PAIRINGS.build(pairing)(turns)
    keep = rng.permutation(len(found))[:600]
    chosen, rejected = (turns.frame[found[name].to_numpy()[keep]] for name in ("chosen", "rejected"))
    model = LinearReward("x", ridge=0.01)
    model.fit(Preferences(chosen, rejected))
    assert model.weights is not None
    return float(model.weights[1] / model.weights[0]), right_on_style(model, rng)


@exact
def same_content() -> None:
    """Inside a document the content has no weight beside the style's."""
    content, right = one(0, MATCHED)
    assert abs(content) < 0.1, content
    assert right > 0.97, right


@exact
def originals() -> None:
    """The original wins over its copies; of two copies that which the judge finds nearer to the original."""
    turns = Turns({"group": [0] * 4 + [1] * 2, "original": [False, True, False, False, False, False],
                   "layout": [0.0, 5.0, 4.0, 7.0, 1.0, 2.0]})  # fmt: skip
    judge = Verifier(0.0 - absolute(col("layout") - col("reference.layout")))
    found = original_vs_regenerated(judge)(turns)
    sides = set(found.select("chosen", "rejected").rows())
    assert sides == {(1, 0), (1, 2), (1, 3), (2, 0), (3, 0), (2, 3)}, sides


@exact
def no_position() -> None:
    """A pointwise scorer says the same whatever stands first; counts of judges of two, tested for their position."""
    model = LinearReward(standardise=False)
    model.weights = np.array([1.0, 0.0])
    x = np.random.default_rng(185).normal(size=(2, 200, 2))
    given, swapped = (model.agrees(Preferences(rows(a), rows(b))) for a, b in (x, x[::-1]))
    np.testing.assert_array_equal(given + swapped, 1.0)
    for first, second, p in COUNTS.values():
        assert abs(position_bias_test(first, second) / p - 1) < 0.05
    assert position_bias_test(*np.bincount((given == 0).astype(int))) > 0.05


@exact
def selects() -> None:
    """The rendering of the highest score is taken."""
    model = LinearReward("x", standardise=False)
    model.weights = np.array([1.0, 0.0])
    turns = renderings(np.random.default_rng(185))
    turns = turns.with_column(score=model.score(turns.frame))
    picked = np.asarray(best_of_n("score", over="document").evaluate(turns)) == 1
    style = np.array(turns["x"].to_list())[:, 0].reshape(DOCUMENTS, RENDERINGS)
    np.testing.assert_array_equal(np.array(turns["x"].to_list())[picked, 0], style.max(1))


def file(seed: int, folder: Path) -> None:
    """The renderings of a seed."""
    renderings(np.random.default_rng([185, seed])).frame.write_parquet(folder / "renderings.parquet")


def style_accuracy() -> Measure:
    """Accuracy of the fitted model on style, for pairs of unlike content."""

    def measured(left: Left) -> list[float]:
        model = load(left.directory / "rm")
        assert isinstance(model, LinearReward)
        return [right_on_style(model, np.random.default_rng(185))]

    return measured


@reproduction(
    185,
    claim="What two sides of a pair have in common cannot be learned from it.",
    baseline="pairs across documents",
    criterion="inside a document the content's weight is below .3 of the style's and the scorer is right on style in "
    "92 % of pairs; across documents above .6 and in fewer than 85 %, in every run",
    seeds=(0, 1, 2, 3, 4),
)
def measure(seeds: Sequence[int]) -> Outcome:
    """Weights and accuracy by the pairs, then the counts."""
    found = {name: np.array([one(seed, pairing) for seed in seeds])
             for name, pairing in (("matched", MATCHED), ("mixed", MIXED))}  # fmt: skip
    measured = {f"{what}_{name}": float(each[:, k].mean())
                for name, each in found.items() for k, what in enumerate(("content", "right"))}  # fmt: skip
    blind = np.abs(found["matched"][:, 0]).max() < 0.3 and found["matched"][:, 1].min() > 0.92
    seeing = found["mixed"][:, 0].min() > 0.6 and found["mixed"][:, 1].max() < 0.85
    return Outcome(measured, bool(blind and seeing))
