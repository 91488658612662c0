"""IQL, VDN and QMIX on the two-step game of the QMIX paper (arXiv 1803.11485), and their replay."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
import torch

from palaestra.agents import QNetworkPolicy, Team
from palaestra.agents.policy import Request
from palaestra.envs.protocol import Observation, StepResult
from palaestra.errors import InputError, LearnerError
from palaestra.learning.joint_replay import JointReplay
from palaestra.learning.mixers import Monotonic, Sum, mixer
from palaestra.learning.value_decomposition import ValueDecomposition
from palaestra.play.executors import Local, Plan

PAYOFF = np.array([[[7.0, 7.0], [7.0, 7.0]], [[0.0, 1.0], [1.0, 8.0]]])


class TwoStep:
    """The first agent chooses between two matrix games; one pays 7, the other 8 if both take the second action."""

    agents = ("one", "two")
    task = "two steps"

    def reset(self, seed):
        self.place = 0
        return self._seen()

    def step(self, actions):
        first, second = (int(actions[agent]) for agent in self.agents)
        if self.place:
            reward = float(PAYOFF[self.place - 1, first, second])
            return StepResult({}, {"one": reward / 2, "two": reward / 2}, True, False, {})
        self.place = 1 + first
        return StepResult(self._seen(), {"one": 0.0, "two": 0.0}, False, False, {})

    def _seen(self):
        array = np.eye(3, dtype=np.float32)[self.place]
        return {agent: Observation(str(self.place), ("0", "1"), None, array) for agent in self.agents}


def learned(mixer, *, updates=20, separate=True, **options):
    """A learner that saw a hundred random games before each of its updates."""
    names = ("a", "b") if separate else ("a", "a")
    made = {name: QNetworkPolicy(3, 2, name=name, hidden=[32], explore=10**6, seed=3) for name in names}
    team = Team(one=made[names[0]], two=made[names[1]])
    learner = ValueDecomposition(team, mixer=mixer, rate=1e-2, gamma=0.99, steps=25, batch=64, tau=0.1, **options)
    turns = Local().play(TwoStep, team, Plan(groups=100, seed=1))
    for _ in range(updates):
        learner.update(turns)
    return learner


def joint(learner, place):
    """Worth of the team's four joint actions at a place, [2, 2]."""
    seen = torch.eye(3)[place].expand(1, 2, 3)
    own = learner._values(learner.parts, seen)[0]
    state = learner._state(seen)
    with torch.no_grad():
        mix = learner.parts["mixer"]
        return np.array([[mix(torch.stack([a, b])[None], state).item() for b in own[1]] for a in own[0]])


def test_qmix_finds_what_a_sum_cannot_represent():
    """The tables of the paper: QMIX's 6.93 and 7.92 at the start; VDN prefers the safe game."""
    qmix, vdn = learned("monotonic", updates=40), learned("sum")
    assert joint(qmix, 0) == pytest.approx(np.array([[6.93, 6.93], [7.92, 7.92]]), abs=0.05)
    assert joint(qmix, 2) == pytest.approx(PAYOFF[1], abs=0.05)
    assert joint(vdn, 2) == pytest.approx(np.array([[-1.5, 2.5], [2.5, 6.5]]), abs=0.6), "the best fit of a sum"
    assert joint(vdn, 0)[0].max() > joint(vdn, 0)[1].max(), "VDN to the safe one"


def test_alone_each_agent_learns_the_mean_over_what_others_do():
    alone = learned("none")
    own = alone._values(alone.parts, torch.eye(3)[2].expand(1, 2, 3))[0].detach().numpy()
    assert own == pytest.approx(np.array([[0.25, 2.25], [0.25, 2.25]]), abs=0.4), "half of the payoff each"


def test_a_mixture_rises_with_each_agents_worth():
    mix = Monotonic(3, 5)
    own = torch.randn(20, 3, requires_grad=True)
    mix(own, torch.randn(20, 5)).sum().backward()
    assert own.grad is not None
    assert (own.grad >= 0).all()


def test_a_mixture_by_hand():
    """|-2| · 1 + 1 · 2 + .5 = 4.5, and |-3| · 4.5 + 7 = 20.5; below 0 the ELU is e^x - 1."""
    mix = Monotonic(2, 1, width=1)
    with torch.no_grad():
        for each in mix.parameters():
            each.zero_()
        mix.weights.bias.copy_(torch.tensor([-2.0, 1.0]))
        mix.offset.bias.fill_(0.5)
        mix.last_weights.bias.fill_(-3.0)
        mix.last_offset[2].bias.fill_(7.0)
    found = mix(torch.tensor([[1.0, 2.0], [-1.0, 0.5]]), torch.ones(2, 1))
    assert found.tolist() == pytest.approx([20.5, 3 * (np.exp(-1) - 1) + 7])


