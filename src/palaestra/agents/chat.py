"""`ChatPolicy`: any OpenAI-compatible endpoint (vLLM, SGLang, Ollama, a hosted API) as a policy.

Every request ends as an answer or as a decision with `error`; `act` does not raise for what an endpoint does.
Configuration holds the name of an environment variable; the key itself is read for each call, kept nowhere and cut out
of every text that an endpoint sends. Left out: streaming, and a cache of answers, which a `keeper` is.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import json
import os
import random
import time
import warnings
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Literal, Protocol

import numpy as np

from palaestra.agents.backends import endpoint
from palaestra.agents.backends.breaker import Breaker
from palaestra.agents.backends.endpoint import UnusableAnswerError
from palaestra.agents.backends.replicas import Replica, Replicas
from palaestra.agents.backends.wire import NotSentError, StatusError, Wire, json_of
from palaestra.agents.conversation import to_record
from palaestra.agents.policy import Decision, Request, error_text
from palaestra.agents.streaming import AnswerStream, AsyncStream
from palaestra.algebra.turns import clean
from palaestra.envs.conversations import Reader, without_system
from palaestra.envs.protocol import Observation
from palaestra.envs.tool_calls import FORMATS
from palaestra.errors import InputError, nearest

if TYPE_CHECKING:
    import tenacity

LONGEST_ERROR = 300
SCHEMA_WORDS = ("response_format", "schema", "guided", "grammar")
SYSTEM_WORDS = ("system role", "system message", "roles must alternate", "only user and assistant")
"""How endpoints, and the chat templates behind them, refuse a form of reply, or a system message."""
_PRICED = {"prompt_tokens": ("tokens_in", "price_in"), "completion_tokens": ("tokens_out", "price_out")}


class AnswerKeeper(Protocol):
    """Protocol of a persistent cache of a `ChatPolicy`'s answers: `find(body, draw)` -> `Decision` or None, `add`.

    See `palaestra.judges.kept_calls`.
    """

    def find(self, body: Mapping[str, Any], draw: int) -> Decision | None:
        """Stored answer to a request, or None; `draw` tells samples of the same request apart."""

    def add(self, body: Mapping[str, Any], draw: int, decision: Decision) -> None:
        """Store an answer before it is used."""


class ChatPolicy:
    """Policy that asks a chat model over HTTP (OpenAI's API) at `base_url`, without learning.

    base_url None is $OPENAI_BASE_URL, or OpenAI's own. The policy holds no credentials.

    base_url: a list of addresses stands for replicas of one model: each request goes to the one with the fewest under
    way, one that fails to answer is asked again elsewhere at once, and one that is absent gets none until it is back.

    api_key_env: NAME of the environment variable with the key; None for endpoints that want none.
    concurrency: most requests at a time, of all replicas. timeout: seconds for one attempt, from sending to the last
    byte; an answer of more than 8 MiB is cut off.
    retries: further attempts after 408, 409, 429, 5xx, timeouts, broken connections and unusable answers, but not after
    one that was refused, filtered or cut off before its first word, which would be the same again; before the
    n-th one it waits uniform(0, min(longest_wait, wait · 2ⁿ⁻¹)) seconds, or longer, up to `longest_wait`, if the
    endpoint says Retry-After (seconds or a date) or retry-after-ms.
    patience: seconds that the endpoint may be absent. After three failures in a row to reach it (no connection, a
    timeout, 502, 503, 504, a page) all requests pause together and one at a time is sent as a probe, after growing
    waits up to `longest_wait`. An attempt without a connection does not count, nor does a probe, unless it timed out.
    After `patience` seconds without any answer all that is open fails, and later calls send one probe each.
    tool_format: how calls that come as `tool_calls` are written into the action, one of
    `palaestra.envs.tool_calls.FORMATS`.
    structured: "auto": hold replies to the observation's JSON schema if there is one (`response_format`), until the
    endpoint refuses that; True: always; False: never, then replies are read out of text. An endpoint that refuses
    system messages is sent their text in front of the first user's from then on.
    temperature, max_tokens, top_p, stop: not sent if None; stop: texts that end an answer. max_tokens is sent as
    `max_completion_tokens` once a model has refused the former name for the latter.
    chat_template_kwargs: variables of the server's chat template, `{enable_thinking: false}` for example, which vLLM
    and SGLang take. seed: send one drawn from the episode's rng, so that endpoints which honour it answer reproducibly.
    logprobs: ask for them; they come without token ids, so they can be looked at but
    not trained on. price_in, price_out: per million tokens, for `cost`.
    Tokens and cost of a decision are those of all its attempts, for answers that nobody could use are billed too; what
    an endpoint does not say is None, and left out of the sums.
    totals: requests, attempts, errors, tokens_in, tokens_out, cost of all calls so far, and `unknown`: how many counts
    of tokens were missing or impossible, such as -1 or 10¹²; `lost`: attempts without an answer that may have been
    billed (timeouts, broken connections, 408, 502, 504, 524); `known`: requests that the keeper had an answer to.
    keeper: keeps answers as they come and is asked before the endpoint is; None: nobody does. A draw of the request's
    rng then tells its samples apart, also where `seed` is not sent. It is not copied with the policy.
    Raises InputError if the variable is not set, or if what is given looks like a key.
    """

    waits = True

    def __init__(
        self,
        model: str,
        *,
        base_url: str | Sequence[str] | None = None,
        api_key_env: str | None = "OPENAI_API_KEY",
        name: str | None = None,
        concurrency: int = 8,
        timeout: float = 60.0,
        retries: int = 5,
        wait: float = 1.0,
        longest_wait: float = 30.0,
        patience: float = 300.0,
        temperature: float | None = 1.0,
        max_tokens: int | None = 512,
        top_p: float | None = None,
        stop: str | Sequence[str] | None = None,
        chat_template_kwargs: Mapping[str, Any] | None = None,
        seed: bool = True,
        logprobs: bool = False,
        tool_format: str = "hermes",
        structured: bool | Literal["auto"] = "auto",
        price_in: float | None = None,
        price_out: float | None = None,
    ) -> None:
        endpoint.check_key_name(api_key_env, "ChatPolicy: ")
        self.addresses = _addresses(base_url)
        _check("concurrency", concurrency, 1, whole=True)
        _check("retries", retries, 0, whole=True)
        _check("timeout", timeout, 0, above=True)
        _check("wait", wait, 0)
        _check("longest_wait", longest_wait, 0)
        _check("patience", patience, 0)
        _check("temperature", temperature, 0, optional=True)
        _check("max_tokens", max_tokens, 1, whole=True, optional=True)
        _check("top_p", top_p, 0, above=True, optional=True)
        if top_p is not None and top_p > 1:
            raise InputError(f"ChatPolicy: top_p is {top_p!r}, expected at most 1")
        _check("price_in", price_in, 0, optional=True)
        _check("price_out", price_out, 0, optional=True)
        if tool_format not in FORMATS:
            raise InputError(f"ChatPolicy: tool_format is {tool_format!r}{nearest(str(tool_format), FORMATS)}")
        if structured not in (True, False, "auto"):
            raise InputError(f"ChatPolicy: structured is {structured!r}, expected true, false or 'auto'")
        self.tool_format, self.structured = tool_format, structured
        self._without: set[str] = set()
        self.model, self.base_url, self.api_key_env, self.name = model, base_url, api_key_env, name or model
        self.concurrency, self.timeout, self.retries = concurrency, timeout, retries
        self.wait, self.longest_wait, self.patience = wait, longest_wait, patience
        self.temperature, self.max_tokens, self.seed, self.logprobs = temperature, max_tokens, seed, logprobs
        self.price_in, self.price_out = price_in, price_out
        self.top_p, self.stop = top_p, [stop] if isinstance(stop, str) else list(stop or ())
        self.chat_template_kwargs = dict(chat_template_kwargs or {})
        self.totals: dict[str, float] = dict.fromkeys(
            ("requests", "attempts", "errors", "tokens_in", "tokens_out", "cost", "unknown", "lost", "known"), 0
        )
        self.keeper: AnswerKeeper | None = None
        self._absent_since: float | None = None
        self._jitter = random.Random()

    def __getstate__(self) -> dict[str, Any]:
        """All but the keeper, whose file one process has."""
        return {**self.__dict__, "keeper": None}

    def act(self, requests: Sequence[Request]) -> list[Decision]:
        """Ask for all answers at once; blocks until each has arrived or failed."""
        if not requests:
            return []
        draws = [self._draw(request) for request in requests]
        decisions = _run(self._ask_all(requests, draws))
        for decision in decisions:
            self._add_up(decision)
        return decisions

    def stream(self) -> AnswerStream | None:
        """New stream of answers, one client for all; None where a subclass has an `act` of its own."""
        return AsyncStream(self._streamed) if type(self).act is ChatPolicy.act else None

    @contextlib.asynccontextmanager
    async def _streamed(self) -> AsyncIterator[Callable[[Request], Awaitable[Decision]]]:
        async with self._opened() as ask:

            async def answer(request: Request) -> Decision:
                decision = await ask(request.observation, self._draw(request))
                self._add_up(decision)
                return decision

            yield answer

    def _draw(self, request: Request) -> int | None:
        """Number of a sample of this request: what is sent as its seed, and what a keeper tells samples apart by."""
        return int(request.rng.integers(2**31)) if self.seed or self.keeper is not None else None

    def _add_up(self, decision: Decision) -> None:
        self.totals["requests"] += 1
        self.totals["errors"] += decision.error is not None
        self.totals["known"] += decision.known
        self.totals["tokens_in"] += decision.tokens_in or 0
        self.totals["tokens_out"] += decision.tokens_out or 0
        self.totals["cost"] += decision.cost or 0

    async def _ask_all(self, requests: Sequence[Request], draws: Sequence[int | None]) -> list[Decision]:
        async with self._opened() as ask:
            return list(
                await asyncio.gather(
                    *[ask(request.observation, draw) for request, draw in zip(requests, draws, strict=True)]
                )
            )

    @contextlib.asynccontextmanager
    async def _opened(self) -> AsyncIterator[Callable[[Observation, int | None], Awaitable[Decision]]]:
        """One client, as many requests at a time as allowed, one breaker; gives what asks for one answer."""
        key = os.environ.get(self.api_key_env, "") if self.api_key_env else ""
        slots = asyncio.Semaphore(self.concurrency)
        waits: dict[str, Any] = {"patience": self.patience, "wait": self.wait, "longest_wait": self.longest_wait}
        async with contextlib.AsyncExitStack() as stack:
            servers = []
            for address in self.addresses:
                wire = Wire(_target(address), key)
                stack.push_async_callback(wire.close)
                servers.append(Replica(wire, endpoint.address(address), Breaker(**waits, since=self._absent_since)))
            replicas = Replicas(servers, **waits)
            stack.push_async_callback(replicas.close)
            yield functools.partial(self._ask, replicas, slots, key)
        self._absent_since = replicas.since

    async def _ask(
        self,
        replicas: Replicas,
        slots: asyncio.Semaphore,
        key: str,
        observation: Observation,
        draw: int | None,
    ) -> Decision:
        from tenacity import AsyncRetrying, retry_if_exception, stop_after_attempt

        start = time.perf_counter()
        attempts = AsyncRetrying(
            stop=stop_after_attempt(self.retries + 1),
            wait=self._pause,
            retry=retry_if_exception(_may_pass),
            reraise=True,
        )
        decision = Decision("")
        try:  # an observation may hold what is no JSON
            while True:
                reader, body = self._body(observation, draw if self.seed else None)
                if (known := self._known(body, draw)) is not None:
                    known.messages = to_record(observation, reader)
                    return known
                try:
                    answer: Any = await attempts(self._attempt, replicas, slots, body, decision)
                    break
                except Exception as error:
                    if not self._give_up(body, error):
                        raise
            decision.messages = to_record(observation, reader)
            choice = answer["choices"][0]
            text = clean(endpoint.message_text(choice["message"], self.tool_format)).strip()
            decision.action = endpoint.redacted(key, text, shortest=endpoint.SHORTEST_KEY)
            decision.finish = endpoint.finish_reason(endpoint.at(choice, "finish_reason"))
            decision.logprobs = _logprobs(choice) if self.logprobs else None
        except Exception as error:
            where = f" [model {self.model!r} at {self._address()}]"
            decision.error = endpoint.redacted(key, _describe(error))[: max(80, LONGEST_ERROR - len(where))] + where
        decision.duration = time.perf_counter() - start
        if self.keeper is not None and draw is not None and not decision.error:
            self.keeper.add(body, draw, decision)
        return decision

    def _known(self, body: Mapping[str, Any], draw: int | None) -> Decision | None:
        return None if self.keeper is None or draw is None else self.keeper.find(body, draw)

    def _body(self, observation: Observation, seed: int | None) -> tuple[Reader, dict[str, Any]]:
        """Request to the endpoint, and as whom its messages were written."""
        held = self.structured is True or (self.structured and "response_format" not in self._without)
        schema = observation.schema if held and not observation.tools else None
        reader = Reader(structured=schema is not None)
        talk = observation.conversation(reader)
        body: dict[str, Any] = {
            "model": self.model,
            "messages": endpoint.messages(without_system(talk) if "system" in self._without else talk),
            "tools": [dict(tool) for tool in observation.tools] or None,
            "response_format": schema and endpoint.json_schema_format(schema),
            "temperature": self.temperature,
            "max_completion_tokens" if "max_tokens" in self._without else "max_tokens": self.max_tokens,
            "seed": seed,
            "top_p": self.top_p,
            "stop": self.stop or None,
            "logprobs": self.logprobs or None,
            "chat_template_kwargs": self.chat_template_kwargs or None,
        }
        return reader, {field: value for field, value in body.items() if value is not None}

    def _give_up(self, body: Mapping[str, Any], error: BaseException) -> bool:
        """Whether the request can be asked without something that the endpoint refuses, from now on."""
        if "response_format" in body and self.structured == "auto" and _refuses(error, SCHEMA_WORDS):
            self._without.add("response_format")
        elif [each["role"] for each in body["messages"][:2]] == ["system", "user"] and _refuses(error, SYSTEM_WORDS):
            self._without.add("system")
        elif "max_tokens" in body and _refuses(error, ("max_completion_tokens",)):
            self._without.add("max_tokens")
        else:
            return False
        return True

    async def _attempt(
        self,
        replicas: Replicas,
        slots: asyncio.Semaphore,
        body: dict[str, Any],
        decision: Decision,
    ) -> Any:
        """An answer with a text; what it took is added to the decision, whether there is a text or not.

        Where a replica does not answer, another one is asked at once.
        """
        answer, last, elsewhere = None, None, len(replicas.all) - 1
        while answer is None:
            async with slots:
                replica, probe = await replicas.enter(last)
                replica.under_way, replica.sent = replica.under_way + 1, replica.sent + 1
                try:
                    answer = await self._send(replica, body)
                except Exception as error:
                    self.totals["lost"] += _lost(error)
                    if not _absent(error):
                        replicas.answered(replica)
                        raise
                    replicas.failed(replica, _describe(error), probe=probe)
                    if _sent(error) and (not probe or isinstance(error, TimeoutError)):
                        if not elsewhere or replicas.least(replica) in (None, replica):
                            raise
                        elsewhere -= 1
                    last = replica
                else:
                    replicas.answered(replica)
                finally:
                    replica.under_way -= 1
        self._count(endpoint.at(answer, "usage"), decision)
        choices = endpoint.at(answer, "choices")
        if not isinstance(choices, list) or not choices:
            raise endpoint.without_choices(answer)
        message = endpoint.at(choices[0], "message")
        if endpoint.content(message) is None and not endpoint.calls(message):
            raise endpoint.without_text(choices[0], self.max_tokens)
        return answer

    async def _send(self, replica: Replica, body: dict[str, Any]) -> Any:
        """JSON of the response to one request; never None."""
        self.totals["attempts"] += 1
        try:
            response = await replica.wire.post("/chat/completions", json.dumps(body).encode(), self.timeout)
        except TimeoutError:
            raise TimeoutError(f"no whole answer within {self.timeout:g} s") from None
        if 300 <= response.status < 400:
            raise endpoint.redirected(replica.address, response.status, response.headers.get("location"))
        if response.status >= 400:
            raise StatusError(response)
        found = json_of(response)
        return {} if found is None else found

    def _count(self, usage: Any, decision: Decision) -> None:
        """Add what one answer took."""
        counts = {name: endpoint.count(endpoint.at(usage, name)) for name in _PRICED}
        for name, (field, _) in _PRICED.items():
            if (number := counts[name]) is not None:
                setattr(decision, field, (getattr(decision, field) or 0) + number)
                continue
            self.totals["unknown"] += 1
            if (found := endpoint.at(usage, name)) is not None:
                shown = str(found)[:20] if isinstance(found, int | float) else f"a {type(found).__name__}"
                warnings.warn(
                    f"ChatPolicy {self.name!r}: {self._address()} says usage.{name} is {shown}; "
                    f"such counts are taken as unknown (totals['unknown'])",
                    stacklevel=2,
                )
        prices = [(counts[name], getattr(self, price)) for name, (_, price) in _PRICED.items()]
        prices = [(number, price) for number, price in prices if price is not None]
        if prices and all(number is not None for number, _ in prices):
            decision.cost = (decision.cost or 0.0) + sum(number * price for number, price in prices) / 1e6

    def _address(self) -> str:
        first = endpoint.address(_target(self.addresses[0]))
        return first if len(self.addresses) == 1 else f"{first} and {len(self.addresses) - 1} more"

    def _pause(self, state: tenacity.RetryCallState) -> float:
        """Full jitter from a generator of its own: neither the episode's nor the global stream moves."""
        pause = self._jitter.uniform(0, min(self.longest_wait, self.wait * 2 ** (state.attempt_number - 1)))
        error = state.outcome.exception() if state.outcome else None
        asked = endpoint.retry_after(error.headers) if isinstance(error, StatusError) else None
        return pause if asked is None else max(pause, min(asked, self.longest_wait))


def _target(address: str | None) -> str:
    """Address that requests go to if so much is given."""
    return address or os.environ.get("OPENAI_BASE_URL") or endpoint.OPENAI


def _addresses(base_url: str | Sequence[str] | None) -> tuple[str | None, ...]:
    """The addresses of the replicas, which are checked."""
    found = tuple(base_url) if isinstance(base_url, list | tuple) else (base_url,)
    for each in found:
        if each is None:
            endpoint.check_address(_target(None), "ChatPolicy: OPENAI_BASE_URL")
        endpoint.check_address(each)
    if not found or len(set(found)) < len(found):
        raise InputError(f"ChatPolicy: base_url has {len(found)} addresses, expected at least one and each once")
    return found


def _check(
    name: str, value: Any, least: float, *, whole: bool = False, above: bool = False, optional: bool = False
) -> None:
    """Raises InputError for a setting that is no number of this range."""
    if optional and value is None:
        return
    kinds = int if whole else int | float
    fits = isinstance(value, kinds) and not isinstance(value, bool) and (value > least if above else value >= least)
    if not fits or value == float("inf"):
        wanted = f"a {'whole ' * whole}number {'above' if above else 'of at least'} {least}"
        raise InputError(f"ChatPolicy: {name} is {value!r}, expected {wanted}{' or None' * optional}")


def _logprobs(choice: Any) -> np.ndarray | None:
    """float32[tokens]; None unless there is a finite number for each."""
    tokens = endpoint.at(choice, "logprobs", "content") or []
    try:
        found = np.array([token["logprob"] for token in tokens], np.float32)
    except (TypeError, ValueError, LookupError, OverflowError):
        return None
    return found if len(found) and np.isfinite(found).all() else None


def _refuses(error: BaseException, words: Sequence[str]) -> bool:
    """Whether an endpoint says that it does not take what these words name."""
    refused = isinstance(error, StatusError) and error.status in (400, 422)
    return refused and any(word in str(error).casefold() for word in words)


def _may_pass(error: BaseException) -> bool:
    """Whether asking again may help."""
    if isinstance(error, StatusError):
        return error.status in endpoint.PASSING or error.status >= 500
    return isinstance(error, OSError | UnusableAnswerError)


def _sent(error: BaseException) -> bool:
    """Whether anybody may have seen the request."""
    return not isinstance(error, NotSentError)


def _absent(error: BaseException) -> bool:
    """Whether it was not the endpoint itself that answered."""
    if isinstance(error, StatusError):
        return error.status in endpoint.ABSENT
    return isinstance(error, OSError | endpoint.ProxyAnswerError)


def _lost(error: BaseException) -> bool:
    """Whether an attempt may have been billed although it brought nothing."""
    if isinstance(error, StatusError):
        return error.status in endpoint.UNCERTAIN
    return not isinstance(error, endpoint.RedirectedError) and _sent(error)


def _describe(error: Exception) -> str:
    """`Type: message (cause)` on one line."""
    cause = f" ({error_text(error.__cause__)})" if error.__cause__ else ""
    return " ".join((error_text(error) + cause).split())


def _run(work: Coroutine[Any, Any, list[Decision]]) -> list[Decision]:
    """Run to the end, in a thread of its own if the caller is inside an event loop already (a notebook is)."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(work)
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, work).result()
