"""Workflows as data that can be edited: a shape over a list of roles, its one-step edits, and the text a recipe takes.

    WorkflowDesign("chain", ("reader", "checker")).text()          # chain(['reader', 'checker'])

The shapes are those of `palaestra.teams.workflows` in which any roles can stand. Left out: edits of instructions.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from palaestra.errors import InputError, nearest

Named = Sequence[str] | Mapping[str, str]
_FILLERS = {"a", "an", "as", "by", "role", "the", "node", "number", "position", "to", "with", "and", "at", "in"}


def _call(workflow: str, roles: Named, **options: Any) -> str:
    told = dict(roles) if isinstance(roles, Mapping) else list(roles)
    return f"{workflow}({', '.join([repr(told), *(f'{name}={value!r}' for name, value in options.items())])})"


def _star(roles: Named) -> str:
    *workers, hub = roles
    return _call("graph", roles, edges={hub: workers}, aggregate=f"of({hub!r})")


SHAPES: Mapping[str, Callable[[Named], str]] = {
    "chain": lambda roles: _call("chain", roles),
    "one_conversation": lambda roles: _call("one_conversation", roles),
    "vote": lambda roles: _call("graph", roles),
    "debate": lambda roles: _call("graph", roles, edges="all", rounds=2),
    "star": _star,
}
"""Shapes by name: functions from roles to the text of `env.workflow`; in a star the last role hears the others."""


@dataclass(frozen=True)
class WorkflowDesign:
    """Data of a workflow: one of `SHAPES`, and the roles of its nodes in order; a role may stand several times.

    One node alone is a chain, whatever the shape.

    Raises:
        InputError: there is no such shape, or no role.

    >>> design = WorkflowDesign("chain", ("reader", "checker", "checker"))
    >>> design.text()
    "chain(['reader', 'checker', 'checker-2'])"
    >>> sorted(design.edits(["reader"], most=3))[:3]
    ['drop 1', 'drop 2', 'drop 3']
    """

    shape: str
    roles: tuple[str, ...]

    def __post_init__(self) -> None:
        if self.shape not in SHAPES:
            raise InputError(f"workflow design: shape {self.shape!r}{nearest(self.shape, SHAPES)}")
        if not self.roles:
            raise InputError("workflow design: no roles; at least one is needed")
        if len(self.roles) == 1:
            object.__setattr__(self, "shape", "chain")

    def text(self, instructions: Mapping[str, str] | None = None) -> str:
        """Text of `env.workflow` of a recipe. instructions: what each role is told; default: nothing but its name."""
        names = [
            role if (count := self.roles[:at].count(role)) == 0 else f"{role}-{count + 1}"
            for at, role in enumerate(self.roles)
        ]
        if not instructions or not any(instructions.values()):
            return SHAPES[self.shape](names)
        return SHAPES[self.shape](
            {name: instructions.get(role, "") for name, role in zip(names, self.roles, strict=True)}
        )

    def edits(self, roles: Sequence[str], *, most: int) -> dict[str, WorkflowDesign]:
        """Dict from the text of each one-step edit to the workflow that it makes: add, drop, replace, swap, shape.

        Places count from 1. Those that change nothing are left out; several may make the same workflow.

        Args:
            roles: those that can be added.
            most: nodes of a workflow at most.
        """
        own, count = self.roles, len(self.roles)
        found: dict[str, WorkflowDesign] = {}
        if count < most:
            for at in range(count + 1):
                found |= {f"add {role} {at + 1}": self._with((*own[:at], role, *own[at:])) for role in roles}
        if count > 1:
            found |= {f"drop {at + 1}": self._with((*own[:at], *own[at + 1 :])) for at in range(count)}
        for at in range(count):
            found |= {f"replace {at + 1} {role}": self._with((*own[:at], role, *own[at + 1 :])) for role in roles}
        for at in range(count - 1):
            found[f"swap {at + 1} {at + 2}"] = self._with((*own[:at], own[at + 1], own[at], *own[at + 2 :]))
        found |= {f"shape {shape}": replace(self, shape=shape) for shape in SHAPES}
        return {text: design for text, design in found.items() if design != self}

    def _with(self, roles: tuple[str, ...]) -> WorkflowDesign:
        return replace(self, roles=roles)


def read_edit(text: str, known: Mapping[str, WorkflowDesign]) -> str | None:
    """The edit of `known` that a text names, whatever its case, punctuation and filling words; None: it names none.

    >>> known = WorkflowDesign("chain", ("reader",)).edits(["checker"], most=2)
    >>> read_edit("Add the **checker** at position 2.", known), read_edit("add a poet", known)
    ('add checker 2', None)
    """
    return {_words(each): each for each in known}.get(_words(text))


def _words(text: str) -> tuple[str, ...]:
    found = re.findall(r"[\w-]+", text.casefold())
    return tuple(word for word in found if word not in _FILLERS)
