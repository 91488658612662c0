"""Reproductions of rewards and evaluation that train through recipes: none holds if its arms come out alike, or if its
worked numbers are those of another method, whatever the training says.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import pytest
from told_arms import Table, module_of, told

from palaestra.algebra.signals import col, fill_missing, mean
from palaestra.algebra.turns import Turns
from palaestra.credit import gae, grpo
from palaestra.rewards import attribute, cm2, rlver_reward, stepwise_point, tool_rl_reward, vote
from palaestra.rewards.paths import path_credit
from palaestra.runs.recipe import load, override
from palaestra_atlas.reproductions import Arms, reached, reproduce

HOLDS: dict[int, list[Table]] = {
    5: [{"local": {"dice": 0.65}, "team": {"dice": 0.5}, "boundary": {"dice": 0.66}}],
    15: [{"sparse": {"success": 0.6, "final": 0.9}, "exprd": {"success": 0.1, "final": 0.0},
          "expadard": {"success": 0.85, "final": 1.0}, "explors": {"success": 0.7, "final": 1.0}}],
    34: [{"both": {"exit": 0.67}, "sparse": {"exit": 0.0}}],
    46: [{"separate": {"first": 0.2, "last": 0.96}}],
    55: [{"patience_1.0": {"first": 0.6, "welfare": 0.96}, "patience_0.8": {"first": 0.8, "welfare": 0.94},
          "patience_0.5": {"first": 0.9, "welfare": 0.9}}],
    95: [{"self_play": {"first": 0.6, "accepted": 0.99, "counter": 0.7}}],
    156: [{"turn": {"iterations": 29}, "trajectory": {"iterations": 40}}],
    163: [{"none": {"curve": 0.0, "final": 0.0}, "right": {"curve": 0.7, "final": 1.0},
           "noisy": {"curve": 0.4, "final": 0.9}}],
    164: [{"fixed": {"trained": 1.0, "fresh": 0.35}, "sampled": {"trained": 0.95, "fresh": 0.95}}],
    173: [{"plain": {"hit": 0.95, "words": 150.0}, "short": {"hit": 0.93, "words": 60.0}}],
    169: [{"attributed": {"iterations": 16}, "uniform": {"iterations": 16}}],
    180: [{"published": {"smallest": 0.65}, "equal": {"smallest": 0.5}}],
    184: [{"success": {"early": 0.6, "final": 1.0}, "shaped": {"early": 0.7, "final": 1.0},
           "switched": {"early": 0.7, "final": 1.0}}],
    187: [{"path": {"iterations": path}, "answer": {"iterations": answer}}
          for path, answer in ((29, 29), (40, 46), (53, 124))],
    191: [{"checked": {"feasible": 1.0, "invented": 0.01}, "outcome": {"feasible": 1.0, "invented": 0.4}},
          {"replay": {"hard": 0.7, "all": 0.8}, "fresh": {"hard": 0.6, "all": 0.8}}],
    203: [{"e_grpo": {"curve": 0.5, "iterations": 40}, "grpo": {"curve": 0.3, "iterations": 60}}],
    215: [{"fine": {"curve": 0.5, "iterations": 40}, "all": {"curve": 0.3, "iterations": 60}}],
    206: [{"earl": {"rows": 3.6, "iou": 0.78}, "correctness": {"rows": 15.0, "iou": 0.2}}],
    216: [{"program": {"opened": 0.1, "drops": 6.0}}, {"program": {"opened": 1.0, "drops": 0.0}},
          {"expert": {"opened": 1.0, "drops": 0.0}}],
    218: [{"co": {"start": 0.4, "end": 0.7}, "self": {"start": 0.4, "end": 0.4}}],
}  # fmt: skip
"""What trainings measured, one table for each call of `train_arms`."""
ALIKE = {
    5: "team", 15: "sparse", 34: "sparse", 46: None, 55: "patience_1.0", 95: None, 156: "trajectory", 163: "right",
    164: "fixed", 169: None, 173: "plain", 180: "equal", 184: "success", 187: "answer", 191: "outcome", 203: "grpo",
    206: "correctness", 215: "all", 216: None, 218: "self",
}  # fmt: skip
"""The baseline that all arms are made equal to; None: nothing is claimed of arms against each other."""
RECIPES = {
    41: "arms",
    5: "voxels",
    15: "maze",
    34: "maze",
    55: "market",
    163: "maze",
    46: "network-consensus",
    156: "talk",
    184: "corridor",
}


class Told(NamedTuple):
    """What a test said."""

    p: float


def alike(number: int) -> list[Table]:
    baseline = ALIKE[number]
    return [dict.fromkeys(table, table[baseline if baseline in table else list(table)[-1]]) for table in HOLDS[number]]


@pytest.mark.parametrize("number", HOLDS)
def test_it_holds_with_what_was_measured(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module_of(number), "train_arms", told(HOLDS[number]))
    assert reproduce(number)[0].holds


@pytest.mark.parametrize("number", [number for number, baseline in ALIKE.items() if baseline])
def test_it_fails_if_the_arms_come_out_alike(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module_of(number), "train_arms", told(alike(number)))
    assert not reproduce(number)[0].holds


@pytest.mark.parametrize(
    ("number", "name", "replacement"),
    [
        (95, "bargaining_share", lambda discounts, rounds=None: 0.5),
        (156, "cm2", lambda score, over=None, **options: cm2(mean(score, over="episode"), over="group", **options)),
        (55, "choice_position_test", lambda ranks, proposals: Told(p=0.0)),
        (163, "milestone_bonus", lambda: fill_missing(0.2 * (col("milestone") >= 0), 0.0)),
        (169, "attribute", lambda outcome, *rest, **options: attribute(outcome, how="uniform")),
        (184, "cum_max_gain", lambda progress: progress),
        (184, "gae", lambda *columns, lam, **options: gae(*columns, lam=0.0, **options)),
        (187, "path_credit", lambda steps, gamma=0.0: path_credit(steps, 1e-12)),
        (203, "e_grpo", lambda text, entities: grpo()),
        (218, "co_reward", lambda answer: grpo(vote(answer, over="group"))),
        (215, "tool_rl_reward", lambda calls, gold, granularity: tool_rl_reward(calls, gold, granularity="all")),
    ],
)
def test_it_fails_without_the_method(number: int, name: str, replacement: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    module = module_of(number)
    monkeypatch.setattr(module, "train_arms", told(HOLDS[number]))
    monkeypatch.setattr(module, name, replacement)
    assert not reproduce(number)[0].holds


def test_the_break_even_is_that_of_the_penalties(monkeypatch: pytest.MonkeyPatch) -> None:
    module = module_of(180)
    monkeypatch.setattr(module, "train_arms", told(HOLDS[180]))
    monkeypatch.setitem(module.REWARDS, "published", module.REWARDS["equal"])
    assert not reproduce(180)[0].holds


@pytest.mark.parametrize(("sooner", "holds"), [(5, True), (0, False)])
def test_clicks_must_come_near_sooner(sooner: int, holds: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    module = module_of(193)

    def arms_of(recipe: Any, arms: Any, seeds: Sequence[int], measure: Any, on_turns: Any) -> Arms:
        for name in arms:
            for _ in seeds:
                for iteration in range(30):
                    near = iteration >= 20 - sooner * (name == "stepwise")
                    row = {"gold_point": [[0.0, 0.0]], "distance": [10.0 if near else 90.0]}
                    on_turns(name, iteration, Turns({"episode": [0], **row}))
        return Arms({name: {"to_hit": np.full(len(seeds), 30.0)} for name in arms})

    monkeypatch.setattr(module, "train_arms", arms_of)
    assert reproduce(193)[0].holds is holds
    monkeypatch.setattr(module, "stepwise_point", lambda point, gold: stepwise_point(point, gold, far=11.0))
    assert not reproduce(193)[0].holds


@pytest.mark.parametrize(("learned", "holds"), [(True, True), (False, False)])
def test_users_must_be_pleased(learned: bool, holds: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    module = module_of(194)
    ends = {"moderate": 0.6, "hard": 0.5, "harder": 0.4}

    def arms_of(recipe: Any, arms: Any, seeds: Sequence[int], measure: Any, on_turns: Any) -> Arms:
        for name in arms:
            for _ in seeds:
                for iteration in range(10):
                    paid = ends[name] if not learned or iteration > 3 else 0.1
                    on_turns(name, iteration, Turns({"episode": [0], "reward": [paid]}))
        return Arms({name: {} for name in arms})

    monkeypatch.setattr(module, "train_arms", arms_of)
    assert reproduce(194)[0].holds is holds
    monkeypatch.setattr(module, "rlver_reward", lambda delta: rlver_reward(delta, start=50))
    assert not reproduce(194)[0].holds


@pytest.mark.parametrize("number", [5, 14, 15, 34, 41, 46, 55, 152, 156, 163, 173, 184, 203, 204, 206, 208])
def test_every_arm_is_a_recipe(number: int) -> None:
    """The fields that arms change are fields of a recipe that ships."""
    recipe = load(RECIPES.get(number, "world"))
    for arm in module_of(number).ARMS.values():
        assert override(recipe, dict(arm)).credit == arm.get("credit", recipe.credit)


def shown(ends: Sequence[Turns], measured: Table) -> Callable[..., Arms]:
    """Stands for `train_arms`: shows each arm's turns as those of every iteration."""

    def arms_of(recipe: Any, arms: Any, seeds: Sequence[int], measure: Any, on_turns: Any) -> Arms:
        for name, turns in zip(arms, ends, strict=True):
            for iteration in range(len(seeds) * 20):
                on_turns(name, iteration, turns)
        return told([measured])(recipe, arms, seeds)

    return arms_of


