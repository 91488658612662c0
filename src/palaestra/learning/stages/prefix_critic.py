"""ReAd's critic [56]: what the joint action is worth, agent by agent."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from palaestra.algebra.parse import parse
from palaestra.algebra.returns import return_to_go
from palaestra.algebra.signals import total
from palaestra.algebra.turns import Turns
from palaestra.credit.critics import PrefixCritic
from palaestra.credit.joint_actions import team_plays
from palaestra.learning.stages.stage import Context, Stage, stage


@stage
class prefix_critic(Stage):
    """Stage: columns `prefix_value`, Q(s, a_1..a_i) of the turn's agents in the order of names, and `value`, V(s).

    s is what all agents of the turn see. Means of what the turn's agents together earn from it on, as known before
    this iteration; rate: `PrefixCritic`. Its credit is
    `sequential_advantage()`, whose sum over agents is the advantage of the joint action. The fitted `critic` also
    scores proposals of a planner: the workflow `advantage_feedback`.
    """

    adds = {"prefix_value": "Q of the joint action up to this agent's", "value": "V of what the team sees"}

    def __init__(self, *, reward: str = "reward", gamma: float = 1.0, rate: float = 0.1) -> None:
        self.critic = PrefixCritic(rate=rate)
        self.target = total(return_to_go(parse(reward), gamma=gamma), over=("episode", "turn"))
        self.needs = {"episode", "turn", "agent", "state", "action", *self.target.needs()}

    def __call__(self, turns: Turns, context: Context) -> Turns:
        """The table with both values."""
        goal, plays = np.asarray(self.target.evaluate(turns), float), team_plays(turns, by_name=True)
        prefix, value = np.full(len(turns), np.nan), np.full(len(turns), np.nan)
        for order, state, joint in plays:  # a turn of the team at a time: its prefixes are a chain
            for size, row in enumerate(order, 1):
                prefix[row], value[row] = self.critic.value(state, joint[:size]), self.critic.value(state)
        known = [(s, j, goal[o[0]]) for o, s, j in plays if goal[o[0]] == goal[o[0]]]
        if known:
            self.critic.fit(*map(list, zip(*known, strict=True)))
        return turns.with_column(prefix_value=prefix, value=value)

    def state_dict(self) -> dict[str, Any]:
        """State: the table of averages."""
        cells = self.critic.cells
        return {"cells": [json.dumps(cell) for cell in cells], "values": np.array(list(cells.values()), float)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Inverse of `state_dict`."""
        pairs = zip(state["cells"], np.asarray(state["values"]).tolist(), strict=True)
        self.critic.cells = {tuple(json.loads(cell)): (value, int(number)) for cell, (value, number) in pairs}
