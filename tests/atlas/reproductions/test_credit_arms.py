"""Reproductions that train through recipes: none holds if its arms come out alike, or if its worked numbers are those
of another method, whatever the training says.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Mapping, Sequence
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from palaestra import credit
from palaestra.algebra.turns import Turns
from palaestra.credit import canon, dr_grpo, gae, grpo, reinforce, rloo
from palaestra.runs.recipe import load, override
from palaestra_atlas.reproductions import Arms, reproduce, train_arms

NUMBERS: dict[int, tuple[str, ...]] = {
    29: ("curve", "final"), 49: ("curve", "final"), 56: ("reward",), 62: ("curve",), 83: ("curve",), 89: ("curve",),
    96: ("curve",), 166: ("entropy", "right"),
}  # fmt: skip
"""What each measures of a training."""
BEST = {166: "corridor"}
"""The arm that is to come out ahead; by default the first."""
LOSES = sorted(set(NUMBERS) - {56, 96})
"""Those whose claim is one of arms."""


def module_of(number: int) -> ModuleType:
    from palaestra_atlas import reproductions

    return importlib.import_module(reproductions._modules("palaestra_atlas")[number])


def told(numbers: Sequence[str], lead: float, best: str | None = None) -> Callable[..., Arms]:
    """Stands for `train_arms`: every arm measures the same but for the seed's luck, the best one `lead` more."""

    def arms_of(recipe: Any, arms: Mapping[str, Any], seeds: Sequence[int], *rest: Any, **options: Any) -> Arms:
        luck = np.random.default_rng(0).normal(scale=0.01, size=(len(arms), len(seeds)))
        first = next(iter(arms)) if best is None else best
        return Arms({
            arm: dict.fromkeys(numbers, 0.5 + own + lead * (arm.startswith(first)))
            for (arm, own) in zip(arms, luck, strict=True)
        })  # fmt: skip

    return arms_of


@pytest.mark.parametrize("number", LOSES)
def test_it_fails_if_the_arms_come_out_alike_and_holds_if_not(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    module = module_of(number)
    monkeypatch.setattr(module, "RUNS", 12, raising=False)
    monkeypatch.setattr(module, "train_arms", told(NUMBERS[number], 0.0))
    assert not reproduce(number)[0].holds
    monkeypatch.setattr(module, "train_arms", told(NUMBERS[number], 0.2, BEST.get(number)))
    assert reproduce(number)[0].holds


@pytest.mark.parametrize(
    ("number", "name", "replacement"),
    [
        (29, "oprl", lambda score=None, step=None: rloo(score)),
        (49, "spa_reward", lambda executed=None: credit.spa_reward(executed=executed, bonus=0.0)),
        (56, "sequential_advantage", lambda: 1.0 * credit.col("prefix_value") - credit.col("value")),
        (56, "refine", lambda propose, *rest, agents, **options: ([propose([], None)] * agents, agents)),
        (57, "canon", lambda metric, mu: dr_grpo()),
        (57, "canon", lambda metric, mu: canon(metric=metric, mu=1 - mu)),
        (62, "gigpo", grpo),
        (71, "adora", lambda *rest, **options: grpo()),
        (83, "r3", grpo),
        (96, "sequential_update", functools.partial(credit.sequential_update, order="forward")),
        (96, "seeupo", lambda log_ratio: credit.seeupo()),
    ],
)
def test_it_fails_without_the_method(number: int, name: str, replacement: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    module = module_of(number)
    monkeypatch.setattr(module, "RUNS", 12, raising=False)
    if number in NUMBERS:
        monkeypatch.setattr(module, "train_arms", told(NUMBERS[number], 0.2))
    monkeypatch.setattr(module, name, replacement)
    assert not reproduce(number)[0].holds


def test_windows_without_their_bootstrap_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module_of(59), "tppo", lambda **options: gae(bootstrap=0, **options))
    assert not reproduce(59, seeds=[0])[0].holds


def test_equal_credit_on_equal_steps_must_be_salt(monkeypatch: pytest.MonkeyPatch) -> None:
    module = module_of(78)

    def shown(recipe: Any, arms: Any, seeds: Any, measure: Any, on_turns: Any) -> Arms:
        on_turns("salt", 1, module.worked()[0])
        return told(("curve",), 0.0)(recipe, arms, seeds)

    monkeypatch.setattr(module, "train_arms", shown)
    assert reproduce(78)[0].holds
    monkeypatch.setattr(module, "salt", lambda **options: grpo())
    assert not reproduce(78)[0].holds


def test_mars_must_mind_distinct_values() -> None:
    module = module_of(28)
    assert max(module.worked_error(), module.three_steps_error()) < 1e-6
    keys = {"group": [0] * 4, "episode": range(4), "turn": [0, 1] * 2, "agent": ["a", "b"] * 2}
    bias = module.seat_bias(Turns(keys | {"reward": [1.0, -1.0, 0.5, -0.5]}))
    assert bias["seat_bias_own"] < 1e-12
    assert bias["seat_bias_pooled"] == pytest.approx(bias["seat_value"]) == pytest.approx(0.75)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "mars", lambda: reinforce(over="agent"))
        assert max(module.worked_error(), module.three_steps_error()) > 1e-3


