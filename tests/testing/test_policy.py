from __future__ import annotations

import copy

import numpy as np
import pytest
import torch

from palaestra.agents import Decision, MLPPolicy, ScriptedPolicy, random_legal
from palaestra.envs.protocol import Observation
from palaestra.testing.policy import check_policy

CHOICES = ("a", "b", "c")
SEEN = [
    Observation(f"state {i}", choices=CHOICES, mask=np.array([True, i % 2 == 0, True]), array=np.array([i, 1.0], "f4"))
    for i in range(5)
]


class Learner(MLPPolicy):
    """A sound policy for the others to break."""

    def __init__(self) -> None:
        super().__init__(2, 3, hidden=(8,))


def test_sound_policies_pass_and_are_left_as_they_were() -> None:
    check_policy(random_legal(), SEEN)
    policy = Learner()
    before = copy.deepcopy(policy.state_dict())
    policy.parameters()[0].grad = torch.ones_like(policy.parameters()[0])
    check_policy(policy, SEEN)
    assert all(torch.equal(before[name], value) for name, value in policy.state_dict().items())
    assert torch.equal(policy.parameters()[0].grad, torch.ones_like(policy.parameters()[0]))
    assert policy.parameters()[1].grad is None


class DropsOne(Learner):
    def act(self, requests):
        return super().act(requests)[:-1]


class AlwaysOne(Learner):
    def act(self, requests):
        return super().act(requests) or [Decision("")]


class Reverses(Learner):
    def act(self, requests):
        return super().act(requests)[::-1]


class OneGeneratorForAll(Learner):
    def act(self, requests):
        shared = [type(r)(r.observation, r.agent, requests[0].rng) for r in requests]
        return super().act(shared)


class OwnGenerator(Learner):
    rng = np.random.default_rng(0)

    def act(self, requests):
        return super().act([type(r)(r.observation, r.agent, self.rng) for r in requests])


class GlobalGenerator(Learner):
    def act(self, requests):
        np.random.random()  # noqa: NPY002
        return super().act(requests)


class GlobalTorchGenerator(Learner):
    def act(self, requests):
        torch.rand(1)
        return super().act(requests)


class Changed(Learner):
    """Each decision, edited."""

    def edit(self, decision):
        raise NotImplementedError

    def act(self, requests):
        decisions = super().act(requests)
        for decision in decisions:
            self.edit(decision)
        return decisions


class NumpyAction(Changed):
    def edit(self, decision):
        decision.action = np.int64(decision.action)


class IllegalAction(Changed):
    def edit(self, decision):
        decision.action = 7


class PositiveLogprob(Changed):
    def edit(self, decision):
        decision.logprobs = -decision.logprobs


class InfiniteEntropy(Changed):
    def edit(self, decision):
        decision.entropies = decision.entropies * np.inf


class TooManyLogprobs(Changed):
    def edit(self, decision):
        decision.logprobs = np.repeat(decision.logprobs, 2)


class Fails(Changed):
    def edit(self, decision):
        decision.error = "OSError: gone"


class OtherTemperature(Changed):
    def edit(self, decision):
        decision.logprobs = decision.logprobs * 1.01


class NoTokens(Changed):
    def edit(self, decision):
        decision.action_ids = decision.logprobs = decision.entropies = None


class NoGradient(Learner):
    def score(self, rows):
        scored = super().score(rows)
        scored.logprobs = scored.logprobs.detach() + 0 * self.parameters()[0].sum()
        return scored


class ForgetsLegality(Learner):
    def score(self, rows):
        return super().score(rows.drop("legal"))


class OtherParameters(Learner):
    def parameters(self):
        return [p.detach().clone().requires_grad_() for p in super().parameters()]


class ActsWithOldWeights(Learner):
    """An engine that keeps its own copy of the weights."""

    def __init__(self):
        super().__init__()
        self.engine = copy.deepcopy(self)

    def act(self, requests):
        return self.engine.act(requests) if hasattr(self, "engine") else super().act(requests)


class SharesItsCopy(Learner):
    def frozen_copy(self):
        return copy.copy(self)


class CopyThatLearns(Learner):
    def frozen_copy(self):
        return copy.deepcopy(self)


class HalfAState(Learner):
    def state_dict(self):
        return {k: v for k, v in super().state_dict().items() if not k.startswith("0.")}

    def load_state_dict(self, state):
        self.module.load_state_dict(state, strict=False)


BROKEN = {
    DropsOne: "5 requests gave 4 decisions",
    AlwaysOne: "0 requests gave 1|must return",
    Reverses: "in order|decided differently|not legal",
    OneGeneratorForAll: "alone it is decided differently",
    OwnGenerator: "the same rng gave another decision",
    GlobalGenerator: "draws from a global random generator",
    GlobalTorchGenerator: "draws from a global random generator",
    NumpyAction: "request 0: the action is a int64",
    IllegalAction: "request 0: action id 7 is not legal",
    PositiveLogprob: "a log-probability is above 0",
    InfiniteEntropy: "entropies has a value that is not finite",
    TooManyLogprobs: "1 action_ids but 2 logprobs",
    Fails: "request 0: failed with 'OSError: gone'",
    OtherTemperature: "score: logprobs differ by",
    NoTokens: "a Learnable must fill action_ids",
    NoGradient: "no gradient reaches",
    ForgetsLegality: "score: logprobs differ by",
    OtherParameters: "no gradient reaches",
    ActsWithOldWeights: r"differ by .* after parameters\(\) were changed",
    SharesItsCopy: r"frozen_copy\(\) changed when the policy did",
    CopyThatLearns: "parameters that require a gradient",
    HalfAState: "does not bring the policy back",
}


@pytest.mark.parametrize("kind", BROKEN, ids=lambda kind: kind.__name__)
def test_a_broken_policy_is_caught_by_name(kind) -> None:
    with pytest.raises(AssertionError, match=BROKEN[kind]):
        check_policy(kind(), SEEN)


def test_it_says_what_it_needs() -> None:
    with pytest.raises(AssertionError, match="at least two observations"):
        check_policy(random_legal(), SEEN[:1])
    with pytest.raises(AssertionError, match="request 0: failed with 'KeyError"):
        check_policy(ScriptedPolicy(lambda request: {}[1]), SEEN)
