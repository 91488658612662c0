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

from palaestra.agents.backends.dialects import LOADING, Dialect, encoded
from palaestra.agents.backends.launch import ServerProcess
from palaestra.agents.backends.ray_servers import RayServer
from palaestra.agents.backends.sampling import evaluate
from palaestra.agents.backends.server import (
    Client,
    GoneError,
    HttpCall,
    LateError,
    SampledAnswer,
    ServedModel,
    ServerError,
)
from palaestra.agents.backends.transfers import Transfer, send
from palaestra.agents.backends.weight_files import adapting, export, fingerprint
from palaestra.agents.lm import LMPolicy
from palaestra.errors import InputError, PolicyError

PROBES, PROBE_TOKENS = 8, 12
"""Answers, and tokens in each and in its prompt, that are compared after a sync."""
EXACT = 1e-4
"""Nats per token that two engines in float32 may differ by, whatever they differed by at the start."""
GROWTH = 5.0
"""How many times what it was at the first sync the difference may be."""
_TEXT = 'The quick brown fox says: 12 + 34 = 46, {"a": [1, 2]}; naïve, 漢字.\n'


@dataclass(frozen=True)
class ServerSettings:
    """Settings that the servers of one policy share.

    Attributes:
        policy: Name of the policy, for messages and adapters.
        dialect: How they are spoken to.
        connect: Makes the client of an address.
        folder: Folder in which weights are written, one folder per digest.
        tolerance: Nats per token that their log-probabilities may differ by.
        engine: vLLM's options, for servers that are started here.
        replicas: Number of servers.
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
    transfer: Transfer | None = None
    cluster: str | None = None


class WeightServer:
    """Server of a policy, with the weights that it was last seen to answer with.

    Attributes:
        client: Its connections; None for one that is not started yet.
        child: The process, if it was started here.
        served_name: What it calls its model.
        digest: Of the weights with which it was last seen to answer; None if it has to be given some.
        under_way: Requests that it is answering.
        sent: All requests that it got.
        loaded: How often it was given weights.
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
        self.digest: str | None = None
        self.under_way = self.sent = self.loaded = 0
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

    def absent(self, error: ServerError) -> None:
        """Record that it did not answer: the next question waits, twice as long each time, at most half a minute.

        One that keeps its caller waiting is asked after a minute at the earliest, and then after ten at most.
        """
        if self.digest is not None:
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
            died, self.client, self.digest = self.child.died(), None, None
            if self.loading:
                self.child = self._launched = None
                raise died
            warnings.warn(f"ServedPolicy {self.settings.policy!r}: {died}; it is started again", stacklevel=2)
            self.child.end()
            self.child = None
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
                    died, self.client = self.child.died(), None
                    self.child.end()
                    self.child = self._launched = None
                    raise died from None
                if not wait:
                    raise GoneError(f"{self.client.url} is starting") from error
                time.sleep(0.25)
        if self.served_name is None:
            self.served_name = next(iter(self.settings.dialect.models(self.client)), "")

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
            base = str(folder)
            if not folder.exists():
                export(lm, folder)
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
        assert self.client is not None
        if digest is None or digest != self.digest:
            return False
        if adapting(lm):
            return self.adapter(digest) in self.settings.dialect.models(self.client)
        return digest_in(self.settings.dialect.version(self.client)) == digest

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
            elif self.adapter(digest) not in dialect.models(self.client):
                dialect.adapt(self.client, self.adapter(digest), self._there(folder()))
            self._compare(lm, digest)
        if failed is not None:
            self._by_folder(str(failed))
        self.loaded, self._pause = self.loaded + 1, 0.0
        if adapting(lm) and old not in (None, digest) and self.adapter(old) in dialect.models(self.client):
            dialect.forget(self.client, self.adapter(old))

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
        for _, answer in sampled([self], lm, digest, prompts, range(PROBES), tokens=PROBE_TOKENS, ends=()):
            if not isinstance(answer, SampledAnswer):
                raise type(answer)(f"ServedPolicy {self.settings.policy!r}: {answer}")
            answers.append(answer)
        gap = _gap(lm, prompts, answers, lm.temperature)
        limit = min(self.settings.tolerance, max(EXACT, GROWTH * (gap if self._first is None else self._first)))
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

    def close(self) -> None:
        """End the child, if it was started here, and the connections."""
        if self.child is not None:
            self.child.end()
        if self.client is not None:
            self.client.close()


