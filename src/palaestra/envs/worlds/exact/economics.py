"""Exact references of small economic games: alternating offers, fair splits, signals, prices, and a market's welfare.

arXiv 2410.05254 (GLEE) for bargaining, negotiation and persuasion; Rubinstein 1982; logit demand as in Calvano et al.
2020. All functions take and return plain numbers or arrays.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import scipy

from palaestra.errors import InputError

# -- dividing a sum ---------------------------------------------------------------------------------------------------


def rubinstein_share(first: float, second: float) -> float:
    """First player's equilibrium share in endless offers with discounts `first`, `second`: (1 - δ₂) / (1 - δ₁ δ₂).

    >>> round(rubinstein_share(0.9, 0.8), 4)
    0.7143

    Raises:
        InputError: a discount is not in (0, 1], or both are 1, where any split can be kept up.
    """
    if not (0 < first <= 1 and 0 < second <= 1) or first == second == 1:
        raise InputError(f"rubinstein_share: discounts {first} and {second} must be in (0, 1], and one below 1")
    return (1 - second) / (1 - first * second)


def bargaining_share(discounts: tuple[float, float], rounds: int) -> float:
    """First player's equilibrium share in `rounds` offers with two `discounts`, by backward induction; float.

    v_T = 1 for the last proposer; before, a proposer keeps 1 - δ_other v_{t+1}.

    >>> [round(bargaining_share((0.9, 0.8), rounds), 4) for rounds in (1, 2, 3, 4)]
    [1.0, 0.2, 0.92, 0.344]
    """
    share = 1.0
    for turn in range(rounds - 1, 0, -1):  # the proposer of `turn` has to content the proposer of `turn` + 1
        share = 1 - discounts[turn % 2] * share
    return share


def bargaining_fairness(share: float) -> float:
    """Fairness of a split p, 1 - 4 (p - 1/2)²: 1 for an even one, 0 if one side has all."""
    return 1 - 4 * (share - 0.5) ** 2


def negotiation_price(seller: float, buyer: float, rounds: int) -> float | None:
    """Equilibrium price of `rounds` offers between values `seller`, `buyer`: the last proposer's best; None if no gain.

    The seller proposes in odd rounds. None: there is nothing to gain.

    >>> negotiation_price(1.0, 1.5, rounds=3), negotiation_price(1.0, 1.5, rounds=2)
    (1.5, 1.0)
    """
    if buyer <= seller:
        return None
    return buyer if rounds % 2 else seller


def negotiation_fairness(price: float | None, seller: float, buyer: float) -> float:
    """Fairness of a price, 1 - 4 (p - (s + b) / 2)², for values `seller` s, `buyer` b; 1 without a trade (None)."""
    return 1.0 if price is None else 1 - 4 * (price - (seller + buyer) / 2) ** 2


def persuasion_scores(
    good: Sequence[bool], bought: Sequence[bool], *, value: float, bad_value: float, published: bool = False
) -> dict[str, float]:
    """Dict efficiency, fairness, seller_gain, buyer_gain of rounds `good`, `bought` at 1, worth `value` or `bad_value`.

    efficiency = good sold / good; fairness = bad refused / bad (1 if there was none); seller = deals / rounds;
    buyer = [good bought (v - 1) + bad bought (c - 1)] / rounds. published: the released script's second term counts bad
    goods *refused*.

    >>> persuasion_scores([True, False], [True, True], value=2.0, bad_value=0.0)["buyer_gain"]
    0.0

    Raises:
        InputError: there is not one decision per good, or there are none.
    """
    is_good, sold = np.asarray(good, bool), np.asarray(bought, bool)
    if is_good.shape != sold.shape or not is_good.size:
        raise InputError(f"persuasion_scores: {is_good.size} goods, {sold.size} decisions; give as many of both")
    charged = ~is_good & (~sold if published else sold)
    return {
        "efficiency": float(sold[is_good].mean()) if is_good.any() else 1.0,
        "fairness": float((~sold)[~is_good].mean()) if (~is_good).any() else 1.0,
        "seller_gain": float(sold.mean()),
        "buyer_gain": float(((is_good & sold) * (value - 1) + charged * (bad_value - 1)).mean()),
    }


def persuasion_commitment(q: float, value: float, bad_value: float) -> float:
    """Seller's largest chance of a deal by committed signals: good with chance `q`, worth `value`, else `bad_value`.

    Kamenica and Gentzkow 2011.

    Good wares are always praised, bad ones as often as a buyer who trusts Bayes' rule still buys:
    q (v - 1) + (1 - q) x (c - 1) = 0. Without commitment a myopic buyer can only trust the prior.

    >>> round(persuasion_commitment(1 / 3, 2.0, 0.0), 4)
    0.6667
    """
    return q + (1 - q) * min(1.0, q * (value - 1) / ((1 - q) * (1 - bad_value))) if q < 1 else 1.0


# -- prices -----------------------------------------------------------------------------------------------------------


def logit_demand(prices: np.ndarray, quality: float = 2.0, scale: float = 0.25) -> np.ndarray:
    """Market shares of a logit demand, float64[..., sellers]: exp((a - p_i)/μ) / (1 + Σ exp((a - p_j)/μ)).

    Buyers may stay away.
    """
    worth = np.exp((quality - np.asarray(prices, float)) / scale)
    return np.asarray(worth / (1 + worth.sum(axis=-1, keepdims=True)))


def logit_nash_price(sellers: int = 2, cost: float = 1.0, quality: float = 2.0, scale: float = 0.25) -> float:
    """Nash equilibrium price of a logit market, p = c + μ / (1 - share), the same for all sellers.

    >>> round(logit_nash_price(), 4)
    1.4729
    """

    def gap(price: float) -> float:
        share = logit_demand(np.full(sellers, price), quality, scale)[0]
        return float(price - cost - scale / (1 - share))

    return float(scipy.optimize.brentq(gap, cost, cost + 100 * scale))


def logit_monopoly_price(sellers: int = 2, cost: float = 1.0, quality: float = 2.0, scale: float = 0.25) -> float:
    """Monopoly price of a logit market, p = c + μ / (1 - total share), which maximises the joint profit.

    >>> round(logit_monopoly_price(), 4)
    1.925
    """

    def gap(price: float) -> float:
        return float(price - cost - scale / (1 - logit_demand(np.full(sellers, price), quality, scale).sum()))

    return float(scipy.optimize.brentq(gap, cost, cost + 100 * scale))


def bertrand_nash_price(grid: Sequence[float], cost: float) -> float:
    """Nash price of Bertrand competition on a grid of prices: the smallest price above cost.

    On a grid coarser than the margin a seller rather shares that price than undercuts to no margin at all.

    >>> bertrand_nash_price(range(10, 20), cost=10)
    11.0
    """
    above = [float(price) for price in grid if price > cost]
    if not above:
        raise InputError(f"bertrand_nash_price: no price of {list(grid)} is above the cost {cost}")
    return min(above)


def collusion_index(price: float, nash: float, monopoly: float) -> float:
    """Collusion index of a price, (p - `nash`) / (`monopoly` - `nash`): 0 for competition, 1 for a cartel.

    Raises:
        InputError: both reference prices are equal, so there is nothing to agree on.
    """
    if monopoly == nash:
        raise InputError(f"collusion_index: the Nash and the monopoly price are both {nash:g}")
    return (price - nash) / (monopoly - nash)


def monopolised(hours: Sequence[float], capacity: float, minimum: float, slack: float = 0.1) -> bool:
    """Whether those with at least `minimum` of `hours` use (1 - slack) of `capacity` while somebody has less than that.

    >>> monopolised([10, 10, 0], capacity=20, minimum=6), monopolised([6, 6, 6], capacity=20, minimum=6)
    (True, False)
    """
    used = np.asarray(hours, float)
    return bool((used < minimum).any() and used[used >= minimum].sum() >= (1 - slack) * capacity)


# -- a market ---------------------------------------------------------------------------------------------------------


def optimal_welfare(utility: np.ndarray) -> float:
    """Largest total of `utility` [customers, sellers] if each customer buys from at most one seller, or none; float.

    utility float64[customers, sellers]: value of the wishes if the seller meets them, else 0, minus the cost to society
    (a price only moves money).

    >>> optimal_welfare(np.array([[1.0, 3.0], [-1.0, -2.0]]))
    3.0
    """
    return float(np.maximum(utility.max(axis=1), 0).sum())
