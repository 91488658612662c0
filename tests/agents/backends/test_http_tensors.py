"""Weights that go to SGLang's servers in HTTP requests: what is sent, in which order, and what if it fails."""

from __future__ import annotations

import base64
import io
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.agents.test_served import ask, closed, fake_server, move, policy, rows

from palaestra.agents import LMPolicy
from palaestra.agents.backends import dialects, http_tensors
from palaestra.agents.backends.http_tensors import HttpTensors, chunks, packed
from palaestra.agents.backends.weight_files import tensors
from palaestra.errors import InputError, PolicyError

__all__ = ["closed"]
BEGIN, SEND, END = "/begin_weight_update", "/update_weights_from_tensor", "/end_weight_update"
NAME, FOLDER = "/update_weight_version", "/update_weights_from_disk"
UPDATE = ["/pause_generation", BEGIN, SEND, END, NAME, "/continue_generation"]


@pytest.fixture
def two(model: Path) -> Iterator[list[Any]]:
    made = [fake_server.FakeServer(model) for _ in range(2)]
    for each in made:
        each.transfers = True
    yield made
    for each in made:
        each.close()


@pytest.fixture
def server(two: list[Any]) -> Any:
    return two[0]


def by_http(*servers: Any, **options: Any) -> Any:
    return policy(servers[0], url=[each.url for each in servers], dialect="sglang", transfer="http", **options)


def told(server: Any) -> list[str]:
    """Paths about weights since the last look."""
    found = [path for path in server.paths if path in UPDATE or path == FOLDER]
    server.paths.clear()
    return found


def right(served: Any) -> bool:
    decisions = ask(served)
    return [each.error for each in decisions] == [None] * 6 and served.mismatch(rows(decisions))["mismatch"] < 1e-5


def test_every_tensor_comes_and_no_folder_is_written(two: list[Any]) -> None:
    served = by_http(*two)
    for number in range(2):
        served.sync(number)
        for server in two:
            assert told(server) == UPDATE
            assert server.version == f"{number}-{served.fingerprint()}"
            assert (server.paused, server.updating) == (False, False)
            sent, here = server.updates[-1]["tensors"], dict(tensors(served.lm))
            assert list(sent) == list(here)
            assert all(torch.equal(sent[name], here[name]) for name in here)
        assert right(served)
        move(served)
    assert right(served)
    assert list(served._folder.iterdir()) == []


def test_a_restarted_server_gets_the_weights_again(server: Any) -> None:
    served = by_http(server)
    assert right(served)
    server.start()
    told(server)
    assert right(served)
    assert told(server) == UPDATE
    assert right(served)
    assert told(server) == []


def test_an_update_that_another_trainer_left_open_is_ended(server: Any) -> None:
    server.updating = True
    assert right(by_http(server))
    assert told(server) == [*UPDATE[:2], END, *UPDATE[1:]]