def test_alignment_must_pay_and_must_not_be_naive(monkeypatch: pytest.MonkeyPatch) -> None:
    module = module_of(50)

    def found(aligned: float, trusts: float) -> Callable[..., Arms]:
        def arms_of(recipe: Any, arms: Any, seeds: Sequence[int], measure: Any) -> Arms:
            def told_of(payoff: float, cd: float) -> dict[str, np.ndarray]:
                return {"payoff": np.full(len(seeds), payoff), "cooperates_cc": np.ones(len(seeds)),
                        "cooperates_cd": np.full(len(seeds), cd)}  # fmt: skip

            return Arms({"aligned": told_of(aligned, trusts), "selfish": told_of(1.0, 0.0)})

        return arms_of

    for payoff, trusts, holds in ((2.8, 0.1, True), (1.0, 0.1, False), (2.8, 0.9, False)):
        monkeypatch.setattr(module, "train_arms", found(payoff, trusts))
        assert reproduce(50)[0].holds is holds
    monkeypatch.setattr(module, "train_arms", found(2.8, 0.1))
    monkeypatch.setattr(module, "advantage_alignment", lambda **o: credit.advantage_alignment(**(o | {"beta": 0.0})))
    assert not reproduce(50)[0].holds


def test_agreement_is_that_of_the_credit_given() -> None:
    """Of exact values it is 1, of none it is not."""
    module = module_of(69)
    found = {}

    def watch(arm: str, iteration: int, turns: Turns) -> None:
        found[arm] = module.agreement(turns)
        found["exact"] = module.agreement(turns.with_column(advantage=_true_credit(turns, module.LENGTH)))

    still = {"still": module.STILL | {"stages": ["mc_values(k=1)"], "train": {"iterations": 1, "group_size": 60}}}
    train_arms("steps", still, [7], lambda learned: {}, on_turns=watch)
    assert found["exact"]["credit"] == pytest.approx(1.0)
    assert 0.2 < found["still"]["credit"] < 0.75


def _true_credit(turns: Turns, length: int) -> np.ndarray:
    rows = turns.frame.select("group", "episode", "turn", "right").rows()
    alive: dict[tuple[int, int], bool] = {}
    found = []
    for group, episode, turn, right in rows:
        before = alive.get((group, episode), True)
        after = before and right
        alive[group, episode] = after
        found.append(after * 0.5 ** (length - turn - 1) - before * 0.5 ** (length - turn))
    return np.array(found)


@pytest.mark.parametrize("number", [28, 29, 49, 50, 56, 62, 69, 78, 83, 89, 96, 98])
def test_every_arm_is_a_recipe(number: int) -> None:
    """The fields that arms change are fields of a recipe that ships."""
    module = module_of(number)
    names = {28: "kuhn-selfplay", 50: "dilemma", 56: "sites", 62: "corridor", 78: "corridor", 83: "answers",
             89: "corridor", 98: "answers"}  # fmt: skip
    recipe = load(names.get(number, "steps"))
    for arm in module.ARMS.values():
        assert override(recipe, dict(arm)).credit == arm.get("credit", recipe.credit)


