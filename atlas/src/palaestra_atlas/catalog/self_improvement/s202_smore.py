"""[202] SMORe (arXiv 2311.02013): a score of state, action and goal from random play alone, and cloning weighted by it.

A grid of 6 by 6 cells instead of robots: 200 random walks of at most 15 steps, relabelled with what they reached, are
all that is learned from. Scores are a table, so their fixed point is computed. Left out: networks with two heads and
slow targets, and images. The published sampler gives 8 of 10 rows a goal from their future; here each row stands once
with its own goal and begins one way to a goal of its future, and .77 of the rows are on such ways.
"""

from __future__ import annotations

import numpy as np
import polars as pl

from palaestra.agents import TabularPolicy, Team
from palaestra.algebra.turns import Turns
from palaestra.envs.worlds import GoalGrid
from palaestra.learning import PolicyGradient
from palaestra.learning.stages import Context
from palaestra.learning.stages.fixed_data import fixed_data
from palaestra.learning.stages.nearness import fitted, nearness
from palaestra.learning.stages.selection import weights
from palaestra.learning.stages.splice import relabel
from palaestra.play.executors import Local, Plan
from palaestra_atlas.reproductions import exact

WEIGHT = 'exp_weight(col("nearness") - col("nearness_value"), temperature=0.3333, most=100)'


def env() -> GoalGrid:
    """Nine cells."""
    return GoalGrid(side=3, horizon=12)


def context(policy: object) -> Context:
    """Context of a stage."""
    return Context(np.random.default_rng(0), 1, env, Team(walker=policy), Local())  # type: ignore[arg-type]


def scored(policy: TabularPolicy, episodes: int = 60) -> Turns:
    """Random walks, relabelled, with scores and weights."""
    told = context(policy)
    turns = Local().play(env, told.team, Plan(episodes, seed=5))
    for stage in (relabel("reached", "goal", method="future"), nearness("reached", "goal"), weights(WEIGHT)):
        turns = stage(turns, told)
    return turns


def chain(gamma: float = 0.95, expectile: float = 0.8) -> np.ndarray:
    """Scores of three turns of which the last one enters the goal."""
    here, there = np.array([0, 1, 2]), np.array([1, 2, -1])
    return fitted(here, np.zeros(3, int), there, here == 2, gamma=gamma, expectile=expectile)[0]


@exact
def score_of_a_chain() -> None:
    """2 / (1 - γ) = 40 where the goal is entered; one and two steps before -2 + .95 of it: 36 and 32.2."""
    np.testing.assert_allclose(chain(), [32.2, 36, 40], atol=1e-3)
    np.testing.assert_allclose(chain(0.99), [192.04, 196, 200], atol=2e-2)


@exact
def halves_and_shrinking() -> None:
    """A turn that enters the goal and, once of two, goes on a step before it: half of 40 and half of 36, shrunk.

    The third term weighs 1e-4 · (1 - γ) times the share of rows beside the two halves.
    """
    here, there = np.array([0, 0, 1]), np.array([-1, 1, -1])
    enters = np.array([True, False, True])
    score, _ = fitted(here, np.zeros(3, int), there, enters, gamma=0.95, expectile=0.8)
    last = 40 / (1 + 1e-4 * 0.05 * (1 / 3) / 0.5)
    both = (0.5 * 40 + 0.5 * (-2 + 0.95 * last)) / (1 + 1e-4 * 0.05 * 2 / 3)
    np.testing.assert_allclose(score, [both, both, last], rtol=1e-9)


@exact
def value_leans_to_the_best_action() -> None:
    """Of a turn that enters and one that enters a step later, S is 40 and 36; V is 39.2, near the better one.

    An expectile of one half would be the mean, 38.
    """
    here, action = np.array([0, 0, 1]), np.array([0, 1, 0])
    score, value = fitted(here, action, np.array([-1, 1, -1]), np.array([True, False, True]), gamma=0.95, expectile=0.8)
    np.testing.assert_allclose(score, [40, 36, 40], atol=1e-3)
    np.testing.assert_allclose(value, [39.2, 39.2, 40], atol=1e-3)


@exact
def goals_come_from_the_future() -> None:
    """Most turns that are learned from have a goal that their episode goes on to reach; of those played, few have."""
    turns = scored(TabularPolicy(4, name="table")).frame
    made = turns.filter(pl.col("source") == "hindsight")
    assert len(made) > len(turns) / 2
    reach = made.group_by("group", "episode").agg((pl.col("reached") == pl.col("goal")).any())
    assert reach["reached"].all()
    own = turns.filter(pl.col("source") == "policy").group_by("group", "episode").agg(pl.col("success").any())
    assert own["success"].mean() < 0.9  # type: ignore[operator]


@exact
def what_is_played_later_is_thrown_away() -> None:
    """The walks of the first iteration stand in the table of the second one, too, and nothing else does."""
    keep, told = fixed_data(1), context(TabularPolicy(4, name="table"))
    first, second = (Local().play(env, told.team, Plan(3, seed=seed)) for seed in (1, 2))
    assert keep(first, told)["action"].to_list() == first["action"].to_list()
    assert keep(second, told)["action"].to_list() == first["action"].to_list() != second["action"].to_list()


@exact
def nearer_is_more() -> None:
    """The score of a goal falls with the steps that the way there still has at least, turn by turn."""
    turns = scored(TabularPolicy(4, name="table")).frame.drop_nulls("nearness")
    cells = {name: turns[name].str.split(",").list.to_array(2).cast(pl.Array(pl.Int64, 2)).to_numpy()
             for name in ("reached", "goal")}  # fmt: skip
    left = np.abs(cells["reached"] - cells["goal"]).sum(1)
    means = [turns["nearness"].to_numpy()[left == steps].mean() for steps in range(4)]
    assert np.all(np.diff(means) < -1), means
    assert means[0] > 199, means


@exact
def a_policy_that_was_never_played_reaches_its_goals() -> None:
    """Cloned with weights from random walks, the table goes to nearly any cell; the walks themselves seldom did."""
    policy = TabularPolicy(4, name="table")
    turns = scored(policy, 120)
    assert abs(turns["weight"].max() - 100) < 1e-9  # type: ignore[operator]
    before = turns.frame.filter(pl.col("source") == "policy").group_by("group").agg(pl.col("success").any())
    learner = PolicyGradient(Team(walker=policy), "clone(column='weight')", lr=1.0)
    for _ in range(8):
        learner.update(turns)
    after = Local().play(env, Team(walker=policy), Plan(200, seed=6)).frame
    steps = after.group_by("group").agg(pl.col("success").any(), pl.len())
    assert before["success"].mean() < 0.75, before["success"].mean()  # type: ignore[operator]
    assert steps["success"].mean() > 0.95, steps["success"].mean()  # type: ignore[operator]
    assert steps["len"].mean() < 3, "two steps are the mean of the shortest ways"  # type: ignore[operator]
