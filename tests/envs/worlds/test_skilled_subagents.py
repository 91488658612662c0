"""Sub-agents as sets of skills: how often each helps, what is read of a reply, and a try-out."""

from __future__ import annotations

import numpy as np
import pytest

from palaestra.envs.worlds import SkilledSubAgents
from palaestra.errors import InputError

NEEDS = {"edit": 0.5, "test": 0.3, "plan": 0.2}


def test_a_sub_agent_helps_with_tasks_whose_skill_it_has() -> None:
    env = SkilledSubAgents(needs=NEEDS, members=2, batch=40000, rates=(0.6, 0.1), noise=0.0, alone=0.0)
    assert env.choices == ("edit+test", "edit+plan", "test+plan")
    np.testing.assert_allclose(env.rates, [0.8 * 0.6 + 0.02, 0.7 * 0.6 + 0.03, 0.5 * 0.6 + 0.05])
    env.reset(0)
    np.testing.assert_allclose(np.bincount(env.state.tasks) / 40000, [0.5, 0.3, 0.2], atol=0.01)
    first = env.step({"staff": "edit+test"}).info
    last = env.step({"staff": "test+plan"}).info
    assert (first["helped"], last["helped"]) == pytest.approx((0.5, 0.35), abs=0.03)
    # both have `test`, so they help with the same tasks: .5 · (1 - .4 · .9) + .3 · (1 - .4²) + .2 · (1 - .9 · .4);
    # were it chance which tasks a member helps with, 1 - .5 · .65 = .675
    assert last["solved"] == pytest.approx(0.7, abs=0.01)
    assert last["contradicted"] == 0.0


def test_verdicts_on_unsolved_tasks_tell_how_far_the_judge_errs() -> None:
    for noise in (0.0, 0.1, 0.9):
        env = SkilledSubAgents(needs=NEEDS, members=2, batch=4000, alone=0.0, noise=noise)
        env.reset(1)
        env.step({"staff": 0})
        assert env.step({"staff": 1}).info["contradicted"] == pytest.approx(noise, abs=0.02)
    env = SkilledSubAgents(needs=NEEDS, members=1, alone=1.0)
    env.reset(1)
    assert "contradicted" not in env.step({"staff": 0}).info  # all is solved


def test_a_try_out_is_alone_judged_and_drawn_by_its_seed() -> None:
    env = SkilledSubAgents(needs=NEEDS, rates=(0.6, 0.1), noise=0.1)
    for member in range(3):
        expected = 0.9 * env.rates[member] + 0.1 * (1 - env.rates[member])
        assert env.try_out(member, 4000, 5) == pytest.approx(expected, abs=0.03)
    assert env.try_out(0, 40, 5) == env.try_out(0, 40, 5)
    assert len({env.try_out(0, 40, seed) for seed in range(20)}) > 5


def test_replies_are_read_by_the_skills_that_they_name() -> None:
    env = SkilledSubAgents(needs=NEEDS)
    for reply in (
        '{"name": "a", "instructions": "plan it", "skills": "test, edit"}',
        '```json\n{"skills": ["Edit", "test"]}\n```',
        "Name: a\nSkills: edit and test",
        "<think>Skills: plan</think>**Skills:** Test / Edit.",
    ):
        assert env.choices[env.read_subagent(reply)] == "edit+test"
    for reply, why in (
        ("I would edit and test.", "names no skills"),
        ("Skills: editing", "0 of the skills"),
        ("Skills: edit, test, plan", "3 of the skills, not 2"),
        ("", "names no skills"),
    ):
        with pytest.raises(ValueError, match=why):
            env.read_subagent(reply)
    assert "2 of these skills: edit, test, plan" in env.describe()


@pytest.mark.parametrize(
    "options",
    [{"each": 0}, {"each": 4}, {"needs": {"edit": 0.5, "test": 0.3}}, {"needs": {"a": 1.5, "b": -0.5}}, {"batch": 0}],
)
def test_bad_options_are_refused(options) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(InputError):
        SkilledSubAgents(**{"needs": NEEDS, **options})
