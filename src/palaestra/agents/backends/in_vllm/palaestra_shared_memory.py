"""Weight-transfer engine for vLLM's workers: weights come in the memory of the process that learns, without a file.

This module runs in vLLM's Python, which need not have Palaestra: its folder is put on PYTHONPATH, and
`--worker-extension-cls palaestra_shared_memory.Extension` has every worker import it, which registers the engine under
the name that `--weight-transfer-config '{"backend": "palaestra_shared_memory"}'` gives. For vLLM from 0.32 on.
"""

from __future__ import annotations

import math
import mmap
import os
from dataclasses import dataclass

import torch
from vllm.distributed.weight_transfer.base import (
    WeightTransferEngine,
    WeightTransferInitInfo,
    WeightTransferUpdateInfo,
)
from vllm.distributed.weight_transfer.factory import WeightTransferEngineFactory
from vllm.model_executor.model_loader.reload import finalize_layerwise_reload, initialize_layerwise_reload

NAME = "palaestra_shared_memory"
KEY = 16
"""Bytes at the beginning of a memory file that say that it is the one that was meant."""


@dataclass
class InitInfo(WeightTransferInitInfo):
    """Nothing: every update says where its memory is."""


@dataclass
class UpdateInfo(WeightTransferUpdateInfo):
    """Tensors in a memory file of another process, under the names that a checkpoint has.

    Attributes:
        names, dtype_names, shapes: Of each tensor.
        offsets: Byte at which each begins.
        process, descriptor: Whose file it is, and its number there.
        size: Bytes of the file.
        key: Hexadecimal digits of its first bytes, so that no other process's file is taken for it.
    """

    names: list[str]
    dtype_names: list[str]
    shapes: list[list[int]]
    offsets: list[int]
    process: int
    descriptor: int
    size: int
    key: str


class SharedMemoryEngine(WeightTransferEngine[InitInfo, UpdateInfo]):
    """Loads weights from a memory file of the process that learns; several servers of one machine read the same."""

    init_info_cls, update_info_cls = InitInfo, UpdateInfo

    def init_transfer_engine(self, init_info: InitInfo) -> None:
        """Nothing to prepare."""

    def start_weight_update(self) -> None:
        """Prepare the model for weights in checkpoint format."""
        initialize_layerwise_reload(self.model)

    def finish_weight_update(self) -> None:
        """Put what was loaded in place."""
        finalize_layerwise_reload(self.model, self.model_config)

    def update_weights(self, update_info: dict[str, object]) -> None:
        """Load one part of the weights; a device, if there is one, has them when this returns."""
        self.receive_weights(self.parse_update_info(update_info))
        if torch.accelerator.is_available():
            torch.accelerator.synchronize()

    def receive_weights(self, update_info: UpdateInfo) -> None:
        """Map the memory and load tensors from it. Raises ValueError if it is not the one that was meant."""
        said, key = update_info, bytes.fromhex(update_info.key)
        found = os.open(f"/proc/{int(said.process)}/fd/{int(said.descriptor)}", os.O_RDONLY)
        try:
            if os.fstat(found).st_size != said.size or len(key) != KEY or os.pread(found, KEY, 0) != key:
                raise ValueError(f"process {said.process} has other memory here: is it on another machine?")
            whole = torch.frombuffer(mmap.mmap(found, said.size, access=mmap.ACCESS_COPY), dtype=torch.uint8)
        finally:
            os.close(found)
        weights = []
        for name, dtype_name, shape, offset in zip(
            said.names, said.dtype_names, said.shapes, said.offsets, strict=True
        ):
            dtype = getattr(torch, dtype_name)
            size = math.prod(shape) * dtype.itemsize
            weights.append((name, whole[offset : offset + size].view(dtype).view(shape)))
        self.model.load_weights(weights)

    def shutdown(self) -> None:
        """Nothing is kept between updates."""


class Extension:
    """Nothing that a worker lacks; its import registers the engine."""


if NAME not in WeightTransferEngineFactory._registry:
    WeightTransferEngineFactory.register_engine(NAME, SharedMemoryEngine)
