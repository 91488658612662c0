"""Rewards of a discussion without ground truth: who solves, who criticises, who scores."""

from __future__ import annotations

from palaestra.algebra.returns import cumulative  # type: ignore[attr-defined]
from palaestra.algebra.signals import (
    Keys,
    Signal,
    SignalLike,
    as_signal,
    col,
    is_in,
    mean,
    per_token,
    register,
    standardise,
    where,
)
from palaestra.rewards.combine.roles import complement, neutral

ROUND = ("group", "episode", "round")
"""Key of a solution and all that was said about it."""


@register()
def comas_reward(tau: SignalLike = "tau", *, stake: float = 0.0, over: Keys = ROUND, pair: str = "pair") -> Signal:
    """Signal: CoMAS's reward ([4], arXiv 2510.08529) of rows by `role` (solver, evaluator, scorer) from a score `tau`.

    A score τ of 1, 2 or 3 is worth r = (τ - 1) / 2. The solver is paid the mean of r over the critiques of its
    solution, an evaluator 1 - r of its own critique, and a scorer 0, or -1 if its score could not be read (`parsed`).
    Where no score could be read the reward is missing.

    Args:
        tau: on rows of scorers.
        stake: share of r that a scorer is paid beside that; above 0 it has a stake in what it says.
        over: rows about one solution.
        pair: column that numbers the critiques of a solution.

    >>> from palaestra.algebra.turns import Turns
    >>> rows = {"group": [0] * 3, "episode": [0] * 3, "round": [0] * 3, "role": ["solver", "evaluator", "scorer"]}
    >>> rows |= {"pair": [None, 0, 0], "tau": [None, None, 2.0], "parsed": [None, None, True]}
    >>> comas_reward().evaluate(Turns(rows))
    array([0.5, 0.5, 0. ])
    """
    score = (as_signal(tau) - 1.0) / 2.0
    keys = (over,) if isinstance(over, str) else tuple(over)  # type: ignore[arg-type]
    solver, own = mean(score, over=keys), mean(score, over=(*keys, pair))
    scorer = neutral("parsed") if not stake else neutral("parsed") + where("parsed", stake * own, 0.0)
    return where(is_in("role", "solver"), solver, where(is_in("role", "evaluator"), complement(own), scorer))


@register()
def comas(reward: SignalLike = "reward", *, beta: float = 0.0, over: Keys = "policy") -> Signal:
    """Signal: [4] CoMAS's advantage (REINFORCE++): r - β · Σ_{k>=t} log(π / π_start), standardised per policy.

    The sum runs over the tokens of the turn from t on; with β = 0 there is one value per turn.

    Args:
        reward: of the turn.
        beta: weight of the KL; above 0 the stage `reference_logprobs` must be there.
        over: whose rows are standardised together, those of each policy.
    """
    if not beta:
        return standardise(as_signal(reward), over=over, unit="row")
    drift = col("logprobs") - col("reference_logprobs")
    behind = cumulative(drift, over=("group", "episode", "turn", "agent"), reverse=True)
    return standardise(per_token(reward) - beta * behind, over=over, unit="row")
