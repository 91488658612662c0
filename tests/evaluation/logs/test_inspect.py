from __future__ import annotations

import json
import shutil
import sys
import zipfile
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from palaestra.errors import InputError
from palaestra.evaluation import trials
from palaestra.evaluation.logs import read_logs

pytest.importorskip("inspect_ai")


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from real_tools import inspect_log

    return inspect_log(tmp_path_factory.mktemp("inspect"), "eval")


@pytest.fixture(scope="module")
def as_json(log: Path) -> Path:
    from inspect_ai.log import read_eval_log, write_eval_log

    path = log.with_suffix(".json")
    write_eval_log(read_eval_log(str(log)), str(path), format="json")
    return path


def test_a_sample_and_epoch_is_a_trial(log: Path) -> None:
    logs = read_logs(log)
    assert (logs.problems, logs.files) == ((), 1)
    table = trials(logs.turns)
    assert table["task"].to_list() == [f"sums/{name}" for name in ("broken", "one", "two") for _ in range(2)]
    assert table["success"].to_list() == [False, False, True, True, False, False]
    assert table["error"][0] == "run: RuntimeError('the sandbox is gone')"
    assert table["score"].to_list() == [None, None, 1.0, 1.0, 0.0, 0.0], "a sample that broke has no score"


def test_the_judge_is_not_billed_and_cached_tokens_are_in_the_prompt(log: Path) -> None:
    """The judge used 1000 tokens per sample; the agent 30 (10 of them from the cache) and 30."""
    first = read_logs(log).turns.frame.filter(pl.col("task") == "sums/one", pl.col("episode") == 0)
    assert first["tokens_in"].to_list() == [30, 30]
    assert first["tokens_cached"].to_list() == [10, None]
    assert first["tool"].to_list() == ["add", None]
    assert json.loads(first["arguments"][0]) == {"x": 1, "y": 1}
    assert first["observation"].to_list() == ["1+1?", "2"]
    assert "cost" not in first.columns, "no price, no cost"
    assert "GRADE" not in first["action"].str.join().item()


def test_long_texts_are_put_back(log: Path) -> None:
    from inspect_ai.log import read_eval_log
    from real_tools import LONG

    assert any(sample.attachments for sample in read_eval_log(str(log)).samples or []), "or there is nothing to test"
    turns = read_logs(log).turns.frame
    assert turns.filter(pl.col("task") == "sums/two")["observation"][0] == LONG
    assert not turns["action"].str.contains("attachment://").any()


def test_every_scorer_has_a_column(log: Path) -> None:
    turns = read_logs(log).turns
    assert trials(turns, score="score.style")["score"].to_list() == [None, None, 0.5, 0.5, 0.5, 0.5]
    last = turns.frame.filter(pl.col("reward").is_not_null())
    assert last["confidence"].to_list() == [0.8] * 4
    metadata = json.loads(last["metadata"][0])
    assert metadata["target"] == "2"
    assert "GRADE: C" in metadata["scorers"]["judged"]


def test_json_is_the_same(log: Path, as_json: Path) -> None:
    assert read_logs(as_json).turns.frame.equals(read_logs(log).turns.frame)
    assert trials(read_logs(log.parent).turns)["trial"].max() == 3, "one folder, one system, twice the trials"
    assert read_logs(log, f"b={as_json}").turns["system"].unique().sort().to_list() == ["b", "mockllm/model"]
    apart = read_logs(shutil.copy(log, log.with_name("copy.eval")), as_json).turns["system"].unique()
    assert set(apart) == {"mockllm/model (copy)", f"mockllm/model ({as_json.stem})"}


def test_without_the_internal_function_it_reads_the_same(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    quick = read_logs(log).turns.frame
    monkeypatch.setitem(sys.modules, "inspect_ai.log._resolve", None)
    assert read_logs(log).turns.frame.equals(quick)


def test_a_damaged_sample_is_named_and_the_rest_is_read(log: Path, tmp_path: Path) -> None:
    broken = tmp_path / "broken.eval"
    with zipfile.ZipFile(log) as old, zipfile.ZipFile(broken, "w") as new:
        for name in old.namelist():
            new.writestr(name, b'{"id": "one", ' if name == "samples/one_epoch_1.json" else old.read(name))
    logs = read_logs(broken)
    assert [p.where for p in logs.problems] == ["sample 'one', epoch 1"]
    assert len(trials(logs.turns)) == 5
    as_text = tmp_path / "half.json"
    as_text.write_bytes(b'{"version": 2, "status": "success", "eval": {')
    with pytest.raises(InputError, match=r"half\.json: Inspect cannot read it"):
        read_logs(as_text)
    (tmp_path / "half.eval").write_bytes(log.read_bytes()[:3000])
    with pytest.raises(InputError, match=r"half\.eval: not a whole zip file"):
        read_logs(tmp_path / "half.eval")


def test_mutated_logs(log: Path, as_json: Path, tmp_path: Path) -> None:
    from fuzz import try_mutants

    assert try_mutants({"inspect": log, "inspect-json": as_json}, 20, tmp_path, seed=1).crashes == []


def test_what_a_tool_could_not_do_stands_on_its_call(tmp_path: Path) -> None:
    from inspect_ai import Task, eval
    from inspect_ai.dataset import Sample
    from inspect_ai.log import read_eval_log, write_eval_log
    from inspect_ai.model import ModelOutput, ModelUsage, get_model
    from inspect_ai.solver import generate, use_tools
    from inspect_ai.tool import ToolError, tool

    @tool
    def divide() -> Any:
        async def execute(by: int) -> float:
            """Divide.

            Args:
                by: divisor
            """
            if by == 0:
                raise ToolError("not by zero")
            return 1 / by

        return execute

    outputs = [ModelOutput.for_tool_call("mockllm/model", "divide", {"by": by}) for by in (0, 2)]
    outputs.append(ModelOutput.from_content("mockllm/model", "done"))
    for output in outputs:
        output.usage = ModelUsage(input_tokens=1, output_tokens=1, total_tokens=2)
    task = Task(dataset=[Sample(input="1/0?")], solver=[use_tools(divide()), generate()])
    model = get_model("mockllm/model", custom_outputs=outputs)
    (log,) = eval(task, model=model, log_dir=str(tmp_path), display="none")
    stored = Path(log.location.removeprefix("file://"))
    write_eval_log(read_eval_log(log.location), str(stored.with_suffix(".json")), format="json")
    for path in (stored, stored.with_suffix(".json")):
        turns = read_logs(path).turns.frame
        assert turns["tool"].to_list() == ["divide", "divide", None]
        assert turns["tool_error"].to_list() == ["unknown: not by zero", None, None]
