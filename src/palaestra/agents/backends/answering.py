"""Waves of requests to the servers of a policy: who is asked, and what is kept of an answer that is broken off.

An answer is broken off when its server is killed, resets the connection, takes too long, or aborts it. The tokens and
log-probabilities that had come are kept, and the rest is asked for: the prompt with those tokens, and as many fewer.
Weights that change while answers are written (`inflight`) are a break on purpose, after which the same server goes on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from palaestra.agents.backends import endpoint
from palaestra.agents.backends.server import (
    ABORT,
    NOTHING,
    AbortedError,
    Ends,
    GoneError,
    LateError,
    SampledAnswer,
    ServerError,
)

if TYPE_CHECKING:
    from palaestra.agents.backends.weights import WeightServer
    from palaestra.agents.lm import LMPolicy

EVENT = 4096
"""Bytes of a stream for each token that is asked for, at most, beside 8 MiB; where events repeat the tokens before
(`Dialect.repeats`), at least 128 for each time that one is sent, even token by token."""


class Outcome(NamedTuple):
    """Data of a request in a wave.

    Attributes:
        server: That was asked.
        answer: Whole answer, or why there is none.
        said: Its tokens so far, all of one server's weights; those of the answer, if there is one.
    """

    server: WeightServer
    answer: SampledAnswer | ServerError
    said: SampledAnswer


def sampled(
    servers: Sequence[WeightServer],
    lm: LMPolicy,
    digest: str | None,
    prompts: Sequence[np.ndarray],
    seeds: Sequence[int],
    *,
    tokens: int,
    ends: Ends,
    begun: Sequence[SampledAnswer] | None = None,
    inflight: bool = False,
    probing: bool = False,
) -> list[Outcome]:
    """Answers of up to `tokens` tokens to prompts of token ids, each by the server with the fewest requests.

    A server that is gone, or late, gets nothing more in this wave; what it failed to answer is an error.

    Args:
        servers: At least one, with a client; they share a loop.
        lm: Whose temperature and vocabulary count.
        digest: Of the weights that they have.
        prompts: int32[T] each.
        seeds: One for each.
        tokens: Most that may be sampled.
        ends: Ids of end tokens; without any, each answer has exactly `tokens`.
        begun: What was said of each answer already, by these weights; default: nothing.
        inflight: Servers may be given other weights meanwhile. Each token then has the number of those that said it.
        probing: A server that is being given weights is asked as well.

    Returns:
        Outcome of each prompt.
    """
    gone: set[WeightServer] = set()
    first = servers[0].client
    assert first is not None

    def least() -> WeightServer:
        there: Sequence[WeightServer] = [each for each in servers if each not in gone] or servers
        if inflight:  # one that was lost while it was given weights has none, and nothing to do
            ready = [each for each in there if each.changing is None and each.digest is not None]
            there = ready or [each for each in there if each.changing is not None] or there
        return min(there, key=_load)

    async def one(prompt: np.ndarray, seed: int, said: SampledAnswer) -> Outcome:
        while True:
            if (changing := least().changing) is not None and not probing:
                await changing.wait()  # without a slot: those that compare the new weights need some
                continue
            async with first.loop.slots:
                server = least()
                if server.changing is not None and not probing:
                    continue
                theirs, number, changes = server.digest if inflight else digest, server.number, server.changes
                if theirs is None and inflight:
                    return Outcome(server, GoneError("the server was lost while weights were changed"), said)
                server.under_way, server.sent = server.under_way + 1, server.sent + 1
                try:
                    more, error = await _rest(server, lm, theirs, prompt, seed, said, tokens=tokens, ends=ends)
                finally:
                    server.under_way -= 1
            adapter = server.model(lm, theirs).adapter
            if more.version is not None and adapter is None and digest_in(more.version) != theirs:
                other = f"the server answered with weights {more.version!r}, not with {theirs!r}"
                return Outcome(server, GoneError(other), NOTHING)
            if inflight:
                number = -1 if number is None else number
                more = more._replace(versions=np.full(len(more.ids), number, np.int32))
            said = _joined([said, more]) if len(said.ids) else more
            if isinstance(error, GoneError | LateError):
                gone.add(server)
            # adapters of another policy may be changed on the same server, which breaks off these answers as well
            changed = server.changes > changes or (inflight and len(more.ids) > 0)
            if not (isinstance(error, AbortedError) and changed):
                return Outcome(server, said if error is None else error, said)

    async def every() -> list[Outcome]:
        whole = begun or [NOTHING] * len(prompts)
        return await asyncio.gather(*(one(*each) for each in zip(prompts, seeds, whole, strict=True)))

    found: list[Outcome] = first.loop.run(every())
    return found


async def _rest(
    server: WeightServer,
    lm: LMPolicy,
    digest: str | None,
    prompt: np.ndarray,
    seed: int,
    said: SampledAnswer,
    *,
    tokens: int,
    ends: Ends,
) -> tuple[SampledAnswer, ServerError | None]:
    """Tokens that one server samples after `said`, and None; if it breaks off, those so far and the error."""
    if (client := server.client) is None:  # another thread starts it again
        return NOTHING, GoneError("the server is being started again")
    dialect, model, left = server.settings.dialect, server.model(lm, digest), tokens - len(said.ids)
    limits: dict[str, Any] = {
        "tokens": left, "ends": ends, "vocabulary": lm.model.get_input_embeddings().weight.shape[0],
    }  # fmt: skip
    call = dialect.sample(
        model,
        np.concatenate([prompt, said.ids]) if len(said.ids) else prompt,
        seed=dialect.seed(seed, len(said.ids)),
        tokens=left,
        temperature=lm.temperature,
        ends=ends,
    )
    parts: list[SampledAnswer] = []
    count = 0

    def heard(event: Any) -> None:
        nonlocal count
        parts.append(part := dialect.part(event, model, count))
        if (count := count + len(part.ids)) > left:
            raise ServerError(f"the server sent {count} tokens where at most {left} were asked for")

    streams = server.settings.stream and call.body is not None
    if streams:
        call = call._replace(body=call.body | {"stream": True})  # type: ignore[operator]
    error: ServerError | None = None
    most = endpoint.LARGEST + left * (max(EVENT, 64 * left) if dialect.repeats else EVENT)
    sending = asyncio.ensure_future(client.send(call, heard=heard if streams else None, most=most))
    server.sending.add(sending)
    try:
        answer = await sending
        if streams and answer is None:
            more = _joined(parts)
            error = None if more.finish else GoneError("the stream ended before the answer did")
        else:
            more = dialect.read(answer, model)
    except asyncio.CancelledError:
        if (this := asyncio.current_task()) is None or this.cancelling():  # nobody waits for the answer any more
            raise
        more, error = _joined(parts), AbortedError("the request was cut off: the server is given other weights")
    except (GoneError, LateError) as broken:
        more, error = _joined(parts), broken
    except ServerError as refused:
        return NOTHING, refused
    finally:
        server.sending.discard(sending)
    if error is None and more.finish == ABORT:
        error = AbortedError("the server ended the answer by finish_reason 'abort', not stop or length")
    try:
        more.check(**limits, whole=error is None)
    except ServerError as refused:
        return NOTHING, refused
    if error is not None and len(more.ids) and (len(more.ids) == left or more.ids[-1] in ends):
        error = None  # nothing was missing but the server's word that it is whole
    return more, error


def _joined(parts: Sequence[SampledAnswer]) -> SampledAnswer:
    """One answer of several parts; the last that says its version or finish reason says it of all."""
    if len(parts) == 1:
        return parts[0]
    known = [part for part in parts if len(part.ids)] or [NOTHING]
    return SampledAnswer(
        np.concatenate([part.ids for part in known]),
        np.concatenate([part.logprobs for part in known]),
        next((part.version for part in reversed(parts) if part.version is not None), None),
        next((part.finish for part in reversed(parts) if part.finish is not None), None),
        np.concatenate([part.versions for part in known if part.versions is not None])
        if known[0].versions is not None
        else None,
    )


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
