"""Tensors in HTTP requests, for SGLang's servers wherever they are: a `Transfer` without files.

Run with SGLang 0.5.23 on a CPU.
"""

from __future__ import annotations

import base64
import pickle
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import torch

from palaestra.agents.backends.endpoint import at
from palaestra.agents.backends.server import HttpCall, ServerError
from palaestra.agents.backends.weight_files import tensors
from palaestra.agents.lm import LMPolicy

if TYPE_CHECKING:
    from palaestra.agents.backends.server import Client
    from palaestra.agents.backends.transfers import UpdateCalls

CHUNK = 32 * 2**20
"""Bytes of tensors in one request; a larger tensor goes alone. A request takes five times as much memory here."""


class HttpTensors:
    """Tensors in the requests themselves: no folder that both sides see, no memory or GPU that they share.

    They are pickled, since that is what SGLang takes; what it sends is JSON, and nothing is unpickled here. Each of
    its tensor-parallel ranks reads a whole copy of its own and keeps its part.
    """

    backend = "http"

    def __init__(self) -> None:
        self.auto = self.said = False

    def send(self, calls: UpdateCalls, lm: LMPolicy, digest: str, *, again: Callable[[], bool]) -> None:
        """Send all tensors, chunk by chunk; cached prefixes are dropped with the last one."""
        ranks = ranks_of(calls.client)
        calls.start_weight_update()
        parts = list(chunks(list(tensors(lm)), CHUNK // ranks))
        for i, part in enumerate(parts):
            copies = [packed(part)] * ranks
            calls.update_weights({"serialized_named_tensors": copies, "flush_cache": i + 1 == len(parts)})
        calls.finish_weight_update()

    def forget(self, client: Client) -> None:
        """Nothing is kept of a server."""

    def release(self) -> None:
        """Nothing is kept of weights."""


def ranks_of(client: Client) -> int:
    """Number of tensor-parallel ranks of a `Client`'s server, which crashes if it is sent fewer copies.

    Raises:
        ServerError: it does not say how many, or has data-parallel ranks, which take no tensors.
    """
    info = client.ask(HttpCall("/server_info"))
    ranks, replicas = at(info, "tp_size"), at(info, "dp_size")
    if not isinstance(ranks, int) or ranks < 1:
        raise ServerError(f"{client.url} does not say how many tensor-parallel ranks it has (tp_size of /server_info)")
    if replicas not in (None, 1):
        raise ServerError(
            f"{client.url} has dp_size {replicas}, and data-parallel ranks take no tensors: start a server for each "
            "and give url= their list"
        )
    return ranks


def chunks(named: list[tuple[str, torch.Tensor]], most: int) -> Iterator[list[tuple[str, torch.Tensor]]]:
    """Lists of named tensors with at most `most` bytes each, or one tensor."""
    part: list[tuple[str, torch.Tensor]] = []
    size = 0
    for name, tensor in named:
        if part and size + tensor.nbytes > most:
            yield part
            part, size = [], 0
        part.append((name, tensor))
        size += tensor.nbytes
    if part:
        yield part


def packed(named: list[tuple[str, torch.Tensor]]) -> str:
    """Text of named tensors as SGLang reads them: a pickled list in base64."""
    # a tensor is pickled with all of its storage, of which it may be a small part: so a copy of its own
    own = [(name, tensor.detach().cpu().clone(memory_format=torch.contiguous_format)) for name, tensor in named]
    return base64.b64encode(pickle.dumps(own)).decode()
