"""The loop that fits a network to pairs, labels or groups of labels: batches, steps, checkpoints, progress.

What a step sees depends on the seed and its number alone, so a fit that was stopped goes on bit for bit.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
import torch
from torch import Tensor

from palaestra.errors import InputError, LearnerError
from palaestra.foundation.progress import Report, reporting
from palaestra.learning import checkpoints
from palaestra.learning.reward_models import losses
from palaestra.learning.reward_models.data import Labels, Preferences

if TYPE_CHECKING:
    from palaestra.learning.reward_models.network import Inputs, NetworkReward

NEIGHBOURS = 32
"""Batches that are drawn together and sorted by length inside."""
LARGEST = 1.0
"""Gradients are cut to this norm."""
RANKINGS = ("ranknet", "listnet", "ce", "distill")
"""Losses of groups of labels; the others are of single labels or of pairs."""


@dataclass(frozen=True)
class Fitting:
    """Data: options of fitting a network reward model, see `NetworkReward.fit`."""

    loss: str
    epochs: int
    lr: float
    batch: int
    weight_decay: float
    centre: float
    alpha: float
    temperature: float
    seed: int

    def __post_init__(self) -> None:
        if self.epochs < 1 or self.batch < 1 or not self.lr > 0 or self.weight_decay < 0 or self.centre < 0:
            raise InputError(
                f"fit: epochs={self.epochs} and batch={self.batch} must be at least 1, lr={self.lr} above "
                f"0, weight_decay={self.weight_decay} and centre={self.centre} not below it"
            )


def fit(
    model: NetworkReward,
    data: Preferences | Labels,
    options: Fitting,
    *,
    folder: str | Path | None,
    every: int,
    progress: bool | Report,
) -> dict[str, float]:
    """Train a network reward model on `Preferences` or `Labels` in place; dict of counts, last loss, padding, seconds.

    `padding` is its share of what was read.
    """
    began = time.perf_counter()
    objective = _Pairs(model, data, options) if isinstance(data, Preferences) else _labels(model, data, options)
    if not len(objective.index):
        raise InputError(f"{model.name}: nothing to learn from: in every row something that it reads is missing")
    module = model.ready().train()
    offset = model.offset() if objective.only_differences else None
    if offset is not None:  # its gradient is 0 but for rounding, which Adam would scale up to whole steps
        offset.requires_grad_(False)
    learned = [each for each in module.parameters() if each is not offset]
    # Where both sides of a pair move a weight alike, its gradient is rounding, some 1e-9, which an eps of 1e-8 would
    # scale up to whole steps, others on each CPU.
    optimiser = torch.optim.AdamW(learned, lr=options.lr, weight_decay=options.weight_decay, eps=1e-6)
    batches = -(-len(objective.index) // options.batch)
    total, done, seen = batches * options.epochs, 0, np.zeros(2, np.int64)
    said: list[float] = []
    where = None if folder is None else Path(folder)
    about = _fingerprint(data, options) if where else ""
    if where and (last := checkpoints.latest(where)):
        state = checkpoints.load(last)
        if state["about"] != about:
            raise InputError(f"{where}: holds a fit to other data or with other options; remove it, or use another")
        module.load_state_dict(state["module"])
        optimiser.load_state_dict(state["optimiser"])
        done, said, seen = state["done"], state["said"], np.array(state["seen"])
    with reporting(progress, "fit") as report:
        for epoch in range(done // batches, options.epochs):
            drawn = _batches(objective, options, np.random.default_rng([options.seed, epoch]))
            for number, at in enumerate(drawn, epoch * batches):
                if number < done:
                    continue
                for group in optimiser.param_groups:
                    group["lr"] = options.lr * (1 - number / total)
                with torch.random.fork_rng(devices=[]):  # for dropout
                    torch.manual_seed(options.seed * 1_000_003 + number)
                    loss = objective.loss(at)
                if not torch.isfinite(loss):
                    raise LearnerError(f"{model.name}: the loss of step {number + 1} is {float(loss)}; take a lower lr")
                optimiser.zero_grad()
                loss.backward()
                torch.nn.utils.clip_grad_norm_(module.parameters(), LARGEST)
                optimiser.step()
                said, done = [*said, float(loss.detach())], number + 1
                seen += objective.cells(at)
                report("fit", done, total, f"loss {np.mean(said[-20:]):.4f}")
                if where and done % every == 0 and done < total:
                    state = {"module": module.state_dict(), "optimiser": optimiser.state_dict(), "done": done,
                             "said": said, "seen": seen.tolist(), "about": about}  # fmt: skip
                    checkpoints.save(where, done, state)
                    checkpoints.prune(where, 1)
    if offset is not None:
        offset.requires_grad_(True)
    module.eval()
    return {
        "rows": float(objective.used),
        "steps": float(total),
        "loss": float(np.mean(said[-max(total // 10, 1) :])),
        "padding": 1 - float(seen[0]) / max(int(seen[1]), 1),
        "seconds": time.perf_counter() - began,
    }


def _batches(objective: Any, options: Fitting, rng: np.random.Generator) -> Iterator[np.ndarray]:
    """An epoch: at random, but rows of like length beside each other."""
    order = rng.permutation(objective.index)
    if objective.size is not None:
        wide = options.batch * NEIGHBOURS
        near = (order[i : i + wide] for i in range(0, len(order), wide))
        order = np.concatenate([part[np.argsort(objective.size[part], kind="stable")] for part in near])
    parts = [order[i : i + options.batch] for i in range(0, len(order), options.batch)]
    return iter([parts[i] for i in rng.permutation(len(parts))])


# -- what a step is made of -------------------------------------------------------------------------------------------


class _Rows:
    """The network's words on rows of a step, and how many of their tokens were padding."""

    inputs: Inputs
    model: NetworkReward
    index: np.ndarray
    only_differences: bool
    """Whether the loss stays the same when a constant is added to all scores."""

    @property
    def used(self) -> int:
        """Number of pairs or labelled rows that are learned from."""
        return len(self.index)

    def outputs(self, at: np.ndarray) -> Tensor:
        return self.model.outputs(self.inputs, at, max(len(at), 1))

    def counted(self, at: np.ndarray) -> np.ndarray:
        if self.inputs.lengths is None:
            return np.array([len(at), len(at)])
        real = int(self.inputs.lengths[at].sum())
        return np.array([real, round(real / max(1 - self.model.padding, 1e-9))])


