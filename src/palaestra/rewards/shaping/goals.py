"""Goal similarity: how much of a goal a state already shows, as a score or as a potential.

Two forms: factorised states (objects with attributes, JSON) compared piece by piece, and one embedding per state
projected on the line from a baseline to the goal. Left out: the models that extract states or embed; a word-count
cosine stands in for a text embedder, and `goal_match` takes any other.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import polars as pl

from palaestra.algebra.kernels import Evaluation, kernel
from palaestra.algebra.signals import Signal, SignalLike, as_signal, register
from palaestra.errors import InputError
from palaestra.rewards.match.words import column, matrix, texts

Similarity = Callable[[str, str], float]
State = Sequence[tuple[str, Mapping[str, str]]]


@lru_cache(maxsize=100_000)
def word_cosine(one: str, other: str) -> float:
    """Cosine similarity of the word counts of two texts, without case, in [0, 1]; 0 if one has no words.

    >>> round(word_cosine("in the hand", "in the fridge"), 4)
    0.6667
    """
    first, second = (Counter(re.findall(r"\w+", text.casefold())) for text in (one, other))
    size = math.sqrt(sum(n * n for n in first.values()) * sum(n * n for n in second.values()))
    return sum(n * second[word] for word, n in first.items()) / size if size else 0.0


def goal_match(state: State, goal: State, similarity: Similarity = word_cosine, *, decimals: int | None = 2) -> float:
    """Mean similarity in [0, 1] of goal objects (description, {attribute: value}) to their best match in a state; [52].

    arXiv 2603.09400.

    Both are objects (description, {attribute: value}). For each goal object, over all objects of the state: similarity
    of the descriptions times the mean, over the goal's attributes, of the similarity of the values, the state's
    attribute being the one whose name is most similar; without attributes the description alone. The best object
    counts; the mean over goal objects is limited to [0, 1] and truncated to `decimals`, as in the released code.

    >>> goal_match([("mug", {"location": "on the table"})], [("mug", {"location": "in the fridge"})])
    0.33
    """
    if not state or not goal:
        return 0.0

    def attribute(name: str, value: str, given: Mapping[str, str]) -> float:
        if not given:
            return 0.0
        return similarity(given[max(given, key=lambda other: similarity(other, name))], value)

    def matched(description: str, attributes: Mapping[str, str]) -> float:
        scores = []
        for other, given in state:
            parts = [attribute(name, value, given) for name, value in attributes.items()]
            scores.append(similarity(other, description) * (sum(parts) / len(parts) if parts else 1.0))
        return max(scores)

    score = min(max(sum(matched(*each) for each in goal) / len(goal), 0.0), 1.0)
    return score if decimals is None else math.floor(score * 10**decimals + 1e-9) / 10**decimals


@register()
def goal_score(state: str, goal: str) -> Signal:
    """Signal: `goal_match` of two JSON text columns, state and goal, by the cosine of word counts.

    Missing where one of them is.

    Both hold JSON: `[{"description": "mug", "attributes": {"location": "on the table"}}, …]`. A goal may stand on each
    row anew. As a potential: `shape(goal_score(…))`. For an embedding model use `goal_match` and add a column.
    """
    return Signal("goal_score", column(state), column(goal))


@kernel("goal_score", range="row")
def _goal_score(evaluation: Evaluation, node: Signal) -> np.ndarray:
    state, goal = (child.options["name"] for child in node.inputs)
    return goal_similarities(texts(evaluation, node), (state, goal))


def goal_similarities(both: pl.DataFrame, names: tuple[str, str], similarity: Similarity = word_cosine) -> np.ndarray:
    """`goal_match` per row of a table of JSON columns state, goal (`names` in errors), float64[rows]; NaN where null.

    Raises:
        InputError: a text holds no objects; says in which of the columns `names`.
    """
    keys, found = both.columns, []
    distinct = both.unique(maintain_order=True)
    for state, goal in distinct.iter_rows():
        known = state is not None and goal is not None
        found.append(goal_match(objects_in(state, names[0]), objects_in(goal, names[1]), similarity) if known else None)
    scored = distinct.with_columns(pl.Series("found", found, pl.Float64))
    return both.join(scored, on=keys, how="left", nulls_equal=True, maintain_order="left")["found"].to_numpy()


def objects_in(text: str, name: str) -> list[tuple[str, dict[str, str]]]:
    """List of objects (description, {attribute: value}) parsed from a JSON text; InputError with `name` if malformed.

    Raises:
        InputError: it holds something else; `name` says where it stood.
    """
    try:
        objects: list[dict[str, Any]] = json.loads(text)
        return [
            (
                str(each["description"]),
                {str(key): str(value) for key, value in dict(each.get("attributes") or {}).items()},
            )
            for each in objects
        ]
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        form = '[{"description": "mug", "attributes": {}}]'
        raise InputError(f"goal_score: column {name!r} holds {text[:80]!r}, not objects like {form}") from error


def projected_similarity(
    states: np.ndarray, goal: np.ndarray, baseline: np.ndarray | None = None, alpha: float = 0.0
) -> np.ndarray:
    """Similarity 1 - ½‖P(s - g)‖² of state embeddings to a goal, float64[n]; [170] VLM-RM.

    arXiv 2310.12921; P is partly a projection:

    P = α·vvᵀ/‖v‖² + (1 - α)·I, v = g - b.

    states: float[n, d], goal, baseline: float[d] or several prompts float[k, d]; all are brought to length 1, prompts
    are averaged. α = 0 with one goal is the cosine; α = 1 sees only the line from baseline to goal. Returns float64[n].

    Raises:
        InputError: α is outside [0, 1], α > 0 without a baseline, or a vector is 0.

    >>> projected_similarity(np.array([[1.0, 1, 1]]), np.array([1.0, 0, 0]), np.array([0, 1.0, 0]), alpha=0.5).round(5)
    array([0.70684])
    """
    s, g = _unit(states), _unit(goal)
    b = np.zeros_like(g) if baseline is None else _unit(baseline)
    if not 0 <= alpha <= 1 or (alpha > 0 and baseline is None):
        raise InputError(f"projected_similarity: {alpha=} must be in [0, 1], and 0 without a baseline")
    g, b = np.atleast_2d(g).mean(axis=0), np.atleast_2d(b).mean(axis=0)
    return _projected(s @ g, s @ b, float(g @ g), float(g @ b), float(b @ b), alpha)


def _unit(vectors: np.ndarray) -> np.ndarray:
    vectors = np.asarray(vectors, float)
    size = np.linalg.norm(vectors, axis=-1, keepdims=True)
    if (size == 0).any():
        raise InputError("projected_similarity: a vector of length 0 has no direction")
    return np.asarray(vectors / size)


def _projected(sg: Any, sb: Any, gg: Any, gb: Any, bb: Any, alpha: float) -> np.ndarray:
    """From the products of s, g and b; s has length 1. ‖P x‖² = (1-α)²‖x‖² + (1-(1-α)²)(x·v)²/‖v‖² for x = s - g."""
    keep = (1.0 - alpha) ** 2
    along, length = (sg - sb) - (gg - gb), gg - 2 * gb + bb
    share = np.where(np.asarray(length) > 1e-12, np.square(along) / np.maximum(length, 1e-12), 0.0 * length)
    return np.asarray(1.0 - 0.5 * (keep * (1.0 - 2 * sg + gg) + (1.0 - keep) * share))


@register()
def goal_projection(state: SignalLike, goal: SignalLike, baseline: SignalLike, *, alpha: float = 0.5) -> Signal:
    """Signal: `projected_similarity` of three list columns (state, goal, baseline), row by row.

    Missing where one is missing or all zero.
    """
    if not 0 <= alpha <= 1:
        raise InputError(f"goal_projection: {alpha=} is outside [0, 1]")
    return Signal("goal_projection", *map(as_signal, (state, goal, baseline)), alpha=float(alpha))


@kernel("goal_projection", range="row")
def _goal_projection(evaluation: Evaluation, node: Signal) -> np.ndarray:
    s, g, b = (matrix(evaluation, child, None, node) for child in node.inputs)
    if not s.shape[1] == g.shape[1] == b.shape[1]:
        raise InputError(f"{node}: vectors of {s.shape[1]}, {g.shape[1]} and {b.shape[1]} numbers")
    products = {
        x + y: np.einsum("nd,nd->n", one, other)
        for x, one, y, other in (
            ("s", s, "s", s),
            ("g", g, "g", g),
            ("b", b, "b", b),
            ("s", s, "g", g),
            ("s", s, "b", b),
            ("g", g, "b", b),
        )
    }
    ss, gg, bb = (np.sqrt(np.where(products[key] > 0, products[key], np.nan)) for key in ("ss", "gg", "bb"))
    one = np.ones(len(s))
    return _projected(
        products["sg"] / (ss * gg),
        products["sb"] / (ss * bb),
        one,
        products["gb"] / (gg * bb),
        one,
        node.options["alpha"],
    )
