"""Peak memory of one update with a vocabulary of 150,000 and 8,192 tokens, beside the model and its optimiser.

The model: a Qwen2 of 8 layers, 512 wide (8 heads of which 2 have keys, 1,536 inside), with the 151,936 tokens of Qwen's
vocabulary and tied embeddings, float32: 102 million parameters, of which 78 million are the vocabulary. The rows: 16
prompts of 64 tokens, 4 answers of 64 to each: 64 rows, 8,192 tokens as a trainer counts them, 4,096 of them said.

"The model and its optimiser" are weights, gradients and two moments of Adam, 16 bytes a parameter. Measured is the peak
of resident memory over what the process has before the model is made, over two updates, the first of which has four
rows and makes the moments; a process for each way:

- as it was before: all logits of a piece at once, `log_softmax` and what a gradient keeps of it. It takes so much that
  it is measured at fewer rows, 4 and 8, and extended in a straight line to 64.
- chunks: as a policy comes. chunks, checkpoints: with `gradient_checkpointing=True`, for which the criterion holds.
- apart: the latter as it was, with the gradient of each use of the vocabulary's matrix in one of its own, as autograd
  does it, and with what is freed kept by the C library, in pieces that do not fit.
- in pieces: the criterion's way, with pieces of 1,024 tokens instead of one of 8,192.

Run: python benchmarks/update_memory.py
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np

PROMPTS, GROUP, PROMPT, ANSWER, VOCABULARY = 16, 4, 64, 64, 151_936
MOST = 1.3
WAYS = ("before", "chunks", "chunks, checkpoints, apart", "chunks, checkpoints in pieces", "chunks, checkpoints")


def peak() -> float:
    """Bytes of the process, at most so far."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(1024.0 * int(line.split()[1]) for line in lines if line.startswith("VmHWM"))


def one(way: str, rows: int) -> dict[str, float]:
    """Two updates in this process."""
    import polars as pl
    import torch
    import transformers

    from palaestra import LMPolicy, PolicyGradient, Team, Turns
    from palaestra.agents.backends import forward, head
    from palaestra.agents.tiny import tokenizer
    from palaestra.learning import learner as learning

    torch.set_num_threads(2)
    if way == "before":
        head.CHUNK = 2**60
    if "apart" in way:
        learning.adding_up = contextlib.nullcontext  # type: ignore[attr-defined,assignment]
        forward.give_back = lambda: None  # type: ignore[attr-defined,assignment,misc]
    rng, ids = np.random.default_rng(0), pl.List(pl.Int32)
    prompts = [rng.integers(0, VOCABULARY, PROMPT).tolist() for _ in range(PROMPTS)]
    turns = Turns(
        pl.DataFrame(
            {
                "policy": ["lm"] * rows,
                "prompt_ids": [prompts[i // GROUP] for i in range(rows)],
                "action_ids": [rng.integers(0, VOCABULARY, ANSWER).tolist() for _ in range(rows)],
                "logprobs": [[-12.0] * ANSWER] * rows,
                "advantage": rng.normal(size=rows),
            },
            schema_overrides={"prompt_ids": ids, "action_ids": ids},
        )
    )
    tokens: Any = tokenizer()
    before = peak()
    config = transformers.Qwen2Config(
        vocab_size=VOCABULARY, hidden_size=512, intermediate_size=1536, num_hidden_layers=8, num_attention_heads=8,
        num_key_value_heads=2, max_position_embeddings=256, tie_word_embeddings=True,
    )  # fmt: skip
    policy = LMPolicy(transformers.Qwen2ForCausalLM(config), tokens, gradient_checkpointing="checkpoints" in way)
    tokens_at_once = 1024 if "pieces" in way else 8192
    learner = PolicyGradient(Team(a=policy), "surrogate(), entropy(.01)", lr=1e-6, chunk_tokens=tokens_at_once)
    began = process_time()
    for few in (4, rows):
        learner.update(Turns(turns.frame.head(few)))
    parameters = sum(parameter.numel() for parameter in policy.parameters())
    return {"peak": peak() - before, "model": 16.0 * parameters, "seconds": process_time() - began}


def run(way: str, rows: int) -> dict[str, float]:
    """`one` in a process of its own."""
    command = [sys.executable, __file__, way, str(rows)]
    return json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout)  # type: ignore[no-any-return]


def main() -> int:
    """Measure, print, and say whether the criterion holds."""
    whole = PROMPTS * GROUP
    print(f"{whole} rows of {PROMPT} + {ANSWER} tokens, vocabulary {VOCABULARY:,}")
    few, more = (run("before", rows) for rows in (4, 8))
    slope = (more["peak"] - few["peak"]) / 4
    found = {"before": more["peak"] + (whole - 8) * slope}
    for rows, each in ((4, few), (8, more)):
        share = each["peak"] / each["model"]
        print(f"{'before':29} {rows:3} rows  {each['peak'] / 1e9:6.2f} GB, {share:.2f} of the model")
    print(f"{'before':29} {whole:3} rows  {found['before'] / 1e9:6.2f} GB, extended in a straight line")
    for way in WAYS[1:]:
        each = run(way, whole)
        found[way] = each["peak"] / each["model"]
        print(
            f"{way:29} {whole:3} rows  {each['peak'] / 1e9:6.2f} GB, {found[way]:.2f} of the model and its optimiser"
            f" ({each['model'] / 1e9:.2f} GB), {each['seconds']:.0f} CPU-s"
        )
    share = found[WAYS[-1]]
    holds = share <= MOST
    print(f"{'PASS' if holds else 'FAIL'}  {WAYS[-1]}: {share:.2f} of the model and its optimiser, at most {MOST}")
    return 0 if holds else 1


if __name__ == "__main__":
    if len(sys.argv) > 1:
        print(json.dumps(one(sys.argv[1], int(sys.argv[2]))))
    else:
        sys.exit(main())
