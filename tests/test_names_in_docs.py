"""Whatever a recipe or a command may name stands in a page of docs/, so that a reader can find it by its name."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from palaestra.foundation.registry import REGISTRIES
from palaestra.interface.cli.names import registered_names

DOCS = Path(__file__).parents[1] / "docs"
PAGES = [page for page in sorted(DOCS.glob("*.md")) if page.name not in ("systems.md", "log.md")]
"""Pages that people write to explain; one of the other two is generated, one is a diary."""


@pytest.mark.parametrize("kind", ["analysis", "env", "executor", "signal", "stage", "term", "workflow"])
def test_each_name_stands_in_a_page(kind: str) -> None:
    registered_names()
    text = "\n".join(page.read_text(encoding="utf-8") for page in PAGES)
    ours = [name for name in REGISTRIES[kind] if REGISTRIES[kind][name].__module__.startswith("palaestra.")]
    words = set(re.findall(r"[\w/]+", text))
    unnamed = [name for name in ours if name not in words]
    assert ours
    assert not unnamed, f"{kind}: one line each in docs/, please: {', '.join(unnamed)}"
