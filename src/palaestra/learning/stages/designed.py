"""Rewards designed for a known process, or learned beside the policy: EXPRD, EXPADARD, ExploRS [15], BARFI [39].

The first two and BARFI need an env that tells its process by `model()` (`rewards.shaping.mdp.Model`), as small worlds
do. ExploRS needs what was played alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import polars as pl

from palaestra.algebra.turns import Turns
from palaestra.credit import return_to_go
from palaestra.errors import InputError
from palaestra.learning.stages.stage import Context, Stage, stage
from palaestra.rewards.shaping.bilevel import BilevelReward
from palaestra.rewards.shaping.design import ExploRS, design_reward, explicable
from palaestra.rewards.shaping.mdp import Model, occupancy


def model_of(context: Context) -> Model:
    """Exact tabular model of the run's env, from the `model()` of an env that a stage's context makes.

    Raises:
        InputError: it tells none.
    """
    env: Any = context.env()
    if not hasattr(env, "model"):
        raise InputError(
            f"env {type(env).__name__} has no model(); small worlds such as native/maze tell their process"
        )
    found: Model = env.model()
    return found


def paid(turns: Turns, model: Model, table: np.ndarray) -> np.ndarray:
    """float64[rows]: reward of each of `Turns` by its `Model` indices in `table` [states, actions]; NaN if unknown."""
    state, action = model.rows(turns["state"].to_list(), turns["action"].to_list())
    return np.where((state >= 0) & (action >= 0), table[state, action], np.nan)


@stage
class designed(Stage):
    """Stage: column `designed`, EXPRD's sparse reward [15], designed by linear programmes to keep the optimal policy.

    It pays in few places.

    `size` states are chosen greedily (`rewards.explicable`). With `adapt`, EXPADARD: every so many iterations the table
    is designed anew for the policy as it is now, on all states. Its reward is the column `designed`.

    Args:
        size: states that are paid for. gamma, horizons: of the design. into: the column.
    """

    adds = {"designed": "designed reward of the turn's state and action"}
    needs = ("state", "action")

    def __init__(
        self,
        size: int = 4,
        *,
        gamma: float = 0.9,
        horizons: Sequence[int] = (1, 2, 4, 8),
        adapt: int | None = None,
        into: str = "designed",
    ) -> None:
        if size < 1 or (adapt is not None and adapt < 1):
            raise InputError(f"designed: {size=} and {adapt=} must be at least 1")
        self.size, self.gamma, self.horizons, self.adapt, self.into = size, gamma, tuple(horizons), adapt, into
        self.adds = {into: type(self).adds["designed"]}
        self.table: np.ndarray | None = None

    def __call__(self, turns: Turns, context: Context) -> Turns:
        """The table with the designed reward."""
        model = model_of(context)
        if self.adapt is None and self.table is None:
            steps = explicable(
                model.transitions, model.rewards["reward"], self.gamma, self.size, horizons=self.horizons
            )
            self.table = steps[-1][1].reward
        if self.adapt is not None and (self.table is None or not (context.iteration - 1) % self.adapt):
            policy = policy_table(turns, model, context)
            visits = occupancy(model.transitions, policy, model.start, self.gamma)
            reward = model.rewards["reward"]
            self.table = design_reward(model.transitions, reward, self.gamma, learner=(policy, visits)).reward
        assert self.table is not None
        return turns.with_column(**{self.into: paid(turns, model, self.table)})

    def state_dict(self) -> dict[str, Any]:
        """State: the table of rewards."""
        return {} if self.table is None else {"table": self.table}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Inverse of `state_dict`."""
        self.table = np.asarray(state["table"]) if state else None


def policy_table(turns: Turns, model: Model, context: Context) -> np.ndarray:
    """float64[states, actions] of a `Model`: action chances by the policies at states in `Turns`; uniform at others."""
    found = np.full(model.rewards["reward"].shape, 1 / len(model.actions))
    state, _ = model.rows(turns["state"].to_list(), turns["action"].to_list())
    where, first = np.unique(state, return_index=True)
    first = first[where >= 0]
    found[where[where >= 0]] = probabilities(Turns(turns.frame[first]), context)
    return found


def probabilities(turns: Turns, context: Context) -> np.ndarray:
    """Probabilities of every action at each of `Turns`, by its policy in the context's team: float64[rows, actions].

    Raises:
        InputError: a policy cannot say.
    """
    import torch

    found: np.ndarray | None = None
    names = turns["policy"].cast(pl.String).to_numpy()
    for name in dict.fromkeys(names.tolist()):
        policy: Any = context.team.policies[name]
        rows = np.flatnonzero(names == name)
        if not hasattr(policy, "logits_of_rows"):
            raise InputError(f"policy {name!r} ({type(policy).__name__}) has no table of actions; use tabular or mlp")
        with torch.no_grad():
            chances = torch.softmax(policy.logits_of_rows(turns.frame[rows]).double(), -1).numpy()
        found = np.zeros((len(turns), chances.shape[1])) if found is None else found
        found[rows] = chances
    assert found is not None
    return found


