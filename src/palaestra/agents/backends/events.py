"""Server-sent events: JSON values out of the bytes of a stream, one for each event that has come whole."""

from __future__ import annotations

import json
from typing import Any

from palaestra.agents.backends import endpoint
from palaestra.agents.backends.endpoint import UnusableAnswerError


class Events:
    r"""Reader of one stream of server-sent events, as OpenAI's and vLLM's endpoints send them.

    any: whether a byte of it has come.

    Example:
        >>> events = Events()
        >>> events.read(b'data: {"a": 1}\n\nda'), events.read(b'ta: 2\r\n\r\n: a comment\n\ndata: [DONE]\n\n')
        ([{'a': 1}], [2])
    """

    def __init__(self) -> None:
        self.any = False
        self._rest = b""

    def read(self, part: bytes) -> list[Any]:
        """JSON values of the events that end in this part.

        Raises:
            UnusableAnswerError: an event is no JSON, or longer than 8 MiB.
        """
        self.any = self.any or bool(part)
        *lines, self._rest = (self._rest + part).split(b"\n")
        if len(self._rest) > endpoint.LARGEST:
            raise UnusableAnswerError(f"an event of the stream is longer than {endpoint.LARGEST / 2**20:g} MiB")
        found = []
        for line in lines:
            said = line.strip()
            if not said.startswith(b"data:") or (text := said[5:].strip()) == b"[DONE]":
                continue
            try:
                found.append(json.loads(text))
            except (ValueError, RecursionError):
                raise UnusableAnswerError(f"an event of the stream is no JSON: {text[:40]!r}") from None
        return found
