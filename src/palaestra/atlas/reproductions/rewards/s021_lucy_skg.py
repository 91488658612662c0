"""[21] Lucy-SKG (arXiv 2305.15801): components multiplied, not added, so that none can be farmed alone.

A bandit of 25 arms that trade one skill for the other along a curve on which the sum is highest at both ends. Worked
numbers of the combination, the distance and the mixing in teams. Left out: Rocket League, the auxiliary heads (they
are in `learning.auxiliary`).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from palaestra.algebra.signals import Signal
from palaestra.algebra.turns import Turns
from palaestra.atlas.harness import Outcome, reproduction
from palaestra.atlas.reproductions.tabular import policy_gradient, sample, softmax, uniform
from palaestra.credit import centre, team
from palaestra.rewards import closeness, krc, team_mix, weighted

ARMS, CURVE, NOISE = 25, 1.2, 0.02
SKILLS = np.stack([np.linspace(0, 1, ARMS) ** CURVE, np.linspace(1, 0, ARMS) ** CURVE])
GROUP, ITERATIONS, RATE, ENOUGH = 32, 400, 5.0, 0.4
REWARDS: dict[str, Signal] = {"sum": weighted(first=0.5, second=0.5), "krc": krc("r_first", "r_second")}


def worked_error() -> float:
    """KRC, distances and the mixture of two teams of two."""
    pairs = Turns({"a": [0.9, -0.9, 0.9], "b": [0.1, -0.1, -0.1]})
    three = Turns({"a": [0.8], "b": [0.8], "c": [0.0]})
    far = Turns({"distance": [2300.0]})
    players = {"episode": [0] * 4, "turn": [0] * 4, "agent": ["blue_0", "blue_1", "orange_0", "orange_1"]}
    four = Turns(players | {"reward": [1.0, 0.0, 0.0, 0.5]})
    cases: list[tuple[Signal, Turns, list[float]]] = [
        (krc("a", "b"), pairs, [0.3, -0.3, -0.3]),
        (krc("a", "b", "c"), three, [0.0]),
        (closeness("distance", scale=2300), far, [0.6065]),
        (closeness("distance", scale=2300, dispersion=0.5, density=0.5), far, [0.1353]),
        (team_mix(tau=0.3, teams=team()), four, [0.6, -0.1, -0.425, -0.075]),
    ]
    return float(max(np.abs(np.asarray(signal.evaluate(turns)) - goal).max() for signal, turns, goal in cases))


def share_of_both(reward: Signal, seeds: Sequence[int]) -> np.ndarray:
    """Share of the last outcomes with enough of both skills, one per seed."""
    streams = [np.random.default_rng(seed) for seed in seeds]
    theta = np.zeros((len(seeds), 1, ARMS))
    run, episode = (axis.ravel() for axis in np.indices((len(seeds), GROUP)))
    shares = []
    for _ in range(ITERATIONS):
        policy = softmax(theta)
        arm = sample(policy, uniform(streams, GROUP)).ravel()
        skill = np.stack([s.normal(0, NOISE, (2, GROUP)) for s in streams], axis=1).reshape(2, -1) + SKILLS[:, arm]
        skill = np.clip(skill, -1, 1)
        turns = Turns(
            {"run": run.astype(str), "group": run * 0, "episode": episode, "r_first": skill[0], "r_second": skill[1]}
        )
        advantage = np.asarray(centre(reward, over=()).evaluate(turns))
        theta += RATE * policy_gradient(policy, run, run * 0, arm, advantage) / GROUP
        shares.append((skill > ENOUGH).all(axis=0).reshape(len(seeds), GROUP).mean(axis=1))
    return np.asarray(np.mean(shares[-50:], axis=0))


@reproduction(
    21,
    claim="A weighted sum is farmed by one component alone; the geometric mean with a sign asks for all of them.",
    baseline="the weighted sum of the same components",
    criterion="worked numbers equal to 4 decimals; share of outcomes with both skills above .4 below .01 in every run "
    "of the sum, above .3 in every run of KRC",
    seeds=(0, 1, 2, 3, 4),
)
def measure(seeds: Sequence[int]) -> Outcome:
    """Worked numbers, then both rewards on the bandit."""
    measured = {"worked_error": worked_error()}
    found = {name: share_of_both(reward, seeds) for name, reward in REWARDS.items()}
    for name, share in found.items():
        measured |= {f"share_{name}": float(share.mean()), f"lowest_{name}": float(share.min())}
    holds = measured["worked_error"] <= 1e-4 and found["sum"].max() < 0.01 and found["krc"].min() > 0.3
    return Outcome(measured, bool(holds))
