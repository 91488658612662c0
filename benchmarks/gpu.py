"""What the engine does on one GPU, at the shapes of real models: tokens, updates, memory, weights, whole iterations.

Models of random weights have the cost of trained ones, so nothing is downloaded: `0.5b` and `7b` are the shapes of
Qwen2.5's models of that size, `tiny` is for a CPU. Every model plays a task of one turn: prompts of random tokens, a
reward that counts one token, so that iterations do everything that real ones do but the text is noise.

    play         tokens per second that are sampled, by batch; our own forward, and vLLM where it is installed
    learn        tokens per second of one update, prompts included, and the peak of memory beyond the weights
    transfer     seconds until a server has an update's weights and was compared: by a folder, in shared memory, by CUDA
                 IPC (the learner on the server's GPU) and by NCCL (on another one); these two need vLLM in this Python
    weights      seconds until a trained state is written where a server can read it, and read back
    iteration    play, credit, update: seconds; beside TRL's `GRPOTrainer` with the same model, batch and lengths, and
                 with a server that samples and is given every update's weights: vLLM where it is installed, or the one
                 whose address PALAESTRA_SERVER_URL says (it must serve the folder of --folder)

Each measurement has a process of its own, so that one that runs out of memory is a line that says so. `--write` puts
the table into docs/performance.md between its two marks.

    python benchmarks/gpu.py --shape 0.5b --shape 7b --write
    python benchmarks/gpu.py --shape tiny --device cpu
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import gc
import importlib.util
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.table import Table

from palaestra import LMPolicy, PolicyGradient, ServedPolicy, Team
from palaestra.agents.policy import Request
from palaestra.credit import grpo
from palaestra.envs import Observation
from palaestra.envs.tasks import Task, TaskEnv
from palaestra.play.rollout import rollout

PAGE = Path(__file__).parents[1] / "docs" / "performance.md"
MARKS = "<!-- gpu: begin -->", "<!-- gpu: end -->"


@dataclass(frozen=True)
class Shape:
    """A model and what is asked of it. lora: rank of the adapters that learn; None: everything learns."""

    hidden: int
    layers: int
    heads: int
    key_heads: int
    feed_forward: int
    vocabulary: int
    tied: bool
    batches: tuple[int, ...]
    prompt: int
    answer: int
    groups: int
    group_size: int
    dtype: str
    lora: int | None = None
    repeats: int = 3


SHAPES = {
    "tiny": Shape(64, 2, 4, 2, 128, 256, True, (4, 16), 12, 8, 2, 4, "float32"),
    "0.5b": Shape(896, 24, 14, 2, 4864, 151_936, True, (16, 64, 256), 256, 256, 16, 8, "bfloat16"),
    "7b": Shape(3584, 28, 28, 4, 18_944, 152_064, False, (16, 64, 256), 256, 256, 16, 8, "bfloat16"),
    "7b-lora": Shape(3584, 28, 28, 4, 18_944, 152_064, False, (64,), 256, 256, 16, 8, "bfloat16", lora=16),
}


# -- the model and the task -------------------------------------------------------------------------------------------


@functools.cache
def tokenizer(size: int) -> Any:
    """A token for each number below `size`, said as that number; 0 pads, 1 ends."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    backend = Tokenizer(models.WordLevel({str(i): i for i in range(size)}, unk_token="0"))
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(tokenizer_object=backend, pad_token="0", eos_token="1", padding_side="left")


