"""Critics: values of turns learned from replayed transitions, and of growing prefixes of a team's joint action.

Tables, in NumPy: states and actions are integers (`Turns.codes` makes them of anything). Critics on vectors, such as
encodings of text, have the same targets and live where torch is allowed: `palaestra.learning.critics`.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Hashable, Sequence
from typing import Literal, NamedTuple, TypeVar

import numpy as np

from palaestra.algebra.potentials import potential_difference
from palaestra.algebra.signals import Keys, Signal, SignalLike, as_signal, per_token, register
from palaestra.errors import InputError, nearest

Plan = TypeVar("Plan")


class Replay(NamedTuple):
    """Data: transitions of turns as arrays: states, actions, rewards, next states, and whether the episode ended."""

    state: np.ndarray
    action: np.ndarray
    reward: np.ndarray
    after: np.ndarray
    done: np.ndarray


class Fresh(NamedTuple):
    """Data: actions that the current policy would take now: int64[n] states, and one sampled action of each."""

    state: np.ndarray
    action: np.ndarray


class TurnCritic:
    """ArCHer's upper-level critic (arXiv 2402.19446), tables [states, actions]: two Q and two V with slow targets.

    Q target: r + γ·(1 - done)·V_target(s'); V target: Q_target(s, a) with a freshly sampled from the policy; squared
    errors; targets move by `tau` after each batch. The two heads see different batches of the replay.

    Args:
        states, actions: how many there are. rate: step size on the squared error, at most 1.
    """

    def __init__(self, states: int, actions: int, *, gamma: float = 0.9, tau: float = 0.1, rate: float = 0.5) -> None:
        if not (0 <= gamma <= 1 and 0 < tau <= 1 and 0 < rate <= 1):
            raise InputError(
                f"TurnCritic: gamma={gamma}, tau={tau} and rate={rate} must lie in [0, 1], the last two above 0"
            )
        self.gamma, self.tau, self.rate = gamma, tau, rate
        self.q, self.v = np.zeros((2, states, actions)), np.zeros((2, states))
        self.q_target, self.v_target = self.q.copy(), self.v.copy()

    def fit(
        self, replay: Replay, fresh: Fresh, rng: np.random.Generator, *, batches: int = 20, size: int = 256
    ) -> TurnCritic:
        """Learn Q from random batches of the replay, V from those of `fresh`.

        Raises:
            InputError: the replay is empty, or has states or actions that the tables lack.
        """
        if not len(replay.state) or not len(fresh.state):
            raise InputError("TurnCritic.fit: the replay has no transitions; play some episodes first")
        highest = max(replay.state.max(), replay.after.max()) + 1, replay.action.max() + 1
        if highest[0] > self.q.shape[1] or highest[1] > self.q.shape[2]:
            raise InputError(
                f"TurnCritic.fit: the replay needs {highest[0]} states and {highest[1]} actions, the critic has "
                f"{self.q.shape[1]} and {self.q.shape[2]}"
            )
        for _ in range(batches):
            for head in range(2):
                rows = rng.integers(len(replay.state), size=size)
                state, action, reward, after, done = (column[rows] for column in replay)
                goal = reward + self.gamma * (1 - done) * self.v_target[head, after]
                _towards(self.q[head], (state, action), goal, self.rate)
                rows = rng.integers(len(fresh.state), size=size)
                now, taken = fresh.state[rows], fresh.action[rows]
                _towards(self.v[head], (now,), self.q_target[head, now, taken], self.rate)
            self.q_target += self.tau * (self.q - self.q_target)
            self.v_target += self.tau * (self.v - self.v_target)
        return self

    def grow(self, states: int, actions: int) -> None:
        """Enlarge the tables to at least so many states and actions; new entries are 0."""
        more = max(0, states - self.q.shape[1]), max(0, actions - self.q.shape[2])
        if any(more):
            self.q, self.q_target = (
                np.pad(each, ((0, 0), (0, more[0]), (0, more[1]))) for each in (self.q, self.q_target)
            )
            self.v, self.v_target = (np.pad(each, ((0, 0), (0, more[0]))) for each in (self.v, self.v_target))

    def values(self, state: np.ndarray, action: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """min(Q1, Q2) and min(V1, V2), float64[n] each: what `archer` calls q and v."""
        return self.q[:, state, action].min(axis=0), self.value(state)

    def state_dict(self) -> dict[str, np.ndarray]:
        """The Q and V tables and their targets, by name."""
        return {"q": self.q, "v": self.v, "q_target": self.q_target, "v_target": self.v_target}

    def load_state_dict(self, state: dict[str, np.ndarray]) -> None:
        """Restore the tables from what `state_dict` gave."""
        for name in ("q", "v", "q_target", "v_target"):
            setattr(self, name, np.array(state[name]))

    def advantage(self, state: np.ndarray, action: np.ndarray) -> np.ndarray:
        """Advantage min(Q1, Q2) - min(V1, V2) of each state and action, float64[n]."""
        return np.asarray(self.q[:, state, action].min(axis=0) - self.v[:, state].min(axis=0))

    def value(self, state: np.ndarray) -> np.ndarray:
        """Value min(V1, V2) of each state, float64[n]: what `gae` calls value."""
        return np.asarray(self.v[:, state].min(axis=0))


def _towards(table: np.ndarray, index: tuple[np.ndarray, ...], goal: np.ndarray, rate: float) -> None:
    """One gradient step on the squared error of every cell, with the mean over its rows as its goal."""
    cell = np.ravel_multi_index(index, table.shape)
    counts = np.bincount(cell, minlength=table.size)
    seen = counts > 0
    flat = table.reshape(-1)
    mean = np.bincount(cell, goal, table.size)[seen] / counts[seen]
    flat[seen] += rate * (mean - flat[seen])


@register()
def archer(q: SignalLike = "q", v: SignalLike = "v", *, baseline: SignalLike | None = None) -> Signal:
    """Signal: [89] ArCHer (arXiv 2402.19446), advantage q - v of each turn from columns of `q_critic()`; no return.

    q, v: smaller of two heads each, from the stage `q_critic()`. The released code was read; it samples *new* actions
    at replayed states, which are the rows that train then: `q_critic(rows="fresh")`.
    baseline: optional, a value per token that is subtracted, e.g. of `palaestra.learning.critics.TokenBaseline`.
    """
    advantage = as_signal(q) - as_signal(v)
    return advantage if baseline is None else per_token(advantage, like=baseline) - as_signal(baseline)


# -- teams that act one after the other -------------------------------------------------------------------------------


@register()
def sequential_advantage(
    prefix_value: SignalLike = "prefix_value", value: SignalLike = "value", *, over: Keys = ("episode", "turn")
) -> Signal:
    """Signal: ReAd's advantage of each agent in a turn: `prefix_value` minus the agent's before; the first's minus V.

    prefix_value: Q of the joint action up to this row; agents decide in the order of their names, as in
    `sequential_update`. The sum over the agents is the advantage of the joint action, exactly.
    """
    return potential_difference(prefix_value, first=value, over=over)


class PrefixCritic:
    """Tabular critic Q(s, a_1..a_i): the mean return of what was played after a state and the first i actions.

    A prefix that was never played has the value of its longest known one; a state that is unknown has the mean of all,
    0 before any play. Wait or no-op needs no filling in, because shorter prefixes are cells of their own. rate: least
    step towards a new return; 0, ReAd's, is the plain mean, more forgets what older policies earned.
    """

    def __init__(self, *, rate: float = 0.0) -> None:
        if not 0 <= rate <= 1:
            raise InputError(f"PrefixCritic: rate={rate} must lie in [0, 1]")
        self.rate = rate
        self.cells: dict[tuple[Hashable, ...], tuple[float, int]] = {}

    def fit(
        self, states: Sequence[Hashable], actions: Sequence[Sequence[Hashable]], returns: Sequence[float]
    ) -> PrefixCritic:
        """Update the averages by plays: a state, the agents' actions in order, and the Monte-Carlo return after them.

        Raises:
            InputError: not as many of each.
        """
        if not len(states) == len(actions) == len(returns):
            raise InputError(
                f"PrefixCritic.fit: {len(states)} states, {len(actions)} joint actions, {len(returns)} returns; "
                "give one of each per play"
            )
        for state, joint, value in zip(states, actions, returns, strict=True):
            for cell in [(), *((state, *joint[:size]) for size in range(len(joint) + 1))]:
                mean, number = self.cells.get(cell, (0.0, 0))
                step = max(1.0 / (number + 1), self.rate)
                self.cells[cell] = mean + step * (float(value) - mean), number + 1
        return self

    def value(self, state: Hashable, prefix: Sequence[Hashable] = ()) -> float:
        """Q of a state and a prefix of the joint action; V(s) for the empty prefix."""
        for size in range(len(prefix), -1, -1):
            if (cell := (state, *prefix[:size])) in self.cells:
                return self.cells[cell][0]
        return self.cells.get((), (0.0, 0))[0]

    def advantage(self, state: Hashable, prefix: Sequence[Hashable]) -> float:
        """Advantage of the last action of the prefix, given those before: Q(prefix) - Q(prefix without it)."""
        return self.value(state, prefix) - self.value(state, prefix[:-1])


def refinement(
    advantage: Callable[[list[Plan], Plan], float],
    *,
    agents: int = 1,
    threshold: float = 0.0,
    max_queries: int = 10,
    order: Literal["sequential", "joint"] = "sequential",
) -> Generator[tuple[list[Plan], str | None], Plan, tuple[list[Plan], int]]:
    """Generator of `refine`'s loop by `advantage` (ReAd): yields (plans decided, feedback), is sent a plan.

    It returns what `refine` returns.
    """
    if order not in ("sequential", "joint"):
        raise InputError(f"refine: order={order!r}{nearest(str(order), ['sequential', 'joint'])}")
    if max_queries < 1:
        raise InputError(f"refine: max_queries={max_queries} must be at least 1")
    decided: list[Plan] = []
    queries = 0
    for _ in range(agents if order == "sequential" else 1):
        best: tuple[float, Plan] | None = None
        feedback = None
        for _ in range(max_queries):
            plan = yield list(decided), feedback
            queries += 1
            score = advantage(decided, plan)
            if best is None or score > best[0]:
                best = score, plan
            if score >= threshold:
                break
            feedback = (
                f"The plan {plan} has an expected advantage of {score:.3f}, below {threshold:.3f}. Propose another."
            )
        assert best is not None
        decided.append(best[1])
    return decided, queries


def refine(
    propose: Callable[[list[Plan], str | None], Plan],
    advantage: Callable[[list[Plan], Plan], float],
    *,
    agents: int = 1,
    threshold: float = 0.0,
    max_queries: int = 10,
    order: Literal["sequential", "joint"] = "sequential",
) -> tuple[list[Plan], int]:
    """Asks `propose` anew (ReAd, arXiv 2405.14314) until each plan's `advantage` is at `threshold`: (plans, queries).

    propose: the plans decided so far in this turn and feedback on the last proposal (None at first) to the next plan.
    advantage: of a plan after those decided. Below `threshold` its score goes back to the planner, at most
    `max_queries` times per plan; then the best of its proposals is taken. sequential (ReAd-S): agent by agent; joint
    (ReAd-J): one plan for all, scored by the joint advantage. In an env it is the workflow `advantage_feedback`.

    Returns:
        the accepted plans, one per agent or a single joint one, and the number of queries.

    Raises:
        InputError: the order is unknown, or no query is allowed.
    """
    loop = refinement(advantage, agents=agents, threshold=threshold, max_queries=max_queries, order=order)
    try:
        asked = next(loop)
        while True:
            asked = loop.send(propose(*asked))
    except StopIteration as done:
        return done.value  # type: ignore[no-any-return]
