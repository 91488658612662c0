"""Policies without training, from play without rewards: forward and backward embeddings of states (arXiv 2103.07945).

A successor measure says how often each state is met after each choice. Factored into F · B it answers every reward at
once: B of the states that are wanted makes a task vector, and the best choice is the one with the largest F · vector.
Left out: networks for F and B; both are computed from counts, for up to some thousand states.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from palaestra.agents.qtable import QTablePolicy
from palaestra.errors import InputError

if TYPE_CHECKING:
    from palaestra.algebra.turns import Turns

MOST_STATES = 4000
SWEEPS = 500
CLOSE = 1e-6


class ForwardBackward:
    """Forward-backward representation fitted to a table without rewards; makes Q-table policies for later tasks.

    B, float64[states, rank], are the leading singular vectors of the successor measure of the play in the table, per
    visit of a state; over the table its columns are orthonormal. So the task vector of wanted states, the mean of
    their B, stands for the reward (share of wanted states) / (share of visits), projected on B. F, float64[tasks,
    states, actions, rank], is the discounted sum of B to come under the best policy of each of `tasks` known vectors,
    those of states far from each other; a new vector takes the best of them (generalised policy improvement, arXiv
    1606.05312). The published F is a network of state, action and vector instead (a reconstruction here).

    Args:
        turns: Play of one agent, with `state`, `action_ids` and `features`; no column of rewards is read.
        rank: Length of the embeddings; more is truer to the table.
        gamma: γ in (0, 1).
        tasks: Number of known task vectors.
        actions: Number of choices; default: the largest that was taken, and those before it.

    Raises:
        InputError: A number is out of range, there are no turns with features, or too many states.
    """

    def __init__(
        self, turns: Turns, *, rank: int = 16, gamma: float = 0.95, tasks: int = 64, actions: int | None = None
    ) -> None:
        if not 0 < gamma < 1 or rank < 1 or tasks < 1:
            raise InputError(f"forward_backward: gamma={gamma} in (0, 1), rank={rank} and tasks={tasks} of at least 1")
        frame = _steps(turns)
        states = frame.unique("state", keep="first", maintain_order=True)
        self.keys = states["state"].to_list()
        if not self.keys or len(self.keys) > MOST_STATES:
            raise InputError(
                f"forward_backward: turns with features in {len(self.keys)} states, expected 1 to {MOST_STATES}"
            )
        self.features = np.array(states["features"].to_list(), float)
        self.gamma, self.actions = gamma, actions or 1 + int(frame["_action"].max())  # type: ignore[arg-type]
        here, there = _numbers(frame["state"], self.keys), _numbers(frame["_after"], self.keys)
        counts = np.zeros((len(self.keys), self.actions, len(self.keys)))
        goes_on = there >= 0
        np.add.at(counts, (here[goes_on], frame["_action"].to_numpy()[goes_on], there[goes_on]), 1.0)
        visits = np.bincount(here, minlength=len(self.keys)) + np.bincount(there[goes_on], minlength=len(self.keys))
        self.share = visits / visits.sum()
        self.tried = counts.sum(-1) > 0
        self.moves = counts / np.maximum(counts.sum(-1, keepdims=True), 1)
        walk = counts.sum(1) / np.maximum(counts.sum((1, 2))[:, None], 1)
        self.backward = self._backward(walk, rank)
        known = spread(self.features, tasks)
        self.forward = np.stack([self._forward(self.backward[each]) for each in known])

    def _backward(self, walk: np.ndarray, rank: int) -> np.ndarray:
        """B from the play's own successor measure, whose density is over visits."""
        measure = np.linalg.solve(np.eye(len(walk)) - self.gamma * walk, walk)
        root = np.sqrt(self.share)
        _, _, right = np.linalg.svd(root[:, None] * measure / root)
        return np.asarray(right[:rank].T / root[:, None])

    def _forward(self, vector: np.ndarray) -> np.ndarray:
        """F of every state and action under the best policy for a vector, float64[states, actions, rank]."""
        paid, value = self.backward @ vector, np.zeros(len(self.keys))
        for _ in range(SWEEPS):
            choice = np.where(self.tried, self.moves @ (paid + self.gamma * value), -np.inf).max(1)
            best = np.where(np.isfinite(choice), choice, 0.0)  # nothing is known of what follows
            done = np.abs(best - value).max() < CLOSE * max(np.abs(best).max(), 1.0)
            value = best
            if done:
                break
        chosen = np.where(self.tried, self.moves @ (paid + self.gamma * value), -np.inf).argmax(1)
        follow = self.moves[np.arange(len(chosen)), chosen]
        met = np.linalg.solve(np.eye(len(follow)) - self.gamma * follow, follow) @ self.backward
        return np.asarray(self.moves @ (self.backward + self.gamma * met))

    def project(self, frames: np.ndarray) -> np.ndarray:
        """Index of the state whose features are nearest to each imagined frame, int64[frames].

        Args:
            frames: Features, float[frames, features]; a feature counts in units of its deviation over the states.

        Raises:
            InputError: There are none, or they have another length.
        """
        frames = np.asarray(frames, float)
        if frames.ndim != 2 or not len(frames) or frames.shape[1] != self.features.shape[1]:
            raise InputError(
                f"forward_backward: frames of shape {list(frames.shape)}, expected at least one with "
                f"{self.features.shape[1]} features"
            )
        scale = self.features.std(0)
        scale[scale == 0] = 1.0
        far = ((frames[:, None] - self.features) / scale) ** 2
        return np.asarray(far.sum(-1).argmin(1))

    def task(self, frames: np.ndarray) -> np.ndarray:
        """Task vector of imagined frames, float64[rank]: the mean backward embedding of their nearest states."""
        return np.asarray(self.backward[self.project(frames)].mean(0))

    def values(self, vector: np.ndarray) -> np.ndarray:
        """Q-values of every action for a task vector, float64[states, actions]; -inf where it was never tried."""
        return np.where(self.tried, (self.forward @ vector).max(0), -np.inf)

    def policy(self, vector: np.ndarray, *, name: str = "forward_backward") -> QTablePolicy:
        """Q-table policy that is greedy for a task vector; in a state that is not in the table it acts at random."""
        made = QTablePolicy(self.actions, name=name, capacity=len(self.keys), decay=1e6, least=0.0)
        worth = self.values(vector)
        low = worth[np.isfinite(worth)].min(initial=0.0) - 1.0
        worth = np.where(np.isfinite(worth), worth, low)
        places = np.repeat(made.places(self.keys), self.actions)
        made.learn(places, np.tile(np.arange(self.actions), len(self.keys)), worth.reshape(-1), 1.0)
        made.count()
        return made


