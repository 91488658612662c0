"""`JointPolicy`: one policy in several seats that draws one action for all of them, as a central controller does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from palaestra.agents.policy import Decision, Request
from palaestra.errors import InputError


class JointPolicy:
    """Fixed policy that draws the joint action of all agents from a table of probabilities by observation text.

    All seats must act in every turn. One draw, from the stream of the first seat, decides for all of them.

    Args:
        table: probabilities of joint actions by text, float64[actions of the first seat, …], an axis per seat.
        agents: the seats, in the order of the axes.

    Raises:
        InputError: a table has not one axis per seat, or does not sum to 1.
    """

    def __init__(self, table: Mapping[str, np.ndarray], agents: Sequence[str], *, name: str = "joint") -> None:
        for text, chances in table.items():
            if chances.ndim != len(agents) or not np.isclose(chances.sum(), 1.0) or chances.min() < 0:
                raise InputError(
                    f"JointPolicy: {text!r} needs probabilities that sum to 1, an axis for each of {agents}"
                )
        self.table, self.agents, self.name = dict(table), tuple(agents), name

    def act(self, requests: Sequence[Request]) -> list[Decision]:
        """Decisions for the requests: one joint action is drawn per run of requests from the first agent on."""
        decisions: list[Decision] = []
        drawn: tuple[int, ...] = ()
        for request in requests:
            if request.agent == self.agents[0]:
                chances = self.table[request.observation.text]
                place = int(request.rng.choice(chances.size, p=chances.ravel()))
                drawn = tuple(int(each) for each in np.unravel_index(place, chances.shape))
            own = drawn[self.agents.index(request.agent)]
            decisions.append(Decision(own, action_ids=np.array([own], np.int32)))
        return decisions
