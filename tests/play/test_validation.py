from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from palaestra.agents.policy import Decision
from palaestra.envs.protocol import Action, Observation, StepResult
from palaestra.errors import EnvError, PolicyError, RewardError
from palaestra.play import validation
from palaestra.play.recording import TurnRecord
from palaestra.play.timeouts import Failure
from palaestra.play.validation import LONGEST_MESSAGE, accept, begin, describe, describe_failure, step


class Fixed:
    """Returns what it was made with."""

    agents = ("a", "b")
    task: Any = "task"

    def __init__(self, result: Any) -> None:
        self.result = result

    def reset(self, seed: int) -> Any:
        return self.result

    def step(self, actions: Mapping[str, Action]) -> Any:
        return self.result


def end(rewards: Mapping[str, Any] | None = None, **info: Any) -> StepResult:
    return StepResult({}, rewards or {}, terminated=True, info=info)


def test_who_acts_first() -> None:
    array = np.array([[1.0], [2.0]], np.float32)
    env = Fixed({"b": Observation("y", mask=np.array([True])), "a": Observation("x", array=array)})
    env.task = 7
    made, task, seen = begin(None, lambda: env, seed=0)
    assert made is env
    assert task == "7"
    assert [(agent, observation.text) for agent, observation, _ in seen] == [("a", "x"), ("b", "y")]  # the env's order
    first, second = (row for _, _, row in seen)
    assert (first.agent, first.observation, first.state) == ("a", "x", Observation("x", array=array).key())
    array[:] = 0  # envs may use their arrays again
    assert first.features is not None
    assert first.features.tolist() == [1.0, 2.0]
    assert second.legal is not None
    assert second.legal.tolist() == [True]


def test_an_env_that_is_there_is_used_again() -> None:
    env = Fixed({"a": Observation("x")})
    assert begin(env, pytest.fail, seed=0)[0] is env  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("first", "error", "message"),
    [
        ({}, EnvError, "reset returned no observations"),
        (None, TypeError, None),
        ({"a": "text"}, EnvError, "'a' observed str, expected Observation"),
        ({"z": Observation("")}, EnvError, r"agent 'z' was observed, but the env's agents are \('a', 'b'\)"),
        ({"a": Observation(None)}, EnvError, "'a' observed the text None, expected a str"),  # type: ignore[arg-type]
        ({"a": Observation("s", array=np.array(["x"]))}, ValueError, None),
    ],
)
def test_malformed_observations_are_refused(first: Any, error: type[Exception], message: str | None) -> None:
    with pytest.raises(error, match=message):
        begin(Fixed(first), pytest.fail, seed=0)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("result", "error", "message"),
    [
        (None, EnvError, "step returned NoneType, expected StepResult"),
        (StepResult({"a": 3}), EnvError, "'a' observed int"),  # type: ignore[dict-item]
        (end(valid=True), EnvError, r"info\['valid'\] is True"),
        (end(valid={"a": "no"}), EnvError, r"info\['valid'\] says 'no', expected True, False or None"),
        (end(success="no"), EnvError, r"info\['success'\] says 'no'"),
        (end(success={"a": 0.5}), EnvError, r"info\['success'\] says 0.5"),
        (end(success=float("nan")), EnvError, r"info\['success'\] says nan"),
        (end([1.0]), EnvError, r"rewards is \[1.0\], expected \{agent: number\}"),  # type: ignore[arg-type]
        (StepResult({}, info=["x"]), EnvError, r"info is \['x'\], expected a mapping"),  # type: ignore[arg-type]
        (end({"b": float("nan")}), RewardError, "'b' received nan from Fixed, expected a finite number"),
        (end({"b": np.float32("-inf")}), RewardError, "'b' received -inf"),
        (end({"b": "much"}), RewardError, "'b' received 'much'"),
        (end({"b": [1, 2]}), RewardError, r"'b' received \[1, 2\]"),
    ],
)
def test_malformed_results_are_refused(result: Any, error: type[Exception], message: str | None) -> None:
    with pytest.raises(error, match=message):
        step(Fixed(result), {})


