"""[17] ARMAP (arXiv 2502.12130): a reward model from random play whose intent is said after the fact, then planning.

Walks of eight steps on a plane; the intent is the cell that was reached, the negative a walk that reached another. Left
out: intents written by a language model. The training arm is the recipe `walk`, in which the env's reward is not seen.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import polars as pl

from palaestra.agents import ScriptedPolicy, Team
from palaestra.algebra.turns import Turns
from palaestra.envs.worlds import Walk
from palaestra.envs.worlds.walk import towards
from palaestra.judges.pairs import hindsight
from palaestra.learning.reward_models import OnlineLinearReward, Preferences
from palaestra.play.executors import Local, Plan
from palaestra.rewards import best_of_n
from palaestra_atlas.reproductions import Outcome, reproduction, train_arms

ARMS: dict[str, Any] = {
    "hindsight": {},
    "unfitted": {"stages": ["alternate('hindsight(\"reached\")', every=0, condition='goal', end=True, "
                            "model='online_linear(\"palaestra.envs.worlds.walk:towards\", weights=[0, 0, 0, 0])')"]},
}  # fmt: skip


def anywhere(request: Any) -> str:
    """Any step."""
    return Walk().choices[int(request.rng.integers(4))]


def walks(groups: int, size: int, seed: int) -> Turns:
    """Ends of random walks, a row per episode."""
    team = Team(walker=ScriptedPolicy(anywhere, name="anywhere"))
    turns = Local().play(Walk, team, Plan(groups=groups, group_size=size, seed=seed))
    return Turns(turns.frame.filter(pl.col("turn") == 7))


def planned(seed: int) -> dict[str, float]:
    """Success of one walk, of the best of ten by the learned score, and of any of ten."""
    past = walks(800, 1, seed)
    found = hindsight("reached", seed=seed)(past)
    model = OnlineLinearReward(towards, inertia=1e-3)
    chosen, rejected = past.frame[found["chosen"].to_numpy()], past.frame[found["rejected"].to_numpy()]
    model.fit(Preferences(chosen, rejected, condition=found.select("criterion")))
    new = walks(300, 10, seed + 1000)
    score = model.score(new.frame, condition=new.frame.select(criterion="goal"))
    new = new.with_column(score=score)
    picked = np.asarray(best_of_n("score").evaluate(new)) == 1
    hit = new["success"].to_numpy()
    return {"single": float(hit.mean()), "best_of_10": float(hit[picked].mean()),
            "any_of_10": float(hit.reshape(-1, 10).any(axis=1).mean())}  # fmt: skip


@reproduction(
    17,
    claim="Random play and intents written after it are enough to learn a reward by which the best of ten is chosen, "
    "and a policy is trained that never sees the env's own.",
    baseline="one random walk; and the same training with a reward model that learned nothing",
    criterion="best of ten by the learned score at least 95 % of any of ten and 5 times the single walk; success over "
    "the last ten iterations of training > .7, and < .2 with the model that learned nothing, in every seed",
    seeds=(0, 1, 2),
    slow=True,
)
def measure(seeds: Sequence[int]) -> Outcome:
    """Planning by the score, then training by it."""
    each = [planned(seed) for seed in seeds]
    measured = {name: float(np.mean([one[name] for one in each])) for name in each[0]}
    arms = train_arms("walk", ARMS, seeds, lambda learned: {"success": float(np.mean(learned.curve()[-10:]))})
    measured |= arms.measured()
    plans = measured["best_of_10"] >= 0.95 * measured["any_of_10"] and measured["best_of_10"] >= 5 * measured["single"]
    values = {arm: found["success"] for arm, found in arms.values.items()}
    trains = (values["hindsight"] > 0.7).all() and (values["unfitted"] < 0.2).all()
    return Outcome(measured, bool(plans and trains))
