"""An update from conversations of 16 turns: rows of turns, which read the history again and again, or one row for all.

The model: a Llama made here, 4 layers, 256 wide (8 heads, 4 with keys, 683 inside), 4,096 tokens, float32. The rows: 4
conversations (2 episodes of 2 tasks), a first prompt of 128 tokens, then 16 answers of 24 tokens with 40 tokens of a
tool's result in front of all but the first: 64 turns, 1,536 sampled tokens. Rows of turns have 40,448 tokens, rows of
conversations 4,448.

Criteria: loss and gradient are the same (to 1e-6 and 1e-5 of the norm), and conversations take at most a third of the
CPU time of turns. `packing` is what it costs to find and to pack the conversations, which is part of the update.

Run: python benchmarks/conversations.py
"""

from __future__ import annotations

import sys
from time import process_time
from typing import Any

import numpy as np
import polars as pl

CONVERSATIONS, TURNS, PROMPT, ANSWER, RESULT, VOCABULARY = 4, 16, 128, 24, 40, 4096
AT_LEAST, REPEATS = 3.0, 2


def table(conversations: int = CONVERSATIONS, turns: int = TURNS) -> Any:
    """Turns whose prompts hold all that was before."""
    from palaestra import Turns

    rng = np.random.default_rng(0)
    firsts = [rng.integers(3, VOCABULARY, PROMPT) for _ in range(-(-conversations // 2))]
    rows = []
    for number in range(conversations):
        prompt = firsts[number // 2]
        for turn in range(turns):
            action = rng.integers(3, VOCABULARY, ANSWER)
            rows.append({
                "group": number // 2, "episode": number % 2, "turn": turn, "agent": "a", "policy": "lm",
                "prompt_ids": prompt, "action_ids": action, "logprobs": np.full(ANSWER, -8.5),
                "advantage": float(rng.normal()),
            })  # fmt: skip
            prompt = np.concatenate([prompt, action, rng.integers(3, VOCABULARY, RESULT)])
    return Turns(pl.DataFrame(rows))


def policy(seed: int = 0) -> Any:
    """The model, with a tokenizer that nobody asks."""
    import torch
    import transformers

    from palaestra import LMPolicy
    from palaestra.agents.tiny import tokenizer

    config = transformers.LlamaConfig(
        vocab_size=VOCABULARY, hidden_size=256, intermediate_size=683, num_hidden_layers=4, num_attention_heads=8,
        num_key_value_heads=4, max_position_embeddings=4096, tie_word_embeddings=True,
    )  # fmt: skip
    torch.manual_seed(seed)
    return LMPolicy(transformers.LlamaForCausalLM(config), tokenizer())


def update(rows: str, turns: Any) -> tuple[float, float, np.ndarray]:
    """Least CPU seconds of an update, its loss and the gradient."""
    import torch

    from palaestra import PolicyGradient, Team

    lm = policy()
    learner = PolicyGradient(Team(a=lm), rows=rows, lr=0.0)  # type: ignore[arg-type]
    metrics = learner.forward_backward(turns)["lm"]
    gradient = torch.cat([p.grad.flatten() for p in lm.parameters() if p.grad is not None]).double().numpy()
    learner.optim_step()
    taken = []
    for _ in range(REPEATS):
        start = process_time()
        learner.update(turns)
        taken.append(process_time() - start)
    return min(taken), float(metrics["loss"] or 0.0), gradient


def packing(turns: Any) -> float:
    """CPU seconds."""
    from palaestra.learning.batch import make_batch
    from palaestra.learning.conversations import pack

    batch = make_batch(turns, "lm", "advantage")
    start = process_time()
    pack(batch)
    return process_time() - start


def main() -> int:
    """Print both, the ratio and the criteria."""
    import torch

    torch.set_num_threads(1)
    turns = table()
    seconds, loss, gradient = update("turn", turns)
    faster, same, other = update("conversation", turns)
    apart = float(np.linalg.norm(gradient - other) / np.linalg.norm(gradient))
    ratio = seconds / faster
    print(f"{CONVERSATIONS} conversations of {TURNS} turns, one thread, CPU seconds of an update")
    print(f"  rows of turns          {seconds:7.2f} s   loss {loss:+.7f}")
    print(
        f"  rows of conversations  {faster:7.2f} s   loss {same:+.7f}   of which packing {1e3 * packing(turns):.1f} ms"
    )
    large = table(512)
    print(f"  packing of {len(large):,} turns: {packing(large):.2f} s")
    met = {
        f"conversations are {ratio:.1f} times as fast (at least {AT_LEAST:g})": ratio >= AT_LEAST,
        f"the loss is the same (apart {abs(loss - same):.1e})": abs(loss - same) < 1e-6,
        f"the gradient is the same (apart {apart:.1e} of its norm)": apart < 1e-5,
    }
    for said, fine in met.items():
        print(f"  {'met    ' if fine else 'NOT MET'} {said}")
    return 0 if all(met.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
