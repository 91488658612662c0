"""A reward model refitted beside the policy: what it sees, what it logs, what it remembers; and pairs for DPO."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
import pytest

from palaestra.agents import ScriptedPolicy, Team
from palaestra.algebra.turns import Turns
from palaestra.envs.worlds import Exam
from palaestra.errors import InputError
from palaestra.judges.answer_features import overlap
from palaestra.judges.corrupt import KINDS
from palaestra.judges.pairs import pairs
from palaestra.learning.reward_models import OnlineLinearReward
from palaestra.learning.stages.alternate import alternate, preferences
from palaestra.learning.stages.stage import Context
from palaestra.play.executors import Local, Plan
from palaestra.runs.inline import learn

MODEL = 'online_linear("palaestra.judges.answer_features:overlap", weights=[2.0, 0.67, 1.38], bias=-2.55)'


def env() -> Exam:
    return Exam(largest=2, free=True)


def play(answers: tuple[str, ...], groups: int = 6) -> Turns:
    """Answers of each group in turn; `right` stands for the sum."""

    turn = iter(answers * groups)

    def say(request: Any) -> str:
        first, _, second = request.observation.text.split()
        return next(turn).replace("right", str(int(first) + int(second)))

    team = Team(pupil=ScriptedPolicy(say, name="pupil"))
    return Local().play(env, team, Plan(groups=groups, group_size=len(answers), seed=0))


def context(iteration: int = 1, seed: int = 0) -> Context:
    return Context(np.random.default_rng(seed), iteration, env, None, Local())  # type: ignore[arg-type]


def weights_of(made: alternate) -> list[float]:
    assert isinstance(made.model, OnlineLinearReward)
    assert made.model.weights is not None
    return list(made.model.weights)


def cooper(**options: Any) -> alternate:
    return alternate(**{"model": MODEL, "reference": "reference", "corrupted": KINDS, **options})


def test_refitting_takes_from_recitation_what_it_was_overpaid() -> None:
    turns = play(("right", "0 1 2 3 4", "9"))
    frozen, refitted = cooper(every=0), cooper(refresh=8)
    before = frozen(turns, context())
    for iteration in range(1, 11):
        told = context(iteration, iteration)
        after = refitted(turns, told)
    recited, right = (turns["action"] == "0 1 2 3 4").to_numpy(), turns["success"].to_numpy()
    assert before["model_reward"].to_numpy()[recited].min() > before["model_reward"].to_numpy()[right].max() > 0.7
    paid = after["model_reward"].to_numpy()
    assert paid[right].min() > 0.8 > 0.5 > paid[recited].max()
    assert told.metrics["pairs"] == 6 * 8
    assert told.metrics["truth"] == pytest.approx(1 / 3)
    assert told.metrics["model_reward"] == pytest.approx(paid.mean())


def test_every_other_iteration_and_only_what_is_recent() -> None:
    made, turns = cooper(every=2, refresh=2), play(("right", "8"))
    weights = []
    for iteration in range(1, 7):
        told = context(iteration)
        made(turns, told)
        weights.append(tuple(weights_of(made)))
        assert ("pairs" in told.metrics) == (iteration % 2 == 1)
    assert weights[0] == weights[1] != weights[2] == weights[3] != weights[4]
    assert [each.height for each in made.past] == [6, 6]


def test_every_third_iteration_begins_with_the_first() -> None:
    made, turns, fitted = cooper(every=3), play(("right", "8"), groups=1), []
    for iteration in range(1, 6):
        told = context(iteration)
        made(turns, told)
        fitted.append("pairs" in told.metrics)
    assert fitted == [True, False, False, True, False]


def test_without_a_verified_answer_the_model_stays_and_what_the_rule_misses_is_nobodys_negative() -> None:
    words = ("zero", "one", "two", "three", "four")
    made = cooper()
    told = context()
    made(play(words), told)
    right = play(words).filter(pl.col("success"))
    assert len(right)  # right, and refused by the rule
    assert not right["rule"].any()
    assert told.metrics["pairs"] == 0
    assert weights_of(made) == [2.0, 0.67, 1.38]


def own(rows: pl.DataFrame, reference: pl.DataFrame | None, condition: pl.DataFrame | None) -> np.ndarray:
    return overlap(rows, reference, condition)


@pytest.mark.parametrize("model", [MODEL, MODEL.replace("palaestra.judges.answer_features:overlap", f"{__name__}:own")])
def test_what_is_remembered_is_found_again(model: str) -> None:
    turns = play(("right", "8"))
    one, other = cooper(refresh=3, model=model), cooper(refresh=3, model=model)
    for iteration in range(1, 3):
        one(turns, context(iteration, iteration))
    other.load_state_dict(one.state_dict())
    for iteration in range(3, 6):
        both = [each(turns, context(iteration, iteration)).frame for each in (one, other)]
        assert both[0].equals(both[1])


def test_bad_options_are_refused() -> None:
    with pytest.raises(InputError, match="refresh=0"):
        alternate(refresh=0)
    with pytest.raises(InputError, match="unknown pairing"):
        alternate("best_vs_wurst()")
    with pytest.raises(InputError, match="unit='row'"):
        preferences(unit="row")


def test_frozen_the_policy_recites_and_refitted_it_answers() -> None:
    """[10] with a table of logits: a third of the recipe's tasks, seconds instead of a minute."""
    table = {
        "env": {"options": {"largest": 1, "free": False}}, "warm_start": None, "learn": {"lr": 0.3},
        "policies": {"pupil": {"kind": "tabular", "options": {"capacity": 16}}},
        "train": {"iterations": 25, "groups": 4},
    }  # fmt: skip
    frozen = f"alternate(reference='reference', every=0, model={MODEL!r})"
    arms = {}
    for name, more in {"frozen": {"stages": frozen}, "refitted": {}}.items():
        learned = learn("cooper", table | more, seed=0)
        arms[name] = [np.mean(learned.curve(field)[-5:]) for field in ("reward", "success")]
    assert arms["frozen"][0] > 0.75
    assert arms["frozen"][1] < 0.1
    assert min(arms["refitted"]) > 0.8


