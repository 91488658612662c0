"""lm-evaluation-harness: `samples_<task>_<date>.jsonl`, a line per document and filter (`--log_samples`).

A document is a trial. Its score is the first metric of the first filter that is one: between 0 and 1 for every
document of the file, and no likelihood, which has another unit and would be averaged with accuracies of other tasks.
Every "metric,filter" stands in `score.metric,filter`, because filters are views of one answer and not trials. A
rolling likelihood, log p and the words or bytes it is about, gives `score.word_perplexity,none` of the document
(smaller is better) and `score.word_loglikelihood,none`, log p per word, of which a mean makes sense. The document's
digest is part of the task's name, so that only the same document is ever paired. The model's name comes from
`results_<date>.json` beside it.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from palaestra.evaluation.logs.files import Documents
from palaestra.evaluation.logs.readers import READERS, LogReader
from palaestra.evaluation.logs.rows import Rows, dump, rest, text

_KNOWN = {"doc_id", "resps", "filtered_resps", "filter", "metrics", "arguments"}
_SAID = _KNOWN | {"doc", "target", "doc_hash", "prompt_hash", "target_hash", "task_name", "schema_version"}
"""What a line holds beside its metrics."""
_UNIT = re.compile(r"perplexity|bits_per|likelihood|logprob|nll|entropy|loss|brier|error|wer\b|ter\b|cer\b")
"""Metrics in another unit, or of which less is better, though they may lie between 0 and 1."""
_ROLLING: dict[str, tuple[str, Callable[[float], float]]] = {
    "word_perplexity": ("word", lambda mean: math.exp(min(-mean, 200.0))),
    "byte_perplexity": ("byte", lambda mean: math.exp(min(-mean, 200.0))),
    "bits_per_byte": ("byte", lambda mean: -mean / math.log(2)),
}
_NAME = re.compile(r"samples_(?P<task>.+)_(?P<date>\d{4}-\d\d-\d\dT[\d.:-]+)\.jsonl$")


@READERS.register("lm-eval")
def lm_eval() -> LogReader:
    """Makes the `LogReader` of lm-evaluation-harness: samples_*.jsonl."""
    return LogReader(read, fits=fits, companion=is_results)


def fits(record: dict[str, Any]) -> bool:
    """Whether a JSON object is a line of lm-evaluation-harness, written for one document."""
    return record.keys() >= {"doc_id", "resps"}


def is_results(record: dict[str, Any]) -> bool:
    """Whether a JSON object is that of lm-evaluation-harness's `results_<date>.json`, which has no trials."""
    return record.keys() >= {"results", "configs", "versions"}


def read(found: Documents, rows: Rows) -> None:
    """Adds an episode of one turn per document of `found`, (place, JSON object) pairs, to `Rows`; task by file name."""
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
    table = {document: _scores(views) for document, views in by_document.items()}
    primary = _primary(table.values())
    if primary is not None and (others := _other_filters(primary, table.values())):
        rows.problem("", f"several filters: the score is {primary}; --score {others[0]!r} compares by another one")
    measured = list(dict.fromkeys(name for scores in table.values() for name in scores))
    if primary is None and measured:
        known = ", ".join(f"score.{name}" for name in measured[:4])
        rows.problem("", f"no metric is a score between 0 and 1, so none is averaged with others; there is {known}")
    for document, views in by_document.items():
        where, first = views[0]
        digest = first.get("doc_hash")
        metrics = set(_metrics(first))
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
            score=table[document].get(primary) if primary is not None else None,
            scores=table[document],
        )


def _scores(views: list[tuple[str, dict[str, Any]]]) -> dict[str, Any]:
    """Value of one document by "metric,filter"."""
    scores: dict[str, Any] = {}
    for _, view in views:
        filter = text(view.get("filter", "none"))
        for metric in _metrics(view):
            value = view.get(metric)
            if isinstance(value, int | float | None):
                scores[f"{metric},{filter}"] = value
            elif metric in _ROLLING and _pair(value):
                unit, to_value = _ROLLING[metric]
                mean = value[0] / value[1]
                scores[f"{unit}_loglikelihood,{filter}"] = mean
                scores[f"{metric},{filter}"] = to_value(mean)
    return scores


def _pair(value: Any) -> bool:
    """Log p, and how many words or bytes it is about."""
    return (
        isinstance(value, list)
        and len(value) == 2
        and all(isinstance(each, int | float) and math.isfinite(each) for each in value)
        and value[1] > 0
    )


def _primary(table: Iterable[dict[str, Any]]) -> str | None:
    """The first metric that is a score in [0, 1] wherever it is known."""
    documents = list(table)
    for name in dict.fromkeys(name for scores in documents for name in scores):
        known = [scores[name] for scores in documents if isinstance(scores.get(name), int | float)]
        if known and not _UNIT.search(name.partition(",")[0]) and all(0 <= value <= 1 for value in known):
            return name
    return None


def _other_filters(primary: str, table: Iterable[dict[str, Any]]) -> list[str]:
    """The same metric under other filters."""
    metric = primary.partition(",")[0]
    return [
        name
        for name in dict.fromkeys(name for scores in table for name in scores)
        if name != primary and name.partition(",")[0] == metric
    ]


def _metrics(view: dict[str, Any]) -> list[str]:
    """The metrics that a line names; older files add them to what else they say, without a list of names."""
    named = view.get("metrics")
    if "metrics" in view:
        return [metric for metric in named if isinstance(metric, str)] if isinstance(named, list) else []
    numbers = {name: value for name, value in view.items() if name not in _SAID}
    return [n for n, v in numbers.items() if isinstance(v, int | float) or (n in _ROLLING and _pair(v))]


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
