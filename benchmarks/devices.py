"""What an update costs in two processes: the same rows, whole models on both ("ddp"), or half of one on each ("fsdp").

A Llama of 10 million parameters learns from 64 rows of 24 + 24 tokens, with the exact KL to its start. Time is the CPU
time of the slower process, one thread each, per update after a first one; memory is what the moments of AdamW take.
Wall time is printed besides: it needs two free cores. The weights must be those of one process to 1e-4.

Under "fsdp" every layer is gathered twice per pass and gradients are scattered, here through the loopback device; a
model that fits on one device is faster with "ddp".

Run: python benchmarks/devices.py
"""

from __future__ import annotations

import os

os.environ |= dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "POLARS_MAX_THREADS"), "1")

import json
import socket
import subprocess
import sys
import tempfile
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

import numpy as np
import polars as pl
import torch
from rich.console import Console
from rich.table import Table

from palaestra import LMPolicy, PolicyGradient, Team, Turns

ROWS, PROMPT, ANSWER, UPDATES = 64, 24, 24, 3
MOST_DDP, MOST_MOMENTS, MOST_APART = 0.75, 0.55, 1e-4


def policy() -> LMPolicy:
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    shape = {"hidden_size": 320, "intermediate_size": 1280, "num_hidden_layers": 6}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 64}
    model = LlamaForCausalLM(LlamaConfig(vocab_size=512, **shape, **heads))
    return LMPolicy(model, LMPolicy.tiny(["0 1 2"], hidden=16, layers=1, heads=1).tokenizer, name="lm")


def turns(seed: int) -> Turns:
    rng = np.random.default_rng(seed)
    columns: dict[str, Any] = {
        "policy": ["lm"] * ROWS,
        "prompt_ids": rng.integers(3, 500, (ROWS, PROMPT)).tolist(),
        "action_ids": rng.integers(3, 500, (ROWS, ANSWER)).tolist(),
        "logprobs": rng.normal(-6.2, 0.1, (ROWS, ANSWER)).tolist(),
        "advantage": rng.normal(size=ROWS),
    }
    return Turns(pl.DataFrame(columns))


def measure(kind: Any) -> dict[str, Any]:
    torch.set_num_threads(1)
    made = policy()
    terms = "surrogate(), kl(.05), entropy(.01)"
    learner = PolicyGradient(Team(a=made), terms, lr=1e-4, devices=kind, chunk_tokens=1024, timeout=300.0)
    learner.update(turns(0))
    wall, cpu = perf_counter(), process_time()
    for seed in range(1, UPDATES):
        learner.update(turns(seed))
    wall, cpu = (perf_counter() - wall) / (UPDATES - 1), (process_time() - cpu) / (UPDATES - 1)
    held = [state[key] for state in learner.optimisers["lm"].state.values() for key in ("exp_avg", "exp_avg_sq")]
    moments = sum(getattr(each, "to_local", lambda each=each: each)().nbytes for each in held)
    return {"wall": wall, "cpu": cpu, "moments": moments, "weights": made.state_dict() if learner.rank == 0 else {}}


def together(kind: str, folder: Path) -> list[dict[str, Any]]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    size = 1 if kind == "one" else 2
    common = os.environ | {"WORLD_SIZE": str(size), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    command = [sys.executable, __file__, kind, str(folder)]
    ranks = [subprocess.Popen(command, env=common | {"RANK": str(rank)}) for rank in range(size)]
    if sum(abs(rank.wait()) for rank in ranks):
        raise SystemExit(f"{kind}: a process failed")
    return [torch.load(folder / f"{kind}-{rank}.pt") for rank in range(size)]


def main() -> int:
    with tempfile.TemporaryDirectory() as name:
        found = {kind: together(kind, Path(name)) for kind in ("one", "ddp", "fsdp")}
    one = found["one"][0]
    table = Table("processes", "CPU s per update", "wall s", "moments MB", "weights apart", title="devices")
    apart = {}
    for kind, ranks in found.items():
        weights = ranks[0]["weights"]
        apart[kind] = max(float((weights[key] - value).abs().max()) for key, value in one["weights"].items())
        slower = max(rank["cpu"] for rank in ranks)
        table.add_row(
            {"one": "one", "ddp": "two, ddp", "fsdp": "two, fsdp"}[kind],
            f"{slower:.2f} ({slower / one['cpu']:.2f})",
            f"{ranks[0]['wall']:.2f} ({ranks[0]['wall'] / one['wall']:.2f})",
            f"{max(rank['moments'] for rank in ranks) / 1e6:.1f}",
            f"{apart[kind]:.1e}",
        )
    Console().print(table)
    ratio = max(rank["cpu"] for rank in found["ddp"]) / one["cpu"]
    share = max(rank["moments"] for rank in found["fsdp"]) / one["moments"]
    said = {"ddp": ratio, "moments": share, **{f"apart_{kind}": value for kind, value in apart.items()}}
    print(json.dumps({key: round(value, 8) for key, value in said.items()}))
    fine = ratio <= MOST_DDP and share <= MOST_MOMENTS and max(apart.values()) <= MOST_APART
    print("criteria met" if fine else "criteria NOT met")
    return 0 if fine else 1


if __name__ == "__main__":
    if len(sys.argv) == 3:
        torch.save(measure(sys.argv[1]), Path(sys.argv[2]) / f"{sys.argv[1]}-{os.environ['RANK']}.pt")
    else:
        sys.exit(main())
