"""The common tests that every registered credit and reward signal joins by being registered."""

from __future__ import annotations

import functools
import os
import runpy
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import palaestra  # noqa: F401  (registers everything)
from palaestra.algebra.parse import parse
from palaestra.algebra.signals import REGISTRY, Signal
from palaestra.algebra.turns import Turns
from palaestra.credit import (
    agent_return,
    dr_grpo,
    dr_mas,
    episode_return,
    gigpo,
    grpo,
    mars,
    reinforce,
    reinforce_plus_plus,
    return_to_go,
    rloo,
    whiten,
)
from palaestra.testing import check_signal
from palaestra.testing.columns import made
from palaestra.testing.examples import ELSEWHERE, EXAMPLES, MISSING, NUMBERED, example, needs_arguments
from palaestra.testing.signal import Promise, sample_tables, sample_turns

OWN = sorted(name for name, function in REGISTRY.items() if function.__module__.startswith("palaestra."))
ALL = [name for name in OWN if name not in ELSEWHERE]
CREDIT = [
    name for name in ALL if REGISTRY[name].__module__.startswith(("palaestra.credit", "palaestra.algebra.returns"))
]


def test_every_registered_name_has_an_example() -> None:
    assert len(ALL) > 200
    assert sum("reward" in called(name).needs() for name in CREDIT) > 50
    assert [name for name in ALL if needs_arguments(name) and name not in EXAMPLES] == []
    assert set(OWN) >= EXAMPLES.keys() | MISSING | NUMBERED.keys() | ELSEWHERE.keys()


def called(name: str) -> Signal:
    return parse(example(name))


@pytest.mark.parametrize("name", ALL)
def test_every_signal_passes_the_conformance_test(name: str) -> None:
    """And of credit: episodes without a reward, whatever else they hold, change nothing for the others."""
    scored: list[Promise] = ["unscored"] if name in CREDIT and "reward" in called(name).needs() else []
    check_signal(called(name), promises=scored, complete=name not in MISSING, numbered=name in NUMBERED)


VARIANTS = {
    "grpo(ddof=0, eps=0)": grpo(ddof=0, eps=0),
    "grpo of agents": grpo(over=("group", "agent")),
    "grpo verl": grpo(flavour="verl"),
    "grpo rllm": grpo(flavour="rllm"),
    "grpo prime": grpo(flavour="prime"),
    "rloo verl": rloo(flavour="verl"),
    "gigpo mean": gigpo(scale=False, weight=0.5),
    "mars asym_clip": mars(rewards="asym_clip", whiten_rewards=True, limit=2.0),
    "mars mean_std": mars(rewards="mean_std"),
    "reinforce++ baseline": reinforce_plus_plus(gamma=0.9, baseline="group"),
    "return_to_go of all": return_to_go(gamma=0.9, over="episode"),
    "whiten": whiten("reward", over="group"),
    "blend": 0.3 * grpo() + 0.7 * dr_mas(),
}


@pytest.mark.parametrize("name", list(VARIANTS))
def test_the_options_pass_it_too(name: str) -> None:
    check_signal(VARIANTS[name], promises=["unscored"])


def test_flavours_that_drop_or_fill_pass_it_too() -> None:
    check_signal(grpo(flavour="art"), complete=False)
    check_signal(grpo(flavour="trl"), promises=["unscored"])
    check_signal(rloo(flavour="trl"), promises=["unscored"])


# -- what methods promise beyond that ---------------------------------------------------------------------------------

RELATIVE: dict[str, Signal] = {
    "grpo": grpo(),
    "grpo ddof 0": grpo(ddof=0),
    "dr_mas": dr_mas(singleton="zero"),
    "gigpo": gigpo(singleton="zero"),
    "mars": mars(),
    "mars mean_std": mars(rewards="mean_std", whiten_rewards=True),
    "reinforce++": reinforce_plus_plus(),
    "reinforce++ baseline": reinforce_plus_plus(baseline="group"),
    "whiten": whiten("reward"),
}
DIFFERENCES: dict[str, Signal] = {
    "dr_grpo": dr_grpo(),
    "rloo": rloo(),
    "grpo prime": grpo(flavour="prime"),
    "reinforce": reinforce(),
    "gigpo mean": gigpo(scale=False, singleton="zero"),
}
SUMS: dict[str, Signal] = {
    "episode_return": episode_return(),
    "agent_return": agent_return(),
    "return_to_go": return_to_go(gamma=0.9),
}


