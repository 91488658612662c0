"""Where foreign code meets a rollout: whatever an env or a policy returns is checked and copied here, or refused.

The functions on the env's side change nothing that the rollout owns, so a call that hangs can be abandoned at any time.
"""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

import numpy as np

from palaestra.agents.policy import Decision
from palaestra.algebra.turns import SCHEMA, clean
from palaestra.envs.conversations import Conversation
from palaestra.envs.facts import Facts, read_facts
from palaestra.envs.protocol import Action, Env, EnvFactory, Observation, StepResult
from palaestra.errors import EnvError, PolicyError, RewardError, nearest
from palaestra.play.recording import TurnRecord
from palaestra.play.timeouts import Failure

LONGEST_MESSAGE, LONGEST_FINISH = 300, 40

_log = logging.getLogger("palaestra.play.rollout")

Seen = tuple[str, Observation, TurnRecord]
"""An agent, what it sees, and the row that its turn will become."""

_NOTHING: Mapping[str, Any] = {}
_PROTOCOL = ("valid", "success")

Success = bool | dict[str, bool | None] | None
"""Of all agents, or of each; None where the env does not say."""


class CheckedStep(NamedTuple):
    """Data of a `StepResult` that passed `step`'s checks, in the form that the engine records.

    seen is empty iff the episode is over. facts: {agent: {name: value}}.
    """

    seen: list[Seen]
    rewards: dict[str, float | None]
    terminated: bool
    truncated: bool
    valid: dict[str, bool]
    success: Success
    metadata: str | None
    facts: Mapping[str, dict[str, Any]]


def begin(env: Env | None, factory: EnvFactory, seed: int) -> tuple[Env, str, list[Seen]]:
    """Reset the env (a new one of `factory` if None) with a seed: the checked triple (env, task name, observations).

    Raises:
        EnvError: nobody acts, or something is not what the protocol says.
        Exception: whatever the env raises.
    """
    if env is None:
        env = factory()
    seen = _look(env, env.reset(seed))
    if not seen:
        raise EnvError("reset returned no observations, so nobody can act")
    return env, clean(str(env.task)), seen


def step(env: Env, actions: Mapping[str, Action], facts: Facts = _NOTHING) -> CheckedStep:
    """Step the env with actions and check its result by the protocol: a `CheckedStep`; EnvError or RewardError else.

    facts: what the env declares.

    Raises:
        EnvError: the result is not what the protocol says, or a fact is not what was declared.
        RewardError: a reward is not a finite number.
        Exception: whatever the env raises.
    """
    result = env.step(actions)
    if not isinstance(result, StepResult):
        raise EnvError(f"step returned {type(result).__name__}, expected StepResult")
    rewards, info = result.rewards, result.info
    if not _mapping(rewards):
        raise EnvError(f"rewards is {_short(rewards)}, expected {{agent: number}}")
    if not _mapping(info):
        raise EnvError(f"info is {_short(info)}, expected a mapping")
    valid, success = info.get("valid") or _NOTHING, info.get("success")
    if not _mapping(valid):
        raise EnvError(f"info['valid'] is {_short(valid)}, expected {{agent: bool}}")
    each: Mapping[str, Any] | None = success if success is not None and _mapping(success) else None
    known = env.agents
    for agent in rewards:
        if agent not in known:
            raise _stranger("a reward", agent, known)
    for agent in valid:
        if agent not in known:
            raise _stranger("info['valid']", agent, known)
    for agent in each or ():
        if agent not in known:
            raise _stranger("info['success']", agent, known)
    over = result.terminated or result.truncated or not result.observations
    return CheckedStep(
        seen=[] if over else _look(env, result.observations),
        rewards={agent: None if value is None else _finite(env, agent, value) for agent, value in rewards.items()},
        terminated=bool(result.terminated or (over and not result.truncated)),
        truncated=bool(result.truncated),
        valid={agent: value if value is True else bool(_flag("valid", value)) for agent, value in valid.items()},
        success=_flag("success", success)
        if each is None
        else {agent: _flag("success", value) for agent, value in each.items()},
        metadata=_to_json(info, facts) if info else None,
        facts=read_facts(info, facts, actions, env.agents) if facts else _NOTHING,
    )


def _look(env: Env, observations: Mapping[str, Observation]) -> list[Seen]:
    agents = list(observations)
    for agent in agents:
        if type(agent) is not str:
            raise EnvError(f"an agent is called {agent!r}; names of agents are texts")
        if agent not in env.agents:
            raise EnvError(f"agent {agent!r} was observed, but the env's agents are {env.agents}")
    if len(agents) > 1:
        agents.sort(key=env.agents.index)
    return [(agent, observations[agent], _row(agent, observations[agent])) for agent in agents]