def spread(points: np.ndarray, most: int) -> list[int]:
    """List of indices of up to `most` rows of array `points` by farthest-first traversal, beginning with row 0."""
    chosen, far = [0], np.full(len(points), np.inf)
    while len(chosen) < min(most, len(points)):
        far = np.minimum(far, ((points - points[chosen[-1]]) ** 2).sum(-1))
        far[chosen] = -1.0
        chosen.append(int(far.argmax()))
    return chosen


def _steps(turns: Turns) -> pl.DataFrame:
    """Turns with what their agent saw next in the episode, in order."""
    for column in ("state", "action_ids", "features", "group", "episode", "turn", "agent"):
        turns[column]
    frame = turns.frame.filter(pl.col("features").is_not_null(), pl.col("action_ids").is_not_null())
    frame = frame.sort("turn", maintain_order=True)
    keys = [key for key in ("run", "iteration", "group", "episode", "agent") if key in frame.columns]
    after = pl.col("state").shift(-1).over(keys).alias("_after")
    return frame.with_columns(after, pl.col("action_ids").list.first().cast(pl.Int64).alias("_action"))


def _numbers(states: pl.Series, keys: list[int]) -> np.ndarray:
    places = {key: number for number, key in enumerate(keys)}
    return np.array([-1 if key is None else places.get(key, -1) for key in states.to_list()], np.int64)
