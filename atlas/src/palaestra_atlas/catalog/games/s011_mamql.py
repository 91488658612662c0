"""[11] MAMQL (arXiv 2503.04679): rewards and policies of a team from demonstrations, with marginal critics.

Tables on a game of gems in which experts never choose the same one. Left out: networks, Overcooked and Highway-Env, and
the constraints of the paper's regression of rewards, which are not known.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import polars as pl

from palaestra.agents import TabularPolicy, Team
from palaestra.agents.joint import JointPolicy
from palaestra.algebra.turns import Turns
from palaestra.envs.worlds import Gems
from palaestra.envs.worlds.exact.joint_soft import gem_expert
from palaestra.learning.inverse_soft_q import InverseSoftQ
from palaestra.learning.soft_critics import JointSteps, SoftCritics, boltzmann, marginal
from palaestra.learning.stages import Context
from palaestra.learning.stages.recovered_reward import recovered_reward
from palaestra.play.rollout import rollout
from palaestra_atlas.reproductions import Outcome, exact, reproduction

SEATS = Gems().agents


def shown(seed: int, episodes: int = 100) -> Turns:
    """Play of the expert team."""
    experts = JointPolicy(gem_expert(Gems()), SEATS)
    return rollout(Gems, Team(dict.fromkeys(SEATS, experts)), groups=episodes, seed=seed)


def plain() -> dict[str, Any]:
    """The recipe: every seat learns from the experts' turns, which have no rewards."""
    return {
        "name": "gems",
        "env": {"make": "native/gems"},
        "policies": {"first": {"kind": "tabular"}, "second": {"kind": "tabular"}},
        "team": dict(zip(SEATS, ("first", "second"), strict=True)),
        "stages": ["recovered_reward()"],
        "credit": "reward",
        "learn": {"kind": "inverse_soft_q", "options": {"expert": "expert.parquet", "online": 0.3}},
        "train": {"iterations": 15, "groups": 16, "group_size": 1, "evaluate_every": 15, "checkpoint_every": 15},
        "evaluation": {"tasks": 16, "trials": 20, "look_tasks": 2, "look_trials": 1},
    }


def recipe(seed: int, folder: Path) -> None:
    """Writes `gems.yaml` and the experts' turns, `expert.parquet`."""
    shown(seed).frame.drop("reward", "total", "success").write_parquet(folder / "expert.parquet")
    (folder / "gems.yaml").write_text(json.dumps(plain()))


def one_state(shares: Sequence[float], alpha: float | None = 1.0) -> tuple[np.ndarray, np.ndarray]:
    """Critic and policy of one agent in one state that experts act in with these shares of tenths."""
    critics = SoftCritics([2], kind="joint", gamma=0.0, alpha=alpha, sharpness=1.0)
    critics.grow(1)
    went = np.repeat([0, 1], np.round(np.array(shares) * 10).astype(int))[:, None]
    nothing = np.zeros(10, np.int64)
    policies, _ = critics.fit(JointSteps(nothing, went, nothing, np.ones(10, bool)), None, online=0.0, rate=0.2,
                              steps=600)  # fmt: skip
    return critics.q[0][0], policies[0][0]


@exact
def worked_optimum() -> None:
    """One state, γ = 0, α = 1: experts (.8, .2) give Q = (.1921, -.7682) and a policy that is softer than they are."""
    q, policy = one_state((0.8, 0.2))
    np.testing.assert_allclose(q, [0.1921, -0.7682], atol=1e-4)
    np.testing.assert_allclose(policy, [0.7232, 0.2768], atol=1e-4)
    np.testing.assert_allclose(one_state((0.6, 0.4))[0], [0.1086, -0.1628], atol=1e-4)
    np.testing.assert_allclose(one_state((0.8, 0.2), alpha=None)[1], [0.8, 0.2], atol=1e-3)


