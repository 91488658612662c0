"""Bilevel rewards: gradients against finite differences, three hypergradients, a misleading reward undone."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from palaestra.errors import InputError
from palaestra.rewards import BilevelReward
from palaestra.rewards.shaping.bilevel import Hypergradient
from palaestra_atlas.catalog.rewards.s039_barfi import STATES, auxiliary, chain


def problem(**options: Any) -> BilevelReward:
    moves, primary = chain()
    return BilevelReward(moves, np.eye(STATES)[0], primary, auxiliary("misleading"), **options)


def test_the_policy_gradient_is_that_of_the_objective() -> None:
    model = problem()
    model.theta = np.random.default_rng(0).normal(size=model.theta.shape)
    gradient = model._gradients(model.reward[None])[0]
    for cell in ((0, 1), (3, 0)):
        ends = []
        for step in (1e-5, -1e-5):
            model.theta[cell] += step
            ends.append(model.objective(model.reward))
            model.theta[cell] -= step
        assert (ends[0] - ends[1]) / 2e-5 == pytest.approx(gradient[cell], rel=1e-5)


@pytest.mark.parametrize("kind", ["exact", "neumann", "unrolled"])
def test_hypergradients_at_the_fixed_point_are_that_of_the_outer_objective(kind: Hypergradient) -> None:
    model = problem(hypergradient=kind, decay=0.1, terms=300, rate=1.0, per_state=False, free=False)
    model.learn(300)
    if kind == "unrolled":
        found = model._gradients(model.primary[None])[0].ravel() @ model.learn(100)
    else:
        moved = model._gradients(model._basis).reshape(-1, model.theta.size)
        goal = model._gradients(model.primary[None])[0].ravel()
        found = moved @ model._solved(model._slope(model.reward), goal)
    ends = []
    for step in (1e-4, -1e-4):
        nudged = problem(decay=0.1, rate=1.0, per_state=False, free=False)
        nudged.phi = model.phi + np.array([0.0, step])
        nudged.learn(400)
        ends.append(nudged.objective())
    assert found[1] == pytest.approx((ends[0] - ends[1]) / 2e-4, rel=2e-2)


def test_a_misleading_auxiliary_is_turned_down() -> None:
    naive = problem(per_state=False)
    naive.learn(30 * naive.inner)
    model = problem(per_state=False)
    for _ in range(30):
        model.step()
    assert naive.objective() < 0.01
    assert model.objective() > 0.75
    assert model.weights[2][0] < 0


def test_wrong_arguments_are_named() -> None:
    with pytest.raises(InputError, match="did you mean 'exact'"):
        problem(hypergradient="exakt")
    moves, primary = chain()
    with pytest.raises(InputError, match="disagree"):
        BilevelReward(moves, np.eye(STATES)[0], primary, primary[:3])
