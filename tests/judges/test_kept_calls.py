"""Calls of judge models that are kept as they are answered: none is paid twice, samples of a question stay several."""

from __future__ import annotations

import copy
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from palaestra.agents import ChatPolicy
from palaestra.agents.policy import Request
from palaestra.envs.protocol import Observation
from palaestra.errors import DamagedFileError
from palaestra.judges import Budget, Ledger, Vote, judged
from palaestra.judges.asking import Reply, ask
from palaestra.judges.kept_calls import KeptCalls, key_of
from palaestra.judges.ledger import SAID, LedgerTotal
from palaestra.testing.endpoint import StubEndpoint


@pytest.fixture
def stub() -> Iterator[StubEndpoint]:
    numbers = count()
    with StubEndpoint(lambda body: f"answer {next(numbers)}") as made:
        yield made


def chat(stub: StubEndpoint, calls: KeptCalls | None = None, **options: Any) -> ChatPolicy:
    made = ChatPolicy("m", base_url=stub.url, **{"api_key_env": None, "wait": 0.0, "patience": 0.0} | options)
    if calls is not None:
        calls.attach(made)
    return made


def said(policy: ChatPolicy, *seeds: int, text: str = "Is it right?") -> list[str]:
    requests = [Request(Observation(text), "judge", np.random.default_rng(seed)) for seed in seeds]
    return [str(each.action) for each in policy.act(requests)]


@pytest.mark.parametrize("seed", [True, False])
def test_samples_of_one_question_stay_distinct_and_none_is_asked_again(
    stub: StubEndpoint, tmp_path: Path, seed: bool
) -> None:
    calls = KeptCalls(tmp_path)
    first = said(chat(stub, calls, seed=seed), 1, 2, 3)
    assert len(set(first)) == len(stub.paid) == 3
    calls.close()
    policy = chat(stub, KeptCalls(tmp_path), seed=seed)
    assert said(policy, 1, 2, 3) == first  # a process later
    assert len(stub.paid) == 3
    assert policy.totals["known"] == 3
    assert said(policy, 4) == ["answer 3"]


def test_another_endpoint_model_or_option_is_another_call(stub: StubEndpoint, tmp_path: Path) -> None:
    calls = KeptCalls(tmp_path)
    said(chat(stub, calls), 1)
    with StubEndpoint(lambda body: "from elsewhere") as other:
        assert said(chat(other, calls), 1) == ["from elsewhere"]
    assert said(chat(stub, calls, temperature=0.5), 1) == ["answer 1"]
    assert said(chat(stub, calls, max_tokens=9), 1) == ["answer 2"]
    assert len(list(tmp_path.glob("*.sqlite"))) == 2


def test_what_failed_is_asked_again(stub: StubEndpoint, tmp_path: Path) -> None:
    calls, text = KeptCalls(tmp_path), iter([None, "there"])
    with StubEndpoint(lambda body: {"content": next(text)}) as other:
        policy = chat(other, calls, retries=0)
        assert policy.act([Request(Observation("?"), "judge", np.random.default_rng(1))])[0].error
        assert said(policy, 1, text="?") == ["there"]