@pytest.mark.parametrize(("rows", "strict", "holds"), [(1.2, 0.98, True), (13.0, 0.98, False), (1.2, 0.6, False)])
def test_little_is_submitted(rows: float, strict: float, holds: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    ended = Turns({"episode": [0], "tool": ["submit"], "reward": [0.8]})
    found = {"published": {"rows": rows, "shown": 0.1, "precision": 0.8}}
    found["every_piece"] = {"rows": 1.0, "shown": 0.1, "precision": strict}
    monkeypatch.setattr(module_of(152), "train_arms", shown([ended, ended], found))
    assert reproduce(152)[0].holds is holds


def test_parts_must_give_a_signal_and_teach(monkeypatch: pytest.MonkeyPatch) -> None:
    keys = {"group": [0, 0], "episode": [0, 1]}
    flat, signal = (Turns(keys | {"reward": reward}) for reward in ([0.0, 0.0], [0.0, 1.0]))
    hard = {"uniform": {"hard": 0.1}, "staged": {"hard": 0.0}, "parts": {"hard": 0.4}}
    for turns, told_, holds in (
        ([flat, signal, signal], hard, True),
        ([flat, signal, flat], hard, False),
        ([flat, signal, signal], {**hard, "parts": hard["uniform"]}, False),
        ([flat, signal, signal], {**hard, "staged": hard["parts"]}, False),
    ):
        monkeypatch.setattr(module_of(204), "train_arms", shown(turns, told_))
        assert reproduce(204)[0].holds is holds


@pytest.mark.parametrize(("cost", "price", "holds"), [(0.18, 0.54, True), (0.3, 0.54, False), (0.18, 0.8, False)])
def test_the_limit_must_be_met(cost: float, price: float, holds: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    shares = {"dual": cost, "fixed_0.2": 0.9, "fixed_0.4": 0.5, "fixed_1": 0.0}

    def bandit(share: float, price: float) -> Turns:
        first = np.arange(100) < round(100 * share)
        return Turns(
            {"episode": range(100), "action_ids": [[0 if each else 1] for each in first], "price.broken": [price] * 100}
        )

    ends = [bandit(share, price) for share in shares.values()]
    monkeypatch.setattr(module_of(41), "train_arms", shown(ends, {name: {} for name in shares}))
    assert reproduce(41)[0].holds is holds


@pytest.mark.parametrize(("difference", "holds"), [(0.72, True), (0.6, False), (0.3, False)])
def test_a_section_must_be_given_up(difference: float, holds: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    ends = [Turns({"episode": [0], "whole": [total]}) for total in (0.38, 0.62, difference)]
    monkeypatch.setattr(
        module_of(208), "train_arms", shown(ends, {name: {} for name in ("local", "global", "difference")})
    )
    assert reproduce(208)[0].holds is holds


@pytest.mark.parametrize(("naive", "holds"), [(0.05, True), (1.0, False)])
def test_who_is_paid_for_waiting_waits(naive: float, holds: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    table = {"sparse": {"tries": 1.0}, "shaped": {"tries": 1.0}, "naive": {"tries": naive}}
    monkeypatch.setattr(module_of(14), "train_arms", told([table]))
    assert reproduce(14)[0].holds is holds


@pytest.mark.parametrize(("drops", "opened", "holds"), [(0.0, 1.0, True), (0.5, 1.0, False), (0.0, 0.9, False)])
def test_what_was_fed_back_must_be_kept(
    drops: float, opened: float, holds: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, _, expert = HOLDS[216]
    tables = [first, {"program": {"opened": opened, "drops": drops}}, expert]
    monkeypatch.setattr(module_of(216), "train_arms", told(tables))
    assert reproduce(216)[0].holds is holds


def test_reached_is_the_first_window() -> None:
    assert reached([0.0, 1.0, 1.0, 0.0, 1.0, 1.0, 1.0], 0.9, window=3) == 4
    assert reached([float("nan"), 0.2], 0.9) == 2
