"""Learning from what was played at first, over and over: one sample of the untrained team, cloned, then compared."""

from __future__ import annotations

from typing import Any

import polars as pl

from palaestra.algebra.turns import Turns
from palaestra.errors import InputError
from palaestra.learning.stages.stage import Context, Stage, packed, stage, unpacked


@stage
class fixed_data(Stage):
    """Stage: replaces every iteration's rows by those of the first `first` iterations, once these are collected.

    Phases that name it in the same words share the sample, as supervised fits and then preferences do in
    self-improvement that collects once (MALT, arXiv 2412.01928). Play little after it: `train: {groups: 1}`. It runs
    after the reward, so that metrics are those of what was played now; log-probabilities are those of then.

    Args:
        first: iterations that are kept. Until then an iteration is learned from as it is.
    """

    step = "construct"

    needs = ("group", "episode", "reward")

    def __init__(self, first: int = 1) -> None:
        if isinstance(first, bool) or not isinstance(first, int) or first < 1:
            raise InputError(f"fixed_data: first={first} must be a whole number of at least 1")
        self.first = first
        self.kept: list[pl.DataFrame] = []

    def __call__(self, turns: Turns, context: Context) -> Turns:
        """The stored sample, with groups numbered on and the current iteration."""
        now = turns.frame
        if len(self.kept) < self.first:
            self.kept.append(now)
            if len(self.kept) < self.first:
                return turns
        parts, begin = [], 0
        for each in self.kept:
            parts.append(each.with_columns(group=(pl.col("group") + begin).cast(now.schema["group"])))
            begin += 1 + int(each["group"].max())  # type: ignore[arg-type]
        made = pl.concat(parts, how="diagonal_relaxed")
        if "iteration" in now.columns:
            made = made.with_columns(iteration=pl.lit(now["iteration"][0], now.schema["iteration"]))
        context.metrics["held_rows"] = float(len(made))
        return Turns(made)

    def state_dict(self) -> dict[str, Any]:
        """State: the stored tables as bytes of Parquet files."""
        return {"kept": [packed(each) for each in self.kept]}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Inverse of `state_dict`."""
        self.kept = [found for each in state["kept"] if (found := unpacked(each)) is not None]
