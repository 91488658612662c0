"""A language model and the server that samples for it: the server is started, given the weights, compared, asked.

What is here is kept true by asking: who has which weights is looked at before and after every wave, and a server that
went, or came back with others, is given these again. `palaestra.agents.served` is the policy that is made of it.
"""

from __future__ import annotations

import hashlib
import tempfile
import time
import warnings
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from shutil import rmtree
from typing import Any

import numpy as np
import torch

from palaestra.agents.backends import endpoint
from palaestra.agents.backends.dialects import LOADING, dialect_of, encoded
from palaestra.agents.backends.launch import ServerProcess, check_options
from palaestra.agents.backends.sampling import evaluate
from palaestra.agents.backends.server import (
    AbsentError,
    Client,
    GoneError,
    SampledAnswer,
    ServedModel,
    ServerError,
)
from palaestra.agents.lm import LMPolicy, _quietly
from palaestra.errors import InputError, PolicyError, nearest

PROBES, PROBE_TOKENS = 8, 12
"""Answers, and tokens in each and in its prompt, that are compared after a sync."""
NUMBERS = 64
"""Of every parameter, whose digest names the weights: an optimiser moves them all."""
EXACT = 1e-4
"""Nats per token that two engines in float32 may differ by, whatever they differed by at the start."""
GROWTH = 5.0
"""How many times what it was at the first sync the difference may be."""
ATTEMPTS = 3
_TEXT = 'The quick brown fox says: 12 + 34 = 46, {"a": [1, 2]}; naïve, 漢字.\n'


