"""Two real tools: Python in the sandbox, and search over local files with SQLite's full-text index."""

from __future__ import annotations

import ast
import dataclasses
import functools
import re
import sqlite3
import threading
from collections.abc import Mapping
from pathlib import Path

from palaestra.envs.sandbox import Limits, read, run_program
from palaestra.envs.tools import TOOLS, Tool, ToolError
from palaestra.errors import InputError, StorageError

LIMITS = Limits(cpu=2, wall=3.0, memory=256 * 2**20)
LARGEST = 2**20
"""Bytes of a file that is searched; what is longer is cut."""
MOST_WORDS = 64
"""Words of a query that are looked for, its first ones."""
CUT = "… (what was printed after this is left out)"
"""Stands where the output of a program was cut."""


@TOOLS.register()
def python(limits: Limits = LIMITS) -> Tool:
    r"""Makes a `Tool` that runs Python code in a sandbox and returns printed output and the last line's value, if any.

    Programs see no files and no network, and may import what `palaestra.envs.sandbox.MODULES` names. Equal programs
    are run once per process: nothing in the sandbox tells the time or draws without a seed. Output that is longer than
    the limit ends with a line that says so.

    >>> python().run({"code": "n = 6\nn * 7"})
    ('42', None)
    >>> python().run({"code": "1 / 0"})[1]
    'ZeroDivisionError: division by zero'
    """
    code = {"type": "string", "description": "a program; what it prints and the value of its last line come back"}
    return Tool("python", "Run Python.", {"code": code}, functools.partial(_python, limits=limits))


@functools.lru_cache(8192)
def _ran(code: str, limits: Limits) -> tuple[str, str | None]:
    try:
        body = read(code).body
    except SyntaxError as error:
        return "", f"SyntaxError: {error.msg} (line {error.lineno})"
    body = [_AsMain().visit(each) for each in body]
    if body and isinstance(last := body[-1], ast.Expr):
        body[-1:] = [ast.Assign([ast.Name("_", ast.Store())], last.value), *_SHOWN]
    program = f"{ast.unparse(ast.fix_missing_locations(ast.Module(body, [])))}\ndef main(): pass"
    most = limits.printed
    outcome = run_program(program, "main", limits=dataclasses.replace(limits, printed=most + 2))
    problem = outcome.error
    if problem is not None:  # lines of the program as it was rewritten are not those of the one that was written
        problem = _ADDRESS.sub("", re.sub(r" \((<program>, )?line \d+\)|\bline \d+: ", "", problem))
    printed, rest = outcome.printed[:most], outcome.printed[most:]
    printed = _ADDRESS.sub("", re.sub(r" at 0x[0-9a-f]*\Z", "", printed) if rest else printed).strip()
    return (printed if rest in ("", "\n") else f"{printed}\n{CUT}"), problem


class _AsMain(ast.NodeTransformer):
    """Replaces what is read of `__name__`: a tool's program is run, and not imported."""

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return ast.Constant("__main__") if (node.id, type(node.ctx)) == ("__name__", ast.Load) else node


_SHOWN = ast.parse("if _ is not None: print(_)").body
_ADDRESS = re.compile(r""" at 0x[0-9a-f]+(?=>|, file ['"]|; (?:to '|dead>))""")
"""Of a function or an object as it is printed, `<f at 0x7f…>`: another one in every process."""


def _python(code: str, limits: Limits) -> str:
    printed, problem = _ran(code, limits)
    if problem is not None:
        raise ToolError(f"{problem}{f'; it printed {printed}' if printed else ''}")
    return printed or "(nothing was printed)"