@pytest.mark.parametrize(
    ("refuses", "said"),
    [
        (BEGIN, "HTTP 400: Failed to update parameter online"),
        (SEND, "HTTP 400: Failed to update parameter online"),
        (END, "HTTP 400: Failed to update parameter online"),
        (NAME, "HTTP 400: no name"),
        ("all", "HTTP 404: Not Found: SGLang 0.5.23 has it"),
    ],
)
def test_a_server_that_refuses_gets_a_folder(
    server: Any, refuses: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.transfers, server.refuses, reply = refuses != "all", refuses, server.reply
    named = []

    def once(path: str, body: Any) -> Any:
        if path == refuses == NAME and not named:
            named.append(path)
            return 400, {"error": {"message": "no name"}}
        return reply(path, body)

    monkeypatch.setattr(server, "reply", once)
    served = by_http(server)
    with pytest.warns(UserWarning, match=f"no transfer by http .*{said}.* weights go through a folder"):
        assert right(served)
    assert told(server)[-2:] == ["/continue_generation", FOLDER]
    assert server.updating == (refuses == END)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        move(served)
        assert right(served)
    assert told(server) == [FOLDER]


@pytest.mark.parametrize("transfer", ["http", "folder"])
def test_a_server_that_is_not_done_with_its_last_answers_is_waited_for(server: Any, transfer: str) -> None:
    served = policy(server, dialect="sglang", transfer=transfer)
    server.restless = 3
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        assert right(served)
    assert server.restless == 0
    assert (FOLDER in told(server)) == (transfer == "folder")


def test_a_server_that_others_keep_busy_is_not_waited_for_long(server: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dialects, "SETTLING", 0.2)
    server.restless = 10**6
    with pytest.raises(PolicyError, match="HTTP 400: the cache was not flushed"):
        policy(server, dialect="sglang").sync(0)


def test_a_server_that_cannot_say_whether_it_is_done_is_not_waited_for(
    server: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    own, asked = server.reply, []

    def reply(path: str, body: Any) -> Any:
        asked.append(path)
        return (404, {"message": "Not Found"}) if path == "/flush_cache" else own(path, body)

    monkeypatch.setattr(server, "reply", reply)
    assert right(policy(server, dialect="sglang"))
    assert asked.count("/flush_cache") == asked.count("/update_weights_from_disk") == 1


def test_weights_that_did_not_all_arrive_are_found_and_come_by_a_folder(server: Any) -> None:
    served = by_http(server)
    assert right(served)
    move(served)
    server.loses = "mlp"
    with pytest.warns(UserWarning, match=r"differ by .* nats per token .* weights go through a folder"):
        assert right(served)


def test_requests_are_bounded_and_the_last_one_drops_cached_prefixes(
    server: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    most = 4096
    monkeypatch.setattr(http_tensors, "CHUNK", 2 * most)
    server.ranks = 2  # each has half of what a request may hold
    served = by_http(server)
    assert right(served)
    sizes = [[each.nbytes for each in update["tensors"].values()] for update in server.updates]
    assert len(sizes) > 3
    assert all(sum(each) <= most or len(each) == 1 for each in sizes)
    assert any(len(each) > 1 for each in sizes)
    assert {name for update in server.updates for name in update["tensors"]} == {name for name, _ in tensors(served.lm)}
    assert [update["flush"] for update in server.updates] == [False] * (len(sizes) - 1) + [True]


@pytest.mark.parametrize(
    ("ranks", "groups", "said"), [(None, 1, "does not say how many tensor-parallel ranks"), (1, 2, "has dp_size 2")]
)
def test_ranks_that_take_no_tensors(server: Any, ranks: Any, groups: int, said: str) -> None:
    server.ranks, server.groups = ranks, groups
    served = by_http(server)
    with pytest.warns(UserWarning, match=f"{said}.* weights go through a folder"):
        assert right(served)
    assert server.updates == []


def test_tensors_of_every_dtype_keep_their_bits(model: Path) -> None:
    """Nothing but tensors is pickled, and of a view only what it shows."""
    state = dict(tensors(LMPolicy.load(model, dtype="bfloat16")))
    whole = torch.arange(100_000)
    state |= {"view": whole[3:5], "turned": torch.ones(2, 3).T, "learns": torch.nn.Parameter(torch.ones(2))}
    found = dict(fake_server.Unpickler(io.BytesIO(base64.b64decode(packed(list(state.items()))))).load())
    assert list(found) == list(state)
    assert all(found[name].dtype == each.dtype and torch.equal(found[name], each) for name, each in state.items())
    assert len(packed([("view", whole[3:5])])) < 2000


def test_a_tensor_that_is_larger_than_a_request_goes_alone() -> None:
    named = [(str(size), torch.zeros(size, dtype=torch.uint8)) for size in (4, 6, 1, 20, 10)]
    assert [[name for name, _ in each] for each in chunks(named, 10)] == [["4", "6"], ["1"], ["20"], ["10"]]


def test_adapters_go_through_a_folder(server: Any) -> None:
    with pytest.raises(InputError, match="transfer 'http' is for whole weights; adapters go through a folder"):
        by_http(server, lora={"r": 2, "target_modules": ["q_proj"]})


def test_nothing_is_kept(server: Any) -> None:
    served = by_http(server)
    assert right(served)
    assert isinstance(served.transfer, HttpTensors)
    assert vars(served.transfer) == {"auto": False, "said": False}
