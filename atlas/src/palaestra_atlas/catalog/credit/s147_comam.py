"""[147] CoMAM (arXiv 2603.12631): an agent takes part in the team's reward as far as its own reward agrees with it.

Three agents act in turn, each seeing what the one before did: construct, profile, retrieve. Each choice has a quality
and the team succeeds with the product of the three. The profiler's local reward pays a little for the opposite
of quality. The
outcome alone is reported: nothing is gained here by local rewards. Left out: language models and their memory.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import polars as pl

from palaestra.agents import ScriptedPolicy, Team
from palaestra.algebra.turns import Turns
from palaestra.credit import comam, comam_reward, ndcg
from palaestra.envs.worlds.memory_team import MemoryTeam
from palaestra.play.rollout import rollout
from palaestra_atlas.reproductions import Outcome, exact, reproduction, train_arms

SETTING = {
    "env": {"make": "native/memory_team", "options": {"local": 0.05}},
    "learn": {"lr": 0.2},
    "train": {"iterations": 60, "groups": 1, "group_size": 16},
}


def four() -> Turns:
    """Four episodes of two agents: a's own reward ranks them as the outcome does, b's the other way round."""
    local = [0.9, 0.6, 0.1, 0.3, 0.1, 0.2, 0.9, 0.8]
    keys = {"group": [0] * 8, "episode": [0, 1, 2, 3] * 2, "turn": [0] * 8, "agent": ["a"] * 4 + ["b"] * 4}
    outcomes = {"outcome": [1, 0.5, 0, 0.25] * 2, "same": [0.7] * 8, "none": [0.0] * 8}
    return Turns(keys | outcomes | {"reward": local})


@exact
def agreement() -> None:
    """NDCG of the outcome in the order of the own reward: 1 and .5820; 1 for everybody if outcomes are all the same."""
    over, unit = ("group", "agent"), ("episode", "agent")
    found = [ndcg("reward", each, over=over, unit=unit).evaluate(four()) for each in ("outcome", "same", "none")]
    np.testing.assert_allclose(np.asarray(found[0])[[0, 4]], [1.0, 0.5820], atol=5e-5)
    np.testing.assert_allclose(np.asarray(found[1:], float), 1.0)


@exact
def who_is_ranked() -> None:
    """An episode counts once, as its mean over turns; without an outcome, or an own reward, it is in neither sum.

    Own rewards 1 and 2 put outcomes .5 and 1 in the right order. The sums over three turns would not, nor would the
    episode of own reward 9 that has no outcome.
    """
    keys = {"group": [0] * 6, "episode": [0, 0, 0, 1, 2, 3], "turn": [0, 1, 2, 0, 0, 0], "agent": ["a"] * 6}
    turns = Turns(keys | {"own": [1.0, 1, 1, 2, 9, None], "whole": [0.5, 0.5, 0.5, 1, None, 1]})
    np.testing.assert_allclose(np.asarray(ndcg("own", "whole").evaluate(turns)), 1.0, atol=1e-12)


@exact
def integrated() -> None:
    """Own reward plus .6321 or .3679 of the outcome; half of it each where all outcomes are the same."""
    found = np.asarray(comam_reward(outcome="outcome").evaluate(four()))
    np.testing.assert_allclose(found[:4], [1.5321, 0.9161, 0.1, 0.4580], atol=1e-4)
    np.testing.assert_allclose(found[4:], [0.4679, 0.3839, 0.9, 0.8920], atol=1e-4)
    even = np.asarray(comam_reward(outcome="same").evaluate(four()))
    np.testing.assert_allclose(even - four()["reward"].to_numpy(), 0.35, atol=1e-9)


@exact
def own_weights() -> None:
    """Agreement is weighed against that of the same group's agents; two groups of three and two episodes.

    Outcomes 1, 0, 0: whom the own reward ranks second earns 1/log2(3) = .6309, last .5. Turns add up: a's rewards
    are 1 and 2 of one episode, 1 and 1 of the others.
    """
    worth = np.array([1.0, 0.0, 0.0, 1.0, 0.0])
    rows = [
        (0, 0, "a", 0, 1),
        (0, 0, "a", 1, 2),
        (0, 1, "a", 0, 1),
        (0, 2, "a", 0, 1),
        (0, 0, "b", 0, 1),
        (0, 1, "b", 0, 5),
    ]
    rows += [(0, 2, "b", 0, 0), (1, 3, "a", 0, 0), (1, 4, "a", 0, 1), (1, 3, "b", 0, 2), (1, 4, "b", 0, 1)]  # fmt: skip
    group, episode, agent, turn, reward = (list(each) for each in zip(*rows, strict=True))
    keys = {"group": group, "episode": episode, "agent": agent, "turn": turn, "reward": reward}
    found = np.asarray(comam_reward().evaluate(Turns(keys | {"success": worth[episode]})))
    second = 1 / np.log2(3)  # of two ranks in group 1, and of b in group 0; a ranks group 0 rightly
    first = {(0, "a"): 1 / (1 + second), (0, "b"): second / (1 + second)}
    weights = first | {(1, "a"): second / (1 + second), (1, "b"): 1 / (1 + second)}
    own = [3, 3, 1, 1, 1, 5, 0, 0, 1, 2, 1]
    expected = [mine + weights[g, a] * worth[e] for mine, g, a, e in zip(own, group, agent, episode, strict=True)]
    np.testing.assert_allclose(found, expected, atol=1e-12)
    renamed = Turns(keys | {"success": worth[episode], "mine": [float(each) for each in own], "reward": [0.0] * 11})
    credit = np.asarray(comam("mine").evaluate(renamed))
    for key in set(zip(group, agent, strict=True)):
        rows_of = [place for place, pair in enumerate(zip(group, agent, strict=True)) if pair == key]
        once = np.array(list({episode[place]: expected[place] for place in rows_of}.values()))  # a sample an episode
        by_hand = (np.array(expected)[rows_of] - once.mean()) / (once.std(ddof=1) + 1e-6)
        np.testing.assert_allclose(credit[rows_of], by_hand, atol=1e-9)


@exact
def own_group() -> None:
    """Each agent is compared with itself: its credit has mean 0 and deviation 1 over the group's episodes."""
    credit = np.asarray(comam(outcome="outcome").evaluate(four())).reshape(2, 4)
    np.testing.assert_allclose(credit.mean(axis=1), 0, atol=1e-9)
    np.testing.assert_allclose(credit.std(axis=1, ddof=1), 1, atol=1e-4)
    reward = np.asarray(comam_reward(outcome="outcome").evaluate(four())).reshape(2, 4)
    expected = (reward - reward.mean(axis=1, keepdims=True)) / reward.std(axis=1, ddof=1, keepdims=True)
    np.testing.assert_allclose(credit, expected, atol=1e-4)


