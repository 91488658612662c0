"""Weights that go to a server without a folder: what is asked, in which order, and what happens when it fails."""

from __future__ import annotations

import base64
import contextlib
import importlib.util
import json
import os
import pickle
import sys
import threading
import types
import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.agents.backends.web import Web
from tests.agents.test_served import ask, closed, fake_server, move, policy, rows

from palaestra.agents import LMPolicy, ServedPolicy
from palaestra.agents.backends import shared_memory, trainer_engines, transfers
from palaestra.agents.backends.server import Client, ServerError
from palaestra.agents.backends.transfers import SharedMemory, TrainerEngine, UpdateCalls, transfer_of
from palaestra.agents.backends.weight_files import tensors
from palaestra.errors import InputError

__all__ = ["closed"]
UPDATE = ["/pause", "/start_weight_update", "/update_weights", "/finish_weight_update", "/resume"]


@pytest.fixture
def server(model: Path) -> Iterator[Any]:
    made = fake_server.FakeServer(model)
    made.transfers = True
    yield made
    made.close()


def told(server: Any) -> list[str]:
    """Paths about weights since the last look."""
    found = [path for path in server.paths if path in UPDATE or path == "/collective_rpc"]
    server.paths.clear()
    return found


def right(served: Any) -> bool:
    decisions = ask(served)
    return [each.error for each in decisions] == [None] * 6 and served.mismatch(rows(decisions))["mismatch"] < 1e-5


def test_weights_come_in_shared_memory_and_no_folder_is_written(server: Any) -> None:
    served = policy(server, transfer="shared_memory")
    assert right(served)
    assert told(server) == UPDATE
    assert server.version == f"?-{served.fingerprint()}"
    move(served)
    assert right(served)
    assert told(server) == UPDATE
    assert right(served)
    assert told(server) == []
    assert list(served._folder.iterdir()) == []
    info = server.updates[-1]
    assert set(info["names"]) >= {"lm_head.weight", "model.embed_tokens.weight"}
    assert not os.path.exists(f"/proc/{os.getpid()}/fd/{info['descriptor']}") or served.transfer._packed is None


def test_a_restarted_server_gets_the_weights_again(server: Any) -> None:
    served = policy(server, transfer="shared_memory")
    assert right(served)
    server.start()
    told(server)
    assert right(served)
    assert told(server) == UPDATE


def test_an_update_that_another_trainer_left_open_is_ended(server: Any) -> None:
    server.updating = True
    assert right(policy(server, transfer="shared_memory"))
    assert told(server) == [*UPDATE[:2], "/finish_weight_update", *UPDATE[1:]]


@pytest.mark.parametrize("refuses", ["/start_weight_update", "/update_weights", "/finish_weight_update"])
def test_a_server_that_refuses_gets_a_folder(server: Any, refuses: str) -> None:
    served = policy(server, transfer="shared_memory")
    server.refuses = refuses
    with pytest.warns(UserWarning, match="no transfer by palaestra_shared_memory .*not configured.* through a folder"):
        assert right(served)
    assert told(server)[-3:] == ["/pause", "/collective_rpc", "/resume"]
    assert not server.updating
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        move(served)
        assert right(served)
    assert told(server) == ["/pause", "/collective_rpc", "/resume"]


def test_weights_that_did_not_all_arrive_are_found_and_come_by_a_folder(server: Any) -> None:
    served = policy(server, transfer="shared_memory")
    assert right(served)
    move(served)
    server.loses = "mlp"
    with pytest.warns(UserWarning, match=r"differ by .* nats per token .* weights go through a folder"):
        assert right(served)


def test_one_replica_that_cannot_gets_a_folder_and_the_other_none(model: Path) -> None:
    two = [fake_server.FakeServer(model) for _ in range(2)]
    try:
        two[0].transfers = True
        served = policy(two[0], url=[each.url for each in two], transfer="shared_memory")
        with pytest.warns(UserWarning, match="no transfer by") as said:
            assert right(served)
        assert len([each for each in said if "no transfer by" in str(each.message)]) == 1
        assert [each.transfer is None for each in served.servers] == [False, True]
        assert "/collective_rpc" not in two[0].paths
        assert "/collective_rpc" in two[1].paths
        move(served)
        assert right(served)
    finally:
        for each in two:
            each.close()


