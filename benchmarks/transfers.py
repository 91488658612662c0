"""Weights to a served policy through shared memory beside a folder: the same server and weights, in turns.

Needs a Python with vLLM: PALAESTRA_VLLM, or `.venv/vllm/bin/python` (`make .venv/vllm/.installed`).

For models of 10 and 100 million parameters, in float32, per sync:

1. Seconds until the server has the weights, without the comparison that follows, which is the same on both sides.
   Target: shared memory takes at most 1.2 of a folder's time, which is in the cache of the system here; no disk waits.
2. Seconds of the comparison.
3. CPU-seconds of the process that learns and of the server's, with the comparison: what another load changes least.
4. Bytes that are written to a file system, and to memory.

Run: python benchmarks/transfers.py [--rounds 5] [--small]
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
from served import ENGINE, vllm_python
from transformers import LlamaConfig, LlamaForCausalLM

from palaestra.agents import LMPolicy, ServedPolicy
from palaestra.agents.backends.weight_files import tensors
from palaestra.agents.backends.weights import WeightServer
from palaestra.agents.tiny import tokenizer

ROUNDS = int(sys.argv[sys.argv.index("--rounds") + 1]) if "--rounds" in sys.argv else 5
SHAPES = {"10M": (384, 1024, 6, 6), "100M": (768, 2048, 14, 12)}
"""Hidden size, feed-forward size, layers, heads."""
TARGET = 1.2


def model(shape: tuple[int, int, int, int]) -> LMPolicy:
    """A Llama of random weights."""
    words, (hidden, inner, layers, heads) = tokenizer(), shape
    torch.manual_seed(0)
    made = LlamaForCausalLM(LlamaConfig(
        vocab_size=len(words), hidden_size=hidden, intermediate_size=inner, num_hidden_layers=layers,
        num_attention_heads=heads, num_key_value_heads=heads, max_position_embeddings=512, tie_word_embeddings=False,
        pad_token_id=words.pad_token_id, bos_token_id=words.bos_token_id, eos_token_id=words.eos_token_id,
    ))  # fmt: skip
    return LMPolicy(made, words, name="lm", max_new_tokens=8)


def used(server: WeightServer) -> float:
    """CPU-seconds of a server's processes so far; they share a session."""
    assert server.child is not None
    session, ticks = os.getsid(server.child.pid), 0
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            fields = stat.read_text().rpartition(")")[2].split()
            ticks += int(fields[11]) + int(fields[12]) if int(fields[3]) == session else 0
    return ticks / os.sysconf("SC_CLK_TCK")


def measured(name: str) -> float:
    """Syncs in turns; the median of shared memory's seconds over a folder's in the same round."""
    lm = model(SHAPES[name])
    served = ServedPolicy(lm, server="vllm", engine=ENGINE, transfer="shared_memory")
    (server,) = served.servers
    compared: list[float] = []
    found: dict[str, list[dict[str, float]]] = {"folder": [], "shared memory": []}
    compare = WeightServer._compare

    def timed(*args: Any) -> None:
        began = time.perf_counter()
        compare(*args)
        compared.append(time.perf_counter() - began)

    WeightServer._compare = timed  # type: ignore[method-assign]
    try:
        served.sync(0)
        ways = {"folder": None, "shared memory": server.transfer}
        for round_ in range(ROUNDS + 1):
            for way in list(ways)[:: 1 if round_ % 2 else -1]:
                server.transfer = ways[way]
                with torch.no_grad():
                    for each in lm.parameters():
                        each.mul_(1.0001)
                began, spent = time.perf_counter(), np.array([time.process_time(), used(server)])
                served.sync(round_)
                seconds = time.perf_counter() - began
                here, there = np.array([time.process_time(), used(server)]) - spent
                if round_:  # the first warms both up
                    row = {"seconds": seconds - compared[-1], "compared": compared[-1], "here": here, "there": there}
                    found[way].append(row)
        served.export(place := Path(served._folder) / "size")
        disk = sum(file.stat().st_size for file in place.iterdir())
    finally:
        WeightServer._compare = compare  # type: ignore[method-assign]
        served.close()
    memory = sum(tensor.nbytes for _, tensor in tensors(lm))
    size = sum(each.numel() for each in lm.parameters()) / 1e6
    print(f"{size:.1f}M parameters; {disk / 1e6:,.1f} MB in a folder, {memory / 1e6:,.1f} MB in memory")
    for way, rows in found.items():
        seconds, least, most = (pick(row["seconds"] for row in rows) for pick in (median, min, max))
        looked, here, there = (median(row[each] for row in rows) for each in ("compared", "here", "there"))
        print(
            f"  {way}: {seconds:.3f} s ({least:.3f} to {most:.3f}), comparison {looked:.3f} s; "
            f"CPU {here:.2f} s here, {there:.2f} s there",
            flush=True,
        )
    return median(b["seconds"] / a["seconds"] for a, b in zip(*found.values(), strict=True))


def main() -> None:
    """Measure both sizes. Ends with 1 if shared memory takes longer than the target."""
    if vllm_python() is None:
        return
    ratios = {name: measured(name) for name in list(SHAPES)[: 1 if "--small" in sys.argv else None]}
    print("; ".join(f"{name}: shared memory takes {ratio:.2f} of a folder's time" for name, ratio in ratios.items()))
    if max(ratios.values()) > TARGET:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
