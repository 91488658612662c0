from __future__ import annotations

import json
import shutil
import sys
import zipfile
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from tests.installed import needs

from palaestra.errors import InputError
from palaestra.evaluation import trials
from palaestra.evaluation.logs import read_logs

needs("inspect_ai")


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
    both = read_logs(log.parent)
    assert trials(both.turns).equals(trials(read_logs(log).turns)), "one evaluation in two files counts once"
    assert "6 trials stand in a later log" in str(both.problems[0])
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


def evaluation(
    folder: Path, name: str, created: str, samples: dict[str, Any], task_id: str = "T", **spec_of: Any
) -> Path:
    """A log as Inspect writes it, of samples by id: a letter, values by scorer, or an error's message."""
    from inspect_ai.log import EvalLog, EvalSample, write_eval_log
    from inspect_ai.log._log import EvalConfig, EvalDataset, EvalSpec
    from inspect_ai.scorer import Score

    made = []
    for number, (identity, grade) in enumerate(samples.items()):
        right = isinstance(grade, dict) or grade in ("C", "I")
        values = grade if isinstance(grade, dict) else {"match": grade}
        error = None if right else {"message": grade, "traceback": "", "traceback_ansi": ""}
        made.append(
            EvalSample(
                id=identity, epoch=1, input="?", target="!", messages=[], error=error,
                uuid=f"{'same' if right else name}-{number}",
                scores={scorer: Score(value=value) for scorer, value in values.items()} if right else None,
            )
        )  # fmt: skip
    spec = EvalSpec(
        created=created, task="t", task_id=task_id, eval_id=name, run_id=name, model="m", dataset=EvalDataset(),
        config=EvalConfig(), **spec_of,
    )  # fmt: skip
    path = folder / f"{name}.json"
    folder.mkdir(exist_ok=True)
    write_eval_log(EvalLog(eval=spec, samples=made, status="success"), str(path), format="json")
    return path


def test_a_retried_evaluation_counts_once(tmp_path: Path) -> None:
    """The retry copies what was finished and plays the two that broke again: ten trials, as in it alone."""
    first = {str(n): "C" if n < 6 else "I" for n in range(8)} | {"8": "APIError('x')", "9": "APIError('y')"}
    again = {**first, "8": "C", "9": "C"}
    evaluation(tmp_path / "logs", "first", "2026-01-01T00:00:00+00:00", first)
    alone = evaluation(tmp_path / "logs", "retry", "2026-01-02T00:00:00+00:00", again)
    logs = read_logs(tmp_path / "logs")
    table = trials(logs.turns)
    assert table.equals(trials(read_logs(alone).turns))
    assert (len(table), table["success"].mean()) == (10, 0.8)
    assert "10 trials stand in a later log" in str(logs.problems[0])
    evaluation(tmp_path / "logs", "other", "2026-01-03T00:00:00+00:00", again, task_id="U")
    assert len(trials(read_logs(tmp_path / "logs").turns)) == 20, "another evaluation is another trial"
    apart = read_logs(tmp_path / "logs" / "first.json", alone)
    assert "of the same evaluation as in" in str(apart.problems[0])


@pytest.mark.parametrize("message", ["CancelledError()", "Cancelled()", "Cancelled by cancel scope 7f"])
def test_a_cancelled_sample_is_nobody_s_failure(tmp_path: Path, message: str) -> None:
    path = evaluation(tmp_path, "a", "2026-01-01T00:00:00+00:00", {"0": "C", "1": "ValueError('x')", "2": message})
    logs = read_logs(path)
    assert trials(logs.turns).select("task", "success").rows() == [("t/0", True), ("t/1", False)]
    assert [(p.where, p.why.partition(" ")[0]) for p in logs.problems] == [("sample '2', epoch 1", "cancelled")]


def test_steps_tell_the_judge_from_the_agent_in_older_logs(as_json: Path, tmp_path: Path) -> None:
    """The same log with steps in the place of spans bills the agent for the same tokens."""
    log = json.loads(as_json.read_text())
    names: dict[str, str] = {}
    for sample in log["samples"]:
        events = []
        for event in sample["events"]:
            event.pop("span_id", None)
            if event["event"] == "span_begin":
                names[event["id"]] = event["name"]
                kind = "scorer" if event["type"] in ("scorer", "scorers") else event["type"]
                event = {"event": "step", "action": "begin", "type": kind, "name": event["name"],
                         "timestamp": event["timestamp"], "working_start": 0.0}  # fmt: skip
            elif event["event"] == "span_end":
                event = {"event": "step", "action": "end", "name": names[event["id"]], "working_start": 0.0,
                         "timestamp": event["timestamp"]}  # fmt: skip
            events.append(event)
        sample["events"] = events
    older = tmp_path / "older.json"
    older.write_text(json.dumps(log))
    columns = ("task", "success", "tokens_in", "tokens_out", "turns")
    assert trials(read_logs(older).turns).select(columns).equals(trials(read_logs(as_json).turns).select(columns))


def test_a_zip_that_grows_is_not_opened(tmp_path: Path) -> None:
    path = tmp_path / "bomb.eval"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        archive.writestr("header.json", "{}")
        archive.writestr("samples/1_epoch_1.json", b'{"id": "' + b"a" * (70 << 20))
    with pytest.raises(InputError, match=r"bomb\.eval: .* KiB that unpack to 70 MiB: not a log"):
        read_logs(path)


def test_a_text_does_not_grow_by_what_is_attached() -> None:
    from palaestra.evaluation.logs.inspect_ai import _attach

    turns = [{"observation": "attachment://ab " * 3}, {"observation": "attachment://ab " * 100_000}]
    _attach(turns, {"ab": "x" * 1000})
    assert [len(turn["observation"]) for turn in turns] == [3003, 1_600_000]


def test_words_are_scores_as_in_inspect_and_others_are_named(tmp_path: Path) -> None:
    graded = {str(n): {"solved": value, "refused": 0} for n, value in enumerate(("yes", "No", "true", "false", "hm"))}
    logs = read_logs(evaluation(tmp_path, "a", "2026-01-01T00:00:00+00:00", graded))
    table = trials(logs.turns)
    assert table["score"].to_list() == [1, 0, 1, 0, None], "the second scorer does not take the place of the first"
    assert table["success"].to_list() == [True, False, True, False, None]
    assert [str(p).rpartition(", ")[2] for p in logs.problems] == ["epoch 1: score solved: 'hm' is no number"]


def test_solvers_are_systems(tmp_path: Path) -> None:
    when = "2026-01-01T00:00:00+00:00"
    one = evaluation(tmp_path / "logs", "a", when, {"0": "C"}, "A", solver="basic", task_args={"level": 1})
    evaluation(tmp_path / "logs", "b", when, {"0": "I"}, "B", solver="react", task_args={"level": 2})

    def systems(path: Path, **options: str) -> list[tuple[str, bool]]:
        return trials(read_logs(path, **options).turns).select("system", "success").rows()

    assert systems(tmp_path / "logs") == [("m/basic", True), ("m/react", False)]
    assert systems(one) == [("m", True)]
    assert systems(tmp_path / "logs", system="solver") == [("basic", True), ("react", False)]
    assert systems(tmp_path / "logs", system="task_args") == [('{"level": 1}', True), ('{"level": 2}', False)]
