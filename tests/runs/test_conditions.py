"""Conditions on metrics: worked cases, and texts that are refused."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palaestra.errors import InputError
from palaestra.runs.conditions import Condition


def seen(*values: float | None, name: str = "success") -> list[dict[str, Any]]:
    return [{name: value} for value in values]


@pytest.mark.parametrize(
    ("text", "lines", "holds"),
    [
        (3, seen(None, None), False),
        (3, seen(None, None, None), True),
        ("success > .9", seen(0.95), True),
        ("success > .9", seen(0.95, 0.2), False),
        ("success > .9", seen(0.95, None), True),  # the latest value that was measured
        ("success > .9", [], False),
        ("not success > .9", seen(None), False),  # nothing was measured: nothing is true
        ("reward > 1 or success > .5", seen(0.6), True),  # reward was not measured; the other side decides
        ("1 / (1 - success) > 2 or iterations >= 1", seen(1.0), True),
        ("reward > 1 and success > .5", seen(0.6), False),
        ("not (reward > 1 and success > .9)", seen(0.6), True),
        ("success >= .5 and iterations >= 2", seen(0.5, 0.5), True),
        (".2 < success <= .5", seen(0.5), True),
        ("2 * success - 1 == 0", seen(0.5), True),
        ("1 / success > 0", seen(0.0), False),
        ("mean(success, 2) > .5", seen(0.0, 0.6, 0.6), True),
        ("mean(success, 3) > .5", seen(0.0, 0.6, 0.6), False),
        ("stalled(2)", seen(0.1, 0.5, 0.5), False),  # the best before the last two is 0.1
        ("stalled(2)", seen(0.1, 0.5, 0.5, 0.4), True),
        ("stalled(2)", seen(0.5, 0.5), False),
        ("stalled(2)", seen(0.1, 0.2, 0.3, 0.4), False),
        ("stalled(1)", seen(1.0, 1.0, name="reward"), True),  # no success in this env
        ("stalled(1, success, .1)", seen(0.1, 0.15), True),
        ("stalled(1, success, .01)", seen(0.1, 0.15), False),
        ("stalled(1, -success)", seen(0.1, 0.15), True),
        ("policies.a.entropy < 1", [{"policies": {"a": {"entropy": 0.5}}}], True),
        ("policies.a.kl < 1", [{"policies": {"a": {"entropy": 0.5}}}], False),
    ],
)
def test_what_holds(text: int | str, lines: list[dict[str, Any]], holds: bool) -> None:
    assert Condition(text)(lines) is holds


@given(
    st.lists(
        st.sampled_from(["success > .5", "success < .5", "reward > .5", "not reward > .5"]), min_size=1, max_size=4
    ),
    st.sampled_from([" or ", " and "]),
    st.randoms(use_true_random=False),
)
def test_the_order_of_sides_does_not_matter(sides: list[str], sign: str, random: Any) -> None:
    """Of success, which was measured, and reward, which was not."""
    held = [Condition(side)(seen(0.6)) for side in sides]
    expected = any(held) if sign == " or " else all(held)
    random.shuffle(sides)
    assert Condition(sign.join(sides))(seen(0.6)) is expected


def test_a_share_is_of_the_iterations_of_the_run() -> None:
    fifth = Condition("share(0.2)", total=10)
    assert [fifth(seen(*[0.0] * each)) for each in (1, 2, 3)] == [False, True, True]
    assert [Condition("share(0.2)", total=13)(seen(*[0.0] * each)) for each in (2, 3)] == [False, True], "rounded"
    assert Condition("share(0.01)", total=10)(seen(0.0)), "at least one iteration"
    assert not Condition("share(0.2)")(seen(0.0, 0.0)), "of how many is not known"


def test_rounds_of_a_cycle_can_grow() -> None:
    growing = Condition("iterations >= 2 * round")
    assert [growing(seen(0, 0), each) for each in (1, 2)] == [True, False]


@given(st.lists(st.one_of(st.none(), st.floats(0, 1)), min_size=1, max_size=8), st.integers(1, 4))
def test_stalled_is_patience(values: list[float | None], last: int) -> None:
    known = [value for value in values if value is not None]
    best = max(known, default=0.0)
    expected = len(known) > last and best in known[:-last]  # the best is as old as that
    assert Condition(f"stalled({last})")(seen(*values)) is expected


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (0, "at least 1 iteration"),
        (True, "expected a number of iterations or a condition"),
        ("success", "compare it with something"),
        ("success >", "is no condition"),
        ("stalled()", "write stalled"),
        ("stalled(success)", "write stalled"),
        ("stalled(5, by=1)", "write stalled"),
        ("mean(success) > 1", r"write mean\(x, n\)"),
        ("share(2)", r"write share\(x\)"),
        ("share(1.5)", r"write share\(x\)"),
        ("share(success)", r"write share\(x\)"),
        ("stall(5)", "no function 'stall'; did you mean 'stalled'"),
        ("open('x') > 1", "no function 'open'"),
        ("__import__('os').system('x') > 1", "no function"),
        ("success > '0.9'", "cannot hold"),
        ("success > [1][0]", "cannot hold"),
        ("success in (1, 2)", "cannot hold"),
    ],
)
def test_what_is_refused(text: Any, complaint: str) -> None:
    with pytest.raises(InputError, match=complaint):
        Condition(text)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("sucess > .9", "no metric 'sucess' that a condition can read; did you mean 'success'"),
        ("stalled(3, rewards)", "no metric 'rewards'"),
        ("policies.plyer.entropy < 1", "no policy 'plyer'; did you mean 'player'"),
        ("cpu_seconds > 3", "no metric 'cpu_seconds'"),  # another one in a resumed run
        ("success.low > .5", "no metric"),
    ],
)
def test_a_metric_that_is_not_there(text: str, complaint: str) -> None:
    with pytest.raises(InputError, match=complaint):
        Condition(text).check({"player"})


def test_what_was_found() -> None:
    assert Condition("success > .9 or reward > 2").found(seen(0.25)) == (
        "success > .9 or reward > 2 was never true in 1 iterations, reward was not measured, success 0.25"
    )
    assert Condition(5).found(seen(0.25)) == "1 of 5 iterations"
