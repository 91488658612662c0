"""[77] SPAE (arXiv 2601.03823): credit for what a step adds to confidence and correctness ends needless checking.

Guess a number of 8: each turn the agent asks for a bit or says its answer; once all is known it may go on asking, which
now and then makes it doubt again. Only the answer is rewarded, so group-mean credit hardly minds. The stage `probe`
makes the policy answer before every turn. Left out: language models.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from palaestra.agents import TabularPolicy, Team
from palaestra.algebra.turns import Turns
from palaestra.credit import answer_potential, spae
from palaestra.envs import make
from palaestra.learning.stages.probe import probe
from palaestra.learning.stages.stage import Context
from palaestra.play.rollout import rollout
from palaestra_atlas.reproductions import Outcome, exact, reproduction, train_arms
from palaestra_atlas.verification.measures import Left, Measure

if TYPE_CHECKING:
    from palaestra.runs.inline import TrainingResult

BITS = 3
SETTING = {
    "env": {"make": "native/inquiry", "options": {"bits": BITS, "questions": 4, "turns": 16, "doubt": 0.05}},
    "learn": {"lr": 0.1},
    "train": {"iterations": 110, "groups": 8, "group_size": 8},
}


PROBES = {"probe_accuracy": [0.1, 0.4, 0.95, 0.97, 0.2], "probe_confidence": [0.2, 0.5, 0.95, 0.98, 0.8]}
"""The card's probes, after each of five steps."""


def five_steps() -> Turns:
    """The card's episode, which earns 1, beside one that earns 0 and was not probed: group credit is 1/2."""
    keys = {"group": [0] * 10, "episode": [0] * 5 + [1] * 5, "turn": [*range(5)] * 2, "agent": ["a"] * 10}
    probes = {name: [*values, *[None] * 5] for name, values in PROBES.items()}
    return Turns(keys | probes | {"reward": [0.0] * 4 + [1.0] + [0.0] * 5})


@exact
def potentials() -> None:
    """The card's potentials; sure and right has 1, sure and wrong -1, right but unsure .5, neither 0."""
    found = np.asarray(answer_potential().evaluate(five_steps()))[:5]
    np.testing.assert_allclose(found, [-0.12, 0.0, 0.87875, 0.9309, -0.46], atol=1e-9)
    corners = Turns({"probe_accuracy": [1.0, 0.0, 1.0, 0.0], "probe_confidence": [1.0, 1.0, 0.0, 0.0]})
    np.testing.assert_allclose(np.asarray(answer_potential().evaluate(corners)), [1.0, -1.0, 0.5, 0.0], atol=1e-9)


@exact
def card() -> None:
    """The card's credit: what is gained, scaled over the batch, and the outcome's share, less once it is known."""
    turns = five_steps()
    gained = np.asarray(spae(normalise=False, xi=1.0).evaluate(turns))[:5] - 0.5 * np.array([1, 1, 1, 1, 0.6839])
    np.testing.assert_allclose(gained, [-0.0340, 0.0662, 0.8386, 0.0089, -0.8797], atol=1e-4)
    found = np.asarray(spae(normalise=False).evaluate(turns))[:5]
    np.testing.assert_allclose(found, [0.4830, 0.5331, 0.9193, 0.5044, -0.0979], atol=1e-4)


@exact
def beside_others() -> None:
    """Another group, of two that earn 1, and a probed episode without a reward change nothing of the card's credit."""
    keys = {"group": [1, 1, 2, 2, 2], "episode": [0, 1, 0, 0, 0], "turn": [0, 0, 0, 1, 2], "agent": ["a"] * 5}
    probes = {name: [None, None, 0.0, 1.0, 0.0] for name in PROBES}
    others = Turns(keys | probes | {"reward": [1.0, 1.0, None, None, None]})
    found = np.asarray(spae(normalise=False).evaluate(Turns.concat([others, five_steps()])))[5:10]
    np.testing.assert_allclose(found, [0.4830, 0.5331, 0.9193, 0.5044, -0.0979], atol=1e-4)


