from __future__ import annotations

import json
from pathlib import Path

import polars as pl
import pytest

from palaestra.evaluation import trials
from palaestra.evaluation.logs import read_logs

pytest.importorskip("lm_eval")


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from real_tools import lm_eval_logs

    return lm_eval_logs(tmp_path_factory.mktemp("lm_eval"))


def test_means_are_the_harness_s_own(out: Path) -> None:
    """Every "metric,filter" of results_*.json comes out of the samples, and a document is one trial."""
    logs = read_logs(out)
    assert logs.files == 2, "the file of averages is passed over"
    (said,) = logs.problems
    assert (
        said.why
        == "several filters: the score is exact_match,strict; --score 'exact_match,loose' compares by another one"
    )
    (results,) = out.rglob("results_*.json")
    found = 0
    for task, measured in json.loads(results.read_text())["results"].items():
        own = logs.turns.filter(pl.col("task").str.starts_with(f"{task}/"))
        for key, value in measured.items():
            if "," in key and "stderr" not in key:
                assert trials(own, score=f"score.{key}")["score"].mean() == pytest.approx(value)
                found += 1
    assert found == 4
    table = trials(logs.turns)
    assert len(table) == 12
    assert table["task"].n_unique() == 12
    strict = table.filter(pl.col("task").str.starts_with("sums/"))
    assert strict["score"].sum() == 0, "the first filter is the score"


def test_a_document_is_known_by_its_digest(out: Path) -> None:
    turns = read_logs(out).turns.frame
    (samples,) = out.rglob("samples_sums_*.jsonl")
    first = json.loads(samples.read_text().splitlines()[0])
    row = turns.filter(pl.col("task") == f"sums/0#{first['doc_hash'][:8]}")
    assert row["observation"].item() == "0+1="
    assert row["action"].item() == " 1"
    metadata = json.loads(row["metadata"].item())
    assert metadata["prompt_hash"] == first["prompt_hash"]
    assert metadata["target"] == "1"
    assert row["tokens_in"].item() is None if "tokens_in" in turns.columns else True


def test_mutated_samples(out: Path, tmp_path: Path) -> None:
    from fuzz import try_mutants

    (samples,) = out.rglob("samples_choose_*.jsonl")
    assert try_mutants({"lm-eval": samples}, 60, tmp_path, seed=2).crashes == []
