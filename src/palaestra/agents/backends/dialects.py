"""Dialects of servers of weights: what vLLM and SGLang are asked, and how their answers are read.

Each says in a server's own words: sample these tokens, which weights have you, take those of this folder, take this
adapter.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from palaestra.agents.backends.endpoint import at
from palaestra.agents.backends.server import (
    ABORT,
    NOTHING,
    AbsentError,
    Client,
    Ends,
    GoneError,
    HttpCall,
    LateError,
    SampledAnswer,
    ServedModel,
    ServerError,
)
from palaestra.errors import InputError, nearest


class Dialect(Protocol):
    """Protocol of one kind of inference server (vLLM, SGLang): how its HTTP requests are written and answers read."""

    hint: str
    """What the server must have been started with, so that weights can be changed."""

    repeats: bool
    """Whether an event of a stream may repeat all tokens of the events before."""

    def sample(
        self, model: ServedModel, prompt: np.ndarray, *, seed: int, tokens: int, temperature: float, ends: Ends
    ) -> HttpCall:
        """HTTP call for one answer of at most `tokens` tokens; without `ends` it has exactly so many."""

    def seed(self, seed: int, said: int) -> int:
        """Seed with which an answer of this seed is gone on with after its first `said` tokens."""

    def part(self, event: Any, model: ServedModel, said: int = 0) -> SampledAnswer:
        """New tokens in one event of a stream, maybe none; `said`: how many came in the events before.

        Raises:
            GoneError: a temporary failure. ServerError: any other.
        """

    def read(self, answer: Any, model: ServedModel) -> SampledAnswer:
        """Sampled answer in a response. Raises ServerError for an answer that cannot be learned from."""

    def version(self, client: Client) -> str | None:
        """Label that the server gives to its current weights; None if it has none."""

    def name(self, client: Client, version: str) -> None:
        """Set the server's label of its current weights."""

    def interrupt(self, client: Client) -> None:
        """Make the server break off all answers and send what there is of them."""

    def wake(self, client: Client) -> None:
        """End a pause in which the server was left by `interrupt`, if it was."""

    def load(self, client: Client, folder: Path, version: str) -> None:
        """Make the server load the weights of a folder in place, drop cached prefixes, and label them `version`."""

    def models(self, client: Client) -> list[str]:
        """Names of the models and adapters that the server has."""

    def adapt(self, client: Client, name: str, folder: Path) -> None:
        """Make the server load an adapter from a folder under a name."""

    def forget(self, client: Client, name: str) -> None:
        """Make the server unload an adapter."""


PARCEL = 32
"""Tokens in one event of a stream, where a request may say so."""
LOADING = 1800.0
"""Seconds that a server may take to load weights."""
RESUMING = (0.1, 0.4)
"""Seconds between attempts to end a pause of vLLM."""
SETTLING = 30.0
"""Seconds that SGLang may take to be done with answers that it has sent, or with the first one after its start."""


