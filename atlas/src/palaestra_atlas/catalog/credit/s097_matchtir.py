"""[97] MatchTIR (arXiv 2601.10712): calls that are matched with the right ones earn their share.

A task needs five calls of different tools out of eight, in any order; the outcome is 1 only if all were made in five
turns. The policy knows the number of the turn; the env tells what was called and what would have been right. Left out:
language models, arguments of calls.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import polars as pl

from palaestra.agents import TabularPolicy, Team
from palaestra.algebra.turns import Turns
from palaestra.credit import matchtir
from palaestra.envs.roles.calls import Calls
from palaestra.play.rollout import rollout
from palaestra.rewards import call_similarity, match_reward, matched
from palaestra_atlas.reproductions import Outcome, exact, reproduction, train_arms

SETTING = {
    "env": {"make": "roles/calls", "options": {"tools": 8, "needed": 5}},
    "learn": {"lr": 0.2},
    "train": {"iterations": 60, "groups": 1, "group_size": 8},
}
MATCHED = {"calls": 'match_reward("calls", "gold")', "outcome": 'col("success") * is_last()'}


def call(name: str, **arguments: int) -> dict[str, Any]:
    """A call of a tool."""
    return {"name": name, "arguments": arguments}


def paid(*turns: Sequence[dict[str, Any]], gold: Sequence[dict[str, Any]], **options: Any) -> np.ndarray:
    """What the turns of one episode earn, each with these calls."""
    keys = {"group": [0] * len(turns), "episode": [0] * len(turns), "turn": range(len(turns))}
    texts = {"calls": [json.dumps(calls) for calls in turns], "gold": [json.dumps(gold)] * len(turns)}
    table = Turns(keys | {"agent": ["a"] * len(turns)} | texts)
    return np.asarray(match_reward("calls", "gold", **options).evaluate(table))


@exact
def partial_credit() -> None:
    """f(x=1, y=2) for f(x=1, y=3, z=4) earns (1 + 2/3 + 1)/5; no arguments, the same in another case, 1; else 0."""
    gold = call("f", x=1, y=3, z=4)
    found = [paid([each], gold=[gold])[0] for each in (call("f", x=1, y=2), gold, call("g", x=1, y=3, z=4))]
    np.testing.assert_allclose(found, [8 / 15, 1, 0], atol=1e-9)
    np.testing.assert_allclose(paid([call("F")], gold=[call("f")]), 1)
    np.testing.assert_allclose(call_similarity(call("f", x=1, y=2), gold), 8 / 15)


@exact
def paid_once() -> None:
    """A call that is repeated in the episode is paid once; what a turn earns is the mean over its calls."""
    found = paid([call("f")], [call("f")], [call("g"), call("h")], gold=[call("f"), call("g")])
    np.testing.assert_allclose(found, [1, 0, 0.5])


@exact
def answer_turn() -> None:
    """The turn that answers and calls nothing earns the answer's F1, 2/3 for two words of which one is right."""
    keys = {"group": [0] * 2, "episode": [0] * 2, "turn": [0, 1], "agent": ["a"] * 2}
    texts = {"calls": [json.dumps([call("f")]), "[]"], "gold": [json.dumps([call("f")])] * 2}
    turns = Turns(keys | texts | {"answer": [None, "red cat"], "truth": ["cat"] * 2})
    found = np.asarray(match_reward("calls", "gold", "answer", "truth").evaluate(turns))
    np.testing.assert_allclose(found, [1, 2 / 3])


@exact
def assignment() -> None:
    """The card's table: .8 and .8 in total, .9 and .1 greedily, .402 and .383 by transport."""
    table = np.array([[0.9, 0.8], [0.8, 0.1]])
    np.testing.assert_allclose(matched(table), [0.8, 0.8])
    np.testing.assert_allclose(matched(table, method="greedy"), [0.9, 0.1])
    np.testing.assert_allclose(matched(table, method="sinkhorn"), [0.402, 0.383], atol=1e-3)


@exact
def two_levels() -> None:
    """Three episodes whose totals and returns differ in order: half of each of the two formulas, in plain NumPy."""
    paid = np.array([[1.0, 0.5, 1.0], [1.0, 0.0, 0.0], [0.0, 1.0, 1.0]])
    episode, turn = (axis.ravel() for axis in np.indices(paid.shape))
    keys = {"group": episode * 0, "episode": episode, "turn": turn, "agent": ["a"] * 9, "reward": paid.ravel()}
    to_go = np.stack([paid[:, k:] @ 0.9 ** np.arange(3 - k) for k in range(3)], axis=1)
    whole = paid.sum(axis=1, keepdims=True)
    levels = [(x - x.mean(axis=0)) / (x.std(axis=0, ddof=1) + 1e-6) for x in (whole, to_go)]
    found = np.asarray(matchtir().evaluate(Turns(keys)))
    np.testing.assert_allclose(found, (levels[0] + levels[1]).ravel() / 2, atol=1e-9)
    most_of_episodes = np.asarray(matchtir(weight=0.75).evaluate(Turns(keys)))
    np.testing.assert_allclose(most_of_episodes, (0.75 * levels[0] + 0.25 * levels[1]).ravel(), atol=1e-9)


@exact
def played_calls() -> None:
    """In the world of calls the outcome is 1 exactly where the matching pays every turn."""
    team = Team(caller=TabularPolicy(3, name="caller"))
    turns = rollout(lambda: Calls(tools=3, needed=2), team, groups=1, group_size=32)
    found = (
        turns.with_column(paid=match_reward("calls", "gold")).frame.group_by("episode").agg(pl.sum("paid", "reward"))
    )
    np.testing.assert_array_equal(found["paid"] == 2, found["reward"] == 1)
    assert found["reward"].n_unique() == 2


@reproduction(
    97,
    claim="Paying each call for what it is matched with lets a policy learn a task that needs all of its calls.",
    baseline="GRPO on the outcome alone; GRPO on the sum of matched rewards is reported",
    criterion="success at the end >= 0.6 with matched calls and both "
    "levels of credit, <= 0.2 for the outcome alone, means over the seeds; should hold in 9 of 10 blocks of four",
    seeds=(0, 1, 2, 3),
    slow=True,
)
def measure(seeds: Sequence[int]) -> Outcome:
    """Trained as by `palaestra train world env.make=roles/calls … credit="matchtir()"`."""
    arms = train_arms(
        "world",
        {
            "matched": SETTING | {"reward": MATCHED, "credit": "matchtir()"},
            "matched_sum": SETTING | {"reward": MATCHED, "credit": "grpo()"},
            "outcome": SETTING | {"credit": "grpo()"},
        },
        seeds,
        lambda learned: {"success": np.mean(learned.curve()[-10:])},
    )
    holds = arms.mean("matched", "success") >= 0.6 and arms.mean("outcome", "success") <= 0.2
    return Outcome(arms.measured(), holds)