@stage
class explors(Stage):
    """Stage: column `explored`, ExploRS's reward [15]: reward + learned f(state, action) + a bonus for new states.

    It is r̂ = reward + f(state, action) + λ / √(λ²/B² + N(next state)).

    f moves by the policy's gradient of the return so far, every `every` iterations (5 in the released code). The column
    is not the reward, which f is learned from: give it to the credit, `return_to_go("explored", gamma=0.9)`.

    Args:
        scale, most: λ and B. rate: of f. gamma: of the return that f learns from. into: the column.
    """

    adds = {"explored": "reward with what was learned to explore"}
    needs = ("state", "action", "policy", "action_ids", "reward")

    def __init__(
        self,
        *,
        scale: float = 1.0,
        most: float = 1.0,
        rate: float = 0.01,
        gamma: float = 0.9,
        every: int = 5,
        into: str = "explored",
    ) -> None:
        if min(scale, most) <= 0 or rate < 0 or every < 1:
            raise InputError(f"explors: {scale=} and {most=} must be above 0, {rate=} not below, {every=} at least 1")
        self.options, self.gamma, self.every, self.into = (scale, most, rate), gamma, every, into
        self.adds = {into: type(self).adds["explored"]}
        self.places: dict[int, int] = {}
        self.model: ExploRS | None = None

    def __call__(self, turns: Turns, context: Context) -> Turns:
        """The table with the designed reward; then f is updated."""
        chances = probabilities(turns, context)
        state = np.array([self.places.setdefault(key, len(self.places)) for key in turns["state"].to_list()], int)
        self.model = self._grown(chances.shape[1])
        action = turns["action_ids"].list.first().to_numpy().astype(int)
        reward = turns["reward"].cast(float).fill_null(0.0).to_numpy()
        segments = turns.segments("episode", "agent")
        order = np.arange(len(turns)) if segments.order is None else segments.order
        last = np.zeros(len(turns), bool)
        last[order[segments.starts + segments.lengths - 1]] = True
        after = state.copy()
        after[order[:-1]] = state[order[1:]]
        explored = self.model.reward(state, action, reward, after, last)
        if not (context.iteration - 1) % self.every:
            returns = np.asarray(return_to_go("reward", gamma=self.gamma).evaluate(turns), float)
            known = np.isfinite(returns)
            self.model.update(state[known], action[known], returns[known], chances[known])
        return turns.with_column(**{self.into: np.where(turns["reward"].is_null(), np.nan, explored)})

    def _grown(self, actions: int) -> ExploRS:
        scale, most, rate = self.options
        grown, old = ExploRS(len(self.places), actions, scale, most, rate), self.model
        if old is not None:
            for name in ("table", "visits", "value", "seen"):
                getattr(grown, name)[: old.states] = getattr(old, name)
        return grown

    def state_dict(self) -> dict[str, Any]:
        """State: f, visits and values by state."""
        keys = np.fromiter(self.places, np.uint64, len(self.places)).view(np.int64)
        if self.model is None:
            return {"states": keys}
        return {"states": keys} | {name: getattr(self.model, name) for name in ("table", "visits", "value", "seen")}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Inverse of `state_dict`."""
        keys = np.asarray(state["states"]).view(np.uint64).tolist()
        self.places = {key: place for place, key in enumerate(keys)}
        if "table" in state:
            states, actions = np.asarray(state["table"]).shape
            scale, most, rate = self.options
            self.model = ExploRS(states, actions, scale=scale, most=most, rate=rate)
            for name in ("table", "visits", "value", "seen"):
                getattr(self.model, name)[...] = np.asarray(state[name])


@stage
class bilevel(Stage):
    """Stage: column `aligned`, auxiliary and primary reward with learned weights: BARFI [39] (arXiv 2310.19007).

    The weights say how far to trust the auxiliary reward, by what its policy earns in the primary one.

    Each iteration is one outer step of `rewards.BilevelReward` on the env's model; the column is the reward
    φ1(s, a) + φ2 · primary + φ3 · auxiliary with the weights so far. A reconstruction, see there.

    Args:
        auxiliary: the fact that the env's model has a table of. gamma, per_state, hypergradient: of `BilevelReward`.
        first: outer steps before the first iteration. into: the column.
    """

    adds = {"aligned": "primary and auxiliary reward with learned weights"}
    needs = ("state", "action")

    def __init__(
        self,
        auxiliary: str = "bonus",
        *,
        gamma: float = 0.95,
        per_state: bool = False,
        hypergradient: str = "exact",
        first: int = 30,
        into: str = "aligned",
    ) -> None:
        if first < 0:
            raise InputError(f"bilevel: {first=} must not be negative")
        self.auxiliary, self.gamma, self.per_state, self.how = auxiliary, gamma, per_state, hypergradient
        self.first, self.into = first, into
        self.adds = {into: type(self).adds["aligned"]}
        self.outer: BilevelReward | None = None
        self._state: dict[str, Any] = {}

    def __call__(self, turns: Turns, context: Context) -> Turns:
        """The table with the current reward."""
        model = model_of(context)
        if self.auxiliary not in model.rewards:
            raise InputError(
                f"bilevel: the model has no table of {self.auxiliary!r}, but of {', '.join(model.rewards)}"
            )
        if self.outer is None:
            self.outer = BilevelReward(
                model.transitions,
                model.start,
                model.rewards["reward"],
                model.rewards[self.auxiliary],
                self.gamma,
                self.how,  # type: ignore[arg-type]
                self.per_state,
            )
            if self._state:
                self.outer.load_state_dict(self._state)
            else:
                for _ in range(self.first - 1):
                    self.outer.step()
        self.outer.step()
        return turns.with_column(**{self.into: paid(turns, model, self.outer.reward)})

    def state_dict(self) -> dict[str, Any]:
        """State: policy and weights of the outer loop."""
        return self._state if self.outer is None else self.outer.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Inverse of `state_dict`."""
        self._state, self.outer = state, None
