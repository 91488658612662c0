"""The application that the commands join, and what they share: consoles, arguments, JSON, errors as one line."""

from __future__ import annotations

import codecs
import contextlib
import importlib
import io
import json
import os
import re
import sys
import traceback
import unicodedata
from collections.abc import Iterator, Sequence
from functools import cache
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Column, Table
from rich.text import Text

from palaestra import __version__
from palaestra.errors import InputError, PalaestraError, missing_extra
from palaestra.foundation.plain_warnings import plain_warnings
from palaestra.foundation.registry import load_plugins
from palaestra.foundation.safe_path import keep_children_off_the_current_folder

if TYPE_CHECKING:
    from palaestra import Turns


ATLAS = ("systems", "reproduce", "verify")
"""Commands that the distribution `palaestra-atlas` brings."""


class _InOrder(typer.core.TyperGroup):
    """Commands in the order in which one meets them."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """The command that the arguments name; where the atlas is missing, its commands say so."""
        if args[0] in ATLAS and self.get_command(ctx, args[0]) is None:
            raise missing_extra("palaestra-atlas", "atlas")
        return super().resolve_command(ctx, args)

    def list_commands(self, ctx: Any) -> list[str]:
        met = (
            "train",
            "compare",
            "report",
            "recipes",
            "attack",
            "evaluate",
            "rank",
            "solve",
            "analyze",
            "triage",
            "judge",
            "apply",
            "audit",
        )
        return sorted(super().list_commands(ctx), key=lambda name: met.index(name) if name in met else len(met))


_UNSEEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
"""What a terminal obeys or hides: control bytes (all but tab and end of line), line separators, turns of direction; and
halves of signs, which it cannot spell."""


def escape_controls(text: str) -> str:
    r"""The text with control characters, which a terminal would obey, escaped.

    >>> print(escape_controls("new\x1b[31m line"))
    new\x1b[31m line
    """
    return _UNSEEN.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


ASCII = {
    "×": "x", "−": "-", "–": "-", "—": "-", "…": "...", "→": "->", "←": "<-", "≥": ">=", "≤": "<=", "≈": "~", "±": "+-",
    "·": "*", "“": '"', "”": '"', "‘": "'", "’": "'", "✓": "ok", "✗": "x", "π": "pi", "λ": "lambda", "γ": "gamma",
    "σ": "sigma", "Σ": "sum", "√": "sqrt", "∞": "inf",
}  # fmt: skip
"""What is written on a terminal that knows ASCII alone."""


def _spelled_out(error: UnicodeError) -> tuple[str, int]:
    """Error handler of codecs: the nearest ASCII text of what cannot be encoded, `?` if there is none."""
    assert isinstance(error, UnicodeEncodeError)
    sign = error.object[error.start]
    plain = unicodedata.normalize("NFKD", sign).encode("ascii", "ignore").decode()
    return ASCII.get(sign) or plain or "?", error.start + 1


codecs.register_error("palaestra_ascii", _spelled_out)


class Door(Console):
    """Rich `Console` for all output: text of logs and models is printed literally, neither markup nor control codes."""

    def on_broken_pipe(self) -> None:
        """Raise BrokenPipeError when the reader of stdout has gone (`… | head`), which is no failure."""
        raise BrokenPipeError

    def __init__(self, **options: Any) -> None:
        super().__init__(markup=False, emoji=False, highlight=False, **options)

    def render_str(self, text: str, **options: Any) -> Text:
        """As `Console.render_str`, with control characters escaped; every string and table cell goes through it."""
        return super().render_str(escape_controls(text), **options)


app = typer.Typer(
    cls=_InOrder,
    add_completion=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
out = Door()
err = Door(stderr=True)
_WHOLE = 1000
"""Columns of a pipe or a file: a program reads the lines, so no cell is cut or wrapped."""


def complete_recipe(incomplete: str) -> list[str]:
    """List of the names of shipped recipes that begin with `incomplete`, for shell completion."""
    files = resources.files("palaestra.runs.recipes").iterdir()
    found = (file.name.removesuffix(".yaml") for file in files if file.name.endswith(".yaml"))
    return sorted(name for name in found if name.startswith(incomplete))


RecipeName = Annotated[
    str,
    typer.Argument(
        metavar="RECIPE", help="a shipped recipe (see `recipes`) or a .yaml file", autocompletion=complete_recipe
    ),
]
Overrides = Annotated[list[str] | None, typer.Argument(metavar="FIELD=VALUE", help="e.g. train.iterations=20")]
Jobs = Annotated[int | None, typer.Option("--jobs", min=1, help="seeds at once [default: about the number of cores]")]
Json = Annotated[bool, typer.Option("--json", help="print JSON")]


Trust = Annotated[
    bool, typer.Option("--trust", help="run the code that a recipe file names (module:name, imports); read it first")
]


Modules = Annotated[
    list[str] | None,
    typer.Option("--import", metavar="MODULE", help="Python module that registers names of your own"),
]


def import_modules(modules: list[str] | None) -> None:
    """Import the modules that `--import` names, also from the current folder; InputError if one fails.

    Raises:
        InputError: it cannot be imported.
    """
    if modules:
        modules_here()
    for module in modules or ():
        try:
            importlib.import_module(module)
        except ModuleNotFoundError as error:
            raise InputError(f"--import {module}: {error}; name a module that Python finds from here") from error
        except Exception as error:  # whatever a module does
            raise InputError(f"--import {module}: {type(error).__name__}: {error}") from error


def modules_here() -> None:
    """Append the current folder to the import path: only for code that the user named or trusts.

    Last, so that they hide nothing; and never sooner, because a folder from elsewhere may hold a module of any name.
    """
    if os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())


def load_turns(path: Path) -> Turns:
    """Load the table of turns at a path; errors as `turns_at`."""
    from palaestra import Turns

    return Turns.load(turns_at(path))


def turns_at(path: Path) -> Path:
    """The path itself, unchanged; InputError if it is the folder of a run or of a seed.

    Raises:
        InputError: it is a run or a seed, whose tables of turns are of several kinds.
    """
    seed = path if path.name.startswith("seed-") and (path.parent / "recipe.yaml").exists() else path / "seed-0"
    if seed == path or (path / "recipe.yaml").exists():
        raise InputError(f"{path}: a run holds turns of several kinds; give one, e.g. {seed / 'turns'}")
    return path


def show(data: Any) -> None:
    """Print data as JSON on stdout, never wrapped; control characters are escaped."""
    written = json.dumps(data, ensure_ascii=False, indent=2, allow_nan=False)
    say(_UNSEEN.sub(lambda found: f"\\u{ord(found[0]):04x}", written))


def table_of(*heads: str) -> Table:
    """An empty `rich` table with these heads, in which a narrow terminal breaks numbers and names and cuts none."""
    return Table(*(Column(head, overflow="fold") for head in heads), box=None)


def say(line: str) -> None:
    """Print a line on stdout, never wrapped."""
    out.print(line, soft_wrap=True)


def hint(line: str) -> None:
    """Print a line on stderr, never wrapped."""
    err.print(line, soft_wrap=True)


@contextlib.contextmanager
def prefix_errors(paths: Sequence[str | Path]) -> Iterator[None]:
    """Context manager that prefixes PalaestraErrors raised inside with these paths, unless they name one already."""
    try:
        yield
    except PalaestraError as error:
        parts = [(str(path), *str(path).partition("=")) for path in paths]  # NAME=PATH, but no game(players=3)
        files = [file if name.isidentifier() and file else whole for whole, name, _, file in parts]
        if any(file in str(error) for file in [*files, *map(str, paths)]):
            raise
        named = ", ".join(files[:3]) + (f" and {len(files) - 3} more" if len(files) > 3 else "")
        raise type(error)(f"{named}: {error}") from error


def _version(wanted: bool) -> None:
    if wanted:
        say(f"palaestra {__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="print it")] = False,
    debug: Annotated[bool, typer.Option("--debug", help="show where an error comes from; goes anywhere")] = False,
) -> None:
    """Train teams of agents with reinforcement learning, and prove that they got better."""


@cache
def _command(count: int) -> Any:
    """So many commands, put together: that takes 50 ms, for whoever calls `main` often."""
    return typer.main.get_command(app)


def main(arguments: list[str] | None = None) -> None:
    """Entry point of the command line: runs a command, prints an error as one line, and exits with its code."""
    keep_children_off_the_current_folder()
    _write_for(sys.stdout, sys.stderr)
    arguments = sys.argv[1:] if arguments is None else arguments
    debug = "--debug" in arguments
    arguments = [argument for argument in arguments if argument != "--debug"] or ["--help"]
    try:
        with contextlib.nullcontext() if debug else plain_warnings():
            load_plugins()  # they may bring commands
            code = _command(len(app.registered_commands))(arguments, standalone_mode=False)
    except PalaestraError as error:
        code = _fail(error, str(error), error.exit_code, debug)
    except (KeyboardInterrupt, typer.Abort):
        code = 130
    except BrokenPipeError:
        code = _end_quietly()
    except Exception as error:
        usage = getattr(error, "format_message", None)  # what typer raises for a wrong command line
        unexpected = f"{type(error).__name__}: {error} (run again with --debug for the traceback)"
        code = _fail(error, usage() if usage else unexpected, 2 if usage else 1, debug)
    if code == 130:  # also what typer returns for an interruption
        exec("")  # an interruption inside of exec, as in dataclasses, marks the process to die of it; this unmarks it
        again = arguments[0] in ("compare", "judge", "fit-reward", "apply", "attack")
        resumes = "--resume" if arguments[0] == "train" else "the same command again" if again else ""
        hint(f"interrupted{f'; it goes on with {resumes}' if resumes else ''}")
    with contextlib.suppress(BrokenPipeError):
        sys.stdout.flush()
        sys.exit(code or 0)
    sys.exit(_end_quietly())


def _end_quietly() -> int:
    """Exit code where nobody reads stdout any more; what Python flushes at its end goes nowhere."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0


def _write_for(*streams: Any) -> None:
    """Write in ASCII what a stream cannot encode; fit tables to terminals only."""
    for stream in streams:
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="palaestra_ascii")
    if not sys.stdout.isatty() and "COLUMNS" not in os.environ:
        out.width = _WHOLE


def _fail(error: Exception, message: str, code: int, debug: bool) -> int:
    if debug:
        hint("".join(traceback.format_exception(error)))
    err.print(f"error: {message}", soft_wrap=True, style="red")
    return code
