"""Columns that tables of the conformance test have beyond the schema: lists, boxes, calls, verdicts, by their names.

A column of another name is filled with random numbers in [0, 1].
"""

from __future__ import annotations

import json
from collections.abc import Callable

import numpy as np
import polars as pl

from palaestra.algebra.turns import Turns

Maker = Callable[[Turns, np.random.Generator], pl.Series]


def made(name: str, turns: Turns, rng: np.random.Generator) -> pl.Series:
    """Random plausible `pl.Series` for the column of this name, as long as the table, for tests of signals."""
    if name in COLUMNS:
        return COLUMNS[name](turns, rng).alias(name)
    return pl.Series(name, rng.random(len(turns)))


def _lists(width: int) -> Maker:
    return lambda turns, rng: pl.Series(rng.random((len(turns), width)).tolist(), dtype=pl.List(pl.Float64))


def _box(turns: Turns, rng: np.random.Generator) -> pl.Series:
    corner, size = rng.integers(0, 60, (2, len(turns), 2))
    return pl.Series(np.hstack([corner, corner + size + 1]).tolist(), dtype=pl.List(pl.Float64))


def _choice(*choices: object, dtype: pl.DataType | type[pl.DataType] = pl.String) -> Maker:
    return lambda turns, rng: pl.Series([choices[i] for i in rng.integers(len(choices), size=len(turns))], dtype=dtype)


def _of_episode(maker: Maker) -> Maker:
    """The same on every row of an episode."""

    def make(turns: Turns, rng: np.random.Generator) -> pl.Series:
        codes = turns.codes("episode").ids
        first = np.zeros(int(codes.max(initial=-1)) + 1, np.int64)
        first[codes] = np.arange(len(codes))
        return maker(turns, rng).gather(first[codes])

    return make


def _per_token(turns: Turns, rng: np.random.Generator) -> pl.Series:
    lengths = turns["logprobs"].list.len().fill_null(0).to_list()
    return pl.Series([(-rng.random(length)).tolist() for length in lengths], dtype=pl.List(pl.Float64))


def _turns_so_far(turns: Turns, rng: np.random.Generator) -> pl.Series:
    last = turns["turn"].fill_null(0).to_numpy()
    return pl.Series([sorted({int(rng.integers(0, t + 1)) for _ in range(4)}) for t in last], dtype=pl.List(pl.Int64))


_CALL = [[{"name": "f", "arguments": {"x": x, "y": [1]}}, {"name": "g"}][: 1 + x] for x in (0, 1)]
_STATE = '[{"description": "red mug", "attributes": {"location": "in the fridge"}}]'
_TRUTH = pl.List(pl.Boolean)

COLUMNS: dict[str, Maker] = {
    "action_values": _lists(2),
    "answer": _choice("4", "5", "six of them"),
    "box": _box,
    "calls": _choice(*map(json.dumps, _CALL), "[]", "no calls at all", None),
    "coalition_values": _lists(4),
    "correct": _of_episode(_choice(0, 1, dtype=pl.Int64)),
    "embedding": _lists(3),
    "entities": _of_episode(_choice(["did 1", "did 2"], ["did 0"], dtype=pl.List(pl.String))),
    "evidence": _turns_so_far,
    "features": lambda turns, rng: pl.Series(rng.random((len(turns), 2)).tolist(), dtype=pl.List(pl.Float32)),
    "gate": _of_episode(_choice(0, 1, dtype=pl.Int64)),
    "goal": _choice(_STATE),
    "goal_embedding": _lists(3),
    "gold": _choice([3, 7], [1], dtype=pl.List(pl.Int64)),
    "gold_calls": _of_episode(_choice(*map(json.dumps, _CALL))),
    "gold_point": _lists(2),
    "hop": lambda turns, rng: pl.Series(rng.uniform(-1, 1, len(turns))),
    "image_size": _choice([200.0, 200.0], dtype=pl.List(pl.Float64)),
    "item": _of_episode(_choice(0, 1, 2, dtype=pl.Int64)),
    "label": _choice(0, 1, dtype=pl.Int64),
    "message": _choice("hello", "key found"),
    "metadata": _choice("data loaded", "model trained, data loaded", "nothing"),
    "milestone": _choice(0, 1, 2, dtype=pl.Int64),
    "origin_embedding": _lists(3),
    "player": _choice(0, 1, dtype=pl.Int64),
    "point": _lists(2),
    "prm_logprobs": _per_token,
    "probabilities": _lists(2),
    "room": _choice("kitchen", "hall"),
    "scene": _choice(_STATE, _STATE.replace("fridge", "sink")),
    "selected": _choice([3, 7, 9], [], dtype=pl.List(pl.Int64)),
    "success_votes": _choice([True, True, False], [False], dtype=_TRUTH),
    "target_box": _box,
    "token_values": _per_token,
    "tool": _choice("search", "submit"),
    "truth": _choice("4", "five", "six of these"),
    "valid_votes": _choice([True], [False, True, False], dtype=_TRUTH),
    "view": _of_episode(_choice("original", "rephrased")),
    "weight": lambda turns, rng: pl.Series(rng.random(len(turns))),
}
"""How to make them."""
