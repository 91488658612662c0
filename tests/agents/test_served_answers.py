"""Answers of a server that nobody asked for: each is an error that names what the server did, the others are kept."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.agents.test_served import FakeServer, ask, policy

MAKES = {
    "48 tokens": (lambda ids, logprobs, end: (ids * 48, logprobs * 48), None, "the server sent 48 tokens where"),
    "past the end": (
        lambda ids, logprobs, end: ([7, end, 7, 8], [-1.0] * 4), None,
        "the server sent 2 tokens after the end token {end}, at place 1",
    ),
    "two ends": (
        lambda ids, logprobs, end: ([end, end], [-1.0] * 2), None,
        "the server sent 1 tokens after the end token {end}, at place 0",
    ),
    "no end": (
        lambda ids, logprobs, end: ([7, 8], [-1.0] * 2), "length",
        "the server stopped after 2 of 5 tokens without an end token (finish_reason 'length')",
    ),
    "abort": (
        lambda ids, logprobs, end: ([], []), "abort",
        "the server ended the answer by finish_reason 'abort', not stop or length",
    ),
    "never sampled": (
        lambda ids, logprobs, end: ([7, end], [-1.0, -9999.0]), "stop",
        "the server says log-probability -9999 of a token that it sampled",
    ),
    "unknown id": (lambda ids, logprobs, end: ([10**6, end], [-1.0] * 2), "stop", "the server sampled id 1000000"),
}  # fmt: skip


@pytest.mark.parametrize("dialect", ["vllm", "sglang"])
@pytest.mark.parametrize("fault", MAKES)
def test_what_was_not_asked_for_is_an_error_of_its_row(
    model: Path, dialect: str, fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = FakeServer(model)
    make, finish, message = MAKES[fault]
    try:
        served = policy(server, dialect=dialect)
        served.sync(0)
        right = ask(served)
        end = served.tokenizer.eos_token_id
        _patch(server, make, finish, end, monkeypatch)
        decisions = ask(served)
        assert decisions[0].error is not None
        kind = "AbortedError" if fault == "abort" else "ServerError"
        assert decisions[0].error.startswith(f"{kind}: " + message.format(end=end))
        assert decisions[0].action_ids is None
        assert [each.error for each in decisions[1:]] == [None] * 5
        assert [each.action for each in decisions[1:]] == [each.action for each in right[1:]]
    finally:
        server.close()


def _patch(
    server: Any, make: Callable[..., Any], finish: str | None, end: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From now on the server answers the first question so."""
    reply, first = server.reply, "0 + 1 ="

    def strange(path: str, body: Any) -> Any:
        code, found = reply(path, body)
        if path not in ("/v1/completions", "/generate"):
            return code, found
        prompt = body.get("prompt") or body["input_ids"]
        if first not in server.policy.tokenizer.decode(prompt):
            return code, found
        if path == "/generate":
            said = found["meta_info"]["output_token_logprobs"]
            ids, logprobs = make([each[1] for each in said][:1], [each[0] for each in said][:1], end)
            found["meta_info"]["output_token_logprobs"] = [[a, b, None] for a, b in zip(logprobs, ids, strict=True)]
            found["meta_info"]["finish_reason"] = None if finish is None else {"type": finish}
        else:
            choice = found["choices"][0]
            ids, logprobs = make(choice["token_ids"][:1], choice["logprobs"]["token_logprobs"][:1], end)
            choice |= {"token_ids": ids, "logprobs": {"token_logprobs": logprobs}, "finish_reason": finish}
        return code, found

    monkeypatch.setattr(server, "reply", strange)
