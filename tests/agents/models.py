"""Small language models that tests make on the spot."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import torch
import transformers

from palaestra.agents import LMPolicy
from palaestra.agents.tiny import tokenizer

IDS = pl.List(pl.Int32)


LORA = {"r": 2, "target_modules": ["c_attn"], "fan_in_fan_out": True}


def gpt2(**options) -> LMPolicy:
    """Another architecture: learned positions, the generic way through the model."""
    tokens = tokenizer(["bet", "pass", "which card?"])
    with torch.random.fork_rng():
        torch.manual_seed(0)
        config = transformers.GPT2Config(
            vocab_size=len(tokens), n_embd=32, n_layer=2, n_head=2, n_positions=160, initializer_range=0.1
        )
        model = transformers.GPT2LMHeadModel(config)
    return LMPolicy(model, tokens, **options)


def tiny(**options) -> LMPolicy:
    return LMPolicy.tiny(["bet", "pass", "which card?"], **options)


POLICIES = [tiny, gpt2]


def rows_of(decisions) -> pl.DataFrame:
    return pl.DataFrame(
        {name: [getattr(d, name).tolist() for d in decisions] for name in ("prompt_ids", "action_ids")},
        schema={"prompt_ids": IDS, "action_ids": IDS},
    )


EXAMPLES = [("which card?", "bet"), ("which card? pass", "pass"), ("bet", "which")]


def qwen(folder: Path) -> Path:
    """Another base, saved: a Qwen2 of two layers with grouped heads."""
    tokens = tokenizer(["bet", "pass", "which card?"])
    with torch.random.fork_rng():
        torch.manual_seed(0)
        config = transformers.Qwen2Config(
            vocab_size=len(tokens), hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
            num_key_value_heads=2, max_position_embeddings=160, initializer_range=0.2, bos_token_id=None,
        )  # fmt: skip
        LMPolicy(transformers.Qwen2ForCausalLM(config), tokens).save(folder)
    return folder
