"""Search for settings: the same effort for a team and its controls, and the same result after an interruption."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from palaestra.errors import InputError, RecipeError
from palaestra.foundation.progress import Bars
from palaestra.runs import inline, jobs, tuning
from palaestra.runs.recipe import Recipe, alone, load, override

SPACE = {"learn.lr": "log(1e-3, 1)", "learn.epochs": "int(1, 3)"}


@pytest.fixture(scope="module")
def recipe() -> Recipe:
    changes: dict[str, Any] = {
        "train": {"iterations": 6, "evaluate_every": 2, "checkpoint_every": 6},
        "evaluation": {
            "tasks": 2, "trials": 8, "look_tasks": 2, "look_trials": 16,
            "controls": {
                "grpo": {"train": {"credit": "grpo()", "learn": {"epochs": 1}}},
                "small": {"train": {"train": {"group_size": 4}}, "tune": {"train.groups": "int(1, 2)"}},
            },
        },
        "tune": {"space": SPACE, "trials": 6},
    }  # fmt: skip
    return override(load("corridor"), changes)


def search(recipe: Recipe, directory: Path) -> tuple[Recipe, dict[str, Any]]:
    directory.mkdir(exist_ok=True)
    return tuning.tuned(recipe, directory, lambda: ThreadPoolExecutor(1), Bars())  # type: ignore[arg-type, return-value]


@pytest.fixture(scope="module")
def done(recipe: Recipe, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Recipe, dict[str, Any]]:
    folder = tmp_path_factory.mktemp("search")
    return folder, *search(recipe, folder)


def journal(folder: Path, side: str) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in (folder / "tuning" / f"{side}.jsonl").read_text().splitlines()]
    return [{key: value for key, value in line.items() if key != "cpu_seconds"} for line in lines]


def test_a_team_and_its_controls_get_the_same_trials_over_the_same_space(
    recipe: Recipe, done: tuple[Path, Recipe, dict[str, Any]]
) -> None:
    folder, _, found = done
    assert {name: side["trials"] for name, side in found.items()} == {"after": 6, "grpo": 6, "small": 6}
    assert found["after"]["space"] == SPACE
    assert found["grpo"]["space"] == {"learn.lr": SPACE["learn.lr"]}  # its own epochs stay
    assert found["small"]["space"] == SPACE | {"train.groups": "int(1, 2)"}
    first = journal(folder, "after")[0]
    assert (first["settings"], first["as_written"]) == ({"learn.lr": 0.1, "learn.epochs": 1}, True)
    assert found["after"]["as_written"] == first["value"]
    assert found["after"]["value"] == max(
        line["value"] for line in journal(folder, "after") if line["value"] is not None
    )


def test_what_was_found_is_what_is_trained(recipe: Recipe, done: tuple[Path, Recipe, dict[str, Any]]) -> None:
    _, changed, found = done
    assert changed.learn.lr == pytest.approx(found["after"]["found"]["learn.lr"])
    assert changed.learn.epochs == found["after"]["found"]["learn.epochs"]
    control = changed.evaluation.controls["grpo"].train
    assert control is not None
    assert control["credit"] == "grpo()"
    assert control["learn"] == {"epochs": 1, "lr": found["grpo"]["found"]["learn.lr"]}
    rival = override(changed, control)
    assert (rival.credit, rival.learn.epochs, rival.learn.lr) == ("grpo()", 1, found["grpo"]["found"]["learn.lr"])


def test_a_search_goes_on_to_the_same_result(
    recipe: Recipe, done: tuple[Path, Recipe, dict[str, Any]], tmp_path: Path
) -> None:
    folder, changed, found = done
    (tmp_path / "tuning").mkdir()
    written = (folder / "tuning" / "after.jsonl").read_text().splitlines(keepends=True)
    (tmp_path / "tuning" / "after.jsonl").write_text("".join(written[:4]) + written[4][:30])  # killed in a line
    again, same = search(recipe, tmp_path)
    assert again == changed
    for side in found:
        assert journal(tmp_path, side) == journal(folder, side)
        assert same[side]["found"] == found[side]["found"]
    assert search(recipe, tmp_path) == (again, same)  # nothing is searched again
    with pytest.raises(InputError, match="is of a search with other settings"):
        search(override(recipe, {"tune": {"trials": 7}}), tmp_path)


@pytest.mark.parametrize("there", [1, 3, 5, 6])
def test_a_search_that_was_killed_between_trials_that_were_proposed_together(
    recipe: Recipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, there: int
) -> None:
    def trial(variant: Recipe, **options: Any) -> dict[str, Any]:
        line = {"curves": {}, "pruned": False, "error": None, "turns": 0, "tokens": 0, "cpu_seconds": 0.0}
        return line | {"value": -abs(float(variant.learn.lr) - 0.2)}  # type: ignore[arg-type]

    monkeypatch.setattr(tuning, "run_trial", trial)
    monkeypatch.setattr(tuning, "_starts_alike", lambda recipe, space: False)
    found = search(recipe, tmp_path / "whole")
    written = (tmp_path / "whole" / "tuning" / "after.jsonl").read_text().splitlines(keepends=True)
    (tmp_path / "killed" / "tuning").mkdir(parents=True)
    (tmp_path / "killed" / "tuning" / "after.jsonl").write_text("".join(written[:there]))
    assert search(recipe, tmp_path / "killed") == found
    assert journal(tmp_path / "killed", "after") == journal(tmp_path / "whole", "after")


def test_a_search_goes_on_with_its_own_recipe_only(
    recipe: Recipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def trial(variant: Recipe, **options: Any) -> dict[str, Any]:
        ran.append(variant)
        if len(ran) > most:
            raise KeyboardInterrupt
        line = {"curves": {}, "pruned": False, "error": None, "turns": 0, "tokens": 0, "cpu_seconds": 0.0}
        return line | {"value": float(variant.learn.lr)}  # type: ignore[arg-type]

    monkeypatch.setattr(tuning, "run_trial", trial)
    monkeypatch.setattr(tuning, "_starts_alike", lambda recipe, space: False)
    ran, most = [], 1  # type: ignore[var-annotated]
    mine = alone(recipe)
    other, longer = override(mine, {"credit": "grpo()"}), override(mine, {"train": {"iterations": 8}})
    with pytest.raises(KeyboardInterrupt):
        search(mine, tmp_path)
    begun, most = len(ran), 1000
    with pytest.raises(InputError, match=r"recipe\.yaml: the run was made with another recipe.*: credit="):
        search(other, tmp_path)
    narrow = {"space": {"learn.lr": "log(1e-5, 1e-4)"}}
    with pytest.raises(InputError, match=r"tune\.space\.learn\.lr="):
        search(override(mine, {"tune": narrow}), tmp_path)
    with pytest.raises(InputError, match="trials of 6 iterations cannot be compared with such of 8"):
        search(longer, tmp_path)
    assert len(ran) == begun
    changed, found = search(mine, tmp_path)
    with pytest.raises(InputError, match=r"recipe\.yaml: the run was made with another recipe.*: credit="):
        search(other, tmp_path)
    assert search(longer, tmp_path) == (tuning.applied(longer, found), found)
    assert search(changed, tmp_path) == (changed, found), "the recipe that a run keeps, with what was found"


def test_a_search_stays_away_from_the_seeds_of_the_proof(
    recipe: Recipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seeds, held_out = [], []
    learn, evaluate = tuning.learn, tuning.evaluate
    monkeypatch.setattr(tuning, "learn", lambda *a, seed, **o: (seeds.append(seed), learn(*a, seed=seed, **o))[1])
    monkeypatch.setattr(
        tuning, "evaluate", lambda *a, seed, **o: (held_out.append(seed), evaluate(*a, seed=seed, **o))[1]
    )
    line = tuning.run_trial(recipe, seeds=2, bounds={})
    assert seeds == [1_000_000, 1_000_001]
    assert set(held_out) == {2}
    assert [*line["curves"]] == ["0/2", "0/4", "0/6", "1/2", "1/4", "1/6"]
    assert line["value"] == pytest.approx((line["curves"]["0/6"] + line["curves"]["1/6"]) / 2)
    early = tuning.run_trial(recipe, seeds=2, bounds={"0/2": 1.1})
    assert (early["pruned"], early["value"], [*early["curves"]]) == (True, None, ["0/2"])
    assert 0 < early["turns"] < line["turns"]


def test_medians_are_of_the_best_so_far_of_finished_trials() -> None:
    def line(*values: float) -> dict[str, Any]:
        return {"value": values[-1], "curves": {f"0/{place}": value for place, value in enumerate(values)}}

    lines = [line(0.1, 0.5), line(0.3, 0.2), line(0.2, 0.4), line(0.4, 0.9)]
    assert tuning._medians(lines[:3], lower=False) == {}
    assert tuning._medians(lines, lower=False) == pytest.approx({"0/0": 0.25, "0/1": 0.45})
    assert tuning._medians(lines, lower=True) == pytest.approx({"0/0": 0.25, "0/1": 0.2})


def test_a_trial_that_fails_is_a_line_and_a_side_without_any_is_named(
    recipe: Recipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(*_: Any, **__: Any) -> None:
        raise RecipeError("broken")

    monkeypatch.setattr(tuning, "learn", failing)
    with pytest.raises(InputError, match=r"no trial of 'after' could be finished; the first: RecipeError: broken"):
        search(recipe, tmp_path)


@pytest.mark.parametrize(
    ("tune", "complaint"),
    [
        ({"space": {"learn.lr": "log(0, 1)"}}, "is no search space: write log"),
        ({"space": {"learn.lr": "lag(1, 2)"}}, "is no search space: write log"),
        ({"space": {"learn.epochs": "int(1.5, 2)"}}, "is no search space: write log"),
        ({"space": {}}, "no fields to search"),
    ],
)
def test_spaces_that_are_none(recipe: Recipe, tune: dict[str, Any], complaint: str) -> None:
    data = recipe.model_dump(mode="json") | {"tune": tune}
    with pytest.raises(Exception, match=complaint):
        Recipe.model_validate(data)


@pytest.mark.parametrize(
    ("space", "complaint"),
    [
        ({"learn.rate": "log(1e-3, 1)"}, "'learn.rate' is no field of the recipe of 'after'"),
        ({"learn.epochs": "uniform(0.5, 2)"}, "epochs"),
    ],
)
def test_fields_that_do_not_fit_are_named_before_anything_is_played(
    recipe: Recipe, tmp_path: Path, space: dict[str, str], complaint: str
) -> None:
    alone = override(recipe, {"evaluation": {"controls": {}}})
    data = alone.model_dump(mode="json") | {"tune": {"space": space}}
    with pytest.raises(RecipeError, match=complaint):
        search(Recipe.model_validate(data), tmp_path)
    assert not (tmp_path / "tuning").exists()


def test_a_run_trains_with_what_was_found_and_its_page_says_so(recipe: Recipe, tmp_path: Path) -> None:
    short = override(recipe, {"train": {"iterations": 2}, "tune": {"trials": 2}})
    controls = {name: part for name, part in short.evaluation.controls.items() if name == "grpo"}
    short = short.model_copy(update={"evaluation": short.evaluation.model_copy(update={"controls": controls})})
    summary = jobs.train(short, tmp_path / "run", jobs=1)
    assert summary["tuning"].keys() == {"after", "grpo"}
    assert load(tmp_path / "run" / "recipe.yaml").learn.lr == summary["tuning"]["after"]["found"]["learn.lr"]
    again = jobs.train(short, tmp_path / "run", jobs=1, resume=True)
    assert again["tuning"] == summary["tuning"]
    from palaestra.interface.report.page import write_report

    page = write_report(tmp_path / "run").read_text(encoding="utf-8")
    assert "Settings searched for" in page
    assert "one against untuned rivals" not in page


def test_a_training_that_a_budget_ends_between_two_looks_is_looked_at_where_it_ended(
    recipe: Recipe, tmp_path: Path
) -> None:
    short = {"train": {"iterations": 6, "evaluate_every": 5, "budget": {"turns": 1200}}, "evaluation": {"controls": {}}}
    _, found = search(override(recipe, short | {"tune": {"space": SPACE, "trials": 2}}), tmp_path / "budget")
    assert found["after"]["trials"] == 2
    assert journal(tmp_path / "budget", "after")[0]["value"] is not None


def test_trials_share_a_warm_start_that_is_learned_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    changes: dict[str, Any] = {
        "policies": {"walker": {"kind": "tiny", "options": {"hidden": 16, "vocabulary": 300, "max_new_tokens": 2}}},
        "warm_start": {"script": "random", "groups": 8, "steps": 3},
        "credit": "grpo()",
        "train": {"iterations": 1, "groups": 1, "group_size": 2},
        "evaluation": {"tasks": 2, "trials": 1, "look_tasks": 2, "look_trials": 2, "controls": {}},
        "tune": {"space": {"learn.lr": "log(1e-3, 1)"}, "trials": 2, "seeds": 2},
    }
    recipe = override(load("corridor"), changes)
    made: list[int] = []
    monkeypatch.setattr(tuning, "started", lambda *a, **o: (made.append(a[2]), inline.started(*a, **o))[1])
    _, found = search(recipe, tmp_path / "shared")
    assert made == [tuning.SEEDS, tuning.SEEDS + 1]
    assert not [*(tmp_path / "shared" / "tuning").glob("start-*")]
    monkeypatch.setattr(tuning, "_starts_alike", lambda recipe, space: False)
    _, alone = search(recipe, tmp_path / "alone")
    assert made == [tuning.SEEDS, tuning.SEEDS + 1]
    assert journal(tmp_path / "shared", "after") == journal(tmp_path / "alone", "after")
    assert found["after"]["cpu_seconds"] > 0 < alone["after"]["cpu_seconds"]
