"""What a recipe may ask for when its run goes on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from palaestra.errors import InputError
from palaestra.runs.recipe import validate
from palaestra.runs.resume_checks import refuse_other

RECIPE: dict[str, Any] = {
    "name": "walk",
    "env": {"make": "native/sites"},
    "policies": {"one": {"kind": "tabular"}},
    "team": {"*": "one"},
    "train": {"iterations": 4},
}
FIRST, SECOND = {"worker_0": {"iterations": 2}}, {"other": {"seat": "worker_1"}}
PHASES = [{"name": "a", "until": "share(.5) or stalled(3)", "learn": {"lr": 0.3}}, {"name": "b"}]


def goes_on(old: dict[str, Any], new: dict[str, Any]) -> None:
    refuse_other(Path("recipe.yaml"), *(validate(RECIPE | each) for each in (old, new)))


def attacks(**each: Any) -> dict[str, Any]:
    return {"evaluation": {"attacks": each}}


def test_an_attack_may_be_added_and_none_changed() -> None:
    for old in ({}, FIRST, FIRST | SECOND):
        goes_on(attacks(**old), attacks(**FIRST, **SECOND))
    for new in ({}, {"worker_0": {"iterations": 3}}, SECOND):
        with pytest.raises(InputError, match=r"evaluation\.attacks\.worker_0="):
            goes_on(attacks(**FIRST), attacks(**new))


def test_a_phase_that_is_a_share_of_the_run_is_not_stretched() -> None:
    more = {"train": {"iterations": 6}}
    goes_on({"phases": PHASES}, {"phases": PHASES, "train": {"iterations": 4}})
    goes_on({"phases": [PHASES[0] | {"until": 2}, PHASES[1]]}, {"phases": [PHASES[0] | {"until": 2}, PHASES[1]]} | more)
    said = r"phases\.a\.until='share\(\.5\) or stalled\(3\)' was planned for 4 iterations, not 6"
    with pytest.raises(InputError, match=said):
        goes_on({"phases": PHASES}, {"phases": PHASES} | more)
