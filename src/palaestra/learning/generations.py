"""Evolution as a learner: the better policies of a team survive, the others inherit from them (arXiv 2412.10270).

An update is a generation. It needs no gradient: a policy's fitness is the mean of its credit, so `credit:` says what is
selected for. Left out: strategies as text, which an heir would write after it has read those of survivors.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import polars as pl

from palaestra.errors import InputError, LearnerError, nearest
from palaestra.learning.protocol import LEARNERS, LearnedPolicy, Metrics

if TYPE_CHECKING:
    from palaestra.agents import Team
    from palaestra.algebra.turns import Turns

INHERIT = ("copy", "fresh")


def select(fitness: Sequence[float] | np.ndarray, share: float = 0.5) -> np.ndarray:
    """Mask bool[members] of those that survive: the fittest `share` by `fitness`, at least one; of equals the first.

    >>> select([3.0, 9.0, 3.0, 1.0]).tolist()
    [True, True, False, False]
    """
    values = np.asarray(fitness, float)
    kept = np.zeros(len(values), bool)
    kept[np.argsort(-values, kind="stable")[: max(round(share * len(values)), 1)]] = True
    return kept


def inherited(
    survivors: Sequence[Mapping[str, Any]], heirs: int, mutation: float, rng: np.random.Generator
) -> list[tuple[int, dict[str, Any]]]:
    """List of (parent's index, parameters) of `heirs` members: random `survivors` plus noise of sd `mutation`.

    The survivors are dicts of tensors.

    Args:
        survivors: state of each, tensors by name.
        heirs: how many.
        mutation: standard deviation of the noise on every number that is no integer.
        rng: from which parents and noise are drawn.
    """
    found = []
    for parent in rng.integers(len(survivors), size=heirs):
        state = {name: value.clone() for name, value in survivors[parent].items()}
        for value in state.values():
            if value.is_floating_point():
                value += mutation * value.new_tensor(rng.normal(size=tuple(value.shape)))
        found.append((int(parent), state))
    return found


@LEARNERS.register("generations")
class Generations:
    """Evolutionary learner: the team's policies are a population; those of least mean credit are replaced by heirs.

    Every policy of the team that can learn is one member. Who has no credit at all is behind all others.

    Args:
        team: at least two such policies, all with parameters of the same names and shapes.
        survivors: share of the members that survive an update; they stay as they are.
        mutation: standard deviation of what is added to an heir's parameters.
        inherit: "copy": heirs are mutated copies of random survivors. "fresh": heirs get the start of a random member
            instead, so nothing is inherited.

    Raises:
        InputError: an option is out of range, or the policies differ.
    """

    def __init__(
        self,
        team: Team,
        *,
        survivors: float = 0.5,
        mutation: float = 0.1,
        inherit: Literal["copy", "fresh"] = "copy",
    ) -> None:
        if not 0 < survivors <= 1 or not mutation >= 0:
            raise InputError(f"learn.kind generations: {survivors=} in (0, 1], {mutation=} at least 0")
        if inherit not in INHERIT:
            raise InputError(f"learn.kind generations: inherit={inherit!r}{nearest(inherit, INHERIT)}")
        self.members = {policy.name: policy for policy in team.trainable}
        self.survivors, self.mutation, self.inherit = survivors, mutation, inherit
        shapes = {
            tuple((name, tuple(value.shape)) for name, value in policy.state_dict().items())
            for policy in self.members.values()
        }
        if len(self.members) < 2 or len(shapes) > 1:
            raise InputError(
                f"learn.kind generations: at least two policies of one form are needed, one for each seat; "
                f"there are {len(self.members)}, of {len(shapes)} forms"
            )
        self._first = [_copy(policy.state_dict()) for policy in self.members.values()]
        self.updates = 0
        """Number of generations so far."""
        self._sums = np.zeros((2, len(self.members)))

    @property
    def policies(self) -> Mapping[str, LearnedPolicy]:
        """All members, by name."""
        return dict(self.members)

    def needs(self) -> set[str]:
        """No columns beside the credit."""
        return set()

    def forward_backward(self, turns: Turns, *, advantage: str = "advantage") -> dict[str, Metrics]:
        """Add up the credit of each member.

        Returns:
            per member: rows, and fitness, its mean credit in this table; None without any.

        Raises:
            LearnerError: credit is not finite.
            InputError: there is credit per token.
        """
        if turns[advantage].dtype.is_nested():
            raise InputError(
                f"learn.kind generations: column {advantage!r} has credit per token, fitness is one number per turn: "
                "wrap the credit in per_turn()"
            )
        rows = turns.frame.select(pl.col("policy").cast(pl.String), credit=pl.col(advantage).cast(pl.Float64))
        if not rows["credit"].drop_nulls().is_finite().all():
            raise LearnerError(f"learn.kind generations: column {advantage!r} is not finite")
        table = rows.drop_nulls().group_by("policy").agg(pl.col("credit").sum(), n=pl.len())
        found = {name: (credit, n) for name, credit, n in table.rows()}
        sums = np.array([found.get(name, (0.0, 0)) for name in self.members], float).T
        self._sums += sums
        means = _means(sums)
        return {
            name: {
                "loss": None,
                "kl": None,
                "entropy": None,
                "zero_credit": None,
                "rows": int(sums[1, at]),
                "fitness": float(means[at]) if sums[1, at] else None,
            }
            for at, name in enumerate(self.members)
        }

    def optim_step(self) -> None:
        """Replace the members that do not survive by heirs, and count a generation."""
        self._select(np.random.default_rng(self.updates))

    def update(
        self, turns: Turns, *, advantage: str = "advantage", rng: np.random.Generator | None = None
    ) -> dict[str, Metrics]:
        """`forward_backward` and `optim_step` in one; metrics also tell each member's `survived` and `parent`.

        `parent` is the number of the member from which it was made, if it did not survive.
        """
        metrics = self.forward_backward(turns, advantage=advantage)
        parents = self._select(rng or np.random.default_rng(self.updates))
        for at, name in enumerate(self.members):
            metrics[name] |= {"survived": int(parents[at] == at), "parent": int(parents[at])}
        return metrics

    def _select(self, rng: np.random.Generator) -> np.ndarray:
        """The number of each member's parent, its own if it survived."""
        policies = list(self.members.values())
        kept = select(_means(self._sums), self.survivors)
        alive, parents = np.flatnonzero(kept), np.arange(len(policies))
        states = [_copy(policies[at].state_dict()) for at in alive]
        heirs = inherited(states, int((~kept).sum()), self.mutation, rng)
        for at, (parent, state) in zip(np.flatnonzero(~kept), heirs, strict=True):
            parents[at] = alive[parent]
            if self.inherit == "fresh":
                state = self._first[int(rng.integers(len(self._first)))]
            policies[at].load_state_dict(state)
        self._sums[:] = 0
        self.updates += 1
        return parents

    def state(self) -> dict[str, Any]:
        """Number of generations, sums of credit, and the parameters at the start."""
        return {"updates": self.updates, "first": self._first, "sums": self._sums.copy()}

    def restore(self, state: dict[str, Any]) -> None:
        """Inverse of `state`."""
        self.updates, self._first = state["updates"], [_copy(each) for each in state["first"]]
        self._sums = np.array(state["sums"], float)


def _means(sums: np.ndarray) -> np.ndarray:
    """Mean credit of each member; of one without any less than that of every other."""
    return np.where(sums[1] > 0, sums[0] / np.maximum(sums[1], 1), -np.inf)


def _copy(state: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value.detach().clone() for name, value in state.items()}
