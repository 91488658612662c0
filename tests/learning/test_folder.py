"""The directory of a training."""

from __future__ import annotations

from pathlib import Path

import pytest

from palaestra.learning import checkpoints
from palaestra.learning.folder import RunFolder
from palaestra.learning.journal import Journal


def test_room_is_looked_for_for_all_checkpoints_that_will_be_there_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those that are kept, the start, the one that is written and the one it replaces."""
    asked: list[tuple[Path, int]] = []
    monkeypatch.setattr(checkpoints, "check_writable", lambda path, size: asked.append((path, size)))
    folder = RunFolder(tmp_path, Journal(tmp_path / "metrics.jsonl"), 2, ())
    assert folder.begin(100, resume=False) is None
    assert asked == [(tmp_path, 1000)]
