"""Answers that are broken off by a server, and gone on with where they were: what is asked again, and what is not."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.agents.test_served import TEXTS, ask, closed, fake_server, move, policy, rows, within

from palaestra.agents import ServedPolicy
from palaestra.agents.policy import Decision

FakeServer = fake_server.FakeServer
__all__ = ["closed"]
TOKENS, AFTER = 12, 7
"""Tokens of an answer, and of its beginning that comes before the fault."""
TEMPORARY = ["cut", "error", "ends", "abort", "stall"]


@pytest.fixture
def server(model: Path) -> Iterator[Any]:
    made = FakeServer(model)
    made.streams = True
    yield made
    made.close()


def ready(server: Any, **options: Any) -> ServedPolicy:
    """A policy whose server has its weights, so that what is asked from now on are answers."""
    served = policy(server, **{"max_new_tokens": TOKENS} | options)
    served.sync(0)
    return served


def of_these_weights(served: ServedPolicy, decisions: list[Decision]) -> None:
    table = rows(decisions)
    with torch.no_grad():
        scored = served.score(table)
    here = scored.logprobs[scored.mask].tolist()
    assert here == pytest.approx(table["logprobs"].explode().to_list(), abs=1e-5)


def lengths(decisions: list[Decision]) -> list[int]:
    return [len(each.action_ids) for each in decisions]  # type: ignore[arg-type]


@pytest.mark.parametrize("fault", TEMPORARY)
def test_the_rest_of_an_answer_is_asked_for(server: Any, fault: str) -> None:
    """One of six is broken off; no token of it is sampled twice, and the others are what they were."""
    served = ready(server)
    right, before = ask(served), server.tokens
    within(served, 3.0 if fault == "stall" else 20.0)
    server.breaks = [(fault, AFTER)]
    broken = ask(served)
    assert [each.error for each in broken] == [None] * 6
    (which,) = [i for i in range(6) if list(broken[i].action_ids) != list(right[i].action_ids)]  # type: ignore[arg-type]
    assert broken[which].action_ids[:AFTER].tolist() == right[which].action_ids[:AFTER].tolist()  # type: ignore[index]
    last = server.seen[-1]
    assert last["prompt"] == [*right[which].prompt_ids, *right[which].action_ids[:AFTER]]  # type: ignore[misc, index]
    assert last["max_tokens"] == TOKENS - AFTER
    assert last["seed"] not in {each["seed"] for each in server.seen[:-1]}
    assert served.kept == AFTER
    assert server.tokens - before == sum(lengths(broken))  # none twice
    assert len(server.seen) == 8 + 6 + 7
    of_these_weights(served, broken)


@pytest.mark.parametrize("disjoint", [False, True])
@pytest.mark.parametrize("fault", TEMPORARY)
def test_the_rest_of_an_answer_of_sglang(server: Any, fault: str, disjoint: bool) -> None:
    """Its events repeat all that was said, unless it was started with --incremental-streaming-output."""
    server.disjoint = disjoint
    served = ready(server, dialect="sglang")
    right, before = ask(served), server.tokens
    within(served, 3.0 if fault == "stall" else 20.0)
    server.breaks = [(fault, AFTER)]
    broken = ask(served)
    assert [each.error for each in broken] == [None] * 6
    assert sum(lengths(right)) > 6 * AFTER
    last = server.seen[-1]
    (which,) = [i for i in range(6) if list(broken[i].action_ids) != list(right[i].action_ids)]  # type: ignore[arg-type]
    assert last["input_ids"] == [*right[which].prompt_ids, *right[which].action_ids[:AFTER]]  # type: ignore[misc, index]
    assert last["sampling_params"]["max_new_tokens"] == TOKENS - AFTER
    assert last["sampling_params"]["sampling_seed"] in {
        each["sampling_params"]["sampling_seed"] for each in server.seen[8:-1]
    }
    assert served.kept == AFTER
    assert server.tokens - before == sum(lengths(broken))  # none twice
    of_these_weights(served, broken)


def test_events_that_repeat_all_tokens_may_be_as_long_as_that_is(server: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("palaestra.agents.backends.answering.EVENT", 64)
    monkeypatch.setattr("palaestra.agents.backends.endpoint.LARGEST", 2048)
    served = ready(server, dialect="sglang", max_new_tokens=150)
    assert [each.error for each in ask(served)] == [None] * 6


def test_without_streams_the_whole_answer_is_asked_again(server: Any) -> None:
    """The mechanism taken out: the same fault costs the tokens that had been sampled, and the answer is the same."""
    served = ready(server, stream=False)
    right, before = ask(served), server.tokens
    server.breaks = [("cut", AFTER)]
    broken = ask(served)
    assert [each.action for each in broken] == [each.action for each in right]
    assert server.tokens - before == sum(lengths(broken)) + AFTER
    assert served.kept == 0
    assert not any("stream" in each for each in server.seen)


@pytest.mark.parametrize("dialect", ["vllm", "sglang"])
def test_an_abort_without_streams_has_what_there_was(server: Any, dialect: str) -> None:
    served = ready(server, stream=False, dialect=dialect)
    before = server.tokens
    server.breaks = [("abort", AFTER)] * 3
    broken = ask(served)
    assert [each.error for each in broken] == [None] * 6
    assert served.kept == 3 * AFTER
    assert server.tokens - before == sum(lengths(broken))
    of_these_weights(served, broken)
    if dialect == "sglang":  # its draws depend on seed and position
        assert len({each["sampling_params"]["sampling_seed"] for each in server.seen[8:]}) == 6


def test_a_killed_server_costs_what_had_not_come(server: Any) -> None:
    """All six are broken off at once; the server comes back with old weights and is given the right ones."""
    served = ready(server, patience=10)
    move(served)
    served.sync(1)
    before = server.tokens
    server.breaks = [("old", AFTER)] * 6
    broken = ask(served)
    assert [each.error for each in broken] == [None] * 6
    of_these_weights(served, broken)
    assert server.version == f"1-{served.fingerprint()}"
    again = server.tokens - before - 8 * 12 - sum(lengths(broken))  # beside the eight that compare the weights
    assert 0 <= again <= 6 * AFTER
    assert served.kept >= AFTER


def test_what_other_weights_had_said_is_asked_again_from_the_start(server: Any) -> None:
    """It was restarted before the wave and killed in it: nobody can ask it, so the weights here say what is theirs."""
    served = ready(server, patience=10)
    move(served)
    served.sync(1)
    right = ask(served)
    server.old = server.answered + 1  # every answer of this wave is of the weights of its start
    server.breaks = [("old", AFTER)] * 6
    again = ask(served)
    assert served.kept == 0
    assert [each.action for each in again] == [each.action for each in right]
    of_these_weights(served, again)


def test_a_replica_goes_on_with_the_answers_of_a_killed_one(model: Path) -> None:
    two = [FakeServer(model), FakeServer(model)]
    for each in two:
        each.streams = True
    try:
        served = ready(two[0], url=[each.url for each in two])
        before = two[0].tokens + two[1].tokens
        two[1].breaks = [("die", AFTER)] * 3
        with pytest.warns(UserWarning, match="waiting for it"):
            broken = ask(served)
        assert [each.error for each in broken] == [None] * 6
        asked = [each for each in two[0].seen[8:] if each["max_tokens"] == TOKENS - AFTER]
        assert len(asked) * AFTER == served.kept > 0
        assert two[0].tokens + two[1].tokens - before <= sum(lengths(broken)) + 2 * AFTER  # that had not come yet
        of_these_weights(served, broken)
    finally:
        for each in two:
            each.close()


def test_an_answer_that_breaks_off_again_and_again_is_an_error(server: Any) -> None:
    served = ready(server)
    server.breaks = [("error", 2)] * 3
    (decision,) = ask(served, TEXTS[:1])
    assert decision.error == "GoneError: the server broke off: EngineCore encountered an issue"
    assert [each["max_tokens"] for each in server.seen[8:]] == [TOKENS, TOKENS - 2, TOKENS - 4]
    within(served, 1.5)
    server.breaks = [("stall", 0)]
    assert ask(served, TEXTS[:1])[0].error == "LateError: no whole answer within 1.5 s"  # nothing came: it is stuck


def test_an_answer_that_lacks_nothing_but_its_end_is_whole(server: Any) -> None:
    served = ready(server)
    (right,) = ask(served, TEXTS[:1])
    server.breaks = [("cut", len(right.action_ids))]  # type: ignore[arg-type]
    (whole,) = ask(served, TEXTS[:1])
    assert whole.action_ids.tolist() == right.action_ids.tolist()  # type: ignore[union-attr]
    assert len(server.seen) == 8 + 2


def test_a_beginning_is_checked_as_an_answer_is(server: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    served, reply = ready(server), server.reply
    makes: list[tuple[list[int], list[float], str]] = [
        ([7] * (TOKENS + 1), [-1.0] * (TOKENS + 1), f"sent {TOKENS + 1} tokens where at most {TOKENS} were asked for"),
        ([7, 10**6], [-1.0] * 2, "sampled id 1000000"),
        ([7, 8], [-1.0, -9999.0], "log-probability -9999"),
        ([served.tokenizer.eos_token_id, 7], [-1.0] * 2, "1 tokens after the end token"),
        ([7, 8], [-1.0, 0.5], "impossible"),
    ]
    for ids, logprobs, message in makes:

        def strange(path: str, body: Any, ids: list[int] = ids, logprobs: list[float] = logprobs) -> Any:
            code, found = reply(path, body)
            if path == "/v1/completions":
                found["choices"][0] |= {"token_ids": ids, "logprobs": {"token_logprobs": logprobs}}
                found["fault"] = "cut"
            return code, found

        monkeypatch.setattr(server, "reply", strange)
        before = len(server.seen)
        (decision,) = ask(served, TEXTS[:1])
        assert message in (decision.error or ""), message
        assert len(server.seen) == before + 1  # it is not asked again
    assert served.kept == 0


def test_a_stream_that_ends_before_its_first_token_is_an_error_of_its_row(
    server: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    served, reply = ready(server), server.reply

    def empty(path: str, body: Any) -> Any:
        code, found = reply(path, body)
        if path == "/v1/completions" and body["seed"] == server.seen[8]["seed"]:
            found["choices"][0] |= {"token_ids": [], "logprobs": {"token_logprobs": []}}
        return code, found

    monkeypatch.setattr(server, "reply", empty)
    errors = [each.error for each in ask(served)]
    assert errors.count("ServerError: the server sent no token (finish_reason 'stop')") == 1
    assert errors.count(None) == 5


def test_seeds_of_what_follows_are_those_of_the_answer_and_the_place(server: Any) -> None:
    vllm, sglang = policy(server).dialect, policy(server, dialect="sglang").dialect
    assert vllm.seed(5, 0) == sglang.seed(5, 0) == sglang.seed(5, 9) == 5
    seeds = {vllm.seed(seed, said) for seed in range(100) for said in range(1, 100)}
    assert len(seeds) == 9900
    assert 0 <= min(seeds) <= max(seeds) < 2**31
    assert vllm.seed(5, 9) == vllm.seed(5, 9)
    rng = np.random.default_rng(0).integers(2**31, size=3)
    assert all(vllm.seed(int(each), 1) != int(each) for each in rng)
