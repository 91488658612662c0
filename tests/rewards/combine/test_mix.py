"""Combining components: worked numbers of [21] and [41], grains, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.tables import values

from palaestra.algebra.parse import parse
from palaestra.algebra.signals import col
from palaestra.algebra.turns import Turns
from palaestra.credit import team
from palaestra.errors import ExpressionError, InputError
from palaestra.rewards import (
    Component,
    cascade,
    components,
    dual_ascent,
    gate,
    krc,
    lagrangian,
    linear,
    product,
    team_mix,
    weighted,
)


def two_turns(**columns: object) -> Turns:
    return Turns({"group": [0, 0], "episode": [0, 0], "turn": [0, 1], "agent": ["a", "a"]} | columns)


def test_components_stay_in_the_table_and_each_grain_counts_once() -> None:
    turns = two_turns(success=[1, 1], valid=[1, 0], token=[[0.1, 0.2], [0.3]])
    parts = {"solved": Component("success", "episode"), "format": "valid", "process": Component("token", "token")}
    found = components(turns, parts)
    assert found["r_solved"].to_list() == [0.0, 1.0]
    assert found["r_process"].to_list() == [[0.1, 0.2], [0.3]]
    np.testing.assert_allclose(found["reward"].to_list(), [1.3, 1.3])
    np.testing.assert_allclose(
        components(turns, {"a": "valid", "b": 2.0}, combined=product("r_a", "r_b"), into="score")["score"].to_list(),
        [2, 0],
    )


def test_an_episode_of_several_agents_pays_each_of_them_once() -> None:
    turns = Turns({"episode": [0] * 4, "turn": [0, 1, 2, 3], "agent": ["a", "b", "a", "b"], "success": [True] * 4})
    found = components(turns, {"solved": Component("success", "episode")})
    assert found["reward"].to_list() == [0.0, 0.0, 1.0, 1.0]


def test_a_component_that_was_not_scored_leaves_the_reward_missing() -> None:
    found = components(two_turns(judge=[None, 0.5], valid=[1, 1]), {"judge": "judge", "format": "valid"})
    assert found["reward"].to_list() == [None, 1.5]


def test_wrong_components_are_named() -> None:
    with pytest.raises(InputError, match=r"col\('token'\) has a value per token; sum it"):
        components(two_turns(token=[[0.1, 0.2], [0.3]]), {"process": col("token")})
    with pytest.raises(InputError, match="no parts"):
        components(two_turns(), {})
    with pytest.raises(InputError, match="grain='tokens'; did you mean 'token'"):
        Component("reward", "tokens")  # type: ignore[arg-type]


def test_weights_may_be_schedules() -> None:
    turns = Turns({"iteration": [0, 50, 100], "r_a": [1.0] * 3, "r_b": [1.0] * 3})
    np.testing.assert_allclose(values(weighted(a=2, b=linear(1, 0, steps=100)), turns), [3, 2.5, 2])
    text = "weighted(a=2, b=linear(1, 0, steps=100))"
    np.testing.assert_allclose(values(parse(text), turns), [3, 2.5, 2])
    with pytest.raises(ExpressionError, match="no weights"):
        weighted()


def test_gate_and_cascade() -> None:
    turns = Turns({"failed": [1, 0, 0, None], "correct": [1, 1, 0, 1], "partial": [1.0, 1.0, 0.5, 0.5]})
    chain = cascade(("failed", 0.0), ("correct", 1.0), otherwise=0.3 * col("partial"))
    np.testing.assert_array_equal(values(chain, turns), [0, 1, 0.15, np.nan])
    np.testing.assert_array_equal(values(gate("correct", "partial"), turns), [1, 1, 0, 0.5])
    parsed = parse(
        "cascade((failed, 0), (correct, 1), otherwise=0.3 * partial)", columns={"failed", "correct", "partial"}
    )
    np.testing.assert_array_equal(values(parsed, turns), values(chain, turns))
    with pytest.raises(ExpressionError, match="not a case"):
        cascade("failed", 0.0)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("parts", "expected"), [((0.9, 0.1), 0.3), ((-0.9, -0.1), -0.3), ((0.9, -0.1), -0.3), ((0.8, 0.8, 0.0), 0.0)]
)
def test_krc_worked_numbers(parts: tuple[float, ...], expected: float) -> None:
    assert values(krc(*parts), Turns({"a": [0.0]}))[0] == pytest.approx(expected)


@given(st.lists(st.floats(-1, 1), min_size=1, max_size=5))
def test_krc_is_negative_as_soon_as_one_component_is(parts: list[float]) -> None:
    found = values(krc(*parts), Turns({"a": [0.0]}))[0]
    size = np.prod(np.abs(parts)) ** (1 / len(parts))
    assert found == pytest.approx(-size if min(parts) < 0 else size)


def test_team_mix_of_unequal_teams_turn_by_turn_by_hand() -> None:
    """Turn 0: blue 1, 0, 2 against orange .5 and one that is not scored; turn 1: 3 against 4; turn 2: blue 2 alone.

    Turn 0 with τ = .3: .7 · r + .3 · 1 - .5 for blue, .35 + .15 - 1 for orange. Alone there are no opponents.
    """
    rows = [
        (1, "orange_0", 4.0, 1.0),
        (0, "blue_0", 1.0, 0.5),
        (0, "orange_1", None, np.nan),
        (0, "blue_2", 2.0, 1.2),
        (2, "blue_1", 2.0, 2.0),
        (0, "blue_1", 0.0, -0.2),
        (0, "orange_0", 0.5, -0.5),
        (1, "blue_0", 3.0, -1.0),
    ]
    turn, agent, reward, expected = zip(*rows, strict=True)
    turns = Turns({"episode": [0] * 8, "turn": turn, "agent": agent, "reward": reward})
    np.testing.assert_allclose(values(team_mix(tau=0.3, teams=team()), turns), expected, atol=1e-12)
    own, shared = ({3: 2 - 0.5, 1: 1 - 0.5}, {3: 1 - 0.5, 1: 1 - 0.5})
    for tau, right in ((0.0, own), (1.0, shared)):
        found = values(team_mix(tau=tau, teams=team()), turns)
        np.testing.assert_allclose([found[row] for row in right], list(right.values()))


def test_team_mix_worked_numbers_and_zero_sum() -> None:
    players = {"episode": [0] * 4, "turn": [0] * 4, "agent": ["blue_0", "blue_1", "orange_0", "orange_1"]}
    turns = Turns(players | {"team": [0, 0, 1, 1], "reward": [1.0, 0.0, 0.0, 0.5]})
    expected = [0.6, -0.1, -0.425, -0.075]
    np.testing.assert_allclose(values(team_mix(), turns), expected)
    np.testing.assert_allclose(values(team_mix(teams=team()), turns), expected)
    alone = turns.filter(col("team") == 0.0)
    np.testing.assert_allclose(values(team_mix(), alone), [0.7 + 0.15, 0.15])
    with pytest.raises(ExpressionError, match=r"outside \[0, 1\]"):
        team_mix(tau=1.5)


def test_lagrangian_and_dual_ascent() -> None:
    turns = Turns({"reward": [1.0, 0.6], "fast": [1.0, 0.0], "rude": [1.0, 1.0], "price": [0.4, 0.4]})
    np.testing.assert_allclose(values(lagrangian("reward", ("fast", "price"), ("rude", 0.1)), turns), [0.5, 0.5])
    bounded = lagrangian("reward", ("fast", "price"), ("rude", 0.1), normalise=True)
    np.testing.assert_allclose(values(bounded, turns), np.array([0.5, 0.5]) / 1.5)
    np.testing.assert_allclose(dual_ascent([0.4, 0.01], [0.3, 0.0], [0.2, 0.2], rate=0.1), [0.41, 0.0])
    with pytest.raises(InputError, match="1 multipliers, 2 costs and 1 limits"):
        dual_ascent([0.4], [0.3, 0.1], [0.2], rate=0.1)
    with pytest.raises(ExpressionError, match="not a constraint"):
        lagrangian("reward", "fast")  # type: ignore[arg-type]
