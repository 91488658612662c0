"""A directory has one owner at a time, whatever becomes of it."""

from __future__ import annotations

import contextvars
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from palaestra.errors import InputError, StorageError
from palaestra.learning import run_lock
from palaestra.learning.run_lock import locked

HOLD = """
import sys, time
from pathlib import Path
from palaestra.learning.run_lock import locked
with locked(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(60)
"""


def hold(directory: Path) -> subprocess.Popen[str]:
    """Another process that owns the directory."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(directory)], stdout=subprocess.PIPE, text=True, env=environment
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    return process


def test_the_second_process_is_told_who_the_first_is_and_a_dead_one_is_no_owner(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_lock, "PATIENCE", 0.0)
    process = hold(tmp_path / "run")
    try:
        with pytest.raises(InputError) as caught, locked(tmp_path / "run"):
            pytest.fail("two owners")
        assert str(caught.value).startswith(f"{tmp_path / 'run'} is in use by process {process.pid} on ")
        assert "\n" not in str(caught.value)
        with locked(tmp_path / "other"):  # next to it is free
            pass
    finally:
        process.send_signal(signal.SIGKILL)
        process.communicate()
    monkeypatch.undo()
    with locked(tmp_path / "run"):
        assert str(os.getpid()) in (tmp_path / "run" / ".lock").read_text()


def test_the_owner_may_ask_again_another_thread_may_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_lock, "PATIENCE", 0.0)
    refused: list[InputError] = []

    def intrude() -> None:
        try:
            with locked(tmp_path):
                pass
        except InputError as error:
            refused.append(error)

    with locked(tmp_path):
        with locked(tmp_path / "." / "../" / tmp_path.name):
            thread = threading.Thread(target=lambda: contextvars.Context().run(intrude))
            thread.start()
            thread.join()
        assert len(refused) == 1
        assert f"process {os.getpid()}" in str(refused[0])
    intrude()
    assert len(refused) == 1, "it is free again"


def test_where_files_cannot_be_locked_one_goes_on_with_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(file: Any) -> None:
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr(run_lock, "_take", refuse)
    with pytest.warns(UserWarning, match="cannot be locked"), locked(tmp_path):
        pass


def test_a_place_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match=r"cannot write to .*file"), locked(tmp_path / "file" / "run"):
        pytest.fail("it was made")


def test_what_a_killed_process_left_half_written_is_swept(tmp_path: Path) -> None:
    left = [".metrics.jsonl.4711.tmp", "turns/.iteration-000003.parquet.4711.tmp"]
    left += ["tasks/.iteration-000003.parquet.4711.tmp", "start/.iteration-000000.4711.tmp"]
    for name in (*left, ".mine.tmp", "notes.4711.tmp"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("half")
    with locked(tmp_path):
        assert sorted(path.name for path in tmp_path.rglob("*.tmp")) == [".mine.tmp", "notes.4711.tmp"]
