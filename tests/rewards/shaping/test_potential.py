"""Shaping and progress: worked numbers of [14], [21], [184], [199], and the boundaries."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import spearmanr
from tests.tables import episode, values

from palaestra.algebra.signals import Signal, sign
from palaestra.algebra.turns import Turns
from palaestra.credit import phase, return_to_go
from palaestra.errors import ExpressionError
from palaestra.rewards import (
    closeness,
    cum_max_gain,
    era_reward,
    escalate,
    fuse,
    hop,
    hop_progress,
    robo_dopamine,
    shape,
    voc,
)

PATH = [0.0, 0.3, 0.6, 0.4, 0.8, 1.0]
numbers = st.lists(st.floats(0, 1).map(lambda x: round(x, 2)), min_size=1, max_size=8)


@given(numbers, st.floats(0.5, 1))
def test_shaping_telescopes_to_minus_the_first_potential(phi: list[float], gamma: float) -> None:
    ended = episode(phi=phi, truncated=[False] * len(phi))
    assert values(return_to_go(shape("phi", gamma=gamma), gamma=gamma), ended)[0] == pytest.approx(-phi[0], abs=1e-9)
    cut = episode(phi=phi, truncated=[True] * len(phi), after=[0.7] * len(phi))
    for signal, last in ((shape("phi", gamma=gamma), phi[-1]), (shape("phi", gamma=gamma, truncated="after"), 0.7)):
        total = values(return_to_go(signal, gamma=gamma), cut)[0]
        assert total == pytest.approx(gamma ** len(phi) * last - phi[0], abs=1e-9)


def test_truncated_that_is_not_known_counts_as_ended() -> None:
    turns = episode(phi=[0.5], truncated=[None])
    np.testing.assert_allclose(values(shape("phi", gamma=0.9), turns), [-0.5])
    np.testing.assert_allclose(values(shape("phi", gamma=0.9, terminal=1.0), turns), [0.4])


def test_hops_and_the_progress_rebuilt_from_them() -> None:
    hops = values(hop("p", "q"), Turns({"p": PATH[:-1], "q": PATH[1:]}))
    np.testing.assert_allclose(hops, [0.3, 3 / 7, -1 / 3, 2 / 3, 1.0])
    turns = episode(hop=[None, *hops])
    np.testing.assert_allclose(values(hop_progress(), turns), PATH)
    np.testing.assert_allclose(values(voc(hop_progress()), turns), 0.9429, atol=1e-4)
    from_goal = values(hop("p", "q"), Turns({"p": [1.0] * 6, "q": PATH}))
    np.testing.assert_allclose(values(hop_progress("hop", method="backward"), episode(hop=from_goal)), PATH)
    from_start = values(hop("p", "q"), Turns({"p": [0.0] * 6, "q": PATH}))
    np.testing.assert_allclose(values(hop_progress("hop", method="forward"), episode(hop=from_start)), PATH)
    with pytest.raises(ExpressionError, match="did you mean 'forward'"):
        hop_progress("hop", method="forwards")  # type: ignore[arg-type]


@given(st.lists(st.floats(-1, 1), min_size=1, max_size=10))
def test_progress_from_hops_stays_in_its_range(hops: list[float]) -> None:
    found = values(hop_progress(), episode(hop=hops))
    assert (found >= 0).all()
    assert (found <= 1).all()


@pytest.mark.parametrize(("forward", "backward", "expected"), [(0.5, 0.5, 0.5), (0.9, 0.1, 0.4077)])
def test_fusion_trusts_what_agrees(forward: float, backward: float, expected: float) -> None:
    turns = episode(i=[0.0, 0.1], f=[0.8, forward], b=[0.8, backward])  # brings it to 0.4 first
    np.testing.assert_allclose(values(fuse("i", "f", "b", method="consistency"), turns), [0.4, expected], atol=1e-4)
    np.testing.assert_allclose(values(fuse("i", "f", "b"), turns)[1], (0.1 + forward + backward) / 3)
    with pytest.raises(ExpressionError, match="method='median'"):
        fuse("i", "f", "b", method="median")  # type: ignore[arg-type]


def test_fusion_walks_half_way_to_the_moved_middle() -> None:
    turns = episode(i=[0.2, 0.5], f=[0.4, 0.6], b=[0.4, 0.6])  # both agree: w = 1
    first = 0.5 * (0.4 + 0.2)
    expected = [first, first + 0.5 * (0.6 - first + 0.5 - 0.2)]
    np.testing.assert_allclose(values(fuse("i", "f", "b", method="consistency"), turns), expected)


def test_waiting_is_not_paid_and_a_goal_is_paid_once() -> None:
    waiting = episode(phi=[0.8] * 400, truncated=[True] * 400, success=[0.0] * 400)
    tries = [episode(phi=[0.8], truncated=[False], success=[won]) for won in (0.0, 1.0)]

    def gap(shaped: Signal) -> float:
        reward = return_to_go(shaped + "success", gamma=0.9)  # type: ignore[operator]
        wait, *risk = (values(reward, turns)[0] for turns in (waiting, *tries))
        return float(np.mean(risk) - wait)

    assert gap(shape("phi", gamma=0.9)) == pytest.approx(0.5)
    assert gap(shape("phi", gamma=1.0)) == pytest.approx(-0.3)
    assert gap(shape("phi", gamma=0.9, terminal="success")) == pytest.approx(0.95)


def test_robo_dopamine_marks_arrival_and_shapes() -> None:
    turns = episode(progress=[0.2, 0.96, 0.99], success=[True] * 3, truncated=[False] * 3)
    arrived = [1 + 0.864 - 0.2, 0.891 - 0.96, 1 - 0.99]
    np.testing.assert_allclose(values(robo_dopamine(gamma=0.9), turns), arrived)
    published = np.add(arrived, [0, 1, 0])
    np.testing.assert_allclose(values(robo_dopamine(gamma=0.9, once=False), turns), published)


@given(numbers, st.floats(0.1, 0.9))
def test_robo_dopamine_pays_progress_over_its_threshold_once(progress: list[float], threshold: float) -> None:
    turns = episode(progress=progress, success=[0.0] * len(progress), truncated=[True] * len(progress))
    paid = values(robo_dopamine(gamma=1.0, threshold=threshold), turns) - values(shape("progress", gamma=1.0), turns)
    assert paid.sum() == pytest.approx(float(progress[0] < threshold <= max(progress)), abs=1e-9)


def test_closeness_worked_numbers() -> None:
    turns = Turns({"d": [2300.0, 0.0, 1e6]})
    np.testing.assert_allclose(values(closeness("d", scale=2300), turns)[0], 0.6065, atol=1e-4)
    np.testing.assert_allclose(
        values(closeness("d", scale=2300, dispersion=0.5, density=0.5), turns)[0], 0.1353, atol=1e-4
    )
    np.testing.assert_allclose(values(closeness("d", scale=2300, signed=True, density=0.5), turns)[1:], [1, -1])


def test_only_new_bests_are_paid() -> None:
    turns = episode(progress=[0.0, 0.5, 0.5, 0.25, 0.5, 1.0])
    np.testing.assert_array_equal(values(sign(cum_max_gain("progress")), turns), [0, 1, 0, 0, 0, 1])
    np.testing.assert_array_equal(values(cum_max_gain("progress", start=0.75), turns), [0, 0, 0, 0, 0, 0.25])


@given(numbers)
def test_gains_add_up_to_the_best(progress: list[float]) -> None:
    assert values(cum_max_gain("progress"), episode(progress=progress)).sum() == pytest.approx(max(*progress, 0.0))


def test_era_pays_success_and_switches_its_shaping_off() -> None:
    turns = episode(task_progress=[0.5, 0.5, 1.0], success=[1, 1, 1], valid=[True, False, True])
    np.testing.assert_allclose(values(era_reward(), turns), [1, -0.5, 4])
    late = turns.with_column(iteration=[22] * 3)
    np.testing.assert_allclose(values(era_reward(shaped=phase(1, 0, at=22)), late), [0, 0, 3])


@given(st.lists(st.integers(0, 5), min_size=2, max_size=9))
def test_voc_is_spearman_with_time(progress: list[int]) -> None:
    found = values(voc("progress"), episode(progress=progress))
    constant = len(set(progress)) == 1
    np.testing.assert_allclose(found, 0 if constant else spearmanr(range(len(progress)), progress)[0], atol=1e-12)


def test_voc_leaves_out_what_was_not_scored() -> None:
    turns = episode(progress=[None, 0.1, 0.2, None, 0.4])
    np.testing.assert_allclose(values(voc("progress"), turns), 1)


def test_later_steps_dominate() -> None:
    turns = Turns({"a": [1, 0, 1], "b": [0, 0, 1], "c": [0, 1, 1]})
    np.testing.assert_array_equal(values(escalate("a", "b", "c"), turns), [2, 8, 14])
