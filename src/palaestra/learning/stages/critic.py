"""Critics: the value of what is seen, learned from what was earned afterwards, so that `gae()` and its kin train.

A value is filled in from what was learned before this iteration, and only then learned from it: a baseline that knows
the return it is subtracted from would be biased. Left out: a critic on the policy's own trunk.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import polars as pl

from palaestra.algebra.parse import parse
from palaestra.algebra.signals import Signal, evaluate
from palaestra.algebra.turns import Turns
from palaestra.credit import gae, value_target
from palaestra.errors import InputError, nearest
from palaestra.learning.stages.cells import Cells, keys_of, vectors
from palaestra.learning.stages.stage import Context, Stage, stage

if TYPE_CHECKING:
    from palaestra.learning.critics import TokenBaseline, ValueNetwork

VALUE = "what the agent is expected to earn from this turn on, as known before this iteration"


@stage
class critic(Stage):
    """Stage: column `value`, V of each turn by a critic that is trained on λ-returns.

    λ-returns are V + GAE(γ, λ), with λ = 1 the discounted return-to-go.

    model: "table", running means by the key `over`; "network", on the env's array or the hashed text. reward, target:
    texts of signals; target replaces the λ-return. finished: learn from episodes only that ended by the rules, as
    T-PPO [59] does. reads: further columns of lists that the network reads, such as
    `context`. rate: of the table, the least step of an iteration (`Cells`). hidden, size (of the hashed text), lr,
    steps, batch: of the network; steps of Adam per iteration.

    Credit that uses it: `gae()`, `tppo()`, `spa(value="value")`. A baseline of each role that is kept across iterations
    (RAE) is `critic(over="agent", target="agent_return()", rate=0.05)` with credit `agent_return() - col("value")`.

    Raises:
        InputError: no such model, or a number is out of range.
    """

    adds = {"value": VALUE}

    def __init__(
        self,
        model: Literal["table", "network"] = "table",
        *,
        over: str | Sequence[str] = ("agent", "state"),
        reward: str = "reward",
        target: str | None = None,
        gamma: float = 1.0,
        lam: float = 1.0,
        finished: bool = False,
        reads: Sequence[str] = (),
        rate: float = 0.1,
        hidden: Sequence[int] = (64,),
        size: int = 128,
        lr: float = 1e-2,
        steps: int = 20,
        batch: int = 256,
    ) -> None:
        if model not in ("table", "network"):
            raise InputError(f"critic: model={model!r}{nearest(str(model), ['network', 'table'])}")
        if steps < 1 or batch < 1 or size < 1 or not lr > 0:
            raise InputError(
                f"critic: steps={steps}, batch={batch} and size={size} must be at least 1, lr={lr} above 0"
            )
        self.model, self.over = model, (over,) if isinstance(over, str) else tuple(over)
        self.gamma, self.finished, self.reads = gamma, finished, (reads,) if isinstance(reads, str) else tuple(reads)
        self.reward = parse(reward)
        if target is None:
            self.target = (
                value_target(self.reward, gamma=gamma)
                if finished and lam == 1
                else _lambda_return(self.reward, gamma, lam, finished)
            )
        else:
            self.target = parse(target)
        self.hidden, self.size, self.lr, self.steps, self.batch = tuple(hidden), size, lr, steps, batch
        self.cells = Cells(rate)
        self.network: ValueNetwork | None = None
        seen = set(self.over) if model == "table" else {"observation", "agent", *self.reads}
        self.needs = {"episode", "agent", *seen, *self.reward.needs(), *self.target.needs()} - {"value"}

    def __call__(self, turns: Turns, context: Context) -> Turns:
        """The table with `value`."""
        if self.model == "table":
            keys = keys_of(turns, self.over)
            turns = turns.with_column(value=self.cells.value(keys))
            self.cells.add(keys, _goal(turns, self.target))
            return turns
        x = np.hstack([vectors(turns, self.size), *(_listed(turns, name) for name in self.reads)])
        network = self._network(x.shape[1], context.seed)
        turns = turns.with_column(value=network.predict(x))
        network.fit(x, _goal(turns, self.target), context.rng, steps=self.steps, batch=self.batch)
        return turns

    def _network(self, inputs: int, seed: int) -> ValueNetwork:
        if self.network is None:
            from palaestra.learning.critics import ValueNetwork

            self.network = ValueNetwork(inputs, hidden=self.hidden, lr=self.lr, seed=seed)
        return self.network

    def state_dict(self) -> dict[str, Any]:
        """State: the table, and the network with its optimiser."""
        return {"cells": self.cells.state_dict(), "network": self.network and self.network.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Inverse of `state_dict`."""
        self.cells.load_state_dict(state["cells"])
        self.network = None
        if state["network"]:
            self._network(int(state["network"]["inputs"]), 0).load_state_dict(state["network"])


