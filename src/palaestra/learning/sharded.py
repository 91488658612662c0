"""A language model in parts: FSDP2's `fully_shard` over all ranks, and what comes of it for scoring, playing, keeping.

Rank 0 shards a copy and plays with the whole model, into which every update is gathered; so acting, evaluation, export
and the fast ways through a model are what they are on one device. Scoring is one call of the model per pass, whatever
is in it, because all ranks go through the layers together; prompts that rows share are read once per row therefore.
Optimisers see only parameters that are parts, so moments are in parts as well, and frozen
weights have none.
Left out: models that no single device can hold while they are loaded, tensor parallelism.
"""

from __future__ import annotations

import copy
import functools
import warnings
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl
import torch
from torch import Tensor, nn
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.tensor import DTensor, distribute_tensor

from palaestra.agents.backends.interleaved import evaluate_rows
from palaestra.agents.backends.modules import Once
from palaestra.agents.policy import Learnable, Scored
from palaestra.errors import LearnerError, StorageError
from palaestra.learning.checkpoints import FolderPart
from palaestra.learning.local_parts import local_shard

if TYPE_CHECKING:
    from palaestra.learning.devices import LearnerTensors
    from palaestra.learning.ranks import Ranks

MOMENTS = ("exp_avg", "exp_avg_sq")


def shardable(policy: Learnable) -> bool:
    """Whether a policy can be sharded: language models are; other policies are small."""
    return hasattr(getattr(policy, "model", None), "get_output_embeddings")


def shard(policies: Mapping[str, Learnable], ranks: Ranks, *, copied: bool) -> dict[str, ShardedLM]:
    """Shard models of language policies over the ranks: {name: `ShardedLM` of this rank}; shared models stay shared."""
    both: tuple[Any, ...] = tuple(policy.model for policy in policies.values())  # type: ignore[attr-defined]
    models = copy.deepcopy(both) if copied else both
    for model in {id(model): model for model in models}.values():
        _fully_shard(model, ranks)
    return {name: ShardedLM(policy, model) for (name, policy), model in zip(policies.items(), models)}


@functools.cache
def _mesh(device: str, size: int) -> Any:
    return torch.distributed.device_mesh.init_device_mesh(device, (size,))


def _fully_shard(model: Any, ranks: Ranks) -> None:
    """Block by block, then what is around them."""
    from torch.distributed.fsdp import fully_shard

    inner = model.get_base_model() if hasattr(model, "get_base_model") else model
    blocks = set(getattr(inner, "_no_split_modules", None) or ())
    mesh = _mesh(ranks.device.type, ranks.size)
    for module in [module for module in model.modules() if type(module).__name__ in blocks]:
        fully_shard(module, mesh=mesh)
    fully_shard(model, mesh=mesh)


class ShardedLM:
    """Shard of a language policy on this rank: it can score and learn, but not act."""

    def __init__(self, policy: Any, model: Any) -> None:
        self.name, self.temperature, self.model = policy.name, policy.temperature, model
        self.top_p = policy.top_p
        self.forward = Once(model, getattr(policy.forward, "compute", None))
        self.names = list(policy.state_dict())
        self.own = dict(model.named_parameters())

    def parameters(self) -> list[nn.Parameter]:
        """Sharded parameters, in the order of the policy's own."""
        return [p for name, p in self.own.items() if name in set(self.names) and p.requires_grad]

    def score(self, rows: pl.DataFrame) -> Scored:
        """Log-probabilities of stored actions, as `LMPolicy.score`."""
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="FSDP2-wrapped module")  # nothing is done in place
            return evaluate_rows(self.forward, rows, temperature=self.temperature, top_p=self.top_p)

    def adopt(self, state: Mapping[str, Tensor] | None) -> None:
        """Copy this rank's shards from rank 0's state; called on all ranks at once."""
        self.model.reshard()  # what was gathered before is no longer true
        for name in self.names:
            part = self.own[name].detach()
            assert isinstance(part, DTensor)
            whole = torch.empty(part.shape, dtype=part.dtype, device=part.to_local().device)
            if state is not None:
                whole.copy_(state[name])
            torch.distributed.broadcast(whole, group_src=0)
            put(part, whole)

    def publish(self, to: Any | None) -> None:
        """Gather the whole parameters into rank 0's policy; called on all ranks at once."""
        state = None if to is None else to.state_dict()
        for name in self.names:
            part = self.own[name].detach()
            assert isinstance(part, DTensor)
            whole = part.full_tensor()
            if state is not None:
                state[name].copy_(whole)

    def state_dict(self) -> dict[str, Any]:
        """This rank's shards by name."""
        return {name: self.own[name].detach() for name in self.names}

    def act(self, requests: Any) -> Any:
        """Always raises LearnerError: rank 0's own policy acts."""
        raise LearnerError(
            f"policy {self.name!r} is in parts on several devices and cannot act; the team of rank 0 does"
        )

    load_state_dict = frozen_copy = act


