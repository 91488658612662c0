"""Ten million parameters, as a script for two ranks; see `tests/scale/test_devices.py`."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import several
import torch

from palaestra import LMPolicy, PolicyGradient, Team


def team() -> Team:
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(int(os.environ.get("RANK", "0")))
    config = LlamaConfig(
        vocab_size=512, hidden_size=320, intermediate_size=1280, num_hidden_layers=6, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=64,
    )  # fmt: skip
    tokenizer = LMPolicy.tiny(several.WORDS, hidden=16, layers=1, heads=1).tokenizer
    return Team(a=LMPolicy(LlamaForCausalLM(config), tokenizer, name="lm", max_new_tokens=6))


def trained(kind: Any) -> dict[str, Any]:
    made = team()
    learner = PolicyGradient(made, several.MAIN, lr=1e-4, devices=kind, chunk_tokens=64, timeout=120.0)
    metrics = learner.update(several.table(alone=True))
    weights = {name: value.clone() for name, value in made["a"].state_dict().items()} if learner.rank == 0 else {}
    return {"weights": weights, "metrics": metrics.get("lm")}


def main(folder: Path) -> None:
    torch.set_num_threads(1)
    for kind in ("ddp", "fsdp"):
        found = trained(kind)
        if os.environ["RANK"] == "0":
            torch.save(found, folder / f"{kind}.pt")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
