"""The command line where its output goes to a pipe that closes, to a terminal without Unicode, or is interrupted."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from palaestra.interface.cli.app import _spelled_out

PALAESTRA = [sys.executable, "-m", "palaestra.interface.cli"]


@pytest.fixture
def log(tmp_path: Path) -> Path:
    lines = ["question,model,correct", *(f"q{n},{model},{n % 3 == 0}" for n in range(6) for model in "ab")]
    (tmp_path / "log.csv").write_text("\n".join(lines))
    return tmp_path / "log.csv"


@pytest.mark.parametrize("arguments", [["evaluate", "log.csv"], ["evaluate", "log.csv", "--json"], ["names", "signal"]])
@pytest.mark.parametrize("reads", [0, 1])
def test_a_reader_that_has_seen_enough_is_no_failure(log: Path, arguments: list[str], reads: int) -> None:
    with subprocess.Popen(
        [*PALAESTRA, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=log.parent
    ) as end:
        assert end.stdout is not None
        assert end.stderr is not None
        for _ in range(reads):
            end.stdout.readline()
        end.stdout.close()
        said = end.stderr.read().decode()
        assert (end.wait(60), "Error" in said) == (0, False), said


def test_what_ascii_cannot_spell_is_written_out(log: Path) -> None:
    environment = {**os.environ, "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "COLUMNS": "200"}
    environment.pop("PYTHONIOENCODING", None)
    done = subprocess.run([*PALAESTRA, "evaluate", "log.csv"], env=environment, capture_output=True, cwd=log.parent)
    said = done.stdout.decode("ascii")
    assert done.returncode == 0
    assert "6 x 1" in said
    assert "95 % interval -" in said
    assert "?" not in said


@pytest.mark.skipif(sys.platform == "win32", reason="process groups")
@pytest.mark.parametrize("seconds", [0.0, 1.0, 2.0])
def test_an_interruption_while_workers_start_is_one_line(tmp_path: Path, seconds: float) -> None:
    """Ctrl-C reaches the whole group. The seeds' processes are started meanwhile, and none of them is left."""
    command = [*PALAESTRA, "train", "corridor", "--out", str(tmp_path / "run")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True) as run:
        until = time.monotonic() + 60
        while not (tmp_path / "run").exists():  # Python starts and imports, however long the machine takes for that
            assert time.monotonic() < until
            time.sleep(0.05)
        time.sleep(seconds)
        os.killpg(run.pid, signal.SIGINT)
        said = run.communicate(timeout=60)[0].decode()
    assert run.returncode == 130, said
    assert said.splitlines()[-1] == "interrupted; it goes on with --resume"
    assert "Traceback" not in said
    until = time.monotonic() + 60
    while alive := _group(run.pid):
        assert time.monotonic() < until, alive
        time.sleep(0.2)


def _group(number: int) -> list[str]:
    found = []
    for each in psutil.process_iter():
        with contextlib.suppress(psutil.Error):  # it has ended meanwhile
            if _of(each) == number:
                found.append(each.cmdline()[:3])
    return found


def _of(process: psutil.Process) -> int | None:
    try:
        return os.getpgid(process.pid) if process.status() != psutil.STATUS_ZOMBIE else None
    except (ProcessLookupError, psutil.Error):
        return None


@pytest.mark.parametrize(("sign", "plain"), [("→", "->"), ("é", "e"), ("字", "?")])
def test_one_sign_is_spelled_out_at_a_time(sign: str, plain: str) -> None:
    assert _spelled_out(UnicodeEncodeError("ascii", f"a{sign}→", 1, 3, "")) == (plain, 2)
