"""Prompts of judges: Jinja templates in the folder `prompts`, and a user's own in place of a shipped one.

A prompt of one's own is a template of the same variables, in which `{{ default }}` is the shipped text. Judged texts
come fenced (`palaestra.judges.reading.fenced`), so they cannot pose as instructions.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from palaestra.envs.conversations import Templates
from palaestra.errors import InputError, nearest
from palaestra.foundation.files import read_text
from palaestra.judges.reading import fenced

TEMPLATES = Templates("palaestra.judges")
NOTHING = fenced("(nothing)")
"""Stands where a judged text is empty."""
KNOWN: Mapping[str, tuple[str, ...]] = {
    "judged": ("task", "response", "first", "second", "told", "question", "passes", "failures", "form"),
    "listed": ("task", "reference", "answers", "question"),
    "best": ("task", "answers"),
    "rated": ("task", "answer", "ties"),
    "argue": ("side", "task", "response", "said"),
    "merits": ("task", "response", "examples"),
    "flaws": ("task", "response", "examples"),
    "strict": ("task", "response", "examples", "merits", "flaws"),
    "overturn": ("task", "response", "examples", "merits", "flaws", "verdict", "words"),
    "criticise": ("question", "thinking", "answer"),
    "ground": ("transcript", "feedback"),
    "cluster": ("aspects", "known"),
    "match": ("aspect", "metrics"),
    "message": ("goal", "message"),
    "indicator": ("task", "response", "expected"),
    "same_indicator": ("known", "known_trigger", "new", "new_trigger"),
    "plant": ("task", "rules"),
    "find": ("task", "rules", "answer"),
    "reflect": ("task", "rules", "answer", "good"),
    "rewrite": ("rules", "advice", "most"),
    "subagent": ("place", "archive", "refused"),
    "edit_workflow": ("task", "workflow", "nodes", "figures", "roles", "shapes", "tried", "rejected", "most"),
    "review_edit": ("task", "workflow", "nodes", "figures", "edit", "edited", "tried"),
    "program": ("task", "hints", "seen", "functions", "examples"),
}
"""Names of prompts that can be replaced, and the variables of their templates."""


def own_prompts(given: str | Mapping[str, str] | None, names: tuple[str, ...], where: str) -> dict[str, str]:
    """Templates of a user by the name of the prompt that each replaces, read and checked.

    Args:
        given: A template, or a file `….j2` of one, of the first of the names; or several by name.
        names: Prompts that can be replaced here, of `KNOWN`.
        where: Who asks, for errors.

    Raises:
        InputError: there is no such prompt or file, or it is no template of the prompt's variables.
    """
    found = {}
    for name, text in ({names[0]: given} if isinstance(given, str) else given or {}).items():
        if name not in names:
            raise InputError(f"{where}: instructions has {name!r}{nearest(name, names)}; there are {', '.join(names)}")
        if not isinstance(text, str):
            raise InputError(f"{where}: instructions of {name!r} is {text!r}, expected a template or a file `….j2`")
        read = read_text(Path(text)) if text.endswith(".j2") else text
        if read is None:
            raise InputError(f"{where}: instructions: there is no such file as {text}")
        TEMPLATES.check_text(read, (*KNOWN[name], "default"), f"{where}: instructions")
        found[name] = read
    return found


def write_prompt(
    name: str, values: Mapping[str, Any], own: Mapping[str, str] | None = None, *, shipped: str = ""
) -> str:
    """Text of a prompt: the template `name` of `own`, if it is there, else the shipped one (default: of the same name).

    >>> write_prompt("message", {"goal": "open the door", "message": "It opens."}).splitlines()[2]
    'Goal: open the door'
    """
    text = TEMPLATES.render(shipped or name, values)
    return TEMPLATES.render_text(own[name], {**values, "default": text}) if own and name in own else text
