"""[188] SALMON (arXiv 2310.05910): a reward that follows principles, because it saw them negated.

Worked scores of three principles. Then a noisy judge is asked about four principles in both orders, pairs under random
principles are made of that, and a bilinear reward reads answer and principles; a principle and its negation are two
sentences, so two inputs. Asked for one of them alone. Left out: the policy's training with its bonus for length,
exemplars, red-team principles, and the larger share of turned labels where a rule decided.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from palaestra.algebra.turns import Turns
from palaestra.judges import PAIRINGS
from palaestra.judges.aggregate import swap_consistent
from palaestra.judges.matched import principle_pairs, principle_scores
from palaestra.learning.reward_models import LinearReward, Preferences, load
from palaestra.learning.stages.score import score
from palaestra_atlas.catalog.reward_models.made import rows, stage_context
from palaestra_atlas.reproductions import Outcome, exact, reproduction
from palaestra_atlas.verification.measures import Left, Measure

PRINCIPLES, PAIRS = 4, 4000


ALL: dict[str, Any] = {"stop": 1e-9, "flip": 0.0, "passes": 1}
"""Every principle counts, and no label is turned."""


@exact
def both_orders() -> None:
    """A preference that turns with the order counts nothing."""
    found = swap_consistent(np.array([3.0, -0.6, 1.2]), np.array([1.0, -0.2, -0.4]))
    np.testing.assert_allclose(found / [4.0, 1.0, 2.25], [0.5, -0.4, 0.0], atol=1e-12)
    np.testing.assert_array_equal(swap_consistent(np.array([np.nan, 1.0]), np.array([1.0, np.nan])), [np.nan] * 2)


@exact
def over_variance() -> None:
    """Leads of 2 by a principle of variance 4 and of -.8 by one of variance 1: the second answer is better."""
    lead = np.array([[2.0, -0.8], [-2.0, 0.8], [2.0, np.sqrt(1.36)], [-2.0, -np.sqrt(1.36)]])
    scores = principle_scores(lead)
    np.testing.assert_allclose(scores[0], [0.5, -0.8], atol=1e-12)
    made = principle_pairs(np.array([0]), np.array([1]), scores[:1], negate=0.0, **ALL)
    assert made["chosen"].to_list() == [1]


@exact
def largest_decides() -> None:
    """Scores of .5, -.4 and -.4: the first answer wins, though their mean is against it."""
    made = principle_pairs(np.array([0]), np.array([1]), np.array([[0.5, -0.4, -0.4]]), negate=0.0, **ALL)
    assert made["chosen"].to_list() == [0]
    several = np.array([[0.5], [-0.5], [0.0]])  # the third pair is not decided, and left out in every pass
    made = principle_pairs(np.array([0, 2, 4]), np.array([1, 3, 5]), several, negate=0.0, **ALL | {"passes": 3})
    assert made.select("chosen", "rejected").rows() == [(0, 1), (3, 2)] * 3


@exact
def negations() -> None:
    """In the pairs of a judged table half of the principles are negated, and a negation turns who wins."""
    rng = np.random.default_rng(188)
    options = ", ".join(f"{name}={value}" for name, value in ALL.items())
    turns, lead = judged(400, rng)
    found = PAIRINGS.build(f"principle_pairs({options})")(turns)
    condition = np.array(found["condition"].to_list())
    assert 0.45 < condition[:, PRINCIPLES:].sum() / condition.sum() < 0.55
    signs = condition[:, :PRINCIPLES] - condition[:, PRINCIPLES:]
    scores = principle_scores(lead) * signs
    decides = scores[np.arange(len(scores)), np.abs(scores).argmax(1)]
    won = found["chosen"].to_numpy() % 2 == 0
    np.testing.assert_array_equal(won, decides > 0)


@exact
def told_principles() -> None:
    """By the stage a policy is paid under the principles that its own row names: another one, another order."""
    model = LinearReward("x", standardise=False)
    model.weights = np.eye(2).ravel()
    x, asked = [[1.0, 0.0], [0.0, 1.0]] * 2, [[1.0, 0.0]] * 2 + [[0.0, 1.0]] * 2
    keys = {"group": [0, 0, 1, 1], "episode": range(4), "turn": [0] * 4, "agent": ["a"] * 4, "observation": ["?"] * 4}
    turns = Turns(keys | {"action": ["!"] * 4, "x": x, "asked": asked})
    found = score("principles", model, condition="asked")(turns, stage_context())["score.principles"]
    assert found.to_list() == [1.0, 0.0, 0.0, 1.0]


def judged(pairs: int, rng: np.random.Generator) -> tuple[Turns, np.ndarray]:
    """Two answers each and what a noisy judge prefers under each principle, in both orders; and what it amounts to."""
    x = rng.normal(size=(2 * pairs, PRINCIPLES))
    lead = x[::2] - x[1::2]
    asked = [np.repeat(lead + 0.5 * rng.normal(size=lead.shape), 2, axis=0) for _ in range(2)]
    columns = {"x": x, "lead": asked[0], "swapped": asked[1]}
    lists = {name: pl.Series(each.tolist(), dtype=pl.List(pl.Float64)) for name, each in columns.items()}
    return Turns({"group": np.repeat(np.arange(pairs), 2), **lists}), swap_consistent(asked[0][::2], asked[1][::2])


def file(seed: int, folder: Path) -> None:
    """The judged answers of a seed."""
    judged(PAIRS, np.random.default_rng([188, seed]))[0].frame.write_parquet(folder / "judged.parquet")


def follows() -> Measure:
    """Accuracy of the fitted model where one principle, or the negation of one, is asked for."""

    def measured(left: Left) -> list[float]:
        model = load(left.directory / "rm")
        assert isinstance(model, LinearReward)
        return [follow(model, np.random.default_rng(188))]

    return measured


def follow(model: LinearReward, rng: np.random.Generator) -> float:
    """The same on new pairs."""
    a, b = rng.normal(size=(2, 2000, PRINCIPLES))
    one = np.eye(PRINCIPLES)[rng.integers(PRINCIPLES, size=2000)] * rng.choice([-1.0, 1.0], 2000)[:, None]
    ahead = (((a - b) * one).sum(1) > 0)[:, None]
    chosen, rejected = (rows(np.where(ahead, *each), model.features) for each in ((a, b), (b, a)))
    return float(model.agrees(Preferences(chosen, rejected, condition=rows(sentences(one)))).mean())


def sentences(condition: np.ndarray) -> np.ndarray:
    """Which principles, and which negations of them, stand in the prompt: [rows, 2 · principles]."""
    return np.concatenate([condition > 0, condition < 0], 1).astype(float)


def right(seed: int, *, negate: float) -> float:
    """Accuracy when one principle, or its negation, is asked for on unseen pairs."""
    rng = np.random.default_rng([188, seed])
    turns, _ = judged(PAIRS, rng)
    found = PAIRINGS.build(f"principle_pairs(negate={negate}, seed={seed})")(turns)
    model = LinearReward("x", standardise=False)
    chosen, rejected = (turns.frame[found[name]] for name in ("chosen", "rejected"))
    model.fit(Preferences(chosen, rejected, condition=found.select(features="condition")))
    return follow(model, rng)


@reproduction(
    188,
    claim="A reward that was shown principles and their negations follows whichever is asked for, without new labels.",
    baseline="the same without negated principles",
    criterion="with negations right in at least 95 % of pairs and at least .1 more often than without, in every run",
    seeds=(0, 1, 2),
)
def measure(seeds: Sequence[int]) -> Outcome:
    """Both rewards."""
    found = np.array([[right(seed, negate=share) for share in (0.5, 0.0)] for seed in seeds])
    gap = (found[:, 0] - found[:, 1]).min()
    measured = {"right": float(found[:, 0].mean()), "right_without": float(found[:, 1].mean()), "least_gap": float(gap)}
    return Outcome(measured, bool(found[:, 0].min() >= 0.95 and gap >= 0.1))
