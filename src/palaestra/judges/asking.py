"""Asking a model many questions at once: each distinct prompt once, read by a function, remembered in a file.

Left out: retries of a failed request, rate limits and keys; they are the policy's (`agents.ChatPolicy`).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from palaestra.agents.policy import Policy, Request
from palaestra.envs.protocol import Observation
from palaestra.errors import InputError, StorageError
from palaestra.foundation.checksums import digest, signed
from palaestra.foundation.files import open_to_append

Answer = TypeVar("Answer")


class AnswerCache:
    """Cache of answers by (policy, prompt, number of the vote), in memory and, with a path, in a file of JSON lines.

    Only answers that could be read are kept; a line that is not whole, such as the last one after a crash, is skipped.
    Every line has a checksum.

    Raises:
        StorageError: the file cannot be read or written, or a line was changed after it was written.
    """

    def __init__(self, path: str | Path | None = None) -> None:
        self.path = None if path is None else Path(path)
        self.answers: dict[str, str] = {}
        if self.path is None or not self.path.exists():
            return
        try:
            lines = self.path.read_text("utf-8").split("\n")  # splitlines would also split inside a text, at U+2028
        except (OSError, UnicodeDecodeError) as error:
            raise StorageError(f"{self.path}: not a readable cache of answers ({error})") from error
        for number, line in enumerate(lines, 1):
            try:
                entry = json.loads(line)
                key, answer, checksum = str(entry["key"]), str(entry["answer"]), entry.get("checksum")
            except (ValueError, TypeError, KeyError, AttributeError):
                continue
            if checksum != digest(entry):
                raise StorageError(
                    f"{self.path}, line {number}: the answer was changed after it was written. Restore the file from a "
                    "backup, or delete the line, and its question is asked again"
                )
            self.answers[key] = answer

    def __len__(self) -> int:
        return len(self.answers)

    @staticmethod
    def key(policy: str, prompt: str, vote: int) -> str:
        """Cache key of an answer; neither the prompt nor the answer can be read from it."""
        return hashlib.sha256(json.dumps([policy, prompt, vote]).encode()).hexdigest()

    def add(self, entries: dict[str, str]) -> None:
        """Add answers to the cache and, with a path, to its file."""
        self.answers |= entries
        if self.path is None or not entries:
            return
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            torn = self.path.exists() and self.path.stat().st_size > 0 and not self.path.read_bytes().endswith(b"\n")
            with open_to_append(self.path) as file:
                file.write("\n" * torn)
                rows = (signed({"key": key, "answer": answer}) for key, answer in entries.items())
                file.writelines(json.dumps(row) + "\n" for row in rows)
        except OSError as error:
            raise StorageError(f"cannot write {self.path}: {error}") from error


@dataclass(slots=True)
class Reply:
    """Result data of one question: its text, or why there is none, and the tokens, cost and time of all attempts.

    known: it was known already, so nothing was asked now. What it takes is then what it took when it was asked (of a
    ledger), or nothing (of a cache, or of a question that stands there twice).
    """

    text: str | None = None
    error: str | None = None
    tokens_in: int = 0
    tokens_out: int = 0
    cost: float = 0.0
    duration: float = 0.0
    known: bool = False


Read = Callable[[str], Answer | None]


def ask(
    policy: Policy,
    prompts: Sequence[tuple[str, int]],
    read: Read[Answer] | Sequence[Read[Answer]],
    *,
    cache: AnswerCache | None = None,
    attempts: int = 2,
    seed: int = 0,
    agent: str = "judge",
    fields: Sequence[str] = (),
) -> list[Answer | None]:
    """Ask a policy (prompt, vote number) pairs in one batch; answers parsed by function `read`, None where that failed.

    read: one function, or one for each prompt. All distinct prompts go to the policy in one batch. An answer that is
    read as None is asked for again, at most `attempts` times in all; a request that the policy itself reports as failed
    is not, the policy has retried it. What a prompt draws from depends on the prompt, its vote and the seed, not on its
    neighbours. fields: of the reply, to whose JSON schema an endpoint is held that knows one.

    Raises:
        InputError: attempts is not positive.
    """
    reads = [read] * len(prompts) if callable(read) else list(read)
    found = replies(policy, prompts, reads, cache=cache, attempts=attempts, seed=seed, agent=agent, fields=fields)
    return [None if each.text is None or each.error else how(each.text) for each, how in zip(found, reads, strict=True)]


def replies(
    policy: Policy,
    prompts: Sequence[tuple[str, int]],
    reads: Sequence[Read[Any]],
    *,
    cache: AnswerCache | None = None,
    attempts: int = 2,
    seed: int = 0,
    agent: str = "judge",
    fields: Sequence[str] = (),
) -> list[Reply]:
    """As `ask`, but a list of unparsed `Reply` (text, error, tokens, cost); functions `reads` tell what to ask again.

    Equal prompts are paid for once.
    """
    if attempts < 1:
        raise InputError(f"ask: {attempts=} must be at least 1")
    known: AnswerCache = AnswerCache() if cache is None else cache
    keys = [known.key(policy.name, prompt, vote) for prompt, vote in prompts]
    how = dict(zip(keys, reads, strict=True))
    found: dict[str, Reply] = {}
    for key in set(keys) & known.answers.keys():
        if how[key](known.answers[key]) is not None:
            found[key] = Reply(known.answers[key], known=True)
    open_ = {key: prompt for key, (prompt, _) in zip(keys, prompts, strict=True) if key not in found}
    for attempt in range(attempts):
        if not open_:
            break
        streams = [np.random.default_rng([seed, attempt, *bytes.fromhex(key)]) for key in open_]
        observations = [Observation(prompt, fields=tuple(fields)) for prompt in open_.values()]
        requests = [Request(seen, agent, stream) for seen, stream in zip(observations, streams, strict=True)]
        fresh: dict[str, str] = {}
        for key, decision in zip(list(open_), policy.act(requests), strict=True):
            reply, text = found.setdefault(key, Reply()), str(decision.action)
            reply.text, reply.error = None if decision.error else text, decision.error
            reply.tokens_in += decision.tokens_in or 0
            reply.tokens_out += decision.tokens_out or 0
            reply.cost += decision.cost or 0.0
            reply.duration += decision.duration or 0.0
            readable = not decision.error and how[key](text) is not None
            if readable:
                fresh[key] = text
            if decision.error or readable:
                del open_[key]
        known.add(fresh)
    first = dict(zip(reversed(keys), reversed(range(len(keys))), strict=True))
    again = {key: Reply(reply.text, reply.error, known=True) for key, reply in found.items()}
    return [found[key] if first[key] == row else again[key] for row, key in enumerate(keys)]
