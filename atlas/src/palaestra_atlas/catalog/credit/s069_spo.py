"""[69] SPO (arXiv 2505.23564): values by playing on tell which segment decided an episode; returns hardly do.

The recipe `steps` with three steps of two actions, all of which must be right, played by a policy that has not learned
yet (each step succeeds with probability 1/2): the stage `mc_values` restarts every episode; `spo_chain()` is compared
with the true segment advantages. A tree of equal token budget is not claimed to reach higher returns: on tables it did
not. Left out: language models, replay of edges.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import polars as pl

from palaestra.agents import ScriptedPolicy, Team, random_legal
from palaestra.algebra.turns import Turns
from palaestra.credit import segments, spo_chain, spo_tokens, spo_tree, tree_values
from palaestra.envs import make
from palaestra.learning.stages.mc_values import mc_values
from palaestra.learning.stages.stage import Context
from palaestra.play.executors import Local
from palaestra.play.rollout import rollout
from palaestra_atlas.reproductions import Outcome, exact, reproduction, train_arms
from palaestra_atlas.verification.measures import Left, Measure

LENGTH, ROLLOUTS = 3, (2, 4, 9)
STILL = {
    "env": {"options": {"steps": LENGTH, "actions": 2, "decisive": LENGTH}},
    "train": {"iterations": 1, "group_size": 150},
    "credit": "spo_chain()",
}


@exact
def chain() -> None:
    """The card's chain: each segment has the change of the value until the next, the last the score less the value."""
    keys = {"group": [0] * 4, "episode": [0] * 4, "turn": range(4), "agent": ["a"] * 4, "reward": [0.0, 0.0, 0.0, 1.0]}
    credit = np.asarray(spo_chain().evaluate(Turns(keys | {"value": [0.5, 0.5, 0.75, 0.25]})))
    np.testing.assert_allclose(credit, [0, 0.25, -0.5, 0.75], atol=1e-9)
    np.testing.assert_allclose(credit.sum(), 1.0 - 0.5, atol=1e-9)


@exact
def paid_on_the_way() -> None:
    """The value of a cut has what was earned before it added: .5, .6, .85, .55; with a score of its own, .4, it is not.

    A token of probability .9 itself is sure.
    """
    order = [2, 0, 3, 1]  # of the rows
    columns = {"value": [0.5, 0.5, 0.75, 0.25], "reward": [0.1, 0.0, 0.2, 0.7], "score": [0.4] * 4}
    keys = {"group": [0] * 4, "episode": [0] * 4, "turn": order, "agent": ["a"] * 4}
    turns = Turns(keys | {name: [values[place] for place in order] for name, values in columns.items()})
    for signal, expected in ((spo_chain(), [0.1, 0.25, -0.3, 0.45]), (spo_chain(score="score"), [0, 0.25, -0.5, 0.15])):
        np.testing.assert_allclose(np.asarray(signal.evaluate(turns)), np.array(expected)[order], atol=1e-9)
    border = Turns({"logprobs": [[-1.0, math.log(0.9), -1.0]], "values": [[0.2, 0.2, 0.6]], "score": [1.0]})
    credit: Any = spo_tokens(score="score", every=1).evaluate(border)
    np.testing.assert_allclose(credit.values, [0.4, 0.0, 0.4], atol=1e-9)


@exact
def tree() -> None:
    """The card's tree of three leaves to each of three nodes: values, edges, and both ways to compare siblings."""
    parent = np.array([-1, 0, 0, 0, *[1] * 3, *[2] * 3, *[3] * 3])
    leaves = np.array([np.nan] * 4 + [1, 1, 0, 0, 0, 0, 1, 1, 1])
    value = tree_values(parent, leaves)
    np.testing.assert_allclose(value[:4], [5 / 9, 2 / 3, 0, 1], atol=1e-9)
    np.testing.assert_allclose(tree_values(parent, leaves, best_of=4)[1], 0.9877, atol=1e-4)
    nodes = Turns({"group": [0] * 12, "value": value[1:], "parent": parent[1:]})
    edges = [0.1111, -0.5556, 0.4444, 0.3333, 0.3333, -0.6667, *[0.0] * 6]
    np.testing.assert_allclose(np.asarray(spo_tree().evaluate(nodes)), edges, atol=1e-4)
    scaled = np.asarray(spo_tree(method="grpo").evaluate(nodes))[:3]
    np.testing.assert_allclose(scaled, [0.2673, -1.3363, 1.0690], atol=1e-4)


