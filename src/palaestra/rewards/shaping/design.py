"""Designed rewards: what to pay, and where, so that a known goal is learned quickly and the best policy stays best.

EXPRD and its adaptive form are linear programmes over a table of rewards; ExploRS learns a table from rollouts alone.
All three are [15] (machine-teaching-group's released code is their reference). Left out: abstractions of large state
spaces.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import scipy

from palaestra.errors import InputError
from palaestra.rewards.shaping.mdp import optimal_q


@dataclass(frozen=True)
class Design:
    """Result of reward design: the designed reward float64[states, actions], and the objective left (lower is better).

    reward: float64[states, actions]; objective: what is left to inform about (0: every horizon shows every gap).
    """

    reward: np.ndarray
    objective: float


def design_reward(
    transitions: np.ndarray,
    reward: np.ndarray,
    gamma: float,
    *,
    active: Sequence[int] | None = None,
    horizons: Sequence[int] = (1, 2, 4, 8),
    limit: float = 1.0,
    sparsity: float = 0.0,
    learner: tuple[np.ndarray, np.ndarray] | None = None,
) -> Design:
    """`Design` of a tabular MDP (arrays, gamma): the most informative reward in [-limit, limit] that keeps π* (EXPRD).

    With a learner it is EXPADARD's.

    Every optimal action of the original reward stays better than every other by δ(s), the gap to the second best under
    the original reward, and level with the state's other optimal ones. EXPRD minimises
    mean over horizons H and states of max(0, max_a [δ(s) - gap_H(s, a)]), where gap_H is the advantage seen H steps
    ahead along the optimal policy, plus sparsity · Σ|R|. With a learner it maximises
    Σ μ*(s) μ_L(s) π_L(a|s) [A*(s,a) - E A*] R(s,a): what its next step from where it is now would gain.

    Args:
        transitions: P(s' | s, a), float64[states, actions, states].
        reward: the original reward, float64[states, actions].
        gamma: γ, the discount.
        active: states that may be paid for; default all.
        horizons: H, how many steps ahead a learner is thought to look.
        limit: largest absolute reward.
        sparsity: weight of Σ|R|.
        learner: its policy float64[states, actions] and its visits float64[states]; and μ* = 1.

    Raises:
        InputError: no reward on the active states keeps the optimal policy.
    """
    states, actions = reward.shape
    best_q = optimal_q(transitions, reward, gamma)
    best = best_q >= best_q.max(axis=1, keepdims=True) - 1e-9
    others = ~best
    delta = np.where(others.any(axis=1), best_q.max(axis=1) - np.where(others, best_q, -np.inf).max(axis=1), 0.0)
    policy = best / best.sum(axis=1, keepdims=True)
    step = np.einsum("sat,tb->satb", transitions, policy).reshape(states * actions, -1)
    mine = np.repeat(np.arange(states), actions)
    gap = policy[mine][:, None, :] * (np.arange(states) == mine[:, None])[:, :, None]
    gap = gap.reshape(states * actions, -1) - np.eye(states * actions)  # E under π* minus the action's own
    pays = np.zeros(states, bool)
    pays[list(range(states) if active is None else active)] = True
    bound = [(-limit, limit) if pays[state] else (0.0, 0.0) for state in mine]
    wrong = np.flatnonzero(others.ravel())
    whole = gap @ np.linalg.inv(np.eye(states * actions) - gamma * step)
    keep, floor = -whole[wrong], -delta[mine[wrong]]
    tied = np.flatnonzero((best & (best.sum(axis=1, keepdims=True) > 1)).ravel())
    even = whole[tied]  # = 0: where π* takes one of several actions, its values are those of each
    if learner is not None:
        advantage = best_q - best_q.max(axis=1, keepdims=True)
        lead = advantage - (learner[0] * advantage).sum(axis=1, keepdims=True)
        solved = scipy.optimize.linprog(
            -(learner[1][:, None] * learner[0] * lead).ravel(),
            A_ub=keep, b_ub=floor, A_eq=even, b_eq=np.zeros(len(tied)), bounds=bound,
        )  # fmt: skip
        _checked(solved, active)
        return Design(solved.x.reshape(states, actions), float(-solved.fun))
    seen, power, near = np.zeros_like(step), np.eye(states * actions), []
    for horizon in range(max(horizons) + 1):
        seen = seen + power
        power = gamma * power @ step
        if horizon in horizons:
            near.append((gap @ seen)[wrong])
    slack = len(near) * states
    rows = [np.hstack([keep, np.zeros((len(wrong), slack + states * actions))])]
    sides = [floor]
    for number, matrix in enumerate(near):  # δ(s) - gap_H(s, a) <= slack(H, s)
        owner = np.zeros((len(wrong), slack))
        owner[np.arange(len(wrong)), number * states + mine[wrong]] = -1.0
        rows.append(np.hstack([-matrix, owner, np.zeros((len(wrong), states * actions))]))
        sides.append(floor)
    one = np.eye(states * actions)
    for sign in (1.0, -1.0):  # ±R <= its size
        rows.append(np.hstack([sign * one, np.zeros((states * actions, slack)), -one]))
        sides.append(np.zeros(states * actions))
    cost = np.concatenate([np.zeros(states * actions), np.full(slack, 1 / slack), np.full(states * actions, sparsity)])
    free = [(0.0, None)] * (slack + states * actions)
    even = np.hstack([even, np.zeros((len(tied), len(free)))])
    solved = scipy.optimize.linprog(
        cost,
        A_ub=np.vstack(rows), b_ub=np.concatenate(sides), A_eq=even, b_eq=np.zeros(len(tied)), bounds=[*bound, *free],
    )  # fmt: skip
    _checked(solved, active)
    return Design(solved.x[: states * actions].reshape(states, actions), float(solved.fun))


def _checked(solved: object, active: Sequence[int] | None) -> None:
    if not solved.success:  # type: ignore[attr-defined]
        where = "any state" if active is None else f"the states {list(active)}"
        raise InputError(f"design_reward: no reward on {where} keeps the optimal policy; allow more states")


def explicable(
    transitions: np.ndarray, reward: np.ndarray, gamma: float, size: int, *, horizons: Sequence[int] = (1, 2, 4, 8)
) -> list[tuple[list[int], Design]]:
    """EXPRD's greedy supports of an MDP (arrays, gamma): list of (states, `Design`) for 1 to `size` states with reward.

    Each time the state whose reward lowers the objective most is added.

    Supports on which the optimal policy cannot be kept are passed over.

    Raises:
        InputError: no single state suffices to start with.
    """
    chosen: list[int] = []
    steps = []
    for _ in range(size):
        found = []
        for state in range(len(reward)):
            if state not in chosen:
                try:
                    found.append(
                        (design_reward(transitions, reward, gamma, active=[*chosen, state], horizons=horizons), state)
                    )
                except InputError:
                    continue
        if not found:
            raise InputError("explicable: no state can be added that keeps the optimal policy")
        design, state = min(found, key=lambda each: (round(each[0].objective, 9), each[1]))
        chosen.append(state)
        steps.append((list(chosen), design))
    return steps


@dataclass
class ExploRS:
    """Tabular learned reward, r̂ = r + f(s, a) + λ / √(λ²/B² + N(s')): `reward(…)` counts visits, `update(…)` moves f.

    f is a learned table; the other term is a bonus for rarely visited states.

    `update` moves f so that the policy would have done more of what the original reward turned out to be good for:
    f[s, ·] += η · π(a|s) · (G - V(s)) · (1[a] - π(·|s)) for every visited (s, a); V is the running mean of G. Terminal
    states earn no bonus. λ = B = 1, η = 0.01 as released; there f is updated every 5 policy updates, from 10 episodes.
    """

    states: int
    actions: int
    scale: float = 1.0
    most: float = 1.0
    rate: float = 0.01
    table: np.ndarray = field(init=False)
    visits: np.ndarray = field(init=False)
    value: np.ndarray = field(init=False)
    seen: np.ndarray = field(init=False)

    def __post_init__(self) -> None:
        self.table = np.zeros((self.states, self.actions))
        self.visits, self.value, self.seen = (np.zeros(self.states) for _ in range(3))

    def reward(
        self, state: np.ndarray, action: np.ndarray, reward: np.ndarray, after: np.ndarray, terminal: np.ndarray
    ) -> np.ndarray:
        """Designed reward r̂ of a batch of turns, whose arrivals are counted first; terminal: the episode ended."""
        np.add.at(self.visits, after[~terminal], 1.0)
        bonus = self.scale / np.sqrt(self.scale**2 / self.most**2 + self.visits[after])
        return np.asarray(reward + self.table[state, action] + np.where(terminal, 0.0, bonus))

    def update(self, state: np.ndarray, action: np.ndarray, returns: np.ndarray, policy: np.ndarray) -> None:
        """Move the table f by one step of the design gradient, for the latest policy.

        returns: the original return-to-go of each turn; policy: float64[states, actions].
        """
        lead = policy[state, action] * (returns - self.value[state])
        move = np.eye(self.actions)[action] - policy[state]
        np.add.at(self.table, state, self.rate * lead[:, None] * move)
        np.add.at(self.seen, state, 1.0)
        np.add.at(self.value, state, (returns - self.value[state]) / np.maximum(self.seen[state], 1.0))
