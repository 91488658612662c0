"""Folds: against loops, and the worked numbers of [163] and [21]'s pressure."""

from __future__ import annotations

import numpy as np
import pytest
from tests.tables import values

from palaestra.algebra.parse import parse
from palaestra.algebra.turns import Turns
from palaestra.errors import ExpressionError, InputError
from palaestra.rewards import fold, milestone_bonus, pressure, recurrence, running_max
from palaestra.testing.signal import sample_turns, shuffled


def test_general_folds_against_loops() -> None:
    rng = np.random.default_rng(0)
    turns = shuffled(sample_turns(rng, groups=(3, 4), simultaneous=True, missing=0.3), rng)
    turns = turns.with_column(keep=rng.random(len(turns)))
    y, best = np.full(len(turns), np.nan), np.full(len(turns), np.nan)
    state: dict[tuple[object, ...], tuple[float, float]] = {}
    frame = turns.frame.with_row_index("row").sort("group", "episode", "turn", "row", maintain_order=True)
    for row in frame.iter_rows(named=True):
        key = (row["group"], row["episode"], row["agent"])
        last, high = state.get(key, (0.0, np.nan))
        x = np.nan if row["reward"] is None else row["reward"]
        y[row["row"]] = row["keep"] * last + x
        best[row["row"]] = high = np.fmax(high, x)
        state[key] = (last if np.isnan(x) else y[row["row"]], high)
    np.testing.assert_allclose(values(recurrence("keep", "reward"), turns), y)
    np.testing.assert_allclose(values(running_max("reward"), turns), best)
    np.testing.assert_allclose(fold(turns, lambda s, x: ((s[0] + 1,), s[0] + 0 * x), "keep", start=(5.0,)).min(), 5.0)


def test_a_fold_over_a_computed_key() -> None:
    turns = Turns({"episode": [0, 0, 0], "agent": ["a"] * 3, "room": [1, 2, 1], "reward": [1.0, 5.0, 2.0]})
    np.testing.assert_array_equal(
        values(parse("running_max(reward, over=(episode, room))", columns={"room"}), turns), [1, 5, 2]
    )


def test_what_a_step_may_not_return() -> None:
    turns = Turns({"episode": [0, 0], "agent": ["a"] * 2, "reward": [1.0, 2.0], "tokens": [[1.0], [2.0]]})
    with pytest.raises(InputError, match=r"shape \(1,\)"):
        fold(turns, lambda state, x: (state, np.zeros(3)), "reward")
    with pytest.raises(ExpressionError, match="per_turn"):
        fold(turns, lambda state, x: (state, x), "tokens")
    assert fold(Turns(turns.frame.clear()), lambda state, x: (state, x), "reward").shape == (0,)


@pytest.mark.parametrize(("steps", "expected"), [(10, 0.18), (30, 0.14), (99, 0.002), (150, 0.0)])
def test_milestones_worked_numbers(steps: int, expected: float) -> None:
    keys = {"episode": [0] * steps, "turn": range(steps), "agent": ["a"] * steps}
    paid = values(milestone_bonus(), Turns(keys | {"milestone": [None] * (steps - 1) + [0]}))
    assert paid[-1] == pytest.approx(expected)
    assert not paid[:-1].any()


def test_milestones_pay_in_order_and_once() -> None:
    keys = {"episode": [0] * 6, "turn": range(6), "agent": ["a"] * 6}
    turns = Turns(keys | {"milestone": [1, 0, 0, 1, 1, None]})  # out of order, in order, again, in order, again
    np.testing.assert_allclose(values(milestone_bonus(), turns), [0, 0.196, 0, 0.196, 0, 0])
    assert values(milestone_bonus(), turns).sum() <= 0.2 * 2


def test_pressure_is_paid_on_release_and_lost_without() -> None:
    keys = {"episode": [0] * 7, "turn": range(7), "agent": ["a"] * 7}
    columns = {
        "inside": [1, 1, 0, 1, 0, 1, 1],
        "release": [0, 0, 1, 0, 0, 0, 0],
        "pressure": [0.5, 1.0, 0, 0.9, 0, 1, 1],
    }
    paid = values(pressure(), Turns(keys | columns))
    np.testing.assert_allclose(paid, [0, 0, 0.75 * (1 - 2 / 90) ** 0.7, 0, 0, 0, 0])


@pytest.mark.parametrize("named", ["milestone_bonus", "pressure"])
@pytest.mark.parametrize("horizon", ["0", "-2", "nan", "0.0"])
def test_a_horizon_without_turns_is_refused(named: str, horizon: str) -> None:
    make = {"milestone_bonus": milestone_bonus, "pressure": pressure}[named]
    with pytest.raises(InputError, match=rf"{named}: horizon={horizon}, expected more than 0"):
        make(horizon=float(horizon) if "." in horizon or horizon == "nan" else int(horizon))
