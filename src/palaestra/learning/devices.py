"""`Devices`: how the processes of one learner share the passes of a step, and come to one update.

Every rank has the whole table, so that denominators, pairs and targets are those of one process without another word;
what is shared out is the way through the models. Rank 0 says which verb is next and with which table (`ranks`), the
others follow; gradients are added up once per step, and a step is taken by all ranks or by none. A language model is
whole on every rank ("ddp") or in parts ("fsdp", see `sharded`); whatever else learns is small, and whole everywhere.
"""

from __future__ import annotations

import contextlib
import functools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Concatenate, Literal, ParamSpec, TypeVar

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils import get_total_norm

from palaestra.agents.policy import Learnable
from palaestra.errors import LearnerError, PalaestraError, RankError
from palaestra.learning.batch import pieces
from palaestra.learning.local_parts import is_sharded, local_shard
from palaestra.learning.ranks import Ranks, world
from palaestra.learning.steps import Place, summed

if TYPE_CHECKING:
    import polars as pl

Kind = Literal["one", "ddp", "fsdp"]
P = ParamSpec("P")
T = TypeVar("T")
BUCKET = 2**23
"""Numbers that are added up over the ranks at once."""


def spread(kind: Kind, timeout: float) -> Devices:
    """Make the `Devices` of a new learner: over all ranks; this process alone for `kind` "one" or without other ranks.

    Raises:
        RankError: another rank did not come within the timeout, in seconds.
    """
    return Devices(kind, None if kind == "one" else world(timeout))


def on_every_rank(verb: Callable[Concatenate[Any, P], T]) -> Callable[Concatenate[Any, P], T]:
    """Decorator of a learner's method that runs it on all ranks, with the arguments of rank 0."""

    @functools.wraps(verb)
    def call(learner: Any, *values: P.args, **options: P.kwargs) -> T:
        if learner.devices.size == 1:
            return verb(learner, *values, **options)
        found: T = learner.devices.run(verb.__name__, functools.partial(verb, learner), values, options)
        return found

    return call  # type: ignore[return-value]


@contextlib.contextmanager
def leading(learner: Any) -> Iterator[bool]:
    """Context manager of code for rank 0 only: yields True there; others serve its learner's calls, then get False.

    A learner without other ranks counts as rank 0.
    """
    devices = getattr(learner, "devices", None)
    if devices is None or devices.size == 1:
        yield True
    elif devices.rank:
        learner.follow()
        yield False
    else:
        try:
            yield True
        finally:
            devices.release()


@dataclass(frozen=True)
class LearnerTensors:
    """Data: a learner's policies, trained copies, references, modules and optimisers, each by policy name.

    Attributes:
        policies: As they play. learned: as they learn on this rank. references: as they were at the start, if a term
            asks for that. modules: what terms learn beside them.
        optimisers: Gives the optimiser of each; the first one that is made takes seconds.
        parameters: Parameters of a policy in the order of its optimiser.
    """

    policies: Mapping[str, Learnable]
    learned: Mapping[str, Learnable]
    references: Mapping[str, Learnable]
    modules: Mapping[str, torch.nn.ModuleDict]
    optimisers: Callable[[], Mapping[str, torch.optim.Optimizer]]
    parameters: Callable[[str], Sequence[Tensor]]


class Shared:
    """Accumulator of loss, metrics and gradient norm in an optimiser step, of this rank's passes, then of all ranks."""

    def __init__(self, rank: int, scale: float) -> None:
        self.rank, self.scale, self.loss = rank, scale, 0.0
        self.said: dict[Place, float] = {}
        self.norm = torch.zeros(())

    def add(self, loss: float, weight: float, logged: list[tuple[str, str, Any, Tensor]]) -> None:
        """Add the loss and metrics of a pass, by its weight; a pass of weight 0 only keeps step with other ranks."""
        if weight:
            self.loss += loss * weight
        if weight == 1 or (weight and self.rank == 0):
            for place, value in summed(logged).items():
                self.said[place] = self.said.get(place, 0.0) + value
        logged.clear()


