"""Agreement of gradients: who pulls shared parameters in the same direction, and who should share them.

GM-NAS (arXiv 2203.15207, few-shot architecture search) splits a network of shared weights where the gradients of its
candidates disagree. Here a candidate is whoever uses shared parameters: an agent, a role, a task. Left out: its
distances per filter.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from itertools import combinations
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import numpy as np
import polars as pl
import torch

from palaestra.errors import InputError, need_columns

if TYPE_CHECKING:
    from palaestra.algebra.turns import Turns
    from palaestra.learning.learner import PolicyGradient

Place = TypeVar("Place", bound=Hashable)

EPSILON = 1e-6
"""Added to the denominator of the cosine, which a gradient of 0 has not."""


class Gradients(NamedTuple):
    """Data: gradients of a policy's shared parameters, `values` float64[names, parameters], a row per name."""

    names: list[str]
    values: np.ndarray

    @property
    def distance(self) -> np.ndarray:
        """Cosine distances between the gradients, [names, names]."""
        return cosine_distance(self.values)


class Split(NamedTuple):
    """Result of `split` in two groups: `labels`, int[n] of 0 and 1, and `cost`, the sum of distances within them."""

    labels: np.ndarray
    cost: float


def cosine_distance(gradients: np.ndarray) -> np.ndarray:
    """Cosine distances 1 - g·h / (|g| |h| + 1e-6) of the rows of gradients [n, parameters]: [n, n], diagonal 0.

    A gradient of 0 is at distance 1 from all others.

    >>> cosine_distance(np.array([[1.0, 0.2, 0.0], [0.9, 0.3, 0.1]])).round(3).tolist()
    [[0.0, 0.013], [0.013, 0.0]]
    """
    gradients = np.asarray(gradients, float)
    lengths = np.linalg.norm(gradients, axis=1)
    found = 1 - gradients @ gradients.T / (np.outer(lengths, lengths) + EPSILON)
    np.fill_diagonal(found, 0.0)
    return np.asarray(found)


def split(distance: np.ndarray, *, least: int = 2) -> Split:
    """`Split` (labels 0 and 1, cost) of a distance matrix's members with least sum of distances within, trying all.

    The sum, not the mean, is GM-NAS's; it prefers groups of equal size, which have the fewest pairs. The first member
    is in group 0.

    Args:
        distance: [n, n], symmetric.
        least: members of the smaller group.

    Raises:
        InputError: there are fewer than 2 · least members, or more than 20, too many to try all.
    """
    n = len(distance)
    if least < 1 or n < 2 * least or n > 20:
        raise InputError(f"split: {n} members, expected at least {2 * least} and at most 20")
    best = Split(np.zeros(n, int), np.inf)
    for size in range(least, n // 2 + 1):
        chosen = np.array(list(combinations(range(n), size)))
        member = np.zeros((len(chosen), n))
        np.put_along_axis(member, chosen, 1.0, axis=1)
        within = sum(np.einsum("pi,ij,pj->p", each, distance, each) / 2 for each in (member, 1 - member))
        at = int(within.argmin())
        if within[at] < best.cost:
            labels = member[at].astype(int)
            best = Split(np.abs(labels - labels[0]), float(within[at]))
    return best


def first_split(places: Mapping[Place, np.ndarray], *, least: int = 2) -> tuple[Place, Split] | None:
    """Pair (place, `Split`) of lowest cost among `places`, a dict place -> distance matrix; None if all are too small.

    Args:
        places: distances between the members of each place where parameters are shared.
        least: as of `split`.
    """
    found = {place: split(each, least=least) for place, each in places.items() if len(each) >= 2 * least}
    return min(found.items(), key=lambda item: item[1].cost) if found else None


def gradient_agreement(
    learner: PolicyGradient, turns: Turns, *, by: str = "agent", advantage: str = "advantage"
) -> dict[str, Gradients]:
    """Compute gradients of a `PolicyGradient`'s shared parameters by each agent's `Turns` alone: {policy: `Gradients`}.

    Nothing is updated. Instead of the agent, `by` may name another column, such as a role or a task.
    The objective is the learner's. Nothing moves, and gradients that it had added up are forgotten. Layers that an
    agent has for itself (`SplitMLPPolicy.own`) take no part; of other policies all parameters do.

    Args:
        learner: of the policies.
        turns: with credit.
        by: column of whose turns belong together.
        advantage: column of credit.

    Returns:
        by policy: a row for each value of `by` with turns of it, in sorted order.

    Raises:
        MissingColumnError, LearnerError: as `PolicyGradient.forward_backward`.
    """
    need_columns("gradient_agreement", turns.columns, (by, "policy"))
    rows: dict[str, dict[str, np.ndarray]] = {name: {} for name in learner.policies}
    of = pl.col(by).cast(pl.String)
    for value in turns.frame.select(of).drop_nulls().to_series().unique().sort().to_list():
        part = turns.filter(of == value)
        learner.forward_backward(part, advantage=advantage)
        for name in part.frame["policy"].cast(pl.String).unique().to_list():
            if name in rows:
                rows[name][value] = _gradient(learner.policies[name])
        learner.drop_gradients()
    return {name: Gradients(list(found), np.array([*found.values()])) for name, found in rows.items() if found}


def _gradient(policy: object) -> np.ndarray:
    """The gradient of shared parameters as one vector, summed over stacked parameter sets."""
    shared = getattr(policy, "shared_parameters", None)
    parameters: list[torch.nn.Parameter] = policy.parameters() if shared is None else shared()  # type: ignore[attr-defined]
    parts = [torch.zeros_like(each) if each.grad is None else each.grad for each in parameters]
    flat = [(each.sum(0) if shared is not None else each).reshape(-1) for each in parts]
    return torch.cat(flat).double().cpu().numpy()
