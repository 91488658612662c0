"""[89] ArCHer (arXiv 2402.19446): a critic of turns that learns from replay, and an actor at replayed states.

The recipe `corridor`: fetch the key at one end, open the door at the other. The stage `q_critic()` keeps the last 8000
turns, fits two Q and two V, and adds replayed states with newly sampled actions, which alone train by `archer()`.
Replay pays where an iteration has few episodes; in longer corridors with larger groups little difference was seen. Left
out: trained text encoders.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from palaestra import envs
from palaestra.agents import TabularPolicy, Team
from palaestra.algebra.signals import evaluate
from palaestra.algebra.turns import Ragged, Turns
from palaestra.credit import Replay, TurnCritic, archer
from palaestra.credit.critics import Fresh
from palaestra.learning.critics import NetworkCritic
from palaestra.learning.stages import Context
from palaestra.learning.stages.critic import token_critic
from palaestra.learning.stages.q_critic import q_critic
from palaestra.play.executors import Local
from palaestra_atlas.reproductions import Outcome, exact, reproduction, train_arms

ARMS: dict[str, Any] = {"archer": {"stages": ["q_critic()"], "credit": "archer()"}, "grpo": {"credit": "grpo()"}}
GAMMA = 0.9


def chain(*rows: tuple[int, int, int, float]) -> Turns:
    """One-action turns of a walker, each (episode, state, action, reward), numbered within their episodes."""
    episode, state, action, reward = zip(*rows, strict=True)
    turn = [episode[:row].count(each) for row, each in enumerate(episode)]
    keys = {"iteration": [1] * len(rows), "group": [0] * len(rows), "episode": episode, "turn": turn}
    who = {"agent": ["walker"] * len(rows), "policy": ["walker"] * len(rows), "truncated": [False] * len(rows)}
    what = {"state": np.array(state, np.uint64), "action": [f"do {each}" for each in action], "reward": reward}
    return Turns(keys | who | what | {"action_ids": [[each] for each in action], "prompt_ids": [None] * len(rows)})


OFF_POLICY = ((0, 1, 1, 0.0), (0, 2, 0, 0.0), (1, 2, 1, 1.0))
"""From state 1 on to state 2, where action 0 ends with nothing and action 1 with 1; played by somebody who errs."""


def around(seed: int = 0) -> Context:
    """A walker who by now does 1 wherever it is."""
    policy = TabularPolicy(2, name="walker")
    policy.meet(chain((0, 1, 0, 0.0), (0, 2, 0, 0.0), (0, 3, 0, 0.0)).frame)
    policy.module.get_parameter("logits").data[:, 1] = 50.0
    return Context(np.random.default_rng(seed), 1, envs.make("native/corridor"), Team({"walker": policy}), Local())


@exact
def off_policy_values() -> None:
    """Bellman's solution for today's policy from somebody else's play, by the stage: Q = V = 1 and .9, credit 0."""
    fresh = q_critic(states=64, batches=300)(chain(*OFF_POLICY), around()).frame.filter("fresh")
    assert fresh["action_ids"].list.first().to_list() == [1] * 64
    expected = np.where(fresh["state"] == 1, GAMMA, 1.0)
    np.testing.assert_allclose(fresh["q"], expected, atol=1e-3)
    np.testing.assert_allclose(fresh["v"], expected, atol=1e-3)
    np.testing.assert_allclose(np.asarray(archer().evaluate(Turns(fresh))), 0, atol=2e-3)


@exact
def replay_of_all() -> None:
    """In the second iteration the critic and the actor still learn from the first: its states, its rewards."""
    context, stage = around(), q_critic(states=64, batches=1, rate=0.5)
    stage(chain((0, 2, 1, 1.0)), context)
    first = float(stage.table.q[0].max())
    fresh = stage(chain((0, 3, 1, 0.0)), context).frame.filter("fresh")
    np.testing.assert_allclose([first, float(stage.table.q[0].max())], [0.5, 0.75])
    assert set(fresh["state"]) == {2, 3}


