"""verl's rollout JSONL (`trainer.rollout_data_dir`, one file per step): input, output, gts, score, step, and extras.

The task is the prompt, `iteration` the step. Prompts stand in the file as text; their tokens are not in it.
"""

from __future__ import annotations

from typing import Any

from palaestra.evaluation.logs.columns import task_of
from palaestra.evaluation.logs.files import Documents
from palaestra.evaluation.logs.readers import READERS, LogReader
from palaestra.evaluation.logs.rows import Rows, rest, text

_KNOWN = {"input", "output", "score", "step"}


@READERS.register("verl")
def verl() -> LogReader:
    """Makes the `LogReader` of verl's rollouts."""
    return LogReader(read, fits=fits)


def fits(record: dict[str, Any]) -> bool:
    """Whether a JSON object is a line of verl's rollouts."""
    return record.keys() >= {"input", "output", "score", "step"}


def read(found: Documents, rows: Rows) -> None:
    """Adds a one-turn episode per (place, JSON object) pair to `Rows`; extra rewards (numbers) go to `score.NAME`."""
    for where, record in found:
        if not fits(record):
            rows.problem(where, "a line without input, output, score and step")
            continue
        extras = {k: v for k, v in record.items() if k not in _KNOWN and isinstance(v, int | float)}
        turn = {
            "observation": record["input"],
            "action": record["output"],
            "metadata": rest(record, _KNOWN | extras.keys()),
        }
        task = task_of(text(record["input"]))
        rows.episode(where, [turn], task=task, iteration=record["step"], score=record["score"], scores=extras)
