"""A run with stored policies of others goes on with the same ones, wherever they lie; else it is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from palaestra.agents import TabularPolicy, Team
from palaestra.errors import InputError
from palaestra.runs import saved_policies
from palaestra.runs.jobs import train
from palaestra.runs.recipe import Recipe, validate
from palaestra.runs.seed import digest, finished, run_seed


def store(folder: Path, bias: float = 0.0) -> Path:
    """A stored partner whose table has one row."""
    partner = TabularPolicy(actions=6, name="partner")
    seen = torch.tensor([7])
    partner.load_state_dict(partner.state_dict() | {"states": seen, "logits": torch.full((1, 6), bias)})
    return Team(partner=partner).save(folder)


def recipe(run: Path, iterations: int = 1, **options: Any) -> Recipe:
    saved = {"kind": "saved", "options": {"run": str(run), **options}}
    return validate(
        {
            "name": "pair",
            "env": {"make": "native/sites"},
            "policies": {"me": {"kind": "tabular"}, "partner": saved},
            "team": {"worker_0": "me", "*": "partner"},
            "train": {"iterations": iterations, "groups": 1, "group_size": 2, "checkpoint_every": 1},
            "evaluation": {"tasks": 2, "trials": 1, "look_tasks": 2, "look_trials": 1},
            "seeds": [1],
        }
    )


def test_a_run_goes_on_with_the_partner_that_it_was_begun_with(tmp_path: Path) -> None:
    before, out = store(tmp_path / "partner"), tmp_path / "out" / "seed-1"
    run_seed(recipe(before), 1, out)
    (out.parent / "recipe.yaml").write_text(recipe(before).dump())
    moved = before.rename(tmp_path / "moved")
    assert digest(recipe(before)) == digest(recipe(moved))
    assert finished(recipe(moved), 1, out) is not None
    assert finished(recipe(tmp_path / "gone"), 1, out) is not None  # of a finished seed nothing is loaded
    assert train(recipe(moved), out.parent, resume=True)["seeds"] == [1]
    store(moved, bias=1.0)
    assert finished(recipe(moved), 1, out) is None
    for asked in (recipe(moved), recipe(moved, iterations=2)):
        with pytest.raises(InputError, match=r"policies\.partner is not as it was .* trained on or exported again"):
            run_seed(asked, 1, out, resume=True)
        with pytest.raises(InputError, match=r"policies\.partner is not as it was"):
            train(asked, out.parent, resume=True)
    (out / saved_policies.KEPT).unlink()  # it does not say with which
    store(moved)
    with pytest.raises(InputError, match=r"policies\.partner is not as it was"):
        run_seed(recipe(moved), 1, out, resume=True)


def test_more_trained_seeds_change_who_they_are_only_for_those_who_took_turns(tmp_path: Path) -> None:
    for seed in (0, 1):
        store(tmp_path / "run" / f"seed-{seed}" / "policies", bias=float(seed))
    one, two = (recipe(tmp_path / "run", seeds=seeds).model_dump(mode="json") for seeds in ([0], [0, 1]))
    for seed in (0, 1, 2):
        (folder := tmp_path / f"seed-{seed}" / "start").mkdir(parents=True)
        saved_policies.keep(one, seed, folder.parent, resume=False)
        assert saved_policies.changed(one, seed, folder.parent) == []
    others = [saved_policies.changed(two, seed, tmp_path / f"seed-{seed}") for seed in (0, 1, 2)]
    assert others == [[], ["policies.partner"], []]
