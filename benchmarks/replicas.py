"""Two replicas of a served policy beside one: the same weights, prompts and seeds, in turns.

Needs a Python with vLLM: PALAESTRA_VLLM, or `.venv/vllm/bin/python` (`make .venv/vllm/.installed`). A second replica
brings hardware of its own. On a CPU that is an equal part of the cores, to which each is confined here with all its
processes: else one replica alone does on the other's cores what it does besides its arithmetic (1.2 cores of two).

1. Tokens per second of two replicas, over those of one. Target: at least 1.7. There are `--waves` (4) times as many
   requests as a replica answers at a time: the last are answered in batches that are not full, and of two waves two
   replicas see hardly more than that end.
2. Answers of the two equal those of the one: which server is asked changes nothing.
3. CPU-seconds of the process that asks, which on two cores come off what the servers have.
4. The same ratio as `server: vllm` starts them, not confined.

Run: python benchmarks/replicas.py [--rounds 5] [--waves 4]
"""

from __future__ import annotations

import os
import sys
import time
from contextlib import suppress
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

import numpy as np
from served import BATCH, ENGINE, model, requests, vllm_python

from palaestra.agents import ServedPolicy
from palaestra.agents.backends.launch import share

ROUNDS = int(sys.argv[sys.argv.index("--rounds") + 1]) if "--rounds" in sys.argv else 5
WAVES = int(sys.argv[sys.argv.index("--waves") + 1]) if "--waves" in sys.argv else 4
TARGET = 1.7


def family(root: int) -> list[int]:
    """Process ids of a process and of all that it started."""
    parents = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            parents[int(folder.name)] = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
    return [root, *(each for child, parent in parents.items() if parent == root for each in family(child))]


def confine(process: int, cores: set[int]) -> None:
    """Lets all threads of a process, and of those that it started, run on these cores only."""
    for each in family(process):
        for thread in Path(f"/proc/{each}/task").iterdir():
            with suppress(OSError):
                os.sched_setaffinity(int(thread.name), cores)


def main() -> None:
    """Play rounds in turns and print the ratios. Ends with 1 if confined replicas miss the target or answers differ."""
    if vllm_python() is None:
        return
    there = sorted(os.sched_getaffinity(0))
    with TemporaryDirectory(prefix="replicas-") as folder:
        served = ServedPolicy(
            model(Path(folder) / "model"), server="vllm", replicas=2, engine=ENGINE, concurrency=2 * BATCH
        )
        both = served.servers
        served.sync(0)
        shares = []
        speeds: dict[tuple[bool, int], list[float]] = {(own, n): [] for own in (True, False) for n in (1, 2)}
        for round_ in range(ROUNDS + 1):
            for own in (True, False):
                for place, server in enumerate(both):
                    assert server.child is not None
                    confine(server.child.pid, set(map(int, share(place, 2, there))) if own else set(there))
                answers = {}
                for count in (1, 2) if round_ % 2 else (2, 1):
                    served.servers = both[:count]
                    waves = range(WAVES * round_, WAVES * (round_ + 1)) if round_ else [0]
                    asked = [each for wave in waves for each in requests(wave)][: None if round_ else 16]
                    began, spent = time.perf_counter(), time.process_time()
                    decisions = served.act(asked)
                    seconds, spent = time.perf_counter() - began, time.process_time() - spent
                    assert not any(each.error for each in decisions), next(filter(None, (e.error for e in decisions)))
                    answers[count] = [each.action_ids.tolist() for each in decisions]  # type: ignore[union-attr]
                    speeds[own, count].append(sum(map(len, answers[count])) / seconds)
                shares.append(np.mean([a == b for a, b in zip(answers[1], answers[2], strict=True)]))
                if round_:  # the first warms both up
                    print(
                        f"round {round_}, {'cores of its own' if own else 'not confined'}: "
                        f"one {speeds[own, 1][-1]:,.0f} tokens/s, two {speeds[own, 2][-1]:,.0f}; "
                        f"{shares[-1]:.0%} of the answers equal; the asking takes {spent / seconds:.0%} of a core",
                        flush=True,
                    )
        served.servers = both
        served.close()
    ratios = {
        own: [two / one for one, two in zip(speeds[own, 1][1:], speeds[own, 2][1:], strict=True)]
        for own in (True, False)
    }
    for own, each in ratios.items():
        print(
            f"two replicas, {'each on cores of its own' if own else 'not confined'}, say {median(each):.2f} times as "
            f"much as one ({min(each):.2f} to {max(each):.2f})" + f", target {TARGET}" * own
        )
    if median(ratios[True]) < TARGET or min(shares) < 1:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
