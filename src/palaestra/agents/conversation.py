"""Conversations as tokens: messages under the model's own chat template, and histories that only grow.

A later prompt of an agent is its last prompt, the tokens that it sampled, and the tokens of what is new; earlier turns
are never tokenised again. What is new is what the template writes behind the agent's answer: the conversation is
rendered with a mark in its place, and what stands behind the mark is taken. Whether the template would have written
the earlier part as it was sampled is looked at each time, and said:

    first         nothing came before
    extends       to the token what the template writes
    retokenised   the same text, which the tokenizer would cut otherwise
    rewritten     another text: thinking that is stripped, white space, a call in other words, another end token
    anew          the env changed what came before, so all of it was rendered again

`history="append"` keeps the sampled tokens whatever is found, so what is learned from is what was seen; "render" shows
what the template writes, as an inference server would. Left out: pictures, and templates that look at the time.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from palaestra.agents.policy import PreviousTurn, Request
from palaestra.algebra.turns import clean
from palaestra.envs.conversations import ChatMessage, Conversation, Reader, without_system
from palaestra.envs.protocol import Observation
from palaestra.errors import InputError, nearest

PREFIXES = ("first", "extends", "retokenised", "rewritten", "anew")
BROKEN = ("retokenised", "rewritten", "anew")
"""Where the prompt, or what is learned from, is not what the template makes of the conversation."""
HISTORIES = ("append", "render")
MARK = "[[answer]]"


class Style(NamedTuple):
    """Settings of how a conversation is rendered for a model: a system message and chat template variables.

    Attributes:
        system: System message in front of every conversation, before the env's own if it has one.
        arguments: Further variables of the chat template, `enable_thinking` for example.
    """

    system: str | None = None
    arguments: Mapping[str, Any] = MappingProxyType({})

    def check(self, tokenizer: Any) -> None:
        """Raise InputError if the tokenizer's chat template does not take this style.

        Raises:
            InputError: there is no chat template, it has no such variable, or it refuses a system message.
        """
        if not self.system and not self.arguments:
            return
        template = getattr(tokenizer, "chat_template", None)
        if not template:
            raise InputError(
                "LMPolicy: system_prompt and chat_template_kwargs need a chat template, which this tokenizer lacks: set"
                " tokenizer.chat_template, take a model that was tuned for chat, or write prompt_template instead"
            )
        words = set(re.findall(r"[A-Za-z_]\w{2,}", str(template)))
        for name in self.arguments:
            if name in OWN or name not in words:
                raise InputError(
                    f"LMPolicy: chat_template_kwargs: the chat template has no variable {name!r} to set"
                    f"{nearest(name, words - OWN)}"
                )
        render(tokenizer, Observation("", messages=({"role": "user", "content": "?"},)), self)


OWN = frozenset({"messages", "tools", "add_generation_prompt", "tokenize", "chat_template"})
"""Arguments of `apply_chat_template` that are not the user's to set."""


def to_record(observation: Observation, reader: Reader) -> tuple[ChatMessage, ...] | None:
    """Tuple of an `Observation`'s chat messages as written for a `Reader`; None if the table stores them anyway."""
    left = isinstance(observation.messages, Conversation) or (observation.messages is None and observation.legal)
    return observation.conversation(reader) if left else None


class Prompt(NamedTuple):
    """Data of one request's prompt: token ids, how they continue the last turn, or an error.

    Attributes:
        ids: Token ids that the model is shown, int32; none if there is an error.
        prefix: How they continue the agent's last turn, one of `PREFIXES`; None outside of conversations.
        error: Why the request cannot be shown.
    """

    ids: np.ndarray
    prefix: str | None = None
    error: str | None = None


def render(tokenizer: Any, observation: Observation, style: Style | None = None) -> str:
    """Prompt text of an `Observation`'s messages and tools by the tokenizer's chat template; InputError if it refuses.

    Raises:
        InputError: the template refuses the messages, or leaves out all that a role says, or the tools.
    """
    style = style or Style()
    messages = [dict(message) for message in observation.conversation()]
    if messages and messages[0].get("role") == "system" and not _takes_system(tokenizer, style):
        messages = [dict(message) for message in without_system(messages)]
    messages = _with_system(messages, style.system)
    tools = [dict(tool) for tool in observation.tools] or None
    text = _rendered(tokenizer, messages, tools, True, style)
    for place, message in enumerate(messages):
        if message.get("tool_calls"):  # beside calls some templates write no content
            continue
        known = (str(tokenizer.chat_template), str(message.get("role")))
        if known not in _SHOWN:  # once for each template and role
            marked = [*messages[:place], message | {"content": MARK}, *messages[place + 1 :]]
            _SHOWN[known] = MARK in _rendered(tokenizer, marked, tools, True, style)
        if not _SHOWN[known]:
            raise InputError(
                f"the chat template leaves out what {known[1]!r} says, without a word: let the env say it as 'user'"
                " (native=False of envs with tools), or give the tokenizer a template that knows this role"
            )
    if tools and str(tokenizer.chat_template) not in _TOLD:
        if text == _rendered(tokenizer, messages, None, True, style):
            raise InputError(
                "the chat template leaves out the tools, without a word: let the env tell of them as text (native=False"
                " of envs with tools), or give the tokenizer a template that knows tools"
            )
        _TOLD.add(str(tokenizer.chat_template))
    return clean(text)  # half a character may come out of a tool call's arguments