@pytest.mark.parametrize(
    ("result", "what"),
    [
        (end({"a": 1.0, "Solver": 2.0}), "a reward is of 'Solver'"),
        (end({7: 2.0}), "a reward is of 7"),  # type: ignore[dict-item]
        (end(success={"Solver": True}), r"info\['success'\] is of 'Solver'"),
        (end(valid={"Solver": True}), r"info\['valid'\] is of 'Solver'"),
    ],
)
def test_nothing_is_said_of_strangers(result: StepResult, what: str) -> None:
    """It would be lost without a word, and a team would be trained on nothing."""
    env = Fixed(result)
    env.agents = ("a", "solver")
    near = "; did you mean 'solver'" if "Solver" in what else "; known: a, solver"
    with pytest.raises(EnvError, match=what + ", who is not one of the env's agents" + near):
        step(env, {})


def test_results_become_plain_values() -> None:
    rewards = {"a": np.float32(0.5), "b": True, "c": np.int64(3), "d": None}
    env = Fixed(end(rewards, valid={"a": np.bool_(False)}, success={"a": np.bool_(True), "b": None, "c": 1}))
    env.agents = tuple("abcd")
    outcome = step(env, {})
    assert outcome.rewards == {"a": 0.5, "b": 1.0, "c": 3.0, "d": None}
    assert outcome.valid == {"a": False}
    assert outcome.success == {"a": True, "b": None, "c": True}
    assert outcome.metadata is None


@pytest.mark.parametrize(
    ("result", "terminated", "truncated", "over"),
    [
        (StepResult({"a": Observation("x")}), False, False, False),
        (StepResult({"a": Observation("x")}, terminated=True), True, False, True),
        (StepResult({}, truncated=True), False, True, True),
        (StepResult({}, terminated=True, truncated=True), True, True, True),
        (StepResult({}), True, False, True),
    ],
)
def test_how_an_episode_ends(result: StepResult, terminated: bool, truncated: bool, over: bool) -> None:
    outcome = step(Fixed(result), {})
    assert (outcome.terminated, outcome.truncated, not outcome.seen) == (terminated, truncated, over)


def test_any_info_becomes_json() -> None:
    cycle: dict[str, Any] = {}
    cycle["self"] = cycle
    plain = step(Fixed(end(words={"y", "x"}, n=np.int64(3), v=np.arange(2), o=Fixed, success=True)), {}).metadata
    assert json.loads(plain or "") == {"words": ["x", "y"], "n": 3, "v": [0, 1], "o": str(Fixed)}
    odd = step(Fixed(end(deep=cycle, key={(1, 2): 3})), {}).metadata
    assert json.loads(odd or "") == {"deep": repr(cycle), "key": "{(1, 2): 3}"}


# -- policies ---------------------------------------------------------------------------------------------------------

SEEN = Observation("s", choices=("left", "right"))


def accepted(decision: Any) -> TurnRecord:
    row = TurnRecord("a")
    assert accept(decision, SEEN, row, 0.25) is None
    return row


@pytest.mark.parametrize(
    ("action", "text"),
    [(1, "right"), (np.int64(0), "left"), (7, "7"), (-1, "-1"), ("LEFT ", "LEFT "), ("\ud800é", "?é")],
)
def test_actions_as_text(action: Any, text: str) -> None:
    assert accepted(Decision(action)).action == text


def test_what_a_decision_fills() -> None:
    decision = Decision("x", [1, 2], [3], [-0.5], [0.1], cost=np.float32(2))  # type: ignore[arg-type]
    row = accepted(decision)
    assert row.prompt_ids is not None
    assert row.prompt_ids.dtype == np.int32
    assert row.logprobs is not None
    assert row.logprobs.dtype == np.float32
    assert (row.tokens_in, row.tokens_out, row.cost, row.duration) == (2, 1, 2.0, 0.25)
    ends = [-(2**31), 2**31 - 1]
    assert accepted(Decision("x", action_ids=ends)).action_ids.tolist() == ends  # type: ignore[union-attr, arg-type]
    row = accepted(Decision("x", tokens_in=9, tokens_out=8, duration=3.0))
    assert (row.tokens_in, row.tokens_out, row.duration) == (9, 8, 3.0)


def test_an_error_that_the_policy_reports() -> None:
    row = TurnRecord("a")
    assert accept(Decision("x", cost=1.0, error="Busy: later"), SEEN, row, 0.0) == "policy: Busy: later"
    assert (row.action, row.cost) == (None, 1.0)  # it did nothing, but it had its price


