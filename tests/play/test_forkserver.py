"""How processes that play or train are started."""

from __future__ import annotations

import subprocess
import sys

import pytest

from palaestra.play import forkserver

SCRIPT = """
import os, sys
from concurrent.futures import ProcessPoolExecutor
from palaestra.play import forkserver

forkserver.prepare("colorsys")
os.environ["SAID_LATER"] = "yes"
del os.environ["SAID_BEFORE"]
with ProcessPoolExecutor(1, forkserver.context("chunk"), forkserver.begin, (dict(os.environ),)) as pool:
    for name in ("colorsys", "chunk", "polars"):
        print(pool.submit(eval, f"{name!r} in __import__('sys').modules").result())
    for name in ("SAID_LATER", "SAID_BEFORE"):
        print(pool.submit(eval, f"__import__('os').environ.get({name!r})").result())
    pool.submit(eval, "__import__('warnings').warn('no server')").result()
"""


@pytest.mark.skipif(sys.platform != "linux", reason="forked on Linux only")
def test_a_child_has_what_was_imported_for_it_and_the_environment_of_its_parent_as_it_is() -> None:
    found = subprocess.run(
        [sys.executable, "-c", SCRIPT], env={"SAID_BEFORE": "yes"}, capture_output=True, text=True, timeout=60
    )
    assert found.returncode == 0, found.stderr
    first, second, own, later, before = found.stdout.split()
    assert first == str(forkserver.context().get_start_method() == "forkserver")
    assert (second, own) == ("False", "True"), "only the first call counts; a child has imported what it runs"
    assert (later, before) == ("yes", "None")
    assert "warning: no server\n" in found.stderr.splitlines(keepends=True), "without the line of code"


def test_beside_an_accelerator_no_child_is_forked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forkserver, "_ACCELERATORS", ("/",))
    assert forkserver.context("colorsys").get_start_method() == "spawn"


def test_where_no_socket_fits_no_child_is_forked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.gettempdir", lambda: "/" + 80 * "x")
    assert forkserver.context("colorsys").get_start_method() == "spawn"
