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

from palaestra.algebra.turns import Turns
from palaestra.rewards.match.calls import tool_rl_reward
from palaestra_atlas.reproductions import Outcome, reached, reproduction, train_arms

if TYPE_CHECKING:
    from palaestra.runs.inline import TrainingResult

WORLD: dict[str, Any] = {
    "env": {"make": "native/call", "options": {"tasks": 4, "tools": 4, "arguments": 3}},
    "train": {"iterations": 90, "groups": 8},
}
ARMS = {grain: f'tool_rl_reward("calls", "gold", granularity="{grain}")' for grain in ("fine", "all")}


def worked_error() -> float:
    """Deviation for the right name, both parameters and one value of two, (1 + 1 + 1) of 4; for nothing; for all."""
    gold = [{"name": "find", "arguments": {"a": 1, "b": 2}}]
    calls = [[{"name": "find", "arguments": {"a": 1, "b": 3}}], [{"name": "send", "arguments": {}}], gold]
    turns = Turns({"calls": list(map(json.dumps, calls)), "gold": [json.dumps(gold)] * 3})
    found = [
        np.asarray(tool_rl_reward("calls", "gold", granularity=grain).evaluate(turns)) for grain in ("fine", "all")
    ]
    return float(np.abs(np.array(found) - [[1.5, -3, 3], [-3, -3, 3]]).max())


def learned_so_far(learned: TrainingResult) -> dict[str, float]:
    """Mean share of right calls over training, and iterations to four in five."""
    return {"curve": float(np.mean(learned.curve())), "iterations": reached(learned.curve(), 0.8)}


@reproduction(
    215,
    claim="Where an exact call is rare, a tool-call reward that is split into name, parameters and values is learned "
    "faster than all or nothing.",
    baseline="the same recipe with the reward for exact calls only",
    criterion="worked rewards exact; mean success over training higher by at least 0.05 in the mean, and in three of "
    "four seeds (held on the one fresh block of two seeds tried)",
    seeds=(0, 1, 2, 3),
    slow=True,
)
def measure(seeds: Sequence[int]) -> Outcome:
    """Both granularities."""
    arms = train_arms("world", {name: WORLD | {"reward": text} for name, text in ARMS.items()}, seeds, learned_so_far)
    gain, error = arms.gain("fine", "all", "curve")
    ahead = float(np.mean(arms.values["fine"]["curve"] > arms.values["all"]["curve"]))
    measured = {"worked_error": worked_error()} | arms.measured()
    measured |= {"gain": gain, "standard_error": error, "seeds_ahead": ahead}
    return Outcome(measured, measured["worked_error"] < 1e-9 and gain >= 0.05 and ahead >= 0.75)
