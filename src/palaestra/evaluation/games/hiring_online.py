"""Hiring several agents whose signals are not known yet: explore, estimate, then commit to a program with slack.

A first mechanism recommends every profile of efforts often enough and pays enough that agents obey, as the paper
presumes that there is one. The law of the signals is counted meanwhile, and the linear program of `scoring_rule` is
solved for it, with a slack in its incentives so that they hold under the true law, too (arXiv 2307.06210). Left out:
costs that are not known, and more than one phase of exploration.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from palaestra.errors import InputError
from palaestra.evaluation.games.hiring import Mechanism, scoring_rule

HALVINGS = 6
"""How often the slack is halved where no mechanism has so much; after that it is 0."""
STRICT = 1e-3
"""By how much obeying is better while one explores."""
SLACK = 0.3
"""Slack in units of the cap and of the error of a count: with it the regret grows as T^(2/3) in the worked audit."""
CERTAIN = 1e-9
INDIFFERENT = 1e-6
"""Gain below which an agent obeys and tells the truth: the accuracy of the linear program."""


@dataclass(frozen=True)
class Response:
    """Outcome of agents' best responses to a mechanism: its value to the principal, their gain, and share of obedience.

    Attributes:
        value: Reward of the decision less all payments, of one round.
        gain: Largest gain of an agent by another effort or report, the others being obedient and truthful.
        obeyed: Share of rounds in which everybody makes the effort that it is told to make.
    """

    value: float
    gain: float
    obeyed: float


def respond(
    mechanism: Mechanism,
    prior: np.ndarray,
    signals: np.ndarray,
    costs: Sequence[np.ndarray],
    reward: np.ndarray,
    *,
    believed: np.ndarray | None = None,
) -> Response:
    """`Response` of agents who respond best to a `Mechanism` under arrays `prior`, `signals`, `costs`, `reward`.

    The agents know this law; the mechanism may be made for another one.

    Every agent takes the best effort and report for each recommendation, as if the others obeyed and told the truth.

    Args:
        mechanism: Recommendations and payments.
        prior: Probability of each state.
        signals: True law, as in `scoring_rule`.
        costs: Of each agent's efforts.
        reward: Of each decision in each state.
        believed: Law by which the principal decides on reports; None: the true one.
    """
    n, efforts = len(costs), signals.shape[: len(costs)]
    joint = np.moveaxis(signals, n, -1) * prior
    assumed = joint if believed is None else np.moveaxis(believed, n, -1) * prior
    decisions = (assumed @ reward.T).argmax(-1)
    plans, most, disobeyed = [], 0.0, np.zeros(efforts, bool)
    for agent in range(n):
        plan = [_best(mechanism, joint, costs[agent], agent, told) for told in range(efforts[agent])]
        plans.append([(done, said) for done, said, _ in plan])
        most = max(most, *(gain for _, _, gain in plan))
        shape = [1] * n
        shape[agent] = -1
        disobeyed |= np.array([done != told for told, (done, _, _) in enumerate(plan)]).reshape(shape)
    value = 0.0
    for told in np.argwhere(mechanism.profile > CERTAIN):
        b = tuple(told)
        done = tuple(plans[agent][each][0] for agent, each in enumerate(b))
        paid = mechanism.payments[(slice(None), *b)].sum(0)
        for seen in np.ndindex(joint.shape[n:-1]):
            said = tuple(int(plans[agent][b[agent]][1][each]) for agent, each in enumerate(seen))
            chance = joint[done][seen]
            value += float(mechanism.profile[b] * (chance @ (reward[decisions[b][said]] - paid[said])))
    return Response(value, most, float(mechanism.profile[~disobeyed].sum()))


def _best(
    mechanism: Mechanism, joint: np.ndarray, costs: np.ndarray, agent: int, told: int
) -> tuple[int, np.ndarray, float]:
    """Effort and report of each signal that pay an agent most where it is told an effort, and what it gains by them."""
    n = mechanism.profile.ndim
    share = np.moveaxis(mechanism.profile, agent, 0)[told]
    if share.sum() <= CERTAIN:
        return told, np.arange(joint.shape[n + agent]), 0.0
    paid = np.moveaxis(mechanism.payments[agent], (agent, n + agent), (0, 1))[told]  # [said, b_-i…, s_-i…, states]
    chance = np.moveaxis(joint, (agent, n + agent), (0, 1))  # [done, seen, b_-i…, s_-i…, states]
    chance = chance * share.reshape(share.shape + (1,) * n)
    rest = list(range(2, chance.ndim))
    worth = np.tensordot(chance, paid, axes=(rest, [each - 1 for each in rest]))  # [done, seen, said]
    total = worth.max(-1).sum(-1) - costs * share.sum()
    obedient = np.trace(worth[told]) - costs[told] * share.sum()
    done = int(total.argmax())
    if total[done] <= obedient + INDIFFERENT * share.sum():
        return told, np.arange(worth.shape[1]), 0.0
    return done, worth[done].argmax(-1), float((total[done] - obedient) / share.sum())


@dataclass(frozen=True, eq=False)
class OnlineHiring:
    """Result of `explore_then_commit`: the mechanism committed to, its response, and the regret.

    Attributes:
        mechanism: What was committed to.
        slack: The slack that it has.
        explored: Rounds of exploration.
        response: What it is worth under the true law.
        regret: Sum over all rounds of what the best mechanism for the true law is worth, less what was had.
        best: Value of a round under that mechanism.
    """

    mechanism: Mechanism
    slack: float
    explored: int
    response: Response
    regret: float
    best: float


def explore_then_commit(
    prior: np.ndarray,
    signals: np.ndarray,
    costs: Sequence[np.ndarray],
    reward: np.ndarray,
    rng: np.random.Generator,
    *,
    rounds: int,
    explore: int | None = None,
    slack: float | None = None,
    cap: float = 2.0,
) -> OnlineHiring:
    """`OnlineHiring` in `rounds` for arrays `prior`, `signals`, `costs`, `reward`: explores, then keeps one mechanism.

    Simulates hiring agents whose law of signals is not known to the principal.

    Args:
        prior: Probability of each state, float64[states].
        signals: True law, which play is drawn from, as in `scoring_rule`.
        costs: Of each agent's efforts.
        reward: Of each decision in each state.
        rng: From which signals and states are drawn.
        rounds: T, all rounds together.
        explore: Rounds of exploration, half of them spread evenly over the profiles; None: T^(2/3), rounded up.
        slack: Of the program that is committed to; None: `SLACK` · cap / √(explore / profiles).
        cap: Largest payment.

    Raises:
        InputError: Exploration takes all rounds, or the cap is too low to induce all profiles.
    """
    prior, signals, reward = (np.asarray(x, float) for x in (prior, signals, reward))
    costs = [np.asarray(each, float) for each in costs]
    n = len(costs)
    profiles = list(np.ndindex(signals.shape[:n]))
    first = int(np.ceil(rounds ** (2 / 3))) if explore is None else explore
    if not len(profiles) <= first < rounds:
        raise InputError(f"hire_online: {first} rounds of exploration of {len(profiles)} profiles, of {rounds} in all")
    best = scoring_rule(prior, signals, costs, reward, cap=cap)
    inducing = scoring_rule(prior, signals, costs, reward, cap=cap, slack=STRICT, least=0.5 / len(profiles))
    told = rng.multinomial(first, (inducing.profile / inducing.profile.sum()).ravel())
    estimate = np.stack([_counted(signals[b], prior, count, rng) for b, count in zip(profiles, told, strict=True)])
    estimate = estimate.reshape(signals.shape)
    wanted = SLACK * cap / np.sqrt(first / len(profiles)) if slack is None else slack
    made, kept = _committed(prior, estimate, costs, reward, cap, wanted)
    response = respond(made, prior, signals, costs, reward, believed=estimate)
    earned = first * inducing.value + (rounds - first) * response.value
    return OnlineHiring(made, kept, first, response, rounds * best.value - earned, best.value)


def _counted(law: np.ndarray, prior: np.ndarray, rounds: int, rng: np.random.Generator) -> np.ndarray:
    """Law of the signals in each state as rounds show it, with half a round more of each."""
    states = rng.multinomial(rounds, prior)
    drawn = [rng.multinomial(count, each.ravel()).reshape(each.shape) for count, each in zip(states, law, strict=True)]
    counts = np.stack(drawn) + 0.5
    return np.asarray(counts / counts.reshape(len(law), -1).sum(1).reshape(-1, *(1,) * (law.ndim - 1)))


def _committed(
    prior: np.ndarray, law: np.ndarray, costs: Sequence[np.ndarray], reward: np.ndarray, cap: float, slack: float
) -> tuple[Mechanism, float]:
    """The best mechanism for a law with the slack, or with as much of it as there can be."""
    for tries in range(HALVINGS):
        try:
            return scoring_rule(prior, law, costs, reward, cap=cap, slack=slack / 2**tries), slack / 2**tries
        except InputError as error:
            if "no mechanism" not in str(error):
                raise
    return scoring_rule(prior, law, costs, reward, cap=cap), 0.0
