"""Warnings as one line of text, for terminals."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator

_PYTHON = warnings.formatwarning


def format_warning(
    message: Warning | str, category: type[Warning], filename: str, lineno: int, line: str | None = None
) -> str:
    r"""Text of a `UserWarning` without the line of code that gave it; other categories as Python writes them.

    >>> format_warning("no server", UserWarning, "serving.py", 240)
    'warning: no server\n'
    """
    if issubclass(category, UserWarning):
        return f"warning: {message}\n"
    return _PYTHON(message, category, filename, lineno, line)


@contextlib.contextmanager
def plain_warnings() -> Iterator[None]:
    """Context in which Python prints warnings by `format_warning`."""
    before, warnings.formatwarning = warnings.formatwarning, format_warning
    try:
        yield
    finally:
        warnings.formatwarning = before
