"""Parts of sharded tensors (`DTensor`) that are on this rank."""

from __future__ import annotations

from torch import Tensor


def is_sharded(tensor: Tensor) -> bool:
    """Whether a tensor is sharded over ranks (a `DTensor`), so that only a part of it is here."""
    return hasattr(tensor, "to_local")


def local_shard(tensor: Tensor | None) -> Tensor:
    """The local shard of a tensor as a plain tensor; the tensor itself if it is not sharded."""
    assert tensor is not None
    part: Tensor = getattr(tensor, "to_local", lambda: tensor)()
    return part
