"""The process in which a reward program runs: `python worker.py SCRATCH`, a job on stdin, answers on stdout.

The job is a line of JSON, then come the calls, a line each; the answer is a line about how it is locked in, then a line
per call, `[value, error, printed]`, written at once so that whoever waits knows which call is running. It imports
nothing of this package, and all that the program may import before it locks the door.
"""

from __future__ import annotations

import builtins
import contextlib
import importlib
import io
import json
import os
import runpy
import sys
import types
from collections.abc import Iterator
from typing import Any

SAFE = (
    "ArithmeticError", "AssertionError", "AttributeError", "BaseException", "Exception", "False", "FloatingPointError",
    "IndexError", "KeyError", "LookupError", "NameError", "None", "NotImplementedError", "OverflowError",
    "RuntimeError", "StopIteration", "True", "TypeError", "ValueError", "ZeroDivisionError", "__build_class__", "abs",
    "all", "any", "bin", "bool", "bytes", "callable", "chr", "complex", "dict", "divmod", "enumerate", "filter",
    "float", "frozenset", "hash", "hex", "int", "isinstance", "issubclass", "iter", "len", "list", "map", "max", "min",
    "next", "oct", "ord", "pow", "print", "property", "range", "repr", "reversed", "round", "set", "slice", "sorted",
    "str", "sum", "tuple", "zip",
)  # fmt: skip
HIDDEN = {
    "DataSource", "Formatter", "ForwardRef", "asarray_chkfinite", "fromfile", "fromregex", "genfromtxt",
    "get_type_hints", "info", "load", "loadtxt", "memmap", "open_memmap", "save", "savetxt", "savez",
    "savez_compressed", "show_config", "show_runtime", "singledispatch", "singledispatchmethod", "test",
    "update_wrapper", "wraps",  # they open files, import, take names, or evaluate text
}  # fmt: skip

IMPORTED_LATER = {
    "collections": ("heapq",), "functools": ("weakref",), "numpy": ("numpy.ma",),
}  # fmt: skip
"""What functions of a module import when they are called, which is too late once files cannot be opened."""
BLOCKED = "sandbox: a library needs what is locked here: "


class Printer:
    """Stands in for stdout, which is where the answers go: keeps the first characters, forgets the rest."""

    def __init__(self, most: int) -> None:
        self.most, self.kept = most, ""

    def write(self, text: str) -> int:
        """Print."""
        self.kept += text[: self.most - len(self.kept)]
        return len(text)

    def flush(self) -> None:
        """Nothing waits."""

    def take(self) -> str:
        """What was printed since the last time."""
        kept, self.kept = self.kept, ""
        return kept


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


def plain(value: Any, most: int) -> Any:
    """A number, None or a list of them; NumPy's own included."""
    if hasattr(value, "tolist") and type(value).__module__ == "numpy":
        if getattr(value, "size", 1) > most:
            raise TypeError(f"{value.size} values were returned; the limit is {most}")
        value = value.tolist()
    if value is None:
        return None
    if isinstance(value, bool | int | float):
        return float(value)
    if isinstance(value, list | tuple):
        if len(value) > most:
            raise TypeError(f"{len(value)} values were returned; the limit is {most}")
        return [None if each is None else _number(each) for each in value]
    raise TypeError(f"returned {type(value).__name__}; return a number, None or a list of them")


def _number(value: Any) -> float:
    if hasattr(value, "item") and type(value).__module__ == "numpy":
        value = value.item()
    if not isinstance(value, bool | int | float):
        raise TypeError(f"returned a list with {type(value).__name__}; return numbers")
    return float(value)


def loaded(name: str) -> types.ModuleType:
    """Answer to an import that a library makes in C code while the program calls it.

    Such code runs with the program's builtins, and fetches the module from `sys.modules` itself. So an empty module
    is enough, and the program never holds a real one.

    Raises:
        ImportError: The module was not loaded before the process was locked.
    """
    if name not in sys.modules:
        raise ImportError(f"module {name!r} was not loaded before the sandbox was locked")
    return types.ModuleType(f"sandboxed {name}")


def describe(error: BaseException) -> str:
    """`Type: message (line n)`, where n is the program's own last line.

    An error that the sandbox caused inside a library starts with `sandbox:`: it is no mistake of the program.
    """
    line, inside, step = None, False, error.__traceback__
    while step is not None:
        inside = step.tb_frame.f_code.co_filename != "<program>"
        line = line if inside else step.tb_lineno
        step = step.tb_next
    try:
        text = str(error)
    except BaseException:  # the program wrote that exception
        text = "?"
    cause = BLOCKED if inside and isinstance(error, ImportError | PermissionError) else ""
    return f"{cause}{type(error).__name__[:100]}: {text[:500]}" + (f" (line {line})" if line else "")


def main() -> None:
    """Read the job, lock the door, answer the calls."""
    job = json.loads(sys.stdin.buffer.readline())
    sys.path += job["path"]
    printer: Any = Printer(job["printed"])
    sys.stdout = sys.stderr = printer
    calls = take_calls()
    importlib.import_module("unicodedata")  # needed to compile "\\N{BULLET}"
    modules = dict(imports(job["modules"]))
    offered = {name: public(module) for name, module in modules.items()} if job["screened"] else {}
    confine = runpy.run_path(os.path.join(os.path.dirname(os.path.abspath(__file__)), "confine.py"))["confine"]
    holds = confine(sys.argv[1], layers=tuple(job["layers"]), **job["limits"])
    answer(holds)
    if not any(holds[layer] for layer in job["needs"]):
        return
    printer.take()
    namespace: dict[str, Any] = {"__name__": "program"}
    if job["screened"]:
        safe = {name: getattr(builtins, name) for name in SAFE}
        safe["__import__"] = lambda name, *rest: offered.get(name) or loaded(name)
        namespace["__builtins__"] = safe
    function, broken = None, None
    try:
        exec(compile(job["source"], "<program>", "exec"), namespace)
        function = namespace[job["function"]]
    except BaseException as error:
        broken = describe(error)
    memory: dict[str, Any] = {}
    for line in calls:
        arguments, fresh = json.loads(line)
        if fresh:
            memory = {}
        try:
            if function is None:
                raise RuntimeError(broken)
            value, problem = plain(function(*arguments, *([memory] if job["fold"] else [])), job["values"]), None
        except BaseException as error:
            value, problem = None, broken or describe(error)
        answer([value, problem, printer.take()])


def take_calls() -> Iterator[bytes]:
    """All calls, read at once: the program finds an empty stdin, not those that are still to come."""
    lines = iter(sys.stdin.buffer.readlines())
    sys.stdin.close()
    os.close(0)
    os.open(os.devnull, os.O_RDONLY)  # gets the number that is free now, 0
    sys.stdin = sys.__stdin__ = io.StringIO()  # type: ignore[misc, assignment]
    return lines


def imports(names: list[str]) -> Iterator[tuple[str, types.ModuleType]]:
    """Those of the modules that are there, while files can be opened."""
    for name in names:
        with contextlib.suppress(ImportError):
            yield name, importlib.import_module(name)
            for later in IMPORTED_LATER.get(name, ()):
                importlib.import_module(later)


def answer(what: object) -> None:
    """Write a line."""
    line = json.dumps(what).encode() + b"\n"
    while line:
        line = line[os.write(1, line) :]


if __name__ == "__main__":
    main()
