"""Reward models: the exact parts of reproductions that take too long for CI, and what fails without the mechanism."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from told_arms import module_of, told

from palaestra.learning import terms
from palaestra_atlas.catalog.reward_models import (
    s030_micro,
    s047_reward_dance,
    s084_dpa,
    s134_dear,
    s185_doc_reward,
    s188_salmon,
    s212_polar,
)
from palaestra_atlas.reproductions import find, reproduce


def test_dears_losses_and_windows() -> None:
    assert s134_dear.worked_error() < 1e-6
    assert (s134_dear.place(25, cover_head=False), s134_dear.place(25, cover_head=True)) == (5, 0)
    assert s134_dear.place(20, cover_head=False) == 0


def test_against_a_reference_the_offset_of_a_prompt_cancels() -> None:
    moved, pointwise, slopes = s047_reward_dance.shift_and_slopes()
    assert moved < 1e-12
    assert pointwise == pytest.approx(7)
    assert slopes == pytest.approx([0.25, 0.105, 0.0177], abs=1e-3)


def test_a_direction_has_no_length() -> None:
    least, moved = s084_dpa.attributes(seed=50)
    assert least > 0.9
    assert moved < 1e-6


def test_a_mixture_fits_people_who_disagree() -> None:
    found = s030_micro.one(seed=50)
    assert found["loss_mixture"] < found["loss_single"] - 0.05
    assert found["right_after_20"] > found["right_single"] + 0.1


@pytest.mark.parametrize("seed", [50, 51])
def test_without_matching_the_content_is_learned_too(seed: int) -> None:
    assert abs(s185_doc_reward.one(seed, ("document",))[0]) < 0.02
    assert s185_doc_reward.one(seed, ())[0] > 0.7


def test_salmons_worked_numbers() -> None:
    assert s188_salmon.worked_error() < 1e-12


def test_sequences_count_their_transitions() -> None:
    rng = np.random.default_rng(0)
    chance = np.roll(np.eye(s212_polar.SYMBOLS), 1, axis=1)[None]  # every symbol is followed by the next
    counts = s212_polar.spoken(chance, 5, rng).reshape(5, s212_polar.SYMBOLS, -1)
    assert (counts.sum((1, 2)) == s212_polar.LENGTH - 1).all()
    assert (counts * (1 - chance) == 0).all()


# -- the criterion without the mechanism, on what the documented seeds measured ----------------------------------------

Numbers = Mapping[str, Any]
MEASURED: dict[int, dict[str, Any]] = {
    10: {"cooper.paid": (0.891, 0.961), "cooper.true": (0.914, 0.988), "frozen.paid": (0.881, 0.884),
         "frozen.true": (0.001, 0.001), "rule.paid": 0.96, "rule.true": 0.96},
    13: {"linear": (0.704, 0.717, 0.734), "silu": (0.886, 0.881, 0.883), "centred": (0.892, 0.879, 0.887),
         "better": 0.95, "model.truth": 0.04, "hybrid.truth": (0.94, 0.92, 0.92)},
    17: {"single": (0.047, 0.052, 0.038), "best_of_10": (0.37, 0.41, 0.32), "any_of_10": (0.37, 0.41, 0.32),
         "hindsight.success": (0.993, 0.993, 0.988), "unfitted.success": (0.049, 0.054, 0.054)},
    30: {"loss_single": (0.644, 0.651, 0.650, 0.647, 0.634), "loss_mixture": (0.510, 0.505, 0.494, 0.517, 0.487),
         "right_single": (0.585, 0.612, 0.689, 0.646, 0.624), "right_after_5": (0.728, 0.839, 0.843, 0.839, 0.843),
         "right_after_20": (0.842, 0.840, 0.843, 0.841, 0.843)},
    47: {"pointwise.helpful": 0.65, "against.helpful": 0.88},
    68: {"uniform": 0.29, "learned": 0.73, "misplaced": 0.31, "exact": 0.86, "shifted": 0.73},
    84: {"r2": (0.982, 0.979), "moved": 1e-15, "pointwise": 0.5, "unfitted": 0.0,
         "directed.least": (0.504, 0.502), "directed.most": (0.977, 0.980), "directed.regret": 0.006,
         "directed.steps_down": 0.0, "one.least": 0.994, "one.most": (0.977, 0.980), "one.regret": 0.052,
         "one.steps_down": 0.0},
    104: {"start": 0.585, "adversarial": 0.848, "reflected": 0.995, "game.good": (0.981, 0.988, 0.884),
          "start.good": (0.663, 0.572, 0.641)},
    105: {"fresh.before": (0.266, 0.367), "fresh.after": (0.927, 0.963), "once.before": (0.266, 0.367),
          "once.after": (0.595, 0.849), "last": 1.17,
          "best": 1.50},
    161: {"told": 0.87, "untold": 0.63, "both": 0.02, "one_order": 1.0, "ceiling.truth": 0.89, "without.truth": 0.06},
    162: {"debate_4": 0.88, "debate_6": 0.92, "greedy_4": 0.88, "greedy_6": 0.92, "random_4": 0.70,
          "one_sided_4": 0.51, "alone.justified": 0.40, "alone.paid": 1.0, "justified.justified": 0.63,
          "justified.paid": 0.976, "one_sided.justified": 0.40, "one_sided.paid": 1.0},
    183: {"base.single": -1.87, "base.best_of_8": -1.02, "free.single": -0.47, "held.single": -0.95,
          "tight.single": -1.72},
    185: {"matched": 0.0, "right_matched": 1.0, "mixed": (0.990, 1.000, 0.985, 0.979, 0.988),
          "right_mixed": (0.750, 0.755, 0.732, 0.738, 0.748)},
    188: {"negated": (0.964, 0.975, 0.952), "plain": (0.734, 0.723, 0.724)},
    212: {"right": (0.891, 0.892, 0.897), "right_wrong_reference": (0.496, 0.501, 0.483),
          "reward_0": (2.08, 2.11, 2.18), "reward_0.25": (1.19, 0.99, 1.15), "reward_0.5": (0.22, -0.07, 0.09),
          "reward_0.75": (-0.71, -1.14, -0.96), "reward_1": (-1.59, -2.06, -1.83)},
}  # fmt: skip
"""By system what its documented seeds measured: alike for all of them, or one for each; ARM.NUMBER is of a training.
Nobody measured `better`, `pointwise` and `unfitted`: they are what a method that fails would give."""

WITHOUT: dict[int, dict[str, dict[str, str]]] = {
    10: {"refitting": {"cooper.true": "frozen.true"}, "a model that can be hacked": {"frozen.true": "rule.true"}},
    13: {"a second layer": {"silu": "linear"}, "the rule": {"hybrid.truth": "model.truth"},
         "plain Bradley-Terry": {"centred": "better"}},
    17: {"the reward in planning": {"best_of_10": "single"},
         "the fit": {"hindsight.success": "unfitted.success"}},
    30: {"the mixture": {"loss_mixture": "loss_single"}, "the route": {"right_after_20": "right_single"}},
    47: {"the reference": {"against.helpful": "pointwise.helpful"}},
    68: {"labels": {"learned": "uniform", "shifted": "uniform"}, "their place": {"misplaced": "learned"},
         "the log-ratio": {"learned": "misplaced", "shifted": "misplaced"}, "its state": {"shifted": "exact"}},
    84: {"the direction": {name: name.replace("directed", "one")
                           for name in ("directed.least", "directed.regret", "directed.most")},
         "its unit length": {"moved": "pointwise"}, "the heads": {"r2": "unfitted"}},
    104: {"play": {"adversarial": "start"}, "labels": {"reflected": "adversarial"},
          "the rubric of the game": {"game.good": "start.good"}},
    105: {"training": {"fresh.after": "fresh.before"}, "fresh pairs": {"fresh.after": "once.after"},
          "the judge": {"best": "last"}},
    161: {"the criterion": {"told": "untold"}, "both orders": {"both": "one_order"},
          "the ceiling": {"ceiling.truth": "without.truth"}},
    162: {"the choice of evidence": {"debate_4": "random_4"}, "the other side": {"debate_4": "one_sided_4"},
          "length": {"debate_6": "debate_4"}, "the debate in the reward": {"justified.justified": "alone.justified"},
          "its two sides": {"one_sided.justified": "justified.justified"}},
    183: {"the choice": {"base.best_of_8": "base.single"}, "fine-tuning": {"free.single": "base.single"},
          "what holds it": {"held.single": "free.single"}, "what holds it tight": {"tight.single": "held.single"}},
    185: {"matching": {"matched": "mixed", "right_matched": "right_mixed"},
          "content in the other pairs": {"mixed": "matched"}},
    188: {"negation": {"negated": "plain"}},
    212: {"the reference": {"right": "right_wrong_reference"}, "another reference": {"right_wrong_reference": "right"},
          "the distance": {"reward_1": "reward_0"}},
}  # fmt: skip
"""By system and by what is taken out: whose numbers stand in which place then."""


def replaced(number: int, found: Numbers) -> dict[str, Any]:
    """What of a reproduction's module measures, answering with these numbers."""
    seeds = find(number)[0].seeds

    def of(name: str, seed: int) -> float:
        value = found[name]
        return float(value[seeds.index(seed % 100)]) if isinstance(value, tuple) else float(value)

    def all_of(seed: int) -> dict[str, float]:
        return {name: of(name, seed) for name in found if "." not in name or name.startswith("reward_")}

    def by_length(seed: int, checked: int, rounds: int = 5) -> float:
        return of("start" if not rounds else "reflected" if checked else "adversarial", seeds[0])

    def success(env: Any, scorer: Any, seed: int) -> float:
        return of(scorer if isinstance(scorer, str) else "uniform" if scorer is None else "exact", seed)

    def learn(recipe: str, changes: Any, *, seed: int) -> Any:
        q = changes["stages"][1]
        return SimpleNamespace(team=SimpleNamespace(trainable=["misplaced" if "shift(" in q else "learned"]))

    functions: dict[int, dict[str, Callable[..., Any]]] = {
        13: {"right": of},
        17: {"planned": all_of},
        30: {"one": all_of},
        68: {"learn": learn, "success": success, "Exact": lambda world: world,
             "LogRatio": lambda policy, world, shift=0.0: "shifted" if shift else policy},
        84: {"attributes": lambda seed: (of("r2", seed), of("moved", seed))},
        104: {"accuracy": by_length},
        105: {"recursion": lambda seed: (of("last", seed), of("best", seed))},
        161: {"right": lambda seed, told: of("told" if told else "untold", seed),
              "disagreement": lambda seed, kind: of("one_order" if kind.__name__ == "OneOrder" else "both", seed)},
        162: {"agreement": all_of},
        185: {"one": lambda seed, match: tuple(of(name, seed) for name in (("matched", "right_matched") if match else
                                                                          ("mixed", "right_mixed")))},
        188: {"right": lambda seed, negate: of("negated" if negate else "plain", seed)},
        212: {"one": all_of},
    }  # fmt: skip
    table: dict[str, dict[str, Any]] = {}
    for name, value in found.items():
        arm, dot, number_ = name.partition(".")
        if dot and not name.startswith("reward_"):
            table.setdefault(arm, {})[number_] = value
    return functions.get(number, {}) | ({"train_arms": told([table] * 3)} if table else {})


