"""Chat messages, as OpenAI, Anthropic and LangChain write them, into turns: a row per message of the assistant."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from palaestra.evaluation.logs.rows import dump, mapping, rest, text
from palaestra.evaluation.logs.usage import tokens

_ROLES = {"ai": "assistant", "human": "user"}
_KNOWN = {"role", "content", "name", "tool_calls", "usage", "type", "data", "function_call"}


def content_text(content: Any) -> str | None:
    """The words of a message: a string, or the texts of its blocks; a picture is named by its type."""
    if content is None or isinstance(content, str):
        return None if content is None else text(content)
    if not isinstance(content, list):
        return text(content)
    words = []
    for block in content:
        if not isinstance(block, Mapping):
            words.append(text(block))
        elif "text" in block:
            words.append(text(block["text"]))
        elif block.get("type") == "tool_result":
            words.append(content_text(block.get("content")) or "")
        elif block.get("type") not in ("tool_use", "thinking", "reasoning"):
            words.append(f"[{text(block.get('type', 'block'))}]")
    return "\n".join(words)


def tool_calls(message: Mapping[str, Any]) -> list[dict[str, Any]]:
    """`tool` and `arguments` of every call that a message makes."""
    found = []
    content = message.get("content")
    blocks = [b for b in content if isinstance(b, Mapping)] if isinstance(content, list) else []
    calls = message.get("tool_calls")
    if not calls and message.get("function_call"):
        calls = [message["function_call"]]
    for call in calls if isinstance(calls, list) else []:
        if isinstance(call, Mapping):
            inner = mapping(call.get("function")) or call
            name = inner.get("name") or inner.get("function")
            found.append({"tool": name, "arguments": inner.get("arguments", inner.get("args"))})
    found += [{"tool": b.get("name"), "arguments": b.get("input")} for b in blocks if b.get("type") == "tool_use"]
    return [{"tool": text(c["tool"]), "arguments": c["arguments"]} for c in found if c["tool"] is not None]


def turns_of(messages: Sequence[Any], *, agent: str | None = None, policy: Any = None) -> list[dict[str, Any]]:
    """A row per assistant message; it observed what was said since its last one. Last words have a row without action.

    A message that calls several tools has one row per call with the same `turn`; tokens stand on the first.
    """
    rows: list[dict[str, Any]] = []
    heard: list[str] = []
    turn = -1
    for message in messages:
        if not isinstance(message, Mapping):
            heard.append(text(message))
            continue
        inner = mapping(message.get("data")) or message
        role = message.get("role") or message.get("type")
        role = _ROLES.get(role, role) if isinstance(role, str) else role
        words = content_text(inner.get("content"))
        if role != "assistant":
            heard.append(words or "")
            continue
        turn += 1
        usage = inner.get("usage") or inner.get("usage_metadata")
        own = {
            "turn": turn,
            "agent": agent or message.get("name"),
            "policy": policy,
            "observation": "\n".join(heard) if heard else None,
            "action": words,
            "metadata": None if inner.keys() <= _KNOWN else rest(inner, _KNOWN),
            **(tokens(usage) if usage else {}),
        }
        calls = tool_calls(inner) if len(inner) > 2 or not isinstance(inner.get("content"), str) else []
        rows.append(own | (calls[0] if calls else {}))
        rows += [{"turn": turn, "agent": own["agent"], "policy": policy, **call} for call in calls[1:]]
        heard = []
    if rows and heard:
        rows.append({"turn": turn + 1, "agent": rows[-1]["agent"], "policy": policy, "observation": "\n".join(heard)})
    return rows


def opening(messages: Sequence[Any]) -> str:
    """What the first user message says: episodes that open alike are of one task."""
    for message in messages:
        if isinstance(message, Mapping) and message.get("role") in ("user", "human"):
            return content_text(message.get("content")) or ""
    return dump(messages[:1])
