"""Servers that sample for a policy that learns here: what vLLM and SGLang are asked, and what they may answer.

A `Client` has an event loop in a thread of its own, in which hundreds of requests wait at the same time. A dialect says
each thing in a server's own words: sample these tokens, which weights have you, take those of this folder, take this
adapter. Every failure is one line. Left out: streaming, weights over NCCL or shared memory, several servers behind one
address.
"""

from __future__ import annotations

import asyncio
import json
import os
import threading
from collections.abc import Coroutine, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np

from palaestra.agents.backends import endpoint
from palaestra.agents.backends.endpoint import at
from palaestra.agents.backends.wire import Response, Wire, complaint
from palaestra.errors import InputError, PolicyError, nearest


class ServerError(PolicyError):
    """A server did not do what it was asked for."""


class GoneError(ServerError):
    """Nobody answers, or somebody says that he cannot: it may pass."""


class AbsentError(ServerError):
    """The server does not have what was named: a model, an adapter, a route."""


Ends = Sequence[int]
LEAST = -100.0
"""Nats: a token of this log-probability is sampled less than once in 10⁴³ tokens."""


class HttpCall(NamedTuple):
    """One HTTP request; without a body it is a GET. job: if the server fails at it, waiting will not help."""

    path: str
    body: dict[str, Any] | None = None
    job: bool = False


class SampledAnswer(NamedTuple):
    """Sampled answer.

    Attributes:
        ids: Token ids, int32[A].
        logprobs: Log-probability of each, float32[A], in nats.
        version: Of the weights, if the server says it.
        finish: Why it ended, in the server's words ("stop", "length", "abort" …), if the server says it.
    """

    ids: np.ndarray
    logprobs: np.ndarray
    version: str | None = None
    finish: str | None = None

    def check(self, *, tokens: int, ends: Ends, vocabulary: int) -> None:
        """See that this is what was asked for: at most so many tokens, fewer only if the last one is an end token.

        Args:
            tokens: Most that were asked for.
            ends: Ids of end tokens; none if exactly `tokens` were asked for.
            vocabulary: Number of token ids that the model here has.

        Raises:
            ServerError: names what the server did; such an answer is not sampled from the policy.
        """
        length = len(self.ids)
        if self.finish not in (None, "stop", "length"):
            raise ServerError(f"the server ended the answer by finish_reason {self.finish[:40]!r}, not stop or length")
        if length > tokens:
            raise ServerError(f"the server sent {length} tokens where at most {tokens} were asked for")
        if self.ids.max() >= vocabulary:
            raise ServerError(
                f"the server sampled id {self.ids.max()}, the model here has {vocabulary}: serve that one"
            )
        ended = np.isin(self.ids, list(ends))
        if ended[:-1].any():
            place = int(ended.argmax())
            raise ServerError(
                f"the server sent {length - place - 1} tokens after the end token {self.ids[place]}, at place {place}"
            )
        if length < tokens and not ended[-1]:
            raise ServerError(
                f"the server stopped after {length} of {tokens} tokens without an end token (finish_reason"
                f" {self.finish!r}): raise its maximal length, and give it no stop words"
            )
        if self.logprobs.min() < LEAST:
            raise ServerError(
                f"the server says log-probability {self.logprobs.min():.5g} of a token that it sampled; below"
                f" {LEAST:g} none can have been sampled"
            )


class ServedModel(NamedTuple):
    """A server's names of its model and of the adapter in use, if any."""

    model: str
    adapter: str | None = None