def _listed(turns: Turns, name: str) -> np.ndarray:
    """A column of lists of one length, float64[rows, length]; zeros where it is missing."""
    column = turns.frame[name]
    length = int(column.list.len().fill_null(0).to_numpy().max(initial=0))
    found, there = np.zeros((len(turns), length)), column.is_not_null().to_numpy()
    found[there] = column.drop_nulls().explode().to_numpy().reshape(-1, length)
    return found


def _lambda_return(reward: Signal, gamma: float, lam: float, finished: bool) -> Signal:
    """V + GAE; of episodes that were cut off only if not `finished`."""
    from palaestra.algebra.signals import col, fill_missing, where

    goal = col("value") + gae("value", reward, gamma=gamma, lam=lam)
    return where(~fill_missing("truncated", False), goal) if finished else goal


def _goal(turns: Turns, target: Signal) -> np.ndarray:
    (found,) = evaluate(turns, target)
    if not isinstance(found, np.ndarray):
        raise InputError(f"critic: the target {target} has one value per token; use token_critic()")
    return found.astype(float)


@stage
class token_critic(Stage):
    """Stage: column `value`, V before each token as a list per row, by a network that is trained on returns.

    For per-token `gae(reward=on_last_token("reward"))` and `tppo`.

    A small network per policy, on the tokens before (the mean of their embeddings and the last one's), learned from the
    discounted return-to-go of the turn, of finished episodes only, as in T-PPO [59]. buckets: token ids are taken
    modulo this. size, hidden, lr, steps, batch: of the network.
    """

    adds = {"value": "what the agent is expected to earn, before each token, as known before this iteration"}

    def __init__(
        self,
        *,
        reward: str = "reward",
        gamma: float = 1.0,
        buckets: int = 4096,
        size: int = 32,
        hidden: int = 64,
        lr: float = 1e-3,
        steps: int = 20,
        batch: int = 256,
    ) -> None:
        if min(buckets, size, hidden, steps, batch) < 1 or not lr > 0:
            raise InputError(
                f"token_critic: buckets={buckets}, size={size}, hidden={hidden}, steps={steps} and "
                f"batch={batch} must be at least 1, lr={lr} above 0"
            )
        self.target = value_target(parse(reward), gamma=gamma)
        self.buckets, self.options = buckets, {"size": size, "hidden": hidden, "lr": lr}
        self.steps, self.batch = steps, batch
        self.heads: dict[str, TokenBaseline] = {}
        self.needs = {"action_ids", "policy", *self.target.needs()}

    def __call__(self, turns: Turns, context: Context) -> Turns:
        """The table with `value`; empty lists where there are no tokens."""
        goal, ids = _goal(turns, self.target), pl.col("^(prompt|action)_ids$")
        folded = turns.frame.with_columns(
            pl.Series("_goal", goal).fill_nan(None), ids.list.eval(pl.element() % self.buckets).fill_null([])
        )
        values: list[Any] = [[]] * len(turns)
        for name in folded["policy"].unique().drop_nulls().sort().to_list():
            rows = np.flatnonzero((folded["policy"] == name).to_numpy())
            own = Turns(folded[rows])
            if not own["action_ids"].list.len().sum():
                continue
            found = self._head(str(name), context.seed).predict(own).to_series("value").to_list()
            for row, value in zip(rows.tolist(), found, strict=True):
                values[row] = value
            spoke = own["_goal"].is_not_null() & (own["action_ids"].list.len() > 0)
            if spoke.any():
                learned = Turns(own.frame.filter(spoke))
                self._head(str(name), context.seed).fit(
                    learned, context.rng, advantage="_goal", steps=self.steps, size=self.batch
                )
        return turns.with_column(value=pl.Series("value", values, pl.List(pl.Float64)))

    def _head(self, name: str, seed: int) -> TokenBaseline:
        if name not in self.heads:
            from palaestra.learning.critics import TokenBaseline

            self.heads[name] = TokenBaseline(self.buckets, seed=seed, **self.options)  # type: ignore[arg-type]
        return self.heads[name]

    def state_dict(self) -> dict[str, Any]:
        """State: networks and optimisers by policy."""
        return {name: head.state_dict() for name, head in self.heads.items()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Inverse of `state_dict`."""
        self.heads.clear()
        for name, each in state.items():
            self._head(name, 0).load_state_dict(each)
