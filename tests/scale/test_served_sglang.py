"""Served generation by a real SGLang: log-probabilities, seeds, streams, aborts, weights that change, a killed server.

Needs PALAESTRA_SGLANG, a Python that has SGLang; skipped without. PALAESTRA_SGLANG_ARGS has more options of its
server (default: those of a CPU). Starting it is most of the time: a minute on idle cores. Run with SGLang 0.5.23 on a
CPU without its compiled kernels, which have no build for it: the two that a Llama needs were written in torch.
"""

from __future__ import annotations

import os
import shlex
import signal
import socket
import subprocess
import threading
import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from palaestra.agents import LMPolicy, Request, ServedPolicy
from palaestra.agents.backends import http_tensors
from palaestra.agents.backends.dialects import SGLang
from palaestra.agents.backends.sampling import evaluate
from palaestra.agents.backends.server import Client, HttpCall, SampledAnswer, ServedModel, ServerError
from palaestra.envs.protocol import Observation

pytestmark = pytest.mark.skipif("PALAESTRA_SGLANG" not in os.environ, reason="no SGLang: PALAESTRA_SGLANG is not set")
CPU = """--device cpu --attention-backend torch_native --sampling-backend pytorch --grammar-backend none
    --disable-overlap-schedule --mem-fraction-static 0.6 --watchdog-timeout 3000"""
TEXTS = [f"{n} + {n + 1} =" for n in range(12)]
PROMPT = np.arange(40, 52, dtype=np.int32)
RUNNING = 8
SGLANG, MODEL = SGLang(), ServedModel("any")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("model")
    LMPolicy.tiny(hidden=64, heads=2, name="lm").save(made / "tiny")
    return made / "tiny"


