"""What callers rely on: public names, the order and kind of parameters, defaults. A change is a line of this file."""

from __future__ import annotations

import difflib
from pathlib import Path

from tests.api import lines


def test_public_signatures_and_defaults_are_those_that_were_agreed() -> None:
    agreed = Path(__file__).with_name("public_api.txt").read_text(encoding="utf-8").splitlines()
    changed = [
        each
        for each in difflib.unified_diff(agreed, list(lines()), lineterm="", n=0)
        if each[:2] not in ("--", "++", "@@")
    ]
    assert not changed, "python tests/api.py > tests/public_api.txt accepts this:\n" + "\n".join(changed)
