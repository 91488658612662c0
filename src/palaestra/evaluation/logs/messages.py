"""Chat messages, as OpenAI, Anthropic, LangChain and AutoGen write them, into turns: a row per message of an agent.

Where several agents speak, each observes what the others and the tools said since its own last turn, with their names.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from palaestra.evaluation.logs.rows import dump, mapping, rest, text
from palaestra.evaluation.logs.usage import tokens

_ROLES = {"ai": "assistant", "human": "user"}
_KNOWN = {"role", "content", "name", "tool_calls", "usage", "type", "data", "function_call"}
_NOT_SAID = ("ThoughtEvent", "ModelClientStreamingChunkEvent", "UserInputRequestedEvent", "MemoryQueryEvent")
"""AutoGen's events that nobody hears."""


def content_text(content: Any) -> str | None:
    """Text of a chat message's `content`: a string, or its blocks' texts; images by their type, thinking left out."""
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
    """List of tool calls of a chat message (dict), each a dict with `tool` and `arguments`."""
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
    """List of turns (dicts) of chat messages: one per assistant message, observing all that was said since its last.

    Messages after the last one of an assistant make a row without action.

    A message that calls several tools has one row per call with the same `turn`; tokens stand on the first.
    """
    rows: list[dict[str, Any]] = []
    said: list[tuple[str | Literal[False] | None, str]] = []  # by whom, False for users and tools, and what
    read: dict[str | None, int] = {}  # by agent, how much of it was said before its last turn ended
    turn = -1
    for message in map(of_autogen, messages):
        if message is None:
            continue
        if not isinstance(message, Mapping):
            said.append((False, text(message)))
            continue
        inner = mapping(message.get("data")) or message
        role = message.get("role") or message.get("type")
        role = _ROLES.get(role, role) if isinstance(role, str) else role
        words = content_text(inner.get("content"))
        if role != "assistant":
            said.append((False, words or ""))
            continue
        turn += 1
        name = agent or message.get("name") or inner.get("name")
        new = [(who, words) for who, words in said[read.get(name, 0) :] if who != name]
        heard = [words if who is False else f"{who or 'assistant'}: {words}" for who, words in new]
        usage = inner.get("usage") or inner.get("usage_metadata")
        own = {
            "turn": turn,
            "agent": name,
            "policy": policy,
            "observation": "\n".join(heard) if heard else None,
            "action": words,
            "metadata": None if inner.keys() <= _KNOWN else rest(inner, _KNOWN),
            **(tokens(usage) if usage else {}),
        }
        calls = tool_calls(inner) if len(inner) > 2 or not isinstance(inner.get("content"), str) else []
        rows.append(own | (calls[0] if calls else {}))
        rows += [{"turn": turn, "agent": own["agent"], "policy": policy, **call} for call in calls[1:]]
        if words:
            said.append((name, words))
        read[name] = len(said)
    last = max(read.values(), default=0)
    heard = [words for _, words in said[last:]]
    if rows and heard:
        rows.append({"turn": turn + 1, "agent": rows[-1]["agent"], "policy": policy, "observation": "\n".join(heard)})
    return rows


def of_autogen(message: Any) -> Any:
    """Converts an AutoGen message (a `source`, no role) to a chat message; others unchanged; internal events: None."""
    if not isinstance(message, Mapping) or "source" not in message or "role" in message:
        return message
    if message.get("type") in _NOT_SAID:
        return None
    content, source = message.get("content"), text(message["source"])
    parts = [part for part in content if isinstance(part, Mapping)] if isinstance(content, list) else []
    usage = {"usage": message["models_usage"]} if message.get("models_usage") else {}
    if parts and all("call_id" in part for part in parts):
        return {"role": "tool", "content": "\n".join(text(part.get("content")) for part in parts)}
    if parts and all({"name", "arguments"} <= part.keys() for part in parts):
        return {"role": "assistant", "name": source, "content": None, "tool_calls": parts, **usage}
    role = "user" if source == "user" else "assistant"
    return {"role": role, "name": source, "content": content, **usage}


def opening(messages: Sequence[Any]) -> str:
    """Text of the first user message of a list of messages, to identify the task; without one the first as JSON."""
    for message in map(of_autogen, messages):
        if not isinstance(message, Mapping):
            continue
        inner = mapping(message.get("data")) or message
        if (message.get("role") or message.get("type")) in ("user", "human"):
            return content_text(inner.get("content")) or ""
    return dump(messages[:1])
