"""Outages of an endpoint, in hundredths of their length: nothing fails, few probes are sent, a deadline ends it."""

from __future__ import annotations

import gzip
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.judges.chat_server import completion
from tests.judges.fake_endpoint import YES, Server, http, questions

from palaestra.agents.backends.breaker import OutageError
from palaestra.judges import Progress


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server()
    yield made
    made.loop.call_soon_threadsafe(made.stop.set)
    made.thread.join(5)


SHORT: dict[str, Any] = {"concurrency": 8, "wait": 0.01, "longest_wait": 0.1, "retries": 5, "patience": 20.0}


@pytest.mark.parametrize("fault", ["port", 503, 502, "page"])
def test_questions_wait_together_until_the_endpoint_is_back(server: Server, fault: str | int) -> None:
    """600 questions and an outage of 0.6 s, more than all pauses of five retries together."""
    page = http(200, b"<html>Bad gateway</html>", "content-type: text/html")
    down = {503: http(503, b""), 502: http(502, b"<html>"), "page": page, "port": YES}[fault]
    seen: list[Progress] = []
    ends = [0.0]
    missed = [0]

    def respond(prompt: str, number: int) -> bytes:
        if number >= 100 and not ends[0]:
            ends[0] = time.monotonic() + 0.6
            if fault == "port":
                server.away(0.6)
        absent = number >= 100 and time.monotonic() < ends[0]
        missed[0] += absent
        return down if absent else YES

    server.respond = respond
    endpoint = server.ask(**SHORT, watch=lambda progress: seen.append(Progress(**vars(progress))))
    found = endpoint.ask(questions(600))
    lost = [each.error for each in found if each.text is None]
    if fault == "port":  # what was under way as the port closed may have been paid for; the kernel still took some
        assert len(lost) <= 2 * 8
        assert all("it may have been paid for" in str(error) for error in lost)
    else:
        assert lost == []
    assert missed[0] <= 8 + 3 + 20  # those under way, and probes after growing pauses
    during = [each for each in seen if each.absent]
    assert during
    assert all(each.seconds_left is None for each in during)
    assert max(each.absent for each in during) > 0.3
    assert seen[-1].absent == 0
    assert time.perf_counter() - seen[-1].began < time.perf_counter() - seen[0].began  # the outage is not in the pace


def test_a_deadline_ends_the_whole_job_with_one_error_and_it_can_go_on(server: Server, tmp_path: Path) -> None:
    def respond(prompt: str, number: int) -> bytes:
        if number >= 20 and not server.gone:
            server.away(-1)
        return YES

    server.respond = respond
    path = tmp_path / "calls.sqlite"
    first = server.ask(**SHORT | {"patience": 0.5}, ledger=path)
    began = time.perf_counter()
    with pytest.raises(OutageError) as caught:
        first.ask(questions(600))
    assert 0.4 < time.perf_counter() - began < 3
    said = str(caught.value)
    answered = int(re.findall(r"(\d+) of 600 questions are answered", said)[0])
    assert 1 <= answered <= 20 + 8
    assert f"in {path}: run the same again when it is back" in said
    assert "no connection" in said
    assert "patience=0.5" in said
    assert first.ledger.spent.calls <= 20 + 8 + 8 + 8 + 12  # answered, under way, refused together, probes
    first.ledger.close()
    back = Server()
    back.respond = lambda prompt, number: YES
    again = back.ask(**SHORT, ledger=path)
    found = again.ask(questions(600))
    assert sum(each.known and each.text is not None for each in found) == answered
    assert sum(each.text is None for each in found) <= 2 * 8  # lost
    assert len(back.prompts) == 600 - sum(each.known for each in found)
    back.loop.call_soon_threadsafe(back.stop.set)


def test_a_dead_endpoint_is_asked_a_few_times_only(server: Server) -> None:
    server.away(-1)
    time.sleep(0.05)
    endpoint = server.ask(**SHORT | {"patience": 0.5})
    with pytest.raises(OutageError, match="0 of 600 questions are answered and known to this Endpoint: ask again"):
        endpoint.ask(questions(600))
    assert endpoint.ledger.spent.calls <= 30
    assert endpoint.ledger.spent.tokens == 0


@pytest.mark.parametrize("status", [408, 502, 504])
def test_what_a_proxy_says_for_an_endpoint_may_have_been_paid_for(server: Server, status: int) -> None:
    server.respond = lambda prompt, number: http(status, b"late") if number < 2 else YES
    endpoint = server.ask(concurrency=1, price_out=1.0)
    assert endpoint.ask(questions(1))[0].text == "VERDICT: yes"
    most = endpoint.most("item=0.")
    assert endpoint.ledger.spent.tokens == 2 * most.tokens + 110
    assert endpoint.ledger.spent.cost == pytest.approx(2 * most.cost + 10 / 1e6)
    server.respond = lambda prompt, number: http(status, b"late")
    error = server.ask(retries=1).ask([("item=1.", 0)])[0].error
    assert error == f"HTTP {status}: late; it may have been paid for"


def test_a_proxys_page_is_tried_again_and_named(server: Server) -> None:
    page = http(200, b"<html>Sign in</html>", "content-type: text/html; charset=utf-8")
    server.respond = lambda prompt, number: page if number < 4 else YES
    endpoint = server.ask(concurrency=1)
    assert endpoint.ask(questions(1))[0].text == "VERDICT: yes"
    assert endpoint.ledger.spent.tokens == 4 * endpoint.most("item=0.").tokens + 110
    server.respond = lambda prompt, number: page if prompt == "item=1." else YES
    asked = len(server.prompts)
    bad, good = endpoint.ask([("item=1.", 0), ("item=2.", 0)])
    assert bad.error == (
        "no chat completion came with status 200 but text/html: '<html>Sign in</html>'; it may have been paid for"
    )
    assert good.text == "VERDICT: yes"
    assert len(server.prompts) - asked == 6 + 1


def test_gzip_that_nobody_asked_for_is_read_and_what_cannot_be_unpacked_is_tried_again(server: Server) -> None:
    packed = http(200, gzip.compress(completion("VERDICT: no")), "content-encoding: gzip")
    server.respond = lambda prompt, number: packed
    endpoint = server.ask()
    assert endpoint.ask(questions(1))[0].text == "VERDICT: no"
    assert "accept-encoding: identity" in server.heads[0]
    server.respond = lambda prompt, number: http(200, b"\x0b\x02\x80", "content-encoding: br")
    error = server.ask(retries=2).ask(questions(1))[0].error
    assert error == "the answer has content-encoding 'br', which nobody asked for; it may have been paid for"
    assert len(server.prompts) == 1 + 3
    server.respond = lambda prompt, number: http(200, gzip.compress(b" " * 2**26), "content-encoding: gzip")
    assert "longer than 8 MiB" in (server.ask().ask(questions(1))[0].error or "")
