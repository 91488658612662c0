"""Hiring several agents for information: whom to ask for effort, and what to pay for reports, by a linear program.

A principal recommends efforts, agents choose theirs in private, see signals and report; the principal decides, the
state is revealed, and payments depend on recommendation, reports and state (arXiv 2307.06210). Where the signal law is
not known: `palaestra.evaluation.games.hiring_online`.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import scipy

from palaestra.errors import InputError


@dataclass(frozen=True, eq=False)
class Mechanism:
    """Data of a payment mechanism for n agents: probabilities of recommended efforts, and payments for their reports.

    Attributes:
        profile: probability of each recommendation of efforts, float64[B_1, …, B_n].
        payments: of each agent at recommendation, reports and state, float64[n, B_1, …, B_n, S_1, …, S_n, states]; 0
            where the recommendation never occurs.
        pay: expected payment of each agent, float64[n].
        value: expected reward of the decision less all payments.
    """

    profile: np.ndarray
    payments: np.ndarray
    pay: np.ndarray
    value: float


def scoring_rule(
    prior: np.ndarray,
    signals: np.ndarray,
    costs: Sequence[np.ndarray],
    reward: np.ndarray,
    *,
    cap: float = 10.0,
    only: tuple[int, ...] | None = None,
    slack: float = 0.0,
    least: float | np.ndarray = 0.0,
) -> Mechanism:
    """`Mechanism` of largest value for arrays `prior`, `signals`, `costs`, `reward`; obedience and truth are optimal.

    The value is that to the principal; truth means truthful reports of every agent.

    Variables μ(b) and x_i(b, s, θ) = μ(b) γ_i(b, s, θ) >= 0; maximises Σ_b μ(b) V(b) - Σ_i E x_i. An agent sees its own
    recommendation alone, so constraints pool over those of the others: rare effort of one agent audits another.

    Args:
        prior: probability of each state, float64[states].
        signals: P(s | b, θ), float64[B_1, …, B_n, states, S_1, …, S_n].
        costs: of each agent's efforts, float64[B_i].
        reward: of each decision in each state, float64[decisions, states].
        cap: largest payment, γ <= cap. Without one, payment could be tied to a recommendation of probability 0.
        only: the one recommendation that is allowed; None: mixtures of all.
        slack: by how much obeying is to be better than each other effort, whatever is reported, where it is told; and
            the truth than each lie, times the chance and the distance of the two signals.
        least: probability that every recommendation has at least, a number or float64[B_1, …, B_n]; where it adds up to
            1 only the payments are chosen.

    Raises:
        InputError: shapes do not fit, probabilities do not add up to 1, or no mechanism under the cap is feasible.
    """
    prior, signals, reward = (np.asarray(x, float) for x in (prior, signals, reward))
    costs = [np.asarray(each, float) for each in costs]
    n = len(costs)
    efforts = tuple(map(len, costs))
    if signals.ndim != 2 * n + 1 or signals.shape[: n + 1] != (*efforts, len(prior)) or reward.shape[1:] != prior.shape:
        raise InputError(
            f"scoring_rule: signals {signals.shape}, costs {efforts}, prior {prior.shape} and reward {reward.shape} do "
            "not fit: [B_1 … B_n, states, S_1 … S_n], [B_i] per agent, [states] and [decisions, states] are needed"
        )
    law = np.moveaxis(signals, n, -1)  # [B…, S…, states]
    axes = tuple(range(n, 2 * n))
    if (law < 0).any() or not np.allclose(law.sum(axis=axes), 1) or not np.isclose(prior.sum(), 1) or (prior < 0).any():
        raise InputError("scoring_rule: prior and signals must be probabilities that add up to 1")
    joint = law * prior
    worth = (joint @ reward.T).max(axis=-1).sum(axis=axes)  # V(b)
    size, profiles = joint.size, int(np.prod(efforts))
    objective = np.concatenate([-worth.ravel(), np.tile(joint.ravel(), n)])
    rows, bounds, extra = _incentives(joint, costs, efforts, n, slack)
    ties = scipy.sparse.hstack(
        [np.tile(-cap * np.repeat(np.eye(profiles), size // profiles, axis=0), (n, 1)), scipy.sparse.eye(n * size)]
    )
    whole = scipy.sparse.vstack([rows, scipy.sparse.hstack([ties, scipy.sparse.csr_array((n * size, extra))])]).tocsr()
    allowed = np.ones(profiles) if only is None else (np.arange(profiles) == np.ravel_multi_index(only, efforts))
    lowest = np.broadcast_to(least, efforts).ravel() * allowed
    found = scipy.optimize.linprog(
        np.append(objective, np.zeros(extra)),
        A_ub=whole,
        b_ub=np.append(bounds, np.zeros(n * size)),
        A_eq=np.concatenate([np.ones(profiles), np.zeros(n * size + extra)])[None],
        b_eq=[1.0],
        bounds=[*zip(lowest, allowed), *[(0, None)] * (n * size + extra)],
        method="highs",
    )
    if found.x is None:
        raise InputError(f"scoring_rule: no mechanism makes agents obey under a payment cap of {cap}; raise the cap")
    mu, x = found.x[:profiles].reshape(efforts), found.x[profiles : profiles + n * size].reshape(n, *joint.shape)
    share = mu.reshape(*efforts, *(1,) * (n + 1))
    payments = np.where(share > 1e-9, x / np.maximum(share, 1e-9), 0.0)
    return Mechanism(mu, payments, (x * joint).reshape(n, -1).sum(axis=1), -float(found.fun))


def _incentives(
    joint: np.ndarray, costs: Sequence[np.ndarray], efforts: tuple[int, ...], n: int, slack: float
) -> tuple[scipy.sparse.csr_array, np.ndarray, int]:
    """Rows over (μ, x, z) that are <= 0: z bounds what a misreport of each signal pays, and obeying beats their sum."""
    size, profiles = joint.size, int(np.prod(efforts))
    place = np.arange(profiles + n * size)
    mu, x = place[:profiles].reshape(efforts), place[profiles:].reshape(n, *joint.shape)
    entries: list[tuple[int, np.ndarray, np.ndarray]] = []
    row, z = 0, len(place)
    for i in range(n):
        own = np.moveaxis(x[i], (i, n + i), (0, 1))  # [b_i, s_i, b_-i…, s_-i…, states]
        weight = np.moveaxis(joint, (i, n + i), (0, 1))
        of_mu = np.moveaxis(mu, i, 0).reshape(efforts[i], -1)
        for told, done in itertools.product(range(efforts[i]), repeat=2):
            obey = row
            row += 1
            entries.append((obey, own[told].ravel(), -weight[told].ravel()))
            least = costs[i][told] - costs[i][done] + slack * (told != done)
            entries.append((obey, of_mu[told], np.full(of_mu.shape[1], least)))
            for seen in range(own.shape[1]):
                entries.append((obey, np.array([z]), np.ones(1)))
                for said in range(own.shape[1]):
                    entries.append((row, own[told, said].ravel(), weight[done, seen].ravel()))
                    entries.append((row, np.array([z]), -np.ones(1)))
                    row += 1
                    if slack and told == done and said != seen:  # the truth beats each lie by itself
                        entries.append((row, own[told, said].ravel(), weight[told, seen].ravel()))
                        entries.append((row, own[told, seen].ravel(), -weight[told, seen].ravel()))
                        entries.append((row, of_mu[told], slack * _differ(weight[told, seen], weight[told, said])))
                        row += 1
                z += 1
    at = np.concatenate([np.full(len(columns), r) for r, columns, _ in entries])
    columns, values = (np.concatenate([each[k] for each in entries]) for k in (1, 2))
    return scipy.sparse.csr_array((values, (at, columns)), shape=(row, z)), np.zeros(row), z - len(place)


def _differ(seen: np.ndarray, said: np.ndarray) -> np.ndarray:
    """By how much two signals tell apart what else happens, times the chance of the first: float64[b_-i].

    The distance in total variation of others' signals and the state under each. Where a signal says nothing it is 0,
    and no payment could make the truth better than a lie.
    """
    first, second = (each.reshape(-1, int(np.prod(each.shape[each.ndim // 2 :]))) for each in (seen, said))
    chance = [np.maximum(each.sum(1, keepdims=True), 1e-12) for each in (first, second)]
    return np.asarray(0.5 * np.abs(first / chance[0] - second / chance[1]).sum(1) * chance[0][:, 0])


def best_fixed(
    prior: np.ndarray, signals: np.ndarray, costs: Sequence[np.ndarray], reward: np.ndarray, *, cap: float = 10.0
) -> Mechanism:
    """`Mechanism` of largest value that always recommends one profile of efforts; arrays as in `scoring_rule`."""
    found = []
    for only in np.ndindex(*map(len, costs)):
        try:
            found.append(scoring_rule(prior, signals, costs, reward, cap=cap, only=only))
        except InputError as error:
            if "no mechanism" not in str(error):
                raise
    return max(found, key=lambda each: each.value)
