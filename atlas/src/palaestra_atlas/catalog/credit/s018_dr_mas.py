"""[18] Dr. MAS (arXiv 2602.08847): every agent is normalised by its own mean and spread.

With one baseline for all, the second moment of agent k's gradient is (σ_k² + (μ_k - μ)²) / σ² times what it is with
its own, if the score function does not depend on the reward. Left out: the training of language models.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import polars as pl

from palaestra.agents import TabularPolicy, Team
from palaestra.algebra.signals import Signal, col, where
from palaestra.algebra.turns import Turns
from palaestra.credit import dr_mas, grpo
from palaestra.envs.worlds import Bargaining
from palaestra.learning import PolicyGradient
from palaestra.play.rollout import rollout
from palaestra_atlas.reproductions import Outcome, exact, reproduction
from palaestra_atlas.verification.measures import Left, Measure

REWARDS = {"confident": (0.9, 0.1), "hesitant": (0.3, 0.4)}
"""Mean and standard deviation of what each of the two agents earns."""
SAMPLES = 200_000


def worked() -> tuple[Turns, np.ndarray, np.ndarray]:
    """Three episodes worked out by hand: the table, its agent-wise and its shared advantages."""
    turns = Turns(
        {
            "group": [0] * 8,
            "episode": [1, 1, 2, 2, 2, 2, 3, 3],
            "turn": [0, 1, 0, 1, 2, 3, 0, 1],
            "agent": ["solver", "verifier"] * 4,
            "reward": [1.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0],
            "valid": [True, True, True, True, False, True, True, True],
        }
    )
    own = np.array([1.4938, 1.5, -0.4337, -0.5, -0.6264, -0.5, -0.4337, -0.5])
    shared = np.repeat([1.1544, -0.5986, -0.5558], [2, 4, 2])
    return turns, own, shared


def team(seed: int) -> tuple[Turns, np.ndarray]:
    """A batch in which each episode is one turn of one agent, and a score function that ignores the reward."""
    rng = np.random.default_rng(seed)
    names = np.repeat(list(REWARDS), SAMPLES)
    mu, sigma = np.repeat(list(REWARDS.values()), SAMPLES, axis=0).T
    rows = np.arange(len(names))
    table = {"group": rows * 0, "episode": rows, "turn": rows * 0, "agent": names, "reward": rng.normal(mu, sigma)}
    return Turns(table), rng.normal(size=len(names))


@exact
def agent_rows() -> None:
    """The card's advantages of both agents, to four decimals."""
    turns, own, _ = worked()
    np.testing.assert_allclose(np.asarray(dr_mas("reward", penalty=0.1).evaluate(turns)), own, atol=5e-5)


@exact
def alone_raw() -> None:
    """The only sample of an agent keeps its score, as in the released code."""
    turns = Turns({"group": [0] * 3, "episode": [0, 1, 0], "turn": [0, 0, 1], "agent": ["a", "a", "b"],
                   "reward": [1.0, 0.0, 0.5]})  # fmt: skip
    np.testing.assert_allclose(np.asarray(dr_mas().evaluate(turns)), [0.5**0.5, -(0.5**0.5), 0.5], atol=1e-5)


@exact
def own_weights() -> None:
    """An update with rows of one agent alone leaves the parameters of the other as they were."""
    team = Team(first=TabularPolicy(13, name="first"), second=TabularPolicy(13, name="second"))
    turns = rollout(lambda: Bargaining(rounds=2, offers=11), team, groups=1, group_size=8)
    rows = turns.filter(pl.col("agent") == "first").with_column(advantage=dr_mas())
    learner = PolicyGradient(team, lr=0.1)
    learner.update(turns.with_column(advantage=dr_mas()))
    before = {name: flat(policy) for name, policy in team.policies.items()}
    learner.update(rows)
    assert not np.array_equal(flat(team.policies["first"]), before["first"])
    np.testing.assert_array_equal(flat(team.policies["second"]), before["second"])


def flat(policy: Any) -> np.ndarray:
    """All parameters of a policy, one after the other."""
    return np.concatenate([each.detach().numpy().ravel() for each in policy.parameters()])


def _error(signal: Signal, turns: Turns, expected: np.ndarray) -> float:
    return float(np.abs(np.asarray(signal.evaluate(turns)) - expected).max())


def moment_ratio() -> Measure:
    """Largest over smallest ratio, among agents, of the saved credit's second moment to that of its own statistics.

    These are of the saved rewards, by agent, in NumPy. Per seed.
    """

    def measured(left: Left) -> list[float]:
        return [_moment_ratio(Turns.load(seed / "turns").frame) for seed in left.seeds()]

    return measured


def _moment_ratio(frame: pl.DataFrame) -> float:
    own: dict[str, list[np.ndarray]] = {}
    group = [name for name in ("iteration", "group") if name in frame.columns]
    scores = frame.with_columns(score=pl.col("reward").sum().over(*group, "episode", "agent"))
    for (*_, agent), rows in scores.group_by(*group, "agent"):
        score = rows["score"].to_numpy()
        of_agent = (score - score.mean()) / (score.std(ddof=1) + 1e-6) if len(score) > 1 else score
        own.setdefault(str(agent), []).append(of_agent)
    ratios = [
        np.mean(np.square(rows["advantage"].to_numpy())) / np.mean(np.square(np.concatenate(own[str(agent)])))
        for (agent,), rows in frame.group_by("agent")
    ]
    return float(max(ratios) / min(ratios))


@reproduction(
    18,
    claim="A shared baseline multiplies the second moment of agent k's gradient by (σ_k² + (μ_k - μ)²)/σ²; agent-wise "
    "normalisation removes the factor.",
    baseline="one mean and one standard deviation for all agents (GRPO)",
    criterion="worked advantages equal to 4 decimals; ratio shared/agent-wise within 2% of the formula for each agent",
    seeds=(0, 1, 2, 3, 4),
)
def measure(seeds: Sequence[int]) -> Outcome:
    """Worked numbers, then the ratio of mean squared gradients on normal rewards, averaged over seeds."""
    turns, own, shared = worked()
    measured = {
        "worked_error_agentwise": _error(dr_mas("reward", penalty=0.1), turns, own),
        "worked_error_shared": _error(grpo(col("reward") - where("valid", 0.0, 0.1)), turns, shared),
    }
    ratios = np.array([_ratios(*team(seed)) for seed in seeds]).mean(axis=0)
    holds = max(measured.values()) <= 1e-4
    mus, sigmas = np.array(list(REWARDS.values())).T
    formula = (sigmas**2 + (mus - mus.mean()) ** 2) / (np.mean(sigmas**2) + np.var(mus))
    for name, ratio, expected in zip(REWARDS, ratios, formula, strict=True):
        measured |= {f"ratio_{name}": float(ratio), f"formula_{name}": float(expected)}
        holds &= abs(ratio / expected - 1) <= 0.02
    return Outcome(measured, bool(holds))


def _ratios(turns: Turns, score: np.ndarray) -> np.ndarray:
    """Mean squared gradient under the shared baseline over the same under each agent's own, per agent."""
    squares = [np.square(np.asarray(signal.evaluate(turns)) * score) for signal in (grpo(), dr_mas())]
    shared, own = (square.reshape(len(REWARDS), SAMPLES).mean(axis=1) for square in squares)
    return np.asarray(shared / own)