class _Pairs(_Rows):
    def __init__(self, model: NetworkReward, data: Preferences, options: Fitting) -> None:
        self.model, self.options, self.count = model, options, len(data)
        self.only_differences = options.loss == "bt" and not options.centre
        self.inputs = model.both_sides(data)
        known = self.inputs.known[: self.count] & self.inputs.known[self.count :]
        self.given = {
            name: None if v is None else torch.from_numpy(np.asarray(v, np.float64)).float()
            for name, v in (("margin", data.margin), ("weight", data.weight))
        }
        self.index = np.flatnonzero(known if data.weight is None else known & (data.weight > 0))
        lengths = self.inputs.lengths
        self.size = None if lengths is None else lengths[: self.count] + lengths[self.count :]

    def loss(self, at: np.ndarray) -> Tensor:
        found = self.outputs(np.concatenate([at, at + self.count]))
        given: dict[str, Any] = {name: v[torch.from_numpy(at)] for name, v in self.given.items() if v is not None}
        if self.options.centre:
            given["centre"] = self.options.centre
        return self.model.pair_loss(found[: len(at)], found[len(at) :], **given)

    def cells(self, at: np.ndarray) -> np.ndarray:
        return self.counted(np.concatenate([at, at + self.count]))


class _Labels(_Rows):
    only_differences = False

    def __init__(self, model: NetworkReward, data: Labels, options: Fitting) -> None:
        self.model, self.options = model, options
        self.inputs = model.encode(data.rows, data.reference, data.condition)
        self.value = torch.from_numpy(np.asarray(data.value, np.float64)).float()
        self.weight = None if data.weight is None else torch.from_numpy(np.asarray(data.weight, np.float64)).float()
        labelled = ~np.isnan(np.asarray(data.value, float).reshape(len(data), -1)).all(1)
        self.index = np.flatnonzero(self.inputs.known & labelled)
        self.size = self.inputs.lengths
        if options.loss == "binary" and bool(((self.value < 0) | (self.value > 1)).any()):
            raise InputError(f"{model.name}: loss='binary' needs labels in [0, 1]")

    def loss(self, at: np.ndarray) -> Tensor:
        rows = torch.from_numpy(at)
        weight = None if self.weight is None else self.weight[rows]
        each = losses.binary_loss if self.options.loss == "binary" else losses.regress
        return each(self.outputs(at), self.value[rows], weight=weight)

    def cells(self, at: np.ndarray) -> np.ndarray:
        return self.counted(at)


