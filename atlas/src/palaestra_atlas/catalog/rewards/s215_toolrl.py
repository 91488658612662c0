"""[215] ToolRL (arXiv 2504.13958): partial credit for a tool call's name, parameters and values.

The world `call`: one right call among 4 tools with three arguments of 5 values, 500 in all, said part by part; GRPO by
the recipe `world`. Where an exact call is less rare, among 75, all or nothing is learned as fast: groups with one exact
call say all there is to know. Left out: language models.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from palaestra.agents import Team
from palaestra.agents.scripted import random_legal
from palaestra.algebra.schedules import linear
from palaestra.algebra.turns import Turns
from palaestra.envs.worlds.parts import PickCall
from palaestra.play.rollout import rollout
from palaestra.rewards import call_match, length_reward, tag_format, tool_rl_reward
from palaestra_atlas.reproductions import Outcome, exact, reached, reproduction, train_arms

if TYPE_CHECKING:
    from palaestra.runs.inline import TrainingResult

WORLD: dict[str, Any] = {
    "env": {"make": "native/call", "options": {"tasks": 4, "tools": 4, "arguments": 3}},
    "train": {"iterations": 90, "groups": 8},
}
ARMS = {grain: f'tool_rl_reward("calls", "gold", granularity="{grain}")' for grain in ("fine", "all")}


SEARCH: dict[str, Any] = {"name": "search", "arguments": {"q": "cats", "k": 3}}
CALC: dict[str, Any] = {"name": "calc", "arguments": {"e": "1+1"}}


def paid(gold: list[Any], *calls: list[Any], **options: Any) -> np.ndarray:
    """Rewards of what was called instead of the gold calls."""
    table = {"calls": list(map(json.dumps, calls)), "gold": [json.dumps(gold)] * len(calls)}
    return np.asarray(tool_rl_reward("calls", "gold", **options).evaluate(Turns(table)))


@exact
def worked_rewards() -> None:
    """The card's five answers: one value wrong, the other way round, another tool, nothing, one call too many."""
    wrong = {"name": "search", "arguments": {"q": "cats", "k": 5}}
    calls = ([wrong], [CALC, SEARCH], [{"name": "send", "arguments": {}}], [], [SEARCH, CALC, SEARCH])  # type: ignore[var-annotated]
    np.testing.assert_allclose(paid([SEARCH, CALC], *calls), [-0.5, 3, -3, -3, 2 + 2 / 3])
    np.testing.assert_allclose(paid([SEARCH, CALC], *calls, granularity="all"), [-3, 3, -3, -3, -3])


@exact
def best_free_partner() -> None:
    """Calls of one name in another order keep their partners, and no call serves two."""
    cats, dogs, owls = ({"name": "search", "arguments": {"q": each}} for each in ("cats", "dogs", "owls"))
    np.testing.assert_allclose(paid([cats, dogs], [dogs, owls]), [6 * 4 / 5 - 3])
    np.testing.assert_allclose(paid([cats, cats], [cats]), [6 * 2.5 / 5 - 3])
    share = call_match("calls", "gold", part="calls")
    table = Turns({"calls": [json.dumps([dogs, owls])], "gold": [json.dumps([cats, dogs])]})
    np.testing.assert_allclose(np.asarray(share.evaluate(table)), [2 / 3])


@exact
def format_point() -> None:
    """Both tags once, in order: 1; swapped, doubled or followed by something: 0. And length, at most 1."""
    think, call = "<think>a</think>", "<tool_call>b</tool_call>"
    said = [f"{think} {call}", f"{call} {think}", f"{think} {think} {call}", f"{think} {call} c"]
    table = {"action": said, "calls": [json.dumps([CALC])] * 4, "gold": [json.dumps([CALC])] * 4}
    reward = tool_rl_reward("calls", "gold", format=tag_format("action", ("think", "tool_call")))
    np.testing.assert_allclose(np.asarray(reward.evaluate(Turns(table))), [4, 3, 3, 3])
    np.testing.assert_allclose(
        np.asarray(length_reward("action", words=4).evaluate(Turns(table))), [0.5, 0.5, 0.75, 0.75]
    )