class VLLM:
    """`Dialect` of vLLM from 0.11 on; weights are updated by its developer endpoints, from 0.32 on without a folder."""

    hint = "VLLM_SERVER_DEV_MODE=1 (for adapters VLLM_ALLOW_RUNTIME_LORA_UPDATING=1 and --enable-lora)"
    repeats = False

    def sample(
        self, model: ServedModel, prompt: np.ndarray, *, seed: int, tokens: int, temperature: float, ends: Ends
    ) -> HttpCall:
        """Call of `/v1/completions` with one prompt of token ids; sets every sampling option, whatever the defaults."""
        return HttpCall(
            "/v1/completions",
            {
                "model": model.adapter or model.model, "prompt": prompt.tolist(), "seed": seed, "max_tokens": tokens,
                "temperature": temperature, "top_p": 1.0, "top_k": -1, "min_p": 0.0, "repetition_penalty": 1.0,
                "logprobs": 0, "return_token_ids": True, "stop_token_ids": list(ends), "ignore_eos": not ends,
            },
        )  # fmt: skip

    def seed(self, seed: int, said: int) -> int:
        """Another seed for every beginning: a request's generator starts anew, and would repeat its first draws."""
        return int(np.random.SeedSequence([seed, said]).generate_state(1)[0] >> 1) if said else seed

    def part(self, event: Any, model: ServedModel, said: int = 0) -> SampledAnswer:
        """Tokens of one event of `/v1/completions` with `stream`."""
        _unbroken(event)
        if not at(event, "choices"):  # the count of tokens at the end, if a server adds it
            return NOTHING
        return self.read(event, model, least=0)

    def read(self, answer: Any, model: ServedModel, *, least: int = 1) -> SampledAnswer:
        """Sampled answer: token ids and log-probabilities, `least` or more, of the response's only choice."""
        choice = at(answer, "choices", 0)
        ids, logprobs = at(choice, "token_ids"), at(choice, "logprobs", "token_logprobs")
        if (said := at(answer, "model")) != (model.adapter or model.model):
            raise ServerError(f"the answer is of model {said!r}, not of {model.adapter or model.model!r}")
        finish = at(choice, "finish_reason")
        if not ids and (not least or finish == ABORT):  # broken off before its first token
            return NOTHING._replace(finish=None if finish is None else str(finish))
        if ids is None:
            raise ServerError("the answer has no token_ids; vLLM sends them from 0.11 on (return_token_ids)")
        return _checked(ids, logprobs, finish=finish)

    def version(self, client: Client) -> str | None:
        """Label of the weights, from `/weight_info`."""
        found: str | None = at(_developer(client, HttpCall("/weight_info")), "weight_version")
        return found

    def name(self, client: Client, version: str) -> None:
        """Set the label of the weights by `/update_weight_version`."""
        client.ask(HttpCall("/update_weight_version", {"new_version": version}))

    def interrupt(self, client: Client) -> None:
        """Abort all requests by `/pause?mode=abort`, and `/resume`."""
        _developer(client, HttpCall("/pause?mode=abort", {}))
        self._resume(client)

    def wake(self, client: Client) -> None:
        """Send `/resume`, which a server without developer endpoints does not know."""
        with suppress(AbsentError):
            self._resume(client)

    @staticmethod
    def _resume(client: Client) -> None:
        """Send `/resume`, again if it fails: a server that stays paused answers nobody."""
        for pause in (*RESUMING, None):
            try:
                client.ask(HttpCall("/resume", {}))
                return
            except GoneError:
                if pause is None:
                    raise
                time.sleep(pause)

    def load(self, client: Client, folder: Path, version: str) -> None:
        """Load weights by `reload_weights`, between a pause, which drops cached prefixes, and a resume."""
        with self.paused(client):
            job = {"method": "reload_weights", "kwargs": {"weights_path": str(folder)}}
            client.ask(HttpCall("/collective_rpc", job, job=True), timeout=LOADING)
            self.name(client, version)

    @staticmethod
    @contextmanager
    def paused(client: Client) -> Iterator[None]:
        """Context in which the server is paused: it has answered what it was asked, and cached prefixes are gone."""
        _developer(client, HttpCall("/pause?mode=wait", {}), timeout=LOADING)
        try:
            yield
        finally:
            VLLM._resume(client)

    def models(self, client: Client) -> list[str]:
        """Names of models and adapters, from `/v1/models`."""
        return [str(at(each, "id")) for each in at(client.ask(HttpCall("/v1/models")), "data") or ()]

    def adapt(self, client: Client, name: str, folder: Path) -> None:
        """Load an adapter by `/v1/load_lora_adapter`."""
        body = {"lora_name": name, "lora_path": str(folder)}
        _developer(client, HttpCall("/v1/load_lora_adapter", body, job=True), timeout=LOADING)

    def forget(self, client: Client, name: str) -> None:
        """Unload an adapter by `/v1/unload_lora_adapter`."""
        client.ask(HttpCall("/v1/unload_lora_adapter", {"lora_name": name}, job=True))


