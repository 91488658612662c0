"""`ServedPolicy` beside vLLM in one process: the same weights, prompts, seeds and engine options, in turns.

Needs a Python with vLLM: PALAESTRA_VLLM, or `.venv/vllm/bin/python` (`make .venv/vllm/.installed`).
The policy asks a server over HTTP, an answer per request, with token ids and log-probabilities, through a team's own
`act`; the other side calls `LLM.generate` on all prompts at once. Target: within 20 % at 10M parameters and batch 256.
A third side is the policy without streams (`stream=False`), whose answers cannot be gone on with when they break off.

Both sides run without torch.compile, which takes minutes to start on a CPU, unless --compiled is given.

Run: python benchmarks/served.py [--rounds 5] [--compiled]
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch

from palaestra.agents import LMPolicy, Request, ServedPolicy
from palaestra.agents.tiny import tokenizer
from palaestra.envs.protocol import Observation

BATCH, PROMPT, TOKENS = 256, 40, 32
ROUNDS = int(sys.argv[sys.argv.index("--rounds") + 1]) if "--rounds" in sys.argv else 5
ENGINE = {
    "dtype": "float32", "max_model_len": 512, "max_num_seqs": BATCH, "enable_prefix_caching": False,
    "enable_chunked_prefill": False, "enforce_eager": "--compiled" not in sys.argv,
}  # fmt: skip
TARGET = 0.8

IN_PROCESS = """
import json, sys, time
from vllm import LLM, SamplingParams
given = json.loads(sys.stdin.readline())
llm = LLM(given["folder"], logprobs_mode="processed_logprobs", generation_config="vllm", **given["engine"])
print("READY", flush=True)
for line in sys.stdin:
    job = json.loads(line)
    each = [SamplingParams(temperature=1.0, seed=seed, max_tokens=given["tokens"], logprobs=0, detokenize=True)
            for seed in job["seeds"]]
    began = time.perf_counter()
    out = llm.generate([{"prompt_token_ids": ids} for ids in job["prompts"]], each, use_tqdm=False)
    print("DONE", time.perf_counter() - began, json.dumps([list(o.outputs[0].token_ids) for o in out]), flush=True)
"""


class InProcess:
    """vLLM's own loop in a process of its own Python, which waits while the other side is measured."""

    def __init__(self, python: str, folder: Path) -> None:
        env = {"VLLM_CPU_KVCACHE_SPACE": "1", **os.environ, "VLLM_ENABLE_V1_MULTIPROCESSING": "0"}
        self.process = subprocess.Popen(
            [python, "-c", IN_PROCESS], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
            text=True, env=env | {"VLLM_LOGGING_LEVEL": "ERROR"},
        )  # fmt: skip
        self.send({"folder": str(folder), "engine": ENGINE, "tokens": TOKENS})
        self.wait("READY")

    def send(self, what: Any) -> None:
        """A line of JSON."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(what) + "\n")
        self.process.stdin.flush()

    def wait(self, word: str) -> str:
        """What follows this word on the first line that begins with it."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.startswith(word):
                return line.removeprefix(word)
        raise SystemExit(f"vLLM ended ({self.process.wait()}); run `{sys.executable} -c ...` by hand to see why")

    def generate(self, prompts: list[list[int]], seeds: list[int]) -> tuple[float, list[list[int]]]:
        """Seconds, and the ids of each answer."""
        self.send({"prompts": prompts, "seeds": seeds})
        seconds, _, ids = self.wait("DONE").strip().partition(" ")
        return float(seconds), json.loads(ids)


def model(folder: Path, width: int = 384, layers: int = 6) -> LMPolicy:
    """Llama made on the spot: 10.7 million parameters unless a width (of heads of 64) and a depth are given."""
    from transformers import LlamaConfig, LlamaForCausalLM

    words = tokenizer()
    torch.manual_seed(0)
    made = LlamaForCausalLM(LlamaConfig(
        vocab_size=len(words), hidden_size=width, intermediate_size=8 * width // 3, num_hidden_layers=layers,
        num_attention_heads=width // 64, num_key_value_heads=width // 64, head_dim=64, max_position_embeddings=512,
        tie_word_embeddings=False,
        pad_token_id=words.pad_token_id, bos_token_id=words.bos_token_id, eos_token_id=words.eos_token_id,
    ))  # fmt: skip
    LMPolicy(made, words, max_new_tokens=TOKENS).save(folder)
    return LMPolicy.load(folder)