@exact
def worked_marginal() -> None:
    """Q = [[4, 0], [0, 2]] and the other one's (.75, .25) give Q̄ = (3, .5), and the policy (.9241, .0759)."""
    other = np.array([[0.75, 0.25]])
    q = np.array([[[4.0, 0.0], [0.0, 2.0]]])
    assert marginal(q, [np.ones((1, 2)), other], 0).tolist() == [[3.0, 0.5]]
    np.testing.assert_allclose(boltzmann(np.array([[3.0, 0.5]]), 1.0)[1], [[0.9241, 0.0759]], atol=1e-4)
    critics = SoftCritics([2, 2], kind="joint", gamma=0.0, alpha=1.0, sharpness=1.0)
    critics.grow(1)
    critics.q[0] = q
    critics.q[1][0, :, 0] = np.log(3)  # the second agent plays (.75, .25)
    np.testing.assert_allclose(critics.marginals(0, critics.policies()), [[3.0, 0.5]])
    rng = np.random.default_rng(0)
    joint, chances = rng.normal(size=(2, 2, 3, 4)), [rng.dirichlet(np.ones(size), 2) for size in (2, 3, 4)]
    np.testing.assert_allclose(marginal(joint, chances, 1), np.einsum("sabc,sa,sc->sb", joint, chances[0], chances[2]))


def drawn(rng: np.random.Generator) -> JointSteps:
    """Thirty random steps of two agents between three states; some are the last ones."""
    here, there = rng.integers(3, size=(2, 30))
    return JointSteps(here, rng.integers(2, size=(30, 2)), there, rng.random(30) < 0.3)


def objective(q: np.ndarray, expert: JointSteps, own: JointSteps, other: np.ndarray) -> float:
    """The first agent's objective of two, written out: γ .9, α 1, λ 2, and three tenths of the states are their own."""
    value = np.log(np.exp(2 * (q * other[:, None]).sum(2)).sum(1)) / 2
    ahead, followed = (0.9 * np.where(rows.over, 0.0, value[rows.there]) for rows in (expert, own))
    x = q[expert.here, expert.went[:, 0], expert.went[:, 1]] - ahead
    states = 0.7 * (value[expert.here] - ahead).mean() + 0.3 * (value[own.here] - followed).mean()
    return float((x - x**2 / 4).mean() - states)


@exact
def steps_climb_the_objective() -> None:
    """A step of the first agent is its objective's derivative, with γ .9 and next states, the others as they are."""
    rng = np.random.default_rng(0)
    expert, own = drawn(rng), drawn(rng)
    critics = SoftCritics([2, 2], kind="joint", gamma=0.9, alpha=1.0, sharpness=2.0)
    critics.grow(3)
    critics.q = [rng.normal(size=(3, 2, 2)) for _ in range(2)]
    before, other = critics.q[0].copy(), critics.policies()[1]
    _, said = critics.fit(expert, own, online=0.3, rate=1e-6, steps=1)
    np.testing.assert_allclose(said[0], objective(before, expert, own, other))
    share = (0.7 * np.bincount(expert.here, minlength=3) + 0.3 * np.bincount(own.here, minlength=3)) / 30
    moved = (critics.q[0] - before) / 1e-6 * share[:, None, None]
    slopes = np.zeros_like(before)
    for place in np.ndindex(before.shape):
        nudge = np.zeros_like(before)
        nudge[place] = 1e-5
        up, down = (objective(before + sign * nudge, expert, own, other) for sign in (1, -1))
        slopes[place] = (up - down) / 2e-5
    np.testing.assert_allclose(moved, slopes, atol=1e-5)


@exact
def each_answers_the_newest_policies() -> None:
    """Experts split two gems; so do the agents, and each one's policy is the answer to the other's last one."""
    critics = SoftCritics([2, 2], kind="joint", gamma=0.0, alpha=4.0, sharpness=4.0)
    critics.grow(1)
    went = np.array([[0, 1]] * 10 + [[1, 0]] * 9 + [[0, 0]])
    nothing = np.zeros(20, np.int64)
    found, _ = critics.fit(
        JointSteps(nothing, went, nothing, np.ones(20, bool)), None, online=0.0, rate=0.08, steps=800
    )
    clash = float((found[0][0] * found[1][0]).sum())
    assert clash < 0.15, clash
    answer = boltzmann(marginal(critics.q[1], found, 1), 4.0)[1]
    np.testing.assert_allclose(found[1], answer, atol=1e-9)


@exact
def as_carded_nothing_is_gained() -> None:
    """With the residual of the marginal itself the optimum is that of agents who ignore each other."""
    rng = np.random.default_rng(1)
    rows = JointSteps(
        rng.integers(2, size=40), rng.integers(2, size=(40, 2)), rng.integers(2, size=40), rng.random(40) < 0.3
    )
    found = {}
    for kind in ("marginal", "independent"):
        critics = SoftCritics([2, 2], kind=kind, gamma=0.9, alpha=1.0, sharpness=1.0)
        critics.grow(2)
        found[kind] = critics.fit(rows, None, online=0.0, rate=0.3, steps=500)[0]
    for one, other in zip(found["marginal"], found["independent"], strict=True):
        np.testing.assert_allclose(one, other, atol=1e-3)


