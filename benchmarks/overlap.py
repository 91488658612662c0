"""What it brings to play ahead of learning.

1. Wall time of lag 0 and lag 1 with one worker process, where play and learning take equal time: the learner passes
   over its rows until they do. On busy cores the CPU seconds say what free ones would show: the sum of both, against
   the longer of the two.
2. With `--success`: success of the last ten iterations over five seeds, two tables that must agree on a code, for lags
   0 to 8; and whether 0 lies within the interval of the difference of lag 1.

Run: python benchmarks/overlap.py [--success]
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
from scipy import stats

from palaestra.agents import LMPolicy, TabularPolicy, Team
from palaestra.credit import agent_return, grpo
from palaestra.envs.protocol import Action, Observation, StepResult
from palaestra.learning import PolicyGradient, Trainer
from palaestra.play.executors import EXECUTORS, Executor, Local

LEAST = 1.3
DIGITS = tuple("0123")


class Code:
    """The asker sees a digit and says something of one sign, the answerer must name the digit."""

    agents = ("asker", "answerer")
    task = ""

    def reset(self, seed: int) -> Mapping[str, Observation]:
        """A digit."""
        self.digit = DIGITS[seed // 2 % 4]
        self.task = f"digit {self.digit}"
        return {"asker": Observation(f"see {self.digit}", choices=DIGITS)}

    def step(self, actions: Mapping[str, Action]) -> StepResult:
        """What was said is heard; what is answered is judged."""
        said = {agent: DIGITS[action] if isinstance(action, int) else str(action) for agent, action in actions.items()}
        if "asker" in said:
            return StepResult({"answerer": Observation(f"heard {said['asker'][:1]}", choices=DIGITS)}, {"asker": 0.0})
        right = said["answerer"] == self.digit
        return StepResult({}, dict.fromkeys(self.agents, float(right)), terminated=True, info={"success": right})


def players(seed: int = 0) -> Team:
    corpus = [f"see {d} heard {d} {d}" for d in DIGITS]
    options: dict[str, Any] = {"max_new_tokens": 2, "hidden": 64, "layers": 2, "heads": 4}
    return Team(
        asker=LMPolicy.tiny(corpus, name="asker", seed=seed, **options),
        answerer=LMPolicy.tiny(corpus, name="answerer", seed=seed + 1000, **options),
    )


def tables() -> Team:
    return Team({agent: TabularPolicy(4, name=agent, capacity=8) for agent in Code.agents})


def trainer(team: Team, lag: int, executor: Executor, *, lr: float = 2e-3, epochs: int = 1, **options: Any) -> Trainer:
    learner = PolicyGradient(team, "surrogate(), entropy(0.002)", lr=lr, epochs=epochs)
    settings = {"groups": 64, "group_size": 16, "executor": executor, "lag": lag} | options
    return Trainer(Code, team, credit=grpo(agent_return()), learner=learner, **settings)


def speed() -> bool:
    executor = EXECUTORS.build("processes(workers=1, shards=4)")
    probe = trainer(Team.made(players), 0, executor, iterations=6).run()
    played_s = float(np.median([line["waiting_seconds"] for line in probe[2:]]))
    learned_s = float(np.median(np.diff([line["wall_seconds"] for line in probe[1:]]))) - played_s
    epochs = max(1, round(played_s / learned_s))
    print(f"play {played_s:.2f} s, learning {learned_s:.2f} s an epoch: {epochs} epochs\n")
    print(f"{'lag':>3} {'wall s':>7} {'waited s':>9} {'workers CPU s':>14} {'learner CPU s':>14} {'version lag':>12}")
    walls, cpus = {}, {}
    for lag in (0, 1):
        made = trainer(Team.made(players), lag, executor, iterations=24, epochs=epochs)
        spent, cpu, began = worked(executor), time.process_time(), time.perf_counter()
        lines = made.run()
        walls[lag] = time.perf_counter() - began
        learner = time.process_time() - cpu
        workers = lines[-1]["cpu_seconds"] - learner if lag else worked(executor) - spent
        cpus[lag] = (workers, learner)
        waited = sum(line["waiting_seconds"] for line in lines)
        told = f"{walls[lag]:>7.2f} {waited:>9.2f} {workers:>14.2f} {learner:>14.2f}"
        print(f"{lag:>3} {told} {lines[-1]['version_lag']:>12}")
    executor.close()
    wall, by_cpu = walls[0] / walls[1], sum(cpus[0]) / max(cpus[0])
    holds = max(wall, by_cpu) >= LEAST
    print(f"\nlag 1 is {wall:.2f} times as fast by the clock, {by_cpu:.2f} by CPU seconds on free cores")
    print(f"criterion: at least {LEAST}: {'holds' if holds else 'FAILS'}\n")
    return holds


def worked(executor: Any) -> float:
    return float(executor.cpu_seconds)


def success(seeds: int = 5, iterations: int = 80) -> bool:
    final = {}
    for lag in (0, 1, 2, 4, 8):
        how: dict[str, Any] = {"iterations": iterations, "groups": 8, "lr": 0.1}
        runs = [trainer(tables(), lag, Local(timeout=None), seed=seed, **how).run() for seed in range(seeds)]
        final[lag] = np.array([np.mean([line["success"] for line in lines[-10:]]) for lines in runs])
        print(f"lag {lag}: {', '.join(f'{value:.3f}' for value in final[lag])}, mean {final[lag].mean():.3f}")
    holds = True
    for lag in (1, 2, 4, 8):
        difference = final[lag] - final[0]
        half = stats.t.ppf(0.975, seeds - 1) * difference.std(ddof=1) / np.sqrt(seeds)
        low, high = difference.mean() - half, difference.mean() + half
        within = low <= 0 <= high
        holds &= within or lag > 1
        print(f"lag {lag} - lag 0: {difference.mean():+.3f} ({low:+.3f} to {high:+.3f})")
    print(f"criterion: 0 lies within the interval of lag 1: {'holds' if holds else 'FAILS'}")
    return bool(holds)


if __name__ == "__main__":
    import torch

    torch.set_num_threads(1)
    print(f"load of the machine before: {os.getloadavg()[0]:.1f}, cores: {os.cpu_count()}\n")
    sys.exit(0 if (success() if "--success" in sys.argv else speed()) else 1)
