"""Networks whose seats share some parameter sets."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
import torch

from palaestra.agents import MLPPolicy, SplitMLPPolicy
from palaestra.agents.policy import Request
from palaestra.envs.protocol import Observation
from palaestra.errors import InputError


def request(agent, features):
    array = np.asarray(features, np.float32)
    return Request(Observation("", ("l", "r"), array=array), agent, np.random.default_rng(0))


def rows(agents, features):
    return pl.DataFrame({"agent": agents, "features": features, "action_ids": [[0]] * len(agents)})


def chances(policy, agents, features):
    return policy.score(rows(agents, features)).logprobs.detach()[:, 0]


def test_it_computes_what_an_mlp_with_its_parameters_computes():
    policy = SplitMLPPolicy(3, 2, keys=["a", "b"], sharing="none", hidden=(5, 4), seed=2)
    plain = MLPPolicy(3, 2, hidden=(5, 4))
    linear = [each for each in plain.module.children() if isinstance(each, torch.nn.Linear)]
    for layer, weight, bias in zip(linear, policy.layers.weights, policy.layers.biases, strict=True):
        layer.weight.data, layer.bias.data = weight[1].detach().clone(), bias[1].detach().clone()
    features = np.random.default_rng(0).normal(size=(4, 3)).tolist()
    found = chances(policy, ["b", "a", "b", "b"], features)
    want = chances(plain, ["b"] * 4, features)
    torch.testing.assert_close(found[[0, 2, 3]], want[[0, 2, 3]])
    assert found[1] != want[1]


def test_it_acts_as_it_scores():
    policy = SplitMLPPolicy(3, 2, keys=["a", "b"], sharing={"a": 0, "b": 1}, hidden=(5,))
    decisions = policy.act([request("a", [1, 0, 2]), request("b", [1, 0, 2])])
    ids = [[int(each.action)] for each in decisions]
    scored = policy.score(rows(["a", "b"], [[1.0, 0.0, 2.0]] * 2).with_columns(action_ids=pl.Series(ids)))
    np.testing.assert_allclose([each.logprobs[0] for each in decisions], scored.logprobs[:, 0].detach(), atol=1e-6)


def test_a_key_names_the_seats_of_a_task_and_reads_as_much_as_it_shows():
    policy = SplitMLPPolicy(3, 2, keys=["maze", "lamp"], own=["front", "head"], widths={"maze": 3, "lamp": 2})
    told = policy.act([request("maze.first", [1, 2, 3]), request("lamp.x", [1, 2]), request("lamp.x", [1, 2, 3])])
    assert told[0].error is told[1].error is None
    assert "3 features" in told[2].error
    assert "no key" in policy.act([request("door.x", [1, 2])])[0].error
    assert chances(policy, ["lamp.x", "maze.first"], [[1.0, 2.0], [1.0, 2.0, 3.0]]).shape == (2,)


def test_a_split_copies_and_leaves_own_layers_alone():
    policy = SplitMLPPolicy(3, 2, keys=["a", "b", "c"], own=["head"], sets=2, hidden=(5,))
    features = np.random.default_rng(0).normal(size=(3, 3)).tolist()
    before = chances(policy, ["a", "b", "c"], features)
    assert policy.split(["b"]) == (0, 1)
    assert policy.groups() == {0: ["a", "c"], 1: ["b"]}
    torch.testing.assert_close(chances(policy, ["a", "b", "c"], features), before)
    assert [each.shape[0] for each in policy.shared_parameters()] == [2, 2]
    for keys in (["a", "b"], ["a", "c"], ["a"]):
        with pytest.raises(InputError, match=r"SplitMLPPolicy.split"):
            policy.split(keys)


def test_it_is_saved_with_its_map(tmp_path):
    policy = SplitMLPPolicy(3, 2, keys=["a", "b"], sets=2, hidden=(5,))
    policy.split(["b"])
    policy.save(tmp_path)
    again = SplitMLPPolicy.load(tmp_path)
    assert again.groups() == {0: ["a"], 1: ["b"]}
    assert torch.equal(chances(again, ["b"], [[1.0, 2.0, 3.0]]), chances(policy, ["b"], [[1.0, 2.0, 3.0]]))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"keys": []}, "keys"),
        ({"own": ["middle"]}, "middle"),
        ({"sharing": "some"}, "sharing"),
        ({"sharing": {"a": 0}}, "number each"),
        ({"widths": {"a": 2, "b": 3}}, "front"),
        ({"hidden": []}, "hidden"),
    ],
)
def test_what_does_not_fit_is_named(options, said):
    with pytest.raises(InputError, match=said):
        SplitMLPPolicy(3, 2, **{"keys": ["a", "b"], **options})


def test_without_an_agent_it_answers_only_where_all_act_alike():
    seen = [Observation("", ("l", "r"), array=np.ones(3, np.float32))]
    alike = SplitMLPPolicy(3, 2, keys=["a", "b"])
    assert alike.choice_probabilities(seen)[0].shape == (1, 2)
    with pytest.raises(InputError, match="by agent"):
        SplitMLPPolicy(3, 2, keys=["a", "b"], sharing="none").choice_probabilities(seen)


def test_shared_layers_are_adopted() -> None:
    source = SplitMLPPolicy(3, 2, keys=["a"], own=["front"], hidden=(4, 5), seed=1)
    new = SplitMLPPolicy(6, 2, keys=["b"], own=["front"], hidden=(4, 5), seed=2)
    new.adopt(source)
    assert torch.equal(new.layers.weights[1], source.layers.weights[1])
    assert len(new.parameters()) == 2
    with pytest.raises(InputError, match="other sizes"):
        SplitMLPPolicy(6, 2, keys=["b"], hidden=(4, 6), own=["front"]).adopt(source)
    with pytest.raises(InputError, match="not by all"):
        SplitMLPPolicy(3, 2, keys=["b"], hidden=(4, 5)).adopt(source)