def learned(folder: Path, seed: int, **options: Any) -> InverseSoftQ:
    """A learner after one update from the experts' turns of a seed."""
    file = folder / f"{seed}.parquet"
    shown(seed).frame.drop("reward", "total", "success").write_parquet(file)
    learner = InverseSoftQ(Team({agent: TabularPolicy(3, name=agent) for agent in SEATS}), expert=str(file), **options)
    learner.update(rollout(Gems, learner_team(learner), groups=1, seed=seed))
    return learner


def learner_team(learner: InverseSoftQ) -> Team:
    """The team of a learner."""
    return Team(dict(learner.seats))


def read_back(learner: InverseSoftQ, seed: int) -> pl.DataFrame:
    """Random play with what the learner's critics say of its rewards."""
    anyone = {agent: TabularPolicy(3, name=agent) for agent in SEATS}  # uniform, as nothing was learned
    turns = rollout(Gems, Team(anyone), groups=100, seed=seed, stream="eval")
    told = Context(np.random.default_rng(0), 1, None, None, None, learner=learner)  # type: ignore[arg-type]
    return recovered_reward()(turns, told).frame


@exact
def the_reward_is_read_back() -> None:
    """r̂ is the critic at the joint action less γ times the soft value of what came next, 0 after the end."""
    with TemporaryDirectory() as folder:
        learner = learned(Path(folder), 0, steps=40)
    rows = read_back(learner, 0).sort("group", "turn", "agent")
    critics, place = learner.critics, {each.tobytes(): k for k, each in enumerate(learner.known)}
    values = [boltzmann(critics.marginals(k, learner.last), critics.sharpness)[0] for k in range(2)]  # type: ignore[arg-type]
    raw: dict[tuple[int, ...], list[np.ndarray]] = {}
    said: dict[tuple[int, ...], np.ndarray] = {}
    for part in rows.partition_by("group", maintain_order=True):
        steps = part.partition_by("turn", maintain_order=True)
        at = [place[step["state"].to_numpy().tobytes()] for step in steps]
        for number, step in enumerate(steps):
            key = (at[number], *(int(each[0]) for each in step["action_ids"]))
            ahead = np.array([each[at[number + 1]] for each in values]) if number + 1 < len(steps) else 0.0
            raw.setdefault(key, []).append(np.array([q[key] for q in critics.q]) - 0.9 * ahead)
            said[key] = step["recovered"].to_numpy()
    assert len(said) > 40
    for key, found in raw.items():
        np.testing.assert_allclose(said[key], np.mean(found, axis=0))


@reproduction(
    11,
    claim="From experts' turns without rewards a team with marginal critics of joint actions learns to act as the "
    "experts do, and to know their rewards; agents that ignore each other do not.",
    baseline="the same learner with critics that ignore the others (IQ-Learn)",
    criterion="return at least .9 of the experts' and twice that of independent critics; correlation of recovered and "
    "true rewards in random play higher for every seed",
    seeds=(0, 1, 2),
)
def demonstrations(seeds: Sequence[int]) -> Outcome:
    """Returns, and correlations of recovered with true rewards."""
    found: dict[str, list[float]] = {name: [] for name in ("expert", "joint", "independent", "known", "known_alone")}
    with TemporaryDirectory() as folder:
        for seed in seeds:
            found["expert"].append(_paid(shown(seed + 1)))
            for critic, known in (("joint", "known"), ("independent", "known_alone")):
                learner = learned(Path(folder), seed, critic=critic, steps=1500)
                found[critic].append(_paid(rollout(Gems, learner_team(learner), groups=300, seed=seed, stream="eval")))
                rows = read_back(learner, seed).drop_nulls("recovered")
                by = rows.group_by("agent").agg(pl.corr("recovered", "reward"))
                found[known].append(float(by["recovered"].mean()))  # type: ignore[arg-type]
    mean = {name: float(np.mean(values)) for name, values in found.items()}
    holds = mean["joint"] >= 0.9 * mean["expert"] and mean["joint"] >= 2 * mean["independent"]
    better = all(one > other for one, other in zip(found["known"], found["known_alone"], strict=True))
    return Outcome(mean, holds and better)


def _paid(turns: Turns) -> float:
    return float(turns.frame.group_by("group", "episode").agg(pl.col("total").last())["total"].mean())  # type: ignore[arg-type]
