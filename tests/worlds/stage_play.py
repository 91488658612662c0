"""What tests of stages share: a context, and a recipe trained with its tables kept."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import polars as pl

from palaestra.agents import ScriptedPolicy, Team
from palaestra.agents.scripted import random_legal
from palaestra.algebra.turns import Turns
from palaestra.envs.worlds import Talk
from palaestra.learning.stages.stage import Context
from palaestra.play.executors import Local
from palaestra.runs.inline import TrainingResult, learn


def context(iteration: int = 1, **options: Any) -> Context:
    """Of an iteration; nothing is played in it unless a stage does."""
    given = {"env": Talk, "team": Team(clerk=random_legal()), "executor": Local()} | options
    return Context(rng=np.random.default_rng(0), iteration=iteration, **given)


def script(answer: Callable[[str], str], name: str = "script") -> ScriptedPolicy:
    """A policy that answers texts."""
    return ScriptedPolicy(lambda request: answer(request.observation.text), name=name)


def talk(actions: list[list[str]]) -> Turns:
    """Episodes of one clerk by their actions."""
    lengths = [len(each) for each in actions]
    return Turns(
        {
            "group": [0] * sum(lengths),
            "episode": np.repeat(np.arange(len(actions)), lengths),
            "turn": [turn for length in lengths for turn in range(length)],
            "agent": ["clerk"] * sum(lengths),
            "task": ["talk"] * sum(lengths),
            "observation": ["?"] * sum(lengths),
            "action": [action for each in actions for action in each],
        }
    )


def trained(recipe: str, changes: Mapping[str, Any], *, seed: int = 0) -> tuple[TrainingResult, list[pl.DataFrame]]:
    """A recipe trained in memory, and what was trained on in each iteration."""
    tables: list[pl.DataFrame] = []
    learned = learn(recipe, changes, seed=seed, on_turns=lambda _, turns: tables.append(turns.frame))
    return learned, tables


ASKED: list[list[str]] = []


def lengths(texts: list[str]) -> list[list[float]]:
    """An embedding model that remembers what it was asked."""
    ASKED.append(list(texts))
    return [[float(len(text)), 1.0] for text in texts]