@contextmanager
def started(folder: Path, log: Path) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """A server that answers, and its process."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    options = f"{os.environ.get('PALAESTRA_SGLANG_ARGS', CPU)} --dtype float32 --max-running-requests {RUNNING}"
    command = [os.environ["PALAESTRA_SGLANG"], "-m", "sglang.launch_server", "--model-path", str(folder)]
    command += ["--host", "127.0.0.1", "--port", str(port), "--max-total-tokens", "8192", *shlex.split(options)]
    env = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    env |= {"SGLANG_USE_CPU_ENGINE": str(int("--device cpu" in options)), "TORCHDYNAMO_DISABLE": "1"}
    with log.open("wb") as file:
        child = subprocess.Popen(command, stdout=file, stderr=file, env=env, start_new_session=True)
    where, began = f"http://127.0.0.1:{port}", time.monotonic()
    try:
        while True:
            try:
                SGLANG.models(client := Client(where))
                client.close()
                break
            except ServerError:
                last = "\n".join(log.read_text(errors="replace").splitlines()[-30:])
                assert child.poll() is None, last
                assert time.monotonic() - began < 900, last
                time.sleep(1)
        yield where, child
    finally:
        child.terminate()
        child.wait(60)


@pytest.fixture(scope="module")
def url(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with started(folder, tmp_path_factory.mktemp("log") / "server.log") as (where, _):
        yield where


@pytest.fixture
def client(url: str, folder: Path) -> Iterator[Client]:
    """Of a server that has the weights of its start."""
    made = Client(url, timeout=300)
    SGLANG.load(made, folder, "first")
    yield made
    made.close()


def seeded(client: Client) -> bool:
    return bool(client.ask(HttpCall("/server_info"))["enable_deterministic_inference"])


def sampled(client: Client, *, tokens: int = 12, said: Sequence[int] = (), **options: Any) -> SampledAnswer:
    given: dict[str, Any] = {"seed": 3, "temperature": 1.0, "ends": ()} | options
    prompt = np.concatenate([PROMPT, np.array(said, np.int32)])
    return SGLANG.read(client.ask(SGLANG.sample(MODEL, prompt, tokens=tokens, **given)), MODEL)


def streamed(client: Client, *, tokens: int) -> list[SampledAnswer]:
    call, parts = SGLANG.sample(MODEL, PROMPT, seed=3, tokens=tokens, temperature=1.0, ends=()), []

    def heard(event: Any) -> None:
        parts.append(SGLANG.part(event, MODEL, sum(len(each.ids) for each in parts)))

    assert call.body is not None
    client.loop.run(client.send(call._replace(body=call.body | {"stream": True}), heard=heard, most=2**24))
    return parts


def apart(lm: LMPolicy, answer: SampledAnswer, temperature: float = 1.0) -> float:
    with torch.no_grad():
        here = evaluate(lm.forward, [PROMPT], [answer.ids], temperature=temperature).logprobs[0].numpy()
    return float(np.abs(here - answer.logprobs).max())


def ask(policy: ServedPolicy) -> list[Any]:
    return policy.act([Request(Observation(text), "a", np.random.default_rng(i)) for i, text in enumerate(TEXTS)])


def move(policy: Any, by: float = 0.02) -> None:
    with torch.no_grad():
        for each in policy.parameters():
            each += by * torch.randn(each.shape, generator=torch.Generator().manual_seed(1))


def test_log_probabilities_are_those_of_the_weights_here(client: Client, folder: Path) -> None:
    lm = LMPolicy.load(folder)
    for temperature in (1.0, 0.5):
        answer = sampled(client, temperature=temperature)
        assert (len(answer.ids), answer.finish, answer.version) == (12, "length", "first")
        assert apart(lm, answer, temperature) < 1e-5
    ends = [*range(100, 200), *lm._ends.tolist()]
    answer = sampled(client, tokens=60, ends=ends)
    answer.check(tokens=60, ends=ends, vocabulary=260)
    assert answer.finish == "stop"
    assert apart(lm, answer) < 1e-5


def test_seeds_count_with_deterministic_inference(client: Client) -> None:
    """The rest of an answer that broke off is the one that would have come."""
    if not seeded(client):
        pytest.skip("the server has no --enable-deterministic-inference")
    whole = sampled(client).ids.tolist()
    assert whole == sampled(client).ids.tolist() != sampled(client, seed=4).ids.tolist()
    for said in (1, 5):
        assert sampled(client, tokens=12 - said, said=whole[:said]).ids.tolist() == whole[said:]


def test_a_stream_has_every_token_once(client: Client, folder: Path) -> None:
    parts = streamed(client, tokens=100)
    assert [len(each.ids) for each in parts] == [1, 32, 32, 32, 3]
    assert [each.finish for each in parts] == [None] * 4 + ["length"]
    ids = np.concatenate([each.ids for each in parts])
    whole = SampledAnswer(ids, np.concatenate([each.logprobs for each in parts]))
    assert apart(LMPolicy.load(folder), whole) < 1e-5
    if seeded(client):
        assert ids.tolist() == sampled(client, tokens=100).ids.tolist()


def test_an_abort_gives_what_there_is(client: Client, url: str, folder: Path) -> None:
    """Also of those that stand in its queue."""
    found: list[SampledAnswer] = []
    threads = [
        threading.Thread(target=lambda seed=seed: found.append(sampled(client, tokens=1500, seed=seed)))
        for seed in range(RUNNING + 4)
    ]
    for each in threads:
        each.start()
    time.sleep(3)
    SGLANG.interrupt(Client(url))
    for each in threads:
        each.join(60)
    assert [each.finish for each in found] == ["abort"] * (RUNNING + 4)
    assert sum(len(each.ids) > 0 for each in found) >= RUNNING // 2
    lm = LMPolicy.load(folder)
    assert max(apart(lm, each) for each in found if len(each.ids)) < 1e-5


def test_what_it_refuses(client: Client, tmp_path: Path) -> None:
    with pytest.raises(ServerError, match="HTTP 400: Failed"):
        SGLANG.load(client, tmp_path / "nothing", "1-a")
    assert SGLANG.version(client) == "first"
    with pytest.raises(ServerError, match="--enable-lora"):
        SGLANG.adapt(client, "a", tmp_path)


def test_weights_change_between_waves_and_behind_our_back(url: str, folder: Path) -> None:
    served = ServedPolicy(LMPolicy.load(folder), url=url, dialect="sglang", timeout=300)
    try:
        for _ in range(3):
            decisions = ask(served)
            assert [each.error for each in decisions] == [None] * len(TEXTS)
            right(served, decisions, {None: served.state_dict()})
            move(served)
        client = served.servers[0].client
        assert client is not None
        SGLANG.load(client, folder, "default")
        right(served, ask(served), {None: served.state_dict()})
        assert str(SGLANG.version(client)).endswith(served.fingerprint())
    finally:
        served.close()


@pytest.mark.parametrize(("stream", "transfer"), [(True, "folder"), (False, "folder"), (True, "http")])
def test_weights_change_while_answers_are_written(url: str, folder: Path, stream: bool, transfer: str) -> None:
    lm = LMPolicy.load(folder)
    lm.max_new_tokens = 1000
    served = ServedPolicy(lm, url=url, dialect="sglang", stream=stream, transfer=transfer, timeout=300)
    try:
        served.inflight = True
        served.sync(0)
        states = {0: {name: value.clone() for name, value in served.state_dict().items()}}
        copy = served.twin()
        move(copy)
        states[1] = {name: value.clone() for name, value in copy.state_dict().items()}
        found: list[Any] = []
        thread = threading.Thread(target=lambda: found.extend(ask(served)))
        thread.start()
        time.sleep(1.5)
        served.renew(states[1], 1)
        thread.join(300)
        assert [each.error for each in found] == [None] * len(TEXTS)
        versions = [each.token_versions.tolist() for each in found]
        assert {number for each in versions for number in each} == {0, 1}
        assert versions == [sorted(each) for each in versions]
        right(served, found, states)
        assert served.servers[0].transfer is served.transfer
        assert (transfer == "folder") == any(served._folder.iterdir())
    finally:
        served.close()


def test_weights_come_in_requests(client: Client, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In several of them; an update that somebody left open is ended, and a tensor that does not come is found."""
    monkeypatch.setattr(http_tensors, "CHUNK", 2**15)
    served = ServedPolicy(LMPolicy.load(folder), url=client.url, dialect="sglang", transfer="http", timeout=300)
    try:
        client.ask(HttpCall("/begin_weight_update", {}))
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            for number in range(3):
                served.sync(number)
                assert SGLANG.version(client) == f"{number}-{served.fingerprint()}"
                decisions = ask(served)
                assert [each.error for each in decisions] == [None] * len(TEXTS)
                right(served, decisions, {None: served.state_dict()})
                move(served)
        assert list(served._folder.iterdir()) == []
        whole = http_tensors.tensors
        monkeypatch.setattr(http_tensors, "tensors", lambda lm: (each for each in whole(lm) if "mlp" not in each[0]))
        with pytest.warns(UserWarning, match=r"differ by .* nats per token .* weights go through a folder"):
            right(served, ask(served), {None: served.state_dict()})
        assert served.servers[0].transfer is None
    finally:
        served.close()


