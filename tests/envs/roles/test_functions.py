"""Functions in words: hidden tests in the sandbox, what counts as an answer, and the split."""

from __future__ import annotations

import numpy as np
import pytest

from palaestra.envs import make
from palaestra.envs.roles.functions import (
    FULL,
    SHORT,
    Functions,
    Specification,
    by_expression,
    hidden_tests,
    mistaken,
    passed,
    report,
    solve,
    specifications,
    visible_tests,
)
from palaestra.errors import InputError
from palaestra.testing import check_env

SUM = Specification("even numbers", "square each", "the sum")


@pytest.mark.parametrize(
    ("answer", "share"),
    [
        ("sum(x * x for x in xs if x % 2 == 0)", 1.0),
        ("sum([x ** 2 for x in xs if not x % 2])", 1.0),
        ("def f(xs):\n    total = 0\n    for x in xs:\n        total += x * x * (x % 2 == 0)\n    return total", 1.0),
        ("lambda xs: sum(x * x for x in xs if x % 2 == 0)", 1.0),
        ("0", 1 / 6),  # the empty list
        ("xs[99]", 0.0),
        ("__import__('os').getpid()", 0.0),
        ("def f(xs):\n    while True: pass", 0.0),
    ],
)
def test_an_answer_scores_the_share_of_tests_that_it_passes(answer: str, share: float) -> None:
    assert passed(answer, SUM) == pytest.approx(share)


def test_what_is_no_python_is_not_valid() -> None:
    made = Functions()
    made.reset(0)
    assert made.step({"solver": "sum(x for"}).info["valid"] == {"solver": False}


def test_the_env_keeps_the_protocol() -> None:
    check_env(make("roles/functions", prompt="short"), play=lambda seen, rng: "0")


def test_every_specification_says_one_thing() -> None:
    assert len(by_expression()) == len(specifications()) == 910
    for each in specifications()[::70]:
        assert solve(SHORT.format(*each)) == each.expression
        assert mistaken(each.expression, np.random.default_rng(0)) != each.expression
        assert hidden_tests(each)[0] == ((), [] if each.returns == "the list" else 0)
    assert solve("even numbers ; fly ; the sum") is None
    assert "Take the even numbers of xs, a list of whole numbers, square each" in FULL.format(*SUM)


def test_no_specification_is_on_both_sides() -> None:
    train, test = {*Functions().known}, {*Functions(split="test").known}
    assert not train & test
    assert train | test == {*specifications()}
    assert 140 <= len(test) <= 220
    for wrong in ({"split": "tset"}, {"prompt": "ful"}, {"held_out": 1.0}):
        with pytest.raises(InputError, match=r"did you mean|held_out=1.0"):
            Functions(**wrong)


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        ("sum(x * x for x in xs if x % 2 == 0)", "it passes all 4 visible tests."),
        (
            "def f(xs): return sum(x * x for x in xs if x % 2 == 1)",
            "it fails 4 of 4 visible tests. f([8, -5, 0, -5, -6]) is 50, but should be 100.",
        ),
        ("xs[99]", "raises IndexError"),
        ("sum(x for", "it cannot be read as Python"),
    ],
)
def test_a_report_says_what_the_visible_tests_say(answer: str, told: str) -> None:
    assert told in report(answer, SUM)
    assert report(answer, SUM, short=True) == ("passes" if "passes" in told else "fails")


def test_a_report_shows_the_first_failing_case_and_no_hidden_test() -> None:
    given, wanted = visible_tests(SUM)[0]
    assert report("7", SUM) == f"it fails 4 of 4 visible tests. f({list(given)}) is 7, but should be {wanted}."
    assert not {case for case, _ in visible_tests(SUM)} & {case for case, _ in hidden_tests(SUM)}


def test_most_wrong_programs_fail_a_visible_test() -> None:
    rng = np.random.default_rng(0)
    found = [report(mistaken(each.expression, rng), each, short=True) for each in specifications()[::30]]
    assert found.count("fails") >= 0.85 * len(found)
