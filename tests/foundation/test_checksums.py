"""What was sealed is the same, or is named."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from palaestra.errors import StorageError
from palaestra.foundation.checksums import check, checksums


@pytest.fixture
def sealed(tmp_path: Path) -> dict[str, dict[str, object]]:
    (tmp_path / "look-1.parquet").write_bytes(b"look")
    (tmp_path / "metrics.jsonl").write_bytes(b"one\ntwo\n")
    (tmp_path / "start").mkdir()
    (tmp_path / "start" / "manifest.json").write_bytes(b"{}")
    found = checksums(tmp_path, ("metrics.jsonl", "look-*.parquet", "start/*.json", "absent.json"))
    assert {name: part["size"] for name, part in found.items()} == {
        "look-1.parquet": 4, "metrics.jsonl": 8, "start/manifest.json": 2,
    }  # fmt: skip
    return found


def test_journals_may_grow_and_new_files_may_come(tmp_path: Path, sealed: dict[str, dict[str, object]]) -> None:
    with (tmp_path / "metrics.jsonl").open("ab") as file:
        file.write(b"thr")
    (tmp_path / "look-2.parquet").write_bytes(b"")
    check(tmp_path, sealed, "iteration-000002", "delete it")


@pytest.mark.parametrize(
    ("name", "change", "said"),
    [
        ("metrics.jsonl", lambda path: path.write_bytes(b"one\n"), "has 4 bytes instead of 8, iteration-000002"),
        ("metrics.jsonl", lambda path: path.write_bytes(b"one\ntvo\nthree\n"), "was changed"),
        ("look-1.parquet", lambda path: path.write_bytes(b"look!"), "has 5 bytes instead of 4"),
        ("look-1.parquet", lambda path: path.write_bytes(b"kool"), "was changed"),
        ("start/manifest.json", lambda path: path.unlink(), "is gone"),
    ],
)
def test_what_is_not_as_it_was_is_named(
    name: str,
    change: Callable[[Path], object],
    said: str,
    tmp_path: Path,
    sealed: dict[str, dict[str, object]],
) -> None:
    change(tmp_path / name)
    with pytest.raises(StorageError) as caught:
        check(tmp_path, sealed, "iteration-000002", "delete it")
    assert str(caught.value).startswith(f"{tmp_path / name} {said}")
    assert str(caught.value).endswith("restore it from a backup, or delete it")
