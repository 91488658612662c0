"""The donor game: what donors see, and what they cannot do."""

from __future__ import annotations

import numpy as np
import pytest

from palaestra.envs import make
from palaestra.errors import InputError


def played(steps, move="give 0.5", **options):
    env = make("native/donor_game", **options)()
    seen = env.reset(1)
    for _ in range(steps):
        seen = env.step(dict.fromkeys(seen, move)).observations
    return env, seen


def test_half_give_to_the_other_half():
    env, seen = played(0)
    assert len(seen) == 6
    donors, recipients = zip(*env.state.pairs, strict=True)
    assert sorted([*donors, *recipients]) == list(range(12))


def test_wealth_grows_by_what_is_given():
    env, _ = played(1)
    assert sorted(set(env.state.wallets)) == [5.0, 20.0]


def test_resources_are_paid_in_the_end_to_everybody():
    env, seen = played(0, players=4, rounds=2)
    first = env.step(dict.fromkeys(seen, "give 1"))
    assert first.rewards == {}
    last = env.step(dict.fromkeys(first.observations, "give 0"))
    assert last.terminated
    assert last.rewards == last.info["resources"]
    assert set(last.rewards) == set(env.agents)


def test_nobody_has_less_than_nothing():
    env, _ = played(3, "punish", players=2, rounds=4, punish=(1.0, 50.0))
    assert (env.state.wallets >= 0).all()


def test_an_untraced_donor_sees_nothing():
    _, seen = played(5, trace=0)
    for each in seen.values():
        assert not each.array.any()
        assert each.text.endswith("nothing is known of it")
    _, seen = played(5, move="give 1")
    assert np.max([each.array[0] for each in seen.values()]) == 0.5


@pytest.mark.parametrize("options", [{"players": 3}, {"trace": 4}, {"shares": (0.5,)}, {"punish": (2.0, 1.0)}])
def test_what_is_out_of_range_is_named(options):
    with pytest.raises(InputError, match=next(iter(options))):
        make("native/donor_game", **options)()


def test_what_is_known_of_a_recipient_is_said_in_words():
    """Whoever gave nothing gave: only who paid to punish did not."""
    for move, said in (("give 0", "gave 0 to"), ("give 0.5", "gave 0.5 to"), ("punish", "paid to punish")):
        _, seen = played(2, move, players=4, rounds=4, punish=(0.1, 2.0))
        known = [each.text for each in seen.values() if "nothing is known" not in each.text]
        assert known
        assert all(said in each for each in known)
