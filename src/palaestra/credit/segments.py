"""Segments: values where an episode can be restarted, and credit from one such place to the next.

The values come from fresh rollouts (`palaestra.play.monte_carlo.mc_value`) or from a tree of them; here they are
columns.
"""

from __future__ import annotations

import math
from typing import Literal

import numpy as np

from palaestra.algebra.codes import Codes, combine
from palaestra.algebra.kernels import Evaluation, kernel
from palaestra.algebra.keys import is_scored, joined
from palaestra.algebra.potentials import potential_difference
from palaestra.algebra.returns import agent_return
from palaestra.algebra.signals import (
    Keys,
    Signal,
    SignalLike,
    as_signal,
    centre,
    cumulative,
    fill_missing,
    register,
    shift,
    standardise,
    where,
)
from palaestra.algebra.turns import Ragged
from palaestra.errors import ExpressionError, InputError


@register()
def unsure(logprobs: SignalLike = "logprobs", *, p: float = 0.9) -> Signal:
    """Signal: mask of the tokens that were sampled with a probability below p.

    Raises:
        ExpressionError: p is outside (0, 1].
    """
    if not 0 < p <= 1:
        raise ExpressionError(f"unsure: p={p} is outside (0, 1]")
    return as_signal(logprobs) < math.log(p)


@register()
def segments(logprobs: SignalLike = "logprobs", *, p: float = 0.9, every: int = 5) -> Signal:
    """Signal: number of each token's segment in its turn, from 0; a cut just before every `every`-th unsure token.

    Raises:
        ExpressionError: every is below 1, or p outside (0, 1].

    >>> from palaestra.algebra.turns import Turns
    >>> segments(every=2).evaluate(Turns({"logprobs": [[-1.0, 0.0, -1.0, 0.0, -1.0]]})).values
    array([0., 0., 1., 1., 1.])
    """
    if every < 1 or not 0 < p <= 1:
        raise ExpressionError(f"segments: every={every} must be at least 1, and p={p} in (0, 1]")
    return Signal("segments", as_signal(logprobs), p=float(p), every=int(every))


@kernel("segments", range="row")
def _segments(evaluation: Evaluation, node: Signal) -> Ragged:
    value = evaluation(node.inputs[0])
    if not isinstance(value, Ragged):
        raise ExpressionError(f"{node}: {node.inputs[0]} has one value per turn; segments need one per token")
    cuts = np.cumsum(value.values < math.log(node.options["p"]))
    before = np.concatenate([[0], cuts])[np.cumsum(value.lengths) - value.lengths]
    return Ragged((cuts - np.repeat(before, value.lengths)) // node.options["every"] * 1.0, value.lengths)


@register()
def spread(x: SignalLike, segment: SignalLike) -> Signal:
    """Signal: sum of a per-token signal over each segment of the turn, on all its tokens; missing if one of them is."""
    return Signal("spread", as_signal(x), as_signal(segment))


@kernel("spread", range="row")
def _spread(evaluation: Evaluation, node: Signal) -> Ragged:
    x, segment = (evaluation(child) for child in node.inputs)
    if not isinstance(x, Ragged) or not isinstance(segment, Ragged) or not np.array_equal(x.lengths, segment.lengths):
        raise ExpressionError(f"{node}: both must have one value per token, as many as there are tokens")
    rows = np.repeat(np.arange(len(x.lengths)), x.lengths)
    numbers = segment.values.astype(np.int64)
    key = combine(Codes(rows, len(x.lengths)), Codes(numbers, int(numbers.max(initial=0)) + 1))
    return Ragged(np.bincount(key.ids, x.values, key.size)[key.ids], x.lengths)


@register()
def spo_chain(value: SignalLike = "value", *, score: SignalLike | None = None) -> Signal:
    """Signal: [69] SPO-chain (2505.23564), V at the agent's next row, or the score at the end, minus V at its own.

    The last segment: score - V. No normalisation; the sum over an episode is its score minus V at the start.

    A row is a segment. value: what fresh rollouts from its start earn from there on, filled by the stage `mc_values()`;
    what the agent had earned before is added to it. score: another end of the episode than the agent's return; then
    nothing is added. Within a turn's tokens see `spo_tokens`. The released code was read.
    """
    if score is not None:
        return potential_difference(value, terminal=score)
    earned = where(is_scored(agent_return()), fill_missing(cumulative("reward", exclusive=True), 0.0))
    return potential_difference(as_signal(value) + earned, terminal=agent_return())


@register()
def spo_tokens(
    values: SignalLike = "values",
    *,
    score: SignalLike | None = None,
    logprobs: SignalLike = "logprobs",
    p: float = 0.9,
    every: int = 5,
) -> Signal:
    """Signal: SPO-chain [69] for tokens of one turn; each unsure token carries its segment's change of value, others 0.

    values: per token, V at the start of the token's segment. Tokens before the first cut get 0. Without a
    score the last segment's change is missing.
    """
    segment = segments(logprobs, p=p, every=every)
    ends = agent_return() if score is None else as_signal(score)
    v = as_signal(values) + 0.0 * as_signal(logprobs)  # per token, also where there is one value per turn
    last = shift(fill_missing(0.0 * v, 0.0) + 1.0, n=-1, over="row", fill=0.0) == 0.0
    change = spread(where(last, ends, shift(v, n=-1, over="row")) - v, segment)
    return change * unsure(logprobs, p=p) * (segment > 0.0)


@register()
def spo_tree(
    value: SignalLike = "value", *, parent: Keys = "parent", method: Literal["rloo", "grpo"] = "rloo", eps: float = 1e-8
) -> Signal:
    """Signal: SPO-tree [69], a node's value minus its parent's, which is the mean over the siblings; a row is a node.

    value: `tree_values`. parent: key of the parent node in the group. method="grpo": divided by the siblings'
    population deviation + eps. Rows whose advantage is 0 teach nothing; the released code drops them.

    Raises:
        ExpressionError: the method is unknown.
    """
    if method not in ("rloo", "grpo"):
        raise ExpressionError(f"spo_tree: method={method!r}; known: grpo, rloo")
    siblings = joined("group", parent)
    return centre(value, over=siblings) if method == "rloo" else standardise(value, over=siblings, ddof=0, eps=eps)


def tree_values(parent: np.ndarray, reward: np.ndarray, *, best_of: int | None = None) -> np.ndarray:
    """Value of each node of a tree by `parent`: a leaf's is its reward, else the mean of its children's; float64[n].

    parent: int64[n], number of the parent, which stands before its children; -1 for the root. reward: float64[n], read
    at leaves only. best_of: K turns values v into 1 - (1 - v)^K, the chance that one of K tries succeeds.

    Raises:
        InputError: a node stands before its parent, or a leaf has no reward.
    """
    number = len(parent)
    if (parent >= np.arange(number)).any():
        raise InputError(f"tree_values: node {int(np.argmax(parent >= np.arange(number)))} stands before its parent")
    children = np.bincount(parent[parent >= 0], minlength=number)
    value = np.where(children == 0, reward, 0.0).astype(float)
    if np.isnan(value).any():
        raise InputError(f"tree_values: leaf {int(np.flatnonzero(np.isnan(value))[0])} has no reward")
    depth = np.zeros(number, int)
    for node in range(number):  # parents first, so one pass finds all depths
        depth[node] = depth[parent[node]] + 1 if parent[node] >= 0 else 0
    for level in range(int(depth.max(initial=0)), 0, -1):
        nodes = np.flatnonzero(depth == level)
        np.add.at(value, parent[nodes], value[nodes] / children[parent[nodes]])
    return value if best_of is None else 1 - (1 - value) ** best_of
