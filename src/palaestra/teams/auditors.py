"""What an auditor reads of a message and an indicator, and its verdict.

The system prompt is the template `prompts/auditor.j2`, what is asked `prompts/audit.j2`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from palaestra.envs.conversations import ChatMessage, Conversation, Reader, opening
from palaestra.envs.protocol import Observation
from palaestra.envs.replies import read_reply
from palaestra.teams.indicators import Indicator
from palaestra.teams.instructions import TEMPLATES, Instructions

AUDITOR = "auditor"
"""Family of the seats that audit by indicators."""
VERDICT = ("suggestion", "significant", "flawed")
"""Fields of an auditor's reply."""
_SAYS = {"yes": True, "true": True, "no": False, "false": False}
_EMPTY = ("", "-", "none", "nothing", "no", "no change", "no suggestion", "n/a", "null")


def audit_request(
    instructions: Instructions,
    seat: str,
    indicator: Indicator,
    *,
    question: str,
    message: str,
    role: str,
    separator: str,
) -> Observation:
    """Observation of an auditor: a question, the message of a role, and the indicator that it looks for.

    Policies that know no chat read them in this order, the indicator as `name: definition`.
    """
    mark, about = separator.strip(), f"{indicator.name}: {indicator.definition}"
    text = separator.join(each.replace(mark, " ") for each in (question, message, about))
    values = {"question": question, "message": message, "role": role, "indicator": indicator._asdict()}
    return Observation(text, messages=Conversation(_Prompt(instructions, seat, values).write), fields=VERDICT)


class _Prompt(NamedTuple):
    """Data of an auditor's chat prompt, rendered only when a chat model reads it."""

    instructions: Instructions
    seat: str
    values: Mapping[str, Any]

    def write(self, reader: Reader) -> tuple[ChatMessage, ...]:
        asked = TEMPLATES.render("audit", {**self.values, "structured": reader.structured})
        return opening(self.instructions.system(self.seat), asked)


def read_verdict(reply: str) -> tuple[bool | None, str | None]:
    r"""Parse an auditor's reply: whether the message is flawed (None: cannot be read), and what to change if it is.

    It is flawed if `flawed` and `significant` are yes and `suggestion` says something, as JSON or in lines.

    >>> read_verdict("Suggestion: carry the 1\nSignificant: yes\nFlawed: yes")
    (True, 'carry the 1')
    >>> read_verdict('{"suggestion": "none", "significant": true, "flawed": true}'), read_verdict("It is fine.")
    ((False, None), (None, None))
    """
    said = {}
    for name in VERDICT:
        part = read_reply(reply, name, until=[each for each in VERDICT if each != name])
        said[name] = part.text if part.form in ("json", "line") else ""
    flawed, significant = (_SAYS.get(said[name].casefold().rstrip(".! ")) for name in ("flawed", "significant"))
    if flawed is None or (flawed and significant is None):
        return None, None
    suggestion = said["suggestion"]
    stands = bool(flawed and significant and suggestion.casefold().rstrip(". ") not in _EMPTY)
    return stands, suggestion if stands else None
