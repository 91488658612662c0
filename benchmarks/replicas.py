"""Two replicas of a served policy beside one: the same weights, prompts and seeds, in turns.

Needs a Python with vLLM: PALAESTRA_VLLM, or `.venv/vllm/bin/python` (`make .venv/vllm/.installed`). On a CPU each
replica has half of the cores, one as well as two, so the second brings cores of its own, as it brings a GPU elsewhere.

1. Tokens per second of two replicas, over those of one. Target: at least 1.7. There are `--waves` (8) times as many
   requests as a replica answers at a time: the last are answered in batches that are not full, and of two waves two
   replicas see hardly more than that end.
2. Answers of the two equal those of the one: which server is asked changes nothing.
3. CPU-seconds of the process that asks, which on two cores come off what the servers have.

Run: python benchmarks/replicas.py [--rounds 5] [--waves 8]
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

import numpy as np
from served import BATCH, ENGINE, model, requests, vllm_python

from palaestra.agents import ServedPolicy

ROUNDS = int(sys.argv[sys.argv.index("--rounds") + 1]) if "--rounds" in sys.argv else 5
WAVES = int(sys.argv[sys.argv.index("--waves") + 1]) if "--waves" in sys.argv else 8
TARGET = 1.7


def main() -> None:
    """Play rounds in turns and print the ratio. Ends with 1 if it is below the target."""
    if vllm_python() is None:
        return
    with TemporaryDirectory(prefix="replicas-") as folder:
        served = ServedPolicy(
            model(Path(folder) / "model"), server="vllm", replicas=2, engine=ENGINE, concurrency=2 * BATCH
        )
        both = served.servers
        served.sync(0)
        speeds: dict[int, list[float]] = {1: [], 2: []}
        for round_ in range(ROUNDS + 1):
            answers = {}
            for count in (1, 2) if round_ % 2 else (2, 1):
                served.servers = both[:count]
                waves = [requests(WAVES * round_ + wave) for wave in range(WAVES)] if round_ else [requests(0)[:16]]
                asked = [each for wave in waves for each in wave]
                began, spent = time.perf_counter(), time.process_time()
                decisions = served.act(asked)
                seconds, spent = time.perf_counter() - began, time.process_time() - spent
                assert not any(each.error for each in decisions), next(each.error for each in decisions if each.error)
                answers[count] = [each.action_ids.tolist() for each in decisions]  # type: ignore[union-attr]
                if round_:  # the first warms both up
                    speeds[count].append(sum(map(len, answers[count])) / seconds)
            if round_:
                equal = np.mean([a == b for a, b in zip(answers[1], answers[2], strict=True)])
                print(
                    f"round {round_}: one {speeds[1][-1]:,.0f} tokens/s, two {speeds[2][-1]:,.0f}; "
                    f"{equal:.0%} of the answers equal; the asking takes {spent / seconds:.0%} of a core",
                    flush=True,
                )
        served.servers = both
        served.close()
    ratios = [b / a for a, b in zip(speeds[1], speeds[2], strict=True)]
    ratio = median(ratios)
    print(
        f"two replicas say {ratio:.2f} times as much as one ({min(ratios):.2f} to {max(ratios):.2f}), target {TARGET}"
    )
    if ratio < TARGET:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