class Devices:
    """Backend that distributes a learner over ranks: sharding, gradients, checkpoints. ranks: None for one process."""

    def __init__(self, kind: Kind, ranks: Ranks | None) -> None:
        self.kind, self.ranks = kind, ranks
        self.rank, self.size = (0, 1) if ranks is None else (ranks.rank, ranks.size)
        self.sharded: set[str] = set()
        self._inside = False

    # -- verbs --------------------------------------------------------------------------------------------------------

    def run(self, name: str, verb: Callable[..., T], values: Any, options: Any) -> T:
        """Call a verb on every rank with rank 0's arguments; other ranks take part.

        Raises:
            RankError: a rank is gone, or called another verb. All else that is raised, is raised on every rank.
        """
        if self._inside:
            return verb(*values, **options)
        assert self.ranks is not None
        if self.rank:
            heard = self._heard()
            if heard[0] != name:
                raise RankError(f"rank {self.rank} called {name}() where rank 0 called {heard[0]}()")
            return self._act(verb, *heard[1:])
        with self.ranks.watching():
            self.ranks.announce((name, values, options))
        return self._act(verb, values, options)

    def _act(self, verb: Callable[..., T], values: Any, options: Any) -> T:
        assert self.ranks is not None
        self._inside = True
        try:
            with self.ranks.watching():
                return verb(*values, **options)
        finally:
            self._inside = False

    def _heard(self) -> tuple[str, Any, Any]:
        assert self.ranks is not None
        found: tuple[str, Any, Any] = self.ranks.heard()
        return found

    def follow(self, verb: Callable[[str], Callable[..., Any]]) -> None:
        """On ranks other than 0: take part in rank 0's calls until it releases them.

        Args:
            verb: Gives the verb of a name.
        """
        while self.rank and (heard := self._heard())[0]:
            try:
                self._act(verb(heard[0]), *heard[1:])
            except RankError:
                raise
            except PalaestraError:
                continue

    def release(self) -> None:
        """Release the ranks that follow, so that each goes on by itself."""
        if self.ranks is not None and self.ranks.broken is None:
            with contextlib.suppress(RuntimeError):
                self.ranks.announce(("", (), {}))

    # -- who has what -------------------------------------------------------------------------------------------------

    def place(self, policies: Mapping[str, Learnable], *, frozen: bool = False) -> dict[str, Learnable]:
        """Policies as they are trained on this rank: themselves, or their shards.

        Rank 0 shards a copy, for its own go on playing; frozen: they are copies already.
        """
        if self.ranks is None or self.kind != "fsdp":
            return dict(policies)
        from palaestra.learning.sharded import shard, shardable

        self.ranks.assemble()
        big = {name: policy for name, policy in policies.items() if shardable(policy)}
        self.sharded |= big.keys()
        parts: Mapping[str, Any] = shard(big, self.ranks, copied=self.rank == 0 and not frozen)
        return {name: parts.get(name, policy) for name, policy in policies.items()}

    def begin(self, tensors: LearnerTensors) -> None:
        """Copy rank 0's parameters and references to every rank."""
        if self.ranks is None:
            return
        self.ranks.assemble()
        with self.ranks.watching():
            self.align(tensors)
            for name, reference in tensors.references.items():
                self._adopt(reference, tensors.policies[name] if name in self.sharded else reference)

    def align(self, tensors: LearnerTensors) -> None:
        """Copy the parameters of rank 0's team, and those of terms, to every rank."""
        for name, learned in tensors.learned.items():
            self._adopt(learned, tensors.policies[name])
            self._adopt(tensors.modules[name], tensors.modules[name])

    def _adopt(self, here: Any, there: Any) -> None:
        assert self.ranks is not None
        state = there.state_dict() if self.rank == 0 else None
        if hasattr(here, "adopt"):  # in parts
            here.adopt(state)
        elif (state := self.ranks.same(state)) is not None and self.rank:
            here.load_state_dict(state)

    def meet(self, tensors: LearnerTensors, rows: Mapping[str, pl.DataFrame]) -> None:
        """Share non-parameter state of policies with every rank, such as the places of states in a table."""
        assert self.ranks is not None
        for name, policy in tensors.policies.items():
            more = [] if name in self.sharded else _beside_parameters(policy)
            if not more:
                continue
            error = None
            try:
                if self.rank == 0 and len(rows[name]):
                    with torch.no_grad():
                        policy.score(rows[name])
            except PalaestraError as found:
                error = found
            self.ranks.agree(error, f"policy {name!r}")
            state = policy.state_dict()
            known = self.ranks.same({key: state[key] for key in more})
            if self.rank:
                policy.load_state_dict(state | known)

    def publish(self, tensors: LearnerTensors) -> None:
        """Copy the trained parameters into rank 0's team, which plays."""
        for name in self.sharded:
            learned: Any = tensors.learned[name]
            learned.publish(tensors.policies[name] if self.rank == 0 else None)

    # -- one step -----------------------------------------------------------------------------------------------------

    def passes(
        self, name: str, rows: np.ndarray, size: np.ndarray, limit: int | None
    ) -> Iterator[tuple[np.ndarray, float]]:
        """Row numbers of each pass of this rank, and its weight; the weighted passes of all ranks are the whole step.

        rows: shortest first, cut into runs of about as many tokens for each rank, then into pieces of at most `limit`
        padded ones. limit: None: all rows at once, which every rank does for its share of the weight. A model in parts
        is gone through by all ranks together, so one with fewer pieces makes passes of weight 0 of the shortest row.
        """
        if limit is None:
            yield rows, 1 / self.size
            return
        ordered = rows[np.argsort(size[rows], kind="stable")]
        ends = np.cumsum(size[ordered])
        cuts = np.searchsorted(ends, ends[-1] * np.arange(1, self.size) / self.size, side="right")
        every = [list(pieces(run, size, limit)) for run in np.split(ordered, cuts)]
        for piece in every[self.rank]:
            yield piece, 1.0
        if name in self.sharded:
            for _ in range(max(map(len, every)) - len(every[self.rank])):
                yield ordered[:1], 0.0

    @contextlib.contextmanager
    def step(self, name: str, parameters: Sequence[Tensor], what: str, left: str) -> Iterator[Shared]:
        """Context of a step's passes; after it gradients, loss and metrics are those of all ranks.

        Raises:
            LearnerError: on every rank, if a pass failed or a number is not finite on one; names it.
        """
        shared = Shared(self.rank, self.size if name in self.sharded else 1)
        error = None
        try:
            yield shared
        except Exception as found:
            if self.ranks is None or name in self.sharded:
                raise  # others are inside a pass and cannot be asked
            error = found
        bad: list[int] = []
        if self.ranks is not None:
            self.ranks.agree(error, what)
            bad = self._sum(shared, parameters)
        if not bad:
            shared.norm = self._norm(parameters)
        if bad or not (math.isfinite(shared.loss) and bool(shared.norm.isfinite())):
            where = f" on rank {', '.join(map(str, bad))} of {self.size}" if bad else ""
            norm = "not known" if bad else float(shared.norm)
            raise LearnerError(
                f"{what}: the loss is {shared.loss}{where}, the norm of its gradient {norm}; "
                f"lower lr, or look for a policy that has become certain; {left}"
            )

    def _sum(self, shared: Shared, parameters: Sequence[Tensor]) -> list[int]:
        """Add up what the ranks have done; the ranks that have a number that is not finite, and then nothing is."""
        assert self.ranks is not None
        plain = [p for p in parameters if not is_sharded(p)]
        grads = [p.grad for p in plain if p.grad is not None]
        finite = math.isfinite(shared.loss) and bool(get_total_norm(grads).isfinite())
        every = self.ranks.gather((shared.loss, shared.said, [p.grad is not None for p in plain], finite))
        shared.loss, shared.said = sum(loss for loss, *_ in every), {}
        for _, said, *_ in every:
            for place, value in said.items():
                shared.said[place] = shared.said.get(place, 0.0) + value
        bad = [rank for rank, (*_, fine) in enumerate(every) if not fine]
        if not bad:
            known = [any(there) for there in zip(*(each[2] for each in every))]
            self._reduce([p for p, moved in zip(plain, known) if moved], shared.scale)
        return bad

    def _reduce(self, parameters: Sequence[Tensor], scale: float) -> None:
        """Gradients become their sum over the ranks, over `scale`, which FSDP divides those of models by."""
        assert self.ranks is not None
        for p in parameters:
            p.grad = torch.zeros_like(p) if p.grad is None else p.grad
        bucket: list[Tensor] = []
        for number, p in enumerate(parameters, 1):
            assert p.grad is not None
            bucket.append(p.grad)
            if number == len(parameters) or sum(g.numel() for g in bucket) >= BUCKET:
                flat = self.ranks.add(torch.cat([g.flatten() for g in bucket]))
                for g, part in zip(bucket, flat.div_(scale).split([g.numel() for g in bucket])):
                    g.copy_(part.view_as(g))
                bucket = []

    def _norm(self, parameters: Sequence[Tensor]) -> Tensor:
        """Of the gradient of all parameters, wherever they are."""
        whole = [p.grad for p in parameters if p.grad is not None and not is_sharded(p)]
        parts = [local_shard(p.grad) for p in parameters if p.grad is not None and is_sharded(p)]
        if not parts or self.ranks is None:
            return get_total_norm(whole)
        square = self.ranks.add(get_total_norm(parts).double().square())
        return (square + get_total_norm(whole).to(square) ** 2).sqrt().float()

    def clip(self, parameters: Sequence[Tensor], limit: float, norm: Tensor) -> None:
        """Scale gradients so that their norm is at most `limit`."""
        grads = [local_shard(p.grad) for p in parameters if p.grad is not None]
        torch._foreach_mul_(grads, (limit / (norm + 1e-6)).clamp(max=1.0).to(grads[0].device))

    # -- what is kept -------------------------------------------------------------------------------------------------

    def parts(self, tensors: LearnerTensors, write: Callable[[Path], None]) -> dict[str, Any]:
        """The part of a learner's state that depends on where it is.

        Args:
            tensors: Of the learner.
            write: Makes every rank write what only it has into a folder.
        """
        whole = [name for name in tensors.policies if name not in self.sharded]
        found = {
            "optimisers": {name: tensors.optimisers()[name].state_dict() for name in whole},
            "modules": {name: modules.state_dict() for name, modules in tensors.modules.items()},
            "start": {name: each.state_dict() for name, each in tensors.references.items() if name in whole},
        }
        if self.sharded:
            from palaestra.learning.sharded import kept

            found |= kept(tensors, self.sharded, write)
        return found

    def restore(self, tensors: LearnerTensors, state: Mapping[str, Any]) -> None:
        """Inverse of `parts`, from other devices as well."""
        for name, modules in tensors.modules.items():
            modules.load_state_dict(state["modules"][name])
        if self.ranks is not None:
            self.align(tensors)
        for name in tensors.policies:
            if name in state["optimisers"] and name not in self.sharded:
                tensors.optimisers()[name].load_state_dict(state["optimisers"][name])
                if name in tensors.references:
                    tensors.references[name].load_state_dict(state["start"][name])
            else:
                from palaestra.learning.sharded import restore

                restore(tensors, name, state, self.ranks)

    def write(self, tensors: LearnerTensors, folder: Path | None) -> None:
        """Make every rank write its part into `folder`, which rank 0 has chosen.

        Raises:
            StorageError: on every rank, if one cannot; names it.
        """
        if self.ranks is not None and self.sharded:
            from palaestra.learning.sharded import write

            write(tensors, self.sharded, self.ranks, self.ranks.same(folder))


def _beside_parameters(policy: Learnable) -> list[str]:
    """Names in a policy's state that are no parameters."""
    own = {p.data_ptr() for p in policy.parameters()}
    return [
        key
        for key, value in policy.state_dict().items()
        if not (hasattr(value, "data_ptr") and value.data_ptr() in own)
    ]
