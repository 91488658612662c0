"""Team credit: what one agent's part was in what all of them achieved together.

Shared, difference, counterfactual and Shapley credit are signals of columns. What fills the columns plays the team
again with members replaced: a table of coalitions, or a function that plays, e.g. `play.monte_carlo.mc_value` from a
snapshot. Left out: learned values of joint actions (VDN, QMIX); a critic's values are columns.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cache, partial

import numpy as np
import polars as pl
import scipy

from palaestra.algebra.kernels import Evaluation, kernel
from palaestra.algebra.returns import episode_return
from palaestra.algebra.signals import Keys, Signal, SignalLike, as_signal, per_turn, register, total
from palaestra.algebra.turns import Ragged, Turns
from palaestra.errors import ExpressionError, InputError

CoalitionValue = Callable[[frozenset[str]], float]
"""What a part of the team earns without the others (they are absent, or a default stands in for them)."""

EXACT = 12
"""Agents up to which all 2^n coalitions are evaluated."""


@register()
def shared_reward(reward: SignalLike = "reward", *, over: Keys = "episode") -> Signal:
    """Signal: sum of all agents' rewards, paid to each, of the episode; with over=("episode", "turn") of the turn."""
    return total(reward, over=over)


@register()
def difference_reward(score: SignalLike | None = None, *, without: SignalLike = "without") -> Signal:
    """Signal: difference reward (Wolpert, Tumer 2001): score minus `without`, that if the agent had played its default.

    score: G, default the return of the whole episode. without: the team's score if this row's agent had taken its
    default action, the others the same. As that does not depend on what the agent did, whatever it changes in D it
    changes in G by as much.

    >>> from palaestra.algebra.turns import Turns
    >>> turns = Turns({"episode": [0, 0], "agent": ["a", "b"], "reward": [3.0, 1.0], "without": [1.0, 4.0]})
    >>> difference_reward().evaluate(turns)
    array([3., 0.])
    """
    return (episode_return() if score is None else as_signal(score)) - as_signal(without)


@register("counterfactual", "coma")
def counterfactual(
    q: SignalLike = "q", *, action_values: SignalLike = "action_values", probabilities: SignalLike = "probabilities"
) -> Signal:
    """Signal: COMA's advantage (1705.08926), q - Σ probabilities · action_values over one's own actions (list columns).

    q: the value of the joint action that was played. action_values, probabilities: lists, one number for each action
    that the agent could have taken: that value with its own action replaced, and its policy then.

    >>> from palaestra.algebra.turns import Turns
    >>> turns = Turns({"q": [4.0], "action_values": [[4.0, 0.0]], "probabilities": [[0.25, 0.75]]})
    >>> counterfactual().evaluate(turns)
    array([3.])
    """
    expected = per_turn(as_signal(probabilities) * as_signal(action_values), method="total")
    return as_signal(q) - expected


@register()
def shapley(values: SignalLike = "coalition_values", player: SignalLike = "player") -> Signal:
    """Signal: Shapley value of a row's agent in the game listed in `values`, its mean gain over all orders of joining.

    Source: Shapley 1953.
    φ_i = Σ_{S without i} |S|!·(n - |S| - 1)!/n! · (v(S ∪ i) - v(S)). values: a list of 2^n numbers, v of the coalition
    whose members are the bits of the place in the list: v(nobody), v(0), v(1), v(0 and 1), … (`coalition_values`).
    player: the number of the row's agent, from 0. For many agents see `shapley_values`.

    Raises:
        InputError: a list does not have 2^n numbers, or a player is not one of the n; names the row.

    >>> from palaestra.algebra.turns import Turns
    >>> turns = Turns({"coalition_values": [[0.0, 1.0, 2.0, 6.0]] * 2, "player": [0, 1]})
    >>> shapley().evaluate(turns)
    array([2.5, 3.5])
    """
    return Signal("shapley", as_signal(values), as_signal(player))


