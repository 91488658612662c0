"""Deep Q-learning of teams that act at once: every agent by itself (IQL), or the team's value, mixed (VDN, QMIX).

Left out: recurrent agents and prioritised replay.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np
import polars as pl
import torch
from torch import Tensor

from palaestra.agents.q_network import QNetworkPolicy
from palaestra.errors import InputError, nearest
from palaestra.learning.joint_replay import JointReplay
from palaestra.learning.mixers import mixer
from palaestra.learning.protocol import LEARNERS, Metrics
from palaestra.learning.tables import TableLearner

if TYPE_CHECKING:
    from palaestra.agents import Team
    from palaestra.algebra.turns import Turns

Mixer = Literal["none", "sum", "monotonic"]
SAYS = {"epsilon": "epsilon", "boltzmann": "temperature"}
"""What a network's exploration is called in the metrics, by its rule."""


@LEARNERS.register("value_decomposition")
class ValueDecomposition(TableLearner):
    """Learner of Q_tot by IQL, VDN or QMIX: Q_tot(s, a) moves to r + γ Q_tot(s', a'), a' the agents' own best actions.

    Double Q-learning with replay of joint steps: a' is the best one of the networks as they are, its worth that of
    target networks, which follow slowly. The squared error is minimised by Adam, `steps` batches per iteration.

    Args:
        team: its `q_network` policies learn here; agents that share one share its parameters.
        mixer: "none", every agent from its own reward (IQL, arXiv 1511.08779); "sum" (VDN, 1706.05296) and "monotonic"
            (QMIX, 1803.11485) from the sum of all rewards. The state that QMIX's weights depend on is what all see.
        rate: learning rate. gamma: γ in [0, 1]. reward: column of r. steps, batch: batches per iteration, and joint
            steps in each. capacity: joint steps that replay holds. tau: share by which targets move after each batch.
        standardise: rewards count less their mean and in units of their deviation, both over replay. A mixture of
            large worths barely learns, so QMIX often needs it; where episodes differ in length the mean is a reward
            or a price for going on.
        clock: column with the time of a turn; what follows after k of it is worth γ^k, as after options that last k
            steps of the env (semi-Markov, Sutton et al. 1999). None: turns are one apart.
        continuing: the game goes on beyond the end of its episodes, so their last steps are left out.
        max_grad_norm: gradients are scaled down to this norm. seed: of the mixer's start and of the batches.
        gradient: fields of `policy_gradient` for the other policies.

    Raises:
        InputError: no policy of the team is a `q_network`, or a number is out of range.
    """

    def __init__(
        self,
        team: Team,
        *,
        mixer: Mixer = "sum",
        rate: float = 5e-4,
        gamma: float = 0.99,
        reward: str = "reward",
        steps: int = 50,
        batch: int = 128,
        capacity: int = 50_000,
        tau: float = 0.01,
        standardise: bool = False,
        continuing: bool = False,
        clock: str | None = None,
        max_grad_norm: float = 10.0,
        seed: int = 0,
        **gradient: Any,
    ) -> None:
        if mixer not in get_args(Mixer):
            raise InputError(f"learn.kind value_decomposition: mixer={mixer!r}{nearest(str(mixer), get_args(Mixer))}")
        if not (rate > 0 and 0 <= gamma <= 1 and 0 < tau <= 1 and min(steps, batch, capacity) >= 1):
            raise InputError(
                f"learn.kind value_decomposition: rate={rate} must be above 0, gamma={gamma} in [0, 1], tau={tau} in "
                f"(0, 1], steps={steps}, batch={batch} and capacity={capacity} at least 1"
            )
        super().__init__(team, QNetworkPolicy, "value_decomposition", reward=reward, **gradient)
        self.networks = {name: each for name, each in self.tables.items() if isinstance(each, QNetworkPolicy)}
        self.mixer, self.gamma, self.tau, self.max_grad_norm = mixer, gamma, tau, max_grad_norm
        self.rate, self.steps, self.batch, self.capacity, self.seed = rate, steps, batch, capacity, seed
        self.standardise, self.continuing, self.clock, self.moments = standardise, continuing, clock, (0.0, 1.0)
        self.playing: dict[str, str] = {}
        self._played: list[pl.DataFrame] = []

    def _begin(self, playing: Mapping[str, str]) -> None:
        """Make replay, mixer, targets and optimiser for these agents and their policies, which play tells."""
        self.playing = dict(playing)
        networks = {agent: self.networks[name] for agent, name in playing.items()}
        self.replay = JointReplay(
            self.capacity,
            {agent: each.inputs for agent, each in networks.items()},
            {agent: each.actions for agent, each in networks.items()},
        )
        self.parts = torch.nn.ModuleDict({f"of_{name}": each.module for name, each in self.networks.items()})
        mixed = mixer(self.mixer, len(playing), sum(self.replay.features.values()), self.seed)
        if mixed is not None:
            self.parts["mixer"] = mixed
        self.targets = copy.deepcopy(self.parts)
        self.targets.requires_grad_(False)
        self.parts.requires_grad_(True)
        self.optimiser = torch.optim.Adam(self.parts.parameters(), lr=self.rate)
        self._without_gradients()

    def _without_gradients(self) -> None:
        """Networks ask for no gradient but while they are trained, so that nobody else moves them."""
        for network in self.networks.values():
            network.module.requires_grad_(False)

    def reads(self) -> set[str]:
        """Columns that it reads: observations, actions, rewards and the keys of turns."""
        own = {self.reward, "features", "action_ids", "turn", "group", "episode", "agent"}
        return own if self.clock is None else own | {self.clock}

    def rows(self, turns: Turns, name: str) -> pl.DataFrame:
        """Turns of a network that did not fail; a missing reward counts as 0, since a joint step needs all agents."""
        return self.played(turns, name)

    def write(self, name: str, rows: pl.DataFrame) -> None:
        """Keep the turns of one network; all are trained together, from joint steps."""
        self._played.append(rows)

    def _write(self) -> None:
        super()._write()
        if self._played:
            rows, self._played = pl.concat(self._played, how="diagonal_relaxed"), []
            if not self.playing:
                seats = rows.select(pl.col("agent", "policy").cast(pl.String)).unique().sort("agent")
                self._begin(dict(seats.iter_rows()))
            self.replay.add(rows, self.reward, continuing=self.continuing, clock=self.clock)
        if self.playing and len(self.replay):
            self._train(np.random.default_rng([self.seed, self._updates - 1]))
        for network in self.networks.values():
            network.count()

    def _train(self, rng: np.random.Generator) -> None:
        if self.standardise:
            rewards = self._rewards(torch.from_numpy(self.replay.columns["reward"][: len(self.replay)]))
            self.moments = float(rewards.mean()), float(rewards.std(correction=0)) or 1.0
        self.parts.requires_grad_(True)
        for _ in range(self.steps):
            drawn = {name: torch.from_numpy(each) for name, each in self.replay.draw(rng, self.batch).items()}
            self.optimiser.zero_grad()
            self.error(drawn).square().mean().backward()
            torch.nn.utils.clip_grad_norm_(self.parts.parameters(), self.max_grad_norm)
            self.optimiser.step()
            with torch.no_grad():
                for slow, fast in zip(self.targets.parameters(), self.parts.parameters(), strict=True):
                    slow.lerp_(fast, self.tau)
        self._without_gradients()

    def error(self, drawn: Mapping[str, Tensor]) -> Tensor:
        """Temporal-difference errors of joint steps, [steps], or with the mixer "none" [steps, agents]."""
        worth = self._values(self.parts, drawn["seen"])
        own = worth.gather(-1, drawn["action"][..., None])[..., 0]
        with torch.no_grad():
            legal = drawn["next_legal"]
            best = self._values(self.parts, drawn["next_seen"]).masked_fill(~legal, -torch.inf).argmax(-1, keepdim=True)
            ahead = self._values(self.targets, drawn["next_seen"]).gather(-1, best)[..., 0]
        goes_on: Tensor = self.gamma ** drawn["duration"] * (~drawn["over"]).float()
        mean, deviation = self.moments
        rewards = (self._rewards(drawn["reward"]) - mean) / deviation
        if self.mixer == "none":
            return own - (rewards + goes_on[:, None] * ahead)
        with torch.no_grad():
            ahead = self.targets["mixer"](ahead, self._state(drawn["next_seen"]))
        mixed: Tensor = self.parts["mixer"](own, self._state(drawn["seen"]))
        error: Tensor = mixed - (rewards + goes_on * ahead)
        return error

    def _rewards(self, each: Tensor) -> Tensor:
        """Rewards that are learned from, of rewards [steps, agents]: each agent's, or the team's sum."""
        return each if self.mixer == "none" else each.sum(-1)

    def _values(self, parts: torch.nn.ModuleDict, seen: Tensor) -> Tensor:
        """Worth of every agent's actions, [steps, agents, actions]; actions that an agent does not have are 0."""
        found = seen.new_zeros(*seen.shape[:2], max(self.replay.actions.values()))
        for name, network in self.networks.items():
            agents = [place for place, agent in enumerate(self.replay.agents) if self.playing[agent] == name]
            found[:, agents, : network.actions] = parts[f"of_{name}"](seen[:, agents, : network.inputs])
        return found

    def _state(self, seen: Tensor) -> Tensor:
        """What all agents see, one after the other: [steps, size]."""
        widths = self.replay.features.values()
        return torch.cat([seen[:, place, :width] for place, width in enumerate(widths)], -1)

    def forward_backward(self, turns: Turns, *, advantage: str = "advantage") -> dict[str, Metrics]:
        """Collect the turns; metrics also have each network's `epsilon` or `temperature` when they were played."""
        metrics = super().forward_backward(turns, advantage=advantage)
        return {
            name: each | {SAYS[self.networks[name].method]: self.networks[name].exploration}
            if name in self.networks
            else each
            for name, each in metrics.items()
        }

    def inherit(self, before: ValueDecomposition) -> None:
        """Take over, when a phase begins, replay, mixer, targets and moments, if they are of the same rewards."""
        same = ("mixer", "capacity", "reward", "clock", "continuing")
        if before.playing and all(getattr(self, each) == getattr(before, each) for each in same):
            self.playing, self.replay = before.playing, before.replay
            self.parts, self.targets, self.optimiser = before.parts, before.targets, before.optimiser
            for group in self.optimiser.param_groups:
                group["lr"] = self.rate

    def state(self) -> dict[str, Any]:
        """State for a resume: also the playing parameters, replay, targets, mixer and optimiser."""
        state = super().state() | {"playing": self.playing}
        if self.playing:
            mixed = {name: each.state_dict() for name, each in self.parts.items() if name == "mixer"}
            state |= {"replay": self.replay.state_dict(), "targets": self.targets.state_dict(), "mixer": mixed}
            state["optimiser"] = self.optimiser.state_dict()
        return state

    def restore(self, state: dict[str, Any]) -> None:
        """Inverse of `state`."""
        super().restore(state)
        if not state["playing"]:
            self.playing = {}
            return
        self._begin(state["playing"])
        self.replay.load_state_dict(state["replay"])
        self.targets.load_state_dict(state["targets"])
        for name, each in state["mixer"].items():
            self.parts[name].load_state_dict(each)
        self.optimiser.load_state_dict(state["optimiser"])