def requests(round_: int) -> list[Request]:
    rng = np.random.default_rng(round_)
    texts = ["".join(map(chr, rng.integers(97, 123, PROMPT - 1))) for _ in range(BATCH)]
    return [Request(Observation(text), "a", np.random.default_rng([round_, i])) for i, text in enumerate(texts)]


def vllm_python() -> str | None:
    """Path of a Python that has vLLM, which servers then use; None, and a line that says so, without one."""
    usual = Path(__file__).parents[1] / ".venv" / "vllm" / "bin" / "python"
    python = os.environ.setdefault("PALAESTRA_VLLM", str(usual))
    os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")
    if Path(python).exists():
        return python
    print(f"no vLLM: {python} is not there; `make .venv/vllm/.installed` makes it")
    return None


def main() -> None:
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    python = vllm_python()
    if python is None:
        return
    with tempfile.TemporaryDirectory(prefix="served-") as folder:
        lm = model(Path(folder) / "model")
        size = sum(each.numel() for each in lm.model.parameters()) / 1e6
        served = ServedPolicy(lm, server="vllm", engine=ENGINE)
        began = time.perf_counter()
        served.sync(0)
        print(f"{size:.1f}M parameters, batch {BATCH}, prompts of {PROMPT}, answers of up to {TOKENS} tokens")
        print(f"server started, given weights and compared in {time.perf_counter() - began:.0f} s")
        whole = ServedPolicy(lm, url=served.servers[0].child.url, stream=False)  # type: ignore[union-attr]
        other = InProcess(python, Path(folder) / "model")
        speeds: dict[str, list[float]] = {"served": [], "in process": [], "without streams": []}
        for round_ in range(ROUNDS + 1):
            asked, asked_again = (requests(round_)[: BATCH if round_ else 16] for _ in range(2))
            prompts = [ids.tolist() for ids in lm.prompt_ids([each.observation for each in asked])]
            seeds = [int(np.random.default_rng([round_, i]).integers(2**31)) for i in range(len(asked))]
            began = time.perf_counter()
            decisions = served.act(asked)
            seconds = time.perf_counter() - began
            assert not any(each.error for each in decisions), next(each.error for each in decisions if each.error)
            ours = [each.action_ids.tolist() for each in decisions]  # type: ignore[union-attr]
            began = time.perf_counter()
            plain = whole.act(asked_again)
            without = time.perf_counter() - began
            assert [each.action for each in plain] == [each.action for each in decisions]
            alone, theirs = other.generate(prompts, seeds)
            equal = np.mean([a == b for a, b in zip(ours, theirs, strict=True)])
            if round_:  # the first warms both up
                speeds["served"].append(sum(map(len, ours)) / seconds)
                speeds["in process"].append(sum(map(len, theirs)) / alone)
                speeds["without streams"].append(sum(map(len, ours)) / without)
                said = ", ".join(f"{each[-1]:,.0f} {name}" for name, each in speeds.items())
                print(f"round {round_}: tokens/s: {said}; {equal:.0%} of the answers equal")
        began = time.perf_counter()
        with torch.no_grad():
            for each in lm.parameters():
                each.mul_(1.001)
        served.sync(1)
        print(f"a sync of new weights: {time.perf_counter() - began:.2f} s")
        other.process.kill()
        whole.close()
        served.close()
    ratios = [a / b for a, b in zip(speeds["served"], speeds["in process"], strict=True)]
    streams = [a / b for a, b in zip(speeds["served"], speeds["without streams"], strict=True)]
    print(f"with streams {median(streams):.2f} ({min(streams):.2f} to {max(streams):.2f}) of the speed without")
    ratio = median(ratios)
    print(f"served {median(speeds['served']):,.0f} tokens/s, in process {median(speeds['in process']):,.0f}: "
          f"ratio {ratio:.2f} ({min(ratios):.2f} to {max(ratios):.2f}), target at least {TARGET}")  # fmt: skip
    if ratio < TARGET:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
