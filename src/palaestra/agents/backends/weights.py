"""One server and the weights that it was last seen to answer with: started, given weights, compared, looked at again.

`serving` keeps the servers of a policy alike; here is what concerns one of them.
"""

from __future__ import annotations

import asyncio
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from palaestra.agents.backends.answering import digest_in, sampled
from palaestra.agents.backends.dialects import LOADING, Dialect, encoded
from palaestra.agents.backends.launch import ServerProcess
from palaestra.agents.backends.ray_servers import RayServer
from palaestra.agents.backends.sampling import evaluate
from palaestra.agents.backends.server import (
    Client,
    GoneError,
    LateError,
    SampledAnswer,
    ServedModel,
    ServerError,
)
from palaestra.agents.backends.transfers import Transfer, send
from palaestra.agents.backends.weight_files import adapting, fingerprint, written
from palaestra.agents.lm import LMPolicy
from palaestra.errors import InputError, PolicyError

PROBES, PROBE_TOKENS = 8, 12
"""Answers, and tokens in each and in its prompt, that are compared after a sync."""
EXACT = 1e-4
"""Nats per token that two engines in float32 may differ by, whatever they differed by at the start."""
COMPARED = 4096
"""Padded tokens of beginnings that are compared at once."""
GROWTH = 5.0
"""How many times what it was at the first sync the difference may be."""
_TEXT = 'The quick brown fox says: 12 + 34 = 46, {"a": [1, 2]}; naïve, 漢字.\n'


@dataclass(frozen=True)
class ServerSettings:
    """Data of settings that a policy's servers share: dialect, weights folder, tolerance, engine options, replicas.

    Attributes:
        policy: Name of the policy, for messages and adapters.
        dialect: How they are spoken to.
        connect: Makes the client of an address.
        folder: Folder in which weights are written, one folder per digest.
        tolerance: Nats per token that their log-probabilities may differ by.
        engine: vLLM's options, for servers that are started here.
        replicas: Number of servers.
        stream: Whether answers are asked for token by token, so that one that is broken off can be gone on with.
        transfer: Way of whole weights to them; None: a folder.
        cluster: Address of a Ray cluster on which they are started; None: on this machine.
    """

    policy: str
    dialect: Dialect
    connect: Callable[[str], Client]
    folder: Path
    tolerance: float
    engine: Mapping[str, Any]
    replicas: int = 1
    stream: bool = True
    transfer: Transfer | None = None
    cluster: str | None = None


