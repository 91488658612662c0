"""A world model of a team."""

from __future__ import annotations

import numpy as np
import torch

from palaestra.learning.team_play import TeamPlay
from palaestra.learning.world_models import JointWorldModel, imagined


def counted(episodes: int = 24, turns: int = 4) -> TeamPlay:
    """Two agents who each see the other one's bit; they are paid where both chose the bits they see."""
    rng = np.random.default_rng(0)
    bits = rng.integers(2, size=(episodes, turns, 2))
    did = rng.integers(2, size=bits.shape)
    paid = (did == bits).all(-1, keepdims=True) * np.ones(2)
    ended = np.zeros((episodes, turns), bool)
    ended[:, -1] = True
    return TeamPlay(bits[..., None].astype(np.float32), did, paid.astype(np.float32), np.ones(bits.shape, bool), ended)


def test_losses_fall_and_rewards_need_both_agents() -> None:
    play, found = counted(64), {}
    for fuse in (True, False):
        made = JointWorldModel(2, 1, 2, fuse=fuse, size=32, width=0.0, lr=0.01)
        with torch.no_grad():
            before = {name: float(each) for name, each in made.losses(play).items()}
        made.fit(play, np.random.default_rng(0), steps=120, batch=32)
        with torch.no_grad():
            found[fuse] = {name: float(each) for name, each in made.losses(play).items()}
        assert found[fuse]["seen"] < before["seen"] / 2
        assert found[fuse]["end"] < before["end"] / 2
    assert found[True]["paid"] < found[False]["paid"] / 2


def test_draws_are_of_the_seed_and_leave_torch_alone() -> None:
    play, made = counted(), JointWorldModel(2, 1, 2, size=16)

    def act(seen: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return np.ones(seen.shape[:2], np.int64), np.zeros(seen.shape[:2])

    state = torch.get_rng_state()
    one, two, other = (imagined(made, play, np.zeros(24, int), act, horizon=3, seed=seed)[0] for seed in (0, 0, 1))
    assert torch.equal(state, torch.get_rng_state())
    np.testing.assert_array_equal(one.seen, two.seen)
    assert not np.array_equal(one.seen, other.seen)
    np.testing.assert_array_equal(one.seen[:, 0], play.seen[:, 0])


def test_alone_nothing_of_the_other_is_read() -> None:
    made = JointWorldModel(2, 1, 2, fuse=False, size=16)
    seen, did, there = torch.zeros(3, 2, 1), torch.zeros(3, 2, 2), torch.ones(3, 2, dtype=torch.bool)
    other = seen.clone()
    other[:, 1] = 1.0
    with torch.no_grad():
        one, two = (made.pooled(made.contexts(x, did, there), there) for x in (seen, other))
    torch.testing.assert_close(one[:, 0], two[:, 0])
    assert not torch.equal(one[:, 1], two[:, 1])


def test_what_is_pooled_is_the_mean_of_those_who_are_there() -> None:
    made = JointWorldModel(3, 1, 2, size=16)
    x = torch.arange(12.0).reshape(2, 3, 2)
    there = torch.tensor([[True, True, True], [True, False, True]])
    expected = torch.tensor([[[2.0, 3.0]] * 3, [[8.0, 9.0]] * 3])
    assert torch.equal(made.pooled(x, there), expected)
    assert torch.equal(made.pooled(x, torch.zeros_like(there)), torch.zeros_like(x))
    assert torch.equal(JointWorldModel(3, 1, 2, size=16, fuse=False).pooled(x, there), x)