def write_model(shape: Shape, folder: Path, device: str) -> None:
    """Random weights, in the type in which they would come from a hub, and a tokenizer."""
    from transformers import Qwen2Config, Qwen2ForCausalLM

    config = Qwen2Config(
        hidden_size=shape.hidden, num_hidden_layers=shape.layers, num_attention_heads=shape.heads,
        num_key_value_heads=shape.key_heads, intermediate_size=shape.feed_forward, vocab_size=shape.vocabulary,
        tie_word_embeddings=shape.tied, max_position_embeddings=4096, eos_token_id=1, pad_token_id=0, bos_token_id=None,
    )  # fmt: skip
    torch.manual_seed(0)
    kind = torch.get_default_dtype()
    torch.set_default_dtype(getattr(torch, shape.dtype))
    try:
        with torch.device(device):
            model = Qwen2ForCausalLM(config)
    finally:
        torch.set_default_dtype(kind)
    model.save_pretrained(folder)
    tokenizer(shape.vocabulary).save_pretrained(folder)


def policy_of(shape: Shape, folder: Path, device: str) -> LMPolicy:
    """As a recipe would load it: what learns in float32, what is frozen and the arithmetic of a GPU in 16 bits."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return LMPolicy.from_pretrained(
            folder, name="lm", max_new_tokens=shape.answer, batch_size=max(shape.batches), device=device,
            dtype=shape.dtype, lora=None if shape.lora is None else {"r": shape.lora, "target_modules": "all-linear"},
        )  # fmt: skip


def prompt_of(shape: Shape, number: int) -> str:
    """Random tokens."""
    return " ".join(map(str, np.random.default_rng(number).integers(2, shape.vocabulary, shape.prompt)))


class Echo(TaskEnv):
    """One prompt, one answer; the reward is the share of even tokens."""

    def __init__(self, shape: Shape) -> None:
        self.shape = shape

    def draw(self, seed: int) -> Task:
        """The prompt of a seed."""
        prompt = prompt_of(self.shape, seed)
        return Task(prompt, prompt, even)


def even(text: str) -> float:
    """Share of even numbers among the words."""
    words = text.split()
    return sum(word[-1] in "02468" for word in words) / len(words) if words else 0.0


# -- what is measured -------------------------------------------------------------------------------------------------


class Clock:
    """Seconds of wall time until the device has finished."""

    def __init__(self, device: str) -> None:
        self.cuda = device.startswith("cuda")

    def time(self, call: Callable[[], Any]) -> float:
        """Of one call."""
        if self.cuda:
            torch.cuda.synchronize()
        began = time.perf_counter()
        call()
        if self.cuda:
            torch.cuda.synchronize()
        return time.perf_counter() - began

    def peak(self) -> float:
        """Bytes, since the start of the process or the last `forget`."""
        if self.cuda:
            return float(torch.cuda.max_memory_allocated())
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024.0

    def now(self) -> float:
        """Bytes in use, of which a peak is counted from here on."""
        gc.collect()
        if self.cuda:
            torch.cuda.reset_peak_memory_stats()
            return float(torch.cuda.memory_allocated())
        return self.peak()


def play(shape: Shape, folder: Path, device: str) -> dict[str, float]:
    """Tokens per second by batch, groups sharing their prompt."""
    policy, clock, found = policy_of(shape, folder, device), Clock(device), {}
    for batch in shape.batches:
        prompts = [prompt_of(shape, row // shape.group_size) for row in range(batch)]
        tokens: list[int] = []

        def ask(prompts: list[str] = prompts, tokens: list[int] = tokens) -> None:
            requests = [Request(Observation(text), "a", np.random.default_rng(i)) for i, text in enumerate(prompts)]
            tokens.append(sum(each.tokens_out or 0 for each in policy.act(requests)))

        ask()
        seconds = [clock.time(ask) for _ in range(shape.repeats)]
        found[f"{batch} rows"] = median(count / each for count, each in zip(tokens[1:], seconds, strict=True))
    return found


def play_vllm(shape: Shape, folder: Path, device: str) -> dict[str, float]:
    """The same prompts, lengths and batches in vLLM's own process."""
    from vllm import LLM, SamplingParams

    found = {}
    engine = LLM(str(folder), dtype=shape.dtype, max_model_len=shape.prompt + shape.answer, enable_prefix_caching=True)
    asked = SamplingParams(max_tokens=shape.answer, temperature=1.0, logprobs=0, seed=None)
    for batch in shape.batches:
        ids = [list(map(int, prompt_of(shape, row // shape.group_size).split())) for row in range(batch)]
        prompts = [{"prompt_token_ids": each} for each in ids]
        engine.generate(prompts, asked, use_tqdm=False)
        rates = []
        for _ in range(shape.repeats):
            began = time.perf_counter()
            answers = engine.generate(prompts, asked, use_tqdm=False)
            rates.append(sum(len(each.outputs[0].token_ids) for each in answers) / (time.perf_counter() - began))
        found[f"{batch} rows"] = median(rates)
    return found


def learn(shape: Shape, folder: Path, device: str) -> dict[str, float]:
    """One update on an iteration's rows; memory is what it takes beyond weights, gradients and moments included."""
    policy, clock = policy_of(shape, folder, device), Clock(device)
    turns = batch_of(shape, policy).with_column(advantage=grpo())
    learner = PolicyGradient(Team(solver=policy), lr=1e-6)
    held = sum(each.numel() * each.element_size() for each in policy.model.parameters())
    before = clock.now()
    rng = np.random.default_rng(0)
    learner.update(turns, rng=rng)
    seconds = [clock.time(lambda: learner.update(turns, rng=rng)) for _ in range(shape.repeats)]
    tokens = sum(len(ids) for column in ("prompt_ids", "action_ids") for ids in turns[column].drop_nulls())
    return {
        "tokens/s": tokens / median(seconds),
        "weights, GB": held / 1e9,
        "peak beyond them, GB": (clock.peak() - before) / 1e9,
    }


def weights(shape: Shape, folder: Path, device: str) -> dict[str, float]:
    """What a server needs to follow the learner: a folder written, and the state read into another copy."""
    policy, clock = policy_of(shape, folder, device), Clock(device)
    follower = policy.frozen_copy()
    with tempfile.TemporaryDirectory() as place:
        written = clock.time(lambda: policy.save(Path(place) / "model"))
        size = sum(file.stat().st_size for file in (Path(place) / "model").iterdir())
    copied = [clock.time(lambda: follower.load_state_dict(policy.state_dict())) for _ in range(shape.repeats)]
    return {"written, s": written, "GB": size / 1e9, "copied on the device, s": median(copied)}


def iteration(shape: Shape, folder: Path, device: str) -> dict[str, float]:
    """Play, credit, update."""
    policy, clock = policy_of(shape, folder, device), Clock(device)
    learner, credit = PolicyGradient(Team(solver=policy), lr=1e-6), grpo()

    def once() -> None:
        learner.update(batch_of(shape, policy).with_column(advantage=credit), rng=np.random.default_rng(0))

    once()
    return {"seconds": median(clock.time(once) for _ in range(shape.repeats))}


def served_by(shape: Shape, folder: Path, device: str, **options: Any) -> ServedPolicy:
    """A policy with the server that there is, or with one that is started."""
    url = os.environ.get(SERVER)
    engine: dict[str, Any] = {"dtype": shape.dtype, "max_model_len": shape.prompt + shape.answer}
    engine |= {"gpu_memory_utilization": 0.35} if device.startswith("cuda") else {}
    engine |= {} if shape.lora is None else {"max_lora_rank": shape.lora}
    where: dict[str, Any] = {"url": url} if url else {"server": "vllm", "engine": engine}
    return ServedPolicy(policy_of(shape, folder, device), **where, **options)


def transfer(shape: Shape, folder: Path, device: str) -> dict[str, float]:
    """Syncs of moved weights by every way that there is here, each with a server of its own."""
    here = {"folder": device} if shape.lora else {"folder": device, "shared_memory": device}
    if not shape.lora and device.startswith("cuda") and importlib.util.find_spec("vllm") and SERVER not in os.environ:
        here["ipc"] = device
        if torch.cuda.device_count() > 1:
            here["nccl"] = f"cuda:{torch.cuda.device_count() - 1}"  # a server that is started has the first
    found, clock = {}, Clock(device)
    for way, place in here.items():
        policy = served_by(shape, folder, place, transfer=way)

        def once(policy: ServedPolicy = policy) -> None:
            with torch.no_grad():
                for each in policy.parameters():
                    each.mul_(1.001)
            policy.sync()

        try:
            once()
            seconds = median(clock.time(once) for _ in range(shape.repeats))
            went = way == "folder" or policy.servers[0].transfer is not None
        finally:
            policy.close()
        found[f"{way}, s" if went else f"{way}: failed, by a folder, s"] = seconds
    return found


def iteration_served(shape: Shape, folder: Path, device: str) -> dict[str, float]:
    """The same with answers and log-probabilities of a server: seconds in all, and of giving it the weights."""
    policy, clock = served_by(shape, folder, device), Clock(device)
    learner, credit, syncs = PolicyGradient(Team(solver=policy), 'corrected("surrogate()")', lr=1e-6), grpo(), []

    def once() -> None:
        syncs.append(clock.time(lambda: policy.sync(learner.updates)))
        turns = batch_of(shape, policy)
        failed = turns["error"].drop_nulls()
        if len(failed):
            raise SystemExit(failed[0])
        learner.update(turns.with_column(advantage=credit), rng=np.random.default_rng(0))

    try:
        once()
        seconds = [clock.time(once) for _ in range(shape.repeats)]
        apart = policy.mismatch(batch_of(shape, policy).frame)["mismatch"]
    finally:
        policy.close()
    return {"seconds": median(seconds), "of these, weights, s": median(syncs[1:]), "mismatch, nats": apart}


def iteration_trl(shape: Shape, folder: Path, device: str) -> dict[str, float]:
    """The same in TRL: GRPO without a reference, no logs, no saves; gradient checkpoints off, as here."""
    from datasets import Dataset
    from transformers import AutoModelForCausalLM
    from trl import GRPOConfig, GRPOTrainer

    ends: list[float] = []

    def reward(completions: list[str], **_: Any) -> list[float]:
        if device.startswith("cuda"):
            torch.cuda.synchronize()
        ends.append(time.perf_counter())
        return [even(text) for text in completions]

    rows, steps = shape.groups * shape.group_size, shape.repeats + 2
    extra: dict[str, Any] = {}
    if shape.lora is not None:
        from peft import LoraConfig

        extra["peft_config"] = LoraConfig(r=shape.lora, target_modules="all-linear", task_type="CAUSAL_LM")
    with tempfile.TemporaryDirectory() as place:
        config = GRPOConfig(
            output_dir=place, max_steps=steps, per_device_train_batch_size=rows, num_generations=shape.group_size,
            max_completion_length=shape.answer, learning_rate=1e-6, lr_scheduler_type="constant", beta=0.0,
            use_cpu=device == "cpu", bf16=device != "cpu", gradient_checkpointing=False, logging_strategy="no",
            save_strategy="no", report_to="none", disable_tqdm=True, dataloader_pin_memory=False,
        )  # fmt: skip
        prompts = [prompt_of(shape, number) for number in range(shape.groups * steps)]
        dtype = getattr(torch, shape.dtype) if shape.lora is not None else torch.float32
        model = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype)
        with contextlib.redirect_stdout(sys.stderr):
            trainer = GRPOTrainer(
                model, reward, args=config, train_dataset=Dataset.from_dict({"prompt": prompts}),
                processing_class=tokenizer(shape.vocabulary), **extra,
            )  # fmt: skip
            trainer.train()
    return {"seconds": median(np.diff(ends)[1:].tolist())}


def batch_of(shape: Shape, policy: Any) -> Any:
    """The turns of one iteration."""
    env = functools.partial(Echo, shape)
    return rollout(env, Team(solver=policy), groups=shape.groups, group_size=shape.group_size, timeout=None)


PARTS: dict[str, Callable[[Shape, Path, str], dict[str, float]]] = {
    "play": play,
    "play, vLLM in its own process": play_vllm,
    "learn": learn,
    "weights": weights,
    "transfer": transfer,
    "iteration": iteration,
    "iteration, served": iteration_served,
    "iteration, TRL": iteration_trl,
}
NEEDS = {
    "play, vLLM in its own process": "vllm", "transfer": "vllm", "iteration, served": "vllm", "iteration, TRL": "trl",
}  # fmt: skip
SERVER = "PALAESTRA_SERVER_URL"


# -- running it -------------------------------------------------------------------------------------------------------


def measured(part: str, shape: str, folder: Path, device: str) -> dict[str, float] | str:
    """One part in a process of its own; or why there is no number."""
    served = part in ("transfer", "iteration, served") and (SERVER in os.environ or "PALAESTRA_VLLM" in os.environ)
    if part in NEEDS and not served and importlib.util.find_spec(NEEDS[part]) is None:
        return f"{NEEDS[part]} is not installed"
    command = [sys.executable, __file__, "--part", part, "--shape", shape, "--device", device, "--folder", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode == 0:
        found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
        return found
    lines = done.stderr.strip().splitlines() or [f"ended with {done.returncode}"]
    return next((line for line in reversed(lines) if "out of memory" in line.lower()), lines[-1])[:160]


def said(device: str) -> str:
    """The machine in words."""
    if device.startswith("cuda"):
        found = torch.cuda.get_device_properties(torch.device(device))
        return f"{found.name}, {found.total_memory / 1e9:.0f} GB, torch {torch.__version__}"
    return f"CPU, {torch.get_num_threads()} threads, torch {torch.__version__}"


def write(rows: list[tuple[str, str, str, str]], machine: str) -> None:
    """Replace what stands between the marks of the page."""
    lines = ["| shape | part | what | measured |", "| --- | --- | --- | --- |", *(f"| {' | '.join(r)} |" for r in rows)]
    text = PAGE.read_text(encoding="utf-8")
    head, rest = text.split(MARKS[0])
    tail = rest.split(MARKS[1])[1]
    PAGE.write_text("\n".join([f"{head}{MARKS[0]}", f"Measured on {machine}:", "", *lines, f"{MARKS[1]}{tail}"]))


def number(value: float) -> str:
    """Three digits, with commas."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def main(given: Mapping[str, Any]) -> int:
    """Measure and print; 1 if a part of ours failed."""
    console, device, failed = Console(width=130), given["device"], False
    table = Table("shape", "part", "what", "measured", title=said(device))
    rows: list[tuple[str, str, str, str]] = []
    for name in given["shape"] or (["0.5b", "7b"] if device.startswith("cuda") else ["tiny"]):
        with tempfile.TemporaryDirectory() as place:
            write_model(SHAPES[name], Path(place), device)
            if device.startswith("cuda"):
                torch.cuda.empty_cache()
            for part in PARTS:
                found = measured(part, name, Path(place), device)
                if isinstance(found, str):
                    failed |= part not in NEEDS
                    rows.append((name, part, "not measured", found))
                else:
                    rows += [(name, part, what, number(value)) for what, value in found.items()]
                console.print(f"{name}: {part}: {found}", style="dim", markup=False)
    for row in rows:
        table.add_row(*row)
    console.print(table)
    if given["write"]:
        write(rows, said(device))
    return int(failed)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--shape", action="append", choices=SHAPES)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--write", action="store_true", help="put the table into docs/performance.md")
    parser.add_argument("--part", choices=PARTS, help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.part:
        result = PARTS[options.part](SHAPES[options.shape[0]], options.folder, options.device)
        print(json.dumps(result))
    else:
        sys.exit(main(vars(options)))
