"""Weights without a folder, with a real vLLM (its CPU build): two replicas, one that breaks in the middle, one killed.

Needs PALAESTRA_VLLM, a Python that has vLLM (`make .venv/vllm/.installed`); skipped without.
"""

from __future__ import annotations

import inspect
import json
import os
import signal
import subprocess
import time
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from tests.agents.backends.web import Web

from palaestra.agents import LMPolicy, Request, ServedPolicy
from palaestra.agents.backends import shared_memory
from palaestra.agents.backends.server import Client
from palaestra.agents.backends.trainer_engines import TensorMeta
from palaestra.agents.backends.transfers import UpdateCalls
from palaestra.envs.protocol import Observation

pytestmark = pytest.mark.skipif("PALAESTRA_VLLM" not in os.environ, reason="no vLLM: PALAESTRA_VLLM is not set")
ENGINE = {"enforce_eager": True, "max_model_len": 256, "max_num_seqs": 64}
TEXTS = [f"{n} + {n + 1} =" for n in range(12)]


def right(policy: ServedPolicy) -> bool:
    """Whether all answers are of the weights that are here."""
    said = policy.act([Request(Observation(text), "a", np.random.default_rng(i)) for i, text in enumerate(TEXTS)])
    assert [each.error for each in said] == [None] * len(TEXTS)
    for each in said:
        ids, sampled = torch.tensor([*each.prompt_ids, *each.action_ids]), torch.tensor(each.logprobs)  # type: ignore
        with torch.no_grad():
            logits = policy.lm.model(ids[None]).logits[0, len(each.prompt_ids) - 1 : -1]  # type: ignore[arg-type]
        here = logits.log_softmax(-1).gather(1, ids[-len(sampled) :, None])[:, 0]
        if not torch.allclose(here, sampled, atol=1e-4):
            return False
    return True


def move(policy: ServedPolicy) -> None:
    with torch.no_grad():
        for each in policy.parameters():
            each += 0.02 * torch.randn_like(each)


def by_folder(policy: ServedPolicy) -> list[bool]:
    return [each.transfer is None for each in policy.servers]


@pytest.fixture(scope="module")
def served() -> Iterator[ServedPolicy]:
    os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")
    lm = LMPolicy.tiny(hidden=64, heads=2, name="lm", max_new_tokens=8)
    made = ServedPolicy(lm, server="vllm", replicas=2, engine=ENGINE, transfer="shared_memory")
    yield made
    made.close()


def test_weights_come_in_shared_memory(served: ServedPolicy) -> None:
    assert right(served)
    for _ in range(3):
        move(served)
        assert right(served)
    assert served.syncs == 8
    assert by_folder(served) == [False, False]
    assert {each.name for each in served._folder.glob("*/")} <= {served.fingerprint()}
    for server in served.servers:
        assert server.client is not None
        assert str(served.dialect.version(server.client)).endswith(served.fingerprint())


@pytest.mark.parametrize("breaks", ["name", "memory"])
def test_an_update_that_breaks_in_the_middle_goes_by_a_folder(
    served: ServedPolicy, monkeypatch: pytest.MonkeyPatch, breaks: str
) -> None:
    """vLLM has taken half of a layer by then; it answers with the weights of now all the same, and takes the next."""
    whole = shared_memory.Packed

    class Broken(whole):  # type: ignore[misc, valid-type]
        def __init__(self, *args: Any) -> None:
            super().__init__(*args)
            names = self.info["names"]
            if breaks == "memory":
                self.info["key"] = "00" * 16
                return
            place = next(i for i, name in enumerate(names) if name.endswith("mlp.up_proj.weight"))
            names[place] = names[place].replace("up_proj", "nothing")

    with monkeypatch.context() as patch:
        patch.setattr(shared_memory, "Packed", Broken)
        assert served.transfer is not None
        served.transfer.said = False
        move(served)
        with pytest.warns(UserWarning, match="no transfer by palaestra_shared_memory"):
            assert right(served)
    assert by_folder(served) == [True, True]
    move(served)
    assert right(served)
    for server in served.servers:
        server.transfer = served.transfer
    move(served)
    assert right(served)
    assert by_folder(served) == [False, False]


def test_a_killed_replica_is_given_the_weights_in_memory_again(served: ServedPolicy) -> None:
    killed = served.servers[1].child
    assert killed is not None
    os.kill(killed.pid, signal.SIGKILL)
    move(served)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        began = time.monotonic()
        while served.servers[1].digest != served.fingerprint() and time.monotonic() - began < 240:
            assert right(served)
            time.sleep(0.5)
    assert any("is started again" in str(each.message) for each in said)
    assert not any("no transfer" in str(each.message) for each in said)
    assert served.servers[1].digest == served.fingerprint()
    assert by_folder(served) == [False, False]
    move(served)
    assert right(served)


ITS_OWN = """
import dataclasses, inspect, json, sys
from vllm.distributed.weight_transfer import base, clients, factory, ipc_engine, nccl_engine
client = clients.HTTPVLLMWeightSyncClient(sys.argv[1])
client.init_weight_transfer_engine({"packed": False})
client.start_weight_update()
client.update_weights({"names": ["a"], "dtype_names": ["float32"], "shapes": [[2]], "ipc_handles": [{"gpu": (1, 2)}],
                       "ipc_handles_pickled": None, "tensor_sizes": None})
client.finish_weight_update("3-d")
def fields(made): return [each.name for each in dataclasses.fields(made)]
print(json.dumps({
    "calls": {name: list(inspect.signature(each).parameters) for name, each in vars(base.VLLMWeightSyncClient).items()
              if inspect.isfunction(each) and not name.startswith("_") and name != "__init__"},
    "meta": fields(base.ParamMeta), "nccl": fields(nccl_engine.NCCLTrainerInitInfo),
    "ipc": fields(ipc_engine.IPCTrainerInitInfo),
    "made": list(inspect.signature(factory.WeightTransferTrainerFactory.trainer_init).parameters),
}))
"""


def test_we_call_what_the_client_of_vllm_calls() -> None:
    """The same paths and bodies, and the names by which its trainer engines are made; no GPU is needed to see that."""
    web = Web()
    asked: list[tuple[str, Any]] = []

    def behave(handler: Any) -> None:
        asked.append((handler.path, json.loads(handler.body) if handler.body else {}))
        web.say(handler, {})

    web.behave = behave
    url = web.url.removesuffix("/v1")
    done = subprocess.run(
        [os.environ["PALAESTRA_VLLM"], "-c", ITS_OWN, url], capture_output=True, text=True, check=True
    )
    theirs, found = list(asked), json.loads(done.stdout.splitlines()[-1])
    asked.clear()
    calls = UpdateCalls(Client(web.url), "3-d")
    calls.init_weight_transfer_engine({"packed": False})
    calls.start_weight_update()
    calls.update_weights({"names": ["a"], "dtype_names": ["float32"], "shapes": [[2]], "ipc_handles": [{"gpu": (1, 2)}],
                          "ipc_handles_pickled": None, "tensor_sizes": None})  # fmt: skip
    calls.finish_weight_update()
    assert asked == theirs
    for name, parameters in found["calls"].items():
        assert list(inspect.signature(getattr(UpdateCalls, name)).parameters) == parameters
    assert list(TensorMeta._fields) == found["meta"]
    assert found["nccl"][:4] == ["rank", "master_address", "master_port", "world_size"]
    assert found["ipc"][0] == "rank"
    assert found["made"] == ["init_info", "client", "source"]
    web.http.shutdown()
    web.http.server_close()
