"""Modules of tests that need a package which may be absent, and which nobody else has to import."""

from __future__ import annotations

from importlib.util import find_spec

import pytest


def needs(package: str) -> None:
    """Skip the module that calls this if the package is absent; its tests import it, and only where they run.

    `pytest.importorskip` would import it in each of the processes that look for tests, and one of them runs these.
    """
    if find_spec(package) is None:
        pytest.skip(f"{package} is not installed", allow_module_level=True)
