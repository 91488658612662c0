"""[30] MiCRo (arXiv 2505.24846): two groups with opposite tastes are two heads, and a few pairs tell whose turn it is.

4000 pairs of people whose context says with .85 to which group they belong. A single reward cannot be right; a mixture
of probabilities with a gate can, and Bayes' rule on its heads finds a person's own weights. Left out: penalties of
heads (weight 0 in the code), language models.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import polars as pl
import torch

from palaestra.judges import SCORERS
from palaestra.learning.reward_models import LinearReward, MixtureReward, Preferences, hedge, load
from palaestra.learning.reward_models.losses import mixture_bt_loss
from palaestra.learning.reward_models.mixture import Experts, routed
from palaestra.learning.reward_models.trained import fit_reward
from palaestra_atlas.catalog.reward_models.made import decided, written
from palaestra_atlas.reproductions import Outcome, exact, reproduction
from palaestra_atlas.verification.measures import Left, Measure


def people(count: int, rng: np.random.Generator, *, only: int | None = None, sharp: float = 1) -> Preferences:
    """Pairs of either group, or of one; sharp: the better side wins for sure."""
    group = rng.choice([1.0, -1.0], count) if only is None else np.full(count, float(only))
    x = rng.normal(size=(count, 2, 4))
    context = np.where(rng.random(count) < 0.85, group, -group)
    return decided(x, sharp * (2 * group[:, None] * x[..., 0] + x[..., 1]), rng, condition=context[:, None])


def loss(p: np.ndarray) -> float:
    """Mean -log of the chance that was given to what happened."""
    return float(-np.log(np.clip(p, 1e-12, 1)).mean())


@exact
def of_probabilities() -> None:
    """-log Σ π·σ(Δ) of one pair, and with the entropy of the gate beside it."""
    delta, gate = (torch.tensor([each], dtype=torch.double) for each in ((2.0, -2.0), (0.8, 0.2)))
    expected = -np.log(0.8 / (1 + np.exp(-2)) + 0.2 / (1 + np.exp(2)))
    np.testing.assert_allclose(float(mixture_bt_loss(delta, gate.log())), expected, atol=1e-9)
    entropy = 0.5 * (0.8 * np.log(0.8) + 0.2 * np.log(0.2))
    np.testing.assert_allclose(float(mixture_bt_loss(delta, gate.log(), entropy=0.5)), expected + entropy, atol=1e-9)
    sides = torch.tensor([[[2.0, -2.0, np.log(0.8), np.log(0.2)]], [[0.0] * 4]], dtype=torch.double)
    found = float(MixtureReward(heads=2, entropy=0.5).pair_loss(*sides))  # the gate is that of the chosen side
    np.testing.assert_allclose(found, expected + entropy, atol=1e-9)
    model = MixtureReward(heads=2)
    model.module = made = Experts(1, 1, 2)  # heads x and -x; the gate says .8 and .2 whatever it reads
    for layer, values in ((made.rewards.weight, [[1.0], [-1.0]]), (made.gate.weight, [[0.0], [0.0]]),
                          (made.gate.bias, [np.log(0.8), np.log(0.2)])):  # fmt: skip
        layer.data = torch.tensor(values, dtype=torch.float32)
    one, other = (pl.DataFrame({"features": [[x]]}) for x in (2.0, 0.0))
    context = pl.DataFrame({"features": [[1.0]]})
    p = model.score(one, reference=other, condition=context).item()
    np.testing.assert_allclose(p, np.exp(-expected), atol=1e-6)
    told = context.with_columns(weights=pl.Series([[0.3, 0.7]]))
    np.testing.assert_allclose(model.score(one, condition=told).item(), 0.3 * 2 - 0.7 * 2, atol=1e-6)


@exact
def weights_of_a_person() -> None:
    """One pair with leads of 2 and -2: Bayes' rule on two heads."""
    np.testing.assert_allclose(hedge(np.array([[2.0, -2.0]])), [0.881, 0.119], atol=5e-4)


