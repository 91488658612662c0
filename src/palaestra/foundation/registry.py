"""One class for all names that recipes, commands and Python share: signals, stages, terms, envs, policies, readers ….

A name is registered by whoever defines it, also from outside the package: a module that a recipe imports, or one that
an installed package names under the entry point group `palaestra.plugins`. Names load when somebody first asks for one,
in a fixed order, so that the same text means the same in every process. A name is given once.
"""

from __future__ import annotations

import ast
import contextlib
import contextvars
import copy
import functools
import importlib
import importlib.metadata
import inspect
import re
import sys
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, Generic, TypeVar

from palaestra.errors import ExpressionError, InputError, missing_extra, nearest

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])

GROUP = "palaestra.plugins"
"""Entry points of this group name modules; importing them registers what they add."""

OPEN = re.compile(r"palaestra\.(?:judges\.(?:scripted|answer_features)|envs\.worlds\.\w+)")
"""Modules of this package whose functions a file may name without asking: scripted play, and features of answers."""

REGISTRIES: dict[str, Registry[Any]] = {}
"""Every registry by its kind, in the order in which a person meets them (`palaestra names`)."""

_LOADING = threading.RLock()


class Registry(Mapping[str, Callable[..., T]], Generic[T]):
    """Mapping of names to the functions or classes that make one kind of recipe part; `register`, `build` from text.

    Args:
        kind: what messages call it, "stage". home: modules of this package that register names when they are imported.
        reserved: names that may not be taken, and why: "a column of the table".
        example: a call that error messages show.
    """

    def __init__(
        self,
        kind: str,
        *,
        home: Sequence[str] = (),
        reserved: Mapping[str, Any] | Collection[str] = (),
        why: str = "",
        example: str = "",
    ) -> None:
        self.kind, self.home, self.reserved, self.why, self.example = kind, tuple(home), reserved, why, example
        self._made: dict[str, Callable[..., T]] = {}
        self._loaded = self._loading = False
        REGISTRIES[kind] = self

    # -- adding -------------------------------------------------------------------------------------------------------

    def register(self, *names: str) -> Callable[[F], F]:
        """Decorator that registers a function or class under its own name, or the given ones.

        Raises:
            InputError: the name is taken by something else, is reserved, or cannot be written in a recipe.
        """

        def decorate(make: F) -> F:
            for name in names or (make.__name__,):
                self.add(name, make)
            return make

        return decorate

    def add(self, name: str, make: Callable[..., T]) -> None:
        """Register a function or class under a name; see `register`."""
        if not re.fullmatch(r"[A-Za-z_][\w./-]*", name):
            raise InputError(f"{self.kind} {name!r}: a name begins with a letter and has letters, digits and _ . / -")
        if name in self.reserved:
            raise InputError(f"{self.kind} {name!r}: the name is {self.why or 'reserved'}; choose another")
        there = self._made.get(name)
        if there is not None and _origin(there) != _origin(make) and _place(there) != _place(make):
            raise InputError(f"{self.kind} {name!r} is taken by {_origin(there)}; choose another name")
        self._made[name] = make

    def remove(self, name: str) -> None:
        """Remove a name, so that it can be registered again (in a notebook, a test)."""
        self._made.pop(name, None)

    # -- looking up ---------------------------------------------------------------------------------------------------

    def load(self) -> None:
        """Import all modules that register names of this kind: this package's, then plugins.

        Raises:
            InputError: a plugin cannot be imported; names it.
            MissingExtraError: one of this package's needs torch, which is not installed.
        """
        if self._loaded:
            return
        with _LOADING:
            if self._loaded or self._loading:  # those modules may look names up themselves
                return
            self._loading = True
            try:
                for module in self.home:
                    importlib.import_module(module)
                load_plugins()
                self._loaded = True
            except ModuleNotFoundError as error:
                if error.name == "torch":
                    raise missing_extra("torch", "train") from error
                raise
            finally:
                self._loading = False

    def __getitem__(self, name: str) -> Callable[..., T]:
        self.load()
        return self._made[name]

    def __iter__(self) -> Iterator[str]:
        self.load()
        return iter(self._made)

    def __len__(self) -> int:
        self.load()
        return len(self._made)

    def find(self, name: str) -> Callable[..., T]:
        """The callable registered under a name; `module:name` is imported.

        Raises:
            InputError: there is no such name (the message gives the nearest), or the module cannot be imported.
        """
        if ":" in name:
            found: Callable[..., T] = load_object(name, self.kind)
            return found
        if name not in self:
            raise InputError(f"unknown {self.kind} {name!r}{nearest(name, self)}")
        return self[name]

    def signature(self, name: str) -> str:
        """The registered callable's signature as text, `name(parameters)`, for messages."""
        return f"{name}{inspect.signature(self[name])}".replace("'", "")

    def doc(self, name: str) -> str:
        """First sentence of the docstring of a registered name's callable, on one line."""
        text = " ".join((inspect.getdoc(self[name]) or "").split("\n\n")[0].split())
        return re.split(r"(?<=\.)(?<!Dr\.)\s", text, maxsplit=1)[0]

    # -- making -------------------------------------------------------------------------------------------------------

    def build(self, text: str) -> T:
        """Make an object from recipe text: a name or a call with plain values, `replay(k=1)`, `my.module:critic()`.

        Raises:
            ExpressionError: the text is no such call, the name is unknown, or it does not take these options.
        """
        name, values, options = read_call(text, self.example)
        try:
            make = self.find(name)
        except InputError as error:
            raise ExpressionError(f"{text!r}: {error}") from error
        try:
            _signature(make).bind(*values, **options)
            return make(*values, **options)
        except (TypeError, ValueError) as error:
            shown = name if ":" in name else self.signature(name)
            raise ExpressionError(f"{text!r}: {error}; it is {shown}") from error