@exact
def smaller_heads() -> None:
    """Heads Q (1, .6) and V (.5, .7): the credit is .6 - .5, with tables and with networks."""
    table = TurnCritic(1, 1)
    table.q[:, 0, 0], table.v[:, 0] = (1.0, 0.6), (0.5, 0.7)
    networks = NetworkCritic(1, 1, hidden=())
    for heads, values in ((networks.q, (1.0, 0.6)), (networks.v, (0.5, 0.7))):
        for head, value in zip(heads, values, strict=True):
            for parameter in head.parameters():
                parameter.data[:] = value if parameter.ndim == 1 else 0.0
    for critic, place in ((table, np.zeros(1, int)), (networks, np.zeros((1, 1)))):
        q, v = critic.values(place, place)  # type: ignore[attr-defined]
        np.testing.assert_allclose(np.asarray(archer().evaluate(Turns({"q": q, "v": v}))), 0.1, atol=1e-9)


@exact
def slow_targets() -> None:
    """One transition that ends with 1, rate 1: after a batch its target stands at .1; V reads the target before it."""
    replay = Replay(*(np.full(1, value) for value in (0, 0, 1.0, 0, 1)))
    critic = TurnCritic(1, 1, rate=1.0)
    for target, value, slow in ((0.1, 0.0, 0.0), (0.19, 0.1, 0.01), (0.271, 0.19, 0.028)):
        critic.fit(replay, Fresh(np.zeros(1, int), np.zeros(1, int)), np.random.default_rng(0), batches=1, size=4)
        found = [critic.q[0, 0, 0], critic.q_target[0, 0, 0], critic.v[0, 0], critic.v_target[0, 0]]
        np.testing.assert_allclose(found, [1.0, target, value, slow], atol=1e-9)


@exact
def token_baseline() -> None:
    """Two prompts whose turns are worth 1 and -1: a baseline of the stage takes most of the tokens' variance."""
    rows = 8
    keys = {"iteration": [1] * rows, "group": [0] * rows, "episode": range(rows), "turn": [0] * rows}
    who = {"agent": ["a"] * rows, "policy": ["p"] * rows, "truncated": [False] * rows}
    words = {"prompt_ids": [[1], [2]] * 4, "action_ids": [[3, 4, 5]] * rows}
    turns = Turns(keys | who | words | {"q": [1.5, -0.5] * 4, "v": [0.5] * rows})
    stage, context = token_critic(reward="col('q') - col('v')", buckets=8, lr=0.02, steps=100), around()
    stage(turns, context)
    found = stage(turns, context)
    (tokens,) = evaluate(found, archer(baseline="value"))
    assert isinstance(tokens, Ragged)
    credit = tokens.values.reshape(rows, 3)
    np.testing.assert_allclose(credit, np.tile([[1.0], [-1.0]], (4, 3)) - found["value"].to_list(), atol=1e-9)
    assert np.mean(credit**2) < 0.1


@reproduction(
    89,
    claim="Actor-critic over replayed turns with fresh actions learns "
    "a sparse task sooner than group-relative returns.",
    baseline="GRPO, same episodes per iteration and learning rate",
    criterion="mean success over training higher than GRPO's by > 2 standard errors of the difference, paired by seed",
    seeds=tuple(range(3000, 3008)),
    slow=True,
)
def measure(seeds: Sequence[int]) -> Outcome:
    """Both arms in a corridor of five cells, four episodes per iteration."""
    settings: dict[str, Any] = {
        "env": {"options": {"cells": 5, "horizon": 12}},
        "train": {"iterations": 40, "group_size": 4},
    }
    arms = train_arms(
        "corridor",
        {name: settings | arm for name, arm in ARMS.items()},
        seeds,
        lambda learned: {"curve": float(np.mean(learned.curve()))},
    )
    gain, error = arms.gain("archer", "grpo", "curve")
    measured = arms.measured()
    measured |= {"gain": gain, "standard_error": error}
    return Outcome(measured, gain > 2 * error)
