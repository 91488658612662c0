"""Calls of a run's judges, kept in its folder as they are answered: a run that was killed pays for none of them twice.

A call is known by its endpoint, its model, all that was sent (sampling options included) and the number of the sample,
so that several answers to one question stay several. Files are `Ledger`s: SQLite with a checksum for every row. They
hold no question, no address and no key. Left out: who plays; two systems that are compared must not share answers.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from palaestra.agents.backends.endpoint import OPENAI
from palaestra.agents.chat import ChatPolicy
from palaestra.agents.policy import Decision
from palaestra.judges.asking import Reply
from palaestra.judges.endpoint import Budget
from palaestra.judges.judged import endpoints_of
from palaestra.judges.ledger import SAID, Ledger, LedgerTotal

LIMIT = 256 * 2**20
"""Bytes of answers that one file keeps."""


class KeptCalls:
    """Store of a run's calls to models: one `Ledger` file per endpoint, model and budget, each opened on first use.

    Args:
        folder: Where the files are.
        limit: Most bytes of answers in a file; beyond it the oldest are forgotten. None: all are kept, as in a file
            with a budget.
    """

    def __init__(self, folder: str | Path, *, limit: int | None = LIMIT) -> None:
        self.folder, self.limit = Path(folder), limit
        self._open: dict[Path, Ledger] = {}

    def ledger(self, addresses: tuple[str, ...], model: str, budget: Budget | None = None) -> Ledger:
        """The ledger of calls to a model at an endpoint, opened on first use."""
        limited = budget is not None and budget != Budget()
        told = [sorted(addresses), model, [budget.calls, budget.tokens, budget.price] if budget and limited else None]
        digest = hashlib.sha256(json.dumps(told).encode()).hexdigest()[:12]
        path = self.folder / f"{re.sub('[^A-Za-z0-9.-]+', '-', model)[-40:].strip('.-')}-{digest}.sqlite"
        if path not in self._open:
            self._open[path] = Ledger(path, limit=None if limited else self.limit)
        return self._open[path]

    def attach(self, judge: Any, *, again: bool = True) -> None:
        """Keep the calls of a `ChatPolicy`, or of the endpoints of a scorer, in their ledgers; others are left alone.

        again: What an endpoint was asked and never answered, so that it may have been paid for, is asked again.
        """
        if isinstance(judge, ChatPolicy):
            own = os.environ.get("OPENAI_BASE_URL") or OPENAI
            addresses = tuple(each or own for each in judge.addresses)
            judge.keeper = KeptAnswers(self.ledger(addresses, judge.model))
        for asker in endpoints_of(judge):
            if asker.ledger.path is None:
                asker.ledger, asker.again = self.ledger((asker.base_url,), asker.model, asker.budget), again

    def close(self) -> None:
        """Commit and close all ledgers, so that another process can write them."""
        for each in self._open.values():
            each.close()
        self._open.clear()


class KeptAnswers:
    """Store of a `ChatPolicy`'s answers in a ledger, each written before it is used; see `agents.chat.AnswerKeeper`."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger, self._lock = ledger, threading.Lock()

    def find(self, body: Mapping[str, Any], draw: int) -> Decision | None:
        """The kept answer to a request, with what it took when it was asked; None if there is none."""
        key = key_of(body, draw)
        with self._lock:
            reply = self.ledger.known([key]).get(key)
        if reply is None or reply.text is None:
            return None
        told = json.loads(reply.text)
        logprobs = told.pop("logprobs")
        return Decision(
            **told,
            logprobs=None if logprobs is None else np.array(logprobs, np.float32),
            duration=reply.duration,
            known=True,
        )

    def add(self, body: Mapping[str, Any], draw: int, decision: Decision) -> None:
        """Write an answer; it is in the file when this returns."""
        told: dict[str, Any] = {name: getattr(decision, name) for name in _KEPT}
        told["logprobs"] = None if decision.logprobs is None else decision.logprobs.tolist()
        tokens = (decision.tokens_in or 0, decision.tokens_out or 0)
        reply = Reply(json.dumps(told), None, *tokens, decision.cost or 0.0, decision.duration or 0.0)
        key, most = key_of(body, draw), LedgerTotal(1, sum(tokens), reply.cost)
        with self._lock:
            self.ledger.settle(self.ledger.send(key, *tokens, reply.cost), key, SAID, reply, most)
            self.ledger.commit()


_KEPT = ("action", "finish", "tokens_in", "tokens_out", "cost")


def key_of(body: Mapping[str, Any], draw: int) -> str:
    """SHA-256 key of a request `body` and the number `draw` of its sample; nothing of the request can be read from it.

    >>> key_of({"model": "m", "seed": 1}, 1) == key_of({"seed": 1, "model": "m"}, 1) != key_of({"model": "m"}, 1)
    True
    """
    return hashlib.sha256(json.dumps([body, draw], sort_keys=True).encode()).hexdigest()
