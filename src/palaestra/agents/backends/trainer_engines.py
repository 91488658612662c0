"""Tensors to a server by vLLM's own trainer engines, NCCL or CUDA IPC: a `Transfer`. Not run: no GPU.

The requests that go with them are those of vLLM's own client, which is tested with vLLM.
"""

from __future__ import annotations

import importlib.util
import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit

import torch

from palaestra.agents.backends.dialects import LOADING
from palaestra.agents.backends.server import Client, HttpCall, LateError
from palaestra.agents.backends.weight_files import tensors
from palaestra.agents.lm import LMPolicy
from palaestra.errors import InputError

if TYPE_CHECKING:
    from palaestra.agents.backends.transfers import UpdateCalls

GRACE = 10.0
"""Seconds that a trainer engine of vLLM has to notice that the server refused an update."""


class TensorMeta(NamedTuple):
    """Data of one tensor that will be sent: name, dtype, shape; vLLM's `ParamMeta`."""

    name: str
    dtype: torch.dtype
    shape: tuple[int, ...]


class Tensors:
    """Named tensors of a model, which can be gone through again and again: vLLM's `WeightSource`."""

    def __init__(self, lm: LMPolicy) -> None:
        self.lm = lm

    def metadata(self) -> list[TensorMeta]:
        """Name, dtype and shape of each, in the order in which they come."""
        return [TensorMeta(name, tensor.dtype, tuple(tensor.shape)) for name, tensor in self]

    def __iter__(self) -> Iterator[tuple[str, torch.Tensor]]:
        return ((name, tensor.detach()) for name, tensor in tensors(self.lm))


class TrainerEngine:
    """Tensors by vLLM's own trainer engine for "nccl" (another GPU) or "ipc" (the same GPU). Not run: no GPU.

    vLLM has to be installed in the Python that learns as well, and the policy to be on a GPU: for NCCL on one that no
    server has, for IPC on the server's own. A server whose GPU memory comes by IPC unpickles what it is sent
    (VLLM_ALLOW_INSECURE_SERIALIZATION=1), so nobody else may reach it. Raises InputError without vLLM.
    """

    def __init__(self, backend: str) -> None:
        if importlib.util.find_spec("vllm") is None:
            raise InputError(
                f"ServedPolicy: transfer {backend!r} is by vLLM's own engine, and the Python that learns has no vLLM: "
                "install it here as well, or use 'shared_memory' or 'folder'"
            )
        self.backend, self.auto, self.said = backend, False, False
        self._engines: dict[Client, Any] = {}
        self._turn = threading.Lock()

    def send(self, calls: UpdateCalls, lm: LMPolicy, digest: str, *, again: Callable[[], bool]) -> None:
        """Meet the server if it is new, then make one update; servers of a policy take turns."""
        with self._turn:
            engine = self._engines.pop(calls.client, None)
            engine = engine if engine is not None and again() else None
            source = Tensors(lm)

            def update() -> Any:
                with torch.cuda.device(lm.model.device):
                    met = engine or self._meet(calls, source)
                    met.client, met.source = calls, source
                    met.send_weights()
                    return met

            self._engines[calls.client] = _watched(update, calls)

    def forget(self, client: Client) -> None:
        """Drop the engine, and with it the group, of a server that is gone."""
        self._engines.pop(client, None)

    def release(self) -> None:
        """Nothing is kept but connections."""

    def _meet(self, calls: UpdateCalls, source: Tensors) -> Any:
        from vllm.distributed.weight_transfer.factory import WeightTransferTrainerFactory  # type: ignore

        info: Any
        if self.backend == "ipc":
            from vllm.distributed.weight_transfer.ipc_engine import IPCTrainerInitInfo  # type: ignore

            info = IPCTrainerInitInfo(rank=0)
        else:
            from vllm.distributed.weight_transfer.nccl_engine import NCCLTrainerInitInfo  # type: ignore

            workers = int(calls.client.ask(HttpCall("/get_world_size"))["world_size"])
            info = NCCLTrainerInitInfo(*_meeting_place(calls.client.url), 1 + workers, rank=0)
        return WeightTransferTrainerFactory.trainer_init(info, client=calls, source=source)


def _meeting_place(url: str) -> tuple[str, int]:
    """Address of this machine as the server sees it, and a free port."""
    parts = urlsplit(url)
    with socket.create_connection((parts.hostname or "127.0.0.1", parts.port or 80)) as there:
        own = there.getsockname()[0]
    with socket.create_server((own, 0)) as free:
        return own, free.getsockname()[1]


def _watched(update: Callable[[], Any], calls: UpdateCalls) -> Any:
    """Result of an update that may wait for its peer for ever once the server has refused it.

    Raises:
        ServerError: what the server said, `GRACE` seconds after it said so.
        LateError: nothing came of it within `LOADING` seconds.
    """
    found: list[Any] = []
    errors: list[BaseException] = []

    def work() -> None:
        try:
            found.append(update())
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=work, daemon=True, name="transfer")
    thread.start()
    began, refused = time.monotonic(), None
    while thread.is_alive():
        thread.join(0.05)
        refused = refused or (time.monotonic() if calls.failed else None)
        if refused and calls.failed and time.monotonic() - refused > GRACE:
            raise calls.failed
        if time.monotonic() - began > LOADING:
            raise LateError(f"weights were not sent within {LOADING:g} s")
    if errors:
        raise errors[0]
    return found[0]