def test_factors_must_be_decoded_by_what_can(monkeypatch: pytest.MonkeyPatch) -> None:
    """[51] A product of factors needs the network, few episodes need the factors, and what a model writes is used."""
    module = module_of(51)
    found = {"factors": 0.995, "rrd": 0.95, "raw": 0.5}

    class Linear:
        def __init__(self, size: int, **options: Any) -> None:
            self.model = credit.ReturnDecomposition(size, average=True)

        def fit(self, factors: np.ndarray, episode: np.ndarray, returns: np.ndarray, *rest: Any, **options: Any) -> Any:
            return self.model.add(factors, episode, returns)

    assert module.correlation("factors", 10, np.random.default_rng(0)) >= 0.99
    with monkeypatch.context() as patch:
        patch.setattr(module, "ReturnDecomposition", _Equal)
        assert module.correlation("factors", 10, np.random.default_rng(0)) < 0.5
    with monkeypatch.context() as patch:
        patch.setattr(module, "NetworkDecomposition", Linear)
        assert module.decoded(0)[0] <= 0.5
    monkeypatch.setattr(module, "correlation", lambda kind, *rest: found[kind])
    run = {"run_correlation_factors": 0.97, "run_correlation_raw": 0.3}
    monkeypatch.setattr(module, "in_a_run", lambda seeds: run)
    for network, holds in ((0.95, True), (0.014, False)):
        monkeypatch.setattr(module, "decoded", lambda seed, network=network: (network, 0.014))
        assert reproduce(51, seeds=[0])[0].holds is holds
    monkeypatch.setattr(module, "decoded", lambda seed: (0.95, 0.014))
    monkeypatch.setitem(run, "run_correlation_factors", 0.3)
    assert not reproduce(51, seeds=[0])[0].holds
    monkeypatch.setitem(run, "run_correlation_factors", 0.97)
    monkeypatch.setitem(found, "factors", 0.5)
    assert not reproduce(51, seeds=[0])[0].holds
    monkeypatch.setitem(found, "factors", 0.995)
    monkeypatch.setattr(module, "PROGRAM", module.PROGRAM.replace("abs(observation[2])", "observation[2]"))
    assert not reproduce(51, seeds=[0])[0].holds


class _Equal:
    """Spreads the return of an episode evenly, whatever was seen."""

    def __init__(self, size: int, **options: Any) -> None:
        self.rng = np.random.default_rng(0)

    def add(self, factors: np.ndarray, *rest: Any, **options: Any) -> _Equal:
        return self

    def predict(self, factors: np.ndarray) -> np.ndarray:
        return 1.0 + 1e-9 * self.rng.normal(size=len(factors))


def test_segment_values_must_be_better_than_the_outcome(monkeypatch: pytest.MonkeyPatch) -> None:
    """[69] Credit that does not come nearer the true one with more rollouts is not SPO's, nor is another chain."""
    module = module_of(69)
    assert module.worked_error() <= 1e-4

    def playing(noise: Mapping[str, float]) -> Callable[..., Arms]:
        def arms_of(recipe: Any, arms: Any, seeds: Any, measure: Any, on_turns: Any = None) -> Arms:
            rng = np.random.default_rng(0)
            for name in arms if on_turns else ():
                right = rng.random((300, module.LENGTH)) < 0.5
                where = np.indices(right.shape)
                won = np.zeros(right.shape)
                won[:, -1] = right.all(axis=1)
                turns = Turns({"group": [0] * right.size, "episode": where[0].ravel(), "turn": where[1].ravel(),
                               "agent": ["a"] * right.size, "right": right.ravel(), "reward": won.ravel()})  # fmt: skip
                told = _true_credit(turns, module.LENGTH) + noise[name] * rng.normal(size=right.size)
                on_turns(name, 0, turns.with_column(advantage=told))
            return Arms({name: {"curve": np.ones(len(seeds))} for name in arms})

        return arms_of

    for noise, holds in (({"k2": 0.4, "k4": 0.2, "k9": 0.1}, True), ({"k2": 0.1, "k4": 0.2, "k9": 0.4}, False),
                         ({"k2": 9.0, "k4": 6.0, "k9": 3.0}, False)):  # fmt: skip
        monkeypatch.setattr(module, "train_arms", playing(noise))
        assert reproduce(69)[0].holds is holds
    monkeypatch.setattr(module, "train_arms", playing({"k2": 0.4, "k4": 0.2, "k9": 0.1}))
    monkeypatch.setattr(module, "spo_chain", lambda: credit.agent_return())
    assert module.worked_error() > 0.1


def test_budgets_must_be_predicted_from_history(monkeypatch: pytest.MonkeyPatch) -> None:
    """[98] A value model that says the same of every task captures none of the oracle's gain."""
    module = module_of(98)
    monkeypatch.setattr(module, "train_arms", lambda *rest, **options: None)
    assert reproduce(98, seeds=[0, 1])[0].holds

    class Mean:
        def __init__(self, **options: Any) -> None:
            self.rng = np.random.default_rng(0)

        def fit(self, x: np.ndarray, solved: np.ndarray) -> Mean:
            self.mean = float(solved.mean())
            return self

        def predict(self, x: np.ndarray) -> np.ndarray:
            return np.clip(self.mean + 1e-3 * self.rng.normal(size=len(x)), 0.01, 0.99)

    with monkeypatch.context() as patch:
        patch.setattr(module, "ValueAtStart", Mean)
        assert not reproduce(98, seeds=[0, 1])[0].holds
    monkeypatch.setattr(module, "allocate_budget", lambda chances, total: np.full(len(chances), total // len(chances)))
    assert not reproduce(98, seeds=[0, 1])[0].holds
