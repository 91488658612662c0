"""The framework, and that every reproduction holds now."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence

import pytest

from palaestra_atlas import reproductions
from palaestra_atlas.reproductions import Outcome, all_ids, find, reproduce, reproduction
from palaestra.errors import InputError


@pytest.fixture
def made_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """A system 900 whose module is the test itself."""
    monkeypatch.setattr(reproductions, "_modules", lambda: {900: "json"})
    monkeypatch.setattr(reproductions, "_registry", {})


def test_ids_come_from_file_names() -> None:
    assert {18, 28, 62} <= set(all_ids())


@pytest.mark.parametrize("id", [id for id in all_ids() if not find(id).slow])
def test_it_holds(id: int) -> None:
    result = reproduce(id)
    assert result.holds, result
    assert result.seconds > 0


def test_json_has_exactly_the_promised_fields(made_up: None) -> None:
    @reproduction(900, claim="c", baseline="b", criterion="k", seeds=(1, 2))
    def measure(seeds: Sequence[int]) -> Outcome:
        return Outcome({"sum": sum(seeds)}, holds=True)

    result = json.loads(json.dumps(reproduce(900).to_dict(), allow_nan=False))
    seconds = result.pop("seconds")
    assert seconds >= 0
    assert result == {
        "id": 900, "claim": "c", "baseline": "b", "measured": {"sum": 3.0}, "criterion": "k", "holds": True,
    }  # fmt: skip
    assert reproduce(900, seeds=[5]).measured == {"sum": 5.0}


def test_a_measurement_that_is_not_finite_never_holds(made_up: None) -> None:
    @reproduction(900, claim="c", baseline="b", criterion="k")
    def measure(seeds: Sequence[int]) -> Outcome:
        return Outcome({"x": math.nan, "y": 1.0}, holds=True)

    result = reproduce(900)
    assert not result.holds
    assert json.loads(json.dumps(result.to_dict(), allow_nan=False))["measured"] == {"x": None, "y": 1.0}


def test_a_system_without_one_is_named() -> None:
    with pytest.raises(InputError, match=r"system 0 has no reproduction; these have one: .*\b62\b"):
        reproduce(0)
