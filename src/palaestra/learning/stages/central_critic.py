"""A critic that sees what all agents see, for policies that act on what each sees itself (MAPPO)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from palaestra.algebra.parse import parse
from palaestra.algebra.signals import col, evaluate
from palaestra.algebra.turns import Turns
from palaestra.credit import gae
from palaestra.errors import InputError
from palaestra.learning.stages.critic import VALUE
from palaestra.learning.stages.stage import Context, Stage, stage

if TYPE_CHECKING:
    from palaestra.learning.critics import ValueNetwork


@stage
class central_critic(Stage):
    """Stage: column `value`, V of each turn from the arrays of all agents of the turn, as in MAPPO (arXiv 2103.01955).

    Learned from λ-returns that are scaled to mean 0 and deviation 1 of all that was learned from so far, after `value`
    has been filled in. The input is what each agent of the turn sees, in the order of their names, and which of them
    the row's agent is. `critic(model="network")` sees the agent's own array alone (IPPO).

    reward: text of a signal. gamma, lam: of the λ-return. hidden, lr, steps, batch: of the network; steps of Adam per
    iteration.

    Raises:
        InputError: a number is out of range; or rows have no arrays, or turns differ in who acts.
    """

    adds = {"value": VALUE}

    def __init__(
        self,
        *,
        reward: str = "reward",
        gamma: float = 0.99,
        lam: float = 0.95,
        hidden: Sequence[int] = (64, 64),
        lr: float = 1e-3,
        steps: int = 40,
        batch: int = 512,
    ) -> None:
        if steps < 1 or batch < 1 or not lr > 0:
            raise InputError(f"central_critic: steps={steps} and batch={batch} must be at least 1, lr={lr} above 0")
        self.goal = col("value") + gae("value", parse(reward), gamma=gamma, lam=lam)
        self.hidden, self.lr, self.steps, self.batch = tuple(hidden), lr, steps, batch
        self.moments = np.zeros(3)  # number, mean and sum of squared deviations of the returns so far
        self.network: ValueNetwork | None = None
        self.needs = {"features", "episode", "agent", "turn", *self.goal.needs()} - {"value"}

    def __call__(self, turns: Turns, context: Context) -> Turns:
        """The table with `value`."""
        x = joint_arrays(turns)
        network = self._network(x.shape[1], context.seed)
        mean, deviation = self._scale()
        turns = turns.with_column(value=mean + deviation * network.predict(x))
        (goal,) = evaluate(turns, self.goal)
        if not isinstance(goal, np.ndarray):
            raise InputError("central_critic: the reward has one value per token; use token_critic()")
        self._count(goal[~np.isnan(goal)])
        mean, deviation = self._scale()
        network.fit(x, (goal - mean) / deviation, context.rng, steps=self.steps, batch=self.batch)
        return turns

    def _scale(self) -> tuple[float, float]:
        number, mean, squares = self.moments.tolist()
        return mean, float(np.sqrt(squares / number)) if number > 1 and squares > 0 else 1.0

    def _count(self, new: np.ndarray) -> None:
        """Join the moments of further values to those so far."""
        number, mean, squares = self.moments
        total = number + len(new)
        if len(new):
            shift = new.mean() - mean
            squares += ((new - new.mean()) ** 2).sum() + shift**2 * number * len(new) / total
            self.moments = np.array([total, mean + shift * len(new) / total, squares])

    def _network(self, inputs: int, seed: int) -> ValueNetwork:
        if self.network is None:
            from palaestra.learning.critics import ValueNetwork

            self.network = ValueNetwork(inputs, hidden=self.hidden, lr=self.lr, seed=seed)
        return self.network

    def state_dict(self) -> dict[str, Any]:
        """State: moments of the returns, and the network with its optimiser."""
        return {"moments": self.moments, "network": self.network and self.network.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Inverse of `state_dict`."""
        self.moments, self.network = np.array(state["moments"], float), None
        if state["network"]:
            self._network(int(state["network"]["inputs"]), 0).load_state_dict(state["network"])


def joint_arrays(turns: Turns) -> np.ndarray:
    """Array, a row per row of `Turns`, for a central critic: all agents' arrays of its turn, one-hot agent; or raises.

    Returns:
        float64[rows, sum of features + agents].

    Raises:
        InputError: a row has no array, or turns differ in who acts.
    """
    frame = turns.frame
    if frame["features"].null_count():
        raise InputError("central_critic: a turn has no array; it needs an env that shows arrays")
    keys = [key for key in ("run", "iteration", "group", "episode", "turn") if key in frame.columns]
    rows = frame.select(*keys, pl.col("agent").cast(pl.String), "features").with_row_index("row").sort(*keys, "agent")
    agents = rows["agent"].unique().sort()
    n = len(agents)
    if len(rows) % n or not (rows["agent"].to_numpy().reshape(-1, n) == agents.to_numpy()).all():
        raise InputError(
            f"central_critic: in some turns not all of {', '.join(agents)} act; it needs envs in which all act at once"
        )
    widths = rows["features"].list.len().to_numpy().reshape(-1, n)
    if not (widths == widths[0]).all():
        raise InputError("central_critic: an agent's arrays differ in length from turn to turn")
    seen = rows["features"].explode().to_numpy().astype(float).reshape(len(widths), -1)
    found = np.hstack([np.repeat(seen, n, axis=0), np.tile(np.eye(n), (len(widths), 1))])
    back = np.empty_like(found)
    back[rows["row"].to_numpy()] = found
    return back