def test_pairs_of_siblings_train_by_dpo() -> None:
    changes = {
        "stages": 'preferences("siblings()", q="value_label(value=reward)", unit="turn")',
        "learn": {"terms": "dpo(beta=0.5)", "lr": 0.3}, "train": {"iterations": 15, "groups": 4, "group_size": 8},
        "env": {"options": {"tasks": 3, "answers": 4}},
    }  # fmt: skip
    learned = learn("answers", changes, seed=0)
    assert learned.lines[0]["stages"]["preferences"]["pairs"] > 0
    assert np.mean(learned.curve()[-3:]) > np.mean(learned.curve()[:2]) + 0.3


def test_pairs_that_are_all_ties_teach_nothing_and_a_missing_margin_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    turns, seen = play(("right", "9")), []
    made = cooper(margins=True)
    monkeypatch.setattr(made.model, "fit", lambda data, **_: seen.append(data) or {})
    told = context()
    made(turns, told)
    assert told.metrics["pairs"] == 6
    assert seen[0].margin.tolist() == [0.0] * 6
    made.pairing, made.past = lambda table: pairs(table, "0 * reward", ties="keep"), []
    made(turns, told)
    assert (told.metrics["pairs"], len(seen)) == (0.0, 1)


def test_pairs_of_no_criterion_have_no_condition(monkeypatch: pytest.MonkeyPatch) -> None:
    made, seen = cooper(), []
    monkeypatch.setattr(made.model, "fit", lambda data, **_: seen.append(data) or {})
    made(play(("right", "9")), context())
    assert [data.condition is None for data in seen] == [True]
