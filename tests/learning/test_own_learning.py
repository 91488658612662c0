"""Somebody else's learner and somebody else's term train from a recipe, and what they cannot take is said first."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from quick import QUICK, validate

from palaestra.errors import RecipeError
from palaestra.learning import checkpoints
from palaestra.runs.build import check, resolve
from palaestra.runs.recipe import alone, override
from palaestra.runs.seed import Clock, Training

PLAIN: dict[str, Any] = {"warm_start": None, "train": {"iterations": 3, "groups": 4}}


def train(learn: dict[str, Any], directory: Path) -> list[dict[str, Any]]:
    recipe = override(override(alone(validate(QUICK)), PLAIN), {"learn": learn})
    setup = resolve(recipe)
    check(setup)
    clock = Clock(directory / "clock.json", resume=False)
    return Training(setup, 3, directory, clock=clock, resume=False, progress=False).run()


def test_somebody_else_s_learner(tmp_path: Path) -> None:
    lines = train({"kind": "own_learning:Nudge", "lr": 0.5, "options": {"push": 2.0}}, tmp_path)
    assert all(line["policies"]["guide"]["loss"] > 0 for line in lines)
    first, last = (checkpoints.load(checkpoints.path_of(tmp_path / "checkpoints", at)) for at in (0, 3))
    assert (first["learner"], last["learner"]) == ({"updates": 0}, {"updates": 3})
    tables = [state["policies"]["guide"]["logits"] for state in (first, last)]
    assert not torch.equal(*tables)


def test_somebody_else_s_term(tmp_path: Path) -> None:
    lines = train({"terms": "surrogate(), own_learning:calm(0.5), kl(.1)"}, tmp_path)
    said = lines[-1]["policies"]["guide"]
    assert said["calm"] > 0
    assert said["kl"] >= 0


@pytest.mark.parametrize(
    ("learn", "message"),
    [
        ({"kind": "own_learning:Nudge", "epochs": 3}, "learn: unknown option 'epochs'"),
        ({"kind": "own_learning:Nudge", "options": {"pusj": 1}}, "learn: unknown option 'pusj'; did you mean 'push'"),
        ({"kind": "own_learning:Nudg"}, "own_learning has no 'Nudg'; did you mean 'Nudge'"),
        ({"terms": "own_learning:calm(x=1)"}, "learn.terms: 'own_learning:calm.x=1.': got an unexpected keyword"),
    ],
)
def test_what_they_do_not_take_is_said_first(learn: dict[str, Any], message: str) -> None:
    with pytest.raises(RecipeError, match=message):
        check(resolve(override(alone(validate(QUICK)), {"learn": learn})))
