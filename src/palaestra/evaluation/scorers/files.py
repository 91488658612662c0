"""Scores of reward models and judges as benchmarks' own tools write them: RewardBench 2 and RewardMATH."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import polars as pl

from palaestra.errors import InputError, StorageError
from palaestra.evaluation.scorers.groups import known

Steps = Literal["min", "max", "product", "geometric_mean", "mean", "mean_logit", "mean_odds", "last"]
RIGHT = "human_to_GPT-4"
"""How RewardMATH names the source of its right solution."""
UNREAD = -1.0
"""What RewardBench 2 writes for a rating that could not be read; only of judges, for a reward may be -1."""


def read_scores(path: str | Path, *, steps: Steps = "min") -> pl.DataFrame | None:
    """Reads RewardBench 2's or RewardMATH's file to `group, candidate, score, correct`; None if it is neither.

    RewardBench 2 (what `run_v2.py` saves, one JSON object of columns, or rows of it): also `domain`, and of ties
    `prompt` and `kind`. A rating of -1 of a generative judge could not be read and is null.
    RewardMATH (a list of problems): step scores of a process model are reduced by `steps`; of a pairwise judge each
    comparison is a verdict instead, `group, item, order, value, ok, answer, truth`, on the right solution, so `value`
    is 1 if it was preferred, `truth` is 1, and `order` is 0 where it was shown first.

    Raises:
        StorageError: no such file, or one that is no JSON where it should be.
        InputError: it is of another shape inside.
    """
    known("read_scores", "steps", steps, get_args(Steps))
    path = Path(path)
    if path.suffix not in (".json", ".jsonl", ".ndjson"):
        return None
    try:
        text = path.read_text(encoding="utf-8")
        data = (
            json.loads(text)
            if path.suffix == ".json"
            else [json.loads(line) for line in text.split("\n") if line.strip()]
        )
    except (OSError, ValueError) as error:
        raise StorageError(f"{path}: cannot be read: {error}") from error
    try:
        if isinstance(data, dict) and {"scores", "num_correct", "id", "subset"} <= set(data):
            size = len(data["scores"])
            columns = {k: v for k, v in data.items() if isinstance(v, list) and len(v) == size}
            rows = [dict(zip(columns, each, strict=True)) for each in zip(*columns.values(), strict=True)]
            return _rewardbench(rows, "generative" in str(data.get("model_type", "")).lower())
        if not isinstance(data, list) or not data or not isinstance(data[0], dict):
            return None
        if {"scores", "num_correct", "id", "subset"} <= set(data[0]):
            return _rewardbench(data, "generative" in str(data[0].get("model_type", "")).lower())
        if {"solution_reference", "score", "problem"} <= set(data[0]):
            return _rewardmath(data, steps)
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(f"{path}: {type(error).__name__}: {error}; a row is not as its benchmark writes it") from error
    return None


def _rewardbench(rows: list[dict[str, Any]], generative: bool) -> pl.DataFrame:
    found: list[dict[str, Any]] = []
    for number, row in enumerate(rows):
        ties = str(row["subset"]).lower() == "ties"
        kind, _, prompt = str(row["id"]).partition(":") if ties else (None, None, None)
        for i, raw in enumerate(row["scores"]):
            score = raw[0] if isinstance(raw, list) else raw
            score = None if score is None or (generative and float(score) == UNREAD) else float(score)
            one = {
                "domain": str(row["subset"]),
                "group": number,
                "candidate": i,
                "score": score,
                "correct": i < row["num_correct"],
            }
            found.append(one | {"prompt": prompt, "kind": kind})
    schema = {"domain": pl.String, "group": pl.Int64, "candidate": pl.Int64, "score": pl.Float64, "correct": pl.Boolean}
    return pl.DataFrame(found, schema={**schema, "prompt": pl.String, "kind": pl.String})


def _rewardmath(problems: list[dict[str, Any]], steps: Steps) -> pl.DataFrame:
    pairwise = "chosen_position" in problems[0]
    found: list[dict[str, Any]] = []
    for number, row in enumerate(problems):
        for i, (source, score) in enumerate(zip(row["solution_reference"], row["score"], strict=True)):
            one: dict[str, Any] = {"group": number, "candidate": i}
            if pairwise:
                place, ok = row["chosen_position"][i], score in ("A", "B")
                one = {
                    "group": number,
                    "item": f"{number}:{i}",
                    "order": int(place == "B"),
                    "ok": ok,
                    "answer": str(score),
                }
                one |= {"value": float(score == place) if ok else None, "truth": 1.0}
            else:
                value = REDUCE[steps](np.asarray(score, float)) if isinstance(score, list) else score
                one |= {"score": None if value is None else float(value), "correct": source == RIGHT}
            found.append(one)
    return pl.DataFrame(found, infer_schema_length=None)


def _geometric(x: np.ndarray) -> float:
    return float(np.prod(x) ** (1 / len(x)))


def _logit(x: np.ndarray) -> float:
    with np.errstate(divide="ignore"):
        return float(1 / (1 + np.exp(-np.mean(np.log(x / (1 - x))))))


def _odds(x: np.ndarray) -> float:
    with np.errstate(divide="ignore"):
        return float(max(0.0, np.mean(x / (1 - x))))


def _known(rule: Callable[[np.ndarray], Any]) -> Callable[[np.ndarray], float | None]:
    """A list without steps has no score."""
    return lambda x: None if not len(x) or not math.isfinite(made := float(rule(x))) else made


REDUCE: dict[str, Callable[[np.ndarray], float | None]] = {
    "min": _known(np.min),
    "max": _known(np.max),
    "product": _known(np.prod),
    "geometric_mean": _known(_geometric),
    "mean": _known(np.mean),
    "mean_logit": _known(_logit),
    "mean_odds": _known(_odds),
    "last": _known(lambda x: x[-1]),
}
"""How step scores of a process model become one, by the names of RewardMATH's code."""