@pytest.mark.parametrize(
    ("decision", "error", "message"),
    [
        ("text", PolicyError, "act answered 'a' with str, expected Decision"),
        (Decision(None), PolicyError, "the action is None"),  # type: ignore[arg-type]
        (Decision("x", prompt_ids=np.zeros((1, 2))), PolicyError, r"prompt_ids has shape \(1, 2\)"),
        (
            Decision("x", action_ids=np.zeros(2), logprobs=np.zeros(3)),
            PolicyError,
            "logprobs has 3 numbers for 2 action",
        ),
        (Decision("x", action_ids=["a"]), PolicyError, "action_ids is .* expected whole numbers of 32 bits"),  # type: ignore[arg-type]
        (Decision("x", action_ids=np.array([1, 2**40])), PolicyError, r"action_ids is \[1, 1099511627776\]"),
        (Decision("x", action_ids=[2**70]), PolicyError, "expected whole numbers of 32 bits"),  # type: ignore[arg-type]
        (Decision("x", prompt_ids=np.array([1.5])), PolicyError, r"prompt_ids is \[1.5\]"),
        (Decision("x", action_ids=np.array([np.nan])), PolicyError, "expected whole numbers"),
        (Decision("x", logprobs=np.array(["a"])), PolicyError, "logprobs is .* expected numbers"),
        (Decision("x", logprobs=np.array([-1.0, np.nan])), PolicyError, "logprobs is nan at token 1, expected finite"),
        (Decision("x", entropies=np.array([1e300])), PolicyError, "entropies is inf at token 0"),
        (Decision("x", cost="3"), PolicyError, "cost is '3', expected a finite number"),  # type: ignore[arg-type]
        (Decision("x", tokens_in="3"), PolicyError, "tokens_in is '3', expected a whole"),  # type: ignore[arg-type]
        (Decision("x", tokens_in=10**12), PolicyError, "tokens_in is 1000000000000, expected a whole number from 0"),
        (Decision("x", tokens_out=-1), PolicyError, "tokens_out is -1"),
        (Decision("x", cost=-0.5), PolicyError, "cost is -0.5"),
        (Decision("x", duration=float("nan")), PolicyError, "duration is nan"),
    ],
)
def test_malformed_decisions_are_refused(decision: Any, error: type[Exception], message: str | None) -> None:
    with pytest.raises(error, match=message):
        accept(decision, SEEN, TurnRecord("a"), 0.0)


# -- messages ---------------------------------------------------------------------------------------------------------


def test_messages_are_one_short_line() -> None:
    assert describe("env", "a\n\n  b\ud800") == "env: a b?"
    long = describe("env", "x" * 10_000)
    assert len(long) < LONGEST_MESSAGE + 20
    assert long.endswith("…")


def test_failures_name_their_boundary() -> None:
    assert describe_failure("env", Failure(ValueError("no"))) == "env: ValueError: no"
    assert describe_failure("env", Failure(RewardError("no"))) == "reward: RewardError: no"
    assert describe_failure("policy", Failure(RewardError("no"))) == "policy: RewardError: no"
    assert describe_failure("env", Failure(TimeoutError("late"), hung=True)) == "env-timeout: TimeoutError: late"


# -- conversations ----------------------------------------------------------------------------------------------------


def seen(**options: Any) -> Observation:
    return Observation("x", **options)


@pytest.mark.parametrize(
    ("observation", "complaint"),
    [
        (seen(messages=({"content": "hi"},)), "'a' observed messages with {'content': 'hi'}, expected mappings with"),
        (seen(messages=("hi",)), "'a' observed messages with 'hi'"),
        (seen(messages=(), tools=({"name": "f"},)), "'a' observed tools with {'name': 'f'}"),
        (seen(messages=({"role": "user", "content": {1}},)), "'a' observed messages that are not plain values"),
    ],
)
def test_conversations_that_are_none(observation: Observation, complaint: str) -> None:
    with pytest.raises(EnvError, match=re.escape(complaint)):
        validation._row("a", observation)


def test_a_conversation_is_kept_as_json_and_tells_states_apart() -> None:
    call = {"function": {"name": "f", "arguments": {"a": "ü\ud800"}}}
    said = ({"role": "user", "content": "hi"}, {"role": "assistant", "content": "", "tool_calls": [call]})
    row = validation._row("a", seen(messages=said, tools=({"type": "function", "function": {"name": "f"}},)))
    assert "ü" in row.messages
    assert json.loads(row.tools)[0]["function"] == {"name": "f"}
    row.messages.encode()
    other = {"function": {"name": "f", "arguments": {"a": "v"}}}
    keys = {seen(messages=(said[0], {**said[1], "tool_calls": [each]})).key() for each in (call, other)}
    assert len(keys) == 2
    assert validation._row("a", Observation("x")).messages is None
