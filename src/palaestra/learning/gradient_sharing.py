"""`GradientSharing`: policy gradients that also decide which seats go on sharing parameters."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from palaestra.agents.split_mlp import SplitMLPPolicy
from palaestra.errors import InputError
from palaestra.learning.agreement import cosine_distance, first_split, gradient_agreement
from palaestra.learning.learner import PolicyGradient
from palaestra.learning.protocol import LEARNERS, Metrics

if TYPE_CHECKING:
    from palaestra.agents import Team
    from palaestra.algebra.turns import Turns


@LEARNERS.register("gradient_sharing")
class GradientSharing(PolicyGradient):
    """Policy-gradient learner that splits shared layers between seats whose gradients disagree (GM-NAS [160]).

    Distances are 1 - cosine of the gradients of a policy's shared layers on one seat's turns at a time, averaged over
    the batches of the last updates before a split. A split halves one group of seats: of all groups of all policies
    the one whose best partition has the lowest sum of distances within its parts. Training goes on from the shared
    weights, with the optimiser's moments. Each half may be split again.

    Args:
        team: its `split_mlp` policies that learn are split, as far as their `sets` go; the others learn as ever.
        splits: how many splits there are.
        after: updates before the first split. every: updates between splits.
        batches: updates whose batches are averaged over, at most `after` and `every`.
        least: seats of the smaller half.
        apart: a group is split only if the mean distance across its halves is at least this; 0, as published, always
            splits, also seats that agree.
        gradient: fields of `policy_gradient`.

    Metrics: per policy `sets`, parameter sets in use, and `agreement`, mean cosine between the gradients of seats that
    share one; None where nothing was measured.

    Raises:
        InputError: no `split_mlp` learns, a number is out of range, or learning is spread over devices.
    """

    def __init__(
        self,
        team: Team,
        terms: Any = ("surrogate()",),
        *,
        splits: int = 1,
        after: int = 10,
        every: int = 10,
        batches: int = 5,
        least: int = 2,
        apart: float = 0.0,
        **gradient: Any,
    ) -> None:
        if splits < 0 or least < 1 or not 1 <= batches <= min(after, every) or not 0 <= apart <= 2:
            raise InputError(
                f"learn.kind gradient_sharing: splits={splits} must be at least 0, least={least} at least 1, "
                f"batches={batches} from 1 to after={after} and every={every}, apart={apart} in [0, 2]"
            )
        super().__init__(team, terms, **gradient)
        learned = {name: each for name, each in self.policies.items() if name not in self.freeze}
        self.split_policies = {name: each for name, each in learned.items() if isinstance(each, SplitMLPPolicy)}
        if not self.split_policies or self.devices.size > 1:
            raise InputError("learn.kind gradient_sharing: needs a split_mlp policy that learns, and one process")
        self.splits, self.after, self.every, self.batches = splits, after, every, batches
        self.least, self.apart = least, apart
        self.done = 0
        self.cosines: dict[str, list[np.ndarray]] = {name: [] for name in self.split_policies}

    def update(
        self, turns: Turns, *, advantage: str = "advantage", rng: np.random.Generator | None = None
    ) -> dict[str, Metrics]:
        """Policy-gradient update; before it gradients are measured, after it a group of seats may be split."""
        due = self.after + self.done * self.every - self.updates
        measured = self.done < self.splits and due <= self.batches
        if measured:
            self._measure(turns, advantage)
        metrics = super().update(turns, advantage=advantage, rng=rng)
        agreement = {name: self._agreement(name) if measured else None for name in self.split_policies}
        if measured and due <= 1:
            self._split()
        for name, policy in self.split_policies.items():
            metrics[name] |= {"sets": len(policy.groups()), "agreement": agreement[name]}
        return metrics

    def _measure(self, turns: Turns, advantage: str) -> None:
        """Add the distances of one batch; a seat without turns is at distance 1."""
        found = gradient_agreement(self, turns, advantage=advantage)
        for name, policy in self.split_policies.items():
            values = np.zeros((len(policy.keys), sum(p[0].numel() for p in policy.shared_parameters())))
            if name in found:
                for agent, gradient in zip(*found[name], strict=True):
                    values[policy.keys.index(policy.key_of(agent) or "")] += gradient
            self.cosines[name].append(1 - cosine_distance(values))

    def _distance(self, name: str, keys: list[str]) -> np.ndarray:
        """Mean over batches, of these seats."""
        at = [self.split_policies[name].keys.index(key) for key in keys]
        return np.asarray(np.mean([1 - each for each in self.cosines[name]], axis=0)[np.ix_(at, at)])

    def _agreement(self, name: str) -> float | None:
        """Mean cosine of the last batch, over pairs of seats that share a set."""
        policy, pairs = self.split_policies[name], []
        for keys in policy.groups().values():
            at = [policy.keys.index(key) for key in keys]
            pairs += self.cosines[name][-1][np.ix_(at, at)][np.triu_indices(len(at), 1)].tolist()
        return float(np.mean(pairs)) if pairs else None

    def _split(self) -> None:
        """Split the group whose best partition costs least, if its halves are far enough apart."""
        places = {
            (name, place): self._distance(name, keys)
            for name, policy in self.split_policies.items()
            for place, keys in policy.groups().items()
            if max(policy.groups()) + 1 < policy.sets
        }
        chosen = first_split(places, least=self.least)
        self.done += 1
        for measured in self.cosines.values():
            measured.clear()
        if chosen is None:
            return
        (name, place), (labels, _) = chosen
        if places[name, place][np.ix_(labels == 0, labels == 1)].mean() < self.apart:
            return
        policy = self.split_policies[name]
        leaving = [key for key, label in zip(policy.groups()[place], labels, strict=True) if label]
        old, new = policy.split(leaving)
        for parameter in policy.shared_parameters():
            for moment in self.optimisers[name].state[parameter].values():
                if moment.shape == parameter.shape:
                    moment[new] = moment[old]

    def inherit(self, before: GradientSharing) -> None:
        """Take over, when a phase begins, how often was split and what was measured since."""
        self.done = before.done
        self.cosines |= {name: list(each) for name, each in before.cosines.items() if name in self.cosines}

    def state(self) -> dict[str, Any]:
        """State of the policy gradient, and the gradients' cosines since the last split."""
        measured = {name: np.array(each) for name, each in self.cosines.items() if each}
        return super().state() | {"sharing": {"done": self.done, "cosines": measured}}

    def restore(self, state: dict[str, Any] | None) -> None:
        """Inverse of `state`."""
        super().restore(state)
        sharing = (state or {})["sharing"]
        self.done = int(sharing["done"])
        self.cosines = {name: list(np.asarray(sharing["cosines"].get(name, []))) for name in self.split_policies}