class SGLang:
    """`Dialect` of SGLang by its native endpoints, whose answers hold the version of the weights."""

    hint = "a version that has update_weights_from_disk (for adapters --enable-lora)"
    repeats = True

    def sample(
        self, model: ServedModel, prompt: np.ndarray, *, seed: int, tokens: int, temperature: float, ends: Ends
    ) -> HttpCall:
        """Call of `/generate`. Seeds count for a server that was started with --enable-deterministic-inference."""
        sampling = {
            "max_new_tokens": tokens,
            "temperature": temperature,
            "top_p": 1.0,
            "top_k": -1,
            "min_p": 0.0,
            "repetition_penalty": 1.0,
            "sampling_seed": seed,
            "stop_token_ids": list(ends),
            "ignore_eos": not ends,
            "stream_interval": PARCEL,
        }
        body = {"input_ids": prompt.tolist(), "sampling_params": sampling, "return_logprob": True}
        return HttpCall("/generate", body if model.adapter is None else body | {"lora_path": model.adapter})

    def seed(self, seed: int, said: int) -> int:
        """The same seed: with --enable-deterministic-inference draws depend on it and on the token's position."""
        return seed

    def part(self, event: Any, model: ServedModel, said: int = 0) -> SampledAnswer:
        """New tokens of one event of `/generate` with `stream`.

        Events repeat all tokens so far, unless the server was started with --incremental-streaming-output; the count of
        all that was sampled (`completion_tokens`) tells which.

        Raises:
            GoneError: a temporary failure. ServerError: any other, or tokens are missing between two events.
        """
        _unbroken(event)
        finish = at(event, "meta_info", "finish_reason")
        if isinstance(code := at(finish, "status_code"), int):  # the status of an answer that is not streamed
            kind = ServerError if code < 500 else GoneError
            raise kind(f"the server broke off: {' '.join(str(at(finish, 'message')).split())[:300]}")
        told, total = (at(event, "meta_info", name) for name in ("output_token_logprobs", "completion_tokens"))
        if isinstance(told, list) and total == len(told):
            new = {**event["meta_info"], "output_token_logprobs": told[said:]}
            return self.read({**event, "meta_info": new}, model, least=0)
        more = self.read(event, model, least=0)
        if total != said + len(more.ids):
            raise ServerError(f"an event of the stream has {len(more.ids)} of {total} tokens after {said} were sent")
        return more

    def read(self, answer: Any, model: ServedModel, *, least: int = 1) -> SampledAnswer:
        """Sampled answer from `output_token_logprobs`: (log-probability, id, text) of each token, `least` or more."""
        said = at(answer, "meta_info", "output_token_logprobs")
        if not isinstance(said, list):
            raise ServerError("the answer has no output_token_logprobs; is the dialect 'sglang'?")
        version = at(answer, "meta_info", "weight_version")
        finish = at(answer, "meta_info", "finish_reason")
        finish = at(finish, "type") if isinstance(finish, dict) else finish
        if not said and (not least or finish == ABORT):
            return NOTHING._replace(version=version, finish=None if finish is None else str(finish))
        return _checked([at(each, 1) for each in said], [at(each, 0) for each in said], version, finish=finish)

    def version(self, client: Client) -> str | None:
        """Label of the weights, from `/model_info`, which older servers call `/get_model_info`."""
        try:
            answer = client.ask(HttpCall("/model_info"))
        except AbsentError:
            answer = client.ask(HttpCall("/get_model_info"))
        found: str | None = at(answer, "weight_version")
        return found

    def name(self, client: Client, version: str) -> None:
        """Set the label of the weights by `/update_weight_version`."""
        client.ask(HttpCall("/update_weight_version", {"new_version": version, "abort_all_requests": False}))

    def interrupt(self, client: Client) -> None:
        """Abort all requests by `/abort_request`."""
        client.ask(HttpCall("/abort_request", {"rid": "", "abort_all": True}))

    def wake(self, client: Client) -> None:
        """Nothing: it is not paused to break off answers."""

    def load(self, client: Client, folder: Path, version: str) -> None:
        """Load weights by `/update_weights_from_disk`."""
        self._settle(client)
        body = {"model_path": str(folder), "weight_version": version, "flush_cache": True}
        _succeeded(client.ask(HttpCall("/update_weights_from_disk", body, job=True), timeout=LOADING))

    @staticmethod
    @contextmanager
    def paused(client: Client) -> Iterator[None]:
        """Context in which the server is paused: it has broken off what it was asked, and what it is asked waits."""
        client.ask(HttpCall("/pause_generation", {"mode": "abort"}), timeout=LOADING)
        try:
            SGLang._settle(client)
            yield
        finally:
            client.ask(HttpCall("/continue_generation", {}))

    @staticmethod
    def _settle(client: Client) -> None:
        """Wait until it is done with what it has sent: until then it drops no cached prefixes, and an update fails.

        One that others keep busy is not waited for any longer: the update waits for their answers itself.
        """
        began = time.monotonic()
        while time.monotonic() - began < SETTLING:
            try:
                client.ask(HttpCall("/flush_cache", {}, job=True))
                return
            except (GoneError, LateError):
                raise
            except AbsentError:
                return
            except ServerError:
                time.sleep(0.05)

    def models(self, client: Client) -> list[str]:
        """Names of models and adapters, from `/v1/models`."""
        return [str(at(each, "id")) for each in at(client.ask(HttpCall("/v1/models")), "data") or ()]

    def adapt(self, client: Client, name: str, folder: Path) -> None:
        """Load an adapter by `/load_lora_adapter`."""
        body = {"lora_name": name, "lora_path": str(folder)}
        _succeeded(client.ask(HttpCall("/load_lora_adapter", body, job=True), timeout=LOADING))

    def forget(self, client: Client, name: str) -> None:
        """Unload an adapter by `/unload_lora_adapter`."""
        client.ask(HttpCall("/unload_lora_adapter", {"lora_name": name}, job=True))


DIALECTS: dict[str, type[VLLM] | type[SGLang]] = {"vllm": VLLM, "sglang": SGLang}


def dialect_of(name: str) -> Dialect:
    """Makes the `Dialect` of a name such as "vllm"; InputError if there is none."""
    if name not in DIALECTS:
        raise InputError(f"ServedPolicy: dialect {name!r} is unknown{nearest(name, DIALECTS)}")
    return DIALECTS[name]()


def encoded(client: Client, model: str, text: str) -> list[int] | None:
    """List of token ids of a text by `/tokenize` of a `Client`'s server, None if it errs; GoneError if it is gone."""
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


def _unbroken(event: Any) -> None:
    """Raises ServerError for an event of a stream that is an error; GoneError unless its code is 4xx."""
    if (error := at(event, "error")) is not None:
        code = at(error, "code")
        kind = ServerError if isinstance(code, int) and code < 500 else GoneError
        raise kind(f"the server broke off: {' '.join(str(at(error, 'message') or error).split())[:300]}")


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
