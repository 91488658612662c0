"""Shards: the fixed parts of a plan, and what a worker needs to play one: makers of env and team, and their weights.

How many parts there are is the recipe's, for a batch has the shape of its shard, and that decides the last bits of
log-probabilities; who plays them, where and how often is nobody's business. A team travels as what makes it
(`Team.maker`) and its state; whole, for `TabularPolicy` numbers states in the order in which they were learned.
Left out: optimisers, and policies that remember something outside of their state.
"""

from __future__ import annotations

import hashlib
import importlib
import io
import pickle
import time
import warnings
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import polars as pl
import pyarrow as pa

from palaestra.algebra.turns import Turns
from palaestra.errors import InputError, PalaestraError
from palaestra.play.executors import Local
from palaestra.play.plan import Plan, joined

if TYPE_CHECKING:
    from palaestra.agents import Team


# -- weights as plain bytes -------------------------------------------------------------------------------------------


class Packed(NamedTuple):
    """Data of a tensor or array in a form that other processes can read without copying."""

    data: np.ndarray
    dtype: str | None
    shape: tuple[int, ...]


def pack(state: Any) -> Any:
    """A nested state (dicts, lists) with every tensor and array as `Packed`; on the CPU nothing is copied."""
    if isinstance(state, dict):
        return {key: pack(value) for key, value in state.items()}
    if isinstance(state, list | tuple):
        return type(state)(pack(value) for value in state)
    if hasattr(state, "detach"):
        import torch

        tensor = state.detach().cpu().contiguous()
        return Packed(
            tensor.reshape(-1).view(torch.uint8).numpy(), str(tensor.dtype).removeprefix("torch."), (*tensor.shape,)
        )
    return Packed(np.ascontiguousarray(state), None, state.shape) if isinstance(state, np.ndarray) else state


def unpack(packed: Any) -> Any:
    """Inverse of `pack`; the tensors are views, to be copied from and not to be written to."""
    if isinstance(packed, Packed):
        if packed.dtype is None:
            return packed.data
        import torch

        dtype = getattr(torch, packed.dtype)
        if not packed.data.size:
            return torch.empty(packed.shape, dtype=dtype)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that nobody may write to it
            return torch.frombuffer(packed.data, dtype=dtype).reshape(packed.shape)
    if isinstance(packed, dict):
        return {key: unpack(value) for key, value in packed.items()}
    if isinstance(packed, list | tuple):
        return type(packed)(unpack(value) for value in packed)
    return packed


def digest(packed: Any) -> str:
    """SHA-256, as hex, of a packed state, by which it is recognised as published before."""
    found = hashlib.sha256()  # of what is safe the fastest where CPUs have instructions for it: all weights go through

    def add(value: Any) -> None:
        if isinstance(value, Packed):
            found.update(f"{value.dtype}{value.shape}{value.data.dtype}".encode())
            found.update(value.data.data)
        elif isinstance(value, dict):
            for key, item in value.items():
                found.update(f"{key!r}:".encode(errors="replace"))
                add(item)
        elif isinstance(value, list | tuple):
            found.update(f"[{len(value)}".encode())
            for item in value:
                add(item)
        else:
            found.update(value if isinstance(value, bytes) else repr(value).encode(errors="replace"))

    add(packed)
    return found.hexdigest()


# -- what a worker does -----------------------------------------------------------------------------------------------


class Published(NamedTuple):
    """Reference to a published value, such as weights: key, and place (a file, a reference into an object store)."""

    key: str
    place: Any


@dataclass(frozen=True)
class PlayJob:
    """Data that all shards of one plan share: published env, team, policy states, and options.

    env, team: pickled makers. states: of its policies, by name; frozen: which of them do not learn, for torch
    multiplies in another way then. options: of `local`. imports: modules to import first. served: what policies that
    servers answer for need to ask these (`palaestra.agents.backends.borrowing.Lent`), by name.
    """

    env: Published
    team: Published
    states: Mapping[str, Published] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)
    imports: tuple[str, ...] = ()
    frozen: frozenset[str] = frozenset()
    served: Mapping[str, Any] = field(default_factory=dict)

    @property
    def at_once(self) -> bool:
        """Whether a worker plays its shards at the same time: no policy computes here, so no batch has a shape."""
        return bool(self.served) and not self.states


class ShardResult(NamedTuple):
    """Result data of a run of shards: the table as an Arrow stream, or an error; warnings and CPU-seconds.

    shards: of those that were given, the first so many are in the table. unanswered: requests for which there was no
    server, so that they are to be played again.
    """

    table: bytes
    error: tuple[str, str] | None = None
    warned: tuple[str, ...] = ()
    seconds: float = 0.0
    shards: int = 1
    unanswered: int = 0

    def raise_(self) -> None:
        """Raise the worker's exception in this process, if there was one."""
        if self.error is not None:
            import palaestra.errors

            kind = getattr(palaestra.errors, self.error[0], None)
            if isinstance(kind, type) and issubclass(kind, PalaestraError):
                raise kind(self.error[1])
            raise PalaestraError(f"a worker failed: {self.error[0]}: {self.error[1]}")


