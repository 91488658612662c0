"""What these reproductions share: rows of features, and who wins by Bradley-Terry."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from palaestra.agents.tiny import build
from palaestra.envs.protocol import Observation
from palaestra.envs.worlds.native import Chosen, NativeEnv
from palaestra.learning.reward_models import PairwiseTokenReward, Preferences
from palaestra.learning.stages.stage import Context
from palaestra.play.executors import Local


def rows(x: np.ndarray, name: str = "features") -> pl.DataFrame:
    """float[rows, columns] as a column of lists."""
    return pl.DataFrame({name: pl.Series(x.tolist(), dtype=pl.List(pl.Float64))})


def decided(
    x: np.ndarray, utility: np.ndarray, rng: np.random.Generator, *, condition: np.ndarray | None = None
) -> Preferences:
    """Pairs of float[pairs, 2, columns]; a side wins with chance σ(its utility - the other's), float[pairs, 2]."""
    won = (rng.random(len(x)) >= 1 / (1 + np.exp(utility[:, 1] - utility[:, 0]))).astype(int)
    at = np.arange(len(x))
    given = None if condition is None else rows(condition)
    return Preferences(rows(x[at, won]), rows(x[at, 1 - won]), condition=given)


def written(pairs: Preferences, path: Path) -> None:
    """Pairs as `palaestra fit-reward --features x` reads them, with the condition where there is one."""
    sides = {f"{side}_x": getattr(pairs, side)["features"] for side in ("chosen", "rejected")}
    given = {} if pairs.condition is None else {"condition": pairs.condition["features"]}
    pl.DataFrame(sides | given).write_parquet(path)


def stage_context(iteration: int = 1, seed: int = 0, env: Any = None, **more: Any) -> Context:
    """What a stage is given outside of a run."""
    return Context(np.random.default_rng(seed), iteration, env, None, Local(), **more)  # type: ignore[arg-type]


class Fork(NativeEnv):
    """Two ways at each of `depth` places; the leaf decides the reward, the way is in what is seen."""

    agents: tuple[str, ...] = ("walker",)
    choices = ("0", "1")

    def __init__(self, leaves: Sequence[float]) -> None:
        self.leaves, self.depth = leaves, len(leaves).bit_length() - 1

    def begin(self) -> tuple[str, list[int]]:
        """Nothing was chosen yet."""
        return "fork", []

    def look(self) -> dict[str, Observation]:
        """The way so far."""
        over = len(self.state) == self.depth
        return {} if over else {"walker": Observation(f"at {self.state}", choices=self.choices)}

    def play(self, chosen: Chosen) -> tuple[dict[str, float], dict[str, Any]]:
        """Go on; pay at the end."""
        self.state = [*self.state, int(chosen["walker"])]  # type: ignore[arg-type]
        over = len(self.state) == self.depth
        leaf = self.leaves[int("".join(map(str, self.state)), 2)] if over else 0.0
        return {"walker": float(leaf)}, {}


def small_judge(question: str, words: list[str]) -> PairwiseTokenReward:
    """A judge of pairs with the smallest transformer that can learn a few words."""
    judge = PairwiseTokenReward(question=question)
    judge.module, judge.tokenizer = build([*words, "yes no"], hidden=16, layers=1, heads=2, vocabulary=280)
    judge._answers()
    return judge


class Ahead:
    """Likes way 0 at first, and what lies behind way 1 much more."""

    name = "ahead"

    def score(self, rows: pl.DataFrame, *, reference: object = None, condition: object = None) -> pl.Series:
        """A row per way at a place."""
        way = rows["prompt"].str.extract(r"\[(\d?)", 1).fill_null("")
        return way.replace_strict({"": 0.0, "0": 0.0, "1": 3.0}) + rows["response"].replace_strict({"0": 1.0, "1": 0.0})


def opposed(count: int, seed: int) -> Preferences:
    """One of two words is better, and under the other criterion the other one."""
    rng = np.random.default_rng([47, seed])
    wants = rng.integers(2, size=count)
    said = pl.Series(["no", "so"])
    sides = (wants, 1 - wants)
    chosen, rejected = (pl.DataFrame({"prompt": ["?"] * count, "response": said.gather(each)}) for each in sides)
    return Preferences(chosen, rejected, condition=pl.DataFrame({"criterion": pl.Series(["N", "S"]).gather(wants)}))
