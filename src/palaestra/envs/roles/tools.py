"""`CachedTool`: equal calls give equal answers, from a record that can be replayed without the tool."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

from palaestra.errors import EnvError, InputError, StorageError, nearest
from palaestra.foundation.files import write_text

MISSES = ("record", "raise", "default")


class CachedTool:
    """Callable wrapper of a tool function that caches results by arguments, and can replay them from a file.

    fn: the tool, from keyword arguments to a plain (JSON) value; None to replay only. store: a JSON file, read at the
    start, or None for memory alone. miss: what an unknown call does: "record" asks the tool and keeps the answer,
    "raise" is an EnvError, "default" answers `default`. hits, misses: how often which.

    Raises:
        InputError: an unknown miss policy, or "record" without a tool. StorageError: the store cannot be read.

    >>> tool = CachedTool(lambda place: len(place))
    >>> tool(place="museum"), tool(place="museum"), tool.hits, tool.misses
    (6, 6, 1, 1)
    """

    def __init__(
        self,
        fn: Callable[..., Any] | None,
        store: str | Path | None = None,
        *,
        miss: Literal["record", "raise", "default"] = "record",
        default: Any = None,
    ) -> None:
        if miss not in MISSES:
            raise InputError(f"CachedTool: miss={miss!r}{nearest(str(miss), MISSES)}")
        if miss == "record" and fn is None:
            raise InputError("CachedTool: there is no tool to record; choose miss='raise' or 'default'")
        self.fn, self.store, self.miss, self.default = fn, Path(store) if store else None, miss, default
        self.hits = self.misses = 0
        self._known: dict[str, Any] = {}
        if self.store and self.store.exists():
            try:
                self._known = json.loads(self.store.read_text(encoding="utf-8"))
            except (OSError, ValueError) as error:
                raise StorageError(f"{self.store}: not a record of calls ({error})") from error

    def __call__(self, **arguments: Any) -> Any:
        """The answer to a call. Answers are copies: changing one changes no other."""
        key = json.dumps(arguments, sort_keys=True)
        if key in self._known:
            self.hits += 1
        else:
            self.misses += 1
            if self.miss == "raise":
                raise EnvError(f"CachedTool: the call {key} was never recorded")
            if self.miss == "default" or self.fn is None:
                return self.default
            self._known[key] = self.fn(**arguments)
        return json.loads(json.dumps(self._known[key]))

    def save(self) -> Path:
        """Write the record to its file atomically; returns the path.

        Raises:
            StorageError: there is no store, or it cannot be written.
        """
        if self.store is None:
            raise StorageError("CachedTool: no store was given")
        write_text(self.store, json.dumps(self._known, sort_keys=True, indent=0))
        return self.store
