"""Pairing: which tool call was meant for which, as a bipartite matching between what was called and what was right.

Calls are JSON in text columns, read as in `calls`: those of the turn, and on any row of the episode those that would
have been right. What a model wrote is data: calls that cannot be read earn what a call without a partner does.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
import scipy

from palaestra.algebra.kernels import Evaluation, kernel
from palaestra.algebra.keys import joined
from palaestra.algebra.signals import Keys, Signal, as_signal, is_missing, register, where
from palaestra.errors import ExpressionError, InputError, nearest
from palaestra.rewards.match.calls import UNREADABLE, CallReader, Frozen, frozen
from palaestra.rewards.match.words import column, text_of, texts, token_f1

Call = Mapping[str, Any]
Method = Literal["optimal", "greedy", "sinkhorn"]
METHODS = ("optimal", "greedy", "sinkhorn")
ROUNDS = 200
"""Of Sinkhorn's rescaling."""


def call_similarity(predicted: Call, gold: Call) -> float:
    """Similarity of two tool calls in [0, 1] by parameter names and equal values; 0 for different names (case ignored).

    (1 + J + v) / (2 + g).

    J: Jaccard index of the parameter names, 1 if there are none; v: gold parameters with an equal value; g: gold ones.

    >>> call_similarity({"name": "f", "arguments": {"x": 1, "y": 2}}, {"name": "f", "arguments": {"x": 1}})
    0.8333333333333334
    """
    return _similarity(frozen(predicted), frozen(gold))


def _similarity(predicted: Frozen, gold: Frozen) -> float:
    if predicted[0].casefold() != gold[0].casefold():
        return 0.0
    given, wanted = predicted[1], gold[1]
    together = given.keys() | wanted.keys()
    shared = len(given.keys() & wanted.keys()) / len(together) if together else 1.0
    equal = sum(name in given and given[name] == value for name, value in wanted.items())
    return float((1 + shared + equal) / (2 + len(wanted)))


def matched(
    similarity: np.ndarray, *, method: Method = "optimal", unmatched: float = 0.0, temperature: float = 0.1
) -> np.ndarray:
    """Reward of each predicted item, float64[n], from matching the matrix `similarity` [n, m] to gold items.

    optimal: the one-to-one assignment of largest sum. greedy: the largest first. Both pay the similarity of the pair,
    `unmatched` to items without a partner of positive similarity. sinkhorn: Σ_j T_ij·S_ij, T the transport plan between
    uniform marginals of cost -S with entropy weight `temperature`.

    Raises:
        InputError: the method is unknown, or the similarity is not a finite matrix.

    >>> matched(np.array([[0.9, 0.8], [0.8, 0.1]])), matched(np.array([[0.9, 0.8], [0.8, 0.1]]), method="greedy")
    (array([0.8, 0.8]), array([0.9, 0.1]))
    """
    if method not in METHODS:
        raise InputError(f"matched: method={method!r}{nearest(str(method), METHODS)}")
    if similarity.ndim != 2 or not np.isfinite(similarity).all():
        raise InputError(f"matched: similarity {similarity.shape} must be [predicted, gold] and finite")
    number, gold = similarity.shape
    if not number or not gold:
        return np.full(number, unmatched)
    if method == "sinkhorn":
        return np.asarray((_transport(similarity / temperature) * similarity).sum(axis=1))
    if method == "optimal":
        rows, columns = scipy.optimize.linear_sum_assignment(similarity, maximize=True)
        pairs = zip(rows.tolist(), columns.tolist(), strict=True)
    else:
        pairs = zip(*_greedy(similarity), strict=True)
    reward = np.full(number, unmatched)
    for row, partner in pairs:
        if similarity[row, partner] > 0:
            reward[row] = similarity[row, partner]
    return reward


def _greedy(similarity: np.ndarray) -> tuple[list[int], list[int]]:
    rows, columns = [], []
    for place in np.argsort(-similarity, axis=None, kind="stable"):
        row, partner = divmod(int(place), similarity.shape[1])
        if row not in rows and partner not in columns:
            rows.append(row)
            columns.append(partner)
    return rows, columns


