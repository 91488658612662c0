"""Answers of servers that have a policy's weights: asked, gone on with where they were broken off, checked by version.

Which servers those are, and who gave them the weights, is a subclass's: `Serving` in the process that learns,
`Borrower` in workers.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from palaestra.agents.backends.answering import Outcome, sampled
from palaestra.agents.backends.server import (
    NOTHING,
    AbortedError,
    AbsentError,
    GoneError,
    LateError,
    SampledAnswer,
    ServerError,
)
from palaestra.agents.backends.weights import WeightServer
from palaestra.agents.lm import LMPolicy
from palaestra.agents.policy import Decision, Request
from palaestra.errors import PolicyError

ATTEMPTS = 3


class Asking:
    """Base class of policies that servers answer for.

    Attributes:
        lm: Language model that shows observations to the servers and reads their answers.
        servers: Those that may be asked.
        number: Of the weights, updates so far; None if nobody said it.
        inflight: Whether the servers may be given other weights while they answer.
    """

    waits = True
    inflight = False
    lm: LMPolicy
    servers: list[WeightServer]
    number: int | None = None
    _changing: contextlib.AbstractContextManager[Any]

    def _ready(self) -> tuple[list[WeightServer], str]:
        """Servers that have the weights, and the digest of these. Raises PolicyError if there is none."""
        raise NotImplementedError

    def _turn(self) -> contextlib.AbstractContextManager[None]:
        """Context in which the servers keep the weights."""
        return contextlib.nullcontext()

    def _ours(self, server: WeightServer) -> bool:
        """Whether this run started the server, which has then had nothing but what it was given."""
        return server.child is not None

    def _said_by(
        self, server: WeightServer, prompts: Sequence[np.ndarray], said: Sequence[SampledAnswer]
    ) -> list[bool]:
        """Whether the weights have said each of these beginnings of answers, of a server that cannot be asked."""
        return server.said_by(self.lm, prompts, said)

    def act(self, requests: Sequence[Request]) -> list[Decision]:
        """Ask the server for all answers at once; an answer that fails is a decision with `error`."""
        start = time.perf_counter()
        lm = self.lm
        shown = lm.shown(requests)
        prompts = [prompt.ids for prompt in shown]
        seeds = [int(request.rng.integers(2**31)) for request in requests]
        decisions = [Decision("", tokens_in=len(prompt.ids), error=prompt.error) for prompt in shown]
        fit = [i for i, decision in enumerate(decisions) if decision.error is None]
        answers = self.answers([prompts[i] for i in fit], [seeds[i] for i in fit])
        good = [answer for answer in answers if isinstance(answer, SampledAnswer)]
        texts = iter(lm._texts([answer.ids for answer in good]) if good else ())
        for i, answer in zip(fit, answers, strict=True):
            if isinstance(answer, SampledAnswer):
                decisions[i] = Decision(
                    next(texts),
                    prompts[i],
                    answer.ids,
                    answer.logprobs,
                    finish="stop" if answer.ids[-1] in lm._ends else "length",
                    tokens_in=len(prompts[i]),
                    tokens_out=len(answer.ids),
                    token_versions=answer.versions,
                )
            else:
                decisions[i].error = f"{type(answer).__name__}: {answer}"
        seconds = (time.perf_counter() - start) / max(1, len(requests))
        for decision, prompt, request in zip(decisions, shown, requests, strict=True):
            decision.duration, decision.prefix = seconds, prompt.prefix
            decision.messages = lm.recorded(request)
        return decisions

    def answers(self, prompts: Sequence[np.ndarray], seeds: Sequence[int]) -> list[SampledAnswer | PolicyError]:
        """Sampled answers of the servers with the current weights, or errors.

        What is missing is asked for again, `ATTEMPTS` times in all: the rest of an answer that was broken off, or the
        whole answer if nothing came of it, or if it is not sure that these weights said it.
        """
        lm, ends = self.lm, [int(end) for end in self.lm._ends]
        found: list[SampledAnswer | PolicyError] = [GoneError("not asked") for _ in prompts]
        begun, told, again = [NOTHING] * len(prompts), None, list(range(len(prompts)))
        with self._turn():
            for _ in range(ATTEMPTS):
                if not again:
                    break
                try:
                    there, digest = self._ready()
                except PolicyError as error:
                    return [error if i in again else each for i, each in enumerate(found)]
                if digest != told and not self.inflight:
                    begun, told = [NOTHING] * len(prompts), digest
                outcomes = sampled(
                    there,
                    lm,
                    digest,
                    [prompts[i] for i in again],
                    [seeds[i] for i in again],
                    tokens=lm.max_new_tokens,
                    ends=ends,
                    begun=[begun[i] for i in again],
                    inflight=self.inflight,
                )
                late: dict[WeightServer, LateError] = {}
                kept = self._kept(outcomes, digest, [prompts[i] for i in again])
                tried, again = again, []
                for i, outcome, said in zip(tried, outcomes, kept, strict=True):
                    found[i], before = outcome.answer, len(begun[i].ids)
                    if isinstance(outcome.answer, LateError) and len(self.servers) > 1:
                        late[outcome.server] = outcome.answer
                    if said is None:
                        found[i], begun[i] = GoneError("the server had other weights when it had answered"), NOTHING
                        again.append(i)
                    elif isinstance(outcome.answer, ServerError):
                        begun[i] = said
                        outcome.server.kept += (more := len(said.ids) - before)
                        passes = isinstance(outcome.answer, GoneError | AbsentError | AbortedError)
                        if passes or (isinstance(outcome.answer, LateError) and (len(self.servers) > 1 or more > 0)):
                            again.append(i)
                for server, why in late.items():
                    server.absent(why)
        return found

    def _kept(
        self, outcomes: Sequence[Outcome], digest: str, prompts: Sequence[np.ndarray]
    ) -> list[SampledAnswer | None]:
        """Tokens of each outcome that these weights have said; None where others may have.

        A server that has them still has had them all the time, and a child has had nothing but what it was given. One
        of somebody else's that is gone cannot be asked: what it said is compared with the weights here.
        """
        kept: list[SampledAnswer | None] = [outcome.said for outcome in outcomes]
        with self._changing:
            for server in {outcome.server for outcome in outcomes}:
                if self._ours(server) or self._still(server, server.digest if self.inflight else digest):
                    continue
                rows = [i for i, each in enumerate(outcomes) if each.server is server and len(each.said.ids)]
                true = self._said_by(server, [prompts[i] for i in rows], [outcomes[i].said for i in rows])
                for i, each in zip(rows, true, strict=True):
                    versions = outcomes[i].said.versions
                    if not each or (versions is not None and (versions != self.number).any()):
                        kept[i] = None
        return kept

    def _still(self, server: WeightServer, digest: str | None) -> bool:
        try:
            return server.serves(self.lm, digest)
        except ServerError:
            return False
