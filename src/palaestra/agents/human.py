"""`HumanPolicy`: a person in a seat, who is asked on the terminal, or answers that somebody wrote into a file.

A person's turns are rows like all others: what was seen, what was answered, how long it took; and for an action of a
fixed set its id, so that others can learn from them. Left out: several people at several terminals.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TextIO

import numpy as np

from palaestra.agents.conversation import to_record
from palaestra.agents.policy import Decision, Request
from palaestra.envs.conversations import WORDS, ChatMessage
from palaestra.envs.protocol import Action, Observation
from palaestra.errors import InputError, StorageError, nearest

Say = Callable[[str], None]
Ask = Callable[[str], str | None]
"""From a prompt to a line; None at the end of the input."""
GONE = "the input ended, nobody is there to answer"


def ask_action(agent: str, observation: Observation, say: Say, ask: Ask) -> Action | None:
    """Asks a person, by functions `say` and `ask`, until the answer fits an `Observation`: that action; else None.

    None: the input ended.
    A legal action is given by its name, or by its number if no other has that name; any text else. A text that says
    more than the name, as a model's reply does, is returned as it is. A line that ends in a backslash goes on in the
    next.
    """
    legal = {name: observation.index(name) for name in observation.legal}
    if legal:
        say(
            "legal: " + ", ".join(f"{number} {name}" if str(number) != name else name for name, number in legal.items())
        )
    while True:
        lines = [ask(f"{agent}> ")]
        while lines[-1] is not None and lines[-1].endswith("\\"):
            lines[-1] = lines[-1][:-1]
            lines.append(ask("… "))
        if lines[-1] is None:
            return None
        answer = "\n".join(str(line) for line in lines).strip()
        if not legal and answer:
            return answer
        if legal and (found := observation.index(answer)) is not None:
            said = observation.choices[found] if observation.choices else ""
            return found if answer.casefold() == said.casefold() else answer
        if answer.isdecimal() and int(answer) in legal.values():
            return int(answer)
        say(f"{answer!r} is not legal{nearest(answer, legal)}" if legal else "say something")


class Shown:
    """Text for a person in each seat: the observation, or of a conversation the messages not shown to it before."""

    def __init__(self) -> None:
        self._before: dict[str, tuple[ChatMessage, ...]] = {}

    def text(self, agent: str, observation: Observation) -> str:
        """Text of an observation; of messages only those that this `agent` was not shown before."""
        if observation.messages is None:
            return observation.text
        before, talk = self._before.get(agent, ()), observation.conversation()
        self._before[agent] = talk
        goes_on = len(before) < len(talk) and talk[: len(before)] == before
        return "\n\n".join(f"[{each['role']}]\n{_content(each)}" for each in (talk[len(before) :] if goes_on else talk))


def _content(message: ChatMessage) -> str:
    """Content of a chat message, followed by its tool calls."""
    calls = [
        f"{each['function']['name']}({each['function'].get('arguments')})" for each in message.get("tool_calls") or ()
    ]
    return "\n".join([str(message.get("content") or ""), *calls]).strip()


class HumanPolicy:
    """Policy that asks a person for each action at the terminal, or reads answers from a file.

    With Ctrl-C the run stops. At the end of the input (Ctrl-D) this turn has an error, and so has every later one
    without anybody being asked, so what was played before stays.

    Args:
        name: Of the policy.
        answers: File with an answer a line, in the order in which they are asked for, in place of a person.
        say, ask: How to talk to the person; default: on the terminal, what is shown on standard error.

    Raises:
        InputError: nobody can be asked, because standard input is no terminal.
        StorageError: the file cannot be read.
    """

    waits = False  # one terminal, one question at a time

    def __init__(
        self, *, name: str = "human", answers: str | Path | None = None, say: Say | None = None, ask: Ask | None = None
    ) -> None:
        self.name, self._gone = name, ""
        self._shown = Shown()
        self._written = None if answers is None else _Answers(Path(answers))
        self._say: Say = say or (_unheard if self._written else _on_stderr)
        if self._written is not None:
            self._ask: Ask = self._written.next
        else:
            self._ask = ask or _Terminal().next

    @classmethod
    def seated(cls, *, name: str = "human", answers: str | None = None) -> HumanPolicy:
        """Makes the policy of a person at the terminal, or of the answers in a file.

        answers: file with an answer a line, in the order in which they are asked for; default: a person is asked for
        each, and standard input has to be a terminal. With Ctrl-C the run stops; after Ctrl-D turns have errors.
        """
        return cls(name=name, answers=answers)

    def act(self, requests: Sequence[Request]) -> list[Decision]:
        """Ask the person one question per request."""
        return [self._decide(request) for request in requests]

    def _decide(self, request: Request) -> Decision:
        if self._gone:
            return Decision("", error=self._gone)
        start, seen = time.perf_counter(), request.observation
        self._say(f"\n{request.agent} sees:\n{self._shown.text(request.agent, seen)}")
        action = ask_action(request.agent, seen, self._say, self._ask)
        if action is None:
            self._gone = f"InputError: {self._written.end if self._written else GONE}"
            return Decision("", error=self._gone)
        decision = Decision(action, messages=to_record(seen, WORDS), duration=time.perf_counter() - start)
        if (chosen := seen.index(action)) is not None:
            decision.action_ids = np.array([chosen], np.int32)
        return decision


class _Answers:
    """Lines of a file, one after the other."""

    def __init__(self, path: Path) -> None:
        try:
            self._lines = path.read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise StorageError(f"human: answers of {path} cannot be read: {error}") from error
        self._left, self.end = iter(self._lines), f"{path} has {len(self._lines)} answers, and more are asked for"

    def next(self, prompt: str) -> str | None:
        return next(self._left, None)


class _Terminal:
    """The terminal that this process was started at; a worker process opens it anew, since it has no input."""

    def __init__(self) -> None:
        self._file: TextIO | None = sys.stdin if sys.stdin is not None and sys.stdin.isatty() else None
        if self._file is None and multiprocessing.parent_process() is not None:
            with contextlib.suppress(OSError):
                self._file = open("/dev/tty", encoding="utf-8")  # noqa: SIM115 - as long as the policy
        if self._file is None:
            raise InputError(
                "human: standard input is no terminal, so nobody can be asked: run this at one, or give a file with an"
                " answer a line (options: {answers: FILE})"
            )

    def next(self, prompt: str) -> str | None:
        sys.stderr.write(prompt)
        sys.stderr.flush()
        assert self._file is not None
        line = self._file.readline()
        return line.rstrip("\r\n") if line else None


def _on_stderr(text: str) -> None:
    """Print without what a terminal would obey."""
    plain = "".join(sign if sign.isprintable() or sign in "\n\t" else ascii(sign)[1:-1] for sign in text)
    print(plain, file=sys.stderr, flush=True)


def _unheard(text: str) -> None:
    """Nobody reads along."""
