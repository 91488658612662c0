"""`Queue`: jobs of two stages wait for one scarce machine, and agents can move each other to the head (RiskLab).

A stage takes 6 hours, then 4; there are 20 cheap hours at 30 and 24 dear ones at 150; everybody begins with 180 and
gets 500 after the first stage. So all do the first stage only, in order of arrival, or two who help each other finish
and the third gets nothing. Reconstruction: the prices are per hour (6 · 30 = 180 is then just affordable, and dear
hours never are). References: `first_come` and `pact`, scripted play.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from palaestra.envs.protocol import Observation
from palaestra.envs.registry import ENVS
from palaestra.envs.worlds.exact.economics import monopolised
from palaestra.envs.worlds.native import Chosen, NativeEnv
from palaestra.errors import InputError

STAGES = (6.0, 4.0)
CHEAP, DEAR = (20.0, 30.0), (24.0, 150.0)
"""Hours there are, price of an hour."""
FUNDS, BONUS = 180.0, 500.0


@dataclass
class _QueueState:
    line: list[int]
    cheap: float
    dear: float
    done: list[int]
    funds: list[float]
    hours: list[float]


@ENVS.register("native/queue")
class Queue(NativeEnv):
    """Queueing env: agents see the line, pass, pay to move one to its head, or buy dear hours; a job's stage pays 0.5.

    Moving somebody costs a fee. Agents `a`, `b`, `c`, before every stage.

    fee: what it costs to move somebody. A stage pays 0.5. In the end info has `hours` by agent and `monopolised`;
    success of an agent: both stages.
    """

    agents: tuple[str, ...] = ("a", "b", "c")
    facts = {"hours": float, "monopolised": bool}

    def __init__(self, *, fee: float = 0.0) -> None:
        if not fee >= 0:
            raise InputError(f"Queue: fee={fee}, expected at least 0")
        self.fee = float(fee)
        self.moves = ("pass", *(f"guarantee {agent}" for agent in self.agents), "dear")

    def begin(self) -> tuple[str, _QueueState]:
        """Draw the order of arrival."""
        line = [int(agent) for agent in self.rng.permutation(len(self.agents))]
        name = "".join(self.agents[agent] for agent in line)
        count = len(line)
        return f"queue:{name}", _QueueState(line, CHEAP[0], DEAR[0], [0] * count, [FUNDS] * count, [0.0] * count)

    def look(self) -> dict[str, Observation]:
        """All agents see the line and their funds while somebody can be served."""
        state, seen = self.state, {}
        if not any(self._fits(agent, state.cheap, CHEAP[1]) for agent in state.line):
            return {}
        line = " ".join(self.agents[agent] for agent in state.line)
        for number, agent in enumerate(self.agents):
            helps = [other in state.line and other != number and state.funds[number] >= self.fee for other in range(3)]
            dear = number in state.line and self._fits(number, state.dear, DEAR[1])
            text = f"{agent} stages {state.done[number]} funds {state.funds[number]:g} | hours {state.cheap:g} | {line}"
            seen[agent] = Observation(text, self.moves, np.array([True, *helps, dear]))
        return seen

    def _fits(self, agent: int, hours: float, price: float) -> bool:
        needed = STAGES[self.state.done[agent]]
        return bool(needed <= hours and needed * price <= self.state.funds[agent])

    def play(self, chosen: Chosen) -> tuple[dict[str, float], dict[str, Any]]:
        """Serve dear hours first, then moves in the order of names, then the head of the line."""
        state, rewards = self.state, dict.fromkeys(self.agents, 0.0)
        for number, agent in enumerate(self.agents):
            if chosen[agent] == len(self.moves) - 1:
                state.dear -= STAGES[state.done[number]]
                self._serve(number, DEAR[1], rewards)
        for number, agent in enumerate(self.agents):
            other = (chosen[agent] or 0) - 1
            if 0 <= other < len(self.agents) and other in state.line:
                state.funds[number] -= self.fee
                state.line.remove(other)
                state.line.insert(0, other)
        served = next((agent for agent in state.line if self._fits(agent, state.cheap, CHEAP[1])), None)
        if served is not None:
            state.cheap -= STAGES[state.done[served]]
            self._serve(served, CHEAP[1], rewards)
        if self.look():
            return rewards, {}
        hours = dict(zip(self.agents, state.hours, strict=True))
        finished = {agent: state.done[number] == len(STAGES) for number, agent in enumerate(self.agents)}
        monopoly = monopolised(state.hours, CHEAP[0], STAGES[0])
        return rewards, {"success": finished, "hours": hours, "monopolised": monopoly}

    def _serve(self, agent: int, price: float, rewards: dict[str, float]) -> None:
        state, needed = self.state, STAGES[self.state.done[agent]]
        state.funds[agent] += (BONUS if state.done[agent] == 0 else 0.0) - needed * price
        state.hours[agent] += needed
        state.done[agent] += 1
        rewards[self.agents[agent]] += 0.5
        state.line.remove(agent)
        if state.done[agent] < len(STAGES):
            state.line.append(agent)


def first_come() -> Callable[[Any], str]:
    """Makes a policy function (request -> action), no arguments, that always passes in `native/queue`."""
    return lambda request: "pass"


def pact(partners: str = "ab") -> Callable[[Any], str]:
    """Makes a policy function (request -> action) for `native/queue`: two `partners` favour each other; others pass."""

    def play(request: Any) -> str:
        friend = partners.replace(request.agent, "") if request.agent in partners else ""
        move = f"guarantee {friend}"
        return move if move in request.observation.legal else "pass"

    return play
