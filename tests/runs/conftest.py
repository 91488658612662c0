"""Tests of runs write many reports and look at no plot; those of `interface/report` do."""

from __future__ import annotations

import pytest
from markupsafe import Markup

from palaestra.interface.report import plots


@pytest.fixture(autouse=True)
def _nothing_is_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plots, "_svg", lambda _, words: Markup('<svg aria-label="{}"></svg>').format(words))
