"""Designer and critic of a search over workflows as language models ([140] OneFlow, arXiv 2601.12307).

The designer proposes one edit of a workflow, the critic accepts or rejects it before it is played. The prompts are this
project's: `edit_workflow.j2` and `review_edit.j2`, replaceable as those of judges. A reply that cannot be read is asked
for once more, and is then a row of the search's table.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from palaestra.agents.policy import Policy
from palaestra.envs.replies import read_reply
from palaestra.judges.asking import Reply, replies
from palaestra.judges.reading import fenced
from palaestra.judges.templates import write_prompt
from palaestra.teams.workflow_edits import SHAPES, read_edit
from palaestra.teams.workflow_search import Critic, Designer, Proposed, Review, SearchStep

SHOWN = 8
"""Workflows that a prompt lists, those of largest reward first."""
LONGEST = 200
"""Letters that a row keeps of a reply that could not be read."""


def model_designer(
    policy: Policy, roles: Mapping[str, str], *, task: str = "", most: int = 6, own: Mapping[str, str] | None = None
) -> Designer:
    """Makes a designer that asks a policy for one edit of the workflow.

    Args:
        policy: whom it asks, a `ChatPolicy` for example.
        roles: those that it may add, and what each is told.
        task: an example of the tasks, shown as data.
        most: nodes of a workflow at most.
        own: a template in place of the shipped prompt `edit_workflow`.
    """

    def propose(step: SearchStep, rng: np.random.Generator) -> list[Proposed]:
        values = _shown(step, task) | {"shapes": list(SHAPES), "rejected": list(step.rejected), "most": most}
        values["roles"] = [f"{role}: {told}" if told else role for role, told in roles.items()]

        def read(said: str) -> str | None:
            return read_edit(read_reply(said, "edit").text, step.edits)

        prompt = write_prompt("edit_workflow", values, own)
        (reply,) = _asked(policy, step, [prompt], read, "edit", "designer")
        edit = None if reply.text is None or reply.error else read(reply.text)
        return [Proposed(edit, "" if edit else _unread(reply), _tokens(reply))]

    return propose


def model_critic(policy: Policy, *, task: str = "", own: Mapping[str, str] | None = None) -> Critic:
    """Makes a critic that asks a policy whether a proposed edit is worth an evaluation.

    Args:
        policy: whom it asks, once about each edit, of all at once.
        task: an example of the tasks, shown as data.
        own: a template in place of the shipped prompt `review_edit`.
    """

    def review(step: SearchStep, edits: Sequence[str], rng: np.random.Generator) -> list[Review]:
        prompts = [
            write_prompt("review_edit", _shown(step, task) | {"edit": edit, "edited": step.edits[edit].text()}, own)
            for edit in edits
        ]
        found = _asked(policy, step, prompts, read_verdict, "verdict", "critic")
        verdicts = [None if each.text is None or each.error else read_verdict(each.text) for each in found]
        return [
            Review(None, _unread(reply), _tokens(reply)) if said is None else Review(*said, _tokens(reply))
            for said, reply in zip(verdicts, found, strict=True)
        ]

    return review


def read_verdict(reply: str) -> tuple[bool, str] | None:
    r"""Parse a critic's reply: (accepted, reason) of its field or line `Verdict: accept` or `reject`; None otherwise.

    >>> read_verdict("It checks twice.\n**Verdict:** Reject."), read_verdict("I would not.")
    ((False, 'It checks twice.'), None)
    """
    part = read_reply(reply, "verdict")
    word = part.text.casefold().strip(" .!*_`\"'") if part.form in ("json", "line") else ""
    accepted = {"accept": True, "accepted": True, "reject": False, "rejected": False}.get(word)
    if accepted is None:
        return None
    reason = read_reply(reply, "reasoning").text if part.form == "json" else part.shown
    kept = [line for line in reason.splitlines() if "verdict" not in line.casefold()]
    return accepted, " ".join(" ".join(kept).split())[:LONGEST]


def _shown(step: SearchStep, task: str) -> dict[str, Any]:
    best = sorted(step.tried, key=lambda each: -each[1]["reward"])[:SHOWN]
    return {
        "task": fenced(task) if task else "",
        "workflow": step.design.text(),
        "nodes": step.design.roles,
        "figures": _figures(step.row),
        "tried": [f"{design.text()}: {_figures(row)}" for design, row in best],
    }


def _figures(row: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {row[name]:.3g}" for name in ("accuracy", "cost", "reward"))


def _asked(
    policy: Policy, step: SearchStep, prompts: Sequence[str], read: Callable[[str], Any], field: str, who: str
) -> list[Reply]:
    asked = [(prompt, step.number) for prompt in prompts]
    return replies(policy, asked, [read] * len(asked), agent=who, fields=(field,), seed=step.number)


def _tokens(reply: Reply) -> int:
    return reply.tokens_in + reply.tokens_out


def _unread(reply: Reply) -> str:
    return " ".join((reply.error or reply.text or "no reply").split())[:LONGEST]
