"""The public names with their signatures, one a line: `python tests/api.py > tests/public_api.txt` accepts a change.

And whatever else has a number or a switch as a default, exported or not: a caller, or a recipe, relies on those too.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from importlib import import_module
from pkgutil import walk_packages
from types import FunctionType, ModuleType

PACKAGES = ("palaestra", "palaestra.credit", "palaestra.rewards", "palaestra.evaluation", "palaestra.learning")
PARTS = (
    "foundation", "algebra", "credit", "rewards", "envs", "agents", "play", "evaluation", "teams", "judges", "learning",
    "runs", "interface", "testing",
)  # fmt: skip


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


def defaults(module: ModuleType) -> Iterator[tuple[str, FunctionType]]:
    """Functions and methods of a module, by their qualified names, that have a number or a switch as a default."""
    for name, each in vars(module).items():
        if name[0] == "_" or getattr(each, "__module__", "") != module.__name__:
            continue
        for method, made in vars(each).items() if isinstance(each, type) else [(name, each)]:
            made = getattr(made, "__func__", made)  # of a class method
            if not isinstance(made, FunctionType) or (method[0] == "_" and method not in ("__init__", "__call__")):
                continue
            if any(isinstance(p.default, bool | int | float) for p in inspect.signature(made).parameters.values()):
                yield f"{module.__name__}.{made.__qualname__}", made


def lines() -> Iterator[str]:
    """Every public function, class and registered name; then what else has such defaults."""
    from palaestra.foundation.registry import REGISTRIES
    from palaestra.interface.cli.names import HOMES

    said = set()
    for package in PACKAGES:
        module = import_module(package)
        for name in sorted(module.__all__):
            made = getattr(module, name)
            if callable(made):
                said |= {made, getattr(made, "__init__", made)}
                yield f"{package}.{name}{signature(made)}"
    parts = [import_module(f"palaestra.{part}") for part in PARTS]
    modules = sorted(each.name for part in parts for each in walk_packages(part.__path__, f"{part.__name__}."))
    for home in (*HOMES, *modules):  # some kinds are registered by what a run imports late
        import_module(home)
    for kind in sorted(REGISTRIES):
        for name in sorted(REGISTRIES[kind]):
            made = REGISTRIES[kind][name]
            if made not in said and made.__module__.startswith("palaestra."):
                said |= {made, getattr(made, "__init__", made)}
                yield f"{kind} {name}{signature(made)}"
    for module_name in modules:
        for name, made in sorted(defaults(import_module(module_name))):
            if made not in said:
                yield f"{name}{signature(made)}"


if __name__ == "__main__":
    print("\n".join(lines()))
