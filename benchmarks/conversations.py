"""An update from conversations: what it costs to read histories again, once per conversation, or once per tree.

The model: a Llama made here, 4 layers, 256 wide (8 heads, 4 with keys, 683 inside), 4,096 tokens, float32. The rows: 4
conversations (2 episodes of 2 tasks), a first prompt of 128 tokens, then 16 answers of 24 tokens with 40 tokens of a
tool's result in front of all but the first: 64 turns, 1,536 sampled tokens. Rows of turns have 40,448 tokens, rows of
conversations 4,448. And 8 branches of one history: 8 turns of 16 tokens and their context, 512 tokens in all, then an
answer of 32 tokens in each. Conversations apart have 4,344 tokens that are read, their tree has 760.

Criteria: loss and gradient are the same (to 1e-6 and 1e-5 of the norm). Conversations take at most a third of the CPU
time of turns that are read apart, and so do branches as a tree, compared with branches apart. `packing` is what it
costs to find and to pack the conversations, which is part of the update.

Run: python benchmarks/conversations.py
"""

from __future__ import annotations

import sys
from contextlib import nullcontext
from time import process_time
from typing import Any

import numpy as np
import polars as pl

BRANCHES, HISTORY, OWN = 8, 512, 32
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


def branches(count: int = BRANCHES, history: int = HISTORY, own: int = OWN) -> Any:
    """Conversations that have all turns but the last in common."""
    from palaestra import Turns

    rng = np.random.default_rng(0)
    said, shown = 16, 40
    prompt, talk = rng.integers(3, VOCABULARY, history - 8 * (said + shown)), []
    for _ in range(8):
        action = rng.integers(3, VOCABULARY, said)
        talk.append((prompt, action))
        prompt = np.concatenate([prompt, action, rng.integers(3, VOCABULARY, shown)])
    rows = [
        {
            "group": 0, "episode": episode, "turn": turn, "agent": "a", "policy": "lm", "prompt_ids": seen,
            "action_ids": action, "logprobs": np.full(len(action), -8.5), "advantage": float(rng.normal()),
        }
        for episode in range(count)
        for turn, (seen, action) in enumerate([*talk, (prompt, rng.integers(3, VOCABULARY, own))])
    ]  # fmt: skip
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


def update(rows: str, turns: Any, *, trees: bool = True) -> tuple[float, float, np.ndarray]:
    """Least CPU seconds of an update, its loss and the gradient; trees: shared tokens are read once."""
    from palaestra.agents.backends.prefix_trees import unshared

    with nullcontext() if trees else unshared():
        return _update(rows, turns)


def _update(rows: str, turns: Any) -> tuple[float, float, np.ndarray]:
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
    seconds, loss, gradient = update("turn", turns, trees=False)
    read_once, _, _ = update("turn", turns)
    faster, same, other = update("conversation", turns)
    apart = float(np.linalg.norm(gradient - other) / np.linalg.norm(gradient))
    ratio = seconds / faster
    print(f"{CONVERSATIONS} conversations of {TURNS} turns, one thread, CPU seconds of an update")
    print(f"  rows of turns, apart   {seconds:7.2f} s   loss {loss:+.7f}")
    print(f"  rows of turns, trees   {read_once:7.2f} s")
    print(
        f"  rows of conversations  {faster:7.2f} s   loss {same:+.7f}   of which packing {1e3 * packing(turns):.1f} ms"
    )
    large = table(512)
    print(f"  packing of {len(large):,} turns: {packing(large):.2f} s")
    talks = branches()
    alone, loss_alone, slope_alone = update("conversation", talks, trees=False)
    tree, loss_tree, slope_tree = update("conversation", talks)
    off = float(np.linalg.norm(slope_tree - slope_alone) / np.linalg.norm(slope_alone))
    print(f"{BRANCHES} branches of {OWN} tokens after {HISTORY} that they share")
    print(f"  apart                  {alone:7.2f} s   loss {loss_alone:+.7f}")
    print(f"  as a tree              {tree:7.2f} s   loss {loss_tree:+.7f}")
    met = {
        f"conversations are {ratio:.1f} times as fast (at least {AT_LEAST:g})": ratio >= AT_LEAST,
        f"the loss is the same (apart {abs(loss - same):.1e})": abs(loss - same) < 1e-6,
        f"the gradient is the same (apart {apart:.1e} of its norm)": apart < 1e-5,
        f"a tree is {alone / tree:.1f} times as fast (at least {AT_LEAST:g})": alone / tree >= AT_LEAST,
        f"the loss of a tree is the same (apart {abs(loss_alone - loss_tree):.1e})": abs(loss_alone - loss_tree) < 1e-6,
        f"the gradient of a tree is the same (apart {off:.1e} of its norm)": off < 1e-5,
    }
    for said, fine in met.items():
        print(f"  {'met    ' if fine else 'NOT MET'} {said}")
    return 0 if all(met.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
