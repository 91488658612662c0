"""Weights: worked numbers of [61], [71], [174], [172], [27], [103], and what mixing and scaling promise."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.tables import values

from palaestra.algebra.parse import parse
from palaestra.algebra.turns import Turns
from palaestra.credit import (
    a_grae,
    adora,
    cosine_restarts,
    duration_aware,
    empg,
    gui_g1,
    mas_host,
    minmax,
    mix,
    modulate,
    outlier_filter,
    phase,
    ratio,
    stable_reinforce,
)
from palaestra.errors import ExpressionError, MissingColumnError


def single(rewards: list[float], **columns: object) -> Turns:
    """One group whose episodes are one turn of one agent each."""
    rows = range(len(rewards))
    table = {
        "group": [0] * len(rewards),
        "episode": list(rows),
        "turn": [0] * len(rewards),
        "agent": ["a"] * len(rewards),
    }
    return Turns(table | {"reward": rewards} | columns)


# -- primitives -------------------------------------------------------------------------------------------------------


def test_mix_takes_schedules_and_refuses_numbers_outside_the_unit_interval() -> None:
    turns = Turns({"iteration": [0, 1, 2], "reward": [1.0, 1.0, 1.0]})
    np.testing.assert_array_equal(values(mix(phase(0.2, 0.6, at=2), "reward", 0.0), turns), [0.2, 0.2, 0.6])
    for weight in (-0.1, 1.5):
        with pytest.raises(ExpressionError, match=r"mix: weight .* is outside \[0, 1\]"):
            mix(weight, "reward", 0.0)


def test_ratio_says_what_a_division_by_zero_gives_and_keeps_what_is_missing() -> None:
    turns = Turns({"reward": [1.0, 1.0, None], "cost": [2.0, 0.0, 1.0]})
    np.testing.assert_array_equal(values(ratio("reward", "cost", 9.0), turns), [0.5, 9.0, np.nan])


def test_modulate_renormalises_over_the_rows_it_weighs() -> None:
    turns = Turns({"reward": [1.0, 1.0, 1.0], "cost": [1.0, 3.0, 50.0], "valid": [True, True, False]})
    np.testing.assert_array_equal(
        values(modulate("reward", "cost", where="valid", renorm=True), turns), [0.5, 1.5, 1.0]
    )
    nothing = turns.with_column(cost=[0.0, 0.0, 0.0])
    np.testing.assert_array_equal(values(modulate("reward", "cost", renorm=True), nothing), [1.0, 1.0, 1.0])


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=20), st.floats(0.1, 10), st.floats(-5, 5))
def test_minmax_lies_in_the_unit_interval_whatever_the_scale(xs: list[float], scale: float, offset: float) -> None:
    turns = Turns({"reward": xs, "cost": [scale * x + offset for x in xs]})
    result, other = values(minmax("reward"), turns), values(minmax("cost"), turns)
    assert result.min() >= 0
    assert result.max() <= 1
    if np.ptp(xs) > 1e-3:
        assert (result.min(), result.max()) == (0, 1)
        np.testing.assert_allclose(result, other, atol=1e-6)


def test_minmax_of_a_constant_is_zero_even_with_rounding_noise() -> None:
    np.testing.assert_array_equal(values(minmax("reward"), Turns({"reward": [0.3, 0.1 + 0.2, None]})), [0, 0, np.nan])


def test_cosine_restarts_warms_up_and_falls_three_times() -> None:
    turns = Turns({"iteration": [0, 29, 30, 50, 69, 70, 150]})
    np.testing.assert_allclose(
        values(cosine_restarts(), turns), [0.02, 0.6, 0.6, 0.3, 0.3 * (1 + np.cos(np.pi * 39 / 40)), 0.6, 0.6]
    )
    with pytest.raises(ExpressionError, match="3 cycles: no cycle has a step"):
        cosine_restarts(steps=30)


# -- [61] A-GRAE ------------------------------------------------------------------------------------------------------


def padded(rewards: list[float], padding: float, number: int) -> Turns:
    """The group, and a second one without variance that brings the batch's mean score where it is wanted."""
    both = [*rewards, *[padding] * number]
    n = len(rewards)
    group, episode = [0] * n + [1] * number, [*range(n), *range(number)]
    return Turns({"group": group, "episode": episode, "agent": ["a"] * len(both), "reward": both})


