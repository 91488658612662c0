"""Logs that the real tools write: Inspect AI with its mock model, lm-evaluation-harness with a model of three lines."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

LONG = "1+2? " + "Take your time. " * 30  # long texts are stored apart from the events


def inspect_log(folder: Path, form: str) -> Path:
    """Three samples, two epochs: a tool call each, a judge as scorer, a second scorer, one sample that breaks."""
    from inspect_ai import Task, eval
    from inspect_ai.dataset import Sample
    from inspect_ai.model import ModelOutput, ModelUsage, get_model
    from inspect_ai.scorer import Score, accuracy, mean, scorer
    from inspect_ai.solver import generate, solver, use_tools
    from inspect_ai.tool import tool

    def said(words: str, fresh: int, out: int) -> ModelOutput:
        output = ModelOutput.from_content("mockllm/model", words)
        output.usage = ModelUsage(input_tokens=fresh, output_tokens=out, total_tokens=fresh + out)
        return output

    def called() -> ModelOutput:
        output = ModelOutput.for_tool_call("mockllm/model", "add", {"x": 1, "y": 1})
        output.usage = ModelUsage(input_tokens=20, output_tokens=5, total_tokens=35, input_tokens_cache_read=10)
        return output

    @tool
    def add() -> Any:
        async def execute(x: int, y: int) -> int:
            """Add.

            Args:
                x: first
                y: second
            """
            return x + y

        return execute

    @solver
    def breaking() -> Any:
        async def solve(state: Any, generate: Any) -> Any:
            if state.input_text == "break":
                raise RuntimeError("the sandbox is gone")
            return state

        return solve

    @scorer(metrics=[accuracy()])
    def judged() -> Any:
        judge = get_model("mockllm/judge", custom_outputs=[said("GRADE: C", 1000, 7) for _ in range(9)])

        async def score(state: Any, target: Any) -> Score:
            verdict = await judge.generate("is it right?")
            right = target.text in state.output.completion
            return Score(value="C" if right else "I", answer="2", explanation=verdict.completion)

        return score

    @scorer(metrics=[mean()])
    def style() -> Any:
        async def score(state: Any, target: Any) -> Score:
            return Score(value=0.5, metadata={"confidence": 0.8})

        return score

    outputs = [output for _ in range(6) for output in (called(), said("The answer is 2", 30, 6))]
    (log,) = eval(
        Task(
            name="sums",
            dataset=[Sample(id="one", input="1+1?", target="2"), Sample(id="two", input=LONG, target="3"),
                     Sample(id="broken", input="break", target="4")],
            solver=[use_tools(add()), breaking(), generate()],
            scorer=[judged(), style()],
        ),
        model=get_model("mockllm/model", custom_outputs=outputs),
        epochs=2, fail_on_error=False, log_dir=str(folder), log_format=form, display="none", max_samples=1,
    )  # fmt: skip
    return Path(log.location.removeprefix("file://"))


def lm_eval_logs(folder: Path) -> Path:
    """A generative task with two filters and a multiple choice with two metrics; six documents each."""
    os.environ.update(HF_HOME=str(folder / "hf"), HF_HUB_OFFLINE="1", HF_DATASETS_OFFLINE="1")
    from lm_eval import simple_evaluate
    from lm_eval.api.model import LM
    from lm_eval.loggers import EvaluationTracker
    from lm_eval.tasks import TaskManager

    class Adder(LM):
        """Adds numbers below 4 and gives up on others."""

        def generate_until(self, requests: Any, **_: Any) -> list[str]:
            return [f" {int(r.args[0][0]) + 1}" if r.args[0][0] < "4" else "I cannot" for r in requests]

        def loglikelihood(self, requests: Any, **_: Any) -> list[tuple[float, bool]]:
            return [(-len(r.args[1]) - float(r.args[1] in (" 1", " 3")), False) for r in requests]

        def loglikelihood_rolling(self, requests: Any, **_: Any) -> list[float]:
            return [0.0 for _ in requests]

    documents = [{"q": f"{i}+1=", "a": str(i + 1), "choices": [str(i + 1), str(i + 2)], "label": 0} for i in range(6)]
    (folder / "documents.jsonl").write_text("\n".join(map(json.dumps, documents)))
    source = {"dataset_path": "json", "dataset_kwargs": {"data_files": {"test": str(folder / "documents.jsonl")}},
              "test_split": "test", "doc_to_text": "{{q}}"}  # fmt: skip
    strict = {"name": "strict", "filter": [{"function": "take_first"}]}
    loose = {"name": "loose", "filter": [{"function": "regex", "regex_pattern": "(\\d+)"}, {"function": "take_first"}]}
    exact = {"metric": "exact_match", "aggregation": "mean", "higher_is_better": True}
    sums = source | {"task": "sums", "output_type": "generate_until", "doc_to_target": "{{a}}",
                     "metric_list": [exact], "filter_list": [strict, loose]}  # fmt: skip
    metrics = [{"metric": m, "aggregation": "mean", "higher_is_better": True} for m in ("acc", "acc_norm")]
    choose = source | {"task": "choose", "output_type": "multiple_choice", "doc_to_target": "{{label}}",
                       "doc_to_choice": "{{choices}}", "metric_list": metrics}  # fmt: skip
    tracker = EvaluationTracker(output_path=str(folder / "out"))
    results = simple_evaluate(
        model=Adder(), tasks=[sums, choose], evaluation_tracker=tracker, log_samples=True, bootstrap_iters=0,
        task_manager=TaskManager(include_defaults=False),
    )  # fmt: skip
    samples = results.pop("samples")
    tracker.save_results_aggregated(results=results, samples=samples)
    for task in results["configs"]:
        tracker.save_results_samples(task_name=task, samples=samples[task])
    return folder / "out"