class Serving:
    """Base class of `ServedPolicy`: holds the trained policy `lm` and its server, and keeps their weights equal."""

    def __init__(
        self,
        lm: LMPolicy,
        *,
        url: str | None = None,
        server: str | None = None,
        engine: Mapping[str, Any] | None = None,
        dialect: str = "vllm",
        served_name: str | None = None,
        api_key_env: str | None = None,
        concurrency: int = 256,
        timeout: float = 120.0,
        patience: float = 300.0,
        tolerance: float | None = None,
    ) -> None:
        check_distribution(lm.top_p, lm.stop)
        check(
            url,
            server,
            engine,
            dialect,
            concurrency=concurrency,
            timeout=timeout,
            tolerance=0.05 if tolerance is None else tolerance,
        )
        self.lm, self.name = lm, lm.name
        self.dialect, self.served_name = dialect_of("vllm" if server else dialect), served_name
        self.engine, self.patience = dict(engine or {}), patience
        exact = server is not None and self.engine.get("dtype", "float32") == "float32"
        self.tolerance = tolerance or (1e-3 if exact else 0.05)
        self.connect: Callable[[str], Client] = lambda where: Client(
            where, api_key_env=api_key_env, timeout=timeout, concurrency=int(concurrency)
        )
        self.client = None if url is None else self.connect(url)
        self.child: ServerProcess | None = None
        self.syncs = 0
        self.digest: str | None = None  # of the weights with which the server was last seen to answer
        self.number: int | None = None
        self._numbered: str | None = None  # the digest whose number that is
        self._first: float | None = None
        self._folder = Path(tempfile.mkdtemp(prefix="palaestra-served-"))
        self._clean = weakref.finalize(self, rmtree, self._folder, ignore_errors=True)

    def answers(self, prompts: Sequence[np.ndarray], seeds: Sequence[int]) -> list[SampledAnswer | PolicyError]:
        """Sampled answers of the server with the current weights, or errors; asks again if it had others."""
        found: list[SampledAnswer | PolicyError] = [GoneError("not asked") for _ in prompts]
        for _ in range(ATTEMPTS):
            again = [i for i, each in enumerate(found) if isinstance(each, GoneError | AbsentError)]
            if not again:
                break
            try:
                self.sync()
            except PolicyError as error:
                return [error if i in again else each for i, each in enumerate(found)]
            answers = self._ask([prompts[i] for i in again], [seeds[i] for i in again])
            same = self._still()
            for i, answer in zip(again, answers, strict=True):
                found[i] = answer if same else GoneError("the server had other weights when it had answered")
        return found

    def _still(self) -> bool:
        try:
            return self._serves(self.digest)
        except ServerError:
            return False

    def _ask(self, prompts: Sequence[np.ndarray], seeds: Sequence[int], *, probing: bool = False) -> list[Any]:
        """An `SampledAnswer` or a ServerError for each."""
        assert self.client is not None
        lm, model = self.lm, ServedModel(self.served_name or "", self._adapter(self.digest) if self.adapting else None)
        ends = [] if probing else [int(end) for end in lm._ends]
        tokens = PROBE_TOKENS if probing else lm.max_new_tokens
        calls = [
            self.dialect.sample(model, prompt, seed=seed, tokens=tokens, temperature=lm.temperature, ends=ends)
            for prompt, seed in zip(prompts, seeds, strict=True)
        ]
        most = lm.model.get_input_embeddings().weight.shape[0]
        return [self._read(answer, model, tokens, ends, most) for answer in self.client.ask_all(calls)]

    def _read(
        self, answer: Any, model: ServedModel, tokens: int, ends: Sequence[int], most: int
    ) -> SampledAnswer | ServerError:
        if isinstance(answer, ServerError):
            return answer
        try:
            read = self.dialect.read(answer, model)
            read.check(tokens=tokens, ends=ends, vocabulary=most)
        except ServerError as error:
            return error
        if read.version is not None and model.adapter is None and _digest(read.version) != self.digest:
            return GoneError(f"the server answered with weights {read.version!r}, not with {self.digest!r}")
        return read

    # The server's weights

    @property
    def adapting(self) -> bool:
        """Whether the server is sent adapters rather than whole weights."""
        return hasattr(self.lm.model, "peft_config")

    def fingerprint(self) -> str:
        """A digest of the weights that learn, from 64 numbers of each."""
        digest = hashlib.blake2b(digest_size=6)
        parts = [
            tensor.detach().flatten()[:: max(1, tensor.numel() // NUMBERS)].float()
            for tensor in self.lm.state_dict().values()
        ]
        digest.update(torch.cat(parts).cpu().numpy().tobytes() if parts else b"")
        return digest.hexdigest()

    def sync(self, version: int | None = None) -> None:
        """Make sure that the server has the current weights and answers with them; send them if not.

        version: their number, updates so far; the server calls them "12-d1e6…", and no server is asked for an answer
        while it calls them otherwise.

        Raises:
            PolicyError: there is no server within `patience`; it cannot take weights, or has another tokenizer; or it
                answers with other weights than it was given. Nothing is lost: the weights are here.
        """
        began, digest = time.monotonic(), self.fingerprint()
        if version is None and digest == self._numbered:
            version = self.number
        while True:
            try:
                self._start()
                assert self.client is not None
                if not self._serves(digest):
                    self._give(digest, version)
                elif (digest, version) != (self._numbered, self.number) and not self.adapting:
                    self.dialect.name(self.client, _label(version, digest))
                self._numbered, self.number = digest, version
                return
            except GoneError as error:
                if self.digest is not None:
                    warnings.warn(f"ServedPolicy {self.name!r}: {error}; waiting for it", stacklevel=2)
                self.digest = None
                if time.monotonic() - began > self.patience:
                    raise PolicyError(
                        f"ServedPolicy {self.name!r}: {error}, for {self.patience:g} s; start it again: a run goes on "
                        "with --resume"
                    ) from error
                time.sleep(min(1.0, self.patience / 10))

    def _serves(self, digest: str | None) -> bool:
        """Whether the server has the weights of this digest, by its own word, and was seen to answer with them."""
        assert self.client is not None
        if digest is None or digest != self.digest:
            return False
        if self.adapting:
            return self._adapter(digest) in self.dialect.models(self.client)
        return _digest(self.dialect.version(self.client)) == digest

    def _give(self, digest: str, version: int | None) -> None:
        """Load and compare; until both have gone well the server counts as one that has nothing."""
        assert self.client is not None
        folder, old = self._folder / digest, self.digest
        self.digest = None
        self._compare_tokenizers()
        if not folder.exists():
            self.export(folder)
        if not self.adapting:
            self.dialect.load(self.client, folder, _label(version, digest))
        elif self._adapter(digest) not in self.dialect.models(self.client):
            self.dialect.adapt(self.client, self._adapter(digest), folder)
        self.digest = digest
        try:
            self._compare()
        except PolicyError:
            self.digest = None
            raise
        self.syncs += 1
        if self.adapting and old not in (None, digest) and self._adapter(old) in self.dialect.models(self.client):
            self.dialect.forget(self.client, self._adapter(old))
        for other in self._folder.glob("*/"):
            if other != folder:
                rmtree(other, ignore_errors=True)

    def export(self, folder: str | Path) -> None:
        """Write into a folder the files that a server loads: the adapter, or the whole model with a head of its own.

        A server that ties its head to the embeddings keeps the old head when it reloads: vLLM does, and says nothing.
        """
        folder, model = Path(folder), self.lm.model
        with _quietly():
            if self.adapting:
                model.save_pretrained(folder)
                return
            head, tensors = model.get_output_embeddings().weight, model.state_dict()
            apart = {k: v.clone() if v.data_ptr() == head.data_ptr() else v for k, v in tensors.items()}
            with _untied(model.config):
                model.save_pretrained(folder, state_dict=apart)
            self.lm.tokenizer.save_pretrained(folder)

    def _adapter(self, digest: str | None) -> str:
        return f"{self.name}-{digest}"

    def _start(self) -> None:
        """See that there is a client, and behind it the child that is ours, if one is: started again if it died."""
        if self.child is not None and not self.child.alive:
            warnings.warn(f"ServedPolicy {self.name!r}: {self.child.died()}; it is started again", stacklevel=3)
            self.child = self.client = None
        if self.client is None:
            self._launch()
        assert self.client is not None
        if self.served_name is None:
            self.served_name = next(iter(self.dialect.models(self.client)), "")

    def _launch(self) -> None:
        """Start a server with the weights that are here, and wait until it answers."""
        folder, rank = self._folder / self.fingerprint(), 0
        if self.adapting:
            adapters = self.lm.model.peft_config.values()
            rank = max(int(each.r) for each in adapters)
            base = next(iter(adapters)).base_model_name_or_path
            if not base:
                raise InputError(f"ServedPolicy {self.name!r}: its adapter names no base that a server could load")
        else:
            base = str(folder)
            self.export(folder)
        self.served_name = self.served_name or "policy"
        child = ServerProcess(
            base, model=self.served_name, log=self._folder / "server.log", rank=rank, options=self.engine
        )
        client, began = self.connect(child.url), time.monotonic()
        while child.alive and time.monotonic() - began < LOADING:
            try:
                self.dialect.models(client)
                self.child, self.client = child, client
                return
            except ServerError:
                time.sleep(0.25)
        problem = child.died()
        child.end()
        raise problem

    # What is compared

    def _compare_tokenizers(self) -> None:
        """Refuse a server that makes other ids of a text. Raises PolicyError."""
        assert self.client is not None
        theirs = encoded(self.client, self.served_name or "", _TEXT)
        ours = self.lm.tokenizer(_TEXT, add_special_tokens=False)["input_ids"]
        if theirs is not None and theirs != ours:
            at = next((i for i, (a, b) in enumerate(zip(theirs, ours)) if a != b), min(len(theirs), len(ours)))
            raise PolicyError(
                f"ServedPolicy {self.name!r}: {self.client.url} has another tokenizer: token {at} of {_TEXT[:20]!r}… "
                f"is {theirs[at : at + 1]} there, {ours[at : at + 1]} here; serve the folder that policy.export writes"
            )

    def _compare(self) -> None:
        """Sample a few answers and compare log-probabilities. Raises PolicyError for other weights than those here."""
        assert self.client is not None
        rng = np.random.default_rng(0)
        marks = {*self.lm.tokenizer.all_special_ids, *self.lm.tokenizer.added_tokens_decoder, *self.lm._ends}
        ids = np.setdiff1d(np.arange(self.lm.tokenizer.vocab_size, dtype=np.int32), list(marks))
        prompts = [rng.choice(ids, PROBE_TOKENS).astype(np.int32) for _ in range(PROBES)]
        answers: list[SampledAnswer] = []
        for answer in self._ask(prompts, list(range(PROBES)), probing=True):
            if not isinstance(answer, SampledAnswer):
                raise type(answer)(f"ServedPolicy {self.name!r}: {answer}")
            answers.append(answer)
        gap = self._gap(prompts, answers, self.lm.temperature)
        limit = min(self.tolerance, max(EXACT, GROWTH * (gap if self._first is None else self._first)))
        if gap <= limit:
            self._first = gap if self._first is None else self._first
            return
        if self.lm.temperature != 1 and self._gap(prompts, answers, 1.0) <= limit:
            fix = "those are of temperature 1: start it with --logprobs-mode processed_logprobs"
        elif getattr(self.lm.model.config, "tie_word_embeddings", False) and not self.adapting:
            fix = (
                "its head may be tied, and stale: serve the folder that policy.export(folder) writes, whose head is not"
            )
        else:
            fix = "it has other weights, or another precision: raise tolerance if that is meant"
        raise PolicyError(
            f"ServedPolicy {self.name!r}: after a sync {self.client.url} answers with log-probabilities that differ by "
            f"{gap:.2g} nats per token from those of the weights it was given (at most {limit:.2g}); {fix}"
        )

    def _gap(self, prompts: Sequence[np.ndarray], answers: Sequence[SampledAnswer], temperature: float) -> float:
        """Mean |difference| of log-probabilities, in nats per token."""
        with torch.inference_mode():
            said = [answer.ids for answer in answers]
            scored = evaluate(self.lm.forward, prompts, said, temperature=temperature)
        here = scored.logprobs[scored.mask].double().cpu().numpy()
        return float(np.abs(here - np.concatenate([answer.logprobs for answer in answers])).mean())

    def close(self) -> None:
        """End a server that was started here, and remove the weights that were written for it."""
        if self.child is not None:
            self.child.end()
        if self.client is not None:
            self.client.close()
        self._clean()


def check_distribution(top_p: Any = 1.0, stop: Any = ()) -> None:
    """Raises InputError for a set `top_p` or `stop`, with which server log-probabilities are not the policy's."""
    if top_p != 1 or stop:
        raise InputError(
            f"ServedPolicy: top_p={top_p!r}, stop={stop!r}: what a server says of its tokens is then not what is "
            "learned from here; leave them out, or let the policy answer here (kind: lm)"
        )


def check(
    url: Any = None,
    server: Any = None,
    engine: Any = None,
    dialect: str = "vllm",
    **numbers: Any,
) -> None:
    """Raises InputError for options of a `ServedPolicy`'s server that are invalid or contradict each other."""
    if (url is None) == (server is None):
        raise InputError("ServedPolicy: give url= of a server that runs, or server='vllm' to start one")
    if server not in (None, "vllm"):
        raise InputError(f"ServedPolicy: server is {server!r}{nearest(str(server), ['vllm'])}; start others yourself")
    if engine and server is None:
        raise InputError("ServedPolicy: engine= is for a server that is started here (server='vllm')")
    check_options(engine or {})
    dialect_of(dialect)
    endpoint.check_address(url, "ServedPolicy: url")
    for name in ("concurrency", "timeout", "tolerance"):
        value = numbers.get(name, 1)
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < float("inf"):
            raise InputError(f"ServedPolicy: {name} is {value!r}, must be above 0")


def _label(number: int | None, digest: str) -> str:
    return f"{'?' if number is None else number}-{digest}"


def _digest(label: Any) -> str | None:
    """The digest in what a server calls its weights."""
    return label.rpartition("-")[2] if isinstance(label, str) else None


@contextmanager
def _untied(config: Any) -> Iterator[None]:
    """A config, and that of its text part, that says so while it is written."""
    parts = {id(each): each for each in (config, config.get_text_config())}.values()
    before = [each.tie_word_embeddings for each in parts]
    for each in parts:
        each.tie_word_embeddings = False
    try:
        yield
    finally:
        for each, was in zip(parts, before, strict=True):
            each.tie_word_embeddings = was