@pytest.mark.parametrize(
    ("rewards", "padding", "number", "ddof", "expected"),
    [
        ([1, 0, 0, 0], 0, 1, 0, [0.2293, -0.3821, -0.3821, -0.3821]),  # mean score .2
        ([1, 1, 1, 0], 0, 11, 0, [0.1057, 0.1057, 0.1057, -1.5856]),
        ([1, 0, 0, 0], 1, 11, 0, [1.2685, -0.5285, -0.5285, -0.5285]),  # mean score .8
        ([1, 1, 1, 0], 1, 1, 0, [0.3057, 0.3057, 0.3057, -1.1464]),
        ([1, 0, 0, 0], 0, 1, 1, [0.1986, -0.3309, -0.3309, -0.3309]),
    ],
)
def test_a_grae_worked_numbers(
    rewards: list[float], padding: float, number: int, ddof: int, expected: list[float]
) -> None:
    result = values(a_grae(ddof=ddof), padded(rewards, padding, number))
    np.testing.assert_allclose(result, [*expected, *[0] * number], atol=1e-4)


def test_a_grae_as_released_divides_easy_groups_by_another_root() -> None:
    turns = padded([1, 0, 0, 0], 0, 4)  # both groups have 4 episodes, so the two ω agree: 1/8
    z, root = 0.75 / np.std([1, 0, 0, 0], ddof=1), 0.25**0.5
    weight = 0.125 / (2 * root) + 0.875 / (2 * (1 - root))
    np.testing.assert_allclose(values(a_grae(flavour="code"), turns)[0], z * weight * 0.125, atol=1e-5)
    uneven = padded([1, 0, 0, 0], 1, 1)  # ω is (1/4 + 1) / 2, whatever the groups' sizes, and √p is 1 - √p
    assert values(a_grae(flavour="code"), uneven)[0] == pytest.approx(z * 0.625, abs=1e-5)
    with pytest.raises(ExpressionError, match="a_grae: 'cod' is unknown; did you mean 'code'"):
        a_grae(flavour="cod")  # type: ignore[arg-type]


# -- [71] ADORA -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rewards", "lengths", "weight"),
    [
        ([1, 1, 0, 0], [300, 900, 500, 700], 1.0),  # longest correct 900 > mean wrong 600
        ([1, 0, 0, 0], [400, 500, 700, 900], 0.1),
        ([1, 0, 0, 0], [400, 300, 300, 4054], 1.0),  # the truncated one does not enter the mean
        ([1, 0, 0, 0], [400, 4054, 4060, 4100], 1.0),  # no valid wrong one
    ],
)
def test_adora_worked_numbers(rewards: list[float], lengths: list[int], weight: float) -> None:
    turns = single(rewards, tokens_out=lengths)
    plain = (np.array(rewards) - np.mean(rewards)) / np.std(rewards, ddof=1)
    np.testing.assert_allclose(values(adora(cap=4054), turns), weight * plain, atol=1e-5)


def test_adora_rules_treat_one_sided_groups_oppositely() -> None:
    def weights(rule: str, rewards: list[float]) -> np.ndarray:
        turns = single(rewards, tokens_out=[5] * len(rewards))
        tree = adora(rule=rule)  # type: ignore[arg-type]
        return np.asarray(tree.inputs[1].evaluate(turns))  # modulate is advantage * weight

    for rewards, llm, vlm in (([1.0, 1.0], 1.0, 0.1), ([0.0, 0.0], 0.1, 1.0)):
        np.testing.assert_array_equal(weights("llm", rewards), llm)
        np.testing.assert_array_equal(weights("vlm", rewards), vlm)


