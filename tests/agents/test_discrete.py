from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest
import torch

from palaestra.agents import BanditPolicy, MLPPolicy, QNetworkPolicy, Request, TabularPolicy
from palaestra.agents.qtable import QTablePolicy
from palaestra.envs.protocol import Observation
from palaestra.errors import InputError
from palaestra.testing.policy import check_policy

CHOICES = ("a", "b", "c")
MASKS = (None, np.array([True, False, True]), np.array([False, True, True]))
SEEN = [
    Observation(f"state {i}", choices=CHOICES, mask=MASKS[i % 3], array=np.array([i, 1.0 - i], np.float32))
    for i in range(6)
]


def requests(observations, seed=0):
    return [Request(o, "player", np.random.default_rng([seed, i])) for i, o in enumerate(observations)]


def rows_of(observations, actions) -> pl.DataFrame:
    return pl.DataFrame(
        {
            "state": [o.key() for o in observations],
            "features": [o.array.tolist() for o in observations],
            "legal": [None if o.mask is None else o.mask.tolist() for o in observations],
            "action_ids": [[a] for a in actions],
        },
        schema={
            "state": pl.UInt64,
            "features": pl.List(pl.Float32),
            "legal": pl.List(pl.Boolean),
            "action_ids": pl.List(pl.Int32),
        },
    )


def learned(policy):
    """Not at its start, so that mistakes show."""
    policy.score(rows_of(SEEN, [0] * len(SEEN)))  # a table has rows for what it learned from
    with torch.no_grad():
        for p in policy.parameters():
            p.add_(torch.linspace(-1, 1, p.numel()).sin().view_as(p))
    return policy


MAKERS = [lambda: learned(TabularPolicy(3, capacity=10)), lambda: learned(MLPPolicy(2, 3, hidden=(8,), seed=1))]


@pytest.mark.parametrize("make", MAKERS)
def test_they_keep_the_promises_of_a_policy(make) -> None:
    check_policy(make(), SEEN)


@pytest.mark.parametrize("make", MAKERS)
def test_probabilities_logprobs_and_entropies_agree(make) -> None:
    policy = make()
    probabilities, illegal = policy.choice_probabilities(SEEN)
    np.testing.assert_allclose(probabilities.sum(1), 1)
    assert not illegal.any()
    for row, observation in enumerate(SEEN):
        if observation.mask is not None:
            assert (probabilities[row] == 0).tolist() == (~observation.mask).tolist()
    for row, decision in enumerate(policy.act(requests(SEEN))):
        p = probabilities[row][probabilities[row] > 0]
        assert decision.action_ids.tolist() == [decision.action]
        assert decision.logprobs[0] == pytest.approx(np.log(probabilities[row, decision.action]), abs=1e-6)
        assert decision.entropies[0] == pytest.approx(-(p * np.log(p)).sum(), abs=1e-6)
    scored = policy.score(rows_of(SEEN, [2] * 6))
    np.testing.assert_allclose(scored.logits[:, 0].detach().exp(), probabilities, atol=1e-6)


@pytest.mark.parametrize("make", MAKERS)
def test_play_has_the_frequencies_of_the_probabilities(make) -> None:
    policy, n = make(), 4000
    probabilities, _ = policy.choice_probabilities(SEEN[1:2])
    actions = [d.action for d in policy.act([Request(SEEN[1], "a", np.random.default_rng(i)) for i in range(n)])]
    np.testing.assert_allclose(np.bincount(actions, minlength=3) / n, probabilities[0], atol=0.03)


@pytest.mark.parametrize("make", MAKERS)
def test_policy_gradient_raises_what_is_rewarded_and_never_the_illegal(make) -> None:
    policy = make()
    optimiser = torch.optim.Adam(policy.parameters(), lr=0.1)
    rows = rows_of(SEEN, [2] * 6)
    for _ in range(60):
        optimiser.zero_grad()
        scored = policy.score(rows)
        (-scored.logprobs.mean() - 0.001 * scored.entropies.mean()).backward()
        optimiser.step()
    assert policy.choice_probabilities(SEEN)[0][:, 2].min() > 0.9


def test_an_observation_that_does_not_fit_fails_alone() -> None:
    wrong = [Observation("free"), Observation("two", choices=("a", "b")), SEEN[0]]
    decisions = TabularPolicy(3).act(requests(wrong))
    assert [d.error for d in decisions] == [
        "InputError: the observation has free text, policy 'tabular' has 3 actions",
        "InputError: the observation has 2 choices, policy 'tabular' has 3 actions",
        None,
    ]
    with pytest.raises(InputError, match="free text"):
        TabularPolicy(3).choice_probabilities(wrong)
    decisions = MLPPolicy(3, 3).act(requests([SEEN[0], Observation("none", choices=CHOICES)]))
    assert "has 2 features, policy 'mlp' reads 3" in decisions[0].error
    assert "no array" in decisions[1].error


def test_rows_that_cannot_be_scored_are_an_error() -> None:
    rows = rows_of(SEEN, [0] * 6)
    with pytest.raises(InputError, match="without action_ids"):
        TabularPolicy(3).score(rows.with_columns(action_ids=pl.lit(None, pl.List(pl.Int32))))
    with pytest.raises(InputError, match="every row needs 5 features"):
        MLPPolicy(5, 3).score(rows)


def test_a_table_starts_uniform_and_states_take_rows_in_the_order_in_which_they_are_learned_from() -> None:
    policy = TabularPolicy(3, capacity=3)
    np.testing.assert_allclose(policy.choice_probabilities(SEEN[:1])[0], 1 / 3)
    policy.score(rows_of([SEEN[0], SEEN[2], SEEN[0]], [1, 1, 2]))
    assert list(policy._places) == [SEEN[0].key(), SEEN[2].key()]
    policy.score(rows_of(SEEN[3:4], [0]))


