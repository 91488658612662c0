"""Whatever a recipe or a command may name stands in a page of docs/, so that a reader can find it by its name."""

from __future__ import annotations

import pkgutil
import re
from pathlib import Path

import pytest

import palaestra
from palaestra.foundation.registry import REGISTRIES
from palaestra.interface.cli.names import registered_names
from palaestra.runs.recipe import Recipe

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


def test_each_module_that_is_named_is_there() -> None:
    """`judges.programs` in a docstring or a page is a module or name of ours, or a field of a recipe."""
    packages = [each.name for each in pkgutil.iter_modules(palaestra.__path__)]
    wanted = re.compile(rf"`((?:{'|'.join(packages)})(?:\.\w+)+)[`(]")
    files = [*PAGES, *(Path(palaestra.__file__).parent).rglob("*.py")]
    found = {(name, path.name) for path in files for name in wanted.findall(path.read_text(encoding="utf-8"))}
    found = {each for each in found if each[0].split(".")[1] not in ("parquet", "success")}  # a file; a figure of a run
    lost = sorted(each for each in found if not (_is_field(each[0]) or _is_there(each[0])))
    assert not lost, f"moved or renamed: {lost}"


def _is_field(name: str) -> bool:
    section, field = name.split(".")[:2]
    return section in Recipe.model_fields and field in getattr(
        Recipe.model_fields[section].annotation, "model_fields", ()
    )


def _is_there(name: str) -> bool:
    try:
        return pkgutil.resolve_name(f"palaestra.{name}") is not None
    except (ImportError, AttributeError):
        return False
