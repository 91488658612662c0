"""[47] RewardDance (arXiv 2509.08826): the reward is the chance to be better than a good reference.

What a scorer adds to all answers to a prompt cancels; the slope against a reference that is far behind is gone. By
recipe, with a credit that does not know groups: scores of which the prompt makes most, pointwise and against the best
of the group. Left out: images, the rationale, the size of reward models.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl

from palaestra.agents import ScriptedPolicy
from palaestra.algebra.signals import col
from palaestra.algebra.turns import Turns
from palaestra.evaluation.audits.judges.reward import reward_spread
from palaestra.judges import Verifier
from palaestra.judges.search import reward_beam
from palaestra.learning.reward_models import Against, AgainstBest, LinearReward
from palaestra.learning.stages.score import score
from palaestra.runs.inline import TrainingResult
from palaestra_atlas.catalog.reward_models.made import Ahead, Fork, opposed, rows, small_judge, stage_context
from palaestra_atlas.reproductions import Outcome, exact, reproduction, train_arms

WORTH = "5 * (col('helpful') + col('offset'))"
SETTINGS = {
    "env": {"options": {"wishes": 1, "answers": 4, "offset": 5.0}},
    "credit": "centre(agent_return(), over=())",
    "reward": "col('score.dance')",
    "learn": {"lr": 0.05, "terms": "surrogate()"},
    "train": {"iterations": 40, "groups": 20, "group_size": 8},
}
SCORERS = {"pointwise": f'verifier("{WORTH}")', "against": f'against_best(verifier("{WORTH}"))'}


@exact
def offsets_cancel() -> None:
    """What a scorer adds to all answers of a prompt moves a pointwise reward, and not the one against a reference."""
    scorer = LinearReward(standardise=False)
    scorer.weights = np.array([1.0])
    x, y = np.random.default_rng(47).normal(size=(2, 100, 1))
    found = [Against(scorer).score(rows(x + by), reference=rows(y + by)).to_numpy() for by in (0.0, 7.0)]
    np.testing.assert_allclose(found[0], found[1], atol=1e-12)
    assert np.ptp(found[0]) > 0.5


@exact
def slopes() -> None:
    """P(1 - P) at leads of 0, 2 and 4 over the reference."""
    scorer = LinearReward(standardise=False)
    scorer.weights = np.array([1.0])
    lead, step = np.array([[0.0], [2.0], [4.0]]), 1e-4
    ends = [Against(scorer).score(rows(lead + by), reference=rows(0 * lead)).to_numpy() for by in (step, -step)]
    np.testing.assert_allclose((ends[0] - ends[1]) / (2 * step), [0.25, 0.105, 0.018], atol=1e-3)


@exact
def best_two() -> None:
    """By the stage: answers worth 0, 1, 2, 4 against the best two others of their group, offset or not."""
    worth = np.array([0.0, 1.0, 2.0, 4.0])
    keys = {"group": np.repeat([0, 1], 4), "episode": range(8), "turn": [0] * 8, "agent": ["a"] * 8}
    turns = Turns(keys | {"observation": ["?"] * 8, "action": ["x"] * 8, "worth": [*worth, *(worth + 9)]})
    stage = score("dance", AgainstBest(Verifier(col("worth"))))
    found = np.asarray(stage(turns, stage_context())["score.dance"])
    others = [[2, 4], [2, 4], [1, 4], [1, 2]]
    expected = [np.mean(1 / (1 + np.exp(np.array(each) - own))) for own, each in zip(worth, others, strict=True)]
    np.testing.assert_allclose(found, [*expected, *expected], atol=1e-12)


@exact
def learned_tokens() -> None:
    """A tiny judge says yes to what the criterion asks for: likelier than even in every pair, and in (0, 1)."""
    model = small_judge("{criterion} {first} {second}", ["N S", "no so"])
    model.fit(opposed(64, 0), epochs=4, lr=5e-3, batch=16)
    pairs = opposed(20, 1)
    p = model.score(pairs.chosen, reference=pairs.rejected, condition=pairs.condition).to_numpy()
    assert ((p > 0.5) & (p < 1.0)).all(), p


@exact
def beam() -> None:
    """Of several paths that are kept by their score so far, one begins badly and ends best."""
    policy = ScriptedPolicy(lambda request: str(request.rng.integers(2)), name="anything")
    found = reward_beam(lambda: Fork([0.0, 0.0, 1.0, 0.0]), policy, Ahead(), width=4)
    assert found.actions == ("1", "0"), found


@exact
def collapsed_spread() -> None:
    """Groups whose rewards come to be all the same are counted, and how the spread falls over the steps."""
    rng = np.random.default_rng(0)
    step, size = np.repeat(np.arange(10), 8), np.repeat(np.linspace(1, 0, 10), 8)
    frame = pl.DataFrame({"step": step, "group": np.tile([0, 0, 0, 0, 1, 1, 1, 1], 10)})
    kept = reward_spread(frame.with_columns(reward=pl.Series(rng.normal(size=80)))).numbers
    lost = reward_spread(frame.with_columns(reward=pl.Series(size * rng.normal(size=80)))).numbers
    np.testing.assert_allclose([kept["dead"], lost["dead"]], [0.0, 0.1])
    assert lost["last"] < 0.25 * lost["first"], lost
    assert kept["last"] > 0.5 * kept["first"], kept


def helped(learned: TrainingResult) -> dict[str, float]:
    """How much the answers help."""
    return {"helpful": float(learned.play(groups=100)["helpful"].to_numpy().mean())}


@reproduction(
    47,
    claim="Against the best of a group a reward does not depend on what the prompt is worth, and it teaches.",
    baseline="the same scorer pointwise",
    criterion="by recipe answers help by at least .1 more in every run",
    seeds=(0, 1, 2),
    slow=True,
)
def measure(seeds: Sequence[int]) -> Outcome:
    """Two rewards by the same scorer."""
    changes = {name: SETTINGS | {"stages": [f"score('dance', {text!r})"]} for name, text in SCORERS.items()}
    arms = train_arms("wishes", changes, seeds, helped)
    gain = arms.values["against"]["helpful"] - arms.values["pointwise"]["helpful"]
    return Outcome(arms.measured() | {"least_gain": float(gain.min())}, bool(gain.min() >= 0.1))