def _mapping(value: Any) -> bool:
    return type(value) is dict or isinstance(value, Mapping)  # the first is asked for speed


def _stranger(what: str, agent: Any, agents: Collection[str]) -> EnvError:
    return EnvError(f"{what} is of {_short(agent)}, who is not one of the env's agents{nearest(str(agent), agents)}")


def _row(agent: str, observation: Observation) -> TurnRecord:
    if not isinstance(observation, Observation):
        raise EnvError(f"{agent!r} observed {type(observation).__name__}, expected Observation")
    if not isinstance(observation.text, str):
        raise EnvError(f"{agent!r} observed the text {_short(observation.text)}, expected a str")
    array, mask = observation.array, observation.mask
    written = observation.messages is not None and not isinstance(observation.messages, Conversation)
    messages = _conversation(agent, "messages", observation.messages, "role") if written else None
    return TurnRecord(
        agent,
        observation.text,
        messages,
        _conversation(agent, "tools", observation.tools, "function") if observation.tools else None,
        observation.key(),
        None if array is None else np.array(array, np.float32).reshape(-1),
        None if mask is None else np.array(mask, np.bool_).reshape(-1),
    )


def _conversation(agent: str, what: str, parts: Any, needs: str) -> str:
    for part in parts:
        if not _mapping(part) or needs not in part:
            raise EnvError(f"{agent!r} observed {what} with {_short(part)}, expected mappings with {needs!r}")
    try:
        return clean(json.dumps(list(map(dict, parts)), ensure_ascii=False))
    except (TypeError, ValueError, RecursionError) as error:
        raise EnvError(f"{agent!r} observed {what} that are not plain values: {error}") from error


def _flag(name: str, value: Any) -> bool | None:
    if value is None or isinstance(value, bool):
        return value
    if not isinstance(value, np.bool_ | int | float | np.number) or value not in (0, 1):  # "no" is true in Python
        raise EnvError(f"info[{name!r}] says {_short(value)}, expected True, False or None")
    return bool(value)


def _finite(env: Env, agent: str, value: Any) -> float:
    try:
        if isinstance(value, str | bytes):
            raise TypeError
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        raise RewardError(
            f"{agent!r} received {_short(value)} from {type(env).__name__}, expected a number or None"
        ) from None
    if not math.isfinite(number):
        raise RewardError(f"{agent!r} received {number} from {type(env).__name__}, expected a finite number or None")
    return number


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:60] + "…"


def _to_json(info: Mapping[str, Any], facts: Facts) -> str | None:
    rest = {str(key): value for key, value in info.items() if key not in _PROTOCOL and key not in facts}
    if not rest:
        return None
    if taken := SCHEMA.keys() & rest.keys():
        name = min(taken)
        raise EnvError(f"info[{name!r}] has the name of a column ({SCHEMA[name].meaning}); give it another name")
    try:
        return json.dumps(rest, default=_plain)
    except (TypeError, ValueError, RecursionError):  # keys that are not texts, or a cycle
        return json.dumps({key: repr(value) for key, value in rest.items()})


def _plain(value: Any) -> Any:
    if isinstance(value, np.generic | np.ndarray):
        return value.tolist()
    return sorted(value, key=repr) if isinstance(value, set | frozenset) else str(value)


def accept(decision: Decision, observation: Observation, row: TurnRecord, seconds: float) -> str | None:
    """Check a `Decision` and copy it into its `TurnRecord` in place; returns the policy's own error text, if any.

    Args:
        decision: what the policy answered.
        observation: what it answered to.
        row: is filled.
        seconds: duration of the call per request, unless the decision knows better.

    Raises:
        PolicyError: the decision is malformed.
    """
    if not isinstance(decision, Decision):
        raise PolicyError(f"act answered {row.agent!r} with {type(decision).__name__}, expected Decision")
    prompt, tokens = decision.prompt_ids, decision.action_ids
    if prompt is not None:
        row.prompt_ids = prompt = _vector("prompt_ids", prompt, np.int32)
        row.tokens_in = len(prompt)
    if tokens is not None:
        row.action_ids = tokens = _vector("action_ids", tokens, np.int32)
        row.tokens_out = len(tokens)
    if decision.logprobs is not None:
        row.logprobs = _aligned("logprobs", decision.logprobs, tokens)
    if decision.token_versions is not None:
        row.token_versions = versions = _vector("token_versions", decision.token_versions, np.int32)
        if tokens is None or len(versions) != len(tokens):
            raise PolicyError(f"token_versions has {len(versions)} numbers, expected one for each of action_ids")
    if decision.entropies is not None:
        row.entropies = _aligned("entropies", decision.entropies, tokens)
    row.prefix = decision.prefix
    row.finish = None if decision.finish is None else clean(str(decision.finish))[:LONGEST_FINISH]
    if decision.messages is not None and row.messages is None:
        row.messages = _conversation(str(row.agent), "messages", decision.messages, "role")
    if decision.tokens_in is not None:
        row.tokens_in = _count("tokens_in", decision.tokens_in)
    if decision.tokens_out is not None:
        row.tokens_out = _count("tokens_out", decision.tokens_out)
    if decision.cost is not None:
        row.cost = _amount("cost", decision.cost)
    row.duration = seconds if decision.duration is None else _amount("duration", decision.duration)
    if decision.error is not None:
        return describe("policy", str(decision.error))
    row.action = _action_text(decision.action, observation)
    return None