_remembered = functools.lru_cache(1024)(inspect.signature)
"""Every env of a team reads its rules' texts anew, hundreds of them at once."""


def _signature(make: Callable[..., Any]) -> inspect.Signature:
    return _remembered(make) if getattr(make, "__hash__", None) else inspect.signature(make)


def read_call(text: str, example: str = "") -> tuple[str, list[Any], dict[str, Any]]:
    """Parse text `name`, `name(1, k=2)` or `module:name(…)`: (name, list of values, dict of options); nothing is run.

    Raises:
        ExpressionError: it is something else.

    >>> read_call("my.module:critic('v', lr=1e-3)")
    ('my.module:critic', ['v'], {'lr': 0.001})
    """
    name, values, options = _read_call(text, example)
    return name, copy.deepcopy(values), copy.deepcopy(options)  # whoever is given a list may change it


@functools.lru_cache(4096)
def _read_call(text: str, example: str) -> tuple[str, list[Any], dict[str, Any]]:
    hint = f"; write e.g. {example}" if example else ""
    match = re.fullmatch(r"\s*([A-Za-z_][\w.]*:[A-Za-z_][\w.]*|[A-Za-z_]\w*)\s*(\(.*\))?\s*", text, flags=re.DOTALL)
    if match is None:
        raise ExpressionError(f"cannot read {text!r}: expected a name, or a call of one{hint}")
    try:
        call = ast.parse(f"_{match[2] or '()'}", mode="eval").body
        if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name):
            raise ValueError("expected one call")
        if any(keyword.arg is None for keyword in call.keywords):
            raise ValueError("** is not allowed")
        values = [ast.literal_eval(each) for each in call.args]
        options = {str(keyword.arg): ast.literal_eval(keyword.value) for keyword in call.keywords}
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise ExpressionError(f"cannot read {text!r}: {str(error).splitlines()[0]}{hint}") from error
    return match[1], values, options


