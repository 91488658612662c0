"""[161] OneReward (arXiv 2508.21066): one judge for criteria that contradict each other, in both orders, and a ceiling.

Three criteria on two features, two of them opposites: a reward that is told the criterion beside one that is not. A
tiny language model that says "yes" or "no" of two descriptions, learned in both orders or in one. By recipe: an answer
that the judge over-rates, with and without the ceiling. Left out: images, the gradient through the sampler, the moving
copy of the policy. A negative result: told the criterion in words, the tiny model was right in 72 % of pairs after four
epochs, 71 % untold; it does not learn to read it in that time, so conditioning is shown on features.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence

import numpy as np
import polars as pl
import torch
import torch.nn.functional as F

from palaestra.agents import TabularPolicy, Team
from palaestra.algebra.signals import clip
from palaestra.algebra.turns import Turns
from palaestra.envs.worlds.mixture import Mixture
from palaestra.judges import best_vs_worst
from palaestra.learning import PolicyGradient
from palaestra.learning.reward_models import LinearReward, PairwiseTokenReward, Preferences
from palaestra.learning.reward_models.losses import both_orders_loss
from palaestra.learning.stages.against_start import against_start
from palaestra.play.executors import Plan
from palaestra.runs.inline import TrainingResult
from palaestra_atlas.catalog.reward_models.made import decided, opposed, small_judge, stage_context
from palaestra_atlas.reproductions import Outcome, exact, reproduction, train_arms

CRITERIA = np.array([[3.0, 0.0], [-3.0, 0.0], [1.0, 3.0]])
COLOURS, SHAPES = ("grey", "pink", "red", "scarlet"), ("ball", "cube", "cone", "ring", "cup", "box")
CEILING = 0.9
ARMS = {"pays": [0.0, 1.0, 0.0], "shows": {"p_yes": [0.999, 0.93, 0.3], "right": [0.0, 1.0, 0.0]}}
REWARDS = {"ceiling": f"clip(col('p_yes'), high={CEILING}) + .02 * col('right')",
           "without": "col('p_yes') + .02 * col('right')"}  # fmt: skip


class OneOrder(PairwiseTokenReward):
    """The same judge, learned with the better one always first."""

    def pair_loss(self, chosen: torch.Tensor, rejected: torch.Tensor, **given: object) -> torch.Tensor:
        """Of the first order alone."""
        return both_orders_loss(F.logsigmoid(chosen), F.logsigmoid(chosen))


def right(seed: int, *, told: bool) -> float:
    """Accuracy on unseen pairs of all three criteria."""
    rng = np.random.default_rng([161, seed])

    def pairs(count: int) -> Preferences:
        x, criterion = rng.normal(size=(count, 2, 2)), rng.integers(3, size=count)
        utility = np.einsum("nsk,nk->ns", x, CRITERIA[criterion])
        return decided(x, utility, rng, condition=np.eye(3)[criterion] if told else np.ones((count, 1)))

    learned, other = pairs(3000), pairs(1000)
    model = LinearReward(standardise=False)
    model.fit(learned)
    return float(model.agrees(other).mean())


def disagreement(seed: int, kind: type[PairwiseTokenReward]) -> float:
    """Mean distance of P(yes | a, b) + P(yes | b, a) from 1, on unseen descriptions of which the redder is better."""
    rng = np.random.default_rng([161, seed])
    colour, shape = rng.integers(4, size=(2, 400)), rng.integers(6, size=(2, 400))
    kept = colour[0] != colour[1]
    said = [np.array([f"a {COLOURS[c]} {SHAPES[s]}" for c, s in zip(colour[k], shape[k], strict=True)]) for k in (0, 1)]
    first = (colour[0] > colour[1])[kept]
    sides = [np.where(first, said[k][kept], said[1 - k][kept]) for k in (0, 1)]
    chosen, rejected = (pl.DataFrame({"response": each}) for each in sides)
    pairs = Preferences(chosen, rejected)
    model = kind(question="{first}\n{second}\nyes or no?")
    model.fit(pairs.take(np.arange(200)), epochs=3, lr=3e-3, batch=16, seed=seed)
    other = pairs.take(np.arange(200, len(pairs)))
    a, b = model.orders(other.chosen, other.rejected)
    return float((a + b - 1).abs().mean())  # type: ignore[arg-type]


@exact
def told_and_in_both_orders() -> None:
    """A tiny judge under two opposed criteria is right in every pair, and P(yes) of both orders add up to about 1."""
    judge = small_judge("{criterion} {first} {second}", ["N S", "no so"])
    judge.fit(opposed(64, 0), epochs=6, lr=5e-3, batch=16)
    pairs = opposed(20, 1)
    first, second = (each.to_numpy() for each in judge.orders(pairs.chosen, pairs.rejected, pairs.condition))
    assert judge.agrees(pairs).mean() == 1.0, first
    assert np.abs(first + second - 1).mean() < 0.3, first + second


@exact
def ceiling() -> None:
    """What is left to the ceiling of .9 at .6, .9 and .97."""
    paid = np.asarray(clip("p_yes", high=CEILING).evaluate(Turns({"p_yes": [0.6, 0.9, 0.97]})))
    np.testing.assert_allclose(CEILING - paid, [0.3, 0.0, 0.0], atol=1e-12)


@exact
def best_and_worst_by_criterion() -> None:
    """Of four answers the best and the worst by each criterion are a pair, of criteria that disagree another one."""
    rows = {"group": [0] * 4, "episode": range(4), "red": [0.9, 0.5, 0.2, 0.4], "large": [0.1, 0.3, 0.8, 0.5],
            "alike": [0.5, 0.51, 0.5, 0.5]}  # fmt: skip
    found = [best_vs_worst(name, min_gap=0.05)(Turns(rows)) for name in ("red", "large", "alike")]
    assert [each.select("chosen", "rejected").rows() for each in found] == [[(0, 2)], [(2, 0)], []]


class Told:
    """P(yes) that the row's column that the criterion names is higher than the reference's."""

    name = "told"

    def score(
        self, rows: pl.DataFrame, *, reference: pl.DataFrame | None = None, condition: pl.DataFrame | None = None
    ) -> pl.Series:
        """See `Scorer`."""
        assert reference is not None
        assert condition is not None
        name = condition["criterion"][0]
        lead = rows[name].to_numpy() - reference[name].to_numpy()
        return pl.Series(1 / (1 + np.exp(-5.0 * lead)))


SHOWN = {"bright": [0.0, 0.5, 1.0], "sharp": [1.0, 0.5, 0.0], "near": [0.0, 1.0, 0.0]}
TASKS = {"fill": (0.5, ["bright", "near"]), "extend": (0.25, ["bright"]), "remove": (0.25, ["sharp"])}
MIXED = {
    name: {"make": "native/arms", "weight": weight, "options": {"pays": [0.0, 0.0, 0.0], "shows": SHOWN}}
    for name, (weight, _) in TASKS.items()
}


def judged(groups: int = 120) -> tuple[Turns, dict[str, float]]:
    """Turns after learning to choose the last arm, the brightest, scored against the start, and means of `extend`."""
    team, env = Team(player=TabularPolicy(3, name="player")), functools.partial(Mixture, MIXED)
    stage = against_start("better", Told(), criteria={name: criteria for name, (_, criteria) in TASKS.items()})
    told = dataclasses.replace(stage_context(env=env), team=team)
    learner, means = PolicyGradient(team, lr=1.0), {}
    for name in ("before", "after"):
        turns = told.executor.play(env, team, Plan(groups=groups, group_size=4, seed=161))
        scored = stage(turns, told)
        means[name] = float(scored.frame.filter(part="extend")["against.better"].mean() or 0.0)  # type: ignore[arg-type]
        for _ in range(3):
            last = np.where(turns["action"] == "arm 2", 1.0, -1.0)
            learner.update(turns.with_column(advantage=last))
    return scored, means


@exact
def better_than_the_start() -> None:
    """P(yes) against the frozen start is .5 on average before anything is learned, and rises with what is learned."""
    _, means = judged()
    assert abs(means["before"] - 0.5) < 0.07, means
    assert means["after"] > 0.7, means


@exact
def tasks_and_their_criteria() -> None:
    """Tasks come as often as their weights say, and each is paid by the mean of its own criteria."""
    scored, _ = judged()
    shares = dict(scored.frame.group_by("part").len().iter_rows())
    found = {name: shares.get(name, 0) / len(scored) for name in TASKS}
    assert all(abs(found[name] - weight) < 0.13 for name, (weight, _) in TASKS.items()), found
    means = dict(scored.frame.group_by("part").agg(pl.col("against.better").mean()).iter_rows())
    assert means["extend"] > 0.7 > 0.65 > means["fill"] > 0.35 > means["remove"], means


def truth(learned: TrainingResult) -> dict[str, float]:
    """How often the right answer is given."""
    return {"truth": float(learned.play(groups=50)["right"].mean() or 0.0)}  # type: ignore[arg-type]


@reproduction(
    161,
    claim="One judge serves criteria that contradict each other if it is told which; both orders make it indifferent "
    "to the order; a ceiling keeps a policy from what the judge is surest of.",
    baseline="the judge without the criterion; pairs in one order; the reward without the ceiling",
    criterion="told, right on at least .15 more of unseen pairs; orders disagree by less than .25, by more than .75 "
    "if learned in one; by recipe the truth is above .8 with the ceiling and below .2 "
    "without; in every run",
    seeds=(0, 1),
    slow=True,
)
def measure(seeds: Sequence[int]) -> Outcome:
    """Rewards, judges, hinges, policies."""
    told, untold = (np.array([right(seed, told=each) for seed in seeds]) for each in (True, False))
    both, single = (np.array([disagreement(seed, kind) for seed in seeds]) for kind in (PairwiseTokenReward, OneOrder))
    changes = {name: {"env": {"options": ARMS}, "reward": text} for name, text in REWARDS.items()}
    arms = train_arms("arms", changes, seeds, truth)
    measured = {"right_told": float(told.mean()), "right_untold": float(untold.mean()), "orders": float(both.mean()),
                "orders_one": float(single.mean()), **arms.measured()}  # fmt: skip
    policies = arms.values["ceiling"]["truth"].min() > 0.8 and arms.values["without"]["truth"].max() < 0.2
    judges = (told - untold).min() >= 0.15 and both.max() < 0.25 and single.min() > 0.75
    return Outcome(measured, bool(judges and policies))
