"""Matched budgets: every variant spends as much, says so, and what cannot be kept is refused before it is spent."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from palaestra.errors import InputError, RecipeError
from palaestra.interface.library import compare, train
from palaestra.runs import budget
from palaestra.runs.inline import learn
from palaestra.runs.recipe import load

SMALL = [
    "train.groups=4", "train.group_size=2", "train.evaluate_every=5", "evaluation.tasks=6", "evaluation.trials=1",
    "evaluation.look_tasks=4", "evaluation.look_trials=1", "evaluation.controls={}",
]  # fmt: skip


def lines(*turns: int) -> list[dict[str, Any]]:
    return [{"turns": each, "tokens_in": 10 * each, "tokens_out": each} for each in turns]


def test_a_budget_is_read_and_counted() -> None:
    assert budget.read("price=2.5,input=1e-6,output=4e-6") == {"price": 2.5, "input": 1e-6, "output": 4e-6}
    assert budget.spent(budget.read("tokens=99"), lines(2, 3)) == 55
    assert budget.spent(budget.read("turns=99"), lines(2, 3)) == 5
    assert budget.spent(budget.read("price=1"), lines(2, 3)) == 50 * 1 + 5 * 4
    assert budget.spent(budget.read("price=1,input=0,output=2"), lines(2, 3)) == 10


def test_an_iteration_that_would_not_fit_is_not_begun() -> None:
    kept = {"turns": 10.0}
    assert not budget.should_stop(kept, [])
    assert not budget.should_stop(kept, lines(2, 4)), "4 more still fit"
    assert budget.should_stop(kept, lines(4, 3)), "one as dear as the dearest would not"
    assert budget.should_stop(kept, lines(12))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("token=5", "'token'; did you mean 'tokens'"),
        ("tokens=0", "expected more than 0"),
        ("tokens=5,turns=5", "one of tokens, price, turns"),
        ("tokens=5,input=1", "one of tokens, price, turns"),
        ("input=1", "one of tokens, price, turns"),
        ("lots", "write tokens=200000"),
    ],
)
def test_what_is_no_budget_is_refused(text: str, says: str) -> None:
    with pytest.raises(InputError, match=says):
        budget.read(text)


def test_a_recipe_takes_one(tmp_path: Path) -> None:
    assert load("answers", ["train.budget={turns: 50}"]).train.budget == {"turns": 50}
    with pytest.raises(RecipeError, match="did you mean 'turns'"):
        load("answers", ["train.budget={turn: 50}"])
    with pytest.raises(RecipeError, match="write lag: 0"):
        load("answers", ["train.budget={turns: 50}", "train.lag=1"])


def test_variants_spend_as_much_as_each_other_and_say_so(tmp_path: Path) -> None:
    """One talks twice as much as the other, and therefore learns half as often."""
    found = compare("answers", SMALL, vary="train.group_size=2,4", seeds=1, budget="turns=50", directory=tmp_path,
                    jobs=1)  # fmt: skip
    spent = found["spent"]
    assert spent["2"] == {"spent": 48.0, "iterations": 6.0}
    assert spent["4"] == {"spent": 48.0, "iterations": 3.0}
    assert (
        "the same budget for all, 50 turns of play in training: 2 spent 48 in 6; 4 spent 48 in 3"
        in found["budget_said"]
    )
    assert [row["system"] for row in found["economy"]] == ["2", "4"]
    assert found["economy"][0]["unit"] == "turns"
    assert found["economy"][0]["cost"] == 1.0
    for folder, last in (("variant-0", 6), ("variant-1", 3)):
        told = (tmp_path / folder / "seed-0" / "metrics.jsonl").read_text().splitlines()
        assert [json.loads(line)["iteration"] for line in told] == list(range(1, last + 1))
        assert json.loads(told[-1])["evaluation"] is not None, "the last iteration is looked at, whichever it is"
    assert "the same budget for all" in (tmp_path / "report.html").read_text()


def test_a_budget_that_cannot_be_kept_is_named_before_anything_is_spent(tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match=r"train.group_size=4: train.budget: turns=10 cannot be kept: one iteration of"
                       r" 4 x 4 episodes takes at least 16"):  # fmt: skip
        compare("answers", SMALL, vary="train.group_size=2,4", seeds=1, budget="turns=10", directory=tmp_path)
    assert not list(tmp_path.iterdir())


def test_a_training_in_memory_keeps_its_budget() -> None:
    learned = learn("answers", {"train": {"iterations": 9, "groups": 4, "group_size": 2, "budget": {"turns": 30}}})
    assert 1 <= len(learned.lines) < 9
    assert budget.spent({"turns": 30}, learned.lines) <= 30


def test_turns_that_do_not_say_their_tokens_end_a_training_at_once() -> None:
    played = [{"turns": 32, "tokens_in": 0, "tokens_out": 0}]
    for unit in ("tokens=99", "price=99"):
        with pytest.raises(InputError, match="none of the 32 turns says its tokens; give a budget of turns"):
            budget.should_stop(budget.read(unit), played)
    assert not budget.should_stop(budget.read("turns=99"), played)


def test_overrides_of_a_recipe_object_count(tmp_path: Path) -> None:
    recipe = load("answers", SMALL)
    with pytest.raises(RecipeError, match=r"train\.iteration: unknown field"):
        train(recipe, tmp_path, overrides=["train.iteration=1"])
    train(recipe, tmp_path, overrides=["train.iterations=1", "seeds=1"], jobs=1)
    assert [path.name for path in tmp_path.glob("seed-*")] == ["seed-0"]
    assert len((tmp_path / "seed-0" / "metrics.jsonl").read_text().splitlines()) == 1