@exact
def cuts_and_mask() -> None:
    """Cuts lie before every second token of a probability under .9; only they carry what their segment changed."""
    chances = [0.95, 0.5, 0.99, 0.5, 0.97, 0.92, 0.3, 0.8]
    keys = {"group": [0], "episode": [0], "turn": [0], "agent": ["a"], "reward": [1.0]}
    turns = Turns(keys | {"logprobs": [np.log(chances).tolist()], "values": [[0.2] * 3 + [0.4] * 4 + [0.9]]})
    assert segments(every=2).evaluate(turns).values.tolist() == [0, 0, 0, 1, 1, 1, 1, 2]  # type: ignore[union-attr]
    found = spo_tokens(every=2).evaluate(turns).values  # type: ignore[union-attr]
    np.testing.assert_allclose(found, [0, 0, 0, 0.5, 0, 0, 0.5, 0.1], atol=1e-9)


@exact
def fresh_rollouts() -> None:
    """The stage plays on with today's team: one that is always right wins from wherever no step was wrong yet."""
    env = make("native/steps", steps=LENGTH, actions=2, decisive=LENGTH)
    right = env().worth.argmax(axis=1)  # type: ignore[attr-defined]
    skilled = ScriptedPolicy(lambda request: int(right[int(request.observation.text.split()[1])]))
    played = rollout(env, Team(chooser=random_legal()), groups=1, group_size=16)
    context = Context(np.random.default_rng(0), 1, env, Team(chooser=skilled), Local())
    turns = mc_values(k=2)(played, context)
    before = pl.col("right").cast(pl.Int32).shift(1, fill_value=1).cum_min().over("group", "episode")
    alive = turns.frame.select(alive=before)["alive"].to_numpy()
    assert 0 < alive.mean() < 1
    np.testing.assert_allclose(turns["value"], alive, atol=1e-9)
    credit = np.asarray(spo_chain().evaluate(turns))
    np.testing.assert_allclose(credit, np.where(alive * ~turns["right"].to_numpy(), -1.0, 0.0), atol=1e-9)


def agreement(turns: Turns) -> float:
    """Correlation of the credit that was given with the true segment advantage under uniform play."""
    before = pl.col("right").cast(pl.Int32).shift(1, fill_value=1).cum_min().over("group", "episode")
    alive = turns.frame.select(alive=before)["alive"].to_numpy()
    value = np.where(alive == 1, 0.5 ** (LENGTH - turns["turn"].to_numpy()), 0.0)
    truth = np.asarray(spo_chain().evaluate(turns.with_column(value=value)))
    return float(np.corrcoef(turns["advantage"].to_numpy(), truth)[0, 1])


def segment_agreement() -> Measure:
    """Correlation with the true segment advantage in the first iteration, whose policy is uniform, per seed."""

    def measured(left: Left) -> list[float]:
        tables = [Turns.load(seed / "turns") for seed in left.seeds()]
        return [agreement(turns.filter(pl.col("iteration") == 1)) for turns in tables]

    return measured


@reproduction(
    69,
    claim="Segment advantages from restarted rollouts agree with the true ones, better with every rollout more.",
    baseline="trajectory credit: the outcome minus its mean on every segment",
    criterion="correlation with the true advantage rises with K, and is above trajectory credit's for K = 4 and 9",
    seeds=(0, 1, 2, 3, 4, 5),
    slow=True,
)
def measure(seeds: Sequence[int]) -> Outcome:
    """150 episodes of uniform play per seed and K."""
    found: dict[str, list[float]] = {}

    def watch(arm: str, iteration: int, turns: Turns) -> None:
        found.setdefault(arm, []).append(agreement(turns))

    arms: dict[str, dict[str, Any]] = {f"k{k}": STILL | {"stages": [f"mc_values(k={k})"]} for k in ROLLOUTS}
    arms["trajectory"] = STILL | {"stages": [], "credit": "dr_grpo()"}
    train_arms("steps", arms, seeds, lambda learned: {}, on_turns=watch)
    at = {name: float(np.mean(values)) for name, values in found.items()}
    holds = at["k2"] < at["k4"] < at["k9"] and at["k4"] > at["trajectory"]
    return Outcome({f"correlation_{name}": value for name, value in at.items()}, holds)
