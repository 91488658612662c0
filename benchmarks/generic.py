"""What training costs on models that are not plain Llamas, beside TRL's `GRPOTrainer`: grouped heads, Qwen, LoRA.

The task, the batch, the loss, the optimiser and the way of measuring are those of `training.py`; only the model
differs: two layers, 64 wide, four heads of which two have keys of their own.

- `llama, modules`: the plain Llama of `training.py`, forced through Hugging Face's modules as any model that
  `backends/llama.py` does not know. Grouped heads likewise.
- `llama`, `qwen2` (biases), `qwen3` (norms of queries and keys), grouped heads, as they come.
- `lora`: adapters of rank 8 on all projections of the grouped Llama, nothing else learns; a rate of 2e-3. A head that
  stays must be able to say something: its weights are ten times those of a new one. (TRL refuses adapters on the head;
  here they are exact.)

Both sides have a constant rate, so that completions to the goal differ by the draw alone. A ratio is ours over TRL's,
of medians over seeds: CPU time of one thread to a mean reward of 0.85, and of the whole run of 100 steps.

Run: python benchmarks/generic.py [KIND ...]
"""

from __future__ import annotations

import training  # sets the number of threads before torch is imported; isort: skip

import contextlib
import functools
import importlib.metadata
import json
import platform
import subprocess
import sys
import warnings
from collections.abc import Sequence
from dataclasses import asdict
from statistics import median
from typing import Any

import torch
import transformers
from rich.console import Console
from rich.table import Table

SEEDS = 5
KINDS = ("llama, modules", "grouped, modules", "llama", "grouped", "qwen2", "qwen3", "lora")
LORA_RATE = 2e-3
MOST_SHARE, MOST_OF_MODULES = 0.6, 0.75


@functools.cache
def initial(kind: str, seed: int) -> Any:
    """The model before training; both sides copy it."""
    torch.manual_seed(seed)
    name = kind.partition(",")[0]
    tokens = training.tokenizer()
    sizes = {
        "vocab_size": len(tokens),
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 4 if name == "llama" else 2,
        "head_dim": 16,
        "max_position_embeddings": 64,
        "pad_token_id": tokens.pad_token_id,
        "bos_token_id": None,
        "eos_token_id": tokens.eos_token_id,
    }
    config = {"qwen2": transformers.Qwen2Config, "qwen3": transformers.Qwen3Config}.get(name, transformers.LlamaConfig)
    model = transformers.AutoModelForCausalLM.from_config(config(**sizes))
    if name != "lora":
        return model
    from peft import LoraConfig, get_peft_model

    model.lm_head.weight.data *= 10
    return get_peft_model(model, LoraConfig(r=8, lora_alpha=16, target_modules="all-linear", task_type="CAUSAL_LM"))


def run(kind: str, side: str, seed: int) -> training.Run:
    """One run of one side."""
    training.initial = functools.partial(initial, kind)  # type: ignore[assignment]
    training.RATE = LORA_RATE if kind == "lora" else 1e-3
    if side == "TRL":
        return training.trl(seed, "constant")
    return training.ours(seed, "constant", generic=kind.endswith("modules"))


def work(kind: str, side: str) -> None:
    """A run for every seed that comes in; a negative one, for warming up, is over after three steps."""
    whole, results = training.STEPS, sys.stdout
    with contextlib.redirect_stdout(sys.stderr):
        for line in sys.stdin:
            training.STEPS = whole if int(line) >= 0 else 3
            print(json.dumps(asdict(run(kind, side, abs(int(line))))), file=results, flush=True)


def measure(kind: str, sides: Sequence[str]) -> dict[str, list[training.Run]]:
    """Every side once per seed, a process for each, only one of which works at a time."""
    runs: dict[str, list[training.Run]] = {side: [] for side in sides}
    pipe = subprocess.PIPE
    with contextlib.ExitStack() as stack:
        workers = {
            side: stack.enter_context(
                subprocess.Popen([sys.executable, __file__, "--work", kind, side], stdin=pipe, stdout=pipe, text=True)
            )
            for side in sides
        }
        for seed in range(-1, SEEDS):
            for side, worker in workers.items():
                assert worker.stdin is not None
                assert worker.stdout is not None
                print(seed, file=worker.stdin, flush=True)
                found = training.Run(**json.loads(worker.stdout.readline()))
                if seed >= 0:
                    runs[side].append(found)
    return runs


def main(kinds: Sequence[str]) -> int:
    """Measure, print, and say whether the criterion holds: 0 if it does for every model."""
    console = Console(width=130)
    sides = ["Palaestra", *(["TRL"] if training.HAS_TRL else [])]
    packages = ["torch", "transformers", "peft", *(["trl"] if training.HAS_TRL else [])]
    versions = " · ".join(f"{name} {importlib.metadata.version(name)}" for name in packages)
    console.print(f"Python {platform.python_version()} · {versions} · CPU time of one thread · {SEEDS} seeds")
    table = Table()
    table.add_column("model")
    for side in sides:
        for heading in (f"CPU-s to {training.GOAL}", "completions", "whole run"):
            table.add_column(f"{side}: {heading}", justify="right")
    for heading in ("ratio to goal", "whole run"):
        table.add_column(heading, justify="right")
    verdicts = []
    for kind in kinds:
        found = measure(kind, sides)
        cells, numbers = [], []
        for side in sides:
            seconds, completions = (median(each.reached()[i] for each in found[side]) for i in range(2))
            whole = median(each.seconds for each in found[side])
            numbers.append((seconds, whole))
            cells += [training.number(seconds), training.number(completions, 0), training.number(whole)]
        if len(sides) == 2:
            goal, whole = (numbers[0][i] / numbers[1][i] for i in range(2))
            cells += [training.number(goal), training.number(whole)]
            most = MOST_OF_MODULES if kind.endswith("modules") else MOST_SHARE
            text = f"{kind}: {goal:.2f} of TRL's CPU-s to {training.GOAL}, at most {most}"
            verdicts.append((text, goal <= most))
        table.add_row(kind, *cells)
    console.print(table)
    for text, met in verdicts:
        console.print(f"{'PASS' if met else 'FAIL'}  {text}")
    return 0 if all(met for _, met in verdicts) else 1


if __name__ == "__main__":
    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)
    if sys.argv[1:2] == ["--work"]:
        work(*sys.argv[2:])
    else:
        sys.exit(main(sys.argv[1:] or KINDS))
