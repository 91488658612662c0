"""`SplitMLPPolicy`: a network with several parameter sets per layer, and a map that says which seat uses which.

It stands between one network for all seats and one for each: seats may share everything, nothing, or the middle layers
only. The map is part of its state and may change while it learns (`learning.gradient_sharing`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import torch

from palaestra.agents.discrete import DiscretePolicy
from palaestra.agents.policy import Request
from palaestra.envs.protocol import Observation
from palaestra.errors import InputError, nearest

if TYPE_CHECKING:
    import polars as pl

LAYERS = ("front", "head")
"""Layers that may be each key's own: the first and the last one."""


class SplitLayers(torch.nn.Module):
    """Torch module: tanh MLP with several parameter sets per layer; `sets` says which each of `keys` keys (seats) uses.

    weights[i] is [sets, out, in], biases[i] is [sets, out].
    sets: int64[layers, keys], a buffer: which parameter set of each layer a key uses.
    """

    sets: torch.Tensor

    def __init__(self, widths: Sequence[int], counts: Sequence[int], keys: int) -> None:
        super().__init__()
        made = [
            [torch.nn.Linear(here, there) for _ in range(count)]
            for (here, there), count in zip(pairwise(widths), counts, strict=True)
        ]
        self.weights = torch.nn.ParameterList([torch.stack([one.weight.detach() for one in each]) for each in made])
        self.biases = torch.nn.ParameterList([torch.stack([one.bias.detach() for one in each]) for each in made])
        self.register_buffer("sets", torch.zeros(len(made), keys, dtype=torch.int64))

    def forward(self, features: torch.Tensor, keys: torch.Tensor) -> torch.Tensor:
        """Logits [rows, actions] of features [rows, inputs] for the keys [rows]."""
        last = len(self.weights) - 1
        for layer, (weight, bias) in enumerate(zip(self.weights, self.biases, strict=True)):
            of = self.sets[layer][keys]
            found = features.new_empty(len(features), weight.shape[1])
            for each in of.unique().tolist():  # a few parameter sets, not rows
                at = (of == each).nonzero()[:, 0]
                found = found.index_copy(0, at, torch.addmm(bias[each], features[at], weight[each].T))
            features = found if layer == last else torch.tanh(found)
        return features


