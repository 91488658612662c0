"""Ten thousand questions in small: many at a time, each paid once whatever happens, never beyond the budget."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from tests.judges.chat_server import completion
from tests.judges.fake_endpoint import YES, Server, http, questions

from palaestra.agents.backends.breaker import OutageError
from palaestra.errors import DamagedFileError, InputError, StorageError
from palaestra.judges import Budget, Endpoint, Judged, Ledger
from palaestra.judges.asking import Reply
from palaestra.judges.endpoint import Progress
from palaestra.judges.ledger import LedgerTotal
from palaestra.judges.rubric import items_of


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server()
    yield made
    made.loop.call_soon_threadsafe(made.stop.set)
    made.thread.join(5)


def test_a_reply_for_each_in_order_with_what_it_took(server: Server) -> None:
    server.respond = lambda prompt, number: http(200, completion(f"I saw {prompt}"))
    endpoint = server.ask(price_in=1.0, price_out=10.0, concurrency=4)
    found = endpoint.ask([*questions(5), ("item=0.", 0), ("item=0.", 1)])
    assert [each.text for each in found] == [f"I saw item={n}." for n in (0, 1, 2, 3, 4, 0, 0)]
    assert [(each.tokens_in, each.tokens_out) for each in found] == [(100, 10)] * 5 + [(0, 0), (100, 10)]
    assert found[0].cost == pytest.approx((100 * 1 + 10 * 10) / 1e6)
    assert len(server.prompts) == 6  # the same question once, another vote is another question
    assert endpoint.ledger.spent.tokens == 6 * 110


def test_they_are_asked_at_once_but_not_more_than_allowed(server: Server) -> None:
    server.delay = 0.01
    server.ask(concurrency=5).ask(questions(20))
    assert server.most == 5


def test_refusals_pass_and_others_are_asked_meanwhile(server: Server) -> None:
    server.respond = lambda prompt, number: http(503, b"busy") if number < 3 else YES
    found = server.ask(concurrency=1, retries=3).ask(questions(3))
    assert [each.text for each in found] == ["VERDICT: yes"] * 3
    assert sorted(server.prompts[:3]) == [prompt for prompt, _ in questions(3)]


@pytest.mark.parametrize(
    ("status", "again"),
    [
        *((each, True) for each in (408, 409, 429, 500, 503, 599)),
        *((each, False) for each in (400, 404, 410, 422, 499)),
    ],
)
def test_which_answers_are_asked_for_again(server: Server, status: int, again: bool) -> None:
    server.respond = lambda prompt, number: YES if number else http(status, b"no", "retry-after-ms: 1")
    (found,) = server.ask(retries=1).ask(questions(1))
    assert (found.text is not None, len(server.prompts)) == (again, 1 + again)


def test_what_stays_refused_is_an_error_and_is_asked_again_by_the_next_run(server: Server, tmp_path: Path) -> None:
    server.respond = lambda prompt, number: http(400, b'{"error": {"message": "no such model"}}')
    endpoint = server.ask(ledger=tmp_path / "calls.sqlite")
    assert endpoint.ask(questions(1))[0].error == "HTTP 400: no such model"
    assert len(server.prompts) == 1
    endpoint.ledger.close()
    server.respond = lambda prompt, number: YES
    again = server.ask(ledger=tmp_path / "calls.sqlite")
    assert again.ask(questions(1))[0].text == "VERDICT: yes"
    assert (again.ledger.spent.calls, again.ledger.spent.tokens) == (2, 110)


@pytest.mark.parametrize(
    ("said", "why"),
    [
        (b"", "broke before the answer was whole"),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhalf", None),
        (http(200, b"{half"), "no chat completion"),
        (http(200, b'{"choices": [{"message": {"content": null}}]}'), "no text"),
        (b"SMTP ready\r\n\r\n", "no HTTP"),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 99999999999\r\n\r\n", "are read at most"),
    ],
)
def test_what_may_have_been_paid_for_is_not_asked_again_unless_one_says_so(
    server: Server, tmp_path: Path, said: bytes, why: str | None
) -> None:
    server.respond = lambda prompt, number: said
    path = tmp_path / "calls.sqlite"
    first = server.ask(ledger=path, timeout=0.2)
    error = first.ask(questions(1))[0].error or ""
    assert "it may have been paid for" in error
    assert why is None or why in error
    assert first.ask(questions(1))[0].known
    assert len(server.prompts) == 1
    assert first.ledger.spent.tokens == first.most("item=0.").tokens  # the most that it can have taken
    first.ledger.close()
    server.respond = lambda prompt, number: YES
    assert server.ask(ledger=path, again=True).ask(questions(1))[0].text == "VERDICT: yes"


def test_an_answer_that_was_cut_off_is_kept_but_says_so(server: Server) -> None:
    whole = json.loads(completion("VERDICT: 1"))
    whole["choices"][0]["finish_reason"] = "length"
    server.respond = lambda prompt, number: http(200, json.dumps(whole).encode())
    endpoint = server.ask()
    assert endpoint.ask(questions(1))[0].error == "cut off at max_tokens=10"
    judge = Judged(items_of({"good": {"question": "?", "scale": [0, 10]}}), endpoint)
    verdict = judge.verdicts(pl.DataFrame({"response": ["x"]})).row(0, named=True)
    assert (verdict["value"], verdict["ok"], verdict["tokens"]) == (None, False, 110)
    assert "cut off" in verdict["rationale"]


def test_chunks_and_connections_that_close_are_read(server: Server) -> None:
    body = completion("VERDICT: no")
    half = len(body) // 2
    chunks = b"%x\r\n%b\r\n%x;a=b\r\n%b\r\n0\r\nx: y\r\n\r\n" % (half, body[:half], len(body) - half, body[half:])
    server.respond = lambda prompt, number: (
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n" + chunks
        if number % 2
        else http(200, body, "connection: close")
    )
    assert [each.text for each in server.ask(concurrency=1).ask(questions(4))] == ["VERDICT: no"] * 4


@pytest.mark.parametrize("limit", [{"calls": 7}, {"tokens": 1500}, {"price": 0.001}])
def test_no_concurrency_exceeds_a_budget(server: Server, limit: dict[str, Any]) -> None:
    server.delay = 0.005
    endpoint = server.ask(concurrency=16, budget=Budget(**limit), price_in=1.0, price_out=1.0)
    found = endpoint.ask(questions(40))
    spent = endpoint.ledger.spent
    assert all(getattr(spent, {"price": "cost"}.get(name, name)) <= value for name, value in limit.items())
    answered = sum(each.text is not None for each in found)
    assert answered == len(server.prompts) == spent.calls
    assert answered == {"calls": 7, "tokens": 12, "price": 7}[next(iter(limit))]
    assert {each.error for each in found if each.text is None} == {"the budget is spent"}
    assert endpoint.ask(questions(1))[0].text is not None  # what is known costs nothing


def test_an_endpoint_that_does_not_count_is_taken_to_have_used_the_most(server: Server) -> None:
    whole = json.loads(completion("VERDICT: yes"))
    del whole["usage"]
    server.respond = lambda prompt, number: http(200, json.dumps(whole).encode())
    endpoint = server.ask()
    endpoint.ask(questions(1))
    assert endpoint.ledger.spent.tokens == endpoint.most("item=0.").tokens


def test_what_it_would_take_is_told_without_asking(server: Server) -> None:
    endpoint = server.ask(price_in=1.0, price_out=2.0)
    endpoint.ask(questions(3))
    told = endpoint.estimate(questions(10))
    assert (told["questions"], told["known"], told["calls"]) == (10, 3, 7)
    sent = told["tokens"] - 7 * 10 // 2  # answers are taken to be half as long as they may be
    assert 0 < sent < told["most_tokens"] - 7 * 10
    assert told["price"] == pytest.approx((sent + 2 * 35) / 1e6)
    assert told["most_price"] == pytest.approx(7 * (endpoint.most("item=0.").tokens - 10 + 2 * 10) / 1e6)
    assert len(server.prompts) == 3


def test_the_key_is_sent_and_kept_nowhere(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    secret = "sk-very-secret-123"
    monkeypatch.setenv("JUDGE_KEY", secret)
    server.respond = lambda prompt, number: http(200 if number else 401, completion(f"your key is {secret}"))
    path = tmp_path / "calls.sqlite"
    endpoint = server.ask(api_key_env="JUDGE_KEY", ledger=path, concurrency=1)
    found = endpoint.ask(questions(2))
    assert f"authorization: Bearer {secret}" in server.heads[0]
    assert not any(secret in str(each) for each in found)
    endpoint.ledger.close()
    assert not any(secret.encode() in file.read_bytes() for file in tmp_path.iterdir())
    with pytest.raises(InputError, match="NAME of an environment variable") as refused:
        server.ask(api_key_env=secret)
    assert secret not in str(refused.value)


def test_nobody_listens() -> None:
    endpoint = Endpoint("m", base_url="http://127.0.0.1:9/v1", api_key_env=None, retries=1, wait=0.001, patience=0.05)
    with pytest.raises(OutageError, match="no connection"):
        endpoint.ask(questions(1))
    assert endpoint.ledger.spent.tokens == 0


def test_a_ledger_that_is_none_and_one_that_is_in_use(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("not a ledger, but longer than the header of one that is expected here " * 9)
    with pytest.raises(DamagedFileError, match=r"notes.txt: not a ledger"):
        Ledger(tmp_path / "notes.txt")
    first = Ledger(tmp_path / "calls.sqlite")
    with pytest.raises(StorageError, match="another process has it"):
        Ledger(tmp_path / "calls.sqlite")
    first.close()
    Ledger(tmp_path / "calls.sqlite").close()


def written(path: Path, number: int = 200) -> Path:
    """A ledger of so many answers."""
    ledger = Ledger(path)
    for each in range(number):
        held = LedgerTotal(1, 20, 0.1)
        row = ledger.send(f"key {each}", 10, 10, 0.1)
        ledger.settle(row, f"key {each}", "said", Reply("VERDICT: no " * 30, None, 5, 2, 0.25, 1.0), held)
    ledger.close()
    return path


def run_sql(path: Path, text: str) -> None:
    base = sqlite3.connect(path)
    base.execute(text)
    base.commit()
    base.close()


def test_a_damaged_ledger_is_named_with_the_cure(tmp_path: Path) -> None:
    path = written(tmp_path / "calls.sqlite")
    data = bytearray(path.read_bytes())
    data[4 * 4096 : 8 * 4096] = bytes([0xAB]) * 4 * 4096
    path.write_bytes(data)
    with pytest.raises(DamagedFileError, match=r"calls.sqlite: .*damaged.*backup.*paid for again"):
        Ledger(path)
    run_sql(tmp_path / "other.sqlite", "CREATE TABLE calls (name TEXT)")
    with pytest.raises(DamagedFileError, match=r"other.sqlite: not a ledger"):
        Ledger(tmp_path / "other.sqlite")


def test_a_ledger_that_is_damaged_while_it_is_open_is_named(tmp_path: Path) -> None:
    ledger = Ledger(written(tmp_path / "calls.sqlite"))
    ledger._base.execute("DROP TABLE calls")
    with pytest.raises(DamagedFileError, match=r"calls.sqlite: .*damaged"):
        ledger.known(["key 1"])


@pytest.mark.parametrize(
    "change", ["answer = 'VERDICT: yes'", "cost = 0", "state = 'lost'", "key = 'key 4'", "tokens_in = 'x'"]
)
def test_a_row_of_the_ledger_that_was_edited_is_named_and_can_be_deleted(change: str, tmp_path: Path) -> None:
    path = written(tmp_path / "calls.sqlite")
    run_sql(path, f"UPDATE calls SET {change} WHERE id = 17")
    with pytest.raises(DamagedFileError, match="row 17 of calls was changed") as told:
        Ledger(path)
    run_sql(path, str(told.value).rsplit('"', 2)[1])
    left = Ledger(path)
    assert left.spent.calls == 199
    assert set(left.known(["key 16", "key 15"])) == {"key 15"}


def test_what_was_paid_is_told_by_the_runs_that_find_it(server: Server, tmp_path: Path) -> None:
    """A run, a rerun, and one that asks again for what was lost: each tells all that its questions took."""
    path = tmp_path / "calls.sqlite"
    server.delay = 0.5
    first = server.ask(ledger=path, timeout=0.1, price_in=1.0, retries=0)
    (lost,) = first.ask(questions(1))
    first.ledger.close()
    server.delay = 0.0
    for again, new in ((True, 110), (False, 0)):
        asker = server.ask(ledger=path, price_in=1.0, again=again)
        before = asker.ledger.spent.tokens
        (reply,) = asker.ask(questions(1))
        assert asker.ledger.spent.tokens - before == new
        assert reply.tokens_in + reply.tokens_out == asker.ledger.spent.tokens == first.ledger.spent.tokens + 110
        assert reply.cost == pytest.approx(asker.ledger.spent.cost)
        assert (lost.text, reply.text, reply.known) == (None, "VERDICT: yes", not again)
        asker.ledger.close()


def test_impossible_options_are_named() -> None:
    with pytest.raises(InputError, match="concurrency=0"):
        Endpoint("m", base_url="http://x/v1", api_key_env=None, concurrency=0)
    with pytest.raises(InputError, match="needs price_in"):
        Endpoint("m", base_url="http://x/v1", api_key_env=None, budget=Budget(price=1.0))
    with pytest.raises(InputError, match="calls is 0"):
        Budget(calls=0)


RUN = """
import sys
from palaestra.judges import Endpoint
url, path, number = sys.argv[1], sys.argv[2], int(sys.argv[3])
endpoint = Endpoint("m", base_url=url, api_key_env=None, concurrency=32, wait=0.01, longest_wait=0.05, retries=9,
                    ledger=path)
