"""Teams in recipes: as a call, written out as a mapping, and with a seat that chooses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
import pytest

from palaestra.algebra.messages import messages
from palaestra.algebra.turns import Turns
from palaestra.errors import RecipeError
from palaestra.runs.inline import learn
from palaestra.runs.recipe import validate

BASE: dict[str, Any] = {
    "name": "teams",
    "env": {
        "make": "reasoning_gym",
        "options": {"prompt": "short", "datasets": {"chain_sum": {"min_terms": 2, "max_terms": 2}}},
    },
    "policies": {"solver": {"kind": "tiny", "options": {"hidden": 16, "layers": 1, "heads": 2, "max_new_tokens": 3}}},
    "team": {"*": "solver"},
    "warm_start": {"script": "answers", "groups": 20, "steps": 1},
    "train": {"iterations": 2, "groups": 2, "group_size": 2},
    "evaluation": {"tasks": 2, "trials": 1, "look_tasks": 2, "look_trials": 1},
}  # fmt: skip
WRITTEN = {
    "roles": ["one", "two", "judge"],
    "edges": {"judge": ["one", "two"]},
    "gate": "kept(.5)",
    "aggregate": "of('judge')",
}


@pytest.mark.parametrize(
    ("workflow", "roles"),
    [
        ("debate(2)", {"debater-1", "debater-2"}),
        (WRITTEN, {"one", "two", "judge"}),
        ("orchestrated({'alone': 'single()', 'talk': 'debate(2)'}, price=.1)", None),
    ],
)
def test_a_team_is_one_line_of_a_recipe(workflow: Any, roles: set[str] | None) -> None:
    found = []
    base = {**BASE, "warm_start": None} if roles is None else BASE
    changes: dict[str, Any] = {"env": {"workflow": workflow}}
    if roles is None:
        changes |= {"policies": {"chief": {"kind": "tabular"}}, "team": {"orchestrator": "chief"}}
    learn(base, changes, seed=0, on_turns=lambda iteration, turns: found.append(turns))
    assert len(found) == 2
    if roles is None:
        chief = found[0].frame.filter(found[0]["agent"].cast(str) == "orchestrator")
        assert len(chief) == 4
        assert set(chief["action"]) <= {"alone", "talk"}
        assert chief["logprobs"].list.len().to_list() == [1] * 4
    else:
        assert set(found[0]["agent"].cast(str)) == roles
        assert set(messages(found[0])["receiver"]) <= roles


@pytest.mark.parametrize(
    ("workflow", "said"),
    [
        ("debat(2)", "did you mean 'debate'"),
        ("debate(hands=2)", "hands"),
        ({"roles": ["a"], "edgs": "all"}, "edgs"),
        ({"edges": "all"}, "roles"),
        ({"roles": ["a", "b"], "edges": "all"}, "nobody is first"),
        ({"roles": ["a", "b"], "edges": "all", "rounds": 2, "gate": "kept(0)"}, "lets nothing through"),
    ],
)
def test_what_cannot_work_is_named_before_anything_is_played(workflow: Any, said: str) -> None:
    from palaestra.runs.build import resolve

    with pytest.raises(RecipeError, match=said):
        resolve(validate({**BASE, "env": {**BASE["env"], "workflow": workflow}}))


def test_messages_are_kept_beside_the_turns(tmp_path: Path) -> None:
    from palaestra.runs.jobs import train
    from palaestra.runs.recipe import validate

    recipe = {**BASE, "env": {**BASE["env"], "workflow": "debate(2)"}, "seeds": [0]}
    recipe["train"] = {**BASE["train"], "save_turns": "last", "checkpoint_every": 1}
    train(validate(recipe), tmp_path / "run", resume=False, jobs=1, console=None)
    folder = tmp_path / "run" / "seed-0"
    (kept,) = (folder / "messages").glob("*.parquet")
    turns = Turns.load(folder / "turns" / kept.name)
    assert pl.read_parquet(kept).equals(messages(turns))
    assert len(messages(turns)) == 2 * len(turns.frame.unique(["group", "episode"]))