class _Groups(_Rows):
    """`index` numbers groups here."""

    only_differences = True

    def __init__(self, model: NetworkReward, data: Labels, options: Fitting) -> None:
        if data.key is None:
            raise InputError(f"{model.name}: loss={options.loss!r} orders inside groups; give the labels a key")
        self.model, self.options = model, options
        self.inputs = model.encode(data.rows, data.reference, data.condition)
        self.value = np.asarray(data.value, np.float64).reshape(len(data), -1)
        if self.value.shape[1] != 1 + (options.loss == "distill"):
            wanted = "the label and the teacher's score" if options.loss == "distill" else "one column"
            raise InputError(f"{model.name}: loss={options.loss!r} needs labels of {wanted}")
        rows = np.flatnonzero(self.inputs.known & ~np.isnan(self.value).any(1))
        _, code = np.unique(data.key[rows], return_inverse=True)
        order = np.argsort(code, kind="stable")
        self.groups = [part for part in np.split(rows[order], np.cumsum(np.bincount(code))[:-1]) if len(part) > 1]
        self.index = np.arange(len(self.groups))
        lengths = self.inputs.lengths
        self.size = None if lengths is None else np.array([lengths[part].sum() for part in self.groups])

    @property
    def used(self) -> int:
        return sum(map(len, self.groups))

    def loss(self, at: np.ndarray) -> Tensor:
        parts = [self.groups[i] for i in at]
        widest = max(map(len, parts))
        mask = torch.tensor([[j < len(part) for j in range(widest)] for part in parts])
        flat = np.concatenate(parts)
        scores = torch.zeros(mask.shape).masked_scatter(mask, self.outputs(flat))
        columns = torch.from_numpy(self.value[flat]).float().T
        goal, *teacher = (torch.zeros(mask.shape).masked_scatter(mask, each) for each in columns)
        if not teacher:
            return losses.rank_loss(scores, goal, self.options.loss, mask=mask)  # type: ignore[arg-type]
        o = self.options
        return losses.distill_rank_loss(
            scores, teacher[0], temperature=o.temperature, alpha=o.alpha, rank="ce", positive=goal, mask=mask
        )

    def cells(self, at: np.ndarray) -> np.ndarray:
        return self.counted(np.concatenate([self.groups[i] for i in at]))


def _labels(model: NetworkReward, data: Labels, options: Fitting) -> _Labels | _Groups:
    return (_Groups if options.loss in RANKINGS else _Labels)(model, data, options)


def _fingerprint(data: Preferences | Labels, options: Fitting) -> str:
    """Of data and options: a checkpoint of anything else is not gone on from."""
    found = hashlib.sha256(json.dumps(asdict(options)).encode())
    for name, value in vars(data).items():
        if isinstance(value, pl.DataFrame):
            found.update(f"{name}{value.schema}{value.hash_rows(seed=0).to_list()}".encode())
        elif value is not None:
            array = np.asarray(value)
            found.update(f"{name}{array.tolist() if array.dtype == object else array.tobytes().hex()}".encode())
    return found.hexdigest()