class Client:
    """JSON over HTTP, `concurrency` requests at a time.

    timeout: seconds for one answer, from sending to the last byte. api_key_env: NAME of the variable with the key; it
    is read for each call and cut out of every message.
    """

    def __init__(self, url: str, *, api_key_env: str | None = None, timeout: float = 120.0, concurrency: int = 256):
        endpoint.check_address(url, "url")
        self.url, self.timeout, self.api_key_env = endpoint.address(url).removesuffix("/v1"), timeout, api_key_env
        self.concurrency = concurrency
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread, self._opening = threading.Thread(), threading.Lock()
        self._slots = asyncio.Semaphore(concurrency)
        self._wires: dict[str, Wire] = {}

    def ask(self, call: HttpCall, *, timeout: float | None = None) -> Any:
        """The JSON of an answer; None if it has no body.

        Raises:
            GoneError: no connection, or 5xx for what is no job. AbsentError: 404.
            ServerError: anything else, a redirect for example.
        """
        return self._run(self._ask(call, timeout or self.timeout))

    def ask_all(self, calls: Sequence[HttpCall]) -> list[Any]:
        """An answer, or the error in its place, for each call, at the same time."""

        async def one(call: HttpCall) -> Any:
            async with self._slots:
                try:
                    return await self._ask(call, self.timeout)
                except ServerError as error:
                    return error

        async def every() -> list[Any]:
            return await asyncio.gather(*(one(call) for call in calls))

        found: list[Any] = self._run(every())
        return found

    def close(self) -> None:
        """Close the connections and end the thread."""
        if self._loop is not None:
            for wire in self._wires.values():
                self._run(wire.close())
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()
            self._loop, self._wires = None, {}

    def _run(self, work: Coroutine[Any, Any, Any]) -> Any:
        with self._opening:
            if self._loop is None:
                self._loop, self._slots = asyncio.new_event_loop(), asyncio.Semaphore(self.concurrency)
                self._thread = threading.Thread(target=self._loop.run_forever, daemon=True, name="served")
                self._thread.start()
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    async def _ask(self, call: HttpCall, timeout: float) -> Any:
        key = os.environ.get(self.api_key_env, "") if self.api_key_env else ""
        try:
            response = await self._send(call, key, timeout)
        except TimeoutError:
            raise ServerError(f"no whole answer within {timeout:g} s") from None
        except OSError as error:
            raise GoneError(f"no server at {self.url} ({' '.join(str(error).split())})") from None
        except endpoint.UnusableAnswerError as error:
            raise ServerError(endpoint.without(key, str(error))) from None
        if 300 <= response.status < 400:
            path = call.path.partition("?")[0]
            why = endpoint.redirected(
                self.url, response.status, response.headers.get("location"), path=path, option="url"
            )
            raise ServerError(endpoint.without(key, str(why)))
        if response.status >= 400:
            message = f"{self.url}{call.path}: {endpoint.without(key, complaint(response)[:300])}"
            if response.status == 404:
                raise AbsentError(message)
            raise (GoneError if response.status >= 500 and not call.job else ServerError)(message)
        try:
            return json.loads(response.body) if response.body.strip() else None
        except ValueError:
            if call.job:  # vLLM says in plain words that an adapter is there
                return None
            raise ServerError(f"{self.url}{call.path} answered with {response.body[:40]!r}, no JSON") from None

    async def _send(self, call: HttpCall, key: str, timeout: float) -> Response:
        wire = self._wires.setdefault(key, Wire(self.url, key))
        body = b"" if call.body is None else json.dumps(call.body).encode()
        method = "GET" if call.body is None else "POST"
        try:
            return await wire.request(method, call.path, body, timeout)
        except ConnectionResetError:  # a server closes connections that were idle: then a fresh one is worth a try
            return await wire.request(method, call.path, body, timeout)


# -- dialects ---------------------------------------------------------------------------------------------------------


class Dialect(Protocol):
    """Protocol of one kind of server: how its requests and responses are written and read."""

    hint: str
    """What the server must have been started with, so that weights can be changed."""

    def sample(
        self, model: ServedModel, prompt: np.ndarray, *, seed: int, tokens: int, temperature: float, ends: Ends
    ) -> HttpCall:
        """Ask for one answer of at most so many tokens; without `ends` it has exactly so many."""

    def read(self, answer: Any, model: ServedModel) -> SampledAnswer:
        """Sampled answer of a response. Raises ServerError for an answer that cannot be learned from."""

    def version(self, client: Client) -> str | None:
        """The server's label of its weights."""

    def name(self, client: Client, version: str) -> None:
        """Call the weights so."""

    def load(self, client: Client, folder: Path, version: str) -> None:
        """Take the weights of a folder in place, forget what was computed with others, call them so."""

    def models(self, client: Client) -> list[str]:
        """Names of the model and of adapters that are there."""

    def adapt(self, client: Client, name: str, folder: Path) -> None:
        """Take an adapter."""

    def forget(self, client: Client, name: str) -> None:
        """Drop an adapter."""


