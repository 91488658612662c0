"""Requests to chat endpoints and checks of responses: tool calls, endless bodies, impossible counts, echoed keys.

Left out: nothing of it is trusted, so nothing is validated either; what cannot be used counts as not said.
"""

from __future__ import annotations

import base64
import json
import os
import re
import time
from collections.abc import Iterable, Mapping
from email.utils import parsedate_to_datetime
from typing import Any
from urllib.parse import quote, urljoin, urlsplit

from palaestra.envs.conversations import ChatMessage
from palaestra.envs.tool_calls import parse, write
from palaestra.errors import InputError, PolicyError

LARGEST = 8 * 2**20
"""Bytes of an answer, unpacked. The longest ones, with the log-probability of every token, have a tenth of it."""
MOST_TOKENS = 10**7
"""More than any model reads or writes in one call: a count above it is a mistake. A table holds sums up to 2³¹ - 1."""
FINISHES = {
    "eos": "stop", "end_turn": "stop", "stop_sequence": "stop", "completed": "stop", "max_tokens": "length",
    "max_output_tokens": "length", "model_length": "length", "tool_calls": "tool", "tool_use": "tool",
    "function_call": "tool", "content_filter": "filtered", "safety": "filtered", "refusal": "filtered",
    "abort": "aborted", "cancelled": "aborted",
}  # fmt: skip
"""Words of servers for why a generation ended, and the word for it here."""
SHORTEST_KEY = 8
"""A placeholder such as EMPTY is no secret, and a word that a model may say."""
UNCERTAIN = (408, 502, 504, 524)
"""Statuses that proxies send while the endpoint behind them may have done, and billed, the work."""
PASSING = (408, 409, 429)
"""Statuses 4xx after which asking again may help."""
ABSENT = (502, 503, 504)
"""Statuses that are sent in place of an endpoint that is not there."""
OPENAI = "https://api.openai.com/v1"
"""Where requests go if no address is given."""


class UnusableAnswerError(PolicyError):
    """Raised when an endpoint's answer is not a chat completion."""


class ProxyAnswerError(UnusableAnswerError):
    """Raised when something between client and endpoint answered, such as a web page of a proxy."""


class RedirectedError(PolicyError):
    """Raised for a redirect of an endpoint, which is not followed, to keep prompt and key from another host."""


def redirected(
    url: str, status: int, location: str | None, *, path: str = "/chat/completions", option: str = "base_url"
) -> RedirectedError:
    """Makes a `RedirectedError` for an HTTP `status` 3xx not followed; it names both hosts, the address to configure.

    Args:
        url: Address that was asked.
        status: HTTP status, 300 to 399.
        location: Header of the answer, absolute or relative to `url`.
        path: End of the new address that is no part of the setting.
        option: Name of the setting that holds the address.

    Example:
        >>> print(redirected("http://a.example/v1/chat/completions", 307, "https://b.example/v1/chat/completions"))
        a.example redirects (HTTP 307) to b.example; redirects are not followed, for prompt and key would go there. If \
b.example is meant, set base_url to 'https://b.example/v1'
    """
    asked = urlsplit(url).netloc.rpartition("@")[2]
    try:
        target = address(urljoin(url, "".join(c for c in location or "" if c.isprintable())))
    except ValueError:
        target = ""
    host = urlsplit(target).netloc
    if not location or not host:
        return RedirectedError(f"{asked} redirects (HTTP {status}) to nowhere: set {option} to the endpoint itself")
    base = target.removesuffix(path).rstrip("/")[:200]
    return RedirectedError(
        f"{asked} redirects (HTTP {status}) to {host[:80]}; redirects are not followed, for prompt and key would go"
        f" there. If {host[:80]} is meant, set {option} to {base!r}"
    )


