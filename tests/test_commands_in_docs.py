"""Commands in pages' blocks are ones that a shell and `palaestra` understand: options, recipes and fields exist."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
import typer
from typer._click.exceptions import UsageError

import palaestra.interface.cli  # noqa: F401 - registers the commands
from palaestra.interface.cli.app import app
from palaestra.runs.recipe import load, names

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(r"^```\w*\n(.*?)^```", re.DOTALL | re.MULTILINE)
COMMAND = re.compile(r"""^(?:\$ )?(palaestra (?:[^\n'"]|'[^']*'|"[^"]*")*)""", re.MULTILINE)
NOT_HERE = re.compile("does not exist|Missing|No such command")
"""What only a reader's own files decide, and commands of the other package (`systems`, `verify`)."""


def commands(page: Path) -> list[str]:
    """Commands in the page's blocks, continued lines joined."""
    blocks = BLOCK.findall(page.read_text(encoding="utf-8"))
    return [found for block in blocks for found in COMMAND.findall(block.replace("\\\n", " "))]


@pytest.mark.parametrize("page", [page for page in PAGES if commands(page)], ids=lambda page: page.name)
def test_commands_are_understood(page: Path) -> None:
    for text in commands(page):
        _, name, *words = shlex.split(text, comments=True)  # ValueError: an unclosed quotation
        ends = [i for i, word in enumerate(words) if word in ("|", ">", "&&", "2>")]
        words = words[: ends[0]] if ends else words
        command = typer.main.get_command(app).commands.get(name)  # type: ignore[attr-defined]
        if command is None or any("…" in word or "$" in word for word in words):
            continue
        try:
            found = command.make_context(name, words).params
        except UsageError as problem:
            found = {}
            wrong = problem.format_message()
        else:
            wrong = ""
        assert not wrong or NOT_HERE.search(wrong), f"{text}: {wrong}"
        if found.get("recipe") in names() and 'reward_model("' not in text:  # which is a folder of the reader's
            load(found["recipe"], found["overrides"], trust=True)