def _takes_system(tokenizer: Any, style: Style) -> bool:
    """Whether the template writes what a system message says; Gemma's and the first of Mistral refuse it."""
    template = str(tokenizer.chat_template)
    if template not in _SYSTEM:
        try:
            told = [{"role": "system", "content": MARK}, {"role": "user", "content": "?"}]
            _SYSTEM[template] = MARK in _rendered(tokenizer, told, None, True, style)
        except InputError:
            _SYSTEM[template] = False
    return _SYSTEM[template]


_SYSTEM: dict[str, bool] = {}
_SHOWN: dict[tuple[str, str], bool] = {}
"""Whether a template writes the content of a role, by both."""
_TOLD: set[str] = set()
"""Templates that write what tools there are."""


def _with_system(messages: list[dict[str, Any]], system: str | None) -> list[dict[str, Any]]:
    """Templates know one system message, so the env's own goes behind the policy's in the same one."""
    if not system:
        return messages
    if not messages or messages[0].get("role") != "system":
        return [{"role": "system", "content": system}, *messages]
    return [messages[0] | {"content": f"{system}\n\n{messages[0].get('content') or ''}"}, *messages[1:]]


def _rendered(tokenizer: Any, messages: list[dict[str, Any]], tools: Any, ask: bool, style: Style) -> str:
    try:
        text = tokenizer.apply_chat_template(
            messages, tools=tools, add_generation_prompt=ask, tokenize=False, **style.arguments
        )
    except Exception as error:  # a template may do anything
        roles = ", ".join(str(message.get("role")) for message in messages)
        raise InputError(f"the chat template refuses a conversation of {roles}: {error}") from error
    return str(text)


def end_of_turn(tokenizer: Any, style: Style | None = None) -> int:
    """Id of the token that ends an assistant's turn in the tokenizer's chat template; the eos token without one.

    It is another than the eos token where a model family has one mark for turns and one for texts, as Gemma
    (`<end_of_turn>`, `<eos>`). Without a template, or where no special token follows the message, it is the eos token.
    """
    eos = int(tokenizer.eos_token_id)
    if not getattr(tokenizer, "chat_template", None):
        return eos
    messages = [{"role": "user", "content": "?"}, {"role": "assistant", "content": MARK}]
    try:
        _, written, behind = _rendered(tokenizer, messages, None, False, style or Style()).rpartition(MARK)
    except InputError:  # a template for other conversations than this
        return eos
    ids = _ids(tokenizer, behind.lstrip()).tolist() if written else []
    marks = {number for number, token in tokenizer.added_tokens_decoder.items() if token.special}
    return int(ids[0]) if ids and ids[0] in marks else eos


def prompts(
    tokenizer: Any,
    requests: Sequence[Request],
    firsts: Sequence[np.ndarray | InputError],
    *,
    ends: Iterable[int],
    history: str,
    style: Style | None = None,
) -> list[Prompt]:
    """List of one `Prompt` per `Request`, of `firsts`, its observation's ids; with an error if the template refuses it.

    Args:
        tokenizer: A Hugging Face tokenizer; without a chat template the first observation is the prompt.
        requests: What the policy is asked.
        firsts: Each observation tokenised by itself, or why it cannot be.
        ends: Token ids that end an answer.
        history: How earlier turns of the conversation are shown, see `LMPolicy`.
        style: What the policy adds to conversations.

    Returns:
        As many prompts as requests. Equal prompts share one array.
    """
    talks = bool(getattr(tokenizer, "chat_template", None))
    known: dict[bytes, np.ndarray] = {}
    found = []
    for request, first in zip(requests, firsts, strict=True):
        try:
            if isinstance(first, InputError):
                raise first
            prompt = Prompt(first)
            if talks and request.observation.messages is not None:
                prompt = follow(
                    tokenizer, request.observation, request.past, first, ends=ends, history=history, style=style
                )
        except InputError as error:
            prompt = Prompt(np.empty(0, np.int32), error=f"InputError: {error}")
        found.append(prompt._replace(ids=known.setdefault(prompt.ids.tobytes(), prompt.ids)))
    return found