def test_a_mixture_has_the_name_of_its_kind():
    assert mixer("none", 2, 1, 0) is None
    assert [type(mixer(name, 2, 1, 0)) for name in ("sum", "monotonic")] == [Sum, Monotonic]


def test_agents_that_share_a_network_share_what_they_learn():
    shared = learned("sum", updates=2, separate=False)
    assert list(shared.policies) == ["a"]
    assert len(list(shared.parts.parameters())) == 4


def test_a_resumed_learner_goes_on_bit_for_bit():
    whole = learned("monotonic", updates=6)
    half = learned("monotonic", updates=3)
    fresh = learned("monotonic", updates=0)
    for name, policy in half.networks.items():
        fresh.networks[name].load_state_dict(policy.state_dict())
    fresh.restore(half.state())
    turns = Local().play(TwoStep, Team(one=half.networks["a"], two=half.networks["b"]), Plan(groups=100, seed=1))
    for _ in range(3):
        fresh.update(turns)
    for name in whole.networks:
        for one, other in zip(
            whole.networks[name].module.parameters(), fresh.networks[name].module.parameters(), strict=True
        ):
            assert torch.equal(one, other)
    assert fresh.networks["a"].exploration == whole.networks["a"].exploration


def rows(**columns):
    data = {
        "run": ["0"] * 6, "iteration": [0] * 6, "group": [0, 0, 0, 0, 1, 1], "episode": [0] * 6,
        "turn": [0, 0, 1, 1, 0, 0], "agent": ["x", "y"] * 3,
        "features": [[1.0], [2.0, 3.0], [4.0], [5.0, 6.0], [7.0], [8.0, 9.0]],
        "action_ids": [[0], [1], [1], [0], [1], [1]], "reward": [0.5, 0.25, None, 2.0, 3.0, 4.0],
        "truncated": [False] * 4 + [True] * 2,
    }  # fmt: skip
    return pl.DataFrame({**data, **columns}, strict=False)


def test_joint_steps_of_agents_with_different_observations():
    replay = JointReplay(4, {"x": 1, "y": 2}, {"x": 2, "y": 3})
    assert replay.add(rows(), "reward") == 2, "the second episode was cut off after one step"
    held = {name: each[: len(replay)] for name, each in replay.columns.items()}
    assert held["seen"].tolist() == [[[1, 0], [2, 3]], [[4, 0], [5, 6]]]
    assert held["next_seen"][0].tolist() == [[4, 0], [5, 6]]
    assert held["over"].tolist() == [False, True]
    assert held["reward"].tolist() == [[0.5, 0.25], [0, 2]]
    assert held["legal"][0].tolist() == [[True, True, False], [True, True, True]]
    replay.add(rows(), "reward")
    replay.add(rows(), "reward")
    assert (len(replay), replay.at) == (4, 2), "a ring"


def test_targets_are_the_worth_of_what_may_be_done_next():
    learner = learned("none", updates=2)
    drawn = {name: torch.from_numpy(each) for name, each in learner.replay.draw(np.random.default_rng(0), 8).items()}
    drawn["over"][:] = False
    for only in (0, 1):
        drawn["next_legal"][:] = torch.arange(2) == only
        own = learner._values(learner.parts, drawn["seen"]).gather(-1, drawn["action"][..., None])[..., 0]
        ahead = learner._values(learner.targets, drawn["next_seen"])[..., only]
        assert torch.allclose(learner.error(drawn), own - drawn["reward"] - 0.99 * ahead, atol=1e-5)


def test_what_may_not_be_done_is_kept_with_each_step():
    replay = JointReplay(4, {"x": 1, "y": 2}, {"x": 2, "y": 3})
    replay.add(rows(legal=[None, None, [False, True], [True, False, True], None, None]), "reward")
    assert replay.columns["next_legal"][0].tolist() == [[False, True, False], [True, False, True]]


def test_standardised_rewards_count_in_units_of_their_deviation():
    plain, scaled = learned("sum", updates=1), learned("sum", updates=1, standardise=True)
    team = scaled.replay.columns["reward"][: len(scaled.replay)].sum(1)
    assert scaled.moments == pytest.approx((team.mean(), team.std()), rel=1e-4)
    assert plain.moments == (0.0, 1.0)
    drawn = {name: torch.from_numpy(each) for name, each in plain.replay.draw(np.random.default_rng(0), 8).items()}
    drawn["over"][:] = True
    before, scaled.moments = scaled.error(drawn), (0.0, 1.0)
    rewards, (mean, deviation) = drawn["reward"].sum(1), (team.mean(), team.std())
    assert torch.allclose(before - scaled.error(drawn), rewards - (rewards - mean) / deviation, atol=1e-4)


