"""The recipes of docs/language-agents.md are recipes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from palaestra.runs.recipe import validate

PAGE = (Path(__file__).parents[2] / "docs" / "language-agents.md").read_text()
WHOLE, *PARTS = [yaml.safe_load(text) for text in re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)]


@pytest.mark.parametrize("changes", [{}, *PARTS], ids=["whole", *(", ".join(part) for part in PARTS)])
def test_a_recipe_of_the_page_is_one(changes: dict) -> None:
    recipe = validate(WHOLE | changes, "page")
    assert recipe.env.tools == {"coder": ["python()"]}
