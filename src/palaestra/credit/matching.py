"""Matching: which tool call was meant for which, as a bipartite matching between what was called and what was right.

Calls are JSON in text columns, `[{"name": ..., "arguments": {...}}, ...]`: those of the turn, and on any row of the
episode those that would have been right. Left out: how calls are parsed out of an action; that belongs to the agent.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
import polars as pl
from scipy.optimize import linear_sum_assignment
from scipy.special import logsumexp

from palaestra.algebra.kernels import KERNELS, Evaluation
from palaestra.algebra.returns import return_to_go
from palaestra.algebra.signals import (
    Signal,
    SignalLike,
    Singleton,
    as_signal,
    register,
    standardise,
    total,
)
from palaestra.credit.weights import mix
from palaestra.errors import ExpressionError, InputError, nearest

Call = Mapping[str, Any]
Method = Literal["optimal", "greedy", "sinkhorn"]
METHODS = ("optimal", "greedy", "sinkhorn")


def call_similarity(predicted: Call, gold: Call) -> float:
    """0 if the names differ (case does not count), else (1 + J + v) / (2 + g), in [0, 1].

    J: Jaccard index of the parameter names, 1 if there are none; v: gold parameters with an equal value; g: gold ones.

    >>> call_similarity({"name": "f", "arguments": {"x": 1, "y": 2}}, {"name": "f", "arguments": {"x": 1}})
    0.8333333333333334
    """
    if str(predicted["name"]).casefold() != str(gold["name"]).casefold():
        return 0.0
    given, wanted = (call.get("arguments") or {} for call in (predicted, gold))
    together = given.keys() | wanted.keys()
    shared = len(given.keys() & wanted.keys()) / len(together) if together else 1.0
    equal = sum(name in given and given[name] == value for name, value in wanted.items())
    return float((1 + shared + equal) / (2 + len(wanted)))


def token_f1(answer: str, truth: str) -> float:
    """F1 of the sets of words, without case; 1 if both are empty."""
    one, other = (set(text.casefold().split()) for text in (answer, truth))
    return 2 * len(one & other) / (len(one) + len(other)) if one or other else 1.0


def match(
    similarity: np.ndarray, method: Method = "optimal", *, unmatched: float = 0.0, temperature: float = 0.1
) -> np.ndarray:
    """Reward of each predicted item, float64[n], from similarity float64[n, m] to the gold ones.

    optimal: the one-to-one assignment of largest sum. greedy: the largest first. Both pay the similarity of the pair,
    `unmatched` to items without a partner of positive similarity. sinkhorn: Σ_j T_ij·S_ij, T the transport plan between
    uniform marginals of cost -S with entropy weight `temperature`.

    Raises:
        InputError: the method is unknown, or the similarity is not a finite matrix.

    >>> match(np.array([[0.9, 0.8], [0.8, 0.1]])), match(np.array([[0.9, 0.8], [0.8, 0.1]]), "greedy")
    (array([0.8, 0.8]), array([0.9, 0.1]))
    """
    if method not in METHODS:
        raise InputError(f"match: method={method!r}{nearest(str(method), METHODS)}")
    if similarity.ndim != 2 or not np.isfinite(similarity).all():
        raise InputError(f"match: similarity {similarity.shape} must be [predicted, gold] and finite")
    number, gold = similarity.shape
    if not number or not gold:
        return np.full(number, unmatched)
    if method == "sinkhorn":
        return np.asarray((_transport(similarity / temperature) * similarity).sum(axis=1))
    if method == "optimal":
        rows, columns = linear_sum_assignment(similarity, maximize=True)
        pairs = zip(rows.tolist(), columns.tolist(), strict=True)
    else:
        pairs = zip(*_greedy(similarity), strict=True)
    reward = np.full(number, unmatched)
    for row, column in pairs:
        if similarity[row, column] > 0:
            reward[row] = similarity[row, column]
    return reward


def _greedy(similarity: np.ndarray) -> tuple[list[int], list[int]]:
    rows, columns = [], []
    for place in np.argsort(-similarity, axis=None, kind="stable"):
        row, column = divmod(int(place), similarity.shape[1])
        if row not in rows and column not in columns:
            rows.append(row)
            columns.append(column)
    return rows, columns


def _transport(scores: np.ndarray, iterations: int = 200) -> np.ndarray:
    """Sinkhorn's plan of exp(scores) with uniform marginals, in logarithms."""
    number, gold = scores.shape
    left, right = np.zeros((number, 1)), np.zeros((1, gold))
    for _ in range(iterations):
        left = -np.log(number) - logsumexp(scores + right, axis=1, keepdims=True)
        right = -np.log(gold) - logsumexp(scores + left, axis=0, keepdims=True)
    return np.asarray(np.exp(scores + left + right))


