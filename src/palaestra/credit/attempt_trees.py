"""Trees of attempts: values that are backed up from the leaves, and sums along the way from the root."""

from __future__ import annotations

from typing import Literal

import numpy as np
import polars as pl

from palaestra.algebra.codes import Codes
from palaestra.algebra.kernels import Evaluation, kernel
from palaestra.algebra.keys import joined, turn_values
from palaestra.algebra.signals import Keys, Signal, SignalLike, as_signal, register
from palaestra.errors import ExpressionError, InputError


@register()
def backup(
    value: SignalLike = "reward",
    node: str | Signal = "node",
    parent: str | Signal = "parent",
    *,
    over: Keys = "group",
    method: Literal["mean", "max", "rollouts"] = "mean",
) -> Signal:
    """Signal: value of each row's node in a tree of attempts: a leaf's own, else the mean or best of its children's.

    A child counts once, however many leaves are below it: means of means, as MALT's (arXiv 2412.01928) and Agent-R's
    (arXiv 2501.11425). Binarise with `backup(...) > 0.5`. "rollouts" is the mean over all rows of leaves below a node,
    each of which ends a rollout, as Optima's (arXiv 2410.08115).

    Args:
        value: of leaves; the mean over the rows of a node. A node whose value nobody knows leaves its parent's.
        node: column that names a row's node; several rows may be one node.
        parent: column that names the node it went on from; null at a root.
        over: names are unique within it.
        method: "mean" or "max" of the children's values, or mean of the "rollouts".

    Raises:
        ExpressionError: `method` is unknown, or a name is that of no column.
        InputError: the parents of a tree go round in a circle.

    >>> from palaestra.algebra.turns import Turns
    >>> rows = {"node": ["A", "a", "b", "c", "d"], "parent": [None, "A", "A", "b", "b"], "group": [0] * 5}
    >>> backup("reward").evaluate(Turns(rows | {"reward": [None, 1.0, None, 0.0, 1.0]}))
    array([0.75, 1.  , 0.5 , 0.  , 1.  ])
    """
    if method not in ("mean", "max", "rollouts"):
        raise ExpressionError(f"backup: method={method!r} is 'mean', 'max' or 'rollouts'")
    names = [as_signal(each) for each in (node, parent)]
    if any(name.op != "col" for name in names):
        raise ExpressionError(f"backup: node={node} and parent={parent} must be names of columns")
    return Signal("backup", as_signal(value), *names, over=joined(over), method=method)


@kernel("backup")
def _backup(evaluation: Evaluation, node: Signal) -> np.ndarray:
    (x,) = turn_values(evaluation, node, node.inputs[:1])
    codes = evaluation.codes(node.options["over"])
    own, above, size = _nodes(evaluation, node, codes)
    known = ~np.isnan(x)
    number = np.bincount(own[known], minlength=size)
    if node.options["method"] == "rollouts":
        return _mean_of_rollouts(np.bincount(own[known], x[known], size), number, above)[own]  # type: ignore[no-any-return]
    with np.errstate(invalid="ignore"):
        value = np.where(number > 0, np.bincount(own[known], x[known], size) / np.maximum(number, 1), np.nan)
    for nodes in reversed(_levels(above)):
        nodes = nodes[~np.isnan(value[nodes]) & (above[nodes] >= 0)]
        parents, at = np.unique(above[nodes], return_inverse=True)
        if node.options["method"] == "mean":
            value[parents] = np.bincount(at, value[nodes]) / np.bincount(at)
        else:
            value[parents] = -np.inf
            np.maximum.at(value, above[nodes], value[nodes])
    return np.asarray(value[own])


def _mean_of_rollouts(total: np.ndarray, number: np.ndarray, above: np.ndarray) -> np.ndarray:
    """Mean over the rows of all leaves below each node, from the sum and number of each node's own rows."""
    inner = np.unique(above[above >= 0])
    total[inner] = number[inner] = 0
    for nodes in reversed(_levels(above)[1:]):
        np.add.at(total, above[nodes], total[nodes])
        np.add.at(number, above[nodes], number[nodes])
    with np.errstate(invalid="ignore"):
        return np.where(number > 0, total / np.maximum(number, 1), np.nan)