class Library:
    """In-memory full-text index of documents ({name: text}), ranked by BM25 (SQLite FTS5).

    A query is words; documents that have any of them come by rank, ties by name. Operators of FTS5 are words like all
    others, so no query is malformed. Of scripts without spaces two neighbouring letters are a word.

    Raises:
        InputError: there are no documents, or this SQLite has no FTS5.

    >>> Library({"cat": "A cat purrs.", "dog": "A dog barks at a cat."}).find("purring? purrs")
    [('cat', 'A cat purrs.')]
    """

    def __init__(self, documents: Mapping[str, str]) -> None:
        if not documents:
            raise InputError("Library: no documents")
        self._lock = threading.Lock()
        self._base = sqlite3.connect(":memory:", check_same_thread=False)
        try:
            self._base.execute("CREATE VIRTUAL TABLE documents USING fts5(name, text)")
        except sqlite3.OperationalError as error:
            raise InputError(f"Library: this SQLite ({sqlite3.sqlite_version}) has no FTS5: {error}") from error
        rows = ((_spaced(name), _spaced(text)) for name, text in sorted(documents.items()))
        self._base.executemany("INSERT INTO documents VALUES (?, ?)", rows)

    @classmethod
    def read(cls, folder: str | Path, *patterns: str) -> Library:
        """A library of the files of a folder, named by their path in it; patterns: default **/*.txt and **/*.md.

        Raises:
            StorageError: one cannot be read. InputError: there are none.
        """
        base, patterns = Path(folder), patterns or ("**/*.txt", "**/*.md")
        found: dict[str, str] = {}
        for path in sorted({path for pattern in patterns for path in base.glob(pattern)}):
            if path.is_file():
                try:
                    with path.open("rb") as file:
                        found[path.relative_to(base).as_posix()] = file.read(LARGEST).decode(errors="replace")
                except OSError as error:
                    raise StorageError(f"{path}: cannot be searched: {error.strerror}") from error
        if not found:
            raise InputError(f"Library: no file in {base} is called {' or '.join(patterns)}")
        return cls(found)

    def find(self, query: str, most: int = 3) -> list[tuple[str, str]]:
        """The best documents for a query as (name, text), at most `most`."""
        return [(name, text) for name, text, _ in self._find(query, most)]

    def _find(self, query: str, most: int, longest: int = 1000) -> list[tuple[str, str, str]]:
        """The best documents as (name, text, passage of the text that has most of the words)."""
        words = [word for run in _WORDS.findall(query) for word in _pairs(run)]
        if not words:
            return []
        asked = " OR ".join(f'"{_spaced(word)}"' for word in words[:MOST_WORDS])
        with self._lock:
            rows = self._base.execute(
                "SELECT name, text, snippet(documents, 1, '', '', '', ?) FROM documents WHERE documents MATCH ? "
                "ORDER BY bm25(documents), name LIMIT ?",
                (max(1, min(64, longest // 10)), asked, most),
            )
            plain = ([str(each).replace(_GAP, "") for each in row] for row in rows)
            return [(name, text, passage) for name, text, passage in plain]

    def tool(self, most: int = 3, longest: int = 1000) -> Tool:
        """A tool that searches these documents and returns the text of the best.

        Of a text of more than `longest` characters, so many around the passage that fits best, and how long it is.
        """
        query = {"type": "string", "description": "words to look for"}
        return Tool(
            "search", "Search the files.", {"query": query}, functools.partial(self._say, most=most, longest=longest)
        )

    def _say(self, query: str, most: int, longest: int) -> str:
        found = self._find(query, most, longest)
        lines = [f"{name}: {_around(text, passage, longest)}" for name, text, passage in found]
        return "\n".join(lines) or "nothing was found"


_LETTERS = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
"""Of scripts without spaces: Thai, Lao, Burmese, Khmer, Japanese, Chinese."""
_WORDS = re.compile(rf"[{_LETTERS}]+|[^\W{_LETTERS}]+")
_UNSPACED = re.compile(f"[{_LETTERS}]")
_GAP = "\u2063"
"""The invisible separator U+2063: FTS5 takes it for white space, and nobody writes it."""


def _spaced(text: str) -> str:
    return _UNSPACED.sub(rf"{_GAP}\g<0>{_GAP}", text)


def _pairs(run: str) -> list[str]:
    return [run[at : at + 2] for at in range(max(1, len(run) - 1))] if _UNSPACED.match(run) else [run]


def _around(text: str, passage: str, longest: int) -> str:
    """The text, or so many characters of it around a passage."""
    text = text.strip()
    if len(text) <= longest:
        return text
    passage = passage.strip()
    start = min(max(0, text.find(passage) - max(0, longest - len(passage)) // 2), len(text) - longest)
    shown = text[start : start + longest].strip()
    return f"{'… ' * (start > 0)}{shown}{' …' * (start + longest < len(text))} ({len(text)} characters)"


@TOOLS.register()
def search(folder: str, *, most: int = 3, longest: int = 1000) -> Tool:
    """Makes a `Tool` that searches the text files of a folder (BM25) and returns the texts of the best `most`."""
    return _read(folder).tool(most, longest)


_read = functools.lru_cache(8)(Library.read)
