"""The public names with their signatures, one a line: `python tests/api.py > tests/public_api.txt` accepts a change."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from importlib import import_module

PACKAGES = ("palaestra", "palaestra.credit", "palaestra.rewards", "palaestra.evaluation", "palaestra.learning")
REGISTERED = ("stage", "term", "executor", "learner", "workflow", "teacher")


def signature(made: object) -> str:
    """As it is written, without annotations: names, kinds and defaults are what callers rely on."""
    try:
        found = inspect.signature(made)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return ""
    bare = [each.replace(annotation=each.empty, default=_shown(each.default)) for each in found.parameters.values()]
    return str(found.replace(parameters=bare, return_annotation=found.empty))


class _Named:
    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return self.name


def _shown(default: object) -> object:
    """A function that is a default by its name, not by its address."""
    name = getattr(default, "__name__", None)
    return _Named(name) if callable(default) and name and default is not inspect.Parameter.empty else default


def lines() -> Iterator[str]:
    """Every public function, class and registered name."""
    from palaestra.algebra.registry import REGISTRIES
    from palaestra.interface.cli.names import HOMES

    for package in PACKAGES:
        module = import_module(package)
        for name in sorted(module.__all__):
            made = getattr(module, name)
            if callable(made):
                yield f"{package}.{name}{signature(made)}"
    for home in HOMES:
        import_module(home)
    for kind in REGISTERED:
        for name in sorted(REGISTRIES[kind]):
            if REGISTRIES[kind][name].__module__.startswith("palaestra."):
                yield f"{kind} {name}{signature(REGISTRIES[kind][name])}"


if __name__ == "__main__":
    print("\n".join(lines()))