@register()
def match_reward(
    calls: SignalLike,
    gold: SignalLike,
    answer: SignalLike | None = None,
    truth: SignalLike | None = None,
    *,
    method: Method = "optimal",
    unmatched: float = 0.0,
) -> Signal:
    """MatchTIR's reward of a turn: mean over its calls of what the episode's matching pays; 0 for a turn without calls.

    calls, gold: columns of JSON text; gold is read from the episode's first row that has it. answer, truth: columns of
    text; then a turn without calls but with an answer earns `token_f1`. The paper speaks of an optimal matching; its
    released code is method="greedy", whose own default for `unmatched` is -0.5, 0 in training.

    Raises:
        ExpressionError: the method is unknown, one of answer and truth is missing, or something is not a column.
        InputError: a text is not a list of calls; names the row.
    """
    if method not in METHODS:
        raise ExpressionError(f"match_reward: method={method!r}{nearest(str(method), METHODS)}")
    if (answer is None) != (truth is None):
        raise ExpressionError("match_reward: give both answer and truth, or neither")
    columns = [as_signal(column) for column in (calls, gold, answer, truth) if column is not None]
    for column in columns:
        if column.op != "col":
            raise ExpressionError(f"match_reward: {column} is not a column of text; give its name")
    return Signal("match_reward", *columns, method=method, unmatched=float(unmatched))


def _match_reward(evaluation: Evaluation, node: Signal) -> np.ndarray:
    turns = evaluation.turns
    columns = [turns[column.options["name"]].cast(pl.String).to_list() for column in node.inputs]
    called, wanted = (_read(texts, str(name)) for texts, name in zip(columns[:2], node.inputs[:2], strict=True))
    reward = np.zeros(len(turns))
    for rows in _rows_by_key(turns.codes("episode").ids):
        gold = next((wanted[row] for row in rows if wanted[row]), [])
        owner = np.repeat(rows, [len(called[row]) for row in rows])
        flat = [call for row in rows for call in called[row]]
        similarity = np.array([call_similarity(one, other) for one in flat for other in gold])
        paid = match(
            similarity.reshape(len(flat), len(gold)), node.options["method"], unmatched=node.options["unmatched"]
        )
        np.add.at(reward, owner, paid / np.array([len(called[row]) for row in owner]))
    for row, (answer, truth) in enumerate(zip(*columns[2:], strict=True)) if columns[2:] else ():
        if not called[row] and answer is not None and truth is not None:
            reward[row] = token_f1(answer, truth)
    return reward


KERNELS["match_reward"] = _match_reward


def _rows_by_key(ids: np.ndarray) -> list[np.ndarray]:
    """Rows of each key, in the order of the table."""
    order = np.argsort(ids, kind="stable")
    return np.split(order, np.flatnonzero(np.diff(ids[order])) + 1) if len(ids) else []


def _read(texts: Sequence[str | None], column: str) -> list[list[Call]]:
    """Calls of each row. The loop is the price of text: one JSON document per row."""
    calls: list[list[Call]] = []
    for row, text in enumerate(texts):
        try:
            found = json.loads(text) if text else []
            calls.append(
                [{"name": str(call["name"]), "arguments": dict(call.get("arguments") or {})} for call in found]
            )
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            form = '[{"name": "f", "arguments": {}}]'
            raise InputError(
                f"match_reward: row {row} of {column} is not a list of calls like {form}: {error!r}"
            ) from error
    return calls


@register()
def matchtir(
    reward: SignalLike = "reward",
    *,
    gamma: float = 0.9,
    weight: float = 0.5,
    ddof: int = 1,
    eps: float = 1e-6,
    singleton: Singleton = "raw",
) -> Signal:
    """[97] MatchTIR (arXiv 2601.10712): weight · credit of the episode + (1 - weight) · credit of the turn.

    The episode's is GRPO of its total reward; the turn's is its return-to-go, discounted by γ, standardised among the
    group's turns of the same number. A lone sample passes raw, as in the released code, against which this is checked.
    reward: graded turn by turn, e.g. `match_reward("calls", "gold")`.
    """
    how: dict[str, Any] = {"ddof": ddof, "eps": eps, "singleton": singleton}
    episode = standardise(total(reward, over="episode"), over="group", unit="episode", **how)
    to_go = return_to_go(gamma, reward, over="episode")
    return mix(weight, episode, standardise(to_go, over=("group", "turn"), **how))
