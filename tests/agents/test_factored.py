"""Policies whose action is several numbers."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from palaestra.agents import FactoredPolicy
from palaestra.agents.policy import Request
from palaestra.envs.protocol import Observation
from palaestra.errors import InputError


def requests(count, width=3, **given):
    return [
        Request(Observation("", array=np.ones(width, np.float32), **given), "a", np.random.default_rng(seed))
        for seed in range(count)
    ]


def test_what_is_drawn_is_scored():
    policy = FactoredPolicy(3, parts=4, levels=5, seed=1)
    decisions = policy.act(requests(600))
    assert all(each.action == " ".join(map(str, each.action_ids.tolist())) for each in decisions)
    rows = pl.DataFrame(
        {"features": [[1.0, 1.0, 1.0]] * 600, "action_ids": [each.action_ids.tolist() for each in decisions]}
    )
    scored = policy.score(rows)
    np.testing.assert_allclose(
        scored.logprobs.detach().numpy(), np.stack([each.logprobs for each in decisions]), atol=1e-6
    )
    drawn = np.array(rows["action_ids"].to_list())
    shares = np.stack([(drawn == level).mean(0) for level in range(5)], -1)
    np.testing.assert_allclose(
        shares, policy._split(policy._apply(np.ones((1, 3), np.float32)))[0].softmax(-1).detach(), atol=0.07
    )


def test_it_is_saved_and_refuses_what_does_not_fit(tmp_path):
    policy = FactoredPolicy(3, parts=2, levels=2, name="two")
    policy.save(tmp_path)
    again = FactoredPolicy.load(tmp_path)
    assert [each.action for each in again.act(requests(9))] == [each.action for each in policy.act(requests(9))]
    (choices,) = policy.act(requests(1, choices=("l", "r")))
    (wide,) = policy.act(requests(1, width=4))
    assert "has choices" in choices.error
    assert "4 features" in wide.error
    with pytest.raises(InputError, match="every row needs 2"):
        policy.score(pl.DataFrame({"features": [[1.0] * 3], "action_ids": [[0]]}))
    with pytest.raises(InputError, match="no single choice"):
        policy.choice_probabilities([])
    with pytest.raises(InputError, match="levels=1"):
        FactoredPolicy(3, levels=1)
