"""Worked numbers of trials of credit: each of them misses when the method is replaced by what it is compared with."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from palaestra import credit
from palaestra.algebra.signals import Signal, col
from palaestra.credit import dr_grpo, grpo, reinforce
from palaestra.rewards import matched


def instead(signal: Signal) -> Callable[..., Signal]:
    """A function that gives this signal whatever it is asked."""
    return lambda *args, **options: signal


def swapped(**how: Any) -> Signal:
    """A-GRAE with ω and 1 - ω exchanged."""
    z, p = grpo(**how), credit.mean("reward", over="group")
    omega = 1.0 - credit.mean("reward", over=())
    weighed = z * (omega / (2 * p**0.5) + (1.0 - omega) / (2 * (1.0 - p) ** 0.5))
    return credit.where(weighed > 0.0, weighed * (1.0 - omega), weighed)


WORKED: list[tuple[str, str, str, Callable[..., Any], float]] = [
    ("s027_ml_engineering", "worked_error", "duration_aware", lambda advantage, duration: col(advantage), 1e-9),
    ("s061_a_grae", "identities", "a_grae", lambda **how: grpo(**how), 1e-3),
    ("s061_a_grae", "identities", "a_grae", swapped, 1e-3),
    ("s067_advevo_marl", "worked_error", "advevo_marl", lambda: reinforce(over="agent"), 1e-9),
    ("s067_advevo_marl", "worked_error", "advevo_marl", lambda: reinforce(), 1e-9),
    ("s028_mars", "worked_error", "mars", lambda: credit.whiten(reinforce(over="agent")), 1e-6),
    ("s075_adhint", "worked_error", "adhint", lambda entropy: grpo("reward"), 1e-4),
    ("s075_adhint", "worked_error", "adhint", lambda entropy: credit.adhint(entropy=entropy, sharpness=0.0), 1e-4),
    ("s075_adhint", "worked_error", "adhint", lambda entropy: credit.adhint(entropy=entropy, cap=0.0), 1e-4),
    ("s077_spae", "worked_error", "spae", lambda **o: credit.spae(alpha=0.0, **o), 1e-3),
    ("s077_spae", "worked_error", "spae", lambda **o: credit.spae(saturated=0.95, **o), 1e-3),
    ("s077_spae", "worked_error", "spae", lambda **o: dr_grpo(), 1e-3),
    ("s097_matchtir", "worked_error", "matchtir", lambda: credit.matchtir(weight=1.0), 1e-3),
    ("s097_matchtir", "worked_error", "matchtir", lambda: credit.matchtir(weight=0.0), 1e-3),
    ("s097_matchtir", "worked_error", "matched", lambda table, method="": matched(table, method="greedy"), 1e-3),
    ("s100_arena_rl", "worked_error", "arena_rl", lambda: grpo("arena"), 1e-4),
    ("s103_mas_host", "worked_error", "mas_host", instead(grpo()), 1e-4),
    ("s147_comam", "worked", "comam_reward", lambda outcome: col("reward") + 0.5 * col(outcome), 1e-4),
    ("s148_spo", "worked_error", "win_rate", lambda item, preference: credit.win_rate(item), 1e-4),
    ("s168_igpo", "worked_error", "igpo", lambda: credit.igpo(flavour="cookbook"), 1e-3),
    ("s168_igpo", "worked_error", "igpo", lambda: grpo(), 1e-3),
    ("s172_gui_g1", "worked_error", "gui_g1", lambda: dr_grpo(), 1e-4),
    ("s174_empg", "worked_error", "empg", lambda *a, **o: credit.empg(*a, **o, bonus=0.0), 1e-4),
    ("s174_empg", "worked_error", "empg", lambda *a, **o: credit.empg(*a, **o, k=0.0), 1e-4),
    ("s195_stratified_grpo", "worked_error", "stratified_grpo", lambda **o: grpo(ddof=0), 1e-4),
]


def largest(module: Any, function: str) -> float:
    found = getattr(module, function)()
    return max(found.values()) if isinstance(found, dict) else found


@pytest.mark.parametrize(
    ("name", "function", "method", "replacement", "tolerance"),
    WORKED,
    ids=[f"{name}-{method}-{number}" for number, (name, _, method, _, _) in enumerate(WORKED)],
)
def test_it_holds_with_the_method_and_misses_without(
    name: str, function: str, method: str, replacement: Callable[..., Any], tolerance: float, monkeypatch: Any
) -> None:
    module = importlib.import_module(f"palaestra_atlas.catalog.credit.{name}")
    assert largest(module, function) <= tolerance
    monkeypatch.setattr(module, method, replacement)
    assert largest(module, function) > 10 * tolerance


def test_tiers_that_outweigh_success_lose_the_order(monkeypatch: Any) -> None:
    module = importlib.import_module("palaestra_atlas.catalog.credit.s145_ssl")
    assert module.order_gap() > 0
    monkeypatch.setattr(
        module, "sweet_spot", lambda distance: col("success") + 2.0 * credit.where("distance", 0.0, 1.0)
    )
    assert not module.order_gap() > 0


def test_a_way_of_judging_that_sees_nothing_ranks_nothing() -> None:
    module = importlib.import_module("palaestra_atlas.catalog.credit.s100_arena_rl")
    rng = np.random.default_rng(0)
    quality = rng.normal(size=module.ITEMS)
    found = module.judged(quality, rng)
    assert {name: cost for name, (_, cost) in found.items()} == {
        "round_robin": 120,
        "seeded_single": 30,
        "anchor": 15,
        "single_elimination": 15,
        "pointwise": 16,
    }
    assert module.agreement(np.ones(module.ITEMS), quality) == 0.0
