"""Weights sent to a server that runs, without a folder: in shared memory, by NCCL or CUDA IPC (vLLM), by HTTP (SGLang).

Control goes over HTTP (`UpdateCalls`), tensors go their own way (`Transfer`). Shared memory was run with vLLM 0.32 on a
CPU, HTTP with SGLang 0.5.23 on a CPU. NCCL and IPC are vLLM's own trainer engines; they were not run: no GPU.
"""

from __future__ import annotations

import base64
import os
import pickle
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Any, Protocol

from palaestra.agents.backends.dialects import LOADING, VLLM, SGLang
from palaestra.agents.backends.http_tensors import HttpTensors
from palaestra.agents.backends.server import AbsentError, Client, HttpCall, LateError, ServerError
from palaestra.agents.backends.shared_memory import SharedMemory
from palaestra.agents.backends.trainer_engines import TrainerEngine
from palaestra.agents.lm import LMPolicy

TRANSFERS = ("auto", "folder", "shared_memory", "nccl", "ipc", "http")
"""Ways of whole weights to a server; auto: shared memory for one that is started here, if it can, else a folder."""


def dialect_for(transfer: str) -> str | None:
    """Name of the dialect whose servers a way of `TRANSFERS` is for; None: all servers."""
    return {"auto": None, "folder": None, "http": "sglang"}.get(transfer, "vllm")


class UpdateCalls:
    """Control calls of one update on one server: the protocol `VLLMWeightSyncClient` of vLLM's trainer engines.

    Attributes:
        client: Connection with the server.
        version: Label that the weights get when the update is finished.
        failed: First error of a call; engines of vLLM wait for their peers before they raise it.
    """

    START, UPDATE, FINISH = "/start_weight_update", "/update_weights", "/finish_weight_update"

    def __init__(self, client: Client, version: str) -> None:
        self.client, self.version = client, version
        self.failed: ServerError | None = None

    def init_weight_transfer_engine(self, init_info: Mapping[str, Any]) -> None:
        """Tell the server how tensors will come."""
        self._post("/init_weight_transfer_engine", {"init_info": dict(init_info)})

    def start_weight_update(self) -> None:
        """Begin an update; one that another trainer left open is ended first."""
        try:
            self._post(self.START, {})
        except ServerError as error:
            try:
                self._post(self.FINISH, {})
            except ServerError:
                raise error from None
            self.failed = None
            self._post(self.START, {})

    def update_weights(self, update_info: Mapping[str, Any]) -> None:
        """Have tensors loaded; handles of CUDA memory are pickled, as vLLM's own HTTP client does it."""
        info = dict(update_info)
        if (handles := info.pop("ipc_handles", None)) is not None:
            info["ipc_handles_pickled"] = base64.b64encode(pickle.dumps(handles)).decode()
        self._post(self.UPDATE, {"update_info": info})

    def finish_weight_update(self, weight_version: str | None = None) -> None:
        """End the update and label the weights."""
        self._post(self.FINISH, {"weight_version": weight_version or self.version})

    def give_up(self) -> None:
        """End an update that failed: an empty one puts the server's loaders back in order, whatever it has by then."""
        for path in (self.START, self.FINISH):  # the first is refused if the update is open
            try:
                self._post(path, {})
            except ServerError:
                continue

    def paused(self) -> AbstractContextManager[None]:
        """Context of the update, in which the server answers nothing."""
        return VLLM.paused(self.client)

    def _post(self, path: str, body: dict[str, Any]) -> None:
        try:
            self.client.ask(HttpCall(path, body, job=True), timeout=LOADING)
        except ServerError as error:
            self.failed = self.failed or error
            raise


class SGLangCalls(UpdateCalls):
    """Control calls of one update on a SGLang server, 0.5.23: the same in its words."""

    START, UPDATE, FINISH = "/begin_weight_update", "/update_weights_from_tensor", "/end_weight_update"

    def start_weight_update(self) -> None:
        """Begin an update; one that another trainer left open is ended first."""
        try:
            super().start_weight_update()
        except AbsentError as error:
            raise ServerError(f"{error}: SGLang 0.5.23 has it") from None

    def update_weights(self, update_info: Mapping[str, Any]) -> None:
        """Have tensors loaded; it is the body of the request."""
        self._post(self.UPDATE, dict(update_info))

    def finish_weight_update(self, weight_version: str | None = None) -> None:
        """End the update, then label the weights: never while they are half of the old ones."""
        self._post(self.FINISH, {})
        SGLang().name(self.client, weight_version or self.version)

    def paused(self) -> AbstractContextManager[None]:
        """Context of the update, in which the server answers nothing."""
        return SGLang.paused(self.client)


class Transfer(Protocol):
    """Protocol of one way of weights into a server's model: `send` makes an update, `release` and `forget` free.

    Attributes:
        backend: vLLM's name of its engine, for `--weight-transfer-config`; "http" for SGLang.
        auto: Whether it was chosen here: then a server that is too old for it is no news.
        said: Whether it was said that it failed.
    """

    backend: str
    auto: bool
    said: bool

    def send(self, calls: UpdateCalls, lm: LMPolicy, digest: str, *, again: Callable[[], bool]) -> None:
        """Make one whole update. again: asks the server whether it has what it was last sent, so was not restarted."""

    def forget(self, client: Client) -> None:
        """Free what is kept of a server that is gone."""

    def release(self) -> None:
        """Free what is kept for servers that are still to be given these weights."""


def transfer_of(name: str, *, child: bool) -> Transfer | None:
    """Makes the `Transfer` of a name of `TRANSFERS`; None for a folder. child: the server is started here."""
    if name == "auto":
        return SharedMemory(auto=True) if child and hasattr(os, "memfd_create") else None
    if name == "shared_memory":
        return SharedMemory()
    if name == "http":
        return HttpTensors()
    return None if name == "folder" else TrainerEngine(name)


def send(
    transfer: Transfer, client: Client, lm: LMPolicy, digest: str, version: str, *, again: Callable[[], bool]
) -> None:
    """Send weights to a server that pauses meanwhile and drops cached prefixes; it labels them `version`.

    Raises:
        ServerError: it has them not, and its old ones neither.
    """
    calls = (SGLangCalls if isinstance(transfer, HttpTensors) else UpdateCalls)(client, version)
    with calls.paused():
        try:
            transfer.send(calls, lm, digest, again=again)
        except LateError:
            raise
        except Exception as error:
            calls.give_up()
            if isinstance(error, ServerError):
                raise
            raise ServerError(f"{transfer.backend}: {' '.join(str(error).split())[:300]}") from error
