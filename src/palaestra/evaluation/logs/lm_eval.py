"""lm-evaluation-harness: `samples_<task>_<date>.jsonl`, a line per document and filter (`--log_samples`).

A document is a trial. Its score is the first metric of the first filter; every "metric,filter" stands in
`score.metric,filter`, because filters are views of one answer and not trials. The document's digest is part of the
task's name, so that only the same document is ever paired. The model's name comes from `results_<date>.json` beside it.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from palaestra.evaluation.logs.files import Documents
from palaestra.evaluation.logs.rows import Rows, dump, rest, text

_KNOWN = {"doc_id", "resps", "filtered_resps", "filter", "metrics", "arguments"}
_NAME = re.compile(r"samples_(?P<task>.+)_(?P<date>\d{4}-\d\d-\d\dT[\d.:-]+)\.jsonl$")


def fits(record: dict[str, Any]) -> bool:
    """What the harness writes for every document."""
    return record.keys() >= {"doc_id", "resps"}


def is_results(record: dict[str, Any]) -> bool:
    """`results_<date>.json`, which has no trials."""
    return record.keys() >= {"results", "configs", "versions"}


def read(found: Documents, rows: Rows) -> None:
    """One episode of one turn per document."""
    path = Path(rows.file)
    name = _NAME.search(path.name)
    task = name["task"] if name else path.stem.removeprefix("samples_")
    system = _model(path, name["date"] if name else "")
    by_document: dict[str, list[tuple[str, dict[str, Any]]]] = {}
    for where, record in found:
        if not fits(record):
            rows.problem(where, "a line without doc_id and resps")
            continue
        by_document.setdefault(dump(record["doc_id"]), []).append((where, record))
    for document, views in by_document.items():
        where, first = views[0]
        scores = {}
        for _, view in views:
            metrics = view.get("metrics")
            for metric in metrics if isinstance(metrics, list) else []:
                if isinstance(metric, str) and isinstance(view.get(metric), int | float | None):
                    scores[f"{metric},{text(view.get('filter', 'none'))}"] = view.get(metric)
        digest = first.get("doc_hash")
        metrics = set(first["metrics"]) if _names(first.get("metrics")) else set()
        turn = {
            "policy": system,
            "observation": _prompt(first.get("arguments")),
            "action": _answer(first),
            "metadata": rest(first, _KNOWN | metrics),
        }
        rows.episode(
            where,
            [turn],
            system=system,
            task=f"{task}/{document}" + (f"#{digest[:8]}" if isinstance(digest, str) else ""),
            score=next(iter(scores.values()), None),
            scores=scores,
        )


def _names(metrics: Any) -> bool:
    return isinstance(metrics, list) and all(isinstance(metric, str) for metric in metrics)


def _prompt(arguments: Any) -> Any:
    """The context of the first request: {"gen_args_0": {"arg_0": context, …}}, or a list of pairs in older files."""
    first = next(iter(arguments.values()), None) if isinstance(arguments, dict) else arguments
    if isinstance(first, dict):
        return first.get("arg_0")
    while isinstance(first, list) and first:
        first = first[0]
    return first


def _answer(record: dict[str, Any]) -> Any:
    """The first answer as text; for multiple choice the log-likelihoods as JSON."""
    answer = record.get("filtered_resps", record.get("resps"))
    return answer[0] if isinstance(answer, list) and len(answer) == 1 else answer


def _model(path: Path, date: str) -> str | None:
    """Name of the model in the results of the same run; without a name, the folder, which the harness names so."""
    results = path.with_name(f"results_{date}.json")
    if not results.is_file():
        return None
    try:
        said = json.loads(results.read_text(encoding="utf-8"))
        named = said.get("model_name") or said.get("config", {}).get("model_args", {}).get("pretrained")
    except (OSError, ValueError, AttributeError, RecursionError):
        return path.parent.name
    return text(named) if named else path.parent.name
