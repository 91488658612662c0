"""Static screen of reward programs: the syntax tree is checked before anything runs.

This is the first of two walls, and the one that explains itself: names what is not allowed, the line and what to use
instead. It is not the one that holds; `confine` is.
"""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Iterator
from dataclasses import dataclass

MODULES = (
    "bisect", "collections", "decimal", "fractions", "functools", "heapq", "itertools", "json", "math", "numpy", "re",
    "statistics", "string", "typing",
)  # fmt: skip
"""What a program may import."""

LONGEST_SOURCE = 20_000
_NEVER = {
    "breakpoint", "classmethod", "compile", "delattr", "dir", "eval", "exec", "exit", "getattr", "globals", "hasattr",
    "help", "input", "locals", "memoryview", "object", "open", "quit", "setattr", "staticmethod", "super", "type",
    "vars",
}  # fmt: skip
_ATTRIBUTES = re.compile(
    r"(gi|cr|ag|tb|co)_\w+|f_(back|builtins|code|globals|lasti|lineno|locals|trace\w*)|mro|format|format_map"
    r"|with_traceback|ctypes|tofile|ctypeslib|memmap|fromfile|genfromtxt|loadtxt|savetxt|savez\w*|DataSource"
    r"|Formatter|get_type_hints|ForwardRef|_evaluate|as_strided|update_wrapper|wraps|singledispatch\w*"
    r"|view|getfield|setfield|setflags|byteswap|resize|frombuffer|fromstring|dump|nditer|recarray|chararray"
)
_METHODS = {"__init__", "__post_init__", "__call__", "__len__", "__lt__", "__eq__", "__hash__", "__contains__"}


@dataclass(frozen=True)
class ScreenFinding:
    """Data of one finding of `screen`: the line number, and what is forbidden or missing there."""

    line: int
    what: str

    def __str__(self) -> str:
        return f"line {self.line}: {self.what}"


def screen(source: str, function: str, *, parameters: int | None = None) -> list[ScreenFinding]:
    r"""Static check of a program's source and called `function`: sorted list of `ScreenFinding`; empty if it may run.

    Args:
        source: the program.
        function: the one that is called.
        parameters: how many arguments it is called with.

    >>> [str(finding) for finding in screen("import os\ndef reward(turn): return 1.0", "reward")]
    ["line 1: import of 'os' is not allowed; allowed are bisect, collections, ..., typing"]
    """
    if len(source) > LONGEST_SOURCE:
        return [ScreenFinding(1, f"{len(source)} characters; the limit is {LONGEST_SOURCE}")]
    try:
        tree = read(source)
    except SyntaxError as error:
        return [ScreenFinding(error.lineno or 1, f"syntax error: {error.msg}")]
    findings = [ScreenFinding(getattr(node, "lineno", 1), what) for node in ast.walk(tree) for what in _node(node)]
    return sorted([*findings, *_signature(tree, function, parameters)], key=lambda finding: finding.line)


def read(source: str) -> ast.Module:
    """Parses untrusted Python source into an `ast.Module`, without warnings; every failure is a SyntaxError.

    Raises:
        SyntaxError: it cannot be read, for whatever reason.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.parse(source)
    except (ValueError, RecursionError, MemoryError) as error:
        raise SyntaxError(str(error) or "nested too deeply") from error


def imported(source: str) -> list[str]:
    """Sorted names of the modules that a program's source imports; empty if it cannot be parsed."""
    try:
        nodes = list(ast.walk(read(source)))
    except SyntaxError:
        return []
    names = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    return sorted(names | {node.module for node in nodes if isinstance(node, ast.ImportFrom) and node.module})


def _node(node: ast.AST) -> Iterator[str]:
    for name, attribute in _identifiers(node):
        if name.startswith("__") and not _harmless(node, name):
            yield f"the name {name!r} is not allowed; names with two underscores belong to Python"
        elif attribute and _ATTRIBUTES.fullmatch(name):
            other = "; write an f-string" if name.startswith("format") else ""
            yield f"the attribute {name!r} is not allowed{other}"
        elif not attribute and name in _NEVER:
            yield f"{name!r} is not allowed"
    if isinstance(node, ast.Import | ast.ImportFrom):
        yield from _import(node)
    if isinstance(node, ast.AsyncFunctionDef | ast.AsyncFor | ast.AsyncWith | ast.Await):
        yield "async code is not allowed"


def _harmless(node: ast.AST, name: str) -> bool:
    """Whether a name with two underscores is a method of a class, or a module's own name where it is only read."""
    if isinstance(node, ast.Name):
        return name == "__name__" and isinstance(node.ctx, ast.Load)
    return isinstance(node, ast.FunctionDef) and name in _METHODS


def _import(node: ast.Import | ast.ImportFrom) -> Iterator[str]:
    if isinstance(node, ast.Import):
        modules = [alias.name for alias in node.names]
    else:
        modules = [node.module or "."] if not node.level else ["."]
        if any(alias.name == "*" for alias in node.names):
            yield "import * is not allowed; name what you use"
    for module in modules:
        if module not in MODULES:
            yield f"import of {module!r} is not allowed; allowed are {', '.join(MODULES)}"


def _identifiers(node: ast.AST) -> Iterator[tuple[str, bool]]:
    """Every name in a node, and whether it is looked up in an object: `x.name`, `case X(name=y)`, `from x import name`.

    All text fields but those of constants are names, so that no kind of node can be forgotten.
    """
    if isinstance(node, ast.Constant):
        return
    looked_up = isinstance(node, ast.Attribute | ast.MatchClass | ast.alias)
    for field, value in ast.iter_fields(node):
        for each in value if isinstance(value, list) else [value]:
            if isinstance(each, str) and field not in ("type_comment", "module"):
                yield each, looked_up


def _signature(tree: ast.Module, function: str, parameters: int | None) -> Iterator[ScreenFinding]:
    found = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == function]
    if not found:
        names = [node.name for node in tree.body if isinstance(node, ast.FunctionDef)]
        yield ScreenFinding(1, f"there is no function {function!r} at the top level; it defines {names}")
        return
    arguments = found[-1].args
    positional = len(arguments.posonlyargs) + len(arguments.args)
    least = positional - len(arguments.defaults)
    if parameters is not None and not (least <= parameters and (positional >= parameters or arguments.vararg)):
        yield ScreenFinding(
            found[-1].lineno, f"{function} takes {positional} arguments, but is called with {parameters}"
        )
