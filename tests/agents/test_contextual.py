"""`ContextualPolicy`: the newest observation of a window beside a context of the whole window."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from palaestra.agents import ContextualPolicy, Team
from palaestra.agents.encoders import PrefixEncoder
from palaestra.agents.policy import Request
from palaestra.envs import make
from palaestra.envs.protocol import Observation
from palaestra.errors import InputError
from palaestra.play.rollout import rollout


def member(**options):
    return ContextualPolicy(4 * 3, 3, steps=4, context=2, name="ego", **options)


def windows(count=5):
    found = np.random.default_rng(0).standard_normal((count, 4, 3)).astype(np.float32)
    found[..., 0] = 1
    return found


def test_turns_that_were_not_played_take_no_part():
    torch.manual_seed(0)
    encoder, window = PrefixEncoder(2, 4, 3), windows()
    window[:, :2, 0] = 0
    other = window.copy()
    other[:, :2, 1:] = 7
    with torch.no_grad():
        one, two = (encoder(torch.from_numpy(each)) for each in (window, other))
    torch.testing.assert_close(one, two)
    assert one.abs().max() < 1


def test_the_order_of_turns_is_read():
    torch.manual_seed(0)
    encoder, window = PrefixEncoder(2, 4, 3), windows()
    with torch.no_grad():
        there, back = (encoder(torch.from_numpy(each.copy())) for each in (window, window[:, ::-1]))
    assert (there - back).abs().max() > 1e-4


def test_play_and_score_agree_with_and_without_the_column():
    policy = ContextualPolicy(4 * 6, 3, steps=4, context=2, name="ego")
    env = make("recent", env="native/opponents", steps=4, noise=2, rounds=5)
    frame = rollout(env, Team(ego=policy), groups=3, seed=0).frame
    stored = frame["logprobs"].explode().to_numpy()
    contexts = policy.encode(policy.windows_of_rows(frame))
    for rows in (frame, frame.with_columns(context=contexts)):
        np.testing.assert_allclose(policy.score(rows).logprobs.detach().numpy().ravel(), stored, atol=1e-5)
    zeros = frame.with_columns(context=np.zeros_like(contexts))
    assert np.abs(policy.score(zeros).logprobs.detach().numpy().ravel() - stored).max() > 1e-3


def test_it_is_saved_and_loaded(tmp_path):
    policy = member(seed=3)
    policy.save(tmp_path)
    again = ContextualPolicy.load(tmp_path)
    seen = Observation("?", choices=("a", "b", "c"), array=windows(1).ravel())
    assert (again.choice_probabilities([seen])[0] == policy.choice_probabilities([seen])[0]).all()


def test_the_encoder_is_no_part_of_what_learns():
    policy = member()
    assert len(policy.parameters()) == 4  # weights and biases of two layers
    assert policy.encode(np.zeros((0, 4, 3), np.float32)).shape == (0, 2)
    assert not member(blind=True).encode(windows()).any()


def test_what_does_not_fit_is_named():
    with pytest.raises(InputError, match="make: recent"):
        ContextualPolicy(13, 3, steps=4)
    bad = Observation("?", choices=("a", "b", "c"), array=np.zeros(5, np.float32))
    assert "5 features" in str(member().act([Request(bad, "ego", np.random.default_rng(0))])[0].error)