LOADING = 1800.0
"""Seconds that a server may take to load weights."""


class VLLM:
    """vLLM from 0.11 on. Weights are changed by its developer endpoints."""

    hint = "VLLM_SERVER_DEV_MODE=1 (for adapters VLLM_ALLOW_RUNTIME_LORA_UPDATING=1 and --enable-lora)"

    def sample(
        self, model: ServedModel, prompt: np.ndarray, *, seed: int, tokens: int, temperature: float, ends: Ends
    ) -> HttpCall:
        """`/v1/completions`, one prompt of token ids; whatever a generation config would change is said outright."""
        return HttpCall(
            "/v1/completions",
            {
                "model": model.adapter or model.model, "prompt": prompt.tolist(), "seed": seed, "max_tokens": tokens,
                "temperature": temperature, "top_p": 1.0, "top_k": -1, "min_p": 0.0, "repetition_penalty": 1.0,
                "logprobs": 0, "return_token_ids": True, "stop_token_ids": list(ends), "ignore_eos": not ends,
            },
        )  # fmt: skip

    def read(self, answer: Any, model: ServedModel) -> SampledAnswer:
        """Of the only choice."""
        choice = at(answer, "choices", 0)
        ids, logprobs = at(choice, "token_ids"), at(choice, "logprobs", "token_logprobs")
        if ids is None:
            raise ServerError("the answer has no token_ids; vLLM sends them from 0.11 on (return_token_ids)")
        if (said := at(answer, "model")) != (model.adapter or model.model):
            raise ServerError(f"the answer is of model {said!r}, not of {model.adapter or model.model!r}")
        return _checked(ids, logprobs, finish=at(choice, "finish_reason"))

    def version(self, client: Client) -> str | None:
        """`/weight_info`."""
        found: str | None = at(_developer(client, HttpCall("/weight_info")), "weight_version")
        return found

    def name(self, client: Client, version: str) -> None:
        """`/update_weight_version`."""
        client.ask(HttpCall("/update_weight_version", {"new_version": version}))

    def load(self, client: Client, folder: Path, version: str) -> None:
        """`reload_weights`, between a pause, which drops cached prefixes, and going on."""
        _developer(client, HttpCall("/pause?mode=wait", {}), timeout=LOADING)
        try:
            job = {"method": "reload_weights", "kwargs": {"weights_path": str(folder)}}
            client.ask(HttpCall("/collective_rpc", job, job=True), timeout=LOADING)
            self.name(client, version)
        finally:
            client.ask(HttpCall("/resume", {}))

    def models(self, client: Client) -> list[str]:
        """`/v1/models`."""
        return [str(at(each, "id")) for each in at(client.ask(HttpCall("/v1/models")), "data") or ()]

    def adapt(self, client: Client, name: str, folder: Path) -> None:
        """`/v1/load_lora_adapter`."""
        body = {"lora_name": name, "lora_path": str(folder)}
        _developer(client, HttpCall("/v1/load_lora_adapter", body, job=True), timeout=LOADING)

    def forget(self, client: Client, name: str) -> None:
        """`/v1/unload_lora_adapter`."""
        client.ask(HttpCall("/v1/unload_lora_adapter", {"lora_name": name}, job=True))