class WeightServer:
    """Client of one of a policy's servers; starts it if it is a child, gives it weights and knows which it has.

    Attributes:
        client: Its connections; None for one that is not started yet.
        child: The process, if it was started here.
        served_name: What it calls its model.
        digest: Of the weights with which it was last seen to answer; None if it has to be given some.
        under_way: Requests that it is answering.
        sent: All requests that it got.
        loaded: How often it was given weights.
        kept: Tokens of answers that it broke off, and that were gone on with.
        number: Of its weights, updates so far; None if nobody said it.
        changing: Set once it has the weights that it is being given while it answers; None: it is given none.
        changes: How often that was so.
        sending: Requests for answers that are under way.
        transfer: Way of whole weights to it; None: a folder, since it was asked for or since the other way failed.
    """

    def __init__(
        self, settings: ServerSettings, place: int = 0, *, url: str | None = None, served_name: str | None = None
    ) -> None:
        self.settings, self.place, self.served_name = settings, place, served_name
        self.client = None if url is None else settings.connect(url)
        self.child: ServerProcess | RayServer | None = None
        self.transfer = settings.transfer
        self._sent: str | None = None  # the digest of the last weights that it was sent
        self._adapters: set[str] = set()  # those that it was given here and that were not taken away yet
        self.digest: str | None = None
        self.under_way = self.sent = self.loaded = self.kept = 0
        self.number: int | None = None
        self.changing: asyncio.Event | None = None
        self.changes = 0
        self.sending: set[asyncio.Future[Any]] = set()
        self._launched: float | None = None  # when the child was started that has not answered yet
        self._first: float | None = None
        self._pause, self._asked = 0.0, 0.0

    # Whether it is there

    @property
    def loading(self) -> bool:
        """Whether its child was started and has not answered yet."""
        return self._launched is not None

    @property
    def resting(self) -> bool:
        """Whether it was absent a moment ago, so that asking it again would be too early."""
        return time.monotonic() < self._asked + self._pause

    def absent(self, error: ServerError, *, answered: bool = False) -> None:
        """Record that it did not answer: the next question waits, twice as long each time, at most half a minute.

        One that keeps its caller waiting is asked after a minute at the earliest, and then after ten at most.
        answered: it did a moment ago, which is worth a warning; so is one that has weights.
        """
        if answered or self.digest is not None:
            warnings.warn(f"ServedPolicy {self.settings.policy!r}: {error}; waiting for it", stacklevel=2)
        self.digest = None
        least, most = (60.0, 600.0) if isinstance(error, LateError) else (0.25, 30.0)
        self._pause, self._asked = min(most, max(least, 2 * self._pause)), time.monotonic()

    def start(self, lm: LMPolicy, *, wait: bool) -> None:
        """Make sure that there is a client, and behind it the child that is ours, if one is; started again if it died.

        wait: until a child answers.

        Raises:
            GoneError: the child does not answer yet, and `wait` is False.
            PolicyError: it ended before it ever answered.
        """
        if self.child is not None and not self.child.alive:
            loading, died = self.loading, self._left()
            if loading:
                raise died
            warnings.warn(f"ServedPolicy {self.settings.policy!r}: {died}; it is started again", stacklevel=2)
        if self.client is None:
            self._launch(lm)
        assert self.client is not None
        while self.loading:
            try:
                self.settings.dialect.models(self.client)
                self._launched = None
            except ServerError as error:
                assert self.child is not None
                assert self._launched is not None
                if not self.child.alive or time.monotonic() - self._launched > LOADING:
                    raise self._left() from None
                if not wait:
                    raise GoneError(f"{self.client.url} is starting") from error
                time.sleep(0.25)
        if self.served_name is None:
            self.served_name = next(iter(self.settings.dialect.models(self.client)), "")

    def _left(self) -> PolicyError:
        """Why the child ended; what is left of it is ended, and nothing is kept of it."""
        assert self.child is not None
        died = self.child.died()
        self.close()
        return died

    def _forget(self) -> None:
        if self.client is not None and self.settings.transfer is not None:
            self.settings.transfer.forget(self.client)

    def _launch(self, lm: LMPolicy) -> None:
        """Start a child with the weights that are here."""
        folder, rank = self.settings.folder / fingerprint(lm), 0
        if adapting(lm):
            adapters = lm.model.peft_config.values()
            rank = max(int(each.r) for each in adapters)
            base = next(iter(adapters)).base_model_name_or_path
            if not base:
                raise InputError(
                    f"ServedPolicy {self.settings.policy!r}: its adapter names no base that a server could load"
                )
        else:
            base = str(written(lm, folder))
        self.served_name = self.served_name or "policy"
        transfer = None if self.transfer is None or rank else self.transfer.backend
        given: dict[str, Any] = {"model": self.served_name, "rank": rank, "transfer": transfer}
        settings = self.settings
        if settings.cluster is not None:
            self.child = RayServer(base, cluster=settings.cluster, options=settings.engine, **given)
        else:
            log = settings.folder / ("server.log" if settings.replicas == 1 else f"server-{self.place}.log")
            self.child = ServerProcess(
                base, log=log, options=settings.engine, place=self.place, replicas=settings.replicas, **given
            )
        if self.transfer is not None and not (self.child.transfers or rank):
            self.transfer.said = self.transfer.said or self.transfer.auto
            self._by_folder("its vLLM has no weight transfer as 0.32 has it")
        self.client, self._launched = self.settings.connect(self.child.url), time.monotonic()

    # Its weights

    def serves(self, lm: LMPolicy, digest: str | None) -> bool:
        """Whether it has the weights of this digest, by its own word, and was seen to answer with them."""
        return digest is not None and digest == self.digest and self.holds(lm, digest)

    def holds(self, lm: LMPolicy, digest: str) -> bool:
        """Whether it has the weights of this digest, by its own word."""
        assert self.client is not None
        if adapting(lm):
            return self.adapter(digest) in self.settings.dialect.models(self.client)
        return digest_in(self.settings.dialect.version(self.client)) == digest

    def trust(self, digest: str) -> None:
        """Count it as one that answers with these weights, as another process has seen."""
        self.digest, self._pause = digest, 0.0

    def give(self, lm: LMPolicy, digest: str, label: str, folder: Callable[[], Path]) -> None:
        """Give it these weights and compare; until both went well it counts as one that has nothing.

        Whole weights go by `transfer`. If that fails, or they are others afterwards, by a folder, now and later.

        Args:
            lm: Whose weights.
            digest: Of the weights.
            label: What the server shall call them.
            folder: Writes them, if need be, and says where.
        """
        assert self.client is not None
        dialect, old, failed = self.settings.dialect, self.digest, None
        self.digest = None
        self._compare_tokenizers(lm)
        if self.transfer is not None and not adapting(lm):
            try:
                self._send(lm, digest, label)
            except (GoneError, LateError):
                raise
            except PolicyError as error:
                failed = error
        if self.transfer is None or adapting(lm) or failed is not None:
            if not adapting(lm):
                dialect.load(self.client, self._there(folder()), label)
            else:
                self._adapt(digest, old, folder)
            self._compare(lm, digest)
        if failed is not None:
            self._by_folder(str(failed))
        self.loaded, self._pause = self.loaded + 1, 0.0
        if adapting(lm) and self._adapters != {self.adapter(digest)}:
            for name in dialect.models(self.client):
                if name in self._adapters and name != self.adapter(digest):
                    dialect.forget(self.client, name)
            self._adapters = {self.adapter(digest)}

    def _adapt(self, digest: str, old: str | None, folder: Callable[[], Path]) -> None:
        """Give it the adapter of these weights, unless it is there. old: what it answered with until now, if it did."""
        assert self.client is not None
        dialect = self.settings.dialect
        if old is None:  # whole weights end a pause, an adapter does not
            dialect.wake(self.client)
        self._adapters |= {self.adapter(each) for each in (old, digest) if each is not None}
        if self.adapter(digest) not in dialect.models(self.client):
            dialect.adapt(self.client, self.adapter(digest), self._there(folder()))

    def _there(self, folder: Path) -> Path:
        return folder if self.child is None else self.child.there(folder)

    def _send(self, lm: LMPolicy, digest: str, label: str) -> None:
        assert self.client is not None
        assert self.transfer is not None
        client, sent, self._sent = self.client, self._sent, None

        def again() -> bool:
            return sent is not None and digest_in(self.settings.dialect.version(client)) == sent

        send(self.transfer, client, lm, digest, label, again=again)
        self._compare(lm, digest)
        self._sent = digest

    def _by_folder(self, why: str) -> None:
        """Give up the transfer to this server; said once for all servers of the policy."""
        if self.transfer is not None and not self.transfer.said:
            self.transfer.said = True
            warnings.warn(
                f"ServedPolicy {self.settings.policy!r}: no transfer by {self.transfer.backend} ({why}); weights go "
                "through a folder",
                stacklevel=2,
            )
        self.transfer = None

    def adapter(self, digest: str | None) -> str:
        """Name of the adapter of these weights."""
        return f"{self.settings.policy}-{digest}"

    def model(self, lm: LMPolicy, digest: str | None) -> ServedModel:
        """Its names of the model and of the adapter that are asked."""
        return ServedModel(self.served_name or "", self.adapter(digest) if adapting(lm) else None)

    # What is compared

    def _compare_tokenizers(self, lm: LMPolicy) -> None:
        """Refuse a server that makes other ids of a text. Raises PolicyError."""
        assert self.client is not None
        theirs = encoded(self.client, self.served_name or "", _TEXT)
        ours = lm.tokenizer(_TEXT, add_special_tokens=False)["input_ids"]
        if theirs is not None and theirs != ours:
            at = next((i for i, (a, b) in enumerate(zip(theirs, ours)) if a != b), min(len(theirs), len(ours)))
            raise PolicyError(
                f"ServedPolicy {self.settings.policy!r}: {self.client.url} has another tokenizer: token {at} of "
                f"{_TEXT[:20]!r}… is {theirs[at : at + 1]} there, {ours[at : at + 1]} here; serve the folder that "
                "policy.export writes"
            )

    def _compare(self, lm: LMPolicy, digest: str) -> None:
        """Sample a few answers and compare log-probabilities; if they agree it counts as one that has these weights.

        Raises:
            PolicyError: it answers with other weights than those here.
        """
        assert self.client is not None
        rng = np.random.default_rng(0)
        marks = {*lm.tokenizer.all_special_ids, *lm.tokenizer.added_tokens_decoder, *lm._ends}
        ids = np.setdiff1d(np.arange(lm.tokenizer.vocab_size, dtype=np.int32), list(marks))
        prompts = [rng.choice(ids, PROBE_TOKENS).astype(np.int32) for _ in range(PROBES)]
        answers: list[SampledAnswer] = []
        for _, answer, _ in sampled(
            [self], lm, digest, prompts, range(PROBES), tokens=PROBE_TOKENS, ends=(), probing=True
        ):
            if not isinstance(answer, SampledAnswer):
                raise type(answer)(f"ServedPolicy {self.settings.policy!r}: {answer}")
            answers.append(answer)
        gap = _gap(lm, prompts, answers, lm.temperature)
        limit = self._limit(gap)
        if gap <= limit:
            self._first, self.digest = gap if self._first is None else self._first, digest
            return
        if lm.temperature != 1 and _gap(lm, prompts, answers, 1.0) <= limit:
            fix = "those are of temperature 1: start it with --logprobs-mode processed_logprobs"
        elif getattr(lm.model.config, "tie_word_embeddings", False) and not adapting(lm):
            fix = (
                "its head may be tied, and stale: serve the folder that policy.export(folder) writes, whose head is not"
            )
        else:
            fix = "it has other weights, or another precision: raise tolerance if that is meant"
        raise PolicyError(
            f"ServedPolicy {self.settings.policy!r}: after a sync {self.client.url} answers with log-probabilities "
            f"that differ by {gap:.2g} nats per token from those of the weights it was given (at most {limit:.2g}); "
            f"{fix}"
        )

    def _limit(self, first: float) -> float:
        """Nats per token that may lie between it and the weights here. first: what did, if nothing was compared yet."""
        return min(self.settings.tolerance, max(EXACT, GROWTH * (first if self._first is None else self._first)))

    def said_by(self, lm: LMPolicy, prompts: Sequence[np.ndarray], said: Sequence[SampledAnswer]) -> list[bool]:
        """Whether each of these beginnings of answers has the log-probabilities of the weights here, by its mean."""
        there = [i for i, each in enumerate(said) if len(each.ids)]
        longest = max((len(prompts[i]) + len(said[i].ids) for i in there), default=1)
        step, limit, found = max(1, COMPARED // longest), self._limit(0.0), [False] * len(said)
        for start in range(0, len(there), step):
            part = there[start : start + step]
            rows = _gaps(lm, [prompts[i] for i in part], [said[i] for i in part], lm.temperature)
            for i, gap in zip(part, rows, strict=True):
                found[i] = float(gap.mean()) <= limit
        return found

    def close(self) -> None:
        """End the child, if it was started here, and the connections; nothing is kept of a child."""
        self._forget()
        if self.client is not None:
            self.client.close()
        if self.child is not None:
            self.child.end()
            self.client = self.child = self.digest = self._launched = None


def _gap(lm: LMPolicy, prompts: Sequence[np.ndarray], answers: Sequence[SampledAnswer], temperature: float) -> float:
    """Mean |difference| of log-probabilities, in nats per token."""
    return float(np.concatenate(_gaps(lm, prompts, answers, temperature)).mean())


def _gaps(
    lm: LMPolicy, prompts: Sequence[np.ndarray], answers: Sequence[SampledAnswer], temperature: float
) -> list[np.ndarray]:
    """|Difference| of log-probabilities of each token of each answer, in nats."""
    with torch.inference_mode():
        scored = evaluate(lm.forward, prompts, [answer.ids for answer in answers], temperature=temperature)
    here, mask = scored.logprobs.double().cpu().numpy(), scored.mask.cpu().numpy()
    return [np.abs(row[keep] - answer.logprobs) for row, keep, answer in zip(here, mask, answers, strict=True)]