def follow(
    tokenizer: Any,
    observation: Observation,
    past: PreviousTurn | None,
    whole: np.ndarray,
    *,
    ends: Iterable[int],
    history: str = "append",
    style: Style | None = None,
) -> Prompt:
    """`Prompt` for an `Observation`: ids of `past`, a `PreviousTurn`, continued if it goes on from it, else of `whole`.

    whole: the token ids of the observation rendered at once.

    Raises:
        InputError: the template refuses a conversation.
    """
    if past is None:
        return Prompt(whole, "first")
    if not continues(observation, past.observation):
        return Prompt(whole, "anew")
    place = len(past.observation.messages or ())
    behind = behind_answer(tokenizer, observation, place, int(past.action_ids[-1]), ends, style)
    kept = np.concatenate([past.prompt_ids, past.action_ids, behind]).astype(np.int32)
    if np.array_equal(kept, whole):
        return Prompt(whole, "extends")
    written = [tokenizer.decode(ids.tolist(), skip_special_tokens=False) for ids in (kept, whole)]
    prefix = "retokenised" if written[0] == written[1] else "rewritten"
    return Prompt(kept if history == "append" else whole, prefix)


def continues(now: Observation, before: Observation) -> bool:
    """Whether `Observation` `now` has the messages of `before`, then an assistant's and maybe more, and the same tools.

    The assistant's message is its answer to `before`.
    """
    earlier, messages = before.messages or (), now.messages or ()
    return (
        len(messages) > len(earlier)
        and tuple(messages[: len(earlier)]) == tuple(earlier)
        and messages[len(earlier)].get("role") == "assistant"
        and tuple(now.tools) == tuple(before.tools)
    )


def behind_answer(
    tokenizer: Any, observation: Observation, place: int, last: int, ends: Iterable[int], style: Style | None = None
) -> np.ndarray:
    """Token ids, int32, that the chat template writes behind the assistant's message at `place` of an observation's.

    Args:
        tokenizer: A Hugging Face tokenizer with a chat template.
        observation: Its messages and tools; what the message at `place` says is not looked at.
        place: Where the assistant's message stands.
        last: Token with which its sampled tokens end.
        ends: Token ids that end an answer.
        style: What is added to the conversation.

    Raises:
        InputError: the template does not write what assistants say.
    """
    messages = list(observation.messages or ())
    mark = MARK
    while any(mark in str(message) for message in messages):
        mark += "]"
    messages[place] = {"role": "assistant", "content": mark}
    text = render(tokenizer, Observation("", messages=tuple(messages), tools=observation.tools), style)
    _, found, behind = text.rpartition(mark)
    if not found:
        raise InputError("the chat template does not write an assistant's content, so no history can grow under it")
    end = tokenizer.convert_ids_to_tokens(last) if last in set(ends) else None
    if end is None or not behind.startswith(end):
        return _ids(tokenizer, behind)
    # Tokenised together with the end mark, which is there already: what is at the start of a text may be cut otherwise.
    ids = _ids(tokenizer, behind)
    return ids[1:] if len(ids) and ids[0] == last else _ids(tokenizer, behind.removeprefix(end))


def _ids(tokenizer: Any, text: str) -> np.ndarray:
    return np.array(tokenizer(text, add_special_tokens=False, return_attention_mask=False)["input_ids"], np.int32)


def read(messages: str | None, tools: str | None = None, *, text: str = "") -> Observation:
    """Restores an `Observation` from a table row's JSON texts `messages` and `tools`, or from its text.

    >>> read('[{"role": "user", "content": "Hi"}]').messages
    ({'role': 'user', 'content': 'Hi'},)
    """
    said = None if messages is None else tuple(json.loads(messages))
    return Observation(text, messages=said, tools=() if tools is None else tuple(json.loads(tools)))


def sequences(frame: pl.DataFrame) -> pl.DataFrame:
    """Table of token sequences of a frame, continuing turns merged: group, episode, agent, part, turns, ids, mask.

    A row's prompt continues the agent's last turn in the episode iff it begins with that turn's prompt and action; else
    another part begins. mask: which ids were sampled; there are as many as `action_ids` has in all. This is what
    trainers that take whole conversations want. Here `learn.rows` says whether a row is a turn or a conversation.
    """
    keys = [key for key in ("run", "iteration", "group", "episode", "agent") if key in frame.columns]
    usable = frame.filter(pl.col("action_ids").is_not_null() & pl.col("prompt_ids").is_not_null())
    rows: list[Mapping[str, Any]] = []
    for place, turns in usable.sort("turn", maintain_order=True).group_by(keys, maintain_order=True):
        part, number = -1, 0
        ids: list[int] = []
        mask: list[bool] = []
        for prompt, action in turns.select("prompt_ids", "action_ids").iter_rows():
            if part < 0 or prompt[: len(ids)] != ids:
                part += 1
                number, ids, mask = 0, [], []
                rows.append({})
            new = prompt[len(ids) :]
            number, ids, mask = number + 1, ids + new + action, mask + [False] * len(new) + [True] * len(action)
            rows[-1] = dict(zip(keys, place, strict=True)) | {"part": part, "turns": number, "ids": ids, "mask": mask}
    own: dict[str, Any] = {key: frame.schema[key] for key in keys}
    made = {"part": pl.Int32, "turns": pl.Int32, "ids": pl.List(pl.Int32), "mask": pl.List(pl.Boolean)}
    return pl.DataFrame(rows, schema=own | made)