class SGLang:
    """SGLang by its own endpoints, whose answers say the version of their weights."""

    hint = "a version that has update_weights_from_disk (for adapters --enable-lora)"

    def sample(
        self, model: ServedModel, prompt: np.ndarray, *, seed: int, tokens: int, temperature: float, ends: Ends
    ) -> HttpCall:
        """`/generate`. Seeds count for a server that was started with --enable-deterministic-inference."""
        sampling = {
            "max_new_tokens": tokens, "temperature": temperature, "top_p": 1.0, "top_k": -1, "min_p": 0.0,
            "repetition_penalty": 1.0, "sampling_seed": seed, "stop_token_ids": list(ends), "ignore_eos": not ends,
        }  # fmt: skip
        body = {"input_ids": prompt.tolist(), "sampling_params": sampling, "return_logprob": True}
        return HttpCall("/generate", body if model.adapter is None else body | {"lora_path": model.adapter})

    def read(self, answer: Any, model: ServedModel) -> SampledAnswer:
        """`output_token_logprobs`: (log-probability, id, text) of each token."""
        said = at(answer, "meta_info", "output_token_logprobs")
        if not isinstance(said, list):
            raise ServerError("the answer has no output_token_logprobs; is the dialect 'sglang'?")
        version = at(answer, "meta_info", "weight_version")
        finish = at(answer, "meta_info", "finish_reason")
        finish = at(finish, "type") if isinstance(finish, dict) else finish
        return _checked([at(each, 1) for each in said], [at(each, 0) for each in said], version, finish=finish)

    def version(self, client: Client) -> str | None:
        """`/get_model_info`."""
        found: str | None = at(client.ask(HttpCall("/get_model_info")), "weight_version")
        return found

    def name(self, client: Client, version: str) -> None:
        """`/update_weight_version`."""
        client.ask(HttpCall("/update_weight_version", {"new_version": version, "abort_all_requests": False}))

    def load(self, client: Client, folder: Path, version: str) -> None:
        """`/update_weights_from_disk`."""
        body = {"model_path": str(folder), "weight_version": version, "flush_cache": True}
        _succeeded(client.ask(HttpCall("/update_weights_from_disk", body, job=True), timeout=LOADING))

    def models(self, client: Client) -> list[str]:
        """`/v1/models`."""
        return [str(at(each, "id")) for each in at(client.ask(HttpCall("/v1/models")), "data") or ()]

    def adapt(self, client: Client, name: str, folder: Path) -> None:
        """`/load_lora_adapter`."""
        body = {"lora_name": name, "lora_path": str(folder)}
        _succeeded(client.ask(HttpCall("/load_lora_adapter", body, job=True), timeout=LOADING))

    def forget(self, client: Client, name: str) -> None:
        """`/unload_lora_adapter`."""
        client.ask(HttpCall("/unload_lora_adapter", {"lora_name": name}, job=True))


DIALECTS: dict[str, type[VLLM] | type[SGLang]] = {"vllm": VLLM, "sglang": SGLang}


def dialect_of(name: str) -> Dialect:
    """The dialect of that name. Raises InputError if there is none."""
    if name not in DIALECTS:
        raise InputError(f"ServedPolicy: dialect {name!r} is unknown{nearest(name, DIALECTS)}")
    return DIALECTS[name]()


def encoded(client: Client, model: str, text: str) -> list[int] | None:
    """A text as the server's tokenizer has it; None if the server does not tell."""
    try:
        found = client.ask(HttpCall("/tokenize", {"model": model, "prompt": text, "add_special_tokens": False}))
    except GoneError:
        raise
    except ServerError:
        return None
    tokens = at(found, "tokens")
    return tokens if isinstance(tokens, list) else None


def _developer(client: Client, call: HttpCall, timeout: float | None = None) -> Any:
    """A call of an endpoint that is there only if the server was started for it."""
    try:
        return client.ask(call, timeout=timeout)
    except AbsentError as error:
        raise ServerError(f"{error}: start the server with {VLLM.hint}") from None


def _succeeded(answer: Any) -> None:
    if at(answer, "success") is False:
        raise ServerError(f"the server refused: {' '.join(str(at(answer, 'message')).split())[:300]}")


def _checked(ids: Any, logprobs: Any, version: str | None = None, *, finish: Any = None) -> SampledAnswer:
    try:
        numbers, known = np.array(ids, np.int64), np.array(logprobs, np.float64)
    except (TypeError, ValueError, OverflowError):
        raise ServerError("the answer's token ids or log-probabilities are no numbers") from None
    if numbers.ndim != 1 or numbers.shape != known.shape or not len(numbers):
        raise ServerError(f"the answer has {numbers.size} token ids and {known.size} log-probabilities")
    if not np.isfinite(known).all() or (known > 1e-3).any() or numbers.min() < 0 or numbers.max() >= 2**31:
        raise ServerError("a token id or log-probability of the answer is impossible")
    return SampledAnswer(
        numbers.astype(np.int32), known.astype(np.float32), version, None if finish is None else str(finish)
    )
