"""`ProfiledRouting`: vehicles that like some clients better than others share a round trip (after CAMP [207])."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from palaestra.envs.protocol import Action, Observation, StepResult
from palaestra.envs.registry import ENVS
from palaestra.envs.worlds.exact.profiled_routing import symmetries
from palaestra.envs.worlds.native import Chosen, NativeEnv
from palaestra.errors import InputError

KEEPS = ("likeliest", "nearest", "random", "first")


@dataclass
class _ProfiledRoutingState:
    xy: np.ndarray
    demands: np.ndarray
    profile: np.ndarray
    at: np.ndarray
    left: np.ndarray
    open: np.ndarray
    priority: np.ndarray
    vehicles: int
    instance: int
    copy: int


@ENVS.register("native/profiled_routing")
class ProfiledRouting(NativeEnv):
    """Multi-vehicle routing env: vehicles choose their next client at once; paid preference less distance per step.

    There are `clients` clients in the unit square.

    A vehicle starts at the depot with a full load and may come back for another one; everybody is served once. A step
    pays each vehicle -w₁ · the way it went + w₂ · its preference for the client that it serves; the way home counts in
    the last step. Rewards of an episode sum to the objective of CAMP (arXiv 2501.02977). If several choose one client,
    one of them goes there and the others stay. Legal are clients that are open, allowed and not too heavy, and the
    depot, unless all vehicles are there and a client is possible. As an array: own place, own load, the others' places,
    then for each client its place, whether it is open, its demand, own preference.

    With a range for `vehicles` or `clients` each instance draws its own number. Arrays and choices are those of the
    largest one: clients that it lacks are never open, their five numbers are 0 but for the depot's place, and vehicles
    that it lacks do not act and stand at the depot.

    facts: replaced, whether the choice was another's; served, the number of the client, null for none; instance, the
    seed of what is drawn; copy, which symmetric copy of it is played.

    Args:
        vehicles: how many, or the least and the largest number.
        clients: how many, or the least and the largest number.
        capacity: of a vehicle. demands: least and largest, whole numbers.
        profile: "random", preferences uniform in [0, 1]; "zones": a client may be served by half of the vehicles, at
            least one, at preference 1.
        weights: w₁ and w₂.
        keeps: who of several goes to the client: "likeliest", whose policy gave its choice the highest probability
            (equally likely ones by name), "nearest", "random", or "first" by name.
        instances: how many different instances there are; None: any number.
        copy: the symmetric copy, 0 to 7; None: drawn for each episode.
        sight: "own", the array above; "team": a block of every vehicle, one's own first and the others by name, for
            policies of kind `pointer`. A block is 1, place and load of the vehicle, then for each choice, the depot
            first, whether it is open, its place, its demand, that vehicle's preference and its way there; zeros for
            what is not there.
        given: an instance instead, with xy (the depot first), demands and profile (NaN: not allowed).

    Raises:
        InputError: an option is out of range, or parts of `given` do not fit each other.
    """

    weighs = True
    facts = {"replaced": bool, "served": int, "instance": int, "copy": int}

    def __init__(
        self, *, vehicles: int | tuple[int, int] = 2, clients: int | tuple[int, int] = 5,
        capacity: float = 20.0, demands: tuple[int, int] = (1, 10),
        profile: Literal["random", "zones"] = "random", weights: tuple[float, float] = (0.8, 0.2),
        keeps: Literal["likeliest", "nearest", "random", "first"] = "likeliest", instances: int | None = None,
        copy: int | None = 0, sight: Literal["own", "team"] = "own", given: Mapping[str, Any] | None = None,
    ) -> None:  # fmt: skip
        if given is not None:
            self.given = tuple(np.array(given[name], float) for name in ("xy", "demands", "profile"))
            vehicles, clients = self.given[2].shape
            demands = (0, int(np.ceil(self.given[1].max())))
            if self.given[0].shape != (clients + 1, 2) or len(self.given[1]) != clients:  # type: ignore[operator]
                raise InputError("ProfiledRouting: given needs xy[1 + clients, 2], demands and profile of the clients")
        self.sizes = tuple((each, each) if isinstance(each, int) else tuple(each) for each in (vehicles, clients))
        if (
            any(not 1 <= least <= largest for least, largest in self.sizes)
            or not 0 <= demands[0] <= demands[1] <= capacity
            or not (instances or 1) > 0
        ):
            raise InputError(
                f"ProfiledRouting: {vehicles=}, {clients=}, {instances=} at least 1; {demands=}, {capacity=}"
            )
        if copy not in (None, *range(8)) or keeps not in KEEPS or sight not in ("own", "team"):
            raise InputError(f"ProfiledRouting: {copy=} from 0 to 7, {keeps=} one of {KEEPS}, {sight=} own or team")
        vehicles, clients = (largest for _, largest in self.sizes)
        self.agents: tuple[str, ...] = tuple(f"vehicle_{number}" for number in range(vehicles))
        self.choices = ("depot", *(f"client {number}" for number in range(1, clients + 1)))
        self.clients, self.capacity, self.demands, self.profile = clients, float(capacity), demands, profile
        self.weights, self.keeps, self.instances, self.copy, self.sight = weights, keeps, instances, copy, sight
        self.fixed = given is not None

    def begin(self) -> tuple[str, _ProfiledRoutingState]:
        """Draw an instance in one of its symmetric copies."""
        instance = int(self.rng.integers(self.instances or 2**31))
        copy = int(self.rng.integers(8)) if self.copy is None else self.copy
        rng, seats = np.random.default_rng(instance), len(self.agents)
        vehicles, clients = (a if a == b else int(rng.integers(a, b + 1)) for a, b in self.sizes)
        if self.fixed:
            xy, demands, profile = self.given
        else:
            xy = rng.random((clients + 1, 2))
            demands = rng.integers(self.demands[0], self.demands[1] + 1, clients).astype(float)
            profile = rng.random((vehicles, clients))
            if self.profile == "zones":
                allowed = profile.argsort(0).argsort(0) < max(vehicles // 2, 1)
                profile = np.where(allowed, 1.0, np.nan)
        lacking = self.clients - clients
        xy = np.concatenate([xy, np.repeat(xy[:1], lacking, axis=0)])
        demands = np.concatenate([demands, np.zeros(lacking)])
        profile = np.pad(profile, ((0, seats - vehicles), (0, lacking)))
        name = f"{'given' if self.fixed else f'instance {instance}'}, copy {copy}"
        at, full = np.zeros(seats, int), np.full(seats, self.capacity)
        turned = symmetries(xy, 0.0 if self.fixed else 0.5)[copy]
        priority = self.rng.random(seats) if self.keeps == "random" else np.arange(seats, dtype=float)
        there = np.arange(self.clients) < clients
        return name, _ProfiledRoutingState(
            turned, demands, profile, at, full, there, priority, vehicles, instance, copy
        )

    def look(self) -> dict[str, Observation]:
        """Observation of each vehicle that acts: the open clients, and where all vehicles are."""
        if not self.state.open.any():
            return {}
        masks = self._legal()
        present = self.agents[: self.state.vehicles]
        blocks = self._blocks() if self.sight == "team" else None
        return {agent: self._seen(number, masks[number], blocks) for number, agent in enumerate(present)}

    def step(self, actions: Mapping[str, Action]) -> StepResult:
        """Take the actions; also records how likely each choice was (1 without a log-probability)."""
        if self.keeps == "likeliest":
            self.state.priority = -np.array([getattr(actions.get(agent), "logprob", 0.0) for agent in self.agents])
        return super().step(actions)

    def play(self, chosen: Chosen) -> tuple[dict[str, float], dict[str, Any]]:
        """Move all vehicles at once; of several that choose one client one goes, and illegal choices stay."""
        state = self.state
        wish = np.array([each if isinstance(each, int) else -1 for each in map(chosen.get, self.agents)])
        goal = self.resolve(wish)
        gone = np.linalg.norm(state.xy[goal] - state.xy[state.at], axis=1)
        served = np.flatnonzero((goal > 0) & (goal != state.at))
        rewards = -self.weights[0] * gone
        rewards[served] += self.weights[1] * state.profile[served, goal[served] - 1]
        state.left[served] -= state.demands[goal[served] - 1]
        state.open[goal[served] - 1] = False
        state.left[goal == 0] = self.capacity
        state.at = goal
        if not state.open.any():
            rewards -= self.weights[0] * np.linalg.norm(state.xy[goal] - state.xy[0], axis=1)
        present = self.agents[: state.vehicles]
        clients: dict[str, int | None] = dict.fromkeys(present)
        clients.update({self.agents[number]: int(goal[number]) for number in served})
        lost = (wish >= 0) & (wish != goal)
        info = {"replaced": dict(zip(present, lost.tolist(), strict=False)), "served": clients,
                "instance": state.instance, "copy": state.copy}  # fmt: skip
        return dict(zip(present, rewards.tolist(), strict=False)), info

    def resolve(self, wish: np.ndarray) -> np.ndarray:
        """Destination of each vehicle, int64[vehicles], from the wished ones; losers of a conflict and -1 stay."""
        state = self.state
        way = np.linalg.norm(state.xy[np.maximum(wish, 0)] - state.xy[state.at], axis=1)
        order = np.lexsort((state.priority, way if self.keeps == "nearest" else state.priority))
        goal = state.at.copy()
        _, winners = np.unique(wish[order], return_index=True)
        goal[order[winners]] = np.where(wish[order[winners]] < 0, state.at[order[winners]], wish[order[winners]])
        goal[wish == 0] = 0
        return goal  # type: ignore[no-any-return]

    def _legal(self) -> np.ndarray:
        """bool[vehicles, 1 + clients]."""
        state = self.state
        possible = state.open & (state.demands <= state.left[:, None]) & ~np.isnan(state.profile)
        waits = (state.at == 0).all() & possible.any(1)
        return np.concatenate([~waits[:, None], possible], axis=1)

    def _blocks(self) -> np.ndarray:
        """Block of every vehicle, float64[vehicles, 4 + 6 · (1 + clients)]."""
        state, seats = self.state, len(self.agents)
        shared = np.column_stack([np.ones(self.clients + 1), state.xy, np.append(0.0, state.demands) / self.capacity])
        shared = np.where(np.append(True, state.open)[:, None], shared, 0.0)
        liked = np.pad(np.nan_to_num(state.profile), ((0, 0), (1, 0))) * shared[:, 0]
        way = np.linalg.norm(state.xy[state.at][:, None] - state.xy, axis=-1) * shared[:, 0]
        shared = np.broadcast_to(shared, (seats, *shared.shape))
        each = np.concatenate([shared, liked[..., None], way[..., None]], axis=-1)
        own = np.column_stack([np.ones(seats), state.xy[state.at], state.left / self.capacity])
        found = np.concatenate([own, each.reshape(seats, -1)], axis=1)
        found[state.vehicles :] = 0.0
        return found

    def _seen(self, number: int, mask: np.ndarray, blocks: np.ndarray | None) -> Observation:
        state = self.state
        liked = np.nan_to_num(state.profile[number])
        if blocks is None:
            others = np.delete(state.at, number)
            load = state.left[number] / self.capacity
            each = np.column_stack([state.xy[1:], state.open, state.demands / self.capacity, liked])
            array = np.concatenate([state.xy[state.at[number]], [load], state.xy[others].ravel(), each.ravel()])
        else:
            array = np.concatenate([blocks[number], np.delete(blocks, number, axis=0).ravel()])
        left = [f"{k + 1} ({state.demands[k]:g}, liked {liked[k]:.2f})" for k in np.flatnonzero(state.open)]
        text = f"you are at {self.choices[state.at[number]]} with {state.left[number]:g} left; open: {', '.join(left)}"
        return Observation(text, choices=self.choices, mask=mask, array=array.astype(np.float32))
