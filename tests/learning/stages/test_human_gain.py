"""What a person gained: a baseline that is fitted, then frozen, and positive gains that are expected."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from palaestra.algebra.turns import Turns
from palaestra.errors import InputError
from palaestra.learning.stages import Context
from palaestra.learning.stages.human_gain import human_gain, positive_gain_loss, residual_gain


def told() -> Context:
    return Context(np.random.default_rng(0), 1, None, None, None)


def played(*passed):
    rows = [(number, agent) for number in range(len(passed)) for agent in ("helper", "person")]
    return Turns(
        {
            "episode": [number for number, _ in rows], "turn": [0] * len(rows), "agent": [agent for _, agent in rows],
            "state": [1] * len(rows), "passed": [passed[n] if agent == "person" else None for n, agent in rows],
        }
    )  # fmt: skip


def test_the_baseline_is_frozen_and_the_gain_is_on_every_row_of_the_turn():
    stage = human_gain("person", "passed", fits=1)
    first = stage(played(0.0, 1.0), told())
    assert np.isnan(first["gain"].to_numpy()).all()
    assert first["unaided"].to_list() == [0.5] * 4
    assert stage(played(1.0, 0.0), told())["gain"].to_list() == [0.5, 0.5, -0.5, -0.5]
    assert stage(played(1.0), told())["gain"].to_list() == [0.0, 0.0]


def test_returns_of_each_goal_are_discounted_in_their_episode_whatever_the_order_of_rows():
    """Two goals, a discount of 1/2; episode 0 has two turns, episode 1 one, and in episode 2 there is no person.

    Returns in state 0: (1 + 2 / 2, 1 / 2) and (0, 1), so V is (1, .75); in state 1: (2, 1). Gains of episode 0 are
    1 - .25, then 0; of episode 1: -1 + .25. The positive ones, (1, .25), are what is expected from then on, in
    state 1 too, where none was positive.
    """
    rows = [
        (1, 0, "helper", 7, None, None), (0, 1, "person", 1, 2.0, 1.0), (2, 0, "helper", 7, None, None),
        (0, 0, "person", 0, 1.0, 0.0), (1, 0, "person", 0, 0.0, 1.0), (0, 1, "helper", 7, None, None),
        (0, 0, "helper", 7, None, None),
    ]  # fmt: skip
    turns = Turns(dict(zip(("episode", "turn", "agent", "state", "one", "two"), zip(*rows, strict=True), strict=True)))
    stage, context = human_gain("person", ["one", "two"], gamma=0.5, fits=1), told()
    unaided = np.asarray(stage(turns, told())["unaided"].to_numpy(), float)
    np.testing.assert_allclose(unaided, [1.75, 3.0, np.nan, 1.75, 1.75, 3.0, 1.75])
    gains = [np.asarray(stage(turns, told())["gain"].to_numpy(), float) for _ in range(2)]
    np.testing.assert_allclose(gains[0], [-0.75, 0.0, np.nan, 0.75, -0.75, 0.0, 0.75])
    np.testing.assert_allclose(gains[1], [-2.0, -1.25, np.nan, -0.5, -2.0, -1.25, -0.5])
    stage(turns.filter(pl.col("episode") == 1), context)
    assert (context.metrics["gain"], context.metrics["positive_loss"]) == (-0.75, 0.0)


def test_it_goes_on_from_its_state():
    one, other = human_gain("person", "passed", fits=1), human_gain("person", "passed", fits=1)
    one(played(0.0, 1.0), told())
    one(played(1.0), told())
    other.load_state_dict(one.state_dict())
    assert other(played(1.0), told())["gain"].to_list() == one(played(1.0), told())["gain"].to_list()


def test_gains_and_their_loss():
    gain = residual_gain(np.array([[3.0, 1.0]]), np.array([[2.0, 1.5]]))
    assert positive_gain_loss(gain, np.array([[0.4, 0.2]])).tolist() == pytest.approx([0.18])


@pytest.mark.parametrize("options", [{"fits": 0}, {"goals": []}])
def test_what_is_out_of_range_is_named(options):
    with pytest.raises(InputError, match="human_gain"):
        human_gain("person", **{"goals": ["passed"], **options})