found = endpoint.ask([(f"item={each}.", 0) for each in range(number)])
print(sum(each.text is not None for each in found), sum(each.error is not None for each in found))
"""


def test_a_run_that_is_killed_twice_pays_for_nothing_twice(tmp_path: Path) -> None:
    """300 questions, 10 % refusals, two kills: every question has an answer or an error, the server was paid once."""
    server = subprocess.Popen(
        [sys.executable, str(Path(__file__).with_name("chat_server.py")), "0.03", "0.1"],
        stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        assert server.stdout is not None
        url = f"http://127.0.0.1:{int(server.stdout.readline())}"
        path = tmp_path / "calls.sqlite"
        command = [sys.executable, "-c", RUN, f"{url}/v1", str(path), "300"]

        def counts() -> dict[str, Any]:
            with urllib.request.urlopen(f"{url}/counts") as answer:
                found: dict[str, Any] = json.load(answer)
            return found

        for least in (40, 120):
            child = subprocess.Popen(command, env=os.environ, stdout=subprocess.DEVNULL)
            for _ in range(2000):
                if len(counts()["paid"]) >= least or child.poll() is not None:
                    break
                time.sleep(0.005)
            child.send_signal(signal.SIGKILL)
            assert child.wait() == -signal.SIGKILL
        done = subprocess.run(command, env=os.environ, capture_output=True, text=True, check=True)
        answered, failed = map(int, done.stdout.split())
        paid = counts()["paid"]
        assert answered + failed == 300
        assert max(paid.values()) == 1
        assert answered <= len(paid) <= 300
        assert failed <= 2 * 32  # what was under way at the kills, and nothing else
        states = dict(sqlite3.connect(path).execute("SELECT state, count(*) FROM calls GROUP BY state").fetchall())
        assert states["said"] == answered
        assert states.get("lost", 0) == failed
    finally:
        server.kill()
        server.wait()


def test_a_redirect_is_refused_and_names_both_hosts(server: Server) -> None:
    server.respond = lambda prompt, number: http(302, b"", "location: http://elsewhere.example/v1/chat/completions")
    endpoint = server.ask()
    error = endpoint.ask(questions(1))[0].error or ""
    assert error.startswith(f"127.0.0.1:{server.port} redirects (HTTP 302) to elsewhere.example; ")
    assert error.endswith("set base_url to 'http://elsewhere.example/v1'")
    assert (len(server.prompts), endpoint.ledger.spent.tokens) == (1, 0)


def test_left_is_what_is_neither_known_nor_done() -> None:
    assert Progress(10, known=3, done=2).left == 5