def one_turn_tables() -> dict[str, Turns]:
    """Where a reward is a score: one turn each, so that lengths do not mix in."""
    rng = np.random.default_rng(0)
    return {
        "one agent": sample_turns(rng, groups=(1, 2, 5, 8), agents=("a",), longest=1),
        "two agents at once": sample_turns(rng, groups=(1, 3, 4), longest=1, simultaneous=True),
        "unscored rows": sample_turns(rng, groups=(1, 2, 5, 8), agents=("a",), longest=1, missing=0.3),
        "no rows": sample_turns(rng, groups=()),
    }


@pytest.mark.parametrize("name", list(RELATIVE))
def test_relative_credit_knows_neither_the_level_nor_the_scale_of_rewards(name: str) -> None:
    promises: list[Promise] = ["shift", "scale", "constant", "unscored"]
    check_signal(RELATIVE[name], promises=promises, tables=one_turn_tables())


@pytest.mark.parametrize("name", list(DIFFERENCES))
def test_differences_know_the_scale_but_not_the_level(name: str) -> None:
    promises: list[Promise] = ["shift", "linear", "constant", "unscored"]
    check_signal(DIFFERENCES[name], promises=promises, tables=one_turn_tables())


@pytest.mark.parametrize("name", list(SUMS))
def test_sums_are_linear(name: str) -> None:
    check_signal(SUMS[name], promises=["linear", "unscored"])


@pytest.mark.parametrize("name", ["grpo", "dr_mas", "gigpo", "mars", "rloo", "dr_grpo", "reinforce"])
def test_a_noisy_constant_next_to_a_real_group_is_still_constant(name: str) -> None:
    rng = np.random.default_rng(0)
    noise = rng.uniform(-1e-8, 1e-8, 16)
    noise[8:] = rng.normal(size=8)
    turns = Turns(
        {
            "group": np.repeat([0, 1], 8),
            "episode": np.tile(np.arange(8), 2),
            "agent": ["a"] * 8 + ["b"] * 8,
            "state": np.zeros(16, np.uint64),
            "reward": 0.35 + noise,
        }
    )
    signal = reinforce(over="group") if name == "reinforce" else called(name)
    found = np.asarray(signal.evaluate(turns))
    constant = found[:8] if name != "mars" else found[:8] - found[0]
    assert not constant.any()
    assert np.abs(found[8:]).max() > 0.1


@functools.cache
def one_or_four(seed: int) -> Turns:
    return sample_turns(np.random.default_rng(seed), groups=(1, 4), simultaneous=bool(seed))


@pytest.mark.parametrize("name", ALL)
def test_extreme_but_finite_rewards_stay_finite(name: str) -> None:
    signal = called(name)
    for size in (1e-12, 1e6, 1e12):
        for seed in range(2):
            turns = one_or_four(seed)
            random = np.random.default_rng(zlib.crc32(name.encode()))
            columns: dict[str, Any] = {c: made(c, turns, random) for c in signal.needs() - set(turns.columns)}
            found = signal.evaluate(turns.with_column(reward=pl.col("reward") * size, **columns))
            assert not np.isinf(np.asarray(getattr(found, "values", found), float)).any()


def test_an_agent_that_never_acts_changes_nothing() -> None:
    """A seat without rows has no key; its episodes still count for the others."""
    tables = sample_tables()
    turns = tables["an agent that hardly acts"]
    without = turns.filter(pl.col("agent") != "idle")
    found = np.asarray(dr_mas().evaluate(turns))[(turns["agent"] != "idle").to_numpy()]
    np.testing.assert_allclose(found, np.asarray(dr_mas().evaluate(without)), 1e-12)


def test_the_benchmark_knows_every_estimator(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "environ", dict(os.environ))  # it sets numbers of threads
    script = runpy.run_path(str(Path(__file__).parents[2] / "benchmarks" / "credit.py"))
    functions = {f for f in REGISTRY.values() if f.__module__.startswith("palaestra.credit")}
    assert len(script["estimators"]([])) == len(functions)
