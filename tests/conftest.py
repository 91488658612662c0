"""What the tests of whole runs share: small worlds that recipes can name, and one run that was really made."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import yaml

if TYPE_CHECKING:
    from quick import Trained

WORLDS = Path(__file__).parent / "worlds"
if str(WORLDS) not in sys.path:
    sys.path.append(str(WORLDS))  # also that of the processes in which seeds run


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Trained:
    """The quick recipe, trained once by the command line in a process of its own."""
    from quick import QUICK, Trained, start

    folder = tmp_path_factory.mktemp("trained")
    recipe = folder / "quick.yaml"
    recipe.write_text(yaml.safe_dump(QUICK))
    process = start("train", "quick.yaml", "--out", "run", "--jobs", "1", cwd=folder)
    stdout, stderr = process.communicate(timeout=120)
    assert process.returncode == 0, stderr
    return Trained(recipe, folder / "run", stdout, stderr)