@kernel("shapley", range="row")
def _shapley(evaluation: Evaluation, node: Signal) -> np.ndarray:
    values, player = (evaluation(each) for each in node.inputs)
    if not isinstance(values, Ragged) or isinstance(player, Ragged):
        raise ExpressionError(f"{node}: needs a list of 2^n numbers and one player in each row")
    number = np.asarray(player, float)
    starts = np.cumsum(values.lengths) - values.lengths
    result = np.full(len(number), np.nan)
    for length in np.unique(values.lengths[values.lengths > 0]).tolist():
        agents = length.bit_length() - 1
        rows = np.flatnonzero((values.lengths == length) & ~np.isnan(number))
        wrong = rows if length != 2**agents else rows[~np.isin(number[rows], np.arange(agents))]
        if len(wrong):
            raise InputError(
                f"shapley: row {wrong[0]} has {length} coalition values and player {number[wrong[0]]:g}; "
                "n agents have 2^n coalitions and are numbered from 0 to n - 1"
            )
        own = values.values[starts[rows, None] + np.arange(length)]
        result[rows] = shapley_of(own)[np.arange(len(rows)), number[rows].astype(int)]
    return result


def _members(agents: int) -> np.ndarray:
    """int64[2^n, n]: 1 where the agent is in the coalition."""
    return np.asarray((np.arange(2**agents)[:, None] >> np.arange(agents)) & 1)


@cache
def _weights(agents: int) -> np.ndarray:
    """float64[2^n, n]: how much v of a coalition counts for each agent's Shapley value."""
    member = _members(agents)
    others = member.sum(axis=1, keepdims=True) - member
    return np.asarray((2 * member - 1) / (agents * scipy.special.comb(agents - 1, others)))


@cache
def _pair_weights(agents: int) -> np.ndarray:
    """float64[2^n, n · n]: the same for each pair's interaction; nothing for an agent with itself."""
    member = _members(agents)
    both = member[:, :, None] + member[:, None, :]
    others = member.sum(axis=1)[:, None, None] - both
    sign = np.where(both == 1, -1.0, 1.0) * ~np.eye(agents, dtype=bool)
    ways = (agents - 1) * scipy.special.comb(agents - 2, np.maximum(others, 0))
    return np.asarray((sign / np.where(ways > 0, ways, 1.0)).reshape(-1, agents * agents))


def shapley_of(values: np.ndarray) -> np.ndarray:
    """Exact Shapley values, float64[..., n], of games given as tables float64[..., 2^n] in the order of `shapley`.

    All games at once: 12 agents in a thousand games take about 20 ms ([88], arXiv 2502.00510).

    Raises:
        InputError: a game does not have 2^n numbers, or one is not finite.

    >>> shapley_of(np.array([[0.0, 1.0, 2.0, 6.0]]))
    array([[2.5, 3.5]])
    """
    games, agents = _games("shapley_of", values)
    return np.asarray(games @ _weights(agents))


def interactions_of(values: np.ndarray) -> np.ndarray:
    """Shapley interaction index of each pair, float64[..., n, n] with 0 on the diagonal, of tables as in `shapley_of`.

    I_ij = Σ_{S without i, j} |S|!·(n - |S| - 2)!/(n - 1)! · (v(S ∪ ij) - v(S ∪ i) - v(S ∪ j) + v(S)) (Grabisch and
    Roubens 1999): what two bring beyond what each brings.

    Raises:
        InputError: a game does not have 2^n numbers with n of at least 2, or one is not finite.

    >>> interactions_of(np.array([0.0, 1.0, 2.0, 6.0]))[0, 1].item()
    3.0
    """
    games, agents = _games("interactions_of", values)
    if agents < 2:
        raise InputError(f"interactions_of: {agents} agent has nobody to interact with")
    return np.asarray((games @ _pair_weights(agents)).reshape(*games.shape[:-1], agents, agents))


def _games(name: str, values: np.ndarray) -> tuple[np.ndarray, int]:
    games = np.asarray(values, float)
    agents = games.shape[-1].bit_length() - 1 if games.ndim else 0
    if agents < 1 or games.shape[-1] != 2**agents or agents > EXACT:
        raise InputError(f"{name}: values of shape {games.shape}; n agents, 1 to {EXACT}, have 2^n coalitions")
    if not np.isfinite(games).all():
        raise InputError(f"{name}: {(~np.isfinite(games)).sum()} coalitions have no finite value")
    return games, agents


