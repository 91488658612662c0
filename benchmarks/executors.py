"""What workers bring, and what they cost.

1. 8,192 episodes of Kuhn poker, two language models of .1 M parameters, in 16 and in 64 shards: one process beside two
   workers, in processes and on Ray. Wall time counts on free cores; on busy ones the ratio of CPU seconds says what it
   would be: all of one process, against half of the workers' and the driver's.
2. CPU time of the driver per shard, and how often weights are put. Beside it what a bare loop over Ray takes, with a
   call for each shard and actors that sleep as long and answer with as many bytes. Ours answers for shards in a row.
3. Envs that wait: 64 at once, six steps of 20 ms each; two endpoints that take 0.2 s.

Run: python benchmarks/executors.py
"""

from __future__ import annotations

import io
import itertools
import os
import statistics
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import palaestra as pa
from palaestra.agents import LMPolicy, Team, random_legal
from palaestra.agents.policy import Decision, Request
from palaestra.envs.protocol import Action, Observation, StepResult
from palaestra.errors import MissingExtraError
from palaestra.play.executors import EXECUTORS, Local, Plan

KUHN = pa.envs.make("openspiel/kuhn_poker")
PLAN = Plan(groups=1024, group_size=8, seed=1)
SHARDS = (16, 64)
LEAST_SPEEDUP, MOST_DRIVER_MS, MOST_WAIT = 1.6, 2.0, 0.25


def players() -> Team:
    corpus = ["Pass", "Bet", "Kuhn poker: you hold a card, 0123456789"]
    return Team(player_0=LMPolicy.tiny(corpus, name="one"), player_1=LMPolicy.tiny(corpus, name="two", seed=1))


def bare_ray(seconds: float, size: int, shards: int) -> float:
    """CPU-ms of the driver per call of an actor that sleeps and answers with so many bytes; two of them, no more."""
    import ray

    @ray.remote(num_cpus=0)
    class Sleeper:
        def play(self, job: bytes, plan: bytes) -> bytes:
            time.sleep(seconds)
            return b"x" * size

    actors = [Sleeper.remote() for _ in range(2)]
    ray.get([actor.play.remote(b"", b"") for actor in actors])
    job, free, left = ray.put(b"x" * 2000), list(actors), shards
    doing: dict[Any, Any] = {}
    began = time.process_time()
    while left or doing:
        while free and left:
            actor = free.pop()
            doing[actor.play.remote(job, b"x" * 300)] = actor
            left -= 1
        for reference in ray.wait(list(doing), num_returns=1, timeout=1.0)[0]:
            ray.get(reference)
            free.append(doing.pop(reference))
    spent = time.process_time() - began
    for actor in actors:
        ray.kill(actor)
    return spent / shards * 1e3


def spread() -> bool:
    team = Team.made(players)
    holds = True
    heads = ("wall s", "CPU s", "faster: wall", "by CPU", "driver ms/shard", "bare loop", "puts")
    print(f"{'executor':<24}" + "".join(f"{head:>16}" for head in heads))
    for kind, shards in itertools.product(("processes", "ray"), SHARDS):
        text, here = f"{kind}(workers=2, shards={shards})", Local(shards=shards)
        here.play(KUHN, team, Plan(16, 8))  # warm
        try:
            executor: Any = EXECUTORS.build(text)
        except MissingExtraError as error:
            print(f"{text}: left out, {error}")
            continue
        executor.play(KUHN, team, Plan(64, 8))  # workers are there, and have made the team
        ratios, cpus, drivers, bare = [], [], [], [0.0]
        for _ in range(3):  # one beside the other, so that both meet the same machine
            began, cpu = time.perf_counter(), time.process_time()
            whole = here.play(KUHN, team, PLAN)
            alone, alone_cpu = time.perf_counter() - began, time.process_time() - cpu
            began, cpu, spent = time.perf_counter(), time.process_time(), executor.cpu_seconds
            turns = executor.play(KUHN, team, PLAN)
            wall, driver = time.perf_counter() - began, time.process_time() - cpu
            work = executor.cpu_seconds - spent
            assert turns.frame.drop("duration").equals(whole.frame.drop("duration"))
            ratios.append(alone / wall)
            cpus.append(alone_cpu / (work / 2 + driver))
            drivers.append(driver / shards * 1e3)
            if kind == "ray":
                table = io.BytesIO()
                turns.frame.write_ipc_stream(table)
                bare.append(bare_ray(2 * wall / shards, table.tell() // shards, shards))
        ratio, by_cpu, ms, alone = map(statistics.median, (ratios, cpus, drivers, bare[1:] or bare))
        good = max(ratio, by_cpu) >= LEAST_SPEEDUP and ms <= MOST_DRIVER_MS
        holds &= good
        numbers = (wall, work, ratio, by_cpu, ms, alone, executor.pool.put)
        print(f"{f'{kind}, {shards} shards':<24}" + "".join(f"{number:>16.2f}" for number in numbers))
        executor.close()
    print(f"criterion: {LEAST_SPEEDUP} times as fast, driver at most {MOST_DRIVER_MS} ms per shard: {said(holds)}\n")
    return holds


class Waiting:
    """Six steps of 20 ms."""

    agents = ("a",)
    task = "wait"

    def __init__(self, steps: int = 6, seconds: float = 0.02) -> None:
        self.steps, self.seconds = steps, seconds

    def reset(self, seed: int) -> Mapping[str, Observation]:
        """Start."""
        self.left = self.steps
        return self.see()

    def see(self) -> dict[str, Observation]:
        """Nothing much."""
        return {agent: Observation(f"{self.left} to go", choices=("x", "y")) for agent in self.agents}

    def step(self, actions: Mapping[str, Action]) -> StepResult:
        """Wait."""
        time.sleep(self.seconds)
        self.left -= 1
        return StepResult(self.see() if self.left else {}, dict.fromkeys(self.agents, 0.0), terminated=not self.left)


class Two(Waiting):
    """Two act at once, and the env does not wait."""

    agents = ("a", "b")


class Endpoint:
    """Answers after 0.2 s."""

    waits = True

    def __init__(self, name: str) -> None:
        self.name = name

    def act(self, requests: Sequence[Request]) -> list[Decision]:
        """The same for all."""
        time.sleep(0.2)
        return [Decision("x")] * len(requests)


def waiting() -> bool:
    script = random_legal()
    fastest = {}
    for text in ("local", "threads"):
        seconds = []
        for _ in range(7):
            began = time.perf_counter()
            EXECUTORS.build(text).play(Waiting, Team(a=script), Plan(64))
            seconds.append(time.perf_counter() - began)
        fastest[text] = min(seconds)
        median, best = statistics.median(seconds), min(seconds)
        print(f"64 envs, six steps of 20 ms, {text}: median {median:.3f} s, best {best:.3f} s")
    began = time.perf_counter()
    Local().play(lambda: Two(1, 0.0), Team(a=Endpoint("one"), b=Endpoint("two")), Plan(8))
    asked = time.perf_counter() - began
    print(f"two endpoints of 0.2 s, local: {asked:.3f} s")
    holds = max(fastest.values()) <= MOST_WAIT and asked <= 0.3
    print(f"criterion: at most {MOST_WAIT} s and 0.3 s: {said(holds)}\n")
    return holds


def said(holds: bool) -> str:
    return "holds" if holds else "FAILS"


if __name__ == "__main__":
    import torch

    torch.set_num_threads(1)
    print(f"load of the machine before: {os.getloadavg()[0]:.1f}, cores: {os.cpu_count()}\n")
    sys.exit(0 if all([spread(), waiting()]) else 1)
