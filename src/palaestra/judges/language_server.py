"""A language server as a source of facts: what is wrong with a workspace after each turn, and how clear a target was.

Any server that speaks LSP over stdio; `jedi-language-server` tells of syntax errors, `basedpyright-langserver` of types
and unknown names. Facts are canonical (sorted, no times, no paths of this machine) and named by a hash, so that a
reward can be computed again from a store without a server. Only sources are shown to it: a configuration file in the
workspace could switch its checks off. Comments that silence a checker are not noticed.
"""

from __future__ import annotations

import hashlib
import json
import os
import selectors
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path, PurePosixPath
from typing import Any, TypeVar

from palaestra.errors import InputError, PalaestraError, missing_extra

SUFFIXES = (".py", ".pyi")
ENVIRONMENT = ("HOME", "LANG", "PATH", "TMPDIR")
"""What a server learns of our environment: no keys."""
Fact = dict[str, Any]
T = TypeVar("T")


class LanguageServerError(PalaestraError):
    """Raised if a language server does not start, does not answer in time, or answers nonsense."""


class LanguageServer:
    """Context manager of a language server process over a temporary workspace: `diagnostics`, `definitions`.

    It is started on first use.

    command: how it is started. timeout: seconds for each answer; the server is ended and started anew after a failure.

    Raises:
        MissingExtraError: the command is not installed.
    """

    def __init__(self, command: Sequence[str] = ("jedi-language-server",), *, timeout: float = 30.0) -> None:
        if not timeout > 0 or not command:
            raise InputError(f"LanguageServer: need a command, and timeout={timeout} > 0")
        found = shutil.which(command[0]) or shutil.which(command[0], path=os.path.dirname(sys.executable))
        if found is None:
            raise missing_extra(command[0], "language-server")
        self.command, self.timeout = (found, *command[1:]), timeout
        self.name = Path(command[0]).name
        self._process: subprocess.Popen[bytes] | None = None
        self._directory: tempfile.TemporaryDirectory[str] | None = None

    def __enter__(self) -> LanguageServer:
        return self

    def __exit__(self, *ignored: object) -> None:
        self.close()

    # -- facts --------------------------------------------------------------------------------------------------------

    def diagnostics(self, files: Mapping[str, str]) -> list[Fact]:
        """Every diagnostic of a workspace, sorted: path, line (from 0), character, severity, code, message.

        Args:
            files: path inside the workspace -> text. Other files than sources are left out.

        Raises:
            InputError: a path leaves the workspace. LanguageServerError: no answer in time.
        """
        return self._asked(lambda: self._diagnostics(files))

    def definitions(self, files: Mapping[str, str], path: str, line: int, character: int) -> int:
        """Number of definitions of the symbol at a position (line and character from 0)."""

        def ask() -> int:
            self._synchronise(files)
            where = {"textDocument": {"uri": self._uri(path)}, "position": {"line": line, "character": character}}
            found = self._request("textDocument/definition", where) or []
            return len(found) if isinstance(found, list) else 1

        return self._asked(ask)

    def _diagnostics(self, files: Mapping[str, str]) -> list[Fact]:
        sent = self._synchronise(files)
        waiting = {self._uri(path): self._versions[path] for path in sent}
        deadline = time.monotonic() + self.timeout
        while not self._pulls and any(self._published.get(uri, (0,))[0] < version for uri, version in waiting.items()):
            self._receive(deadline)
        for path in self._versions if self._pulls else ():  # one file's change may show in another
            answer = self._request("textDocument/diagnostic", {"textDocument": {"uri": self._uri(path)}})
            self._published[self._uri(path)] = (self._versions[path], answer["items"])
        found = []
        for path in self._versions:
            for each in self._published[self._uri(path)][1]:
                start = each["range"]["start"]
                fact = {"path": path, "line": start["line"], "character": start["character"]}
                message = str(each.get("message", "")).replace(str(self._folder), "")
                code = str(each["code"]) if "code" in each else None
                found.append(fact | {"severity": each.get("severity", 1), "code": code, "message": message})
        return sorted(
            found, key=lambda fact: [str(x) if isinstance(x, str | None) else f"{x:09}" for x in fact.values()]
        )

    # -- the process --------------------------------------------------------------------------------------------------

    def close(self, *, politely: bool = True) -> None:
        """End the server, with all its processes, and remove the workspace."""
        if self._process is not None:
            if politely:
                with suppress(LanguageServerError, OSError, ValueError):
                    self._request("shutdown", None, seconds=2.0)
                    self._send({"method": "exit"})
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            for pipe in (self._input, self._output):
                with suppress(OSError):
                    pipe.close()
        if self._directory is not None:
            self._directory.cleanup()
        self._process = self._directory = None

    def _asked(self, ask: Callable[[], T]) -> T:
        try:
            if self._process is None:
                self._start()
            return ask()
        except InputError:
            raise
        except (LanguageServerError, OSError, KeyError, TypeError, ValueError) as error:
            self.close(politely=False)
            raise LanguageServerError(f"{self.name}: {error or type(error).__name__}") from error

    def _start(self) -> None:
        self._directory = tempfile.TemporaryDirectory(prefix="palaestra-", ignore_cleanup_errors=True)
        self._versions: dict[str, int] = {}
        self._texts: dict[str, str] = {}
        self._published: dict[str, tuple[int, list[Fact]]] = {}
        self._buffer, self._last, self._pulls = b"", 0, False
        self._folder = Path(self._directory.name)
        process = subprocess.Popen(
            self.command + (("--stdio",) if "pyright" in self.name else ()),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd=self._folder,
            start_new_session=True,
            env={name: os.environ[name] for name in ENVIRONMENT if name in os.environ},
        )
        assert process.stdin is not None
        assert process.stdout is not None
        self._process, self._input, self._output = process, process.stdin, process.stdout
        root = self._folder.as_uri()
        answer = self._request(
            "initialize",
            {
                "processId": os.getpid(),
                "rootUri": root,
                "workspaceFolders": [{"uri": root, "name": "workspace"}],
                "capabilities": {
                    "textDocument": {
                        "publishDiagnostics": {"versionSupport": True},
                        "diagnostic": {"dynamicRegistration": True},
                    },
                    "workspace": {"configuration": True},
                },
            },
        )
        self._pulls |= bool(answer["capabilities"].get("diagnosticProvider"))
        self._send({"method": "initialized", "params": {}})

    def _uri(self, path: str) -> str:
        return (self._folder / path).as_uri()

    def _synchronise(self, files: Mapping[str, str]) -> list[str]:
        """Make the workspace these files; the paths of those that were sent."""
        wanted = {inside(path): text for path, text in files.items() if path.endswith(SUFFIXES)}
        for path in set(self._texts) - set(wanted):
            (self._folder / path).unlink()
            self._notify("textDocument/didClose", {"textDocument": {"uri": self._uri(path)}})
            del self._texts[path], self._versions[path]
        changed = [path for path, text in sorted(wanted.items()) if self._texts.get(path) != text]
        for path in changed:
            place = self._folder / path
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(wanted[path], encoding="utf-8")
        for path in changed:
            uri, new = self._uri(path), path not in self._versions
            self._last += 1  # numbers of versions never come back, so an old answer cannot be taken for a new one
            self._versions[path], self._texts[path] = self._last, wanted[path]
            document = {"uri": uri, "version": self._last}
            if new:
                opened = document | {"languageId": "python", "text": wanted[path]}
                self._notify("textDocument/didOpen", {"textDocument": opened})
            else:
                change = {"textDocument": document, "contentChanges": [{"text": wanted[path]}]}
                self._notify("textDocument/didChange", change)
        return changed

    # -- messages -----------------------------------------------------------------------------------------------------

    def _notify(self, method: str, params: Any) -> None:
        self._send({"method": method, "params": params})

    def _request(self, method: str, params: Any, seconds: float | None = None) -> Any:
        self._last += 1
        number = self._last
        self._send({"id": number, "method": method} | ({} if params is None else {"params": params}))
        deadline = time.monotonic() + (self.timeout if seconds is None else seconds)
        while True:
            message = self._receive(deadline)
            if message.get("id") == number and "method" not in message:
                if "error" in message:
                    raise LanguageServerError(f"{method}: {message['error'].get('message')}")
                return message.get("result")

    def _send(self, message: dict[str, Any]) -> None:
        body = json.dumps({"jsonrpc": "2.0", **message}).encode()
        self._input.write(b"Content-Length: %d\r\n\r\n" % len(body) + body)
        self._input.flush()

    def _receive(self, deadline: float) -> dict[str, Any]:
        """The next message; what the server itself asks for is answered, what it publishes is kept."""
        while True:
            head, separator, rest = self._buffer.partition(b"\r\n\r\n")
            length = next((int(x.split(b":")[1]) for x in head.split(b"\r\n") if x.startswith(b"Content-Length")), 0)
            if separator and len(rest) >= length:
                self._buffer = rest[length:]
                break
            output = self._output.fileno()
            with selectors.DefaultSelector() as selector:  # of any descriptor; `select` has only those below 1024
                selector.register(output, selectors.EVENT_READ)
                ready = selector.select(max(deadline - time.monotonic(), 0))
            if not ready:
                raise LanguageServerError(f"no answer within {self.timeout:g} s")
            read = os.read(output, 1 << 16)
            if not read:
                raise LanguageServerError("the server ended")
            self._buffer += read
        message: dict[str, Any] = json.loads(rest[:length])
        if message.get("method") == "textDocument/publishDiagnostics":
            params = message["params"]
            self._published[params["uri"]] = (params.get("version") or self._last, params["diagnostics"])
        elif "method" in message and "id" in message:
            params = message.get("params") or {}
            asked = [each["method"] for each in params.get("registrations", [])]
            self._pulls |= "textDocument/diagnostic" in asked  # then it no longer publishes
            self._send({"id": message["id"], "result": [None] * len(params["items"]) if "items" in params else None})
        return message


def inside(path: str) -> str:
    """Text of a relative path in normal form; raises InputError if it is absolute or leads out of the workspace.

    Raises:
        InputError: it is absolute, or leads out.
    """
    plain = PurePosixPath(path)
    if plain.is_absolute() or ".." in plain.parts or "\\" in path or "\0" in path:
        raise InputError(f"path {path!r} leaves the workspace")
    return str(plain)


def bundle_id(facts: Any) -> str:
    """SHA-256, as hex, of facts as canonical JSON: equal facts have equal ids, in every process.

    >>> bundle_id({"b": 1, "a": [2]}) == bundle_id({"a": [2], "b": 1})
    True
    """
    return hashlib.sha256(json.dumps(facts, sort_keys=True, separators=(",", ":")).encode()).hexdigest()