def test_one_of_two_is_killed_in_the_middle(url: str, folder: Path, tmp_path: Path) -> None:
    """Nothing is lost: the other one goes on with what the killed one had said, and all of it is of these weights."""
    lm = LMPolicy.load(folder)
    lm.max_new_tokens = 600
    with started(folder, tmp_path / "second.log") as (second, child):
        served = ServedPolicy(lm, url=[url, second], dialect="sglang", transfer="http", timeout=300)
        try:
            served.sync(0)
            assert [each.loaded for each in served.servers] == [1, 1]
            found: list[Any] = []
            thread = threading.Thread(target=lambda: found.extend(ask(served)))
            thread.start()
            time.sleep(1)
            asked = [each.under_way for each in served.servers]
            os.killpg(child.pid, signal.SIGKILL)
            with pytest.warns(UserWarning, match=f"no server at {second} .* waiting for it"):
                thread.join(300)
            assert min(asked) > 1
            assert [each.error for each in found] == [None] * len(TEXTS)
            ends = {*lm.tokenizer.all_special_ids, *lm._ends}
            assert all(len(each.action_ids) == 600 or int(each.action_ids[-1]) in ends for each in found)
            assert served.kept > 0
            right(served, found, {None: served.state_dict()})
        finally:
            served.close()


def right(served: ServedPolicy, decisions: list[Any], states: dict[Any, Any]) -> None:
    """Each token has the log-probability of the weights whose number it has."""
    lm = served.lm.twin()
    for number, state in states.items():
        lm.load_state_dict(state)
        for each in decisions:
            with torch.no_grad():
                found = evaluate(lm.forward, [each.prompt_ids], [each.action_ids], temperature=1.0)
            gap = np.abs(found.logprobs[0].numpy() - each.logprobs)
            assert gap[(each.token_versions == number) if number is not None else slice(None)].max(initial=0.0) < 1e-5