def put(part: Tensor, whole: Tensor) -> None:
    """Copy a whole tensor, which every rank has, into a tensor or into the shard of it that is here."""
    if isinstance(part, DTensor):
        here = distribute_tensor(whole.to(part.dtype), part.device_mesh, part.placements, src_data_rank=None)
        part.to_local().copy_(here.to_local())
    else:
        part.copy_(whole)


# -- checkpoints ------------------------------------------------------------------------------------------------------


def kept(learner: LearnerTensors, sharded: Collection[str], write: Callable[[Path], None]) -> dict[str, Any]:
    """Checkpoint state (dict) of a learner's `sharded` policies: step counts, and a `FolderPart` that `write` fills."""
    tensors, steps = _held(learner, sharded)
    size = sum(tensor.numel() * tensor.element_size() for tensor in tensors.values())
    return {"steps": steps, "shards": FolderPart(write, size)}


def _held(learner: LearnerTensors, sharded: Collection[str]) -> tuple[dict[str, Tensor], dict[str, dict[str, float]]]:
    """Tensors by name, and of every parameter that was moved how often it was."""
    tensors: dict[str, Tensor] = {}
    steps: dict[str, dict[str, float]] = {}
    for name in sorted(sharded):
        state = learner.optimisers()[name].state
        moved = {str(i): state[p] for i, p in enumerate(learner.parameters(name)) if state.get(p)}
        steps[name] = {i: float(each["step"]) for i, each in moved.items()}
        tensors |= {f"{name}/{i}/{key}": each[key] for i, each in moved.items() for key in MOMENTS}
        if name in learner.references:
            tensors |= {f"{name}/start/{key}": each for key, each in learner.references[name].state_dict().items()}
    return tensors, steps


def write(learner: LearnerTensors, sharded: Collection[str], ranks: Ranks, folder: Path) -> None:
    """Write tensors of a learner's policies named in `sharded` into `folder` as safetensors, each rank its shards.

    Raises:
        StorageError: a rank could not; names it, on all of them.
    """
    from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageWriter
    from torch.distributed.checkpoint.state_dict_saver import save

    try:
        writer = HuggingFaceStorageWriter(str(folder), save_distributed=True)
        save(_held(learner, sharded)[0], storage_writer=writer, process_group=ranks.talk)
    except CheckpointException as error:
        said = [f"rank {rank} of {ranks.size}: {found[0]}" for rank, found in sorted(error.failures.items())]
        raise StorageError("; ".join(said)) from error


def restore(learner: LearnerTensors, name: str, state: Mapping[str, Any], ranks: Ranks | None) -> None:
    """Restore in place moments and reference of a learner's policy `name` from dict `state`, sharded or whole."""
    parameters, optimiser = learner.parameters(name), learner.optimisers()[name]
    optimiser.state.clear()
    reference = learner.references[name].state_dict() if name in learner.references else {}
    if name in state["optimisers"]:  # whole
        for i, held in state["optimisers"][name]["state"].items():
            made = _moments(optimiser, parameters[int(i)], float(held["step"]))
            for key in MOMENTS:
                put(made[key], held[key])
        for key, part in reference.items():
            put(part, state["start"][name][key].to(part.device))
        return
    wanted: dict[str, Tensor] = {f"{name}/start/{key}": part for key, part in reference.items()}
    for i, step in state["steps"][name].items():
        made = _moments(optimiser, parameters[int(i)], step)
        wanted |= {f"{name}/{i}/{key}": made[key] for key in MOMENTS}
    if wanted:
        from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageReader
        from torch.distributed.checkpoint.state_dict_loader import load

        talk = None if ranks is None else ranks.talk
        reader = HuggingFaceStorageReader(str(state["shards"]))
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="torch.distributed is disabled")  # it is meant to be
            load(wanted, storage_reader=reader, process_group=talk, no_dist=talk is None)


def _moments(optimiser: torch.optim.Optimizer, parameter: Tensor, step: float) -> dict[str, Tensor]:
    made = {key: torch.zeros_like(parameter.detach()) for key in MOMENTS}
    optimiser.state[parameter] = {"step": torch.tensor(step, device=local_shard(parameter.detach()).device)} | made
    return made
