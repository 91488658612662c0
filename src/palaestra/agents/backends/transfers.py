"""Weights sent to a server that runs, by vLLM's weight-transfer API: in shared memory, by NCCL or by CUDA IPC.

Control goes over HTTP (`UpdateCalls`), tensors go their own way (`Transfer`). Shared memory was run with vLLM 0.32 on a
CPU. NCCL and IPC are vLLM's own trainer engines; they were not run: no GPU.
"""

from __future__ import annotations

import base64
import importlib.util
import os
import pickle
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple, Protocol
from urllib.parse import urlsplit

import torch

from palaestra.agents.backends.dialects import LOADING, VLLM
from palaestra.agents.backends.server import Client, HttpCall, LateError, ServerError
from palaestra.agents.backends.weight_files import tensors
from palaestra.agents.lm import LMPolicy
from palaestra.errors import InputError

TRANSFERS = ("auto", "folder", "shared_memory", "nccl", "ipc")
"""Ways of whole weights to a server; auto: shared memory for one that is started here, if it can, else a folder."""
ALIGNED = 64
"""Bytes to whose multiples tensors are aligned in shared memory."""
GRACE = 10.0
"""Seconds that a trainer engine of vLLM has to notice that the server refused an update."""


class UpdateCalls:
    """Control calls of one update on one server: the protocol `VLLMWeightSyncClient` of vLLM's trainer engines.

    Attributes:
        client: Connection with the server.
        version: Label that the weights get when the update is finished.
        failed: First error of a call; engines of vLLM wait for their peers before they raise it.
    """

    def __init__(self, client: Client, version: str) -> None:
        self.client, self.version = client, version
        self.failed: ServerError | None = None

    def init_weight_transfer_engine(self, init_info: Mapping[str, Any]) -> None:
        """Tell the server how tensors will come."""
        self._post("/init_weight_transfer_engine", {"init_info": dict(init_info)})

    def start_weight_update(self) -> None:
        """Begin an update; one that another trainer left open is ended first."""
        try:
            self._post("/start_weight_update", {})
        except ServerError as error:
            try:
                self._post("/finish_weight_update", {})
            except ServerError:
                raise error from None
            self.failed = None
            self._post("/start_weight_update", {})

    def update_weights(self, update_info: Mapping[str, Any]) -> None:
        """Have tensors loaded; handles of CUDA memory are pickled, as vLLM's own HTTP client does it."""
        info = dict(update_info)
        if (handles := info.pop("ipc_handles", None)) is not None:
            info["ipc_handles_pickled"] = base64.b64encode(pickle.dumps(handles)).decode()
        self._post("/update_weights", {"update_info": info})

    def finish_weight_update(self, weight_version: str | None = None) -> None:
        """End the update and label the weights."""
        self._post("/finish_weight_update", {"weight_version": weight_version or self.version})

    def give_up(self) -> None:
        """End an update that failed: an empty one puts the server's loaders back in order, whatever it has by then."""
        for path in ("/start_weight_update", "/finish_weight_update"):  # the first is refused if the update is open
            try:
                self._post(path, {})
            except ServerError:
                continue

    def _post(self, path: str, body: dict[str, Any]) -> None:
        try:
            self.client.ask(HttpCall(path, body, job=True), timeout=LOADING)
        except ServerError as error:
            self.failed = self.failed or error
            raise


class Transfer(Protocol):
    """Protocol of one way of tensors from the process that learns into the model of a server.

    Attributes:
        backend: vLLM's name of its engine, for `--weight-transfer-config`.
        auto: Whether it was chosen here: then a server that is too old for it is no news.
        said: Whether it was said that it failed.
    """

    backend: str
    auto: bool
    said: bool

    def send(self, calls: UpdateCalls, lm: LMPolicy, digest: str, *, again: Callable[[], bool]) -> None:
        """Make one whole update. again: asks the server whether it has what it was last sent, so was not restarted."""

    def release(self) -> None:
        """Free what is kept for servers that are still to be given these weights."""


def transfer_of(name: str, *, child: bool) -> Transfer | None:
    """Makes the `Transfer` of a name of `TRANSFERS`; None for a folder. child: the server is started here."""
    if name == "auto":
        return SharedMemory(auto=True) if child and hasattr(os, "memfd_create") else None
    if name == "shared_memory":
        return SharedMemory()
    return None if name == "folder" else TrainerEngine(name)


def send(
    transfer: Transfer, client: Client, lm: LMPolicy, digest: str, version: str, *, again: Callable[[], bool]
) -> None:
    """Send weights to a server that pauses meanwhile and drops cached prefixes; it labels them `version`.

    Raises:
        ServerError: it has them not, and its old ones neither.
    """
    with VLLM.paused(client):
        calls = UpdateCalls(client, version)
        try:
            transfer.send(calls, lm, digest, again=again)
        except LateError:
            raise
        except Exception as error:
            calls.give_up()
            if isinstance(error, ServerError):
                raise
            raise ServerError(f"{transfer.backend}: {' '.join(str(error).split())[:300]}") from error


class SharedMemory:
    """Tensors in a memory file of this process, which servers of the same machine and user map: no disk, no folder.

    The file has no name in a file system and is gone when this process is, however it ends. It is written once for all
    servers, and each update says where it is, so they are not met before. Raises InputError where the operating system
    has no such files (only Linux has).
    """

    backend = "palaestra_shared_memory"

    def __init__(self, *, auto: bool = False) -> None:
        if not hasattr(os, "memfd_create"):
            raise InputError("ServedPolicy: transfer 'shared_memory' needs Linux; use 'folder'")
        self.auto, self.said = auto, False
        self._packed: _Packed | None = None
        self._packing = threading.Lock()

    def send(self, calls: UpdateCalls, lm: LMPolicy, digest: str, *, again: Callable[[], bool]) -> None:
        """Copy the tensors once per digest, and have the server map them."""
        with self._packing:
            if self._packed is None or self._packed.digest != digest:
                self._packed = _Packed(lm, digest)
            packed = self._packed
        calls.start_weight_update()
        calls.update_weights(packed.info)
        calls.finish_weight_update()

    def release(self) -> None:
        """Free the memory; a server that still reads it keeps it until it is done."""
        self._packed = None


class _Packed:
    """Tensors of a model, one after the other in a memory file. info: the update info that says where."""

    def __init__(self, lm: LMPolicy, digest: str) -> None:
        self.digest, found, key = digest, list(tensors(lm)), os.urandom(16)
        offsets, size = [], ALIGNED
        for _, tensor in found:
            offsets.append(size)
            size += -(-tensor.nbytes // ALIGNED) * ALIGNED
        self._descriptor = os.memfd_create("palaestra-weights")
        os.ftruncate(self._descriptor, size)
        os.pwrite(self._descriptor, key, 0)
        for (_, tensor), offset in zip(found, offsets, strict=True):
            left = tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().data
            while left:  # pages that are written rather than mapped: none is cleared first
                done = os.pwrite(self._descriptor, left, offset)
                left, offset = left[done:], offset + done
        self.info = {
            **_described(found), "offsets": offsets, "process": os.getpid(), "descriptor": self._descriptor,
            "size": size, "key": key.hex(),
        }  # fmt: skip

    def __del__(self) -> None:
        if hasattr(self, "_descriptor"):
            os.close(self._descriptor)


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


def _described(found: list[tuple[str, torch.Tensor]]) -> dict[str, Any]:
    return {
        "names": [name for name, _ in found],
        "dtype_names": [str(tensor.dtype).removeprefix("torch.") for _, tensor in found],
        "shapes": [list(tensor.shape) for _, tensor in found],
    }


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
