"""Methods whose code stands in a module above their class: bound when that module is imported.

`Turns` and `Signal` have methods such as `explain`, whose code needs kernels and signals. Those modules import the
classes, so the classes cannot import them. `palaestra.algebra` imports all of them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])

BOUND: dict[str, Callable[..., Any]] = {}
"""Functions behind methods of `Turns` and `Signal`, by name."""


def bound(function: F) -> F:
    """Decorator that stores a function in `BOUND` under its name, for the method that calls it without an import."""
    BOUND[function.__name__] = function
    return function
