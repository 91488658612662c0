"""What a partner will do, and jobs that cannot be done."""

from __future__ import annotations

import functools

import pytest

from palaestra.envs.worlds.partner import TYPES, Belief, Partner
from palaestra.errors import InputError
from palaestra.testing.env import check_env


def reward(env, seed=0):
    """Of a cook that takes the job that the partner is not expected to do."""
    seen, total = env.reset(seed), 0.0
    while seen:
        text = seen["cook"].text
        result = env.step({"cook": next(job for job in env.jobs if f"do {job}" not in text)})
        seen, total = result.observations, total + sum(result.rewards.values())
    return total


@pytest.mark.parametrize(("kind", "worked"), [("onions", 0.95), ("dishes", 0.95), ("alternate", 1.0)])
def test_a_belief_finds_every_partner_that_can_be_predicted(kind, worked):
    assert reward(Partner(types=(kind,))) == pytest.approx(worked)
    without = reward(Partner(types=(kind,), forget=1.0))  # never corrected: it expects everybody to alternate
    assert without == pytest.approx(1.0 if kind == "alternate" else 0.5)


def test_a_belief_is_that_of_bayes():
    belief = Belief(TYPES, jobs=2, noise=0.2)
    belief.update(1)  # .1, .9, .9 (who alternates begins with dishes), .5
    assert list(belief.shares.values()) == pytest.approx([0.1 / 2.4, 0.9 / 2.4, 0.9 / 2.4, 0.5 / 2.4])
    assert belief.predict()[0] == pytest.approx((0.1 * 0.9 + 0.9 * 0.1 + 0.9 * 0.9 + 0.5 * 0.5) / 2.4)
    sure = Belief({"onions": TYPES["onions"]}, jobs=2, noise=0.0)
    with pytest.raises(InputError, match="give it some noise"):
        sure.update(1)


@pytest.mark.parametrize(("lost", "success"), [(1, True), (2, False)])
def test_nine_rounds_of_ten_are_a_success(lost, success):
    env = Partner(types=("onions",), rounds=10)
    env.reset(0)
    for number in range(10):
        result = env.step({"cook": "onions" if number < lost else "dishes"})
    assert result.info["success"] is success


def test_what_cannot_be_done_is_refused_with_the_reason_and_asked_for_again():
    env = Partner(types=("random",), rounds=1, blocked=1.0, retries=2)
    env.reset(3)
    blocked = env.jobs[env.state.blocked]
    for _ in range(2):
        result = env.step({"cook": blocked})
        assert result.info["refused"]
        assert not result.terminated
        assert result.observations["cook"].text.endswith(f"; you cannot do {blocked}: its station is taken")
    result = env.step({"cook": blocked})  # it waits instead
    assert result.terminated
    assert result.rewards == {"cook": 0.0}
    assert not result.info["invalid"]
    env = Partner(types=("random",), rounds=1, blocked=1.0, retries=0)
    env.reset(3)
    assert env.step({"cook": blocked}).info["invalid"]


def test_the_protocol_and_what_cannot_be_played():
    check_env(functools.partial(Partner, jobs=3, blocked=0.3, rounds=4))
    for options in ({"types": ["onion"]}, {"jobs": 4}, {"shows": "all"}, {"blocked": 2.0}, {"noise": -1.0}):
        with pytest.raises(InputError, match=r"Partner|Belief"):
            Partner(**options)


def test_the_cook_reads_as_many_rounds_as_it_is_shown():
    env = Partner(types=("alternate",), shows="last", last=2)
    texts = [env.reset(0)["cook"].text]
    for _ in range(3):
        texts.append(env.step({"cook": 0}).observations["cook"].text)
    assert texts == ["work", "it did dishes", "it did dishes, then onions", "it did onions, then dishes"]
    with pytest.raises(InputError, match="last"):
        Partner(last=0)


def test_on_a_map_the_cook_walks_around_the_partner():
    kitchen = functools.partial(Partner, types=("onions",))
    assert reward(kitchen(rows=["0.cp.1", "......"])) >= 0.9
    assert reward(kitchen(rows=["0.cp.1"])) == 0
    with pytest.raises(InputError, match="rows"):
        Partner(rows=["0c1"])