def concatenated(answers: Iterable[ShardResult]) -> pl.DataFrame:
    """DataFrame of the tables of shard results, concatenated in order, each column in one chunk.

    Raises:
        SchemaError: two of them call different things by one name.
    """
    tables = []
    for answer in answers:
        with pa.ipc.open_stream(pa.py_buffer(answer.table)) as stream:
            tables.append(stream.read_all())
    if tables and all(table.schema.equals(tables[0].schema) for table in tables):
        # not a `pl.DataFrame` for each, which takes half a millisecond; Arrow's own pool takes twenty when it is new
        return pl.DataFrame(pa.concat_tables(tables).combine_chunks(memory_pool=pa.system_memory_pool()))
    return Turns.concat(pl.DataFrame(table) for table in tables).frame.rechunk()


class Player:
    """Plays shards in a worker process, `fetch`ing what is published; caches envs' makers, teams and weights.

    fetch: from the place of something published to what it was.
    """

    def __init__(self, fetch: Callable[[Any], Any]) -> None:
        self._fetch = fetch
        self._made: OrderedDict[str, Any] = OrderedDict()
        self._loaded: dict[tuple[str, str, frozenset[str]], str] = {}
        self._frozen: dict[tuple[str, frozenset[str]], Team] = {}

    def play(self, job: PlayJob, plans: Sequence[Plan]) -> ShardResult:
        """Play these shards in order, or the first of them if that takes long (`ENOUGH`). Never raises."""
        began, until = time.process_time(), time.monotonic() + ENOUGH
        played, room = list[Turns](), float(LARGEST)
        try:
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                for module in job.imports:
                    _import(module)
                env, team, local = self._make(job.env, "env"), self._team(job), Local(**job.options)
                before = _unanswered(team, job)
                for plan in joined(plans) if job.at_once else plans:
                    played.append(local.play(env, team, plan))
                    room -= played[-1].frame.estimated_size()
                    if not job.at_once and (room <= 0 or time.monotonic() >= until):
                        break
            table = io.BytesIO()
            Turns.concat(played).frame.write_ipc_stream(table)
            warned = tuple(str(each.message) for each in caught if issubclass(each.category, UserWarning))
            shards, unanswered = len(plans) if job.at_once else len(played), _unanswered(team, job) - before
            return ShardResult(table.getvalue(), None, warned, time.process_time() - began, shards, unanswered)
        except BaseException as error:  # it is for the driver to raise it
            return ShardResult(b"", (type(error).__name__, str(error)), (), time.process_time() - began)

    def _make(self, published: Published, what: str, served: Collection[str] = ()) -> Any:
        """The env's maker, or the team, in which policies that servers answer for have no weights and borrow these."""
        key = " ".join([published.key, *sorted(served)])
        if key not in self._made:
            try:
                made = pickle.loads(self._fetch(published.place))
                made = _team_of(made, served) if what == "team" else made
            except PalaestraError:
                raise
            except Exception as error:
                raise InputError(
                    f"a worker cannot make the {what}: {type(error).__name__}: {error}; it needs the same packages and "
                    "modules as here"
                ) from error
            self._made[key] = made
            while len(self._made) > MOST_MADE:
                gone, _ = self._made.popitem(last=False)
                self._loaded = {place: key for place, key in self._loaded.items() if place[0] != gone}
                self._frozen = {which: team for which, team in self._frozen.items() if which[0] != gone}
        self._made.move_to_end(key)
        return self._made[key]

    def _team(self, job: PlayJob) -> Team:
        team: Team = self._make(job.team, "team", job.served)
        key = " ".join([job.team.key, *sorted(job.served)])
        for name, lent in job.served.items():
            team.policies[name].use(lent)  # type: ignore[attr-defined]
        frozen = job.frozen & {policy.name for policy in team.trainable}
        if frozen:
            which = (key, frozen)
            team = self._frozen[which] = self._frozen.get(which) or team.frozen(frozen)
        for name, state in job.states.items():
            place = (key, name, frozen if name in frozen else frozenset())
            if self._loaded.get(place) != state.key:
                team.learnable[name].load_state_dict(unpack(self._fetch(state.place)))
                self._loaded[place] = state.key
        return team


def _team_of(make: Callable[[], Team], served: Collection[str]) -> Team:
    if not served:
        return make()
    from palaestra.agents import Team
    from palaestra.agents.backends.borrowing import without_weights

    with without_weights(served):
        made = make()
    borrowers = {name: made.policies[name].borrower() for name in served}  # type: ignore[attr-defined]
    return Team({agent: borrowers.get(policy.name, policy) for agent, policy in made.items()})


def _unanswered(team: Team, job: PlayJob) -> int:
    return sum(team.policies[name].unanswered for name in job.served)  # type: ignore[attr-defined]


ENOUGH = 2.0
"""Seconds after which a worker answers, and goes on with what is left when it is told to; a shard ends first."""

LARGEST = 64 * 2**20
"""Bytes after which it answers, too: more and smaller shards stay the way out of a store, or a memory, that is full."""

MOST_MADE = 8
"""Makers of envs and teams that a worker keeps."""


def _import(module: str) -> None:
    """A module that the executor names.

    Raises:
        InputError: there is none of that name here.
    """
    try:
        importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name != module.partition(".")[0]:
            raise
        raise InputError(
            f"play.executor: imports={module!r}: no such module in a worker; a module of the current folder is found "
            "with --trust, one of elsewhere must be installed or on PYTHONPATH"
        ) from error
