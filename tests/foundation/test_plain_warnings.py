"""Warnings as a terminal shows them: one line each."""

from __future__ import annotations

import subprocess
import sys
import warnings

import pytest

from palaestra.foundation.plain_warnings import format_warning, plain_warnings


def test_only_those_for_users_lose_their_code() -> None:
    assert format_warning("x is y", UserWarning, "a.py", 3, "x = y") == "warning: x is y\n"
    assert format_warning("old", DeprecationWarning, "a.py", 3, "x = y") == "a.py:3: DeprecationWarning: old\n  x = y\n"


def test_afterwards_python_writes_them_as_before() -> None:
    before = warnings.formatwarning

    def fail() -> None:
        assert warnings.formatwarning is format_warning
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError), plain_warnings():
        fail()
    assert warnings.formatwarning is before


@pytest.mark.parametrize(("more", "shown"), [((), "warning: no server\n"), (("--debug",), "UserWarning: no server\n")])
def test_a_command_says_it_in_one_line(more: tuple[str, ...], shown: str) -> None:
    code = (
        "import sys, warnings\nfrom palaestra.interface.cli import app\n"
        "app.load_plugins = lambda: warnings.warn('no server')\napp.main(sys.argv[1:])"
    )
    done = subprocess.run([sys.executable, "-c", code, "--version", *more], capture_output=True, text=True, check=True)
    assert shown in done.stderr
    assert (".py" in done.stderr or "<string>" in done.stderr) == bool(more)
