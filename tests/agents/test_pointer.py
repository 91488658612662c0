"""`PointerPolicy`: attention over choices and between the members of a team."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from palaestra.agents import PointerPolicy, Team
from palaestra.envs.worlds import ProfiledRouting
from palaestra.errors import InputError
from palaestra.learning import PolicyGradient
from palaestra.play.rollout import rollout


def world():
    return ProfiledRouting(vehicles=(1, 2), clients=(2, 3), sight="team")


def made(**options):
    return PointerPolicy(2 * (4 + 6 * 4), 4, members=2, each=6, **options)


def test_what_is_not_there_is_not_read():
    rows = torch.rand(2, 2, 28)
    rows[:, :, 0], rows[:, :, 4::6] = 1.0, 1.0
    rows[:, :, 10] = 0.0  # the second choice is closed for everybody
    rows[1, :, 11:16] = 5.0
    first, _ = made().module(rows.flatten(1))
    assert first[[0, 2, 3]].tolist() != first[[2, 0, 3]].tolist()
    rows[0, :, 11:16] = 5.0
    rows[1] = rows[0]
    rows[1, :, 11:16] = -3.0
    one, other = made().module(rows.flatten(1))
    assert one[[0, 2, 3]].tolist() == pytest.approx(other[[0, 2, 3]].tolist(), abs=1e-5)
    rows[:, :, 4::6] = 0.0
    assert made().module(rows.flatten(1)).isfinite().all(), "nothing can be chosen, and all is read"


def test_it_learns_from_its_rows_and_comes_back_from_disk(tmp_path):
    policy = made(name="driver", width=8)
    team = Team(vehicle_0=policy, vehicle_1=policy)
    turns = rollout(world, team, groups=12, seed=0)
    assert turns.frame["error"].null_count() == len(turns.frame)
    scored = policy.score(turns.frame).logprobs.detach().numpy().ravel()
    np.testing.assert_allclose(scored, turns.frame["logprobs"].explode().to_numpy(), atol=1e-5)
    before = policy.state_dict()["talk.linear1.weight"].clone()
    PolicyGradient(team).update(turns.with_column(advantage=turns.frame["reward"]))
    assert not before.equal(policy.state_dict()["talk.linear1.weight"])
    policy.save(tmp_path)
    again = PointerPolicy.load(tmp_path)
    array = turns.frame["features"][0].to_numpy()[None].astype(np.float32)
    assert again.module(torch.from_numpy(array)).equal(policy.module(torch.from_numpy(array)))
    assert policy.represent(torch.from_numpy(array)).shape == (1, 8)


def test_features_that_are_no_blocks_are_refused():
    for options in ({"members": 3}, {"each": 14}, {"width": 5}, {"members": 0}):
        with pytest.raises(InputError, match="equal blocks"):
            PointerPolicy(56, 4, **({"members": 2, "each": 6} | options))