# -- coalitions -------------------------------------------------------------------------------------------------------


def coalition_values(value: CoalitionValue, agents: Sequence[str]) -> np.ndarray:
    """Value of each of the 2^n coalitions of `agents` by `value(frozenset)`, float64[2^n], in the order of `shapley`.

    The function maps a frozenset of agents to a number; a dict's `get` is one too.

    Raises:
        InputError: a coalition has no finite value, or there are too many.
    """
    if len(agents) > EXACT:
        raise InputError(
            f"coalition_values: {len(agents)} agents have {2 ** len(agents):,} coalitions; beyond {EXACT} agents draw "
            "orders: shapley_values(…, rng=np.random.default_rng(seed))"
        )
    return np.array([_value(value, frozenset(each)) for each in _subsets(agents)])


def _subsets(agents: Sequence[str]) -> list[list[str]]:
    return [[agent for bit, agent in enumerate(agents) if place >> bit & 1] for place in range(2 ** len(agents))]


def _value(value: CoalitionValue, members: frozenset[str]) -> float:
    found = value(members)
    if found is None or not math.isfinite(found):
        raise InputError(f"the coalition {sorted(members)} has the value {found}; give a finite number for each")
    return float(found)


def shapley_values(
    value: CoalitionValue, agents: Sequence[str], *, rng: np.random.Generator | None = None, orders: int | None = None
) -> np.ndarray:
    """Shapley value of each agent by function value(frozenset), float64[n]: exact up to 12 agents, else drawn by `rng`.

    Sampled: agents join in random orders, each is paid its mean gain (Castro, Gómez and Tejada 2009); each drawn order
    is also gone through backwards, which is exact where agents interact in pairs only. Unbiased, the error falls with
    the root of `orders` (default 1000), n evaluations each. Either way the values add up to v(all) - v(nobody). A
    coalition that is met again is not evaluated again.

    Raises:
        InputError: rng is needed, no order is allowed, or a coalition has no finite value.

    >>> shapley_values(lambda members: len(members) ** 2.0, ["a", "b"])
    array([2., 2.])
    """
    if len(agents) <= EXACT and orders is None:
        return np.asarray(coalition_values(value, agents) @ _weights(len(agents)))
    if rng is None or (orders is not None and orders < 1):
        raise InputError(
            f"shapley_values: orders={orders} of {len(agents)} agents are drawn: give at least one, and "
            "rng=np.random.default_rng(seed)"
        )
    known: dict[frozenset[str], float] = {}
    gains, number = np.zeros(len(agents)), orders or 1000
    order = np.arange(len(agents))
    for at in range(number):
        order = order[::-1] if at % 2 else rng.permutation(len(agents))
        path = [frozenset(agents[each] for each in order[:size]) for size in range(len(agents) + 1)]
        for members in path:
            if members not in known:
                known[members] = _value(value, members)
        gains[order] += np.diff([known[members] for members in path])
    return gains / number


def add_shapley(
    turns: Turns,
    value: Callable[[Turns, frozenset[str]], float],
    *,
    name: str = "shapley",
    over: str | Sequence[str] = "episode",
    rng: np.random.Generator | None = None,
    orders: int | None = None,
) -> Turns:
    """`Turns` with a column `name`: Shapley value, by `value(key's Turns, frozenset)`, of each row's agent in its key.

    value: from the key's rows and a coalition to what it earns; it plays that from a snapshot, or looks it up. With
    over="episode" the members do what they did in the episode and the values are rewards of it; with over="group" there
    is one for each agent and task. The rest is as in `shapley_values`.
    """
    codes = turns.codes(*([over] if isinstance(over, str) else over))
    agent = turns["agent"].cast(pl.String).to_numpy()
    result = np.full(len(turns), np.nan)
    order = np.argsort(codes.ids, kind="stable")
    for rows in np.split(order, np.flatnonzero(np.diff(codes.ids[order])) + 1) if len(order) else ():
        agents, place = np.unique(agent[rows], return_inverse=True)
        part = partial(value, Turns(turns.frame[rows]))
        found = shapley_values(part, agents.tolist(), rng=rng, orders=orders)
        result[rows] = found[place]
    return turns.with_column(**{name: result})