def test_replicas_read_one_copy(model: Path) -> None:
    two = [fake_server.FakeServer(model) for _ in range(2)]
    try:
        two[0].transfers = two[1].transfers = True
        served = policy(two[0], url=[each.url for each in two], transfer="shared_memory")
        assert right(served)
        assert two[0].updates == two[1].updates
    finally:
        for each in two:
            each.close()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"transfer": "shared"}, "transfer 'shared' is unknown; did you mean 'shared_memory'"),
        (
            {"transfer": "nccl", "dialect": "sglang"},
            "transfer 'nccl' is for servers of dialect 'vllm', not of 'sglang'; use one of 'auto', 'folder', 'http'",
        ),
        ({"transfer": "http"}, "transfer 'http' is for servers of dialect 'sglang', not of 'vllm'"),
    ],
)
def test_transfers_that_cannot_be(server: Any, options: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        policy(server, **options)


def test_adapters_go_through_a_folder(server: Any) -> None:
    lora = {"r": 2, "target_modules": ["q_proj"]}
    with pytest.raises(InputError, match="transfer 'shared_memory' is for whole weights"):
        policy(server, transfer="shared_memory", lora=lora)
    assert policy(server, transfer="auto", lora=lora).transfer is None


def test_which_way_auto_is() -> None:
    assert transfer_of("auto", child=False) is None
    assert transfer_of("folder", child=True) is None
    assert isinstance(transfer_of("auto", child=True), SharedMemory)


def test_memory_is_freed(model: Path) -> None:
    shared, lm = SharedMemory(), LMPolicy.load(model)
    packed = shared_memory.Packed(lm, "d")
    shared._packed = packed
    at = f"/proc/self/fd/{packed.info['descriptor']}"
    size = os.stat(at).st_size
    assert size >= sum(each.nbytes for each in lm.model.state_dict().values())
    del packed
    shared.release()
    assert not os.path.exists(at) or os.stat(at).st_size != size


def test_tensors_of_every_dtype_keep_their_bits(model: Path) -> None:
    lm = LMPolicy.load(model, dtype="bfloat16")
    packed = shared_memory.Packed(lm, "d")
    state = lm.model.state_dict()
    assert set(packed.info["names"]) == set(state)
    for name, dtype, shape, at in zip(*(packed.info[key] for key in ("names", "dtype_names", "shapes", "offsets"))):
        assert at % shared_memory.ALIGNED == 0
        raw = os.pread(packed.info["descriptor"], state[name].nbytes, at)
        found = torch.frombuffer(bytearray(raw), dtype=getattr(torch, dtype)).reshape(shape)
        assert torch.equal(found, state[name])


# -- NCCL and CUDA IPC: vLLM's own engines, here a stand-in that makes their calls in their order ---------------------


class StandIn:
    """Trainer engine that asks what vLLM's does; tensors go nowhere. hangs: as a broadcast whose peer is gone."""

    hangs = False
    made: list[StandIn] = []

    def __init__(self, info: Any, client: Any, source: Any) -> None:
        self.info, self.client, self.source = info, client, source
        StandIn.made.append(self)
        client.init_weight_transfer_engine({"packed": False})

    def send_weights(self) -> None:
        self.client.start_weight_update()
        info = {"names": [each.name for each in self.source.metadata()], "ipc_handles": [{"gpu": (1, 2)}]}
        pool = ThreadPoolExecutor(1)
        asked = pool.submit(self.client.update_weights, info)
        for _ in self.source:
            pass
        if StandIn.hangs:
            threading.Event().wait()
        asked.result()
        pool.shutdown()
        self.client.finish_weight_update()


@pytest.fixture
def engines(monkeypatch: pytest.MonkeyPatch) -> None:
    def module(name: str, **content: Any) -> None:
        made = types.ModuleType(name)
        vars(made).update(content, __spec__=types.SimpleNamespace(name=name), __path__=[])
        monkeypatch.setitem(sys.modules, name, made)

    def info(*values: Any, **named: Any) -> Any:
        return values, named

    class Factory:
        @staticmethod
        def trainer_init(info: Any, *, client: Any, source: Any) -> StandIn:
            return StandIn(info, client, source)

    part = "vllm.distributed.weight_transfer"
    for name in ("vllm", "vllm.distributed", part):
        module(name)
    module(f"{part}.factory", WeightTransferTrainerFactory=Factory)
    module(f"{part}.ipc_engine", IPCTrainerInitInfo=info)
    module(f"{part}.nccl_engine", NCCLTrainerInitInfo=info)
    monkeypatch.setattr(torch.cuda, "device", lambda _: contextlib.nullcontext())
    StandIn.made, StandIn.hangs = [], False


@pytest.mark.parametrize("backend", ["nccl", "ipc"])
def test_engines_of_vllm_are_driven(web: Web, model: Path, engines: None, backend: str) -> None:
    asked: dict[str, Any] = {}

    def behave(handler: Any) -> None:
        asked[handler.path] = json.loads(handler.body or "{}")
        web.say(handler, {"world_size": 4})

    web.behave = behave
    client, lm, transfer = Client(web.url), LMPolicy.load(model), TrainerEngine(backend)
    for again in (False, True, False):
        transfers.send(transfer, client, lm, "d", "3-d", again=lambda again=again: again)  # type: ignore[misc]
    assert len(StandIn.made) == 2  # one for the server, another one when it was restarted
    values, named = StandIn.made[0].info
    assert named == {"rank": 0}
    assert values == () or (values[0], values[2]) == ("127.0.0.1", 5)
    info = asked["/update_weights"]["update_info"]
    assert info["names"] == [name for name, _ in tensors(lm)]
    assert pickle.loads(base64.b64decode(info["ipc_handles_pickled"])) == [{"gpu": (1, 2)}]
    assert asked["/finish_weight_update"] == {"weight_version": "3-d"}


def test_a_refused_update_does_not_wait_for_its_peer(
    web: Web, model: Path, engines: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trainer_engines, "GRACE", 0.2)
    StandIn.hangs = True
    refused = {"error": {"message": "out of memory"}}
    web.behave = lambda handler: (
        web.say(handler, refused, 500) if handler.path == "/update_weights" else web.say(handler, {"world_size": 1})
    )
    transfer = TrainerEngine("nccl")
    with pytest.raises(ServerError, match="out of memory"):
        transfers.send(transfer, Client(web.url), LMPolicy.load(model), "d", "3-d", again=lambda: False)
    assert transfer._engines == {}


def test_nothing_is_kept_when_it_is_closed(server: Any) -> None:
    served = policy(server, transfer="shared_memory")
    assert right(served)
    engine, client = TrainerEngine.__new__(TrainerEngine), served.servers[0].client
    assert client is not None
    engine._engines = {client: None}
    engine.forget(client)
    assert engine._engines == {}
    shared = served.transfer
    assert isinstance(shared, SharedMemory)
    shared._packed = shared_memory.Packed(served.lm, "d")  # as when one of several servers has not got them
    served.close()
    assert shared._packed is None


def test_vllm_has_to_be_here_for_its_engines(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr("importlib.util.find_spec", lambda name, *at: None if name == "vllm" else find(name, *at))
    said = "transfer 'nccl' is by vLLM's own engine, and the Python that learns has no"
    with pytest.raises(InputError, match=said):
        TrainerEngine("nccl")
    with pytest.raises(InputError, match=said):
        ServedPolicy.check(model, url="http://127.0.0.1:1/v1", transfer="nccl")


def test_an_update_that_failed_is_ended(web: Web) -> None:
    paths: list[str] = []

    def behave(handler: Any) -> None:
        paths.append(handler.path)
        web.say(handler, {}, 500 if "start" in handler.path else 200)

    web.behave = behave
    UpdateCalls(Client(web.url), "1-d").give_up()
    assert paths == ["/start_weight_update", "/finish_weight_update"]


def test_an_update_that_ends_soon_after_a_refusal_counts() -> None:
    calls: Any = types.SimpleNamespace(failed=ServerError("out of memory"))
    ended = threading.Event()
    threading.Timer(0.12, ended.set).start()  # the wait looks every 0.05 s
    assert trainer_engines._watched(lambda: ended.wait(5) and "met", calls) == "met"