class SplitMLPPolicy(DiscretePolicy):
    """Trainable MLP policy of several agents that share parameters per layer as `sharing` and `own` say.

    Args:
        inputs: features of every observation.
        actions: number of actions, of all seats.
        keys: seats. A key is an agent's name, or the part of it before a dot, as in `native/mixture` with seats of
            its parts: `maze` is the key of `maze.first` and `maze.second`.
        own: layers that every key has for itself, "front" (the first) or "head" (the last).
        widths: features of the observations of each key, if they differ; each key needs its own front then.
        sharing: of the other layers: "all" keys use one parameter set, "none" has one for each, or a number by key.
        sets: how many parameter sets there can be, at least as many as `sharing` uses; see `split`.
        hidden, seed: as in `MLPPolicy`. A parameter set's start is drawn apart from the others'.

    Raises:
        InputError: there are no keys, an option does not fit the keys, or there are too few sets.
    """

    KIND = "split_mlp"
    SETTINGS: ClassVar[tuple[str, ...]] = (
        "inputs", "actions", "keys", "own", "widths", "sharing", "sets", "hidden", "name",
    )  # fmt: skip

    def __init__(
        self,
        inputs: int,
        actions: int,
        *,
        keys: Sequence[str],
        own: Collection[str] = (),
        widths: Mapping[str, int] | None = None,
        sharing: str | Mapping[str, int] = "all",
        sets: int = 1,
        hidden: Sequence[int] = (64, 64),
        name: str = "split_mlp",
        seed: int = 0,
    ) -> None:
        places = _places(sharing, keys)
        if not hidden:
            raise InputError("SplitMLPPolicy: hidden is empty; there is nothing between front and head to share")
        for layer in own:
            if layer not in LAYERS:
                raise InputError(f"SplitMLPPolicy: own has {layer!r}{nearest(layer, LAYERS)}")
        widths = dict(widths or dict.fromkeys(keys, inputs))
        if {*widths} != {*keys} or (len({*widths.values()}) > 1 and "front" not in own):
            raise InputError(f"SplitMLPPolicy: widths={widths} needs each of {list(keys)}, and 'front' in own")
        sets = max(sets, 1 + max(places))
        sizes = [max(widths.values()), *hidden, actions]
        alone = ["front" in own, *[False] * (len(hidden) - 1), "head" in own]
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            module = SplitLayers(sizes, [len(keys) if each else sets for each in alone], len(keys))
        for at, each in enumerate(alone):
            module.sets[at] = torch.arange(len(keys)) if each else torch.tensor(places)
        super().__init__(module, actions=actions, name=name)
        self.inputs, self.widths = inputs, widths
        self.keys, self.own, self.hidden, self.sets = list(keys), sorted(own), tuple(hidden), sets
        self.sharing = sharing if isinstance(sharing, str) else dict(sharing)
        self.shared_layers = [at for at, each in enumerate(alone) if not each]

    @property
    def layers(self) -> SplitLayers:
        """The policy's network, a `SplitLayers` module."""
        assert isinstance(self.module, SplitLayers)
        return self.module

    def shared_parameters(self) -> list[torch.nn.Parameter]:
        """Parameters of the layers that keys share, stacked by set: [sets, …]; those of `own` are left out."""
        return [each[layer] for layer in self.shared_layers for each in (self.layers.weights, self.layers.biases)]

    def groups(self) -> dict[int, list[str]]:
        """Keys (seats) by the parameter set that they use, {set: keys}."""
        places = self.layers.sets[self.shared_layers[0]].tolist()
        return {place: [key for key, at in zip(self.keys, places, strict=True) if at == place] for place in {*places}}

    def split(self, keys: Iterable[str]) -> tuple[int, int]:
        """Give keys that share a parameter set a copy of it; returns the number of their old and of their new set.

        Raises:
            InputError: they do not share a set, are all that use it, or there is no set left.
        """
        chosen, groups = sorted({*keys}), self.groups()
        old = next((place for place, members in groups.items() if {*chosen} < {*members}), None)
        new = max(groups) + 1
        if old is None or not chosen or new >= self.sets:
            raise InputError(f"SplitMLPPolicy.split: {chosen} of groups {groups} with at most {self.sets} sets")
        with torch.no_grad():
            for parameter in self.shared_parameters():
                parameter[new] = parameter[old]
            for layer in self.shared_layers:
                self.layers.sets[layer, [self.keys.index(key) for key in chosen]] = new
        return old, new

    def adopt(self, other: SplitMLPPolicy, *, freeze: bool = True) -> None:
        """Copy the shared layers of another policy, whose seats may see other observations; own layers stay.

        Args:
            other: learned before; all its keys share one parameter set.
            freeze: whether the adopted layers stay as they are, so that only the layers in `own` learn.

        Raises:
            InputError: a layer that is shared here is not shared there, or has another size.
        """
        layers = self.shared_layers
        given = [each[at] for at in layers for each in (other.layers.weights, other.layers.biases)]
        shapes = [tuple(each.shape[1:]) for each in self.shared_parameters()]
        if not {*layers} <= {*other.shared_layers} or len(other.groups()) > 1:
            raise InputError(f"SplitMLPPolicy.adopt: layers {layers} are shared here, and not by all in {other.name!r}")
        if shapes != [tuple(each.shape[1:]) for each in given]:
            raise InputError(f"SplitMLPPolicy.adopt: shared layers of {other.name!r} have other sizes: {other.hidden}")
        with torch.no_grad():
            for here, there in zip(self.shared_parameters(), given, strict=True):
                here[:] = there[next(iter(other.groups()))]
                here.requires_grad_(not freeze)

    def key_of(self, agent: str) -> str | None:
        """The key of an agent; None if it has none."""
        return agent if agent in self.keys else next((k for k in self.keys if agent.startswith(f"{k}.")), None)

    def _refused(self, request: Request) -> str | None:
        key = self.key_of(request.agent)
        if key is None:
            return f"InputError: policy {self.name!r} has no key for agent {request.agent!r}"
        wanted, array = self.widths[key], request.observation.array
        if array is None or np.size(array) != wanted:
            found = "no array" if array is None else f"{np.size(array)} features"
            return f"InputError: the observation has {found}, policy {self.name!r} reads {wanted} of {key!r}"
        return self.misfit(request.observation)

    def _of_requests(self, requests: Sequence[Request]) -> tuple[np.ndarray, np.ndarray]:
        seen = [np.ravel(each.observation.array) for each in requests]  # type: ignore[arg-type]
        with torch.no_grad():
            logits = self._apply(seen, [each.agent for each in requests])
        return self._softmax(logits, [each.observation for each in requests])

    def logits(self, observations: Sequence[Observation]) -> torch.Tensor:
        """Logits of observations, if all seats share all layers; else raises InputError, since the seat is unknown."""
        if len(self.groups()) > 1 or self.own:
            raise InputError(f"policy {self.name!r} acts by agent; ask it with requests, which name one")
        return self._apply([np.ravel(o.array) for o in observations], [self.keys[0]] * len(observations))  # type: ignore[arg-type]

    def logits_of_rows(self, rows: pl.DataFrame) -> torch.Tensor:
        """Logits of the column `features` for the column `agent`, [rows, actions]."""
        if rows["features"].null_count():
            raise InputError("SplitMLPPolicy.score: every row needs features")
        return self._apply(rows["features"].to_list(), rows["agent"].cast(str).to_list())

    def _apply(self, seen: Sequence[Sequence[float] | np.ndarray], agents: Sequence[str]) -> torch.Tensor:
        numbers = {agent: self.keys.index(self.key_of(agent) or "") for agent in {*agents}}
        wide = self.layers.weights[0].shape[2]
        lengths = {len(each) for each in seen}
        if lengths == {wide}:
            features = np.asarray(seen, np.float32)
        else:
            features = np.zeros((len(seen), wide), np.float32)
            for length in lengths:
                at = [row for row, each in enumerate(seen) if len(each) == length]
                features[at, :length] = np.asarray([seen[row] for row in at], np.float32)
        keys = torch.tensor([numbers[agent] for agent in agents])
        device = self.layers.weights[0].device
        found: torch.Tensor = self.module(torch.from_numpy(features).to(device), keys.to(device))
        return found


def _places(sharing: str | Mapping[str, int], keys: Sequence[str]) -> list[int]:
    """The parameter set of every key."""
    if not keys or len({*keys}) < len(keys):
        raise InputError(f"SplitMLPPolicy: keys={list(keys)} must be different seats, at least one")
    if isinstance(sharing, str):
        if sharing not in ("all", "none"):
            raise InputError(f"SplitMLPPolicy: sharing={sharing!r}{nearest(sharing, ('all', 'none'))}")
        return list(range(len(keys))) if sharing == "none" else [0] * len(keys)
    if {*sharing} != {*keys} or min(sharing.values()) < 0:
        raise InputError(f"SplitMLPPolicy: sharing={dict(sharing)} must number each of {list(keys)}")
    return [int(sharing[key]) for key in keys]
