"""`PopulationPolicy`: a network with parameters of its own in each seat, for search that needs no gradient.

A *genome* is the flat vector of one seat's parameters. All seats act in one batch, greedily, so an episode of a world
without chance follows from its genomes alone. Left out: log-probabilities with a gradient; `split_mlp` has them.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import torch

from palaestra.agents.discrete import DiscretePolicy
from palaestra.agents.policy import Decision, Request
from palaestra.errors import InputError

if TYPE_CHECKING:
    import polars as pl

    from palaestra.envs.protocol import Observation


def genome_size(inputs: int, actions: int, hidden: Sequence[int] = ()) -> int:
    """Number of parameters in a genome (flat network): weights and biases of all layers, int.

    >>> genome_size(3, 2), genome_size(3, 2, [4])
    (8, 26)
    """
    return sum((here + 1) * there for here, there in pairwise([inputs, *hidden, actions]))


def population_logits(
    genomes: np.ndarray, features: np.ndarray, actions: int, hidden: Sequence[int] = ()
) -> np.ndarray:
    """Logits float64[n, actions] of n networks, the i-th genome's network on the i-th row of features.

    Args:
        genomes: float[n, size], the parameters of each row's network: per layer its weights [out, in], then biases.
        features: float[n, inputs].
        actions: logits of a row.
        hidden: widths of the tanh layers between.

    Returns:
        float64[n, actions].

    >>> population_logits(np.array([[1.0, 2.0, 0.5]]), np.array([[3.0, 1.0]]), 1).tolist()
    [[5.5]]
    """
    found, at = np.asarray(features, float), 0
    sizes = [found.shape[1], *hidden, actions]
    for layer, (here, there) in enumerate(pairwise(sizes)):
        weight = genomes[:, at : at + here * there].reshape(-1, there, here)
        bias = genomes[:, at + here * there : at + (here + 1) * there]
        found = np.einsum("noi,ni->no", weight, found) + bias
        at += (here + 1) * there
        if layer < len(sizes) - 2:
            found = np.tanh(found)
    return found


def compass(actions: int) -> np.ndarray:
    """Unit vectors of `actions` directions, the first to the right, then counter-clockwise; float64[actions, 2].

    >>> compass(4).round(6).tolist()
    [[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0], [-0.0, -1.0]]
    """
    angle = 2 * np.pi * np.arange(actions) / actions
    return np.stack([np.cos(angle), np.sin(angle)], 1)


class PopulationPolicy(DiscretePolicy):
    """Deterministic policy with one evolvable network (genome) per agent: takes the largest legal logit.

    Tanh layers of sizes `hidden` stand between features and logits.

    Args:
        inputs: features of an observation. actions: number of choices.
        keys: agents of the env, one genome each.
        hidden: widths of tanh layers, none by default.
        compass: the choices are directions around a circle, the first to the right and the others counter-clockwise.
            The network then has two outputs, and the direction nearest to them is taken.
        spread: genomes start uniformly in [-spread, spread], drawn from `seed`.

    Raises:
        InputError: there are no keys, or a number is out of range.
    """

    KIND = "population"
    SETTINGS: ClassVar[tuple[str, ...]] = ("inputs", "actions", "keys", "hidden", "compass", "spread", "name")

    def __init__(
        self,
        inputs: int,
        actions: int,
        *,
        keys: Sequence[str],
        hidden: Sequence[int] = (),
        compass: bool = False,
        spread: float = 1.0,
        name: str = "population",
        seed: int = 0,
    ) -> None:
        if not keys or not spread > 0:
            raise InputError(f"PopulationPolicy {name!r}: {len(keys)} keys of at least 1, spread={spread} above 0")
        module = torch.nn.Module()
        size = genome_size(inputs, 2 if compass else actions, hidden)
        drawn = np.random.default_rng(seed).uniform(-spread, spread, (len(keys), size))
        module.register_buffer("genomes", torch.from_numpy(drawn))
        super().__init__(module, actions=actions, name=name)
        self.inputs, self.keys, self.hidden = inputs, list(keys), tuple(hidden)
        self.compass, self.spread = compass, float(spread)
        self._seat = {key: number for number, key in enumerate(self.keys)}

    @property
    def genomes(self) -> np.ndarray:
        """The genomes of all agents' networks, float64[agents, size]: live memory, not a copy."""
        return self.module.get_buffer("genomes").numpy()

    @genomes.setter
    def genomes(self, values: np.ndarray) -> None:
        self.module.get_buffer("genomes").copy_(torch.from_numpy(np.asarray(values, float)))

    def misfit(self, observation: Observation) -> str | None:
        """Reason why an observation does not fit, also if it has the wrong number of features; else None."""
        size = None if observation.array is None else np.size(observation.array)
        if size != self.inputs:
            return f"InputError: the observation has {size or 'no'} features, policy {self.name!r} reads {self.inputs}"
        return super().misfit(observation)

    def _refused(self, request: Request) -> str | None:
        if request.agent not in self._seat:
            return f"InputError: policy {self.name!r} has no genome for agent {request.agent!r}"
        return self.misfit(request.observation)

    def act(self, requests: Sequence[Request]) -> list[Decision]:
        """The choice with the largest logit, of equal ones the first; a request that does not fit gives an `error`."""
        start = time.perf_counter()
        decisions = [Decision(0, error=self._refused(request)) for request in requests]
        fit = [at for at, decision in enumerate(decisions) if decision.error is None]
        if fit:
            seats = [self._seat[requests[at].agent] for at in fit]
            logits = self._of([requests[at].observation for at in fit], np.array(seats))
            for at, chosen in zip(fit, logits.argmax(1).tolist(), strict=True):
                decisions[at].action, decisions[at].action_ids = chosen, np.array([chosen], np.int32)
                decisions[at].logprobs = decisions[at].entropies = np.zeros(1, np.float32)
        for decision in decisions:
            decision.duration = (time.perf_counter() - start) / len(requests)
        return decisions

    def logits(self, observations: Sequence[Observation]) -> torch.Tensor:
        """Logits of the first agent's network, [observations, actions]."""
        return torch.from_numpy(self._of(observations, np.zeros(len(observations), int)))

    def logits_of_rows(self, rows: pl.DataFrame) -> torch.Tensor:
        """Logits of each row's agent's network, from the columns `agent` and `features`; no gradient."""
        seats = np.array([self._seat[agent] for agent in rows["agent"].cast(str)])
        return torch.from_numpy(self._values(np.array(rows["features"].to_list(), float), seats))

    def _of(self, observations: Sequence[Observation], seats: np.ndarray) -> np.ndarray:
        values = self._values(np.array([np.asarray(each.array).ravel() for each in observations], float), seats)
        masks = [each.mask for each in observations]
        if any(mask is not None for mask in masks):
            every = np.ones(self.actions, bool)
            values = np.where(np.array([every if mask is None else mask for mask in masks], bool), values, -np.inf)
        return values

    def _values(self, features: np.ndarray, seats: np.ndarray) -> np.ndarray:
        outputs = population_logits(self.genomes[seats], features, 2 if self.compass else self.actions, self.hidden)
        return outputs @ compass(self.actions).T if self.compass else outputs
