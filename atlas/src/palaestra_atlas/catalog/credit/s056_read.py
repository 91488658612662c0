"""[56] ReAd (arXiv 2405.14314): proposals that are scored by a learned advantage need fewer steps than feasible ones.

Workers clear sites; those that go to the same site in one turn block each other. Who proposes knows nothing and goes
anywhere. Physical checking asks again if another worker already goes there. The prefix critic, fitted to logged random
play, scores a proposal by what it adds to the joint action. Left out: language models, kitchens, robots.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import polars as pl

from palaestra.agents import ScriptedPolicy, Team, fixed, random_legal
from palaestra.agents.policy import Request
from palaestra.algebra.turns import Turns
from palaestra.credit import PrefixCritic, refine, sequential_advantage
from palaestra.envs import make
from palaestra.learning.stages.prefix_critic import prefix_critic
from palaestra.learning.stages.stage import Context
from palaestra.play.executors import Local
from palaestra.play.rollout import rollout
from palaestra.runs.inline import learn
from palaestra.teams import advantage_feedback
from palaestra_atlas.reproductions import Outcome, exact, reproduction

Q = np.array([[8.0, 2.0], [4.0, 6.0]])
JOINT = [(i, j) for i in (0, 1) for j in (0, 1)]
WORKERS, SITES, LOGGED, THRESHOLD = 2, 4, 2500, -0.01


def plays(values: Sequence[float]) -> Turns:
    """Two agents of two actions each, who act at once; every joint action once, with what the team then earns."""
    keys = {"group": [0] * 8, "episode": np.repeat(range(4), 2), "turn": [0] * 8, "agent": ["x", "y"] * 4}
    facts = {"state": [7] * 8, "action": [str(action) for pair in JOINT for action in pair]}
    return Turns(keys | facts | {"reward": np.repeat(np.array(values) / 2, 2)})


@exact
def worked_advantages() -> None:
    """The card's Q: nothing is gained by the first agent, 3 or 1 by the second; the sum is Q - V."""
    critic = PrefixCritic().fit([0] * 4, JOINT, Q.ravel().tolist())
    first = np.array([critic.advantage(0, (i,)) for i in (0, 1)])
    second = np.array([[critic.advantage(0, (i, j)) for j in (0, 1)] for i in (0, 1)])
    np.testing.assert_allclose(first, 0.0, atol=1e-9)
    np.testing.assert_allclose(second, [[3, -3], [-1, 1]], atol=1e-9)
    np.testing.assert_allclose(first[:, None] + second, Q - 5, atol=1e-9)


@exact
def credit_of_each() -> None:
    """In a run: the first agent's value leaves open what the second does, each is credited what it adds to V = 4."""
    stage, context = (
        prefix_critic(),
        Context(np.random.default_rng(0), 1, make("native/sites"), Team(x=fixed(0)), Local()),
    )
    table = plays([8.0, 4.0, 2.0, 2.0])
    stage(table, context)
    turns = stage(table, context)
    np.testing.assert_allclose(turns["prefix_value"], [6, 8, 6, 4, 2, 2, 2, 2], atol=1e-9)
    np.testing.assert_allclose(
        np.asarray(sequential_advantage().evaluate(turns)), [2, 2, 2, -2, -2, 0, -2, 0], atol=1e-9
    )


@exact
def proposals() -> None:
    """Planners as functions: a proposal of advantage -3 is sent back with its score; jointly, the whole plan is."""
    critic = PrefixCritic().fit([0] * 4, JOINT, Q.ravel().tolist())
    heard: list[str | None] = []

    def propose(decided: list[int], feedback: str | None) -> int:
        heard.append(feedback)
        return 0 if feedback or not decided else 1

    found = refine(propose, lambda decided, plan: critic.advantage(0, (*decided, plan)), agents=2)
    assert found == ([0, 0], 3)
    assert heard[:2] == [None, None]
    assert "expected advantage of -3.000, below 0.000" in str(heard[2])
    tries = iter([(0, 1), (0, 0)])
    joint = refine(lambda _, __: next(tries), lambda _, plan: Q[plan] - 5.0, agents=2, order="joint")
    assert joint == ([(0, 0)], 2)