@register()
def along(
    x: SignalLike,
    node: str | Signal = "node",
    parent: str | Signal = "parent",
    *,
    over: Keys = "group",
    method: Literal["sum", "max"] = "sum",
) -> Signal:
    """Signal: sum, or maximum, of x on the way from the root of a tree of attempts to each row, this row included.

    Args:
        x: where it is missing it does not count. A node of several rows, other than the row itself, has their mean.
        node: column that names a row's node.
        parent: column that names the node it went on from; null, or a name of no row, at a root.
        over: names are unique within it.
        method: "sum" or "max".

    Raises:
        ExpressionError: `method` is unknown, or a name is that of no column.
        InputError: the parents of a tree go round in a circle.

    >>> from palaestra.algebra.turns import Turns
    >>> rows = {"node": ["A", "a", "b", "c"], "parent": [None, "A", "A", "b"], "group": [0] * 4}
    >>> along("words").evaluate(Turns(rows | {"words": [5.0, 1.0, 2.0, 3.0]}))
    array([ 5.,  6.,  7., 10.])
    """
    if method not in ("sum", "max"):
        raise ExpressionError(f"along: method={method!r} is 'sum' or 'max'")
    names = [as_signal(each) for each in (node, parent)]
    if any(name.op != "col" for name in names):
        raise ExpressionError(f"along: node={node} and parent={parent} must be names of columns")
    return Signal("along", as_signal(x), *names, over=joined(over), method=method)


@kernel("along")
def _along(evaluation: Evaluation, node: Signal) -> np.ndarray:
    (x,) = turn_values(evaluation, node, node.inputs[:1])
    own, above, size = _nodes(evaluation, node, evaluation.codes(node.options["over"]))
    known = ~np.isnan(x)
    number = np.bincount(own[known], minlength=size)
    neutral, join = (0.0, np.add) if node.options["method"] == "sum" else (-np.inf, np.maximum)
    mean = np.bincount(own[known], x[known], size) / np.maximum(number, 1)
    value = np.where(number > 0, mean, neutral)
    before = np.full(size, neutral)
    for nodes in _levels(above)[1:]:
        before[nodes] = join(before[above[nodes]], value[above[nodes]])
    found = join(before[own], np.where(known, x, neutral))
    return np.where(np.isinf(found), np.nan, found)


def _nodes(evaluation: Evaluation, node: Signal, codes: Codes) -> tuple[np.ndarray, np.ndarray, int]:
    """Number of each row's node, of each node's parent (-1: none in the table), and how many nodes there are."""
    one, other = (_whole(evaluation.turns[name.options["name"]]) for name in node.inputs[1:])
    if one.dtype != other.dtype or not one.dtype.is_integer():
        one, other = (each.cast(pl.String).cast(pl.Categorical) for each in (one, other))
    named = pl.concat([one, other]).to_physical()
    number = named.fill_null(-1).to_numpy().astype(np.int64)
    kinds, name = np.unique(number, return_inverse=True)
    full = codes.ids * len(kinds)
    nodes, first, own = np.unique(full + name[: len(full)], return_index=True, return_inverse=True)
    up = (full + name[len(full) :])[first]
    at = np.minimum(np.searchsorted(nodes, up), max(len(nodes) - 1, 0))
    known = (nodes[at] == up) & other.is_not_null().to_numpy()[first]
    return own, np.where(known, at, -1), len(nodes)


def _whole(names: pl.Series) -> pl.Series:
    """Numbers as int64 and NaN as null where all are whole: pandas writes parents as floats, NaN at a root."""
    if not names.dtype.is_numeric():
        return names
    number = names.fill_nan(None) if names.dtype.is_float() else names
    return number.cast(pl.Int64) if (number.fill_null(0) % 1 == 0).all() else number


def _levels(above: np.ndarray) -> list[np.ndarray]:
    """Nodes by depth, roots first."""
    depth = np.full(len(above), -1)
    level = np.flatnonzero(above < 0)
    order = np.argsort(above, kind="stable")
    start, end = (np.searchsorted(above[order], np.arange(len(above)), side) for side in ("left", "right"))
    found: list[np.ndarray] = []
    while len(level):
        depth[level] = len(found)
        found.append(level)
        number = end[level] - start[level]
        first = np.repeat(start[level] - np.cumsum(number) + number, number)
        level = order[first + np.arange(number.sum())]
    if (depth < 0).any():
        raise InputError(f"backup: {int((depth < 0).sum())} nodes are their own ancestors; look at `parent`")
    return found
