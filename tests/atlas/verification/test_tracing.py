"""A name counts as executed only if its code ran."""

from __future__ import annotations

import pytest

from palaestra.algebra.turns import Turns
from palaestra.credit import dr_mas, grpo
from palaestra.errors import InputError
from palaestra_atlas.verification.tracing import functions_of, traced

NAMES = ("palaestra.credit.dr_mas", "palaestra.credit.grouped.dr_mas", "palaestra.credit.grpo",
         "palaestra.credit.TurnCritic")  # fmt: skip
TURNS = Turns({"group": [0, 0], "episode": [0, 1], "agent": ["a", "a"], "reward": [1.0, 0.0]})


def test_what_ran_is_noted_under_each_of_its_names() -> None:
    before = dr_mas.__code__
    with traced(NAMES) as called:
        assert called == set()
        dr_mas()
        assert called == set(NAMES[:2])
        grpo().evaluate(TURNS)
        assert called == set(NAMES[:3])
    assert dr_mas.__code__ is before


def test_a_class_counts_when_one_of_its_methods_runs() -> None:
    from palaestra.credit import TurnCritic

    with traced(NAMES) as called:
        TurnCritic(2, 2)
    assert called == {"palaestra.credit.TurnCritic"}


def test_functions_inside_a_module_of_the_same_name_are_told_apart() -> None:
    assert functions_of("palaestra.credit.dr_mas") == ["palaestra.credit.grouped:dr_mas"]


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("palaestra.credit.nothing", "no attribute 'nothing'"),
        ("no_such_package.x", "cannot be imported"),
        ("palaestra.algebra.schema.SCOPE", "no code that could run"),
    ],
)
def test_what_cannot_run_is_named(name: str, said: str) -> None:
    with pytest.raises(InputError, match=said), traced([name]):
        pass
