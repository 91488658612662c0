"""Baselines over computed keys: halves, strata, teams, edges. Each centres or standardises; the key is the method."""

from __future__ import annotations

from typing import Literal

from palaestra.algebra.keys import edge, joined, team, upper_half
from palaestra.algebra.returns import as_reward, episode_score, return_to_go
from palaestra.algebra.signals import (
    Keys,
    Signal,
    SignalLike,
    Unit,
    as_signal,
    centre,
    count,
    fill_missing,
    is_missing,
    mean,
    per_turn,
    register,
    standardise,
    where,
)
from palaestra.credit.grouped import grpo
from palaestra.credit.weights import mix
from palaestra.errors import ExpressionError, nearest


@register()
def canon(
    score: SignalLike | None = None,
    *,
    metric: SignalLike | None = None,
    mu: SignalLike = 1.0,
    alpha: float = 1.0,
    beta: float = 0.0,
    favour: Literal["high", "low"] = "high",
    length: float = 1.0,
) -> Signal:
    """Signal: [57] CANON (2509.23962), (μ·(R - mean of the other half) + (1 - μ)·(R - mean of the own half)) / length.

    Halves of the group by the episode's mean metric (default: token entropy; "tokens_out" for length); an empty half
    has mean 0. With halves of equal size μ = 0.5 is Dr. GRPO. mu may be a signal: `batch_score()`, `1 - batch_score()`,
    `1 - cosine_restarts()`. Directional form, between halves only: the favoured half gets R - α·mean of the other, the
    other α·R - mean of the favoured; +β for the high half, -β for the low. length: the released code, against which
    this is checked, divides by the maximum length 8192.
    """
    if favour not in ("high", "low"):
        raise ExpressionError(f"canon: favour={favour!r}{nearest(str(favour), ['high', 'low'])}")
    entropy = per_turn(mean("entropies", over="episode")) if metric is None else metric
    r = episode_score(score)
    high = upper_half(where(~is_missing(r), entropy))  # the halves are of episodes that were scored
    means = (mean(r, over="group", unit="episode", where=high == half) for half in (1.0, 0.0))
    mean_high, mean_low = (fill_missing(each, 0.0) for each in means)
    at_high, at_low = (1.0, alpha) if favour == "high" else (alpha, 1.0)
    between = where(high, at_high * r - at_low * mean_low + beta, at_low * r - at_high * mean_high - beta)
    return mix(mu, between, centre(r, over=("group", high), unit="episode")) / length


@register()
def stratified_grpo(
    score: SignalLike | None = None,
    *,
    stratum: Keys | None = None,
    alpha: float = 0.6,
    ddof: int = 0,
    eps: float = 1e-6,
) -> Signal:
    """Signal: [195] Stratified GRPO (2510.06214), α · z of R in its `stratum` of the group + (1 - α) · z in the group.

    μ_k, σ_k range over the episodes of the group in the same stratum; alone in its stratum an episode has 0 there.
    stratum: a key; default is the episode's number of turns, which in a search agent counts the searches; see `calls`.
    Where the policy itself chooses the stratum, α = 1 cannot learn the choice: credit sums to 0 within each stratum.
    Formulas from secondary text; the population deviation (ddof=0) gives each stratum mean 0 and variance 1.
    """
    r, own = episode_score(score), count(over="episode") if stratum is None else stratum
    within = standardise(r, over=joined("group", own), unit="episode", ddof=ddof, eps=eps)
    return mix(alpha, within, standardise(r, over="group", unit="episode", ddof=ddof, eps=eps))


@register()
def salt(
    advantage: SignalLike | None = None, *, history: int = 0, unit: Unit = "episode", state: str = "state"
) -> Signal:
    """Signal: [78] SALT (2510.20022), mean advantage of the episodes of the group that took the same step (s, a, s').

    A step is (state, action, next state), with the `history` states before it. What episodes share becomes neutral; a
    step that only one of them took keeps its advantage (default GRPO). unit="row": an episode that repeats the step
    counts each time; then, for a policy that sees the state only and a loss that sums terms, the policy gradient is the
    same as without. It pays where the policy sees more than the state, a history or a clock: `state` names the column
    that says where a step began without it. The rule is a reconstruction from the abstract.
    """
    base = grpo() if advantage is None else as_signal(advantage)
    return mean(base, over=joined("group", edge(history=history, state=state)), unit=unit)


@register("advevo_marl", "public_baseline")
def advevo_marl(reward: SignalLike = "reward", *, gamma: float = 1.0, teams: Keys | None = None) -> Signal:
    """Signal: [67] AdvEvo-MARL (2510.01586), return-to-go minus its mean over the batch's rows of the agent's team.

    teams: the key of the functional team, a column or `team(...)`; default is the agent's name without its number. From
    secondary text. The paper's rewards, safety first and usefulness later, are `phase(0.7, 0.3, at=…) * safety + …`.
    """
    return centre(return_to_go(as_reward("advevo_marl", reward), gamma=gamma), over=team() if teams is None else teams)