def split_calls(text: str) -> list[str]:
    """List of the calls in a text, split at commas; commas inside brackets or quotes do not split.

    >>> split_calls("surrogate(clip=[.2, .28]), kl(.05)")
    ['surrogate(clip=[.2, .28])', 'kl(.05)']
    """
    parts, depth, start, quote = [], 0, 0, ""
    for position, sign in enumerate(text + ","):
        if quote:
            quote = "" if sign == quote else quote
        elif sign in "'\"":
            quote = sign
        else:
            depth += (sign in "([{") - (sign in ")]}")
            if sign == "," and depth == 0:
                parts.append(text[start:position].strip())
                start = position + 1
    return [part for part in parts if part]


@functools.cache
def is_open(text: str) -> bool:
    """Whether text `module:name` names a function that is written in one of the open modules, not one it imports."""
    module, colon, name = text.partition(":")
    if not OPEN.fullmatch(module):
        return False
    try:
        loaded = importlib.import_module(module)
    except ImportError:
        return False
    return not colon or getattr(getattr(loaded, name, None), "__module__", "") == module


_READING: contextvars.ContextVar[tuple[str, Collection[Any]] | None] = contextvars.ContextVar("reading", default=None)


@contextlib.contextmanager
def reading_data(where: str, given: Collection[Any] = ()) -> Iterator[None]:
    """Let `load_object` import only open code, and texts in `given`: `where` is data, and data import nothing."""
    token = _READING.set((where, given))
    try:
        yield
    finally:
        _READING.reset(token)


def load_object(path: str, what: str) -> Any:
    """Import and return the object that `module:name` names; InputError, which begins with `what`, if that fails.

    Raises:
        InputError: it is no such text, the module cannot be imported, has no such name, or only data name it.
    """
    if not re.fullmatch(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*", path):  # nothing else is looked for by runs.trust
        raise InputError(f"{what} {path!r}: expected module:name")
    module, _, name = path.partition(":")
    reading = _READING.get()
    if reading is not None and path not in reading[1] and not is_open(path):
        raise InputError(
            f"{reading[0]} names code ({what} {path!r}), which would run with your rights: read {module}, then name it "
            f"yourself, {what}={path!r}"
        )
    try:
        found: Any = importlib.import_module(module)
    except Exception as error:  # whatever a module does
        raise InputError(f"{what} {path!r}: cannot import {module!r} ({type(error).__name__}: {error})") from error
    for part in name.split("."):
        if not hasattr(found, part):
            raise InputError(f"{what} {path!r}: {module} has no {name!r}{nearest(name, vars(found))}")
        found = getattr(found, part)
    return found


_PLUGINS: set[str] = set()


@functools.cache
def _entries() -> list[importlib.metadata.EntryPoint]:
    """Entry points of plugins that were installed when this process began; later ones do not count."""
    found = importlib.metadata.entry_points(group=GROUP)
    return sorted(found, key=lambda each: (each.name, each.value))


def load_plugins() -> None:
    """Import the plugin modules that installed packages name as entry points, each once.

    Raises:
        InputError: one cannot be imported; names it.
    """
    for entry in _entries():
        if entry.value not in _PLUGINS:
            _PLUGINS.add(entry.value)
            try:
                entry.load()
            except Exception as error:  # whatever a plugin does
                raise InputError(
                    f"plugin {entry.name!r} ({entry.value}) cannot be loaded: {type(error).__name__}: {error}; "
                    "repair it, or uninstall the package that brings it"
                ) from error


def _origin(make: Callable[..., Any]) -> str:
    inner = inspect.unwrap(make)
    return f"{getattr(inner, '__module__', '?')}.{getattr(inner, '__qualname__', type(inner).__name__)}"


def _place(make: Callable[..., Any]) -> tuple[str, str]:
    """File and name: what is imported twice, under two names of its module, is the same."""
    inner = inspect.unwrap(make)
    module = sys.modules.get(getattr(inner, "__module__", ""))
    code = getattr(inner, "__code__", None)
    file = code.co_filename if code else getattr(module, "__file__", None)
    return str(file or getattr(inner, "__module__", "?")), getattr(inner, "__qualname__", type(inner).__name__)
