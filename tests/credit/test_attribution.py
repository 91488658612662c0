"""Step flags and outcome in one advantage (AgentEvolver)."""

from __future__ import annotations

import numpy as np
import pytest

from palaestra.algebra.turns import Turns
from palaestra.credit import agent_evolver
from palaestra.errors import ExpressionError


def turns(flags: list[list[bool | None]], outcomes: list[float], group: list[int] | None = None) -> Turns:
    """Episodes of one agent, the outcome on the last step."""
    sizes = [len(each) for each in flags]
    return Turns(
        {
            "group": np.repeat(group or [0] * len(flags), sizes),
            "episode": np.repeat(np.arange(len(flags)), sizes),
            "turn": np.concatenate([np.arange(size) for size in sizes]),
            "agent": ["a"] * sum(sizes),
            "flag": [flag for each in flags for flag in each],
            "reward": [out * (at == size - 1) for size, out in zip(sizes, outcomes) for at in range(size)],
        }
    )


def test_allocation_gives_the_worked_numbers():
    found = agent_evolver(method="allocation").evaluate(turns([[True, True, False], [False, True]], [1.0, 0.0]))
    assert found == pytest.approx([2.5313, 1.4421, 0.3528, -1.6875, -0.1688], abs=5e-5)


@pytest.mark.parametrize("how", ["decouple", "allocation"])
def test_beside_the_loop(how):
    rng = np.random.default_rng(0)
    flags = [list(map(bool, rng.integers(0, 2, rng.integers(1, 6)))) for _ in range(8)]
    outcomes = [float(x) for x in rng.integers(0, 2, 8)]
    found = agent_evolver(method=how, alpha=0.3).evaluate(turns(flags, outcomes))
    if how == "decouple":
        raw = [[0.2 if flag else -0.2 for flag in each] for each in flags]
    else:
        raw = []
        for each, out in zip(flags, outcomes):
            weight = [1.0 if flag == (out > 0.5) else 0.2 for flag in each]
            raw.append([w / sum(weight) * (1 if out > 0.5 else -1) for w in weight])
    mu = np.mean([np.mean(each) for each in raw])
    sigma = np.sqrt(np.mean([np.mean((np.array(each) - mu) ** 2) for each in raw]) + 1e-8)
    z = (np.array(outcomes) - np.mean(outcomes)) / (np.std(outcomes) + 1e-8)
    expected = []
    for each, out in zip(raw, z):
        steps = (np.array(each) - mu) / sigma * (0.3 if how == "decouple" else 1.0)
        if how == "decouple":
            steps[-1] += out
        expected += np.cumsum(steps[::-1])[::-1].tolist()
    assert found == pytest.approx(expected, abs=1e-6)


def test_a_missing_flag_is_that_of_the_outcome_and_forms_are_known():
    known, missing = (turns([[True, flag], [False, False]], [1.0, 0.0]) for flag in (True, None))
    assert agent_evolver().evaluate(missing) == pytest.approx(agent_evolver().evaluate(known))
    with pytest.raises(ExpressionError, match=r"'decople'.*'decouple'"):
        agent_evolver(method="decople")