def sampled(
    servers: Sequence[WeightServer],
    lm: LMPolicy,
    digest: str | None,
    prompts: Sequence[np.ndarray],
    seeds: Sequence[int],
    *,
    tokens: int,
    ends: Sequence[int],
) -> list[tuple[WeightServer, SampledAnswer | ServerError]]:
    """Answers of several servers to prompts of token ids, each by the server with the fewest requests under way.

    A server that is gone, or late, gets nothing more in this wave; what it failed to answer is an error.

    Args:
        servers: At least one, with a client; they share a loop.
        lm: Whose temperature and vocabulary count.
        digest: Of the weights that they have.
        prompts: int32[T] each.
        seeds: One for each.
        tokens: Most that may be sampled.
        ends: Ids of end tokens; without any, each answer has exactly `tokens`.

    Returns:
        For each prompt the server that was asked, and its answer or a ServerError.
    """
    most, gone = lm.model.get_input_embeddings().weight.shape[0], set[WeightServer]()
    first = servers[0].client
    assert first is not None

    async def one(prompt: np.ndarray, seed: int) -> tuple[WeightServer, SampledAnswer | ServerError]:
        async with first.loop.slots:
            server = min([each for each in servers if each not in gone] or servers, key=_load)
            assert server.client is not None
            dialect, model = server.settings.dialect, server.model(lm, digest)
            call: HttpCall = dialect.sample(
                model, prompt, seed=seed, tokens=tokens, temperature=lm.temperature, ends=ends
            )
            server.under_way, server.sent = server.under_way + 1, server.sent + 1
            try:
                answer = dialect.read(await server.client.send(call), model)
                answer.check(tokens=tokens, ends=ends, vocabulary=most)
            except ServerError as error:
                if isinstance(error, GoneError | LateError):
                    gone.add(server)
                return server, error
            finally:
                server.under_way -= 1
        if answer.version is not None and model.adapter is None and digest_in(answer.version) != digest:
            return server, GoneError(f"the server answered with weights {answer.version!r}, not with {digest!r}")
        return server, answer

    async def every() -> list[tuple[WeightServer, SampledAnswer | ServerError]]:
        return await asyncio.gather(*(one(prompt, seed) for prompt, seed in zip(prompts, seeds, strict=True)))

    found: list[tuple[WeightServer, SampledAnswer | ServerError]] = first.loop.run(every())
    return found


def label_of(number: int | None, digest: str) -> str:
    """Label of weights on a server: their number, or "?", and their digest.

    >>> label_of(12, "d1e6")
    '12-d1e6'
    """
    return f"{'?' if number is None else number}-{digest}"


def digest_in(label: Any) -> str | None:
    """The digest in what a server calls its weights."""
    return label.rpartition("-")[2] if isinstance(label, str) else None


def _load(server: WeightServer) -> tuple[int, int]:
    return server.under_way, server.sent


def _gap(lm: LMPolicy, prompts: Sequence[np.ndarray], answers: Sequence[SampledAnswer], temperature: float) -> float:
    """Mean |difference| of log-probabilities, in nats per token."""
    with torch.inference_mode():
        scored = evaluate(lm.forward, prompts, [answer.ids for answer in answers], temperature=temperature)
    here = scored.logprobs[scored.mask].double().cpu().numpy()
    return float(np.abs(here - np.concatenate([answer.logprobs for answer in answers])).mean())
