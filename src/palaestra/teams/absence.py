"""Rules for a role whose policy failed: the episode fails, the team goes on without it, or only while enough answer.

    debate(5, on_error="quorum(3)")         # four of five debaters suffice when one endpoint is down

Left out: retries of the policy itself, which are the policy's own (`palaestra.agents.ChatPolicy`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from palaestra.envs.protocol import NoAction
from palaestra.errors import InputError, PolicyError, nearest
from palaestra.foundation.registry import read_call

RULES = ("fail", "skip", "quorum")
LONGEST = 70
"""Characters of each reason in a message, which has to name everybody who is down."""


class Absence:
    """Rule by which a team goes on without roles whose policies failed: `fail`, `skip` or `quorum(n)`.

    Args:
        text: `fail`, the episode ends with the first error; `skip`, whoever failed is left out of this step;
            `quorum(n)`, the same while at least n of a step's roles answer, or all of them if the step has fewer.

    Attributes:
        tolerates: Whether the team can go on at all.
        down: Role -> why its last request had no answer.

    Raises:
        InputError: there is no such rule, or the quorum is no whole number of at least 1.
    """

    def __init__(self, text: str = "fail") -> None:
        name, values, named = read_call(text, "quorum(3)")
        if name not in RULES:
            raise InputError(f"on_error: {text!r}{nearest(name, RULES)}; there are fail, skip and quorum(n)")
        given = [*values, *named.values()]
        numbers = [each for each in given if isinstance(each, int) and not isinstance(each, bool) and each >= 1]
        if len(given) != (name == "quorum") or len(numbers) < len(given) or named.keys() - {"least"}:
            raise InputError(
                f"on_error: {text!r}, expected fail, skip or quorum(n) with a whole number n of at least 1"
            )
        self.text, self.least = text, numbers[0] if numbers else 0
        self.tolerates = name != "fail"
        self.down: dict[str, str] = {}

    def begin(self) -> None:
        """Start a new episode: forget earlier failures."""
        self.down = {}

    def settle(self, actions: Mapping[str, object]) -> Collection[str]:
        """Roles without an answer among those asked at once; raises PolicyError if too few answered.

        Raises:
            PolicyError: fewer answered than the quorum asks for; names who is down, and why.
        """
        lost = [role for role, action in actions.items() if isinstance(action, NoAction)]
        self.down = {role: why for role, why in self.down.items() if role not in actions}
        self.down |= {role: str(getattr(actions[role], "error", "")) for role in lost}
        answered = len(actions) - len(lost)
        if answered < min(self.least, len(actions)):
            raise PolicyError(f"{answered} of {len(actions)} answered, {self.text} was asked for; {self.missing(lost)}")
        return lost

    def missing(self, roles: Collection[str] | None = None) -> str:
        """Text that names the failed roles, then the reasons."""
        roles = list(self.down if roles is None else roles)
        reasons = dict.fromkeys(self.down[role].removeprefix("skipped: ")[:LONGEST] for role in roles)
        return f"down: {', '.join(roles)} ({'; '.join(reasons)})"
