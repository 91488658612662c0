"""Step rewards out of what whole episodes earned: SPA's progress [49], LaRe's factors [51]."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from palaestra.algebra.parse import parse
from palaestra.algebra.signals import Signal, SignalLike, as_signal, evaluate, mean, total
from palaestra.algebra.turns import Ragged, Turns
from palaestra.credit import ReturnDecomposition
from palaestra.errors import InputError, nearest
from palaestra.learning.stages.cells import Cells, keys_of, vectors
from palaestra.learning.stages.stage import Context, Stage, stage

if TYPE_CHECKING:
    from palaestra.learning.decomposition import NetworkDecomposition

LARGEST = 2000
"""Cells of a table: its normal equations have their square."""


@stage
class progress(Stage):
    """Stage: column `progress`, step rewards fitted so that the turns of an episode add up to its return.

    Learned from all episodes
    so far, these included, as SPA [49] and LaRe [51] do; its credit is `spa()`, or any on `col("progress")`.

    model: "table", a number for each (agent, state, action), by ridge regression; "network", one hidden layer on what
    is seen and done (the env's array or the hashed text, and the hashed action), or with factors on them. factors:
    signals of one number per turn, as texts, that say what may matter (LaRe's, e.g. columns that a program wrote);
    then "table" is a linear decoder of them. target: text of the episode's return, default the sum of its rewards.
    method: "rd" on whole episodes, "rrd" on `draws` random turns of each. ridge: of the table; hidden, size, lr,
    updates, last (episodes of the past): of the network. Episodes without a return or with a missing factor are not
    learned from; a turn with one has no progress.

    Raises:
        InputError: no such model, or a number is out of range; or the table has more than 2000 cells.
    """

    adds = {"progress": "the turn's share of what the episode earned"}

    def __init__(
        self,
        model: Literal["table", "network"] = "table",
        *,
        factors: Sequence[str] = (),
        target: str | None = None,
        method: Literal["rd", "rrd"] = "rd",
        draws: int = 5,
        average: bool = False,
        ridge: float = 1.0,
        hidden: Sequence[int] = (64,),
        size: int = 64,
        lr: float = 3e-4,
        updates: int = 20,
        last: int = 512,
    ) -> None:
        if model not in ("table", "network"):
            raise InputError(f"progress: model={model!r}{nearest(str(model), ['network', 'table'])}")
        if updates < 1 or last < 1 or size < 1:
            raise InputError(f"progress: updates={updates}, last={last} and size={size} must be at least 1")
        self.model = model
        self.factors = [_factor(each) for each in ((factors,) if isinstance(factors, str) else factors)]
        whole: SignalLike = total("reward", over="episode") if target is None else parse(target)
        self.target = mean(whole, over="episode")
        self.how: dict[str, Any] = {"method": method, "steps": draws}
        self.average, self.ridge = average, ridge
        self.network_how: dict[str, Any] = {"hidden": tuple(hidden), "lr": lr}
        self.size, self.updates, self.last = size, updates, last
        self.cells = Cells(0.0)
        self.table = ReturnDecomposition(len(self.factors), average=average, ridge=ridge, **self.how)
        self.network: NetworkDecomposition | None = None
        self.past: list[tuple[np.ndarray, float]] = []
        self.needs = {"episode", "agent", *self.target.needs()}.union(*(each.needs() for each in self.factors))
        if not self.factors:
            self.needs |= {"state", "action"} if model == "table" else {"observation", "action"}

    def __call__(self, turns: Turns, context: Context) -> Turns:
        """The table with `progress`."""
        x, returns = self._features(turns), np.asarray(evaluate(turns, self.target)[0], float)
        codes = turns.codes("episode")
        bad = np.isnan(x).any(axis=1) | np.isnan(returns)
        usable = np.bincount(codes.ids, bad, codes.size)[codes.ids] == 0
        _, first, episode = np.unique(codes.ids[usable], return_index=True, return_inverse=True)
        goals = returns[usable][first]
        if self.model == "table":
            self.table.add(x[usable], episode, goals, rng=context.rng)
            return turns.with_column(progress=self.table.predict(x))
        order = np.argsort(episode, kind="stable")
        parts = np.split(x[usable][order], np.cumsum(np.bincount(episode, minlength=len(goals)))[:-1])
        self.past = [*self.past, *zip(parts, goals.tolist(), strict=True)][-self.last :] if len(goals) else self.past
        network = self._network(x.shape[1], context.seed)
        if self.past:
            lengths = [len(rows) for rows, _ in self.past]
            network.fit(
                np.concatenate([rows for rows, _ in self.past]),
                np.repeat(np.arange(len(lengths)), lengths),
                np.array([goal for _, goal in self.past]),
                context.rng,
                updates=self.updates,
            )
        return turns.with_column(progress=network.predict(x))

    def _features(self, turns: Turns) -> np.ndarray:
        if self.factors:
            values = evaluate(turns, *(as_signal(each) for each in self.factors))
            for signal, value in zip(self.factors, values, strict=True):
                if isinstance(value, Ragged):
                    raise InputError(f"progress: {signal} has one value per token; wrap it in per_turn()")
            return np.stack([np.asarray(value, float) for value in values], axis=-1)
        if self.model == "network":
            return vectors(turns, self.size, action=True)
        keys = keys_of(turns, ("agent", "state", "action"))
        self.cells.add(keys, np.zeros(len(turns)))
        number = len(self.cells.places)
        if number > LARGEST:
            raise InputError(
                f"progress: {number} different (agent, state, action), more than {LARGEST}; use "
                'progress("network"), or factors='
            )
        self._grow(number)
        return np.asarray(np.eye(number)[self.cells.find(keys)])

    def _grow(self, number: int) -> None:
        more = number - len(self.table.products)
        self.table.squares = np.pad(self.table.squares, (0, more))
        self.table.products = np.pad(self.table.products, (0, more))

    def _network(self, inputs: int, seed: int) -> NetworkDecomposition:
        if self.network is None:
            from palaestra.learning.decomposition import NetworkDecomposition

            self.network = NetworkDecomposition(inputs, seed=seed, **self.how, **self.network_how)
        return self.network

    def state_dict(self) -> dict[str, Any]:
        """State: cells and normal equations, or the network and the episodes that it learns from."""
        return {
            "cells": self.cells.state_dict(),
            "squares": self.table.squares,
            "products": self.table.products,
            "past": [[rows, goal] for rows, goal in self.past],
            "network": self.network and {"inputs": self.network.inputs, "state": self.network.state_dict()},
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Inverse of `state_dict`."""
        self.cells.load_state_dict(state["cells"])
        self.table.squares, self.table.products = (np.array(state[name]) for name in ("squares", "products"))
        self.past = [(np.asarray(rows), float(goal)) for rows, goal in state["past"]]
        self.network = None
        if state["network"]:
            self._network(int(state["network"]["inputs"]), 0).load_state_dict(state["network"]["state"])


def _factor(text: str) -> Signal:
    """A signal, or a column by its bare name."""
    return parse(text, columns=(text,) if text.isidentifier() else ())
