"""[203] E-GRPO (arXiv 2510.24694): a wrong answer is worth something if its search met the gold entities.

Chains of three hops: five documents at each, five answers, right only if all four choices are. At the start success is
nearly never seen, so that GRPO has no signal; the entities of the documents that were read give one. Left out:
language models, clip-higher.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl

from palaestra.algebra.signals import Signal
from palaestra.algebra.turns import Turns
from palaestra.atlas.harness import Outcome, reproduction
from palaestra.atlas.reproductions.tabular import policy_gradient, sample, softmax, uniform
from palaestra.credit import grpo
from palaestra.rewards.combine.masks import e_grpo

PROMPTS, GROUP, HOPS, CHOICES = 16, 8, 3, 5
RATE, UPDATES, ENOUGH = 0.5, 600, 0.5
ENTITIES = np.array([[f"<{hop}:{document}>" for document in range(CHOICES)] for hop in range(HOPS)])


def table(read: np.ndarray, answer: np.ndarray) -> Turns:
    """Episodes of one turn: read int64[runs, prompts, episodes, hops], answer the same without hops; 0 is right."""
    run, group, episode = (axis.ravel() for axis in np.indices(answer.shape))
    thoughts = ENTITIES[np.arange(HOPS), read.reshape(-1, HOPS)]
    text = pl.Series(thoughts[:, 0]) + pl.Series(thoughts[:, 1]) + pl.Series(thoughts[:, 2])
    right = (read == 0).all(axis=-1) & (answer == 0)
    gold = pl.DataFrame({"gold": [ENTITIES[:, 0].tolist()]})["gold"].gather(np.zeros(len(run), np.uint32))
    keys = {"run": run.astype(str), "group": group, "episode": episode, "turn": group * 0, "agent": ["s"] * len(run)}
    rest = {"text": text, "gold": gold, "success": right.ravel(), "reward": right.ravel().astype(float)}
    return Turns(keys | rest | {"truncated": np.zeros(len(run), bool)})


def updates_needed(credit: Signal, seeds: Sequence[int]) -> np.ndarray:
    """Updates until half of the answers are right, for each seed."""
    streams, runs = [np.random.default_rng(seed) for seed in seeds], len(seeds)
    theta = np.zeros((runs, PROMPTS, HOPS + 1, CHOICES))
    run, cell = (axis.ravel() for axis in np.indices((runs, PROMPTS * GROUP * (HOPS + 1))))
    state = cell // (GROUP * (HOPS + 1)) * (HOPS + 1) + cell % (HOPS + 1)
    needed = np.full(runs, np.inf)
    for update in range(UPDATES):
        policy = softmax(theta)
        needed[np.isinf(needed) & (policy[..., 0].prod(axis=-1).mean(axis=-1) >= ENOUGH)] = update
        if np.isfinite(needed).all():
            break
        chosen = sample(policy[:, :, None], uniform(streams, PROMPTS, GROUP, HOPS + 1))
        turns = table(chosen[..., :HOPS], chosen[..., HOPS])
        advantage = np.repeat(np.asarray(credit.evaluate(turns)), HOPS + 1)
        flat = policy.reshape(runs, -1, CHOICES)
        gradient = policy_gradient(flat, run, state, chosen.ravel(), advantage)
        theta += RATE * gradient.reshape(theta.shape) / GROUP
    return needed


@reproduction(
    203,
    claim="Paying wrong answers for the gold entities that they met gives a signal to groups without a right answer.",
    baseline="GRPO on correctness",
    criterion="E-GRPO (α = 0.3) needs at most half the updates to 50 % right answers, in every seed",
    seeds=(0, 1, 2, 3, 4),
)
def measure(seeds: Sequence[int]) -> Outcome:
    """Updates with and without partial credit."""
    plain, ours = updates_needed(grpo(), seeds), updates_needed(e_grpo("text", "gold"), seeds)
    measured = {"updates_grpo": float(plain.mean()), "updates_e_grpo": float(ours.mean())}
    measured |= {"largest_ratio": float((ours / plain).max())}
    return Outcome(measured, bool((ours <= 0.5 * plain).all()))
