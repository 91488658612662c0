"""One model that plays several people in one call ([137] SPP, arXiv 2307.05300).

    personas()        # beside single(); personas("expert") has one general expert, personas(revise=False) no criticism

The system prompt asks for participants that fit the task, for a draft of the leader that they criticise and it revises,
and for a final answer; the reply is read as a transcript (`palaestra.evaluation.teamwork.transcript`). Left out: the
paper's demonstrations.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping
from typing import Any, Literal, get_args

from palaestra.envs.protocol import Action, EnvFactory, StepResult
from palaestra.envs.tasks import read_answer
from palaestra.errors import InputError, nearest
from palaestra.evaluation.teamwork.personas import LEADER, transcript
from palaestra.teams.deliberation import Deliberation
from palaestra.teams.graph import Graph

Participants = Literal["found", "expert"]


class Personas(Deliberation):
    """Team env: `Deliberation` of one agent whose reply is a discussion of personas, parsed for its final answer.

    facts: its own; participants, whom the reply lists; revisions, how often the leader spoke again after its draft;
    marked, whether the reply says which its final answer is.
    """

    facts = {**Deliberation.facts, "participants": list[str], "revisions": int, "marked": bool}

    def step(self, actions: Mapping[str, Action]) -> StepResult:
        """Parse the transcript and score its final answer."""
        told: dict[str, dict[str, Any]] = {name: {} for name in ("participants", "revisions", "marked")}
        for role, action in actions.items():
            found = transcript(read_answer(action))
            told["participants"][role] = list(found.participants)
            told["revisions"][role] = max(0, sum(name == LEADER for name, _ in found.said) - 1)
            told["marked"][role] = not found.unparsed
        result = super().step(actions)
        return dataclasses.replace(result, info={**result.info, **told})


def personas(
    tasks: EnvFactory, participants: Participants = "found", *, revise: bool = True, **options: Any
) -> EnvFactory:
    """Env factory from another, `tasks`: one agent writes a discussion of personas and the answer in a reply ([137]).

    participants: "found", those that fit the task; "expert", a general expert. revise: whether they criticise the
    leader's draft and it revises it, or the answer follows at once. Others: of every team.
    """
    if participants not in get_args(Participants):
        raise InputError(f"personas: participants={participants!r}{nearest(str(participants), get_args(Participants))}")
    made = Graph.of(["solver"], rounds=1, aggregate="last()", workflow="personas")
    values = {"participants": participants, "revise": revise, "leader": LEADER}
    factory = functools.partial(Personas, tasks, made, values=values, **options)
    factory()
    return factory
