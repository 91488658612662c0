"""What a screened program gets when it imports a module: a copy with the public functions, and no file functions."""

from __future__ import annotations

import contextlib
import importlib
import types

HIDDEN = {
    "DataSource", "Formatter", "ForwardRef", "asarray_chkfinite", "fromfile", "fromregex", "genfromtxt",
    "get_type_hints", "info", "load", "loadtxt", "memmap", "open_memmap", "save", "savetxt", "savez",
    "savez_compressed", "show_config", "show_runtime", "singledispatch", "singledispatchmethod", "test",
    "update_wrapper", "wraps",  # they open files, import, take names, or evaluate text
}  # fmt: skip
IMPORTED_LATER = {"collections": ("heapq",), "functools": ("weakref",), "numpy": ("numpy.ma",)}
"""What functions of a module import when they are called, which is too late once files cannot be opened."""


def offer(names: list[str]) -> dict[str, types.ModuleType]:
    """Import modules while files can be opened; copies of them for a program. What is not installed is left out."""
    importlib.import_module("unicodedata")  # needed to compile "\N{BULLET}"
    offered = {}
    for name in names:
        with contextlib.suppress(ImportError):
            offered[name] = public(importlib.import_module(name))
            for later in IMPORTED_LATER.get(name, ()):
                importlib.import_module(later)
    return offered


def public(module: types.ModuleType) -> types.ModuleType:
    """A module with nothing in it but what the other has on offer: no `statistics.sys`, no file functions.

    It has another name, for `from numpy import lib` looks for a loaded `numpy.lib` where `numpy` has no `lib`.
    """
    names = getattr(module, "__all__", None) or [name for name in vars(module) if not name.startswith("_")]
    copy = types.ModuleType(f"sandboxed {module.__name__}")
    for name in names:
        value = vars(module).get(name)  # what is imported on demand only is left out
        if (
            value is not None
            and name not in HIDDEN
            and not name.startswith("__")
            and not isinstance(value, types.ModuleType)
        ):
            setattr(copy, name, value)
    if module.__name__ == "numpy":
        copy.linalg = public(module.linalg)  # type: ignore[attr-defined]
    return copy
