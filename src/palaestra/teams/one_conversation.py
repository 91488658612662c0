"""A workflow of several roles as one conversation of one agent ([140] OneFlow, arXiv 2601.12307).

    one_conversation(["reader", "planner", "writer"])          # beside chain(["reader", "planner", "writer"])

The roles act one after the other, as in a chain, but the same agent plays all of them and keeps what was asked and
answered before: each role is a further user turn, and what stands before it can stay in the cache. The search over
workflows, in which this is one shape of several, is `palaestra.teams.workflow_search`.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any

from palaestra.envs.protocol import EnvFactory
from palaestra.teams.deliberation import Deliberation
from palaestra.teams.graph import Graph
from palaestra.teams.rules import Message


class OneConversation(Deliberation):
    """Team env (of a `TaskEnv` factory): `Deliberation` of one agent that plays all roles of `prompts` (role -> text).

    Args:
        prompts: role -> what it is told, in the order in which they act; an empty one is told its name alone.
    """

    def __init__(self, tasks: EnvFactory, graph: Graph, *, prompts: Mapping[str, str], **options: Any) -> None:
        super().__init__(tasks, graph, **options)
        self._prompts = list(prompts.items())

    def _notes(self, role: str, own: Message | None) -> list[tuple[str, str]]:
        name, prompt = self._prompts[self._turns[role]]
        return [("Your role now", f"{name}: {prompt.strip()}" if prompt.strip() else name)]


def one_conversation(
    tasks: EnvFactory, roles: int | Sequence[str] | Mapping[str, str] = 3, **options: Any
) -> EnvFactory:
    """Env factory from another, `tasks`: one agent plays a chain of roles in one conversation; its last answer counts.

    [140].
    """
    names = [f"link-{at}" for at in range(1, roles + 1)] if isinstance(roles, int) else roles
    prompts = dict(names) if isinstance(names, Mapping) else dict.fromkeys(names, "")
    made = Graph.of(["solver"], rounds=len(prompts), aggregate="last()", own=True, workflow="single")
    factory = functools.partial(OneConversation, tasks, made, prompts=prompts, **options)
    factory()
    return factory