def test_adora_names_the_column_that_is_missing() -> None:
    with pytest.raises(MissingColumnError, match="column 'tokens_out' is missing"):
        adora().evaluate(single([1.0, 0.0]))


# -- [174] EMPG -------------------------------------------------------------------------------------------------------

ENTROPIES = [0.1, 0.5, 1.0, 0.4]


def episode(advantage: float) -> Turns:
    n = len(ENTROPIES)
    columns = {"group": [0] * n, "episode": [0] * n, "turn": range(n), "agent": ["a"] * n, "cost": ENTROPIES}
    return Turns(columns | {"reward": [advantage] * n, "entropies": [[h - 0.05, h + 0.05] for h in ENTROPIES]})


@pytest.mark.parametrize(
    ("advantage", "raw"), [(1.0, [1.5317, 0.9778, 0.6115, 1.0516]), (-1.0, [-1.4035, -0.9042, -0.4682, -1.0516])]
)
def test_empg_worked_numbers(advantage: float, raw: list[float]) -> None:
    for entropy in (None, "cost"):
        result = values(empg("reward", entropy=entropy), episode(advantage))
        np.testing.assert_allclose(result, np.array(raw) - np.mean(raw), atol=1.5e-4)
    if advantage == 1:
        np.testing.assert_allclose(result, [0.4885, -0.0654, -0.4316, 0.0084], atol=1e-4)


def test_empg_with_equal_entropies_changes_nothing_but_the_mean() -> None:
    turns = single([1.0, 0.0, 0.0], entropies=[[0.7]] * 3)
    np.testing.assert_allclose(values(empg("reward", bonus=0.0), turns), [2 / 3, -1 / 3, -1 / 3])


# -- [172], [27], [103] -----------------------------------------------------------------------------------------------


def test_gui_g1_is_dr_grpo_times_difficulty() -> None:
    turns = single([1.0, 0.0, 0.0, 1.0], difficulty=[2.0] * 4)
    np.testing.assert_array_equal(values(gui_g1(), turns), [1.0, -1.0, -1.0, 1.0])


def test_duration_weight_is_one_on_average() -> None:
    turns = single([1.0, 0.0], duration=[1.0, 3.0])
    np.testing.assert_array_equal(values(duration_aware("reward"), turns), [0.5, 0.0])
    np.testing.assert_array_equal(values(duration_aware(1.0), turns), [0.5, 1.5])
    np.testing.assert_array_equal(values(parse("duration_aware(reward)"), turns), [0.5, 0.0])


def test_mas_host_worked_numbers() -> None:
    turns = single([1.0, 0.0, 1.0, 1.0], action_reward=[None, None, -0.2, None])
    np.testing.assert_allclose(values(mas_host(), turns), [0.5, -1.5, 0.3, 0.5], atol=1e-5)


def test_one_bad_reward_among_256_is_taken_out() -> None:
    rewards = [1.0] * 255 + [0.0]
    turns = Turns({"episode": range(256), "agent": ["a"] * 256, "turn": [0] * 256, "reward": rewards})
    raw = np.asarray(outlier_filter(k=99).evaluate(turns))
    np.testing.assert_allclose(raw[[0, -1]], [255**-0.5, -(255**0.5)], atol=1e-6)
    kept = np.asarray(stable_reinforce().evaluate(turns))
    np.testing.assert_allclose(kept[[0, -1]], [255**-0.5, 0.0], atol=1e-6)
    np.testing.assert_allclose(kept.mean(), 0.0624, atol=1e-4)  # no longer 0
    np.testing.assert_allclose(np.asarray(outlier_filter(action="clip").evaluate(turns))[-1], -3.0)
    with pytest.raises(ExpressionError, match="k=0"):
        outlier_filter(k=0)
