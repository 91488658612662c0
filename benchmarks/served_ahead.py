"""Play ahead through a server beside play ahead here: iterations to a level, the same weights, tasks and objective.

Needs a Python with vLLM: PALAESTRA_VLLM, or `.venv/vllm/bin/python` (`make .venv/vllm/.installed`). A tiny model learns
to say digits with `train.lag: 1`, once by its own forward pass and once through two replicas. The two draw other
answers from the same distribution, so single seeds differ; over seeds the number of iterations should not. Target: the
difference of means within 5 %, or within twice its standard error, since fewer seeds tell no more.

Run: python benchmarks/served_ahead.py [--seeds 8]
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
from served import vllm_python

from palaestra.agents import LMPolicy, ServedPolicy, Team
from palaestra.credit import grpo
from palaestra.envs.protocol import Observation, StepResult
from palaestra.learning import PolicyGradient, Trainer

SEEDS = int(sys.argv[sys.argv.index("--seeds") + 1]) if "--seeds" in sys.argv else 8
ITERATIONS, LEVEL = 60, 4.0
ENGINE = {"enforce_eager": True, "max_model_len": 256, "max_num_seqs": 64}


class Digits:
    """Env of one turn that pays 1 for each digit of the answer."""

    agents = ("a",)
    task = "digits"

    def reset(self, seed: int) -> dict[str, Observation]:
        """The first observation."""
        return {"a": Observation(f"{seed % 7} + 1 =")}

    def step(self, actions: Any) -> StepResult:
        """Reward of the answer; the episode ends."""
        return StepResult({}, {"a": float(sum(map(str.isdigit, actions["a"])))}, terminated=True)


def reached(policy: Any, seed: int) -> int:
    """Iterations until the mean reward of three in a row is at the level; all of them if it never is."""
    team = Team(a=policy)
    learner = PolicyGradient(team, "corrected()", lr=0.005)
    trainer = Trainer(
        Digits, team, credit=grpo(), learner=learner, iterations=ITERATIONS, groups=4, group_size=16, lag=1, seed=seed
    )
    rewards = np.array([line["reward"] for line in trainer.run()])
    over = np.convolve(rewards, np.ones(3) / 3, "valid") >= LEVEL
    return int(over.argmax()) + 3 if over.any() else ITERATIONS


def main() -> None:
    """Train both ways on each seed and print the means. Ends with 1 if they differ by more than the target."""
    if vllm_python() is None:
        return

    def tiny(seed: int) -> LMPolicy:
        return LMPolicy.tiny(seed=seed, hidden=64, heads=2, name="lm", max_new_tokens=8)

    servers = ServedPolicy(tiny(0), server="vllm", replicas=2, engine=ENGINE)
    found = []
    try:
        for seed in range(SEEDS):
            found.append((reached(tiny(seed), seed), reached(servers.sharing(tiny(seed)), seed)))
            print(f"seed {seed}: {found[-1][0]} iterations here, {found[-1][1]} through the servers", flush=True)
    finally:
        servers.close()
    here, there = np.array(found, float).T
    change, error = there.mean() / here.mean() - 1, (there - here).std(ddof=1) / np.sqrt(SEEDS) / here.mean()
    print(f"{here.mean():.1f} here, {there.mean():.1f} through the servers: {change:+.1%}, standard error {error:.1%}")
    if abs(change) > max(0.05, 2 * error):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