def _transport(scores: np.ndarray) -> np.ndarray:
    """Sinkhorn's plan of exp(scores) with uniform marginals, in logarithms."""
    number, gold = scores.shape
    left, right = np.zeros((number, 1)), np.zeros((1, gold))
    for _ in range(ROUNDS):
        left = -np.log(number) - np.logaddexp.reduce(scores + right, axis=1, keepdims=True)
        right = -np.log(gold) - np.logaddexp.reduce(scores + left, axis=0, keepdims=True)
    return np.asarray(np.exp(scores + left + right))


@register()
def match_reward(
    calls: str,
    gold: str,
    answer: str | None = None,
    truth: str | None = None,
    *,
    method: Method = "optimal",
    unmatched: float = 0.0,
    over: Keys = "episode",
) -> Signal:
    """Signal: MatchTIR's turn reward, mean over the turn's calls of their similarity to matched gold calls.

    0 without calls.

    calls, gold: columns of JSON text; gold is read from the episode's first row that has it, the gold calls of a table
    must be readable. Calls that are not are one call without a partner. answer, truth: columns of text; then a turn
    without calls but with an answer earns `token_f1` (the released code compares sets of words). Calls of agents that
    act at once stand in the order of names. The paper speaks of an optimal matching; its released code is
    method="greedy", whose own default for `unmatched` is -0.5, 0 in training.

    Raises:
        ExpressionError: the method is unknown, one of answer and truth is missing, or something is not a column.
        InputError: gold calls that are not a list of calls; names the row.
    """
    if method not in METHODS:
        raise ExpressionError(f"match_reward: method={method!r}{nearest(str(method), METHODS)}")
    paid = Signal(
        "match_reward", column(calls), column(gold), method=method, unmatched=float(unmatched), over=joined(over)
    )
    if answer is None and truth is None:
        return paid
    if answer is None or truth is None:
        raise ExpressionError("match_reward: give both answer and truth, or neither")
    told = token_f1(answer, truth)
    return where(no_calls(calls) & ~is_missing(told), told, paid)


@register()
def no_calls(calls: str) -> Signal:
    """Signal, a mask: 1 on turns whose text of calls is missing, empty or an empty list, else 0."""
    empty = text_of(calls).str.strip_chars()
    return as_signal(empty.is_null() | empty.is_in(["", "[]"]))


@kernel("match_reward")
def _match_reward(evaluation: Evaluation, node: Signal) -> np.ndarray:
    both, gold_column = texts(evaluation, node), node.inputs[1].options["name"]
    read = CallReader()
    called = [[] if not text else read(text) for text in both["0"]]
    wanted = [[] if not text else read(text) for text in both["1"]]
    bad = next((row for row, calls in enumerate(wanted) if calls is UNREADABLE), None)
    if bad is not None:
        form = '[{"name": "f", "arguments": {}}]'
        raise InputError(f"match_reward: row {bad} of {gold_column!r} is not a list of calls like {form}")
    unreadable = np.array([calls is UNREADABLE for calls in called], bool)
    called = [[] if calls is UNREADABLE else calls for calls in called]
    unmatched = node.options["unmatched"]
    reward = np.where(unreadable, unmatched, 0.0)
    segments = evaluation.segments(node.options["over"])
    order = np.arange(len(reward)) if segments.order is None else segments.order
    for start, length in zip(segments.starts.tolist(), segments.lengths.tolist(), strict=True):
        rows = order[start : start + length].tolist()
        gold: list[Any] = next((wanted[row] for row in rows if wanted[row]), [])
        owner = [row for row in rows for _ in called[row]]
        flat = [call for row in rows for call in called[row]]
        similarity = np.array([_similarity(one, other) for one in flat for other in gold])
        paid = matched(similarity.reshape(len(flat), len(gold)), method=node.options["method"], unmatched=unmatched)
        np.add.at(reward, owner, paid / np.array([len(called[row]) for row in owner]))
    return reward