def test_turns_in_which_not_all_act_are_refused():
    with pytest.raises(LearnerError, match="all act at once"):
        JointReplay(4, {"x": 1, "y": 2}, {"x": 2, "y": 3}).add(rows()[:3], "reward")


def test_wrong_options_are_named():
    team = Team(one=QNetworkPolicy(3, 2, name="a"))
    with pytest.raises(InputError, match="mixer='qmix'"):
        ValueDecomposition(team, mixer="qmix")
    with pytest.raises(InputError, match="gamma=2"):
        ValueDecomposition(team, gamma=2)
    with pytest.raises(InputError, match="explore=0"):
        QNetworkPolicy(3, 2, explore=0)


def test_it_explores_less_with_every_update():
    policy = QNetworkPolicy(3, 2, explore=4, least=0.2)
    epsilons = []
    for _ in range(6):
        epsilons.append(policy.exploration)
        policy.count()
    assert epsilons == pytest.approx([1.0, 0.8, 0.6, 0.4, 0.2, 0.2])
    seen = Observation("s", ("a", "b"), np.array([False, True]), np.zeros(3, np.float32))
    decision = policy.act([Request(seen, "one", np.random.default_rng(0))])[0]
    assert decision.action == 1, "the only legal action, whatever its worth"


def test_credit_does_not_move_the_networks():
    learner = learned("sum", updates=1)
    assert not any(
        parameter.requires_grad for each in learner.networks.values() for parameter in each.module.parameters()
    )
    assert learner.rest is None


def test_boltzmann_exploration_cools_down():
    policy = QNetworkPolicy(3, 2, method="boltzmann", start=2.0, least=0.5, explore=3, seed=1)
    seen = [Observation("", ("0", "1"), None, np.eye(3, dtype=np.float32)[0])]
    worth = policy.values(torch.eye(3)[:1]).double().numpy()[0]
    for temperature in (2.0, 1.5, 1.0, 0.5, 0.5):
        weights = np.exp(worth / temperature)
        np.testing.assert_allclose(policy.choice_probabilities(seen)[0][0], weights / weights.sum(), atol=1e-6)
        policy.count()
    for options in ({"method": "hot"}, {"method": "boltzmann", "least": 0.0}, {"start": 1.5}):
        with pytest.raises(InputError, match="QNetworkPolicy"):
            QNetworkPolicy(3, 2, **options)


def test_worths_of_any_size_have_chances():
    policy = QNetworkPolicy(1, 2, hidden=[], method="boltzmann", start=1.0, least=1.0)
    seen = [Observation("", ("0", "1"), None, np.ones(1, np.float32))]
    for size in (2000.0, -2000.0):
        with torch.no_grad():
            for parameter, value in zip(policy.module.parameters(), ([[0.0], [0.0]], [size, size + 1]), strict=True):
                parameter.copy_(torch.tensor(value))
        np.testing.assert_allclose(
            policy.choice_probabilities(seen)[0][0], [1 / (1 + np.e), np.e / (1 + np.e)], atol=1e-6
        )


def test_a_game_that_goes_on_has_no_last_steps():
    team = Team(one=QNetworkPolicy(3, 2, name="a"), two=QNetworkPolicy(3, 2, name="b"))
    turns = Local().play(TwoStep, team, Plan(groups=5, seed=1))
    replay = JointReplay(50, {"one": 3, "two": 3}, {"one": 2, "two": 2})
    assert replay.add(turns.frame, "reward") == 10
    assert replay.add(turns.frame, "reward", continuing=True) == 5
    assert not replay.columns["over"][10:15].any()


def test_a_small_head_prefers_nothing_at_first():
    large, small = (QNetworkPolicy(3, 2, head=head, seed=4).values(torch.eye(3)) for head in (1.0, 0.1))
    torch.testing.assert_close(small, large / 10)


def test_an_agents_worth_is_that_of_its_own_network():
    learner = learned("sum", updates=1)
    seen = torch.eye(3)[[0, 2]][:, None].expand(2, 2, 3)
    with torch.no_grad():
        found = learner._values(learner.parts, seen)
        for place, name in enumerate(("a", "b")):
            torch.testing.assert_close(found[:, place], learner.parts[f"of_{name}"](seen[:, place]))
    assert not torch.equal(found[:, 0], found[:, 1])