@exact
def heads_gate_and_route() -> None:
    """By the command: two groups are two heads, contexts tell them apart, and a person's pairs choose the head."""
    with tempfile.TemporaryDirectory() as folder:
        file(0, Path(folder), count=1500)
        fit_reward(f"{folder}/people.parquet", f"{folder}/rm", "mixture(heads=2)", features="x", epochs=6, lr=0.05)
        model = load(f"{folder}/rm")
        mine = SCORERS.build(f'routed("{folder}/rm", "{folder}/mine.parquet", features="x")')
    assert isinstance(model, MixtureReward)
    rng = np.random.default_rng(30)
    other, person = named(people(1000, rng)), named(people(1000, rng, only=1, sharp=20))
    p = model.score(other.chosen, reference=other.rejected, condition=other.condition).to_numpy()
    assert loss(p) < 0.6, loss(p)
    lead = mine.score(person.chosen).to_numpy() - mine.score(person.rejected).to_numpy()
    assert (lead > 0).mean() > 0.9, (lead > 0).mean()


def named(pairs: Preferences) -> Preferences:
    """The same with features in the column x."""
    chosen, rejected = (each.rename({"features": "x"}) for each in (pairs.chosen, pairs.rejected))
    return Preferences(chosen, rejected, condition=pairs.condition)


def file(seed: int, folder: Path, count: int = 4000) -> None:
    """Pairs of people of both groups, and twenty of one person whose context is not known."""
    rng = np.random.default_rng([30, seed])
    written(people(count, rng), folder / "people.parquet")
    shown = people(20, rng, only=1)
    written(Preferences(shown.chosen, shown.rejected), folder / "mine.parquet")


def right_for_one() -> Measure:
    """Accuracy for a person by the fitted heads, weighted by twenty of that person's pairs."""

    def measured(left: Left) -> list[float]:
        mine = routed(str(left.directory / "rm"), str(left.directory / "mine.parquet"), features="x")
        person = named(people(2000, np.random.default_rng(30), only=1, sharp=20))
        lead = mine.score(person.chosen).to_numpy() - mine.score(person.rejected).to_numpy()
        return [float((lead > 0).mean())]

    return measured


def one(seed: int) -> dict[str, float]:
    """Losses on unseen pairs, and accuracy for a person of one group."""
    rng = np.random.default_rng([30, seed])
    learned, other, person, shown = (
        people(4000, rng),
        people(2000, rng),
        people(2000, rng, only=1),
        people(20, rng, only=1),
    )
    single, mixture = LinearReward(standardise=False), MixtureReward(heads=2)
    single.fit(Preferences(learned.chosen, learned.rejected))
    mixture.fit(learned, epochs=10, lr=0.02, batch=128, seed=seed)
    lead = (single.score(other.chosen) - single.score(other.rejected)).to_numpy()
    p = mixture.score(other.chosen, reference=other.rejected, condition=other.condition).to_numpy()
    found = {"loss_single": loss(1 / (1 + np.exp(-lead))), "loss_mixture": loss(p)}
    found["right_single"] = float(single.agrees(Preferences(person.chosen, person.rejected)).mean())
    for count in (5, 20):
        weights = mixture.route(shown.take(np.arange(count)), np.zeros(count))["weights"].to_list()[0]
        given = pl.DataFrame({"weights": [weights] * len(person)})
        routed = Preferences(person.chosen, person.rejected, condition=given)
        found[f"right_after_{count}"] = float(mixture.agrees(routed).mean())
    alone = LinearReward(standardise=False)
    alone.fit(Preferences(shown.chosen, shown.rejected))
    found["right_alone"] = float(alone.agrees(Preferences(person.chosen, person.rejected)).mean())
    return found


@reproduction(
    30,
    claim="A mixture of Bradley-Terry models with a gate fits people who disagree, and a few pairs route a person.",
    baseline="one Bradley-Terry reward; one that is fitted to the person's 20 pairs alone",
    criterion="the mixture's loss on unseen pairs is at least .05 lower, and after 20 pairs of a person it is right at "
    "least .1 more often than the single one, in every run, and .05 more often than a fit to these pairs, on average",
    seeds=(0, 1, 2, 3, 4),
    slow=True,
)
def measure(seeds: Sequence[int]) -> Outcome:
    """Means over runs; the criterion looks at each."""
    runs = [one(seed) for seed in seeds]
    measured = {name: float(np.mean([run[name] for run in runs])) for name in runs[0]}
    lower = min(run["loss_single"] - run["loss_mixture"] for run in runs)
    gain = min(run["right_after_20"] - run["right_single"] for run in runs)
    holds = lower >= 0.05 and gain >= 0.1 and measured["right_after_20"] >= measured["right_alone"] + 0.05
    return Outcome(measured | {"least_gain_in_loss": lower, "least_gain": gain}, holds)
