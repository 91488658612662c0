"""Equilibria by linear programs (HiGHS): Nash of two-player zero-sum games, matrix or tree, and correlated ones."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy

from palaestra.errors import InputError
from palaestra.evaluation.games.game import Game
from palaestra.evaluation.games.tree import Tree


def need_zero_sum(game: Game | Tree, solver: str) -> float:
    """The constant sum of the payoffs of a two-player constant-sum `Game` or `Tree`; raises InputError for any other.

    Raises:
        InputError: it is not one; names a cell that shows it, and solvers that take any game.
    """
    others = "qre, replicator, fictitious_play and alpha_rank take any matrix, cce finds a correlated equilibrium"
    if len(game.players) != 2:
        raise InputError(f"{solver}: two players are needed, not {len(game.players)}; {others}")
    total = game.constant_sum()
    if total is not None:
        return total
    sums = np.sum(game.payoffs, axis=0)
    low, high = (np.unravel_index(k, sums.shape) for k in (sums.argmin(), sums.argmax()))
    where: tuple[str, ...] = ()
    if isinstance(game, Game):
        cells = [" × ".join(own[k] for own, k in zip(game.strategies, cell, strict=True)) for cell in (low, high)]
        where = f" at {cells[0]}", f" at {cells[1]}"
    shown = f"{sums[low]:g}{where[0] if where else ''} and {sums[high]:g}{where[1] if where else ''}"
    raise InputError(f"{solver}: the game is not zero- or constant-sum: payoffs add up to {shown}; {others}")


def nash_mixtures(game: Game) -> tuple[np.ndarray, ...]:
    """Nash equilibrium of a two-player constant-sum `Game` by a linear program: (row mixture, column mixture).

    Raises:
        InputError: the game is no such game.
    """
    need_zero_sum(game, "nash")
    payoff = _scaled(game.payoffs[0])
    rows, columns = payoff.shape
    found = _program(
        "nash",
        np.append(np.zeros(rows), -1.0),
        A_ub=np.hstack([-payoff.T, np.ones((columns, 1))]),
        b_ub=np.zeros(columns),
        A_eq=np.append(np.ones(rows), 0.0)[None],
        b_eq=[1.0],
        bounds=[(0, None)] * rows + [(None, None)],
    )
    return _share(found.x[:rows]), _share(-found.ineqlin.marginals)


def nash_policy(tree: Tree) -> np.ndarray:
    """Nash equilibrium of a two-player constant-sum `Tree` with perfect recall, as a behaviour policy float64[A, I].

    The sequence-form linear program: max q_0 over plans x of the first player such that for each sequence of the second
    the value of the information sets behind it is at most what x gives it (Koller, Megiddo & von Stengel 1996).

    Raises:
        InputError: the game is not constant-sum, or has more than two players.
    """
    need_zero_sum(tree, "nash")
    size = tree.legal.size
    n = tree.legal.shape[1]
    owners = [np.arange(own[0].sets.start, own[-1].sets.stop) if own else np.zeros(0, int) for own in tree.levels]
    sequence = []  # of each player: place -> position, the empty sequence first
    for own in owners:
        places = np.flatnonzero(np.isin(np.arange(size) % n, own) & tree.legal.ravel())
        position = np.full(size + 1, -1)
        position[np.append(size, places)] = np.arange(len(places) + 1)
        sequence.append(position)
    x, y = (int(position.max()) + 1 for position in sequence)
    payoff = scipy.sparse.coo_array(
        (tree.chance * _scaled(tree.payoffs[0]), (sequence[0][tree.leaf[0]], sequence[1][tree.leaf[1]])), shape=(x, y)
    ).tocsr()
    plan, behind = (_flow(tree, own, position) for own, position in zip(owners, sequence, strict=True))
    q = behind.shape[0]
    found = _program(
        "nash",
        np.concatenate([np.zeros(x), [-1.0], np.zeros(q - 1)]),
        A_ub=scipy.sparse.hstack([-payoff.T, behind.T]).tocsr(),
        b_ub=np.zeros(y),
        A_eq=scipy.sparse.hstack([plan, scipy.sparse.csr_array((plan.shape[0], q))]).tocsr(),
        b_eq=np.append(1.0, np.zeros(plan.shape[0] - 1)),
        bounds=[(0, None)] * x + [(None, None)] * q,
    )
    policy = np.zeros(tree.legal.shape)
    for own, position, weights in zip(owners, sequence, (found.x[:x], -found.ineqlin.marginals), strict=True):
        flat = np.where(position >= 0, np.maximum(weights, 0.0)[np.maximum(position, 0)], 0.0)
        policy[:, own] = tree.policy(flat)[:, own]
    return policy


def _flow(tree: Tree, own: np.ndarray, position: np.ndarray) -> scipy.sparse.csr_array:
    """Constraints of a plan: row 0 the empty sequence, then per information set its actions less its parent."""
    rows, columns, values = [0], [0], [1.0]
    for row, i in enumerate(own, 1):
        places = np.flatnonzero(tree.legal[:, i]) * tree.legal.shape[1] + i
        rows += [row] * (len(places) + 1)
        columns += [*position[places], position[tree.parent[i]]]
        values += [1.0] * len(places) + [-1.0]
    return scipy.sparse.csr_array((values, (rows, columns)), shape=(len(own) + 1, int(position.max()) + 1))


def best_cce(game: Game) -> np.ndarray:
    """Coarse correlated equilibrium of a `Game` of largest welfare (sum of payoffs): a distribution over profiles.

    A joint one, float64[S_1, …, S_N].

    Maximises Σ_a p(a) Σ_i u_i(a) over distributions p of cells such that no player gains by a fixed strategy instead
    of what p draws for it: Σ_a p(a) [u_i(b, a_{-i}) - u_i(a)] <= 0 for every player i and strategy b.
    """
    constraints = []
    for i, table in enumerate(map(_scaled, game.payoffs)):
        for b in range(table.shape[i]):
            constraints.append((np.take(table, [b], axis=i) - table).ravel())
    cells = game.payoffs[0].size
    found = _program(
        "cce",
        -np.sum(_scaled(np.stack(game.payoffs)), axis=0).ravel(),
        A_ub=np.array(constraints),
        b_ub=np.zeros(len(constraints)),
        A_eq=np.ones((1, cells)),
        b_eq=[1.0],
    )
    return _share(found.x).reshape(game.shape)


def _scaled(payoffs: np.ndarray) -> np.ndarray:
    """Payoffs between 0 and 1 if they are of another order: what HiGHS neglects is absolute. Equilibria stay."""
    spread = float(np.ptp(payoffs))
    if spread == 0 or (spread >= 1e-3 and np.abs(payoffs).max() <= 1e6):
        return payoffs
    return np.asarray((payoffs - payoffs.min()) / spread)


def _program(solver: str, cost: np.ndarray, **constraints: Any) -> Any:
    """Solves a linear program; InputError where it has no solution."""
    found = scipy.optimize.linprog(cost, method="highs", **constraints)
    if found.x is None:
        raise InputError(f"{solver}: the linear program was not solved: {found.message}")
    return found


def _share(x: np.ndarray) -> np.ndarray:
    x = np.maximum(x, 0.0)
    return np.asarray(x / x.sum())
