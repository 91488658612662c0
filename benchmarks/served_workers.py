"""Envs that compute on two workers beside one process, while a server answers for the policy: iterations per second.

Needs a Python with vLLM: PALAESTRA_VLLM, or `.venv/vllm/bin/python` (`make .venv/vllm/.installed`); or `--url` of a
server of the folder `--model`. Each step of the env takes 20 ms of a core, so one process takes them one after the
other. The two ways take turns, with the same weights, tasks and seeds; a tiny model learns in between.

1. Iterations per second by the clock, and their ratio. It means something on cores that are free: a server on the same
   two cores takes part of what the workers have.
2. CPU-seconds per iteration of this process, and of the workers. This process plus one worker of two is the time that
   an iteration would take with a core for each, and the server elsewhere.

Run: python benchmarks/served_workers.py [--rounds 5] [--on 'ray(workers=2)'] [--url http://127.0.0.1:8000/v1 --model F]
"""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

from served import vllm_python

from palaestra.agents import LMPolicy, ServedPolicy, Team
from palaestra.credit import grpo
from palaestra.envs.protocol import Action, Observation, StepResult
from palaestra.learning import PolicyGradient, Trainer
from palaestra.play.executors import EXECUTORS

WORK, TURNS, GROUPS, SIZE = 0.02, 3, 8, 4
ENGINE = {"enforce_eager": True, "max_model_len": 256, "max_num_seqs": 64}


def option(name: str, default: str) -> str:
    """The word behind an option of the command line."""
    return sys.argv[sys.argv.index(name) + 1] if name in sys.argv else default


class Working:
    """Env of three turns, each of which takes 20 ms of a core; pays 1 for each digit of the answer."""

    agents = ("a",)
    task = "digits"

    def reset(self, seed: int) -> Mapping[str, Observation]:
        """The first observation."""
        self.seed, self.turn = seed, 0
        return {"a": Observation(f"{seed % 7} + 1 =")}

    def step(self, actions: Mapping[str, Action]) -> StepResult:
        """Work, and pay."""
        began = time.thread_time()
        while time.thread_time() - began < WORK:
            pass
        self.turn += 1
        paid = {"a": float(sum(map(str.isdigit, str(actions["a"]))))}
        if self.turn == TURNS:
            return StepResult({}, paid, terminated=True)
        return StepResult({"a": Observation(f"{self.seed % 7} + {self.turn} =")}, paid)


def team_of(model: str, options: dict[str, Any]) -> Team:
    """The team, here and on workers."""
    return Team(a=ServedPolicy.from_pretrained(model, name="lm", max_new_tokens=8, **options))


def main() -> None:
    """Train both ways in turns and print the medians."""
    url = option("--url", "")
    if not url and vllm_python() is None:
        return
    rounds = int(option("--rounds", "5"))
    with TemporaryDirectory(prefix="served-workers-") as folder:
        model = option("--model", folder)
        if model == folder:
            LMPolicy.tiny(hidden=64, heads=2, name="lm").save(folder)
        options: dict[str, Any] = {"url": url} if url else {"server": "vllm", "engine": ENGINE}
        team = Team.made(team_of, model, options)
        learner = PolicyGradient(team, "corrected()", lr=1e-5)
        ways = {"one process": "local()", "workers": option("--on", "processes(workers=2)")}
        executors = {name: EXECUTORS.build(text) for name, text in ways.items()}
        found: dict[str, list[tuple[float, float, float]]] = {name: [] for name in ways}
        for round_ in range(rounds + 1):  # the first warms up: workers and server start
            for name in ways if round_ % 2 else reversed(ways):
                trainer = Trainer(
                    Working, team, credit=grpo(), learner=learner, executor=executors[name], iterations=2,
                    groups=GROUPS, group_size=SIZE, seed=round_,
                )  # fmt: skip
                began, spent = time.perf_counter(), time.process_time()
                lines = trainer.run()
                seconds, spent = time.perf_counter() - began, time.process_time() - spent
                if round_:
                    found[name].append((2 / seconds, spent / 2, (lines[-1]["cpu_seconds"] - spent) / 2))
            if round_:
                print(f"round {round_}: " + ", ".join(f"{n} {v[-1][0]:.2f} iterations/s" for n, v in found.items()))
        for executor in executors.values():
            executor.close()
        team["a"].close()  # type: ignore[attr-defined]
    one, two = (tuple(median(row[i] for row in found[name]) for i in range(3)) for name in ways)
    ratios = [b[0] / a[0] for a, b in zip(found["one process"], found["workers"], strict=True)]
    print(
        f"iterations/s: {one[0]:.2f} in one process, {two[0]:.2f} with {ways['workers']}: {median(ratios):.2f} times "
        f"({min(ratios):.2f} to {max(ratios):.2f})\n"
        f"CPU-s per iteration: {one[1]:.2f} in one process; {two[1]:.2f} here and {two[2]:.2f} in workers"
    )


if __name__ == "__main__":
    main()
