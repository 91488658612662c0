"""Collect a prescribed number of samples of every state and action: GOSPRL [86] (arXiv 2007.06437).

The world is tabular, unknown and never reset. While some count N(s, a) is below the need b(s, a), a state that lacks
samples gives its most lacking action; from any other one the shortest optimistic way to the states that lack some is
walked, until one is reached or a count has doubled since the plan was made. The paper bounds the steps by
Õ(B·D + D^(3/2)·S²·A), B = Σ b, D the diameter. Here optimism is that of Tarbouriech et al. (arXiv 2104.11186): after n
samples a move counts as n/(n + 1) of what was seen and 1/(n + 1) of an arrival. The paper's confidence sets are left
out.
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from palaestra.errors import InputError

Method = Literal["planner", "random"]


class CoveragePlanner:
    """Exploration planner of a tabular world: `act(state)` until each (state, action) was sampled `need` times.

    Args:
        need: samples that are wanted, number[states, actions], not negative. `need` may be set anew at any time.
        seed: of the random actions of method "random".
        method: "planner"; or "random", which takes the lacking action of a state that lacks one, and any other
            otherwise.

    Attributes:
        counts: transitions that were seen, int[states, actions, states].

    Raises:
        InputError: `need` has another shape, or is negative or not finite.
    """

    def __init__(self, need: np.ndarray, *, seed: int = 0, method: Method = "planner") -> None:
        need = np.asarray(need, float)
        if need.ndim != 2 or not need.size or not np.isfinite(need).all() or (need < 0).any():
            raise InputError(
                f"CoveragePlanner: need is a table [states, actions] of numbers from 0, found {need.shape}"
            )
        if method not in ("planner", "random"):
            raise InputError(f"CoveragePlanner: method={method!r} is one of planner, random")
        self.need, self.method = need, method
        self.counts = np.zeros((*need.shape, len(need)), np.int64)
        self.rng = np.random.default_rng(seed)
        self._way: np.ndarray | None = None
        self._doubled = np.zeros(need.shape)

    @property
    def lacking(self) -> np.ndarray:
        """Samples still missing, float[states, actions]."""
        missing: np.ndarray = np.maximum(self.need - self.counts.sum(2), 0)
        return missing

    @property
    def done(self) -> bool:
        """Whether every (state, action) has the samples it needs."""
        return not self.lacking.any()

    def act(self, state: int) -> int:
        """The action to take in a state: one that lacks samples there, else one towards a state that lacks some."""
        lacking = self.lacking
        if lacking[state].any():
            self._way = None
            return int(lacking[state].argmax())
        if self.method == "random":
            return int(self.rng.integers(self.need.shape[1]))
        if self._way is None or (self.counts.sum(2) >= self._doubled).any():
            goals: np.ndarray = lacking.any(1)  # type: ignore[assignment]
            self._way = shortest_way(self.counts, goals)
            self._doubled = 2 * np.maximum(self.counts.sum(2), 1)
        return int(self._way[state])

    def observe(self, state: int, action: int, after: int) -> None:
        """Count a transition that happened, in place."""
        self.counts[state, action, after] += 1


def optimistic_model(counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Pair (probabilities [S, A, S], goal's chance [S, A]) from counts of moves, n each: counts / (n + 1), 1 / (n + 1).

    Args:
        counts: int[states, actions, states].

    Returns:
        float[states, actions, states] and float[states, actions], which add up to 1.

    >>> seen, arrived = optimistic_model(np.array([[[3, 0], [0, 0]], [[1, 0], [0, 1]]]))
    >>> arrived.tolist()
    [[0.25, 1.0], [0.5, 0.5]]
    """
    n = counts.sum(2)
    return counts / (n + 1)[:, :, None], 1 / (n + 1)


def shortest_way(counts: np.ndarray, goals: np.ndarray, *, sweeps: int = 2000, tolerance: float = 1e-4) -> np.ndarray:
    """Action of each state on the shortest optimistic path to a goal state, int[states], by value iteration on counts.

    Args:
        counts: int[states, actions, states].
        goals: bool[states].
        sweeps: most sweeps; a world in which no goal is ever reached would need infinitely many.
        tolerance: in steps, at which the values count as found.

    Returns:
        int[states]; of equally short ways the first.
    """
    seen, _ = optimistic_model(counts)
    values = np.zeros(len(counts))
    for _sweep in range(sweeps):
        better = np.where(goals, 0.0, 1 + (seen @ values).min(1))
        change = float(np.abs(better - values).max())
        values = better
        if change < tolerance:
            break
    way: np.ndarray = (seen @ values).argmin(1)
    return way


def collect(
    transitions: np.ndarray, planner: CoveragePlanner, *, start: int = 0, seed: int = 0, most: int = 100_000
) -> int:
    """Number of steps of a `CoveragePlanner` in a world `transitions` [states, actions, states] until done, or `most`.

    Args:
        transitions: float[states, actions, states], of which the planner sees only what happens.
        planner: chooses and counts.
        start: first state.
        seed: of the world's chance.
        most: steps after which it is given up.

    Returns:
        Steps that were taken; `most` if that was not enough.
    """
    rng, state, chances = np.random.default_rng(seed), start, np.cumsum(transitions, axis=2)
    for step in range(most):
        if planner.done:
            return step
        action = planner.act(state)
        after = min(int(np.searchsorted(chances[state, action], rng.random(), side="right")), len(chances) - 1)
        planner.observe(state, action, after)
        state = after
    return most


def river(length: int = 6, forward: float = 0.35, back: float = 0.05) -> np.ndarray:
    """Transition probabilities of RiverSwim, float[length, 2, length]: action 0 goes back, 1 against the current.

    In the middle it goes forward with `forward`, back with `back`, else it stays; at the start it goes forward with .6,
    at the end back with .4.

    Returns:
        float[length, 2, length].
    """
    if length < 3 or not (forward > 0 and back >= 0 and forward + back <= 1):
        raise InputError(f"river: {length=} must be at least 3, {forward=} and {back=} chances, forward above 0")
    chances = np.zeros((length, 2, length))
    places = np.arange(length)
    chances[places, 0, np.maximum(places - 1, 0)] = 1
    middle = places[1:-1]
    chances[middle, 1, middle + 1], chances[middle, 1, middle - 1] = forward, back
    chances[middle, 1, middle] = 1 - forward - back
    chances[0, 1, :2] = 0.4, 0.6
    chances[-1, 1, -2:] = 0.4, 0.6
    return chances