@exact
def format_of_the_gold_answer() -> None:
    """The tags of the gold answer are asked for, in its row: a call where it calls, a response where it responds."""
    think, call, said = "<think>a</think>", "<tool_call>b</tool_call>", "<response>c</response>"
    table = {"action": [think + call, think + said] * 2, "answer": [think + call] * 2 + [think + said] * 2}
    table |= {"calls": [json.dumps([CALC]), "[]"] * 2, "gold": [json.dumps([CALC])] * 2 + ["[]"] * 2}
    asked = tag_format("action", ("think", "tool_call", "response"), like="answer")
    found = np.asarray(tool_rl_reward("calls", "gold", format=asked).evaluate(Turns(table)))
    np.testing.assert_allclose(found, [1 + 3, 0 - 3, 0, 1])


@exact
def calls_to_the_letter() -> None:
    """Call by call: names and right calls over 1 + n; nothing to call pays 0, what cannot be read -3."""
    wrong = {"name": "search", "arguments": {"q": "cats", "k": 5}}
    calls = ([wrong], [CALC, SEARCH], [], [SEARCH, CALC, SEARCH], [SEARCH])  # type: ignore[var-annotated]
    expected = [6 * 0.5 / 3 - 3, 3, -3, 6 * (2 / 3 + 2) / 3 - 3, 6 * 1.5 / 3 - 3]
    np.testing.assert_allclose(paid([SEARCH, CALC], *calls, granularity="call"), expected)
    np.testing.assert_allclose(paid([], [CALC], []), [0, 0])
    table = Turns({"calls": ["[{", None], "gold": [json.dumps([CALC])] * 2})
    np.testing.assert_allclose(np.asarray(tool_rl_reward("calls", "gold").evaluate(table)), [-3, -3])


@exact
def moving_scales() -> None:
    """At step 75 format counts at most 1.5 and correctness 2.5; from step 150 on 1 and 3."""
    scales = {"scale": linear(2, 3, steps=150), "format_scale": linear(2, 1, steps=150), "format": 1.0}
    calls = [json.dumps([CALC])] * 3
    table = Turns({"calls": calls, "gold": calls, "iteration": [0, 75, 300]})
    right = np.asarray(tool_rl_reward("calls", "gold", **scales).evaluate(table))  # type: ignore[arg-type]
    np.testing.assert_allclose(right, [4, 4, 4])
    wrong = Turns({"calls": ["[]"] * 3, "gold": calls, "iteration": [0, 75, 300]})
    found = np.asarray(tool_rl_reward("calls", "gold", **scales).evaluate(wrong))  # type: ignore[arg-type]
    np.testing.assert_allclose(found, [0, 1.5 - 2.5, 1 - 3])


@exact
def calls_are_paid() -> None:
    """Play of the env of the use: the reward of a call with n of its two values right is by its name and n alone."""
    turns = rollout(PickCall, Team(caller=random_legal()), groups=200, seed=0).filter(pl.col("calls").is_not_null())
    rewards = np.asarray(tool_rl_reward("calls", "gold").evaluate(turns))
    said, gold = ([json.loads(text)[0] for text in turns[name]] for name in ("calls", "gold"))
    same = [sum(one["arguments"][key] == other["arguments"][key] for key in other["arguments"])
            for one, other in zip(said, gold, strict=True)]  # fmt: skip
    named = np.array([one["name"] == other["name"] for one, other in zip(said, gold, strict=True)])
    np.testing.assert_allclose(rewards, np.where(named, 6 * (2 + np.array(same)) / 4 - 3, -3))


def learned_so_far(learned: TrainingResult) -> dict[str, float]:
    """Mean share of right calls over training, and iterations to four in five."""
    return {"curve": float(np.mean(learned.curve())), "iterations": reached(learned.curve(), 0.8)}


@reproduction(
    215,
    claim="Where an exact call is rare, a tool-call reward that is split into name, parameters and values is learned "
    "faster than all or nothing.",
    baseline="the same recipe with the reward for exact calls only",
    criterion="mean success over training higher by at least 0.05 in the mean, and in three of "
    "four seeds (held on the one fresh block of two seeds tried)",
    seeds=(0, 1, 2, 3),
    slow=True,
)
def measure(seeds: Sequence[int]) -> Outcome:
    """Both granularities."""
    arms = train_arms("world", {name: WORLD | {"reward": text} for name, text in ARMS.items()}, seeds, learned_so_far)
    gain, error = arms.gain("fine", "all", "curve")
    ahead = float(np.mean(arms.values["fine"]["curve"] > arms.values["all"]["curve"]))
    measured = arms.measured()
    measured |= {"gain": gain, "standard_error": error, "seeds_ahead": ahead}
    return Outcome(measured, gain >= 0.05 and ahead >= 0.75)
