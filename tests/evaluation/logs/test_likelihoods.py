"""lm-eval's files by their documented fields, without the harness: accuracies and likelihoods are never averaged."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from palaestra.evaluation import trials
from palaestra.evaluation.logs import read_logs


def samples(folder: Path, task: str, metrics: list[str], values: list[dict[str, Any]]) -> None:
    lines = [
        {"doc_id": n, "doc": {}, "target": "", "arguments": {"gen_args_0": {"arg_0": f"q{n}"}}, "resps": [["x"]],
         "filtered_resps": ["x"], "filter": "none", "metrics": metrics, "doc_hash": f"{n:064d}", **value}
        for n, value in enumerate(values)
    ]  # fmt: skip
    path = folder / f"samples_{task}_2026-01-01T00-00-00.000000.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))


def test_older_files_do_not_name_their_metrics(tmp_path: Path) -> None:
    samples(tmp_path, "choose", ["acc"], [{"acc": 1.0}, {"acc": 0.0}])
    samples(tmp_path, "wikitext", ["word_perplexity"], [{"word_perplexity": [-30.0, 10]}])
    for path in tmp_path.iterdir():
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        older = [{name: value for name, value in line.items() if name not in ("metrics", "filter")} for line in lines]
        path.write_text("".join(json.dumps(line) + "\n" for line in older))
    turns = read_logs(tmp_path).turns
    assert trials(turns)["score"].drop_nulls().to_list() == [1.0, 0.0]
    assert turns["score.word_loglikelihood,none"].drop_nulls().to_list() == [-3.0]


def test_a_folder_of_both_has_the_accuracy_alone(tmp_path: Path) -> None:
    samples(tmp_path, "choose", ["acc"], [{"acc": 1.0}, {"acc": 0.0}])
    samples(
        tmp_path, "lambada", ["perplexity", "acc"], [{"perplexity": -7.2, "acc": 1.0}, {"perplexity": -9.0, "acc": 1}]
    )
    samples(tmp_path, "wikitext", ["word_perplexity", "byte_perplexity", "bits_per_byte"], [
        {"word_perplexity": [-30.0, 10], "byte_perplexity": [-30.0, 60], "bits_per_byte": [-30.0, 60]},
        {"word_perplexity": [-80.0, 20], "byte_perplexity": [-80.0, 100], "bits_per_byte": [-80.0, 100]},
    ])  # fmt: skip
    logs = read_logs(tmp_path)
    table = trials(logs.turns)
    assert len(table) == 6
    assert table["score"].mean() == pytest.approx(0.75), "of the four documents that have one"
    assert table["score"].null_count() == 2
    (problem,) = logs.problems
    assert "samples_wikitext" in problem.file
    assert "no metric is a score between 0 and 1" in problem.why
    words = trials(logs.turns, score="score.word_loglikelihood,none")["score"].drop_nulls().to_list()
    assert words == pytest.approx([-3.0, -4.0])
    perplexity = logs.turns["score.word_perplexity,none"].drop_nulls().to_list()
    assert perplexity == pytest.approx([math.exp(3), math.exp(4)])
    bits = logs.turns["score.bits_per_byte,none"].drop_nulls().to_list()
    assert bits == pytest.approx([0.5 / math.log(2), 0.8 / math.log(2)])


@pytest.mark.parametrize("metric", ["brier_score", "likelihood", "nll", "wer", "bits_per_byte"])
def test_less_is_better_or_another_unit_is_no_score(tmp_path: Path, metric: str) -> None:
    samples(tmp_path, "t", [metric], [{metric: 0.25}, {metric: 0.75}])
    logs = read_logs(tmp_path)
    assert trials(logs.turns)["score"].null_count() == 2
    assert trials(logs.turns, score=f"score.{metric},none")["score"].to_list() == [0.25, 0.75]
