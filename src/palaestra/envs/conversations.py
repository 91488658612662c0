"""Messages for chat models: written from templates, for the policy that reads them, when it reads them.

Small policies read `Observation.text` and cost no template. Texts are Jinja templates in the folder `prompts` of their
package; templates of users run in Jinja's sandbox. Left out: how messages become tokens
(`palaestra.agents.conversation`).
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, overload

from palaestra.errors import InputError, nearest

if TYPE_CHECKING:
    import jinja2

ChatMessage = Mapping[str, Any]
"""`{"role", "content"}`, of assistants also `tool_calls`."""


def words(text: str) -> int:
    """Approximate token count of a text by a regular expression: words, digits in threes, and signs; int.

    >>> words("The old mill keeps 12345 sacks.")
    8
    """
    return len(_WORD.findall(text))


def first_words(text: str, limit: int) -> str:
    """The longest beginning of a text that has at most `limit` tokens, counted as the function `words` counts."""
    for number, found in enumerate(_WORD.finditer(text)):
        if number == limit:
            return text[: found.start()].rstrip()
    return text


_WORD = re.compile(r"\d{1,3}|[^\W\d]+|[^\w\s]")


class Reader(NamedTuple):
    """Settings with which messages are written for a policy: token counter, text cutter, whether replies are JSON.

    Attributes:
        count: Number of tokens of a text.
        first: (text, limit) -> its beginning, at most so many tokens.
        structured: Whether the reply is held to `Observation.schema`, so it is JSON.
    """

    count: Callable[[str], int] = words
    first: Callable[[str, int], str] = first_words
    structured: bool = False


WORDS = Reader()


class Conversation(Sequence[ChatMessage]):
    """Lazy sequence of chat messages: `write(reader)` makes them when they are first read, and they are cached.

    Args:
        write: Makes the messages for a reader.

    >>> talk = Conversation(lambda reader: [{"role": "user", "content": "Hi"}])
    >>> len(talk), talk[0]["content"]
    (1, 'Hi')
    """

    __slots__ = ("_messages", "_reader", "_write")

    def __init__(self, write: Callable[[Reader], Iterable[ChatMessage]]) -> None:
        self._write = write
        self._reader: Reader | None = None
        self._messages: tuple[ChatMessage, ...] = ()

    def for_reader(self, reader: Reader) -> tuple[ChatMessage, ...]:
        """The messages as a tuple, made for this reader (a policy's tokenizer and form of reply) and cached."""
        if self._reader != reader:
            self._messages, self._reader = tuple(self._write(reader)), reader
        return self._messages

    @property
    def _written(self) -> tuple[ChatMessage, ...]:
        return self.for_reader(self._reader or WORDS)

    def __len__(self) -> int:
        return len(self._written)

    def __iter__(self) -> Iterator[ChatMessage]:
        return iter(self._written)

    @overload
    def __getitem__(self, place: int) -> ChatMessage: ...
    @overload
    def __getitem__(self, place: slice) -> tuple[ChatMessage, ...]: ...
    def __getitem__(self, place: int | slice) -> ChatMessage | tuple[ChatMessage, ...]:
        return self._written[place]

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, tuple | Conversation) and self._written == tuple(other))

    def __hash__(self) -> int:
        return hash(len(self._written))

    def __reduce__(self) -> tuple[Any, ...]:
        return tuple, (self._written,)


class Templates:
    """Renderer of Jinja templates of chat prompts: those of `package` by name, and users' texts that extend those."""

    def __init__(self, package: str) -> None:
        self.package = package

    def render(self, name: str, values: Mapping[str, Any]) -> str:
        """Render the shipped template `name` (its file without `.j2`)."""
        return self._environment.get_template(f"{name}.j2").render(values).strip()

    def render_text(self, source: str, values: Mapping[str, Any]) -> str:
        """Render a user's template text, in a sandbox.

        Raises:
            InputError: it does what the sandbox forbids, or fails.
        """
        from jinja2 import TemplateError

        try:
            return self._of_text(source).render(values).strip()
        except TemplateError as error:
            raise InputError(f"the template {source[:60]!r}: {error}") from error

    def check_text(self, source: str, known: Iterable[str], where: str) -> None:
        """Raise InputError unless a user's text is a valid template with known variables only.

        Raises:
            InputError: it cannot be read, or has another variable.
        """
        import jinja2.meta

        try:
            tree = self._environment.parse(source)
        except jinja2.TemplateSyntaxError as error:
            raise InputError(f"{where}: line {error.lineno} is no Jinja template: {error.message}") from error
        for name in sorted(jinja2.meta.find_undeclared_variables(tree) - set(known)):
            raise InputError(
                f"{where}: there is no {{{{ {name} }}}}{nearest(name, known)}; there are {', '.join(known)}"
            )

    def names(self) -> list[str]:
        """Names of the shipped templates."""
        return sorted(name.removesuffix(".j2") for name in self._environment.list_templates())

    def sources(self) -> str:
        """All shipped templates as one text, for digests."""
        loader = self._environment.loader
        assert loader is not None
        return "\0".join(loader.get_source(self._environment, f"{name}.j2")[0] for name in self.names())

    @functools.cached_property
    def _environment(self) -> jinja2.Environment:
        from jinja2 import PackageLoader, StrictUndefined
        from jinja2.sandbox import ImmutableSandboxedEnvironment

        return ImmutableSandboxedEnvironment(
            loader=PackageLoader(self.package, "prompts"),
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
            keep_trailing_newline=True,
        )

    @functools.cached_property
    def _of_text(self) -> Callable[[str], jinja2.Template]:
        return functools.lru_cache(256)(self._environment.from_string)


TEMPLATES = Templates("palaestra.envs")


def opening(system: str, user: str) -> tuple[ChatMessage, ...]:
    """Tuple of chat messages (system, user) from two texts; without the system message if `system` is empty."""
    asked = {"role": "user", "content": user}
    return ({"role": "system", "content": system}, asked) if system else (asked,)


def without_system(messages: Sequence[ChatMessage]) -> tuple[ChatMessage, ...]:
    r"""Tuple of the messages with the system message merged into the first user message, for models without one.

    >>> without_system(opening("Be brief.", "Hi"))
    ({'role': 'user', 'content': 'Be brief.\n\nHi'},)
    """
    if len(messages) < 2 or messages[0].get("role") != "system" or messages[1].get("role") != "user":
        return tuple(messages)
    system, user, *more = messages
    return ({**user, "content": f"{system['content']}\n\n{user['content']}"}, *more)


def action_request(text: str, legal: Sequence[str], reader: Reader, *, speech: bool = False) -> str:
    """Text of the user message that asks for an action: `text`, legal actions, and the form of reply for a `Reader`.

    speech: others hear what is said before the action; the text says so.
    """
    values = {"text": text, "legal": legal, "structured": reader.structured, "speech": speech}
    return TEMPLATES.render("action", values)


def choosing(text: str, legal: Sequence[str], reader: Reader) -> tuple[ChatMessage, ...]:
    """Tuple with one user message: `text`, then any legal actions with the form of reply; `reader`: settings of it."""
    return opening("", action_request(text, legal, reader) if legal else text)
