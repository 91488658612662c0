"""Inverse soft Q-learning by teams: policies and rewards from demonstrations without rewards (MAMQL [11])."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np
import polars as pl
import torch

from palaestra.agents.tabular import TabularPolicy
from palaestra.errors import InputError, LearnerError, nearest
from palaestra.learning.protocol import LEARNERS, Metrics
from palaestra.learning.soft_critics import JointSteps, SoftCritics
from palaestra.learning.tables import TableLearner

if TYPE_CHECKING:
    from palaestra.agents import Team
    from palaestra.algebra.turns import Turns

Critic = Literal["joint", "marginal", "independent"]
EPISODE = ("run", "iteration", "group", "episode")


@LEARNERS.register("inverse_soft_q")
class InverseSoftQ(TableLearner):
    """Imitation learner: policies π_i(a_i|s) ∝ exp(λ Q̄_i(s, a_i)) of soft critics fitted to turns in file `expert`.

    The rule is in `SoftCritics`; rewards are not read. `recovered_reward()` reads the reward back from the critics.
    Every agent of the experts has a `tabular` policy of its own, and sees the whole state: critics have a table of
    joint actions for each. What no expert met is played at random.

    Source: Haynam et al. 2025, arXiv 2503.04679: marginal critics, Boltzmann policies, the concave regulariser, offline
    and online use. The loss as it is written here is a reconstruction. With critic="marginal" it does not differ from
    independent learners; "joint", the default, puts the experts' joint action into the residual.

    Args:
        team: with a `tabular` policy per agent. expert: Parquet file of experts' turns of whole episodes.
        critic: "joint", "marginal" or "independent", as in `SoftCritics`. gamma: γ in [0, 1].
        alpha: α of φ(x) = x - x²/4α; None for φ(x) = x. sharpness: λ. online: share of the team's own last steps
            among the states ρ; 0 learns from the experts' alone. rate, steps: length and number of gradient steps.
        gradient: fields of `policy_gradient` for the other policies.

    Raises:
        InputError: a number is out of range, the file lacks a column, or two agents share a policy.
    """

    def __init__(
        self,
        team: Team,
        *,
        expert: str,
        critic: Critic = "joint",
        gamma: float = 0.9,
        alpha: float | None = 4.0,
        sharpness: float = 4.0,
        online: float = 0.0,
        rate: float = 0.08,
        steps: int = 100,
        **gradient: Any,
    ) -> None:
        if critic not in get_args(Critic):
            raise InputError(f"learn.kind inverse_soft_q: critic={critic!r}{nearest(str(critic), get_args(Critic))}")
        if not (0 <= gamma <= 1 and sharpness > 0 and (alpha is None or alpha > 0) and 0 <= online < 1 and rate > 0):
            raise InputError(
                f"learn.kind inverse_soft_q: gamma={gamma} must be in [0, 1], online={online} in [0, 1), "
                f"alpha={alpha}, sharpness={sharpness} and rate={rate} above 0"
            )
        for policy in team.policies.values():
            if isinstance(policy, TabularPolicy):
                policy.module.requires_grad_(False)  # gradients leave it alone
        super().__init__(team, TabularPolicy, "inverse_soft_q", **gradient)
        self.online, self.rate, self.steps = online, rate, steps
        self.shown = _read(expert)
        self.agents = tuple(self.shown["agent"].cast(pl.String).unique().sort())
        seats = dict(team.items())
        self.seats = {agent: found for agent in self.agents if isinstance(found := seats.get(agent), TabularPolicy)}
        if len({id(each) for each in self.seats.values()}) < len(self.agents):
            raise InputError(f"learn.kind inverse_soft_q: {', '.join(self.agents)} need a tabular policy each")
        self.critics = SoftCritics([each.actions for each in self.seats.values()], kind=critic, gamma=gamma,
                                   alpha=alpha, sharpness=sharpness)  # fmt: skip
        self.known = np.zeros((0, len(self.agents)), np.uint64)
        self.expert = self.steps_of(self.shown)
        self.last: list[np.ndarray] | None = None
        self.objectives = dict.fromkeys(self.tables, 0.0)
        self._played: list[pl.DataFrame] = []

    def reads(self) -> set[str]:
        """Columns that it reads: observed states, actions and the keys of turns."""
        return {"state", "action_ids", "turn", "group", "episode", "agent"}

    def rows(self, turns: Turns, name: str) -> pl.DataFrame:
        """Turns of one policy in a table, whether they were rewarded or not."""
        return self.played(turns, name)

    def write(self, name: str, rows: pl.DataFrame) -> None:
        """Store the turns of one policy; all policies are trained together."""
        self._played.append(rows)

    def _write(self) -> None:
        super()._write()
        rows, self._played = self._played, []
        own = self.steps_of(pl.concat(rows, how="diagonal_relaxed")) if rows and self.online else None
        if self.last is not None and len(self.last[0]) < self.critics.states:
            self.last = None  # new states have no policy yet
        self.last, said = self.critics.fit(self.expert, own, online=self.online, rate=self.rate, steps=self.steps,
                                           start=self.last)  # fmt: skip
        for place, (table, objective) in enumerate(zip(self.seats.values(), said, strict=True)):
            table.write(self.known[:, place].tolist(), np.log(np.maximum(self.last[place], 1e-300)))
            self.objectives[table.name] = objective

    def _keep(self, ready: Any) -> dict[str, Metrics]:
        """With the objective of the update before."""
        return {name: each | {"objective": self.objectives[name]} for name, each in super()._keep(ready).items()}

    def steps_of(self, rows: pl.DataFrame) -> JointSteps:
        """Joint steps of rows of whole episodes; states that are not known get places in the tables.

        Raises:
            LearnerError: agents do not all act in every turn, or what one sees is not the whole state.
        """
        return self.numbered(rows, new=True)[1]

    def numbered(self, rows: pl.DataFrame, *, new: bool = False) -> tuple[pl.DataFrame, JointSteps, np.ndarray]:
        """Rows by episode, turn and agent, the joint steps that are used, and the places of these among all.

        The last step of an episode that was cut off is left out, and one from or to a state without a place.

        Args:
            rows: of whole episodes.
            new: states that are not known get places.
        """
        rows, joint = self.joint_rows(rows)
        keys = [key for key in EPISODE if key in rows.columns]
        n = len(self.agents)
        first = rows.gather_every(n)
        episode = first.select(pl.struct(keys).rle_id()).to_series().to_numpy()
        goes_on = np.append(episode[1:] == episode[:-1], False)
        cut = np.zeros(len(first), bool)
        if "truncated" in first.columns:
            cut = first["truncated"].fill_null(False).to_numpy().astype(bool)
        places = self._places(joint, new)
        if new and "legal" in rows.columns:
            self._allow(rows, places)
        there = np.append(places[1:], 0)
        kept = np.flatnonzero((goes_on | ~cut) & (places >= 0) & (~goes_on | (there >= 0)))
        went = rows["action_ids"].list.first().to_numpy().astype(np.int64).reshape(-1, n)
        return rows, JointSteps(places[kept], went[kept], np.where(goes_on, there, 0)[kept], ~goes_on[kept]), kept

    def joint_rows(self, rows: pl.DataFrame) -> tuple[pl.DataFrame, np.ndarray]:
        """Rows of the agents by episode, turn and agent, and their joint states, uint64[steps, agents]."""
        n = len(self.agents)
        keys = [key for key in EPISODE if key in rows.columns]
        seat = pl.DataFrame({"agent": self.agents, "seat": range(n)})
        rows = rows.with_columns(pl.col("agent").cast(pl.String)).join(seat, on="agent").sort([*keys, "turn", "seat"])
        if len(rows) % n or not (rows["seat"].to_numpy().reshape(-1, n) == np.arange(n)).all():
            raise LearnerError(f"inverse_soft_q: not all of {', '.join(self.agents)} act in every turn")
        if rows["action_ids"].null_count():
            raise LearnerError("inverse_soft_q: a turn has no action_ids, as turns of scripted policies have none")
        return rows, rows["state"].to_numpy().reshape(-1, n)

    def _places(self, joint: np.ndarray, new: bool) -> np.ndarray:
        """Place of each joint state, int64[steps]; -1 where it is unknown."""
        distinct, of = np.unique(joint, axis=0, return_inverse=True)
        known = {each.tobytes(): place for place, each in enumerate(self.known)}
        if new:
            fresh = np.array([each.tobytes() not in known for each in distinct], bool)
            self.known = np.concatenate([self.known, distinct[fresh]])
            known |= {each.tobytes(): len(known) + k for k, each in enumerate(distinct[fresh])}
            self.critics.grow(len(self.known))
            for place, agent in enumerate(self.agents):
                if len(np.unique(self.known[:, place])) < len(self.known):
                    raise LearnerError(f"inverse_soft_q: what {agent} sees is not the whole state")
        return np.array([known.get(each.tobytes(), -1) for each in distinct], np.int64)[of.reshape(-1)]

    def _allow(self, rows: pl.DataFrame, places: np.ndarray) -> None:
        """Legal actions of the states, as they were listed."""
        for place, agent in enumerate(self.agents):
            own = rows.filter(pl.col("agent") == agent)
            listed = own["legal"].is_not_null().to_numpy()
            if listed.any():
                given = np.array(own["legal"].drop_nulls().to_list(), bool)
                self.critics.legal[place][places[listed]] = given

    def state(self) -> dict[str, Any]:
        """State: critics, states and policies of the last round."""
        held = {"known": torch.from_numpy(self.known.view(np.int64).copy()), "objectives": dict(self.objectives),
                "q": [torch.from_numpy(each.copy()) for each in self.critics.q],
                "legal": [torch.from_numpy(each.copy()) for each in self.critics.legal],
                "last": [torch.from_numpy(each.copy()) for each in self.last or ()]}  # fmt: skip
        return super().state() | held

    def restore(self, state: dict[str, Any]) -> None:
        """Inverse of `state`."""
        super().restore(state)
        self.known = state["known"].numpy().view(np.uint64).copy()
        self.objectives = dict(state["objectives"])
        self.critics.q = [each.numpy().copy() for each in state["q"]]
        self.critics.legal = [each.numpy().copy() for each in state["legal"]]
        self.last = [each.numpy().copy() for each in state["last"]] or None


def _read(path: str) -> pl.DataFrame:
    file = Path(path)
    if not file.is_file():
        raise InputError(f"learn.kind inverse_soft_q: there is no file {path!r} of experts' turns")
    rows = pl.read_parquet(file, glob=False)
    needed = ("group", "episode", "turn", "agent", "state", "action_ids")
    if missing := [name for name in needed if name not in rows.columns]:
        raise InputError(f"learn.kind inverse_soft_q: {path} has no column {', '.join(missing)}")
    if "error" in rows.columns:
        rows = rows.filter(pl.col("error").is_null().all().over("group", "episode"))
    if rows.is_empty():
        raise InputError(f"learn.kind inverse_soft_q: {path} has no episodes without an error")
    return rows
