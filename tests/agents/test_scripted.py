from __future__ import annotations

import numpy as np
import pytest

from palaestra.agents import Request, ScriptedPolicy, Team, fixed, from_choices, random_legal
from palaestra.envs.protocol import Observation, StepResult
from palaestra.errors import InputError
from palaestra.play.rollout import rollout
from palaestra.testing.policy import check_policy

CHOICES = ("pass", "bet", "fold")
SEEN = Observation("?", choices=CHOICES, mask=np.array([True, True, False]))


def ask(policy, observation, n=1):
    return policy.act([Request(observation, "player", np.random.default_rng(i)) for i in range(n)])


@pytest.mark.parametrize("policy", [random_legal(), fixed("bet"), fixed(1), from_choices({"bet": 1, "pass": 3})])
def test_they_keep_the_promises_of_a_policy(policy) -> None:
    check_policy(policy, [SEEN, Observation("other", choices=CHOICES)])


def test_the_function_sees_the_whole_request() -> None:
    policy = ScriptedPolicy(lambda r: f"{r.agent} saw {r.observation.text} {r.rng.integers(1000)}", name="echo")
    first, second = ask(policy, Observation("rain"), 2)
    assert first.action == f"player saw rain {np.random.default_rng(0).integers(1000)}"
    assert second.action != first.action
    assert first.duration >= 0
    assert first.logprobs is None


def test_a_function_that_raises_fails_its_own_request_only() -> None:
    policy = ScriptedPolicy(lambda r: {"good": "yes"}[r.observation.text])
    good, bad = policy.act([Request(Observation(t), "a", np.random.default_rng(0)) for t in ("good", "bad")])
    assert (good.action, good.error) == ("yes", None)
    assert bad.error == "KeyError: 'bad'"


def test_random_legal_is_uniform_over_the_legal() -> None:
    actions = [d.action for d in ask(random_legal(), SEEN, 2000)]
    assert set(actions) == {0, 1}
    assert actions.count(0) == pytest.approx(1000, abs=100)
    assert ask(random_legal(), Observation("free"))[0].error.startswith("InputError: random_legal needs")


def test_from_choices_follows_the_weights_of_what_is_legal() -> None:
    policy = from_choices({"pass": 0.5, "bet": 1.5, "fold": 9.0})
    actions = [d.action for d in ask(policy, SEEN, 2000)]
    assert set(actions) == {"pass", "bet"}
    assert actions.count("bet") == pytest.approx(1500, abs=100)
    assert "none of ['raise'] is legal" in ask(from_choices({"raise": 1.0}), SEEN)[0].error
    for weights in ({}, {"bet": -1.0}, {"bet": float("nan")}):
        with pytest.raises(InputError, match="weights"):
            from_choices(weights)


class Wordless(Exception):
    """Its text cannot be read."""

    def __str__(self) -> str:
        raise RuntimeError("no words")


def test_a_function_that_fails_in_any_way_fails_alone() -> None:
    first = np.random.default_rng(1).integers(2**31)

    def failing(error: BaseException) -> ScriptedPolicy:
        def play(request: Request) -> str:
            if request.rng.integers(2**31) == first:
                raise error
            return "bet"

        return ScriptedPolicy(play)

    for error, told in ((Wordless(), "Wordless: (its text cannot be read)"), (SystemExit(3), "SystemExit: 3")):
        assert [d.error for d in ask(failing(error), SEEN, 3)] == [None, told, None]
    with pytest.raises(KeyboardInterrupt):
        ask(failing(KeyboardInterrupt()), SEEN, 3)


def test_half_a_sign_in_a_name_is_a_question_mark() -> None:
    class Once:
        agents, task = ("a",), "once"

        def reset(self, seed: int) -> dict[str, Observation]:
            return {"a": SEEN}

        def step(self, actions: dict) -> StepResult:
            return StepResult({}, {"a": 1.0}, terminated=True)

    turns = rollout(Once, Team(a=fixed("bet", name="half \ud83d")), groups=2)
    assert turns["policy"].to_list() == ["half ?"] * 2
    assert turns["error"].null_count() == 2
