"""Which components make the team, for so much: the knapsack composer ([45], arXiv 2510.16499) and what it is beside.

Components come one after the other and are tried in a sandbox; one is taken if what it brings per price is above a
threshold that rises with the share of the budget that is spent. Left out: the prompts' optimisation from the traces.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import numpy as np
import polars as pl
import scipy

from palaestra.errors import InputError, nearest, need_columns

Probe = Callable[[str, str], int]
"""(component, skill) -> 1 helpful, 0 not, -1 broken."""

ROUNDED = 1 + 1e-12
"""Times a budget: three costs of 0.1 fit into 0.3."""


def threshold(spent: float | np.ndarray, lower: float, upper: float) -> np.ndarray:
    """Threshold of an online knapsack on value per cost: (upper·e/lower)^spent · lower/e, array; spent: budget share.

    Ψ(z) = (U·e/L)^z · L/e, z the share spent.

    Ψ(0) = L/e, Ψ(1) = U.

    Everything with at least L per cost is taken until z = 1/(ln(U/L) + 1).

    >>> round(float(threshold(0.5, 1, 100)), 3)
    6.065
    """
    _bounds(lower, upper)
    return np.asarray((upper * math.e / lower) ** np.asarray(spent, float) * lower / math.e)


def competitive_ratio(lower: float, upper: float) -> float:
    """Competitive ratio of the threshold knapsack, ln(upper/lower) + 1: how many times more the optimum earns at most.

    >>> round(competitive_ratio(1, 100), 3)
    5.605
    """
    _bounds(lower, upper)
    return math.log(upper / lower) + 1


def threshold_knapsack(
    values: np.ndarray, costs: np.ndarray, budget: float, *, lower: float, upper: float
) -> np.ndarray:
    """bool[..., items]: taken in order within `budget` by the online knapsack, value / cost in [`lower`, `upper`].

    Its threshold rises with what is spent.

    It knows the bounds `lower` and `upper`.

    Axes before the last are other orders.

    An item is taken if it still fits, is worth something, and value / cost ≥ Ψ(spent / budget). lower, upper: L and U,
    between which value / cost lies.

    Raises:
        InputError: 0 < lower <= upper does not hold, or a cost or the budget is not above 0.
    """
    values, costs = np.broadcast_arrays(np.asarray(values, float), np.asarray(costs, float))
    _bounds(lower, upper)
    if not budget > 0 or not (costs > 0).all():
        raise InputError(f"threshold_knapsack: budget={budget} and every cost must be above 0")
    taken, spent = np.zeros(values.shape, bool), np.zeros(values.shape[:-1])
    for at in range(values.shape[-1]):
        value, cost = values[..., at], costs[..., at]
        fits = (spent + cost <= budget * ROUNDED) & (value > 0)
        taken[..., at] = fits & (value / cost >= threshold(spent / budget, lower, upper))
        spent = spent + cost * taken[..., at]
    return taken


def compose(
    inventory: pl.DataFrame,
    budget: float,
    *,
    probe: Probe | None = None,
    weights: Mapping[str, float] | None = None,
    top: int = 5,
) -> pl.DataFrame:
    """Table per tried component of `inventory`: chooses a team's components online within `budget`, with the reasons.

    inventory: component, cost, skill, similarity (of the component's description to the skill); and without a probe
    verdict, what the sandbox says: 1, 0, -1. For each skill the `top` most similar components are tried on all skills
    that nobody covers yet; value: Σ weights of those that it passes. What is broken once is not tried again.
    weights: of the skills (default 1 each). L = min w / max c and U = Σ w / min c; the paper's L = 1 / max c is that
    of weights of at least 1.

    Returns:
        component, cost, value, threshold, accepted, reason (null if accepted), covers (skills), probes (so far).

    Raises:
        MissingColumnError, InputError: a column is missing, a weight or cost is not above 0.
    """
    if not budget > 0:
        raise InputError(f"compose: budget={budget} must be above 0")
    table, skills, cost = _inventory(inventory, weights, () if probe else ("verdict",))
    asked = probe or _looked_up(table)
    lower, upper = min(skills.values()) / max(cost.values()), sum(skills.values()) / min(cost.values())
    left, spent, probes = dict(skills), 0.0, 0
    seen: set[str] = set()
    rows = []
    for skill in skills:
        near = _nearest(table, skill)
        for component in near["component"].head(top).to_list():
            if skill not in left or component in seen:
                continue
            seen.add(component)
            verdicts = {each: asked(component, each) for each in left}
            probes += len(verdicts)
            passed = [each for each, verdict in verdicts.items() if verdict > 0]
            value, level = sum(left[each] for each in passed), float(threshold(spent / budget, lower, upper))
            reason = (
                "broken"
                if min(verdicts.values()) < 0
                else "no help"
                if not passed
                else "does not fit"
                if spent + cost[component] > budget * ROUNDED
                else "too dear"
                if value / cost[component] < level
                else None
            )
            if reason is None:
                spent += cost[component]
                left = {each: weight for each, weight in left.items() if each not in passed}
            rows.append((component, cost[component], float(value), level, reason is None, reason, passed, probes))
    kinds: dict[str, pl.DataType | type[pl.DataType]] = {
        "component": pl.String,
        "cost": pl.Float64,
        "value": pl.Float64,
        "threshold": pl.Float64,
        "accepted": pl.Boolean,
        "reason": pl.String,
        "covers": pl.List(pl.String),
        "probes": pl.Int64,
    }
    return pl.DataFrame(rows, schema=kinds, orient="row")


def retrieve(inventory: pl.DataFrame, budget: float, *, weights: Mapping[str, float] | None = None) -> list[str]:
    """List of names, baseline of `compose`: each skill's most similar component in `inventory`, if within `budget`."""
    table, skills, cost = _inventory(inventory, weights)
    taken: dict[str, None] = {}
    for skill in skills:
        near = _nearest(table, skill)
        best = near["component"][0]
        if best not in taken and sum(cost[each] for each in taken) + cost[best] <= budget * ROUNDED:
            taken[best] = None
    return list(taken)


def offline(
    inventory: pl.DataFrame, budget: float, *, weights: Mapping[str, float] | None = None, each: int = 1, top: int = 20
) -> list[str]:
    """List of names, baseline of `compose`: a knapsack (MILP) of `budget` over similarities in table `inventory`.

    Nothing is tried.

    By `scipy.optimize.milp`.

    max Σ_ij w_j s_ij y_ij with Σ_i c_i x_i ≤ budget, y_ij ≤ x_i and Σ_i y_ij ≤ each: whom skill j is to be had from.
    The paper sums similarities and has each skill covered; whether one component is to cover it, it does not say. Only
    the `top` most similar components of each skill are looked at.
    """
    table, skills, cost = _inventory(inventory, weights)
    names, prices = list(cost), np.array(list(cost.values()))
    place, number = {name: at for at, name in enumerate(names)}, {skill: at for at, skill in enumerate(skills)}
    pairs = table.filter(
        pl.col("skill").is_in(list(skills)) & (pl.col("similarity") > 0),
        pl.col("similarity").rank("ordinal", descending=True).over("skill") <= top,
    )
    if pairs.is_empty():
        return []
    who = np.array([place[each] for each in pairs["component"]])
    what = np.array([number[each] for each in pairs["skill"]])
    worth = pairs["similarity"].to_numpy() * np.array(list(skills.values()))[what]
    n, at = len(names), np.arange(len(pairs))
    price = np.concatenate([prices, np.zeros(len(pairs))])
    serves = scipy.sparse.csr_array((np.ones(len(pairs)), (what, n + at)), shape=(len(skills), n + len(pairs)))
    chosen = scipy.sparse.csr_array(
        (np.repeat([1.0, -1.0], len(pairs)), (np.tile(at, 2), np.concatenate([n + at, who]))),
        shape=(len(pairs), n + len(pairs)),
    )
    found = scipy.optimize.milp(
        np.concatenate([np.zeros(n), -worth]),
        constraints=[
            scipy.optimize.LinearConstraint(price[None], ub=budget),
            scipy.optimize.LinearConstraint(serves, ub=each),
            scipy.optimize.LinearConstraint(chosen, ub=0),
        ],
        integrality=np.ones(len(price)),
        bounds=scipy.optimize.Bounds(0, 1),
        options={"mip_rel_gap": 0.01},
    )
    return [name for name, x in zip(names, found.x[:n], strict=True) if x > 0.5]


def _inventory(
    inventory: pl.DataFrame, weights: Mapping[str, float] | None, also: tuple[str, ...] = ()
) -> tuple[pl.DataFrame, dict[str, float], dict[str, float]]:
    """The table, weight by skill and cost by component, checked."""
    need_columns("compose", inventory.columns, ("component", "cost", "skill", "similarity", *also))
    table = inventory.with_columns(
        pl.col("component", "skill").cast(pl.String), pl.col("cost", "similarity").cast(pl.Float64).fill_nan(None)
    )
    known = table["skill"].unique(maintain_order=True).to_list()
    skills = dict(weights) if weights else dict.fromkeys(known, 1.0)
    if strange := [each for each in skills if each not in known]:
        raise InputError(f"compose: no component has the skill {strange[0]!r}{nearest(strange[0], known)}")
    cost = dict(table.unique("component", keep="first", maintain_order=True).select("component", "cost").iter_rows())
    for name, number in (*skills.items(), *cost.items()):
        if number is None or not number > 0:
            raise InputError(f"compose: {name!r} has {number}; weights of skills and costs must be above 0")
    return table, skills, cost


def _nearest(table: pl.DataFrame, skill: str) -> pl.DataFrame:
    """Rows of a skill, the most similar component first; those of which it is not known are last."""
    own = table.filter(pl.col("skill") == skill)
    return own.sort("similarity", descending=True, nulls_last=True, maintain_order=True)


def _looked_up(table: pl.DataFrame) -> Probe:
    known = {(row[0], row[1]): row[2] for row in table.select("component", "skill", "verdict").iter_rows()}
    return lambda component, skill: int(known.get((component, skill)) or 0)


def _bounds(lower: float, upper: float) -> None:
    if not 0 < lower <= upper < math.inf:
        raise InputError(f"threshold: 0 < lower={lower} <= upper={upper} must hold")