@exact
def scaled_over_the_batch() -> None:
    """Gains of two groups, of which the second's are half as large, are brought to [0, 1] together."""
    keys = {"group": [0] * 3 + [1] * 3, "episode": [0] * 6, "turn": [0, 1, 2] * 2, "agent": ["a"] * 6}
    turns = Turns(keys | {"phi": [0.0, 0.8, 0.4, 0.0, 0.4, 0.2], "reward": [0.0] * 6})
    gain = np.exp((np.array([0, 0.8, -0.4, 0, 0.4, -0.2]) + 0.4) / 1.2)
    found = np.asarray(spae(phi="phi", xi=1.0, normalise=False).evaluate(turns))
    np.testing.assert_allclose(found, gain - gain.mean(), atol=1e-9)


@exact
def standardised() -> None:
    """At last the credit of the batch has mean 0 and deviation 1."""
    found = np.asarray(spae().evaluate(five_steps()))[:5]
    np.testing.assert_allclose([found.mean(), found.std(ddof=1)], [0.0, 1.0], atol=1e-5)


@exact
def probed() -> None:
    """The stage asks a policy that knows nothing: its answer is uniform over those that fit what is known."""
    env, team = make("native/inquiry", bits=BITS), Team(seeker=TabularPolicy(14))
    nothing: Any = None
    played = rollout(env, team, groups=4, group_size=4)
    turns = probe()(played, Context(np.random.default_rng(0), 1, env, team, nothing))
    known = turns.frame.select(
        pl.col("known").shift(-1, fill_value=None).over("group", "episode").fill_null(pl.col("known"))
    )
    chance = 0.5 ** (BITS - known["known"].to_numpy())
    np.testing.assert_allclose(turns["probe_accuracy"], chance, rtol=1e-5)
    np.testing.assert_allclose(turns["probe_confidence"], chance, rtol=1e-5)


def wasted() -> Measure:
    """Questions per held-out episode when all is known already, per seed; infinite if answers are right below .85."""

    def measured(left: Left) -> list[float]:
        found = []
        for seed in left.seeds():
            frame = pl.read_parquet(seed / "evaluation.parquet").filter(pl.col("system") == "after")
            found.append(_wasted(frame) if _right(frame) >= 0.85 else float("inf"))
        return found

    return measured


def _right(frame: pl.DataFrame) -> float:
    return float(frame.filter(pl.col("action").str.starts_with("say"))["success"].cast(float).mean())  # type: ignore[arg-type]


def _wasted(frame: pl.DataFrame) -> float:
    asked = frame.filter((pl.col("known") == BITS) & pl.col("action").str.starts_with("ask")).height
    return asked / frame.filter(pl.col("action").str.starts_with("say")).height


def turns_after_solving(learned: TrainingResult) -> dict[str, float]:
    """Of the trained team: share of right answers, questions asked when everything was known, per episode."""
    frame = learned.play(groups=64, group_size=4, seed=1).frame
    return {"right": _right(frame), "wasted": _wasted(frame)}


@reproduction(
    77,
    claim="Credit for the change of a probe's potential makes an agent stop once it knows, without costing accuracy.",
    baseline="group-mean credit for the answer alone, standardised over the batch as SPAE is; same learning rate",
    criterion="turns after solving at least 30% fewer, right answers not fewer by more than 0.02, means over the seeds",
    seeds=(0, 1, 2),
    slow=True,
)
def measure(seeds: Sequence[int]) -> Outcome:
    """Trained as by `palaestra train world stages="probe()" credit="spae()"`."""
    arms = train_arms(
        "world",
        {
            "spae": SETTING | {"stages": ["probe()"], "credit": "spae()"},
            "group_mean": SETTING | {"credit": "standardise(dr_grpo(), over=())"},
        },
        seeds,
        turns_after_solving,
    )
    fewer = 1 - arms.mean("spae", "wasted") / max(arms.mean("group_mean", "wasted"), 1e-9)
    holds = fewer >= 0.3 and arms.gain("spae", "group_mean", "right")[0] >= -0.02
    return Outcome({"share_fewer": fewer} | arms.measured(), holds)
