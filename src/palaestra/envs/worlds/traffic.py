"""`Traffic`: people cross a ring road on which drivers of temperaments that are not shown go round."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from palaestra.envs.protocol import Observation
from palaestra.envs.registry import ENVS
from palaestra.envs.worlds.native import Chosen, NativeEnv
from palaestra.errors import InputError, nearest

TEMPERAMENTS = ("cautious", "calm", "hasty")
"""A driver of the k-th temperament wants to go k cells a step."""


def advances(places: np.ndarray, wanted: np.ndarray, cells: int) -> np.ndarray:
    """Cells that each driver on a ring of `cells` moves, int array: the wanted number, stopping behind the next driver.

    >>> advances(np.array([0, 2, 7]), np.array([2, 0, 2]), 9)
    array([1, 0, 1])
    """
    ahead = (places[None, :] - places[:, None] - 1) % cells + 1  # a driver is a whole round ahead of itself
    found: np.ndarray = np.minimum(wanted, ahead.min(axis=1) - 1)
    return found


@dataclass
class _TrafficState:
    places: np.ndarray
    types: np.ndarray
    wanted: np.ndarray
    hit: dict[str, int]
    step: int = 0


@ENVS.register("native/traffic")
class Traffic(NativeEnv):
    """Crossing env: walkers see drivers on a ring, wait or cross at a gate; a free gate pays, a driver there costs.

    `drivers` drivers on a ring of `cells` cells.

    Gates are `gates` cells at equal distances. In each step every walker waits or crosses at one of them while all
    drivers move; a gate to which a driver comes, or where one stands, costs `cost` / horizon. A driver goes as far as
    its temperament says with probability `habit`, else one of the other two ways, and stays behind the next one
    (`advances`). Walkers do not hinder each other. One driver less is there with probability `missing`.

    As an array: for each of `drivers` slots its cell as a one-hot vector, and after these for each slot 1, cosine and
    sine of its place; zeros if nobody has the slot. facts:
    hidden, temperaments of the slots; hits, how often this walker was hit. A success: nobody was.

    Args:
        mixtures: texts such as "cautious calm hasty", one of which is drawn; none: all drivers are drawn alone.

    Raises:
        InputError: an option is out of range.
    """

    facts = {"hidden": str, "hits": int}

    def __init__(
        self,
        *,
        walkers: int = 1,
        drivers: int = 3,
        cells: int = 9,
        gates: int = 2,
        horizon: int = 16,
        habit: float = 0.9,
        cost: float = 3.0,
        missing: float = 0.25,
        mixtures: Sequence[str] = (),
    ) -> None:
        if walkers < 1 or drivers < 1 or cells <= drivers or not 1 <= gates <= cells or horizon < 1:
            raise InputError(
                f"Traffic: {walkers=}, {drivers=}, {gates=} and {horizon=} must be at least 1, and {cells=} more than "
                "drivers, and at least gates"
            )
        if not (1 / 3 <= habit <= 1 and 0 <= missing <= 1 and cost >= 0):
            raise InputError(f"Traffic: {habit=} in [1/3, 1], {missing=} in [0, 1], {cost=} at least 0")
        self.mixtures = [[_type_of(word) for word in text.split()] for text in mixtures]
        if any(len(each) != drivers for each in self.mixtures):
            raise InputError(f"Traffic: each of mixtures has {drivers} temperaments")
        self.drivers, self.cells, self.horizon, self.habit = drivers, cells, horizon, habit
        self.cost, self.missing = cost, missing
        self.gates = np.arange(gates) * cells // gates
        self.agents: tuple[str, ...] = tuple(f"walker_{number}" for number in range(walkers))
        self.choices = ("wait", *(f"cross at {gate}" for gate in self.gates))

    def begin(self) -> tuple[str, _TrafficState]:
        """Draw the drivers' temperaments and places."""
        rng = self.rng
        drawn = self.mixtures[rng.integers(len(self.mixtures))] if self.mixtures else rng.integers(3, size=self.drivers)
        types = rng.permutation(drawn)
        present = np.ones(self.drivers, bool)
        present[-1] = self.drivers == 1 or rng.random() >= self.missing
        places = np.where(present, rng.permutation(self.cells)[: self.drivers], -1)
        state = _TrafficState(places, types, np.zeros(self.drivers, int), dict.fromkeys(self.agents, 0))
        self._decide(state)
        names = " ".join(TEMPERAMENTS[kind] for kind in np.sort(types[present]))
        return f"{names}:{int(rng.integers(2**40))}", state

    def _decide(self, state: _TrafficState) -> None:
        """How far each driver wants to go in this step."""
        other = (state.types + self.rng.integers(1, 3, size=self.drivers)) % 3
        state.wanted = np.where(self.rng.random(self.drivers) < self.habit, state.types, other)

    def look(self) -> dict[str, Observation]:
        """All walkers see the drivers' places."""
        state = self.state
        if state.step >= self.horizon:
            return {}
        angle = 2 * np.pi * state.places / self.cells
        slots = np.stack([np.ones(self.drivers), np.cos(angle), np.sin(angle)], axis=1) * (state.places >= 0)[:, None]
        cells = np.vstack([np.eye(self.cells), np.zeros(self.cells)])[state.places]
        array = np.concatenate([cells.ravel(), slots.ravel()])
        text = "drivers at " + " ".join(str(place) if place >= 0 else "-" for place in state.places)
        return {agent: Observation(text, choices=self.choices, array=array.astype(np.float32)) for agent in self.agents}

    def play(self, chosen: Chosen) -> tuple[dict[str, float], dict[str, Any]]:
        """Move the drivers; crossing walkers get across or are hit. An invalid choice waits."""
        state = self.state
        there = np.flatnonzero(state.places >= 0)
        places = state.places[there]
        state.places[there] = (places + advances(places, state.wanted[there], self.cells)) % self.cells
        state.step += 1
        self._decide(state)
        rewards = {}
        for agent, choice in chosen.items():
            gate = self.gates[choice - 1] if isinstance(choice, int) and choice else None
            hit = gate is not None and bool((state.places == gate).any())
            state.hit[agent] += hit
            rewards[agent] = (-self.cost * hit + (gate is not None and not hit)) / self.horizon
        told: dict[str, Any] = {
            "hidden": " ".join(TEMPERAMENTS[kind] for kind in state.types),
            "hits": dict(state.hit),
        }
        if state.step >= self.horizon:
            told["success"] = not any(state.hit.values())
        return rewards, told


def _type_of(word: str) -> int:
    if word not in TEMPERAMENTS:
        raise InputError(f"Traffic: mixtures has {word!r}{nearest(word, TEMPERAMENTS)}")
    return TEMPERAMENTS.index(word)
