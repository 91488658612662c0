"""The program's side of the sandbox: what happens in a child of the worker from its fork to its end.

The child locks itself in, loads the program, and answers one row after another. The answer is a line of JSON,
`[value, error, printed]`, written by code that the program could change: the caller trusts nothing in it.
"""

from __future__ import annotations

import builtins
import io
import json
import os
import sys
import types
from collections.abc import Callable
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
BLOCKED = "sandbox: a library needs what is locked here: "


class Printer:
    """Text stream that replaces stdout and stderr: keeps the first `most` characters and drops the rest."""

    def __init__(self, most: int) -> None:
        self.most, self.kept = most, ""

    def write(self, text: str) -> int:
        """Keep the text, as far as there is room; returns its length."""
        self.kept += text[: self.most - len(self.kept)]
        return len(text)

    def flush(self) -> None:
        """Do nothing: nothing is buffered."""

    def take(self) -> str:
        """Output kept since the last call; clears it."""
        kept, self.kept = self.kept, ""
        return kept


def run(job: dict[str, Any], offered: dict[str, types.ModuleType], lock: Callable[[], bool]) -> None:
    """Main loop of a sandboxed process: locks it by `lock()`, loads the job's program, answers calls from a pipe.

    Args:
        job: What the caller asks for.
        offered: Modules that a screened program may import, by name.
        lock: Locks the process; whether seccomp holds.
    """
    vars(sys).update(stdin=(nothing := io.StringIO()), __stdin__=nothing)
    printer: Any = Printer(job["limits"]["printed"])
    sys.stdout = sys.stderr = printer
    if not lock() and "seccomp" in job["needs"]:
        os._exit(1)
    function, broken = load(job, offered)
    memory: list[dict[str, Any]] = [{}] if job["fold"] else []
    while os.read(3, 1):
        arguments = json.loads(row())
        try:
            if function is None:
                raise RuntimeError(broken)
            value, problem = plain(function(*arguments, *memory), job["limits"]["values"]), None
        except BaseException as error:
            value, problem = None, broken or describe(error)
        line = json.dumps([value, problem, printer.take()]).encode()
        while line:
            line = line[os.write(1, line) :]
        os.write(4, b".")


def row() -> bytes:
    """Bytes of the latest row of arguments, the whole input file (descriptor 0)."""
    size = os.lseek(0, 0, os.SEEK_END)
    os.lseek(0, 0, os.SEEK_SET)
    return os.read(0, size)


def load(job: dict[str, Any], offered: dict[str, types.ModuleType]) -> tuple[Any, str | None]:
    """Executes a job's program with modules `offered`: (its function, None), or (None, error text) if that fails."""
    namespace: dict[str, Any] = {"__name__": "program"}
    if job["screened"]:
        safe = {name: getattr(builtins, name) for name in SAFE}
        safe["__import__"] = lambda name, *rest: offered.get(name) or loaded(name)
        namespace["__builtins__"] = safe
    try:
        exec(compile(job["source"], "<program>", "exec"), namespace)
        return namespace[job["function"]], None
    except BaseException as error:
        return None, describe(error)


def loaded(name: str) -> types.ModuleType:
    """An empty stand-in module for an import that a library makes during a call; ImportError if it is not loaded.

    Such code runs with the program's builtins, and fetches the module from `sys.modules` itself. So an empty module
    is enough, and the program never holds a real one.

    Raises:
        ImportError: The module was not loaded before the process was locked.
    """
    if name not in sys.modules:
        raise ImportError(f"module {name!r} was not loaded before the sandbox was locked")
    return types.ModuleType(f"sandboxed {name}")


def plain(value: Any, most: int) -> Any:
    """A program's result as a float, None or list of at most `most` floats and None; TypeError for anything else."""
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


def describe(error: BaseException) -> str:
    """An exception as text, `Type: message (line n)`, n being the program's own last line.

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
