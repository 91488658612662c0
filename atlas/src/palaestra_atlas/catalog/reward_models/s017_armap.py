"""[17] ARMAP (arXiv 2502.12130): a reward model from random play whose intent is said after the fact, then planning.

Walks of eight steps on a plane; the intent is the cell that was reached, the negative a walk that reached another.
Left out: intents written by a language model, the centring term of the loss, trying again with the score as feedback.
The features are distances, so that minus the distance, which nobody fitted, would choose as well: what is learned are
a few signs. The training arm is the recipe `walk`, in which the env's reward is not seen.
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
from palaestra.judges.search import TreeSearch
from palaestra.learning.reward_models import OnlineLinearReward, Preferences
from palaestra.learning.stages.alternate import alternate
from palaestra.play.executors import Local, Plan
from palaestra.rewards import best_of_n
from palaestra_atlas.catalog.reward_models.made import Ahead, Fork, stage_context
from palaestra_atlas.reproductions import Outcome, exact, reproduction, train_arms

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


@exact
def triplets() -> None:
    """An intent is what its own episode reached at its end, and the negative reached something else."""
    reached = ["x", "a", "y", "a", "a", "b", "b", "b", "a", "c"]
    turns = Turns({"episode": np.repeat(np.arange(5), 2), "turn": [0, 1] * 5, "reached": reached})
    ends = dict(zip(range(0, 10, 2), reached[1::2], strict=True))
    found = hindsight("reached")(turns)
    assert found["chosen"].to_list() == list(ends)
    assert found["criterion"].to_list() == list(ends.values())
    assert all(ends[row["rejected"]] != row["criterion"] for row in found.iter_rows(named=True))


@exact
def scores_by_goal() -> None:
    """Fitted to random walks, the stage pays by how near a walk comes to the cell that it was asked for."""
    team = Team(walker=ScriptedPolicy(anywhere, name="anywhere"))
    turns = Local().play(Walk, team, Plan(groups=60, group_size=1, seed=17))
    model = 'online_linear("palaestra.envs.worlds.walk:towards", inertia=0.01)'
    paid = alternate('hindsight("reached")', condition="goal", end=True, model=model)(turns, stage_context())
    ends = paid.frame.filter(pl.col("turn") == 7)
    cells = [np.array(ends[name].str.split(",").to_list(), float) for name in ("reached", "goal")]
    away = np.abs(cells[0] - cells[1]).sum(1)
    near, far = (ends["model_reward"].to_numpy()[mask] for mask in (away <= 2, away >= 6))
    assert near.min() > far.max() + 0.1, (near, far)


@exact
def best_of_ten() -> None:
    """The episode of the highest score is chosen, not the first."""
    turns = Turns({"group": [0] * 4, "episode": range(4), "turn": [0] * 4, "s": [1.0, 4.0, 2.0, 3.0]})
    assert np.asarray(best_of_n("s").evaluate(turns)).tolist() == [0.0, 1.0, 0.0, 0.0]


@exact
def largest_return() -> None:
    """Behind one way lie .6 and .6, behind the other 1 and 0: the best that was met there is what counts."""
    policy = ScriptedPolicy(lambda request: str(request.rng.integers(2)), name="anything")
    found = TreeSearch(rollouts=40, gamma=1.0)(lambda: Fork([0.6, 0.6, 0.0, 1.0]), policy)
    assert found.actions == ("1", "1"), found.actions
    assert found.value == 1.0


@exact
def a_score_stands_for_the_reward() -> None:
    """Behind way 1 lies what is scored most, though only way 0 is paid for, and every step to it costs."""
    policy = ScriptedPolicy(lambda request: str(request.rng.integers(2)), name="anything")

    class Below(Ahead):
        """The same scores less five: none is above 0."""

        def score(self, rows: pl.DataFrame, *, reference: object = None, condition: object = None) -> pl.Series:
            return super().score(rows) - 5.0

    paid = TreeSearch(value=Below(), rollouts=40, gamma=1.0)(lambda: Fork([9.0, 9.0, 0.0, 0.0]), policy)
    alone = TreeSearch(value=Below(), rollouts=40, gamma=1.0, hidden=True)(lambda: Fork([9.0, 9.0, 0.0, 0.0]), policy)
    assert paid.actions[0] == "0", "the env's reward is looked at"
    assert alone.actions == ("1", "0"), alone.actions
    ends = alone.table.filter(pl.col("prompt") == "at [1]").sort("response")
    assert ends["q"].to_list() == [-1.0, -2.0], ends


@exact
def explores() -> None:
    """Rarely tried ways are tried again: after 60 rollouts each of the eight leaves was met."""
    policy = ScriptedPolicy(lambda request: str(request.rng.integers(2)), name="anything")
    found = TreeSearch(rollouts=60)(lambda: Fork([0.5, 0.4, 0.3, 0.2, 0.3, 0.2, 0.1, 0.9]), policy)
    assert found.table.height == 14, found.table


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