def test_a_kept_answer_has_what_it_took_and_neither_key_nor_question_is_in_the_file(
    stub: StubEndpoint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JUDGE_KEY", "sk-secret-of-the-judge")
    calls = KeptCalls(tmp_path)
    policy = chat(stub, calls, api_key_env="JUDGE_KEY", price_in=1.0, price_out=2.0)
    request = [Request(Observation("the sealed question"), "judge", np.random.default_rng(1))]
    first = policy.act(request)[0]
    request = [Request(Observation("the sealed question"), "judge", np.random.default_rng(1))]
    second = policy.act(request)[0]
    assert second.known
    assert not first.known
    for name in ("action", "tokens_in", "tokens_out", "cost", "finish", "duration"):
        assert getattr(second, name) == getattr(first, name)
    calls.close()
    whole = b"".join(each.read_bytes() for each in tmp_path.iterdir())
    assert b"secret" not in whole
    assert b"sealed" not in whole
    assert b"127.0.0.1" not in whole


def test_an_edited_answer_is_not_believed(stub: StubEndpoint, tmp_path: Path) -> None:
    calls = KeptCalls(tmp_path)
    said(chat(stub, calls), 1)
    calls.close()
    (file,) = tmp_path.glob("*.sqlite")
    with sqlite3.connect(file) as base:
        base.execute("""UPDATE calls SET answer = replace(answer, 'answer 0', 'VERDICT: yes')""")
    base.close()
    with pytest.raises(DamagedFileError, match="changed after it was written"):
        chat(stub, KeptCalls(tmp_path))


def test_a_file_keeps_the_newest_answers_up_to_its_limit(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "calls.sqlite", limit=1000)
    for number in range(40):
        reply = Reply("x" * 100, tokens_in=1, tokens_out=1)
        ledger.settle(ledger.send(str(number), 1, 1, 0.0), str(number), SAID, reply, LedgerTotal(1, 2, 0.0))
        ledger.commit()
    kept = ledger.known([str(number) for number in range(40)])
    assert "39" in kept
    assert "0" not in kept
    assert 8 <= len(kept) <= 10
    assert ledger.spent.calls == 40
    ledger.close()
    assert Ledger(tmp_path / "calls.sqlite", limit=1000).spent.calls == len(kept)


def test_a_copy_of_a_policy_leaves_the_file_to_the_first(stub: StubEndpoint, tmp_path: Path) -> None:
    assert copy.deepcopy(chat(stub, KeptCalls(tmp_path))).keeper is None


def test_an_endpoint_in_a_panel_is_kept_unless_it_has_a_file_of_its_own(stub: StubEndpoint, tmp_path: Path) -> None:
    options = {"question": "?", "model": "m", "base_url": stub.url, "api_key_env": None}
    calls = KeptCalls(tmp_path / "kept")
    panel, own = Vote(judged(**options)), judged(**options, ledger=str(tmp_path / "own.sqlite"))
    limited = judged(**options, calls=3)
    for each in (panel, own, limited):
        calls.attach(each)
    assert panel.members[0].asker.ledger is calls.ledger((stub.url,), "m")
    assert own.asker.ledger.path == str(tmp_path / "own.sqlite")
    assert limited.asker.ledger is calls.ledger((stub.url,), "m", Budget(3)) is not panel.members[0].asker.ledger


def test_questions_with_votes_are_found_again_vote_by_vote(stub: StubEndpoint, tmp_path: Path) -> None:
    prompts = [("Is it?", vote) for vote in range(5)]
    calls = KeptCalls(tmp_path)
    first = ask(chat(stub, calls, seed=False), prompts, str)
    calls.close()
    assert len(set(first)) == 5
    assert ask(chat(stub, KeptCalls(tmp_path), seed=False), prompts, str) == first
    assert len(stub.paid) == 5


def test_a_key_is_of_all_that_is_sent_and_of_the_sample() -> None:
    body = {"model": "m", "messages": [{"role": "user", "content": "?"}], "temperature": 1.0}
    others = [key_of({**body, "temperature": 0.9}, 0), key_of({**body, "model": "n"}, 0), key_of(body, 1)]
    assert key_of(body, 0) == key_of(dict(reversed(body.items())), 0)
    assert key_of(body, 0) not in others


ASKING = """
import sys
import numpy as np
from palaestra.agents import ChatPolicy
from palaestra.judges.asking import ask
from palaestra.judges.kept_calls import KeptCalls
policy = ChatPolicy("m", base_url=sys.argv[1], api_key_env=None, concurrency=3, seed=False)
KeptCalls(sys.argv[2]).attach(policy)
print(ask(policy, [(f"question {n // 2}", n % 2) for n in range(24)], str))
"""


def test_what_was_answered_before_a_kill_is_not_paid_for_again(tmp_path: Path) -> None:
    """The whole batch is one `act`: it never returned, and its answers are there all the same."""
    with StubEndpoint(lambda body: "VERDICT: yes", latency=0.05) as stub:
        command = [sys.executable, "-c", ASKING, stub.url, str(tmp_path)]
        first = subprocess.Popen(command, stdout=subprocess.PIPE)
        while len(stub.paid) < 10 and first.poll() is None:
            time.sleep(0.005)
        os.kill(first.pid, signal.SIGKILL)
        first.wait()
        time.sleep(0.2)
        answered = len(stub.paid)
        assert 10 <= answered < 24
        second = subprocess.run(command, capture_output=True, text=True, check=True)
        assert second.stdout.count("VERDICT: yes") == 24
    under_way = len(stub.paid) - 24  # at most one for each request that was open when it was killed
    assert 0 <= under_way <= 3
