"""What credit refuses: each fault is named where it is, with the fix, from recipe text on."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
import pytest
from quick import QUICK, validate

from palaestra.agents import TabularPolicy, Team
from palaestra.algebra.parse import parse
from palaestra.algebra.turns import Turns
from palaestra.errors import (
    EnvError,
    ExpressionError,
    LearnerError,
    MissingColumnError,
    PalaestraError,
    RecipeError,
    RewardError,
)
from palaestra.learning import PolicyGradient
from palaestra.play.monte_carlo import mc_value

TABLE = Turns({
    "iteration": [1, 2], "group": [0, 0], "episode": [0, 1], "turn": [0, 0], "agent": ["a", "a"], "policy": ["p", "p"],
    "reward": [1.0, 0.0], "action_ids": [[0, 1], [0]], "logprobs": [[-0.1, -0.2], [-0.3]],
    "weights": [[1.0], [2.0, 1.0]], "broken": [1.0, float("inf")],
})  # fmt: skip


@pytest.mark.parametrize(
    ("text", "error", "message"),
    [
        # a key column that is missing
        ("gigpo()", MissingColumnError, r"gigpo\(\): key 'state': column 'state' is missing .*e\.g\. state=pl\.col"),
        ("standardise(reward, over='agnet')", MissingColumnError, "key 'agnet': .*did you mean 'agent'"),
        # weights that do not match
        ("col('logprobs') * col('weights')", ExpressionError, "differ in length, first in row 0: 2 and 1 tokens"),
        ("per_token(grpo()) * col('weights')", ExpressionError, "differ in length, first in row 0: 2 and 1 tokens"),
        ("mix(1.5, grpo(), rloo())", ExpressionError, r"mix: weight 1.5 is outside \[0, 1\]"),
        ("stratified_grpo(alpha=-1)", ExpressionError, r"weight -1.0 is outside \[0, 1\]"),
        # a schedule outside its range
        ("mix(linear(0, 2, steps=2), grpo(), rloo())", ExpressionError, r"is 2 in row 1, outside \[0, 1\]"),
        ("gae(reward, gamma=2)", ExpressionError, r"gae: gamma=2 is outside \[0, 1\]"),
        ("gigpo(gamma=95)", ExpressionError, r"return_to_go: gamma=95 is outside \[0, 1\]"),
        ("alignment_weight(reward, gamma=-1)", ExpressionError, r"alignment_weight: gamma=-1 is outside \[0, 1\]"),
        ("segments(p=0)", ExpressionError, r"p=0 in \(0, 1\]"),
        ("unsure(p=2)", ExpressionError, r"unsure: p=2 is outside \(0, 1\]"),
        ("grpo(flavour=3)", ExpressionError, "flavour 3 is unknown; known: art"),
        ("mars(rewards=3)", ExpressionError, "mars: rewards=3; known: asym_clip"),
        ("gae(reward, lam=-1)", ExpressionError, r"gae: lam=-1 is outside \[0, 1\]"),
        ("linear(0, 1, steps=0) * grpo()", ExpressionError, "linear: steps=0 must be at least 1"),
        ("cosine(0, 1, steps=-2) * grpo()", ExpressionError, "cosine: steps=-2 must be at least 1"),
        ("cosine_restarts(steps=10)", ExpressionError, "10 steps, 30 to warm up, 3 cycles: no cycle has a step"),
        # what is not finite
        ("modulate(grpo(), col('broken'))", RewardError, "col.'broken'. is not finite in row 1: fix the values"),
        ("exp(1000 * reward)", ExpressionError, "is not finite in row 0; guard it with where.. or clip.."),
        ("grpo() / 0", ExpressionError, "divides by zero in 2 rows, first .0, 1.; guard it"),
    ],
)
def test_a_fault_of_the_credit_is_named_with_the_fix(text: str, error: type[PalaestraError], message: str) -> None:
    columns = ["weights", "broken"]
    with pytest.raises(error, match=message):
        parse(text, columns=columns).evaluate(TABLE)


@pytest.mark.parametrize(
    "text", ["mix(1.5, grpo(), rloo())", "linear(0, 1, steps=0) * grpo()", "cosine_restarts(steps=10)"]
)
def test_a_recipe_is_refused_before_anything_is_played(text: str) -> None:
    with pytest.raises(RecipeError, match="recipe: credit: "):
        validate(QUICK | {"credit": text})


@pytest.mark.parametrize(
    ("advantage", "message"),
    [
        ([float("nan"), 0.5], r"column 'advantage': an advantage is not finite: 1 row \(.*episode 0"),
        ([1.0, float("inf")], r"column 'advantage': an advantage is not finite: 1 row \(.*episode 1"),
        ([[1.0], [0.5]], "the number of advantages is not that of action_ids: 1 row .*episode 0"),
        ([[1.0, float("-inf")], [0.5]], "an advantage is not finite: 1 row .*episode 0"),
    ],
)
def test_an_advantage_that_cannot_be_learned_from_is_named(advantage: list[Any], message: str) -> None:
    policy = TabularPolicy(2, name="p")
    before = policy.module.get_parameter("logits").detach().clone()
    turns = Turns(TABLE.frame.with_columns(pl.Series("advantage", advantage)))
    with pytest.raises(LearnerError, match=f"{message}.*nothing was updated"):
        PolicyGradient(Team(a=policy)).update(turns)
    assert policy.module.get_parameter("logits").equal(before)


def test_an_env_without_snapshots_is_named() -> None:
    class Plain:
        agents = ("a",)

    with pytest.raises(EnvError, match=r"mc_value: Plain cannot be restarted: it has no snapshot\(\) and restore\(\)"):
        mc_value(Plain(), [0], TabularPolicy(2), np.random.default_rng(0), k=1)  # type: ignore[arg-type]
