"""Tensors in the memory of the process that learns, for servers of the same machine: a `Transfer` without files.

Run with vLLM 0.32 on a CPU. The servers' side is the engine in `in_vllm`.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

import torch

from palaestra.agents.backends.weight_files import tensors
from palaestra.agents.lm import LMPolicy
from palaestra.errors import InputError

if TYPE_CHECKING:
    from palaestra.agents.backends.server import Client
    from palaestra.agents.backends.transfers import UpdateCalls

ALIGNED = 64
"""Bytes to whose multiples tensors are aligned in shared memory."""


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
        self._packed: Packed | None = None
        self._packing = threading.Lock()

    def send(self, calls: UpdateCalls, lm: LMPolicy, digest: str, *, again: Callable[[], bool]) -> None:
        """Copy the tensors once per digest, and have the server map them."""
        with self._packing:
            if self._packed is None or self._packed.digest != digest:
                self._packed = Packed(lm, digest)
            packed = self._packed
        calls.start_weight_update()
        calls.update_weights(packed.info)
        calls.finish_weight_update()

    def forget(self, client: Client) -> None:
        """Nothing is kept of a server."""

    def release(self) -> None:
        """Free the memory; a server that still reads it keeps it until it is done."""
        self._packed = None


class Packed:
    """Tensors of an `LMPolicy`, one after the other in a memory file. info: the update info that says where."""

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
            "names": [name for name, _ in found],
            "dtype_names": [str(tensor.dtype).removeprefix("torch.") for _, tensor in found],
            "shapes": [list(tensor.shape) for _, tensor in found],
            "offsets": offsets, "process": os.getpid(), "descriptor": self._descriptor,
            "size": size, "key": key.hex(),
        }  # fmt: skip

    def __del__(self) -> None:
        if hasattr(self, "_descriptor"):
            os.close(self._descriptor)
