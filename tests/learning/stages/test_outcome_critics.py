"""Critics of outcomes: what they are fitted to, and that a stopped run goes on with the same."""

from __future__ import annotations

import numpy as np
import pytest

from palaestra.algebra.turns import Turns
from palaestra.errors import InputError
from palaestra.learning.outcome_critic import OutcomeTable
from palaestra.learning.stages import Context
from palaestra.learning.stages.outcome_critics import outcome_critics


def told(seed: int = 0) -> Context:
    return Context(np.random.default_rng(seed), 1, None, None, None)  # type: ignore[arg-type]


def table(size: int = 40) -> Turns:
    rows = range(2 * size)
    return Turns({
        "group": [row // 2 for row in rows], "episode": [0 for _ in rows], "agent": ["a" for _ in rows],
        "turn": [row % 2 for row in rows],
        "observation": [f"{'good' if row // 2 % 2 else 'bad'} {row % 2}" for row in rows],
        "success": [None if row % 2 == 0 else bool(row // 2 % 2) for row in rows],
    })  # fmt: skip


@pytest.mark.parametrize("kind", ["table", "words"])
def test_first_turns_and_all_turns(kind: str) -> None:
    stage = outcome_critics(kind=kind)
    assert set(stage(table(), told()).frame["value"]) == {0.5}
    frame = stage(table(), told()).frame
    good = frame["observation"].str.starts_with("good")
    assert frame.filter(good)["first_value"].min() > 0.7  # type: ignore[operator]
    assert frame.filter(~good)["value"].max() < 0.3  # type: ignore[operator]
    again = outcome_critics(kind=kind)
    again.load_state_dict(stage.state_dict())
    a, b = (each(table(), told(5)).frame["value"].to_list() for each in (stage, again))
    assert a == b


def test_memory_is_bounded_and_options_are_checked() -> None:
    stage = outcome_critics(memory=10)
    stage(table(), told())
    assert len(stage._texts) == len(stage._went) == 10
    with pytest.raises(InputError, match="kind='net'"):
        outcome_critics(kind="net")
    with pytest.raises(InputError, match="heads=0"):
        OutcomeTable(heads=0)
