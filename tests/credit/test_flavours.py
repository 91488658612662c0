"""Each trainer's own convention, re-expressed as the loop over groups that its formula is.

Facts about verl 0.9.1, TRL 1.16, rLLM, ART 0.5.18 and prime-rl; `test_parity` imports verl and TRL themselves.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from palaestra.algebra.turns import Turns
from palaestra.credit import FLAVOURS, dr_grpo, gigpo, grpo, reinforce_plus_plus, rloo, standardise
from palaestra.errors import ExpressionError

NAN = float("nan")
Rewards = list[float]


def mean(values: Rewards) -> float:
    return sum(values) / len(values)


def deviation(values: Rewards, ddof: int) -> float:
    return math.sqrt(sum((v - mean(values)) ** 2 for v in values) / (len(values) - ddof))


def verl_grpo(r: Rewards) -> Rewards:
    middle, std = (0.0, 1.0) if len(r) == 1 else (mean(r), deviation(r, 1))
    return [(v - middle) / (std + 1e-6) for v in r]


def rllm_grpo(r: Rewards) -> Rewards:
    middle, std = (0.0, 1.0) if len(r) == 1 else (mean(r), deviation(r, 0))
    return [(v - middle) / (std + 1e-6) for v in r]


def trl_grpo(r: Rewards) -> Rewards:
    scored = [v for v in r if not math.isnan(v)]
    if len(scored) < 2:  # the deviation is 0 for a group of one and not a number for one scored of several
        return [0.0] * len(r)
    return [0.0 if math.isnan(v) else (v - mean(scored)) / (deviation(scored, 1) + 1e-4) for v in r]


def art_grpo(r: Rewards) -> Rewards:
    advantages = [(v - mean(r)) / (deviation(r, 0) + 1e-6) for v in r]
    return [NAN if a == 0 else a for a in advantages]  # such trajectories are not trained on


def prime_grpo(r: Rewards) -> Rewards:
    return [v - mean(r) for v in r]


def verl_rloo(r: Rewards) -> Rewards:
    n = len(r)
    return r if n == 1 else [v * n / (n - 1) - mean(r) * n / (n - 1) for v in r]


def verl_rloo_vectorised(r: Rewards) -> Rewards:
    n = len(r)
    return [(n * v - sum(r)) / max(n - 1, 1) * (n > 1) for v in r]


def trl_rloo(r: Rewards) -> Rewards:
    scored = [v for v in r if not math.isnan(v)]
    if len(scored) < 2:
        return [0.0] * len(r)
    return [0.0 if math.isnan(v) else v - (sum(scored) - v) / (len(scored) - 1) for v in r]


TRAINERS: dict[tuple[str, str | None], Callable[[Rewards], Rewards]] = {
    ("grpo", "verl"): verl_grpo,
    ("grpo", "trl"): trl_grpo,
    ("grpo", "rllm"): rllm_grpo,
    ("grpo", "art"): art_grpo,
    ("grpo", "prime"): prime_grpo,
    ("rloo", "verl"): verl_rloo,
    ("rloo", "rllm"): verl_rloo,
    ("rloo", "trl"): trl_rloo,
    ("rloo", None): verl_rloo_vectorised,
}


def test_every_flavour_is_checked() -> None:
    checked = {*TRAINERS, *((name, "verl-agent") for name in BY_STEP)} - {("rloo", None)}
    assert {(name, flavour) for name in FLAVOURS for flavour in FLAVOURS[name]} == checked


BY_STEP: dict[str, Callable[[Rewards], Rewards]] = {
    "grpo": verl_grpo,
    "rloo": verl_rloo,
    "gigpo": lambda r: r if len(r) == 1 else [v - mean(r) for v in r],
}
"""verl-agent by default hands these the score of the episode once for each of its steps."""


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.lists(st.tuples(st.integers(-3, 3), st.integers(1, 4)), min_size=1, max_size=5), min_size=1, max_size=3)
)
def test_verl_agent_counts_every_step(groups: list[list[tuple[int, int]]]) -> None:
    """Each group is episodes of (score, steps); the score is earned on the first step. States are distinct."""
    rows = [
        (g, e, t, float(score) if t == 0 else 0.0)
        for g, group in enumerate(groups)
        for e, (score, steps) in enumerate(group)
        for t in range(steps)
    ]
    columns = [list(column) for column in zip(*rows, strict=True)]
    turns = Turns(dict(zip(("group", "episode", "turn", "reward"), columns, strict=True)))
    turns = turns.with_column(agent=["a"] * len(rows), state=np.arange(len(rows)).astype(np.uint64))
    for name, signal in {
        "grpo": grpo(flavour="verl-agent"),
        "rloo": rloo(flavour="verl-agent"),
        "gigpo": gigpo(scale=False, flavour="verl-agent"),
    }.items():
        expected = [
            v for group in groups for v in BY_STEP[name]([float(s) for s, steps in group for _ in range(steps)])
        ]
        np.testing.assert_allclose(np.asarray(signal.evaluate(turns)), expected, atol=1e-5, err_msg=name)


def test_the_unit_of_gigpo_is_the_papers_unless_asked() -> None:
    turns = Turns(
        {"group": [0] * 4, "episode": [0, 1, 1, 1], "turn": [0, 0, 1, 2], "agent": ["a"] * 4}
        | {"state": range(4), "reward": [10.0, 0.0, 0.0, 0.0]}
    )
    assert np.asarray(gigpo(scale=False).evaluate(turns)).tolist() == [5, -5, -5, -5]
    assert np.asarray(gigpo(scale=False, flavour="verl-agent").evaluate(turns)).tolist() == [7.5, -2.5, -2.5, -2.5]
    with pytest.raises(ExpressionError, match="gigpo: flavour 'verl' is unknown"):
        gigpo(flavour="verl")  # type: ignore[arg-type]


def test_a_lone_sample_keeps_its_raw_score_where_asked() -> None:
    turns = Turns({"group": [0, 1, 1], "episode": [0, 0, 1], "agent": ["a"] * 3, "reward": [3.0, 1.0, 2.0]})
    assert np.asarray(dr_grpo().evaluate(turns)).tolist() == [0, -0.5, 0.5]
    assert np.asarray(dr_grpo(singleton="raw").evaluate(turns)).tolist() == [3, -0.5, 0.5]
    raw, zero = (
        np.asarray(reinforce_plus_plus(baseline="group", singleton=one).evaluate(turns))  # type: ignore[arg-type]
        for one in ("raw", "zero")
    )
    centred = np.array([[3, -0.5, 0.5], [0, -0.5, 0.5]])
    expected = (centred - centred.mean(1, keepdims=True)) / centred.std(1, ddof=1, keepdims=True)
    np.testing.assert_allclose([raw, zero], expected, atol=1e-6)
    same = reinforce_plus_plus(baseline="group")
    np.testing.assert_array_equal(same.evaluate(turns), zero)


def turns_of(groups: list[Rewards]) -> Turns:
    rows = [(g, e, "a", None if math.isnan(v) else v) for g, group in enumerate(groups) for e, v in enumerate(group)]
    columns: list[Any] = [list(column) for column in zip(*rows, strict=True)]
    return Turns(dict(zip(("group", "episode", "agent", "reward"), columns, strict=True)))


def compare(estimator: str, flavour: Any, groups: list[Rewards]) -> None:
    signal = (grpo if estimator == "grpo" else rloo)(flavour=flavour)
    expected = [advantage for group in groups for advantage in TRAINERS[estimator, flavour](group)]
    found = np.asarray(signal.evaluate(turns_of(groups)))
    np.testing.assert_allclose(found, expected, 1e-6, 1e-6, equal_nan=True)


rewards = st.integers(-8, 8).map(lambda v: v / 4)
groups_of = st.lists(st.lists(rewards, min_size=1, max_size=7), min_size=1, max_size=6)


@pytest.mark.parametrize(("estimator", "flavour"), list(TRAINERS))
@settings(max_examples=40, deadline=None)
@given(groups=groups_of)
def test_a_flavour_is_its_trainers_loop_on_unequal_groups(
    estimator: str, flavour: str | None, groups: list[Rewards]
) -> None:
    compare(estimator, flavour, groups)


@pytest.mark.parametrize("estimator", ["grpo", "rloo"])
@settings(max_examples=60, deadline=None)
@given(groups=st.lists(st.lists(st.one_of(rewards, st.just(NAN)), min_size=1, max_size=6), min_size=1, max_size=5))
def test_trl_knows_missing_rewards(estimator: str, groups: list[Rewards]) -> None:
    if any(not math.isnan(v) for group in groups for v in group):
        compare(estimator, "trl", groups)


@pytest.mark.parametrize(
    ("flavour", "group", "lone"),
    [("verl", 0.866, 1), ("trl", 0.8659, 0), ("rllm", 1, 1), ("art", 1, NAN), ("prime", 0.5, 0), (None, 0.866, 0)],
)
def test_one_batch_many_grpos(flavour: Any, group: float, lone: float) -> None:
    """Rewards a: 1, 0, 0, 1 and a lone b: 1, as measured on the trainers themselves."""
    found = np.asarray(grpo(flavour=flavour).evaluate(turns_of([[1, 0, 0, 1], [1]])))
    np.testing.assert_allclose(found, [group, -group, -group, group, lone], 0, 6e-5, equal_nan=True)


@pytest.mark.parametrize(("flavour", "lone"), [("verl", 1), ("rllm", 1), ("trl", 0), (None, 0)])
def test_one_batch_many_rloos(flavour: Any, lone: float) -> None:
    found = np.asarray(rloo(flavour=flavour).evaluate(turns_of([[1, 0, 0, 1], [1]])))
    np.testing.assert_allclose(found, [2 / 3, -2 / 3, -2 / 3, 2 / 3, lone], 0, 1e-9)


def test_trls_optional_normalisation_of_rloo_is_one_more_statistic() -> None:
    """`normalize_advantages`: (a - mean) / (std + 1e-4) over the scored episodes of the batch."""
    groups = [[1.0, 0.0, 0.5], [0.0, 2.0, 0.25]]
    flat = [a for group in groups for a in trl_rloo(group)]
    expected = [(a - mean(flat)) / (deviation(flat, 1) + 1e-4) for a in flat]
    signal = standardise(rloo(flavour="trl"), over=(), unit="episode", eps=1e-4)
    np.testing.assert_allclose(np.asarray(signal.evaluate(turns_of(groups))), expected, 1e-9)


def test_every_turn_of_an_episode_gets_its_advantage() -> None:
    turns = Turns({"group": [0] * 3, "episode": [0, 1, 1], "agent": ["a"] * 3, "reward": [1.0, 0.0, 0.5]})
    found = np.asarray(grpo(flavour="verl").evaluate(turns))
    np.testing.assert_allclose(found, np.array(verl_grpo([1.0, 0.5]))[[0, 1, 1]], 1e-9)


def test_an_unknown_flavour_is_named() -> None:
    with pytest.raises(ExpressionError, match="grpo: flavour 'ver' is unknown; did you mean 'verl'"):
        grpo(flavour="ver")  # type: ignore[arg-type]
    with pytest.raises(ExpressionError, match="rloo: flavour 'art' is unknown"):
        rloo(flavour="art")  # type: ignore[arg-type]