@exact
def sent_back() -> None:
    """In an env: a worker who would go where another one goes reads the score and goes elsewhere; it alone is asked."""
    env = make("native/sites", workers=WORKERS, sites=SITES)
    key = env().reset(0)["worker_0"].key()
    pairs = [(i, j) for i in range(SITES) for j in range(SITES)]
    keys = {
        "group": [0] * 32,
        "episode": np.repeat(range(16), 2),
        "turn": [0] * 32,
        "agent": ["worker_0", "worker_1"] * 16,
    }
    facts = {"state": np.full(32, key, np.uint64), "action": [f"site {site}" for pair in pairs for site in pair]}
    table = Turns(keys | facts | {"reward": np.repeat([-float(i == j) for i, j in pairs], 2)})

    def stubborn(request: Request) -> str:
        return "site 1" if "expected advantage of -" in request.observation.text else "site 0"

    team = Team(worker_0=fixed("site 0"), worker_1=ScriptedPolicy(stubborn, name="second"))
    for refined in (advantage_feedback(env, table, threshold=THRESHOLD), advantage_feedback(env)):
        turns = rollout(refined, team, groups=1).frame.filter(pl.col("round") == 0)
        said = [("worker_0", "site 0"), ("worker_1", "site 0"), ("worker_1", "site 1")]
        assert turns.select("agent", "action").rows() == said
        assert turns["accepted"].to_list() == [True, False, True]


@exact
def as_a_recipe() -> None:
    """Played by a recipe in which nobody learns, the workers never go to one site together."""
    played: list[Turns] = []
    workflow = "advantage_feedback(max_queries=50)"
    few = {
        "env": {"make": "native/sites", "options": {"workers": WORKERS, "sites": SITES}, "workflow": workflow},
        "policies": {"table": {"kind": "random", "options": {}}},
        "learn": {"kind": "play"},
        "train": {"iterations": 1, "groups": 1, "group_size": 4},
    }
    learn("world", few, on_turns=lambda iteration, turns: played.append(turns))
    accepted = played[0].frame.filter("accepted").group_by("episode", "round").agg(pl.col("action").n_unique())
    assert (accepted["action"] == WORKERS).all()


def team() -> Team:
    """Workers who go anywhere."""
    return Team({f"worker_{number}": random_legal(name=f"random_{number}") for number in range(WORKERS)})


def logged(seed: int) -> Turns:
    """Turns of random play."""
    return rollout(make("native/sites", workers=WORKERS, sites=SITES), team(), groups=LOGGED, seed=seed)


def write_logged(seed: int, directory: Path) -> None:
    """The file that the line reads."""
    logged(seed).save(directory / "logged.parquet")


@reproduction(
    56,
    claim="A planner whose proposals are scored by a sequential advantage finishes in fewer steps for as many queries.",
    baseline="physical checking, which asks again until the workers go to different sites",
    criterion="turns at most 0.6 of checking's, queries at most 1.2 of them",
    seeds=(0, 1, 2),
    slow=True,
)
def measure(seeds: Sequence[int]) -> Outcome:
    """Fit the critic to logged play, then 60 episodes of each kind per seed."""
    env = make("native/sites", workers=WORKERS, sites=SITES)
    found: dict[str, list[float]] = {}
    for seed in seeds:
        for kind, table in (("checked", None), ("read", logged(seed))):
            played = rollout(
                advantage_feedback(env, table, threshold=THRESHOLD), team(), groups=60, seed=seed + 500
            ).frame
            ends = played.group_by("group", "episode").agg(pl.col("round").max() + 1, queries=pl.len())
            for name in ("round", "queries"):
                found.setdefault(f"{name}_{kind}", []).append(float(ends[name].mean()))  # type: ignore[arg-type]
    at = {name: float(np.mean(values)) for name, values in found.items()}
    fewer, cheap = at["round_read"] <= 0.6 * at["round_checked"], at["queries_read"] <= 1.2 * at["queries_checked"]
    return Outcome(at, fewer and cheap)