@pytest.mark.parametrize("kind", [TabularPolicy, QTablePolicy])
def test_a_full_table_grows(kind: type[TabularPolicy], tmp_path: Path) -> None:
    """What was learned stays, a smaller table loads a larger one, and acting in a new state grows nothing."""
    policy = kind(3, capacity=2)
    policy.meet(rows_of(SEEN[:2], [0, 1]))
    with torch.no_grad():
        policy.module.get_parameter("logits")[:2] = torch.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
    before = policy.choice_probabilities(SEEN[:2])[0]
    policy.choice_probabilities(SEEN)
    assert policy.capacity == 2
    policy.meet(rows_of(SEEN[:5], [0] * 5))
    assert (policy.capacity, policy.module.get_parameter("logits").shape) == (5, (5, 3))
    np.testing.assert_array_equal(policy.choice_probabilities(SEEN[:2])[0], before)
    policy.save(tmp_path)
    np.testing.assert_array_equal(
        kind.load(tmp_path).choice_probabilities(SEEN)[0], policy.choice_probabilities(SEEN)[0]
    )
    fresh = kind(3, capacity=2)
    fresh.load_state_dict(policy.state_dict())
    assert list(fresh._places) == list(policy._places)
    smaller = kind(3, capacity=9)
    smaller.load_state_dict(policy.state_dict())
    assert smaller.capacity == 5


def test_who_only_acts_changes_no_table() -> None:
    """Else it would matter where a team was played, and by how many."""
    policy = TabularPolicy(3)
    policy.score(rows_of(SEEN[1:2], [0]))
    with torch.no_grad():
        policy.parameters()[0][0] = torch.tensor([2.0, 0.0, -1.0])
    before = {name: tensor.clone() for name, tensor in policy.state_dict().items()}
    policy.act(requests(SEEN))
    found, _ = policy.choice_probabilities(SEEN[:2])
    np.testing.assert_allclose(found[0], 1 / 3)
    assert found[1, 0] > 0.8
    assert all(torch.equal(tensor, before[name]) for name, tensor in policy.state_dict().items())


def test_a_state_of_a_table_carries_its_states() -> None:
    policy, other = learned(TabularPolicy(3)), TabularPolicy(3)
    other.act(requests(SEEN[::-1]))
    other.load_state_dict(policy.state_dict())
    np.testing.assert_array_equal(other.choice_probabilities(SEEN)[0], policy.choice_probabilities(SEEN)[0])
    with pytest.raises(InputError, match="does not fit"):
        TabularPolicy(2).load_state_dict(policy.state_dict())


def test_an_optimiser_made_before_the_first_state_serves_the_last() -> None:
    policy = TabularPolicy(3)
    optimiser = torch.optim.AdamW(policy.parameters(), lr=0.5)
    for observation in SEEN[:2]:
        policy.act(requests([observation]))
        optimiser.zero_grad()
        (-policy.score(rows_of([observation], [2])).logprobs.sum()).backward()
        optimiser.step()
    assert (policy.choice_probabilities(SEEN[:2])[0][:, 2] > 0.4).all()


def test_a_network_depends_on_its_seed_and_on_nothing_else() -> None:
    before = torch.get_rng_state()
    one, two, other = MLPPolicy(4, 2, seed=1), MLPPolicy(4, 2, seed=1), MLPPolicy(4, 2, seed=2)
    assert torch.equal(torch.get_rng_state(), before)
    assert all(torch.equal(a, b) for a, b in zip(one.parameters(), two.parameters(), strict=True))
    assert not torch.equal(one.parameters()[0], other.parameters()[0])
    assert [tuple(p.shape) for p in MLPPolicy(4, 2, hidden=()).parameters()] == [(2, 4), (2,)]


@pytest.mark.parametrize("kind", ["ucb1", "epsilon", "thompson", "contest", "exp3", "linucb", "net", "table", "noisy"])
@pytest.mark.parametrize("mask", [None, np.array([True, True, False])])
def test_a_policy_that_explores_scores_rows_as_it_acts(kind, mask):
    if kind == "net":
        policy = QNetworkPolicy(2, 3, start=0.2)
    elif kind in ("table", "noisy"):
        policy = QTablePolicy(3, decay=1.0, noise=float(kind == "noisy"))
        policy.count()
    else:
        policy = BanditPolicy(3, index=kind, features=2, shared=False)
        policy.update(np.array([0, 0, 1, 1, 2, 2]), np.array([0.1, 0.3, 0.5, 0.7, 0.9, 1.0]), contexts=np.ones((6, 2)))
    seen = Observation("?", ("x", "y", "z"), mask, np.ones(2, np.float32))
    if kind in ("table", "noisy"):
        policy.learn(policy.places([seen.key()]), np.array([1]), np.array([1.0]), 0.5)
    made = policy.act([Request(seen, "a", np.random.default_rng(seed)) for seed in range(4)])
    rows = {"action_ids": [each.action_ids.tolist() for each in made], "features": [[1.0, 1.0]] * 4}
    rows |= {"legal": [mask if mask is None else mask.tolist()] * 4}
    table = pl.DataFrame(rows | {"state": pl.Series([seen.key()] * 4, dtype=pl.UInt64)})
    assert policy.score(table).logprobs[:, 0].tolist() == pytest.approx([each.logprobs[0] for each in made], abs=1e-6)