@exact
def later_sees_earlier() -> None:
    """Profiler and retriever who do what the one before did reach its quality, which they learn from their state."""

    def follow(request: Any) -> str:
        got = re.findall(r"got (.*)", request.observation.text)
        return got[0] if got else f"quality {request.rng.choice([0.1, 0.4, 0.7, 1.0]):g}"

    policy = ScriptedPolicy(follow, name="all")
    turns = rollout(MemoryTeam, Team(dict.fromkeys(MemoryTeam.agents, policy)), groups=12, group_size=2)
    found = turns.frame.group_by("group", "episode").agg(pl.col("quality"))["quality"].to_list()
    assert all(len(set(each)) == 1 for each in found)
    assert len({each[0] for each in found}) == 4


@reproduction(
    147,
    claim="Adding the team's outcome in proportion to rank agreement keeps an agent whose local reward points the "
    "wrong way from ruining the team.",
    baseline="each agent trained on its local reward alone; the outcome alone for all is reported",
    criterion="success at the end higher by >= 0.2 in every seed; should hold in 9 of 10 blocks of five fresh seeds",
    seeds=(0, 1, 2, 3, 4),
    slow=True,
)
def measure(seeds: Sequence[int]) -> Outcome:
    """Trained as by `palaestra train world env.make=native/memory_team credit="comam()"`."""
    arms = train_arms(
        "world",
        {
            "comam": SETTING | {"credit": "comam()"},
            "local": SETTING | {"credit": 'standardise(agent_return(), over=("group", "agent"), unit="episode")'},
            "outcome": SETTING | {"credit": 'grpo("success")'},
        },
        seeds,
        lambda learned: {"success": np.mean(learned.curve()[-15:])},
    )
    gain = arms.values["comam"]["success"] - arms.values["local"]["success"]
    return Outcome(arms.measured(), bool((gain >= 0.2).all()))