def address(base_url: str | None) -> str:
    """An endpoint's address as text for messages, without credentials and query.

    >>> address("https://example.org:8000/v1?key=abc")
    'https://example.org:8000/v1'
    """
    if base_url is None:
        return "OpenAI's own endpoint"
    parts = urlsplit(base_url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


def check_address(base_url: str | None, what: str = "ChatPolicy: base_url") -> None:
    """Raises InputError for an invalid endpoint address, or one that holds credentials, which are not repeated."""
    if base_url is None:
        return
    try:
        parts = urlsplit(base_url)
        port = parts.port
    except (ValueError, TypeError, AttributeError):
        parts, port = urlsplit(""), None
    if parts.username is not None or parts.password is not None or "@" in parts.netloc:
        raise InputError(
            f"{what} holds credentials: write {address(base_url)!r}, put the key into an environment"
            f" variable and give its NAME as api_key_env"
        )
    if parts.scheme not in ("http", "https") or not parts.hostname or port == 0:
        shown = address(base_url) if isinstance(base_url, str) else type(base_url).__name__
        raise InputError(f"{what} is {shown!r}, expected something like 'http://localhost:8000/v1'")


def check_key_name(name: str | None, what: str = "") -> None:
    """Raises InputError unless `name` is None or names an environment variable with a key, which is never repeated."""
    if name is not None and not re.fullmatch(r"[A-Z][A-Z0-9_]{0,63}", name):
        raise InputError(
            f"{what}api_key_env is the NAME of an environment variable, such as OPENAI_API_KEY; the"
            f" {len(name)} characters given do not look like one. Never pass a key itself"
        )
    if name is None:
        return
    if not (key := os.environ.get(name, "").strip()):
        raise InputError(
            f"{what}environment variable {name} is not set:"
            f" export it, or pass api_key_env=None (--key-env none) for an endpoint without keys"
        )
    if not (key.isascii() and key.isprintable()):
        raise InputError(f"{what}environment variable {name} holds what is no key: line breaks, or no ASCII")


def messages(conversation: Iterable[ChatMessage]) -> list[dict[str, Any]]:
    """Conversation as list of dicts in the form of chat endpoints: arguments of tool calls become JSON text.

    >>> messages([{"role": "user", "content": "Hi"}])
    [{'role': 'user', 'content': 'Hi'}]
    """
    found = []
    for message in conversation:
        told = dict(message)
        if told.get("tool_calls"):
            told["tool_calls"] = [_sent(call) for call in told["tool_calls"]]
            told["content"] = told.get("content") or None
        found.append(told)
    return found


def json_schema_format(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Value of the request field `response_format` that makes a chat endpoint reply by a JSON schema; dict."""
    return {"type": "json_schema", "json_schema": {"name": "reply", "strict": True, "schema": dict(schema)}}


def _sent(call: Mapping[str, Any]) -> dict[str, Any]:
    function = call["function"]
    given = function.get("arguments")
    text = given if isinstance(given, str) else json.dumps(given or {}, ensure_ascii=False)
    return {**call, "function": {**function, "arguments": text}}


def at(found: Any, *path: Any) -> Any:
    """Value at a path of keys and indices in parsed JSON; None if anything on the way is missing.

    >>> at({"choices": [{"text": "a"}]}, "choices", 0, "text"), at({"choices": []}, "choices", 0, "text")
    ('a', None)
    """
    for step in path:
        try:
            found = found[step]
        except (KeyError, IndexError, TypeError):
            return None
    return found


def calls(message: Any) -> list[Any]:
    """List of the function calls, dicts (name, arguments), in an assistant message, as the endpoint wrote them."""
    found = at(message, "tool_calls")
    functions = [at(call, "function") for call in found] if isinstance(found, list) else []
    return [function for function in functions if function is not None]


def content(message: Any) -> str | None:
    """Text of an assistant message's content, of which the parts that are text are joined; None if there is none.

    >>> content({"content": [{"type": "thinking", "thinking": "hm"}, {"type": "text", "text": "42"}]})
    '42'
    """
    found = at(message, "content")
    if isinstance(found, list):
        texts = [at(part, "text") for part in found if at(part, "type") == "text"]
        found = "".join(str(text) for text in texts) if texts else None
    return found if isinstance(found, str) else None


def without_choices(answer: Any) -> PolicyError:
    """Makes the error of an answer without choices; an UnusableAnswerError if asking again may help."""
    said = at(answer, "error", "message") or at(answer, "error")
    code = count(at(answer, "error", "code"))
    final = code is not None and 400 <= code < 500 and code not in PASSING
    kind = PolicyError if final else UnusableAnswerError
    return kind(f"the answer has no choices: {said}" if isinstance(said, str) else "the answer has no choices")


def without_text(choice: Any, limit: int | None) -> PolicyError:
    """Makes the error of a choice without a text; an UnusableAnswerError if asking again may help.

    limit: `max_tokens` of the request.
    """
    refusal, why = at(choice, "message", "refusal"), finish_reason(at(choice, "finish_reason"))
    if isinstance(refusal, str) and refusal:
        return PolicyError(f"the model refused: {refusal}")
    if why == "filtered":
        return PolicyError("the endpoint's filter took out the answer")
    if why == "length":
        where = "" if limit is None else f" at max_tokens={limit}"
        return PolicyError(
            f"cut off{where} before any text (thinking?): raise max_tokens, or set enable_thinking: false"
        )
    return UnusableAnswerError("the answer has no text")


def message_text(message: Any, format: str) -> str:
    """Text of an assistant message: its content, followed by its tool calls written in a tool format.

    A call that is none, of arguments without JSON for example, stands there as it came: whoever parses it says why.
    """
    text, given = content(message) or "", calls(message)
    if not given:
        return text
    raw = []
    for function in given:
        name, arguments = at(function, "name"), at(function, "arguments")
        written = arguments if isinstance(arguments, str) else json.dumps(arguments, default=str)
        raw.append(
            f'<tool_call>\n{{"name": {json.dumps(name, default=str)}, "arguments": {written or "{}"}}}\n</tool_call>'
        )
    read = parse("\n".join(raw), "hermes")
    if read.error is not None:
        return "\n".join(part for part in (text.strip(), *raw) if part)
    written = write(read.calls, format, text=text.strip())
    if parse(written, format).calls != read.calls:  # not every format can stand beside a text
        return write(read.calls, "hermes", text=text.strip())
    return written


def finish_reason(reason: Any) -> str | None:
    """Finish reason normalised across servers: stop, length, tool, filtered, aborted, the server's own, or None.

    >>> [finish_reason(reason) for reason in ("stop", "end_turn", "max_tokens", "tool_calls", "abort", "Pause", None)]
    ['stop', 'stop', 'length', 'tool', 'aborted', 'pause', None]
    """
    if not isinstance(reason, str) or not reason.strip():
        return None
    word = "".join(c for c in reason.strip().casefold() if c.isprintable())[:40]
    return FINISHES.get(word, word)


def count(value: Any) -> int | None:
    """A token count of a server as int; None for a value that cannot be one.

    >>> [count(value) for value in (12, 12.0, "12", -1, 10**12, 1.5, None, True, float("nan"))]
    [12, 12, 12, None, None, None, None, None, None]
    """
    if isinstance(value, str) and re.fullmatch(r"\d{1,9}", value):
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= MOST_TOKENS:
        return None
    return int(value) if value == int(value) else None


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds that response headers ask to wait (`retry-after-ms`, `Retry-After`), or None.

    `Retry-After` is seconds or an HTTP date (RFC 9110).

    >>> retry_after({"retry-after-ms": "250", "retry-after": "9"}), retry_after({"retry-after": "soon"})
    (0.25, None)
    """
    for name, unit in (("retry-after-ms", 1e3), ("retry-after", 1.0)):
        if re.fullmatch(r"\d{1,12}(\.\d{0,9})?", text := headers.get(name, "").strip()):
            return float(text) / unit
    try:
        return max(0.0, parsedate_to_datetime(headers.get("retry-after", "")).timestamp() - time.time())
    except (ValueError, TypeError, OverflowError):
        return None


def redacted(key: str, text: str, *, shortest: int = 1) -> str:
    """Text in which a secret key, in any of its encodings, is replaced by ***; keys below `shortest` letters stay.

    >>> redacted("sk/secret+1", "Bearer SK/secret+1, sk%2Fsecret%2B1, c2svc2VjcmV0KzE=")
    'Bearer ***, ***, ***'
    """
    key = key.strip()
    if len(key) < shortest or not key:
        return text
    forms = {
        key,
        repr(key)[1:-1],
        json.dumps(key)[1:-1],
        quote(key, safe=""),
        base64.b64encode(key.encode(errors="replace")).decode(),
    }
    return re.sub("|".join(map(re.escape, sorted(forms, key=len, reverse=True))), "***", text, flags=re.IGNORECASE)
