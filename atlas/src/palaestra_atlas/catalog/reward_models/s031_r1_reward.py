"""[31] R1-Reward (arXiv 2505.02835): StableReinforce, a judge trained with a guarded loss and without outliers.

The world `judging` with a checker that breaks in 3 % of the verdicts and then adds ± 50; with 1 % the filter gained
.015 on one seed. What the pre-clip does is shown on ratios, not by training. Left out: images, the
curriculum by attempts.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
import torch

from palaestra.algebra.turns import Turns
from palaestra.credit import stable_reinforce
from palaestra.judges import StubJudge, Vote
from palaestra.learning.terms import MicroBatch, stable
from palaestra.rewards.judged.verdicts import r1_reward
from palaestra_atlas.reproductions import Outcome, exact, reproduction, train_arms

if TYPE_CHECKING:
    from palaestra.runs.inline import TrainingResult

WORLD: dict[str, Any] = {
    "env": {"make": "native/judging", "options": {"glitches": 0.03}},
    "reward": 'r1_reward() + col("glitch")',
    "train": {"iterations": 40, "groups": 64, "group_size": 1},
}
ARMS = {
    "stable": {"credit": "stable_reinforce()", "learn": {"lr": 0.1, "terms": "stable()"}},
    "unfiltered": {"credit": "stable_reinforce(k=1e9)", "learn": {"lr": 0.1, "terms": "stable()"}},
}


@exact
def ratios() -> None:
    """Log-ratios of 8, 50 and 100 with advantage -1: a loss of 1000, and a gradient of 0."""
    for ratio in (8.0, 50.0, 100.0):
        new = torch.tensor([[ratio]], dtype=torch.double, requires_grad=True)
        loss = stable()(MicroBatch.of(new, old=torch.zeros(1, 1, dtype=torch.double), advantage=-1.0))
        loss.backward()
        assert new.grad is not None
        np.testing.assert_allclose([float(loss.detach()), float(new.grad)], [1000.0, 0.0], rtol=1e-9)


@exact
def advantages() -> None:
    """255 ones and a zero, in groups of eight: .0626 for the ones, and 0 in place of -15.97 for the other."""
    rows = {"group": np.arange(256) // 8, "episode": range(256), "agent": ["a"] * 256, "turn": [0] * 256}
    found = np.asarray(stable_reinforce().evaluate(Turns(rows | {"reward": [1.0] * 255 + [0.0]})))
    np.testing.assert_allclose(found, [1 / math.sqrt(255)] * 255 + [0.0], atol=1e-9)


@exact
def rewards() -> None:
    """Right and consistent 2, right alone 1.5, wrong but consistent .5, right and consistent without the form 1.5."""
    rows = Turns({"result": [1, 1, 0, 1], "consistent": [1, 0, 1, 1], "formatted": [1, 1, 1, 0]})
    np.testing.assert_allclose(np.asarray(r1_reward().evaluate(rows)), [2.0, 1.5, 0.5, 1.5], atol=1e-12)


@exact
def votes() -> None:
    """Fifteen verdicts of a judge who is right in seven of ten: right as often as the binomial says."""
    rows = pl.DataFrame({"truth": np.random.default_rng(31).integers(2, size=4000)})
    panel = Vote(StubJudge([[0.7, 0.3], [0.3, 0.7]], seed=31), 15)
    right = float((panel.score(rows) == rows["truth"]).mean())  # type: ignore[arg-type]
    expected = sum(math.comb(15, k) * 0.7**k * 0.3 ** (15 - k) for k in range(8, 16))
    assert abs(right - expected) < 0.015, (right, expected)


def judge(learned: TrainingResult) -> dict[str, float]:
    """Held-out share of right verdicts, and over the whole training."""
    right = learned.play(groups=600)["result"].drop_nulls()
    return {"accuracy": float(right.mean()), "curve": float(np.mean(learned.curve()))}  # type: ignore[arg-type]


@reproduction(
    31,
    claim="With a checker that breaks now and then, dropping advantages beyond three standard deviations lets a judge "
    "learn that learns less with them.",
    baseline="the same recipe without the filter (k = 1e9)",
    criterion="mean accuracy over training higher by at least .05, and in every seed (held on "
    "the three fresh seeds tried)",
    seeds=(0, 1, 2),
    slow=True,
)
def measure(seeds: Sequence[int]) -> Outcome:
    """With and without the filter, by the recipe `judging`."""
    arms = train_arms("judging", {name: WORLD | changes for name, changes in ARMS.items()}, seeds, judge)
    gain, error = arms.gain("stable", "unfiltered", "curve")
    ahead = float(np.mean(arms.values["stable"]["curve"] > arms.values["unfiltered"]["curve"]))
    measured = arms.measured() | {"gain": gain, "standard_error": error, "ahead": ahead}
    return Outcome(measured, gain >= 0.05 and ahead == 1.0)
