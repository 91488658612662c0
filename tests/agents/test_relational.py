"""`RelationalPolicy`: a latent drawn from the game, attention over any number of others."""

from __future__ import annotations

import time

import numpy as np
import polars as pl
import pytest
import torch

from palaestra.agents import RelationalPolicy, Team
from palaestra.agents.encoders import RelationNet
from palaestra.agents.policy import Request
from palaestra.envs.protocol import Observation
from palaestra.envs.worlds import RingWalkers
from palaestra.errors import InputError
from palaestra.learning import PolicyGradient
from palaestra.play.rollout import rollout


def made(**options):
    given = {"own": 6, "game": 6, "each": 3, "latents": 4, "name": "walker"}
    return RelationalPolicy(6 + 3 * 5, 10, **given | options)


def played(policy, groups=8):
    def world():
        return RingWalkers(sizes=[3, 6], seats=6)

    return rollout(world, Team(dict.fromkeys(world().agents, policy)), groups=groups, seed=0)


def test_nobody_there_is_no_relation():
    net = RelationNet(2, 2, 3, 2, 4)
    found = net(torch.rand(5, 2), torch.zeros(5, 3, 3), torch.zeros(5, 2, dtype=torch.int64))
    assert found.shape == (5, 2, 8)
    assert (found == 0).all()


def test_it_learns_from_its_rows_and_comes_back_from_disk(tmp_path):
    policy = made()
    turns = played(policy)
    assert turns.frame["error"].null_count() == len(turns.frame)
    scored = policy.score(turns.frame)
    said = np.array(turns.frame["logprobs"].to_list())
    np.testing.assert_allclose(scored.logprobs.detach(), said, atol=1e-5)
    assert said.shape[1] == 2, "a latent and a choice"
    np.testing.assert_allclose(scored.entropies[:, 0].detach(), np.log(4), atol=1e-5)
    before = {name: each.clone() for name, each in policy.state_dict().items()}
    PolicyGradient(Team({"a": policy}), lr=0.01).update(turns.with_column(advantage=turns.frame["reward"] - 0.1))
    assert all(not each.equal(policy.state_dict()[name]) for name, each in before.items())
    policy.save(tmp_path)
    again = RelationalPolicy.load(tmp_path)
    features = policy.features_of_rows(turns.frame)
    assert again.choice_logits(features, again.every_latent(features)).equal(
        policy.choice_logits(features, policy.every_latent(features))
    )


def test_those_who_act_together_share_the_time():
    policy, began = made(), time.perf_counter()
    seen = Observation("", choices=tuple("abcdefghij"), array=np.zeros(21, np.float32))
    decisions = policy.act([Request(seen, "a", np.random.default_rng(0)) for _ in range(50)])
    assert 0 < sum(decision.duration for decision in decisions) <= time.perf_counter() - began


def test_logits_are_those_of_the_mixture():
    policy = made()
    with torch.no_grad():
        policy.part("encoder").weight.normal_()
    array = np.zeros(6 + 3 * 5, np.float32)
    array[[2, 6, 9]] = 1.0
    seen = Observation("", choices=tuple("abcdefghij"), array=array, mask=np.arange(10) < 4)
    chances, _ = policy.choice_probabilities([seen])
    rng = np.random.default_rng(0)
    drawn = [decision.action for decision in policy.act([Request(seen, "a", rng) for _ in range(4000)])]
    found = np.bincount(drawn, minlength=10) / 4000
    assert (found[4:] == 0).all()
    np.testing.assert_allclose(found, chances[0], atol=0.03)


def test_arrays_of_any_length_are_read_together():
    policy = made()
    short, long = np.zeros(9, np.float32), np.zeros(36, np.float32)
    short[[2, 6]] = long[[2, 6]] = 1.0
    rows = pl.DataFrame({"features": [short.tolist(), long.tolist()]})
    features = policy.features_of_rows(rows)
    assert features.shape == (2, 36)
    first, second = policy.choice_logits(features, policy.every_latent(features))
    torch.testing.assert_close(first, second)
    with pytest.raises(InputError, match="6 and then slots of 3"):
        policy.features_of_rows(pl.DataFrame({"features": [[0.0] * 8]}))


def test_the_game_reaches_choices_by_the_latent_alone_unless_it_is_told():
    features = torch.zeros(2, 9)
    features[0, 1], features[1, 4], features[:, 6] = 1.0, 1.0, 1.0
    for reads in (False, True):
        policy = made(reads_game=reads)
        first, second = policy.choice_logits(features, policy.every_latent(features))
        assert first.equal(second) is not reads


def test_what_it_cannot_read_is_refused():
    for options in ({"latents": 0}, {"each": 1}, {"game": 7}, {"temperature": 0.0}, {"hidden": [0]}):
        with pytest.raises(InputError, match="must be at least 1"):
            made(**options)
    with pytest.raises(InputError, match="slots of 4"):
        made(each=4)
    wrong = Observation("", choices=tuple("abcdefghij"), array=np.zeros(8, np.float32))
    (decision,) = made().act([Request(wrong, "a", np.random.default_rng(0))])
    assert "8 features" in decision.error
    assert "no array" in made().misfit(Observation("", choices=tuple("abcdefghij")))
