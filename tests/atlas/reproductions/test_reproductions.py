"""The framework, and that every reproduction holds now."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence

import pytest
from tests.atlas.rotation import dear, due, skip_unless_due

from palaestra.errors import InputError
from palaestra_atlas import reproductions
from palaestra_atlas.reproductions import (
    Exact,
    Outcome,
    Reproduction,
    _modules,
    all_ids,
    checks_of,
    reproduce,
    reproduction,
)
from palaestra_atlas.verification.verify import run_check


def made(monkeypatch: pytest.MonkeyPatch, measure: Callable[[Sequence[int]], Outcome]) -> None:
    """System 900 has one experiment."""
    experiment = reproduction(900, claim="c", baseline="b", criterion="k", seeds=(1, 2))(measure)
    monkeypatch.setattr(reproductions, "checks_of", lambda id, package="": [experiment])


def test_ids_come_from_file_names() -> None:
    assert {18, 28, 62} <= set(all_ids())


@pytest.mark.parametrize("id", sorted(_modules("palaestra_atlas")))
def test_its_worked_numbers_hold(id: int) -> None:
    for check in checks_of(id):
        if isinstance(check, Exact) and (due(id) or not dear(id, check.name)):
            check()


@pytest.mark.parametrize("id", all_ids())
def test_its_quick_experiments_hold(id: int) -> None:
    skip_unless_due(id)
    for check in checks_of(id):
        if isinstance(check, Reproduction) and not check.slow:
            found = run_check(check, check.seeds)
            assert found.holds, (check.name, found)


def test_json_has_exactly_the_promised_fields(monkeypatch: pytest.MonkeyPatch) -> None:
    made(monkeypatch, lambda seeds: Outcome({"sum": sum(seeds)}, holds=True))
    (found,) = reproduce(900)
    result = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert result.pop("seconds") >= 0
    assert result == {
        "id": 900, "claim": "c", "baseline": "b", "measured": {"sum": 3.0}, "criterion": "k", "holds": True,
    }  # fmt: skip
    assert reproduce(900, seeds=[5])[0].measured == {"sum": 5.0}


def test_a_measurement_that_is_not_finite_never_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    made(monkeypatch, lambda seeds: Outcome({"x": math.nan, "y": 1.0}, holds=True))
    (result,) = reproduce(900)
    assert not result.holds
    assert json.loads(json.dumps(result.to_dict(), allow_nan=False))["measured"] == {"x": None, "y": 1.0}


def test_a_system_without_one_is_named() -> None:
    with pytest.raises(InputError, match=r"system 0 has no reproduction; these have one: .*\b62\b"):
        reproduce(0)