def holds(number: int, found: Numbers, patch: pytest.MonkeyPatch) -> bool:
    for name, stand_in in replaced(number, found).items():
        patch.setattr(module_of(number), name, stand_in)
    return reproduce(number)[0].holds


@pytest.mark.parametrize("number", MEASURED)
def test_it_holds_with_what_was_measured(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    assert holds(number, MEASURED[number], monkeypatch)


@pytest.mark.parametrize(("number", "what"), [(number, what) for number, each in WITHOUT.items() for what in each])
def test_it_fails_without(number: int, what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    swapped = {name: MEASURED[number][other] for name, other in WITHOUT[number][what].items()}
    assert not holds(number, MEASURED[number] | swapped, monkeypatch)


@pytest.mark.parametrize(
    ("number", "name", "stand_in"),
    [
        (47, "Against", lambda scorer: Pointwise(scorer)),
        (105, "dpo", lambda beta, kind, smoothing: terms.dpo(beta)),
        (185, "position_bias_test", lambda first, second: 1.0),
        (188, "swap_consistent", lambda one, other: np.asarray(one)),
    ],
)
def test_its_worked_numbers_are_those_of_the_method(
    number: int, name: str, stand_in: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    for each, measured in replaced(number, MEASURED[number]).items():
        monkeypatch.setattr(module_of(number), each, measured)
    monkeypatch.setattr(module_of(number), name, stand_in)
    assert not reproduce(number)[0].holds


class Pointwise:
    """The scorer alone, whatever it is compared with."""

    def __init__(self, scorer: Any) -> None:
        self.scorer = scorer

    def score(self, rows: Any, *, reference: Any) -> Any:
        return self.scorer.score(rows)