def _vector(name: str, values: Any, dtype: Any) -> np.ndarray:
    array = values if type(values) is np.ndarray else np.asarray(values)
    if array.ndim != 1:
        raise PolicyError(f"{name} has shape {array.shape}, expected one dimension")
    return array if array.dtype == dtype else _converted(name, array, dtype)


def _converted(name: str, array: np.ndarray, dtype: Any) -> np.ndarray:
    """Numbers as `dtype`; token ids must be whole and fit."""
    if array.size:
        fits = array.dtype.kind in "iuf"
        if fits and dtype == np.int32:
            fits = bool((array == np.round(array)).all() and array.min() >= _MOST.min and array.max() <= _MOST.max)
        if not fits:
            wanted = "whole numbers of 32 bits" if dtype == np.int32 else "numbers"
            raise PolicyError(f"{name} is {array[:3].tolist()}…, expected {wanted}")
    with np.errstate(over="ignore"):  # what is infinite then is refused
        return array.astype(dtype)


_MOST = np.iinfo(np.int32)
_NUMBERS = (int, float, np.number)


def _count(name: str, value: Any) -> int:
    if not isinstance(value, _NUMBERS) or not 0 <= value <= _MOST.max or int(value) != value:
        raise PolicyError(f"{name} is {value!r}, expected a whole number from 0 to {_MOST.max}")
    return int(value)


def _amount(name: str, value: Any) -> float:
    if not isinstance(value, _NUMBERS) or not 0 <= value < math.inf:
        raise PolicyError(f"{name} is {value!r}, expected a finite number of at least 0")
    return float(value)


def _aligned(name: str, values: Any, tokens: np.ndarray | None) -> np.ndarray:
    array = _vector(name, values, np.float32)
    if not math.isfinite(array.dot(array)) and not np.isfinite(array).all():  # the first is the cheaper question
        where = int(np.flatnonzero(~np.isfinite(array))[0])
        raise PolicyError(f"{name} is {array[where]} at token {where}, expected finite numbers")
    if tokens is not None and len(array) != len(tokens):
        raise PolicyError(f"{name} has {len(array)} numbers for {len(tokens)} action_ids")
    return array


def _action_text(action: Action, observation: Observation) -> str:
    if isinstance(action, str):
        return clean(action)
    try:
        index = int(action)
    except (TypeError, ValueError):
        raise PolicyError(f"the action is {action!r}, expected text or a number") from None
    choices = observation.choices
    if choices is None or not 0 <= index < len(choices) or index != action:
        return str(index if index == action else action)
    return clean(str(choices[index]))


def describe(boundary: str, message: str) -> str:
    """An error text `"boundary: message"` on one line of bounded length."""
    text = clean(" ".join(message.split()))
    return f"{boundary}: {text if len(text) <= LONGEST_MESSAGE else text[:LONGEST_MESSAGE] + ' …'}"


def describe_failure(boundary: str, failure: Failure) -> str:
    """Error text `"boundary: Type: message"` of a `Failure`, logged; time-outs and bad rewards have their own boundary.

    It is logged.
    """
    error = failure.error
    if failure.hung:
        boundary += "-timeout"
    elif boundary == "env" and isinstance(error, RewardError):
        boundary = "reward"
    elif boundary == "env" and isinstance(error, PolicyError):
        boundary = "policy"  # of an env that goes on without some of its agents, but not without all of them
    try:
        message = str(error)
    except KeyboardInterrupt:
        raise
    except BaseException:  # its own fault, even if it calls sys.exit()
        message = "(its text cannot be read)"
    else:
        _log.debug("%s failed", boundary, exc_info=error)  # the traceback holds that text
    return describe(boundary, f"{type(error).__name__}: {message}")
