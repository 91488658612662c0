"""Keeps the current folder off the import path of child processes."""

from __future__ import annotations

import os


def keep_children_off_the_current_folder() -> None:
    """Set `PYTHONSAFEPATH=1` so that Python processes started from now on do not import from the current folder.

    `python -c`, with which `multiprocessing` starts its children, puts the current folder first on the import path: a
    `random.py` there would run in place of the standard library's. The parent's own path is sent to children as it is.
    """
    os.environ["PYTHONSAFEPATH"] = "1"
