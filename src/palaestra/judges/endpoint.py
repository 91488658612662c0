"""An OpenAI-compatible endpoint that judges by the thousand: many at a time, each paid once, never beyond a budget.

What `agents.ChatPolicy` is for play, this is for files: answers go into a ledger as they come, a run that was killed
goes on, and a question that may have been paid for is not sent again unless one says `again`. The key is read from an
environment variable for each run and kept nowhere.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import random
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from palaestra.agents.backends import endpoint as rules
from palaestra.agents.backends.breaker import Breaker, OutageError
from palaestra.agents.backends.endpoint import ProxyAnswerError, UnusableAnswerError
from palaestra.agents.backends.wire import NotSentError, Response, Wire, json_of, refusal_text
from palaestra.algebra.turns import clean
from palaestra.errors import InputError, StorageError
from palaestra.judges.asking import Reply
from palaestra.judges.ledger import LOST, REFUSED, SAID, Ledger, LedgerTotal, State

MARGIN = 256
"""Tokens that a chat template may add to a prompt, of which a tokeniser makes at most one per byte."""
LETTERS = 4
"""Bytes of a token, about: for estimates, never for limits."""
_AGAIN = (408, 409, 429)
_UNSURE = "; it may have been paid for"


@dataclass(frozen=True)
class Budget:
    """Limits on a ledger's totals over all its runs: requests sent, tokens in both directions, price.

    Before a request is sent, the most that it can take is set aside: a token per byte of the prompt, some for the
    template, `max_tokens` for the answer. What does not fit is not sent, so no concurrency exceeds it.

    Raises:
        InputError: a limit is not positive.
    """

    calls: int | None = None
    tokens: int | None = None
    price: float | None = None

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if value is not None and not 0 < value < float("inf"):
                raise InputError(f"budget: {name} is {value!r}, expected a positive number")

    def allows(self, spent: LedgerTotal, more: LedgerTotal) -> bool:
        """Whether there is room for one call more."""
        pairs = ((self.calls, spent.calls + 1), (self.tokens, spent.tokens + more.tokens))
        fits = all(limit is None or value <= limit for limit, value in pairs)
        return fits and (self.price is None or spent.cost + more.cost <= self.price + 1e-12)


@dataclass
class Progress:
    """Data on the progress of a batch of questions to an endpoint: how many are known, done, failed and left.

    Attributes:
        total: Distinct questions.
        known: Those found in the ledger.
        done: Those decided by this run.
        failed: Those of them that ended without an answer.
        began: `time.perf_counter()` of the start, later by the length of every outage since.
        absent: Seconds since the endpoint was last there; 0 while it answers.
        why: What the last request met if it is absent.
    """

    total: int
    known: int = 0
    done: int = 0
    failed: int = 0
    began: float = field(default_factory=time.perf_counter)
    absent: float = 0.0
    why: str = ""

    @property
    def left(self) -> int:
        """Number of questions that are not decided yet."""
        return self.total - self.known - self.done

    @property
    def seconds_left(self) -> float | None:
        """Estimated seconds left at the pace so far; None before anything is done and while the endpoint is absent."""
        return None if not self.done or self.absent else (time.perf_counter() - self.began) / self.done * self.left


class Endpoint:
    """Asker of a chat model at an OpenAI-compatible endpoint, in parallel, within a budget; a ledger keeps all answers.

    Args:
        model, base_url: `base_url` None is $OPENAI_BASE_URL, or OpenAI's own. api_key_env: NAME of the variable.
        temperature, max_tokens: of an answer; one that is cut off at max_tokens cannot be read as a verdict.
        concurrency: most requests at a time. timeout: seconds for one.
        retries: further attempts after a refusal that may pass (409, 429, 5xx) or what a proxy sends in place of an
            answer (408, 502, 504, 524, a page, an encoding that was not asked for), each after
            uniform(0, min(longest_wait, wait · 2ⁿ⁻¹)) seconds, in which others are asked; if the endpoint says
            Retry-After, nobody is asked for so long, up to longest_wait. What a proxy sends in place of an answer may
            have been paid for: each such attempt stays in the ledger as lost, at the most that it can have taken.
        patience: seconds that an endpoint may be absent. After three failures in a row to reach it all questions pause
            together and one at a time is sent as a probe, after growing waits up to longest_wait; without a connection
            an attempt does not count. After `patience` seconds without any answer, `ask` raises.
        price_in, price_out: per million tokens.
        ledger: a file, or a `Ledger`; None keeps it in memory. budget: of the ledger.
        again: also ask what may have been paid for and never came: a timeout, a broken connection, a killed run.
        watch: called with `Progress` after every answer.

    Attributes:
        counted: called after every `ask` with calls, tokens, cost, how many of them the ledger had before, how many
            have no answer, and why the last of these has none. Tokens and cost of a question are told once.
        told: tokens and cost of every question that were told so far, by its key.

    Raises:
        InputError: the variable is not set or looks like a key, an option is impossible, a budget in price without
            prices.
    """

    def __init__(
        self,
        model: str,
        *,
        base_url: str | None = None,
        api_key_env: str | None = "OPENAI_API_KEY",
        temperature: float | None = 0.0,
        max_tokens: int = 512,
        concurrency: int = 16,
        timeout: float = 60.0,
        retries: int = 5,
        wait: float = 1.0,
        longest_wait: float = 30.0,
        patience: float = 600.0,
        price_in: float | None = None,
        price_out: float | None = None,
        ledger: str | Path | Ledger | None = None,
        budget: Budget | None = None,
        again: bool = False,
        watch: Callable[[Progress], None] | None = None,
    ) -> None:
        self.base_url = base_url or os.environ.get("OPENAI_BASE_URL") or rules.OPENAI
        rules.check_address(self.base_url, "endpoint")
        for name, value, least in (
            ("concurrency", concurrency, 1),
            ("retries", retries, 0),
            ("timeout", timeout, 1e-3),
            ("wait", wait, 0),
            ("longest_wait", longest_wait, 0),
            ("patience", patience, 0),
            ("max_tokens", max_tokens, 1),
            ("price_in", price_in or 0, 0),
            ("price_out", price_out or 0, 0),
        ):
            if not least <= value < float("inf"):
                raise InputError(f"endpoint: {name}={value!r} must be at least {least:g}")
        self.budget = budget or Budget()
        if self.budget.price is not None and price_in is None and price_out is None:
            raise InputError("budget: a limit in price needs price_in and price_out, per million tokens")
        rules.check_key_name(api_key_env)
        self.model, self.name, self.api_key_env = model, model, api_key_env
        self.temperature, self.max_tokens, self.concurrency = temperature, max_tokens, concurrency
        self.timeout, self.retries, self.wait, self.longest_wait = timeout, retries, wait, longest_wait
        self.patience = patience
        self.price_in, self.price_out, self.again, self.watch = price_in or 0.0, price_out or 0.0, again, watch
        self.ledger = ledger if isinstance(ledger, Ledger) else Ledger(ledger)
        self.counted: Callable[..., None] | None = None
        self.told: dict[str, tuple[int, float]] = {}
        self._jitter = random.Random()

    def body(self, prompt: str, vote: int) -> bytes:
        """Request body of a question; votes differ by their seed. Its digest is the key of the answer."""
        asked: dict[str, Any] = {
            "model": self.model,
            "messages": [{"role": "user", "content": prompt}],
            "max_tokens": self.max_tokens,
            "seed": vote,
        }
        if self.temperature is not None:
            asked["temperature"] = self.temperature
        return json.dumps(asked).encode()

    def most(self, prompt: str) -> LedgerTotal:
        """Upper bound of one call's tokens and price, for what the endpoint does not report."""
        tokens = len(prompt.encode(errors="replace")) + MARGIN
        cost = (tokens * self.price_in + self.max_tokens * self.price_out) / 1e6
        return LedgerTotal(1, tokens + self.max_tokens, cost)

    def estimate(self, prompts: Sequence[tuple[str, int]]) -> dict[str, Any]:
        """Cost estimate of asking these, without asking: questions, those that are known, calls, tokens and price.

        tokens and price are about what they will be, with answers half as long as they may be; `most_…` is what they
        cannot exceed without retries.
        """
        bodies = {_key(self.body(prompt, vote)): prompt for prompt, vote in dict.fromkeys(prompts)}
        known = self._answered(self.ledger.known(list(bodies)))
        open_ = [prompt for key, prompt in bodies.items() if key not in known]
        sent = sum(len(prompt.encode(errors="replace")) // LETTERS + 8 for prompt in open_)
        said = len(open_) * self.max_tokens // 2
        most = [self.most(prompt) for prompt in open_]
        return {
            "questions": len(prompts),
            "known": len(bodies) - len(open_),
            "calls": len(open_),
            "tokens": sent + said,
            "price": (sent * self.price_in + said * self.price_out) / 1e6,
            "most_tokens": sum(each.tokens for each in most),
            "most_price": sum(each.cost for each in most),
        }

    def ask(self, prompts: Sequence[tuple[str, int]]) -> list[Reply]:
        """A reply for each (prompt, number of the vote), in order: an answer, or an error that says why there is none.

        Raises:
            StorageError: the ledger cannot be written.
            OutageError: the endpoint was absent for `patience` seconds; what was answered is in the ledger.
        """
        secret = os.environ.get(self.api_key_env, "") if self.api_key_env else ""
        bodies = [self.body(prompt, vote) for prompt, vote in prompts]
        keys = [_key(body) for body in bodies]
        before = self.ledger.known(keys)
        found = self._answered(before)
        open_ = {
            key: _Job(key, body, self.most(prompt), reply=_paid(before.get(key)))
            for key, (prompt, _), body in zip(keys, prompts, bodies)
            if key not in found
        }
        progress = Progress(len(set(keys)), len(found))
        if open_:
            _run(self._all(open_, found, progress, secret))
        self._count({key: found[key] for key in keys})
        first: set[str] = set()
        replies = []
        for key in keys:
            reply = found[key]
            replies.append(Reply(reply.text, reply.error, known=True) if key in first else reply)
            first.add(key)
        return replies

    def _count(self, found: Mapping[str, Reply]) -> None:
        errors = [each.error for each in found.values() if each.text is None]
        if self.counted is not None and found:
            whole = {key: (each.tokens_in + each.tokens_out, each.cost) for key, each in found.items()}
            before = [self.told.get(key, (0, 0.0)) for key in whole]
            self.told |= whole
            self.counted(
                calls=len(found),
                tokens=sum(tokens for tokens, _ in whole.values()) - sum(tokens for tokens, _ in before),
                cost=sum(cost - known for (_, cost), (_, known) in zip(whole.values(), before, strict=True)),
                known=sum(each.known for each in found.values()),
                failed=len(errors),
                why=errors[-1] if errors else None,
            )

    def _answered(self, found: Mapping[str, Reply]) -> dict[str, Reply]:
        """Answers that are known already; with `again` lost ones are asked again."""
        return {key: reply for key, reply in found.items() if not (self.again and reply.text is None)}

    async def _all(self, open_: Mapping[str, _Job], found: dict[str, Reply], progress: Progress, secret: str) -> None:
        wire, gate = Wire(self.base_url, secret), _Gate(self.budget, self.ledger)
        breaker = Breaker(patience=self.patience, wait=self.wait, longest_wait=self.longest_wait)
        jobs = deque(open_.values())
        left, more = len(jobs), asyncio.Event()

        def back(job: _Job) -> None:
            jobs.append(job)
            more.set()

        async def worker() -> None:
            nonlocal left
            while left:
                if not jobs:
                    more.clear()
                    await more.wait()
                    continue
                job = jobs.popleft()
                pause = await self._try(wire, gate, breaker, job, secret)
                if breaker.open or progress.absent:
                    self._tell(breaker, progress)
                if pause is not None:  # others are asked meanwhile
                    asyncio.get_running_loop().call_later(pause, back, job)
                    continue
                found[job.key], left = job.reply, left - 1
                progress.done += 1
                progress.failed += job.reply.text is None
                if not left:
                    more.set()
                if self.watch:
                    self.watch(progress)

        workers = [asyncio.create_task(worker()) for _ in range(min(self.concurrency, left))]
        try:
            await asyncio.gather(*workers)
        except OutageError as error:
            raise OutageError(self._stopped(progress, str(error))) from None
        finally:
            for each in workers:
                each.cancel()
            self.ledger.commit()
            await wire.close()

    def _tell(self, breaker: Breaker, progress: Progress) -> None:
        """Take the outage, or its end, into the progress."""
        if not breaker.open:
            progress.began += progress.absent
        progress.absent, progress.why = breaker.seconds, breaker.why if breaker.open else ""
        if self.watch:
            self.watch(progress)

    def _stopped(self, progress: Progress, why: str) -> str:
        answered = progress.known + progress.done - progress.failed
        kept = f"in {self.ledger.path}: run the same again" if self.ledger.path else "known to this Endpoint: ask again"
        return (
            f"{rules.address(self.base_url)}: {why}. {answered} of {progress.total} questions are answered and {kept}"
            f" when it is back, and only the others are asked (with again=True, --again, also those that may have been"
            f" paid for and got no answer). Longer outages: patience={self.patience:g} (seconds)"
        )

    async def _try(self, wire: Wire, gate: _Gate, breaker: Breaker, job: _Job, secret: str) -> float | None:
        """One attempt; the seconds after which another one may help, None if this was the last."""
        whole = job.reply
        probe = await breaker.enter()
        if not await gate.enter(job.most):
            if probe:
                breaker.release()
            spent = self.budget.allows(
                LedgerTotal(), job.most
            )  # or the most that the call can take is more than all of it
            whole.error = whole.error or f"the budget is {'spent' if spent else 'too small for one call'}"
            return None
        number = self.ledger.send(job.key, job.most.tokens - self.max_tokens, self.max_tokens, job.most.cost)
        await gate.committed()
        result = await self._attempt(wire, job.body, job.most)
        reply = result.reply
        if secret:
            reply.error = reply.error and rules.redacted(secret, reply.error)
            reply.text = reply.text and rules.redacted(secret, reply.text, shortest=rules.SHORTEST_KEY)
        self.ledger.settle(number, job.key, result.state, reply, job.most)
        gate.leave(result.pause or 0.0)
        if result.absent:
            breaker.failed(reply.error or "", probe=probe)
        else:
            breaker.answered()
        whole.text, whole.error = reply.text, reply.error
        whole.tokens_in, whole.tokens_out = whole.tokens_in + reply.tokens_in, whole.tokens_out + reply.tokens_out
        whole.cost, whole.duration = whole.cost + reply.cost, whole.duration + reply.duration
        if result.absent and result.state == REFUSED and (probe or not result.sent):
            return 0.0  # the breaker waits, and a question has no part in it
        job.attempts += 1
        if result.pause is None or job.attempts > self.retries:
            return None
        return self._jitter.uniform(0, min(self.longest_wait, self.wait * 2.0 ** (job.attempts - 1)))

    async def _attempt(self, wire: Wire, body: bytes, most: LedgerTotal) -> _Outcome:
        began, found = time.perf_counter(), _Outcome()
        reply = found.reply
        try:
            response = await wire.post("/chat/completions", body, self.timeout)
            if response.status == 200:
                self._read(response, reply, most)
                found.state = SAID
            elif 300 <= response.status < 400:
                found.state = REFUSED
                reply.error = str(rules.redirected(self.base_url, response.status, response.headers.get("location")))
            else:
                reply.error = refusal_text(response)
                found.absent = response.status in rules.ABSENT
                if response.status in rules.UNCERTAIN:
                    reply.error += _UNSURE
                else:
                    found.state = REFUSED
                if response.status in _AGAIN or response.status >= 500:
                    found.pause = min(rules.retry_after(response.headers) or 0.0, self.longest_wait)
        except NotSentError as error:
            found.state, found.absent, found.sent, found.pause = REFUSED, True, False, 0.0
            reply.error = str(error)
        except ProxyAnswerError as error:
            found.absent, found.pause = True, 0.0
            reply.error = f"{error}{_UNSURE}"
        except TimeoutError:
            found.absent = True
            reply.error = f"no whole answer within {self.timeout:g} s{_UNSURE}"
        except OSError as error:
            found.absent = True
            reply.error = f"{error}{_UNSURE}"
        except UnusableAnswerError as error:
            reply.error = f"{error}{_UNSURE}"
        reply.duration = time.perf_counter() - began
        if reply.error and found.state != SAID:
            reply.error = clean(" ".join(reply.error.split())[:300])
        return found

    def _read(self, response: Response, reply: Reply, most: LedgerTotal) -> None:
        """Read a response with status 200. One that is no chat completion was paid for all the same and has no text.

        Raises:
            UnusableAnswerError: there is no text in it.
            ProxyAnswerError: it is a page.
        """
        whole = json_of(response)
        try:
            choice = whole["choices"][0]
            text = choice["message"]["content"]
        except (LookupError, TypeError):
            raise UnusableAnswerError("the answer is no chat completion") from None
        if not isinstance(text, str):
            refusal = choice["message"].get("refusal")
            if not isinstance(refusal, str):
                raise UnusableAnswerError("the answer has no text")
            text = refusal
        reply.text = clean(text)
        if choice.get("finish_reason") == "length":
            reply.error = f"cut off at max_tokens={self.max_tokens}"
        usage = whole.get("usage") if isinstance(whole.get("usage"), dict) else {}
        counts = [rules.count(usage.get(name)) for name in ("prompt_tokens", "completion_tokens")]
        reply.tokens_in = most.tokens - self.max_tokens if counts[0] is None else counts[0]
        reply.tokens_out = self.max_tokens if counts[1] is None else counts[1]
        reply.cost = (reply.tokens_in * self.price_in + reply.tokens_out * self.price_out) / 1e6


@dataclass(slots=True)
class _Outcome:
    """Result of one attempt.

    pause: seconds of silence that the endpoint asks for before the next attempt; None: another one is no use.
    sent: False if nobody can have seen the request. absent: the endpoint itself did not answer.
    """

    state: State = LOST
    reply: Reply = field(default_factory=Reply)
    pause: float | None = None
    sent: bool = True
    absent: bool = False


@dataclass(slots=True)
class _Job:
    """A question with what it took so far."""

    key: str
    body: bytes
    most: LedgerTotal
    attempts: int = 0
    reply: Reply = field(default_factory=Reply)


class _Gate:
    """Lets a call begin when its most fits into the budget; waits while calls under way may still give some back."""

    def __init__(self, budget: Budget, ledger: Ledger) -> None:
        self.budget, self.ledger, self.under_way, self.silent_until = budget, ledger, 0, 0.0
        self._changed = asyncio.Event()
        self._commit: asyncio.Future[None] | None = None

    async def enter(self, most: LedgerTotal) -> bool:
        """False if there will be no room."""
        while self.silent_until and (silence := self.silent_until - time.perf_counter()) > 0:
            await asyncio.sleep(silence)
        while not self.budget.allows(self.ledger.spent, most):
            if not self.under_way:
                return False
            self._changed.clear()
            await self._changed.wait()
        self.under_way += 1
        return True

    def leave(self, silence: float) -> None:
        """One is done; nobody enters for so many seconds."""
        self.under_way -= 1
        if silence:
            self.silent_until = max(self.silent_until, time.perf_counter() + silence)
        self._changed.set()

    async def committed(self) -> None:
        """Returns when the ledger holds all that was written so far: one transaction for all who are here at once."""
        if self._commit is None:
            loop = asyncio.get_running_loop()
            self._commit = loop.create_future()
            loop.call_soon(self._write, self._commit)
        await self._commit

    def _write(self, done: asyncio.Future[None]) -> None:
        self._commit = None
        try:
            self.ledger.commit()
            done.set_result(None)
        except StorageError as error:
            done.set_exception(error)


def _paid(before: Reply | None) -> Reply:
    """Cost of a question before it is asked again."""
    return Reply() if before is None else replace(before, text=None, error=None, known=False)


def _key(body: bytes) -> str:
    return hashlib.sha256(body).hexdigest()


def _run(work: Any) -> None:
    """To the end, in a thread of its own if the caller is inside an event loop already (a notebook is)."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        asyncio.run(work)
        return
    with ThreadPoolExecutor(1) as pool:  # pragma: no cover
        pool.submit(asyncio.run, work).result()
