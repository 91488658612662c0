"""Peak memory of a rollout of 200 000 turns with tokens: 60 of the prompt, 12 of the answer, 200 letters observed.

Each row is a process of its own, which ends with the whole table in its hands. "streamed" writes the table to Parquet
while playing; "writing" is the peak of that, before somebody looks at the table and it is read back.

Run: python benchmarks/memory.py
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from time import perf_counter

import numpy as np

from palaestra.agents.policy import Decision, Policy, Request
from palaestra.envs.protocol import Action, Observation, StepResult

GROUPS, GROUP_SIZE, LENGTH = 1250, 8, 20
MOST_MEGABYTES = 1000


class Talk:
    """Two agents take turns; every observation has 200 letters."""

    agents = ("a", "b")
    task = "talk"

    def reset(self, seed: int) -> Mapping[str, Observation]:
        """Start."""
        self._seed, self._turn, self._said = seed, 0, ""
        return self._observe()

    def step(self, actions: Mapping[str, Action]) -> StepResult:
        """Go on."""
        self._turn += 1
        self._said = str(*actions.values())
        if self._turn == LENGTH:
            return StepResult({}, {"a": 1.0, "b": 0.0}, terminated=True, info={"success": True})
        return StepResult(self._observe(), {"a": 0.1})

    def _observe(self) -> dict[str, Observation]:
        return {self.agents[self._turn % 2]: Observation(f"{self._seed} {self._turn} {self._said} ".ljust(200, "x"))}


class Talker:
    """Answers with random tokens, as many as a small language model."""

    name = "talker"

    def act(self, requests: Sequence[Request]) -> list[Decision]:
        """One decision per request."""
        decisions = []
        for request in requests:
            prompt = np.arange(60, dtype=np.int32)
            tokens = request.rng.integers(0, 30_000, 12, dtype=np.int32)
            numbers = request.rng.random(12, dtype=np.float32)
            decisions.append(Decision(" ".join(map(str, tokens[:8])), prompt, tokens, -numbers, numbers))
        return decisions

    def for_agent(self, agent: str) -> Policy:
        """A team of one."""
        return self


def peak_megabytes() -> float:
    """Highest resident set of this process so far."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (2**20 if sys.platform == "darwin" else 2**10)


def measure(streamed: bool, torch: bool) -> dict[str, float]:
    """In a fresh process: play, and say how much memory it took."""
    import palaestra as pa

    if torch:
        import transformers

        _ = transformers.LlamaForCausalLM  # loaded on first use, torch with it
    before = peak_megabytes()
    writing = []
    load = pa.Turns.load

    def load_and_note(path: Path) -> pa.Turns:
        writing.append(peak_megabytes())
        return load(path)

    pa.Turns.load = load_and_note  # type: ignore[method-assign]
    began = perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        sink = Path(folder) / "turns.parquet" if streamed else None
        turns = pa.rollout(Talk, Talker(), groups=GROUPS, group_size=GROUP_SIZE, sink=sink)
        assert len(turns) == GROUPS * GROUP_SIZE * LENGTH
    peak = peak_megabytes()
    return {
        "before": before,
        "writing": writing[0] if writing else peak,
        "peak": peak,
        "table": turns.frame.estimated_size("mb"),
        "seconds": perf_counter() - began,
    }


def main() -> int:
    print(
        f"{'mode':<10} {'torch':<6} {'before MB':>10} {'writing MB':>11} {'peak MB':>8} {'table MB':>9} {'seconds':>8}"
    )
    worst = 0.0
    for options in ([], ["streamed"], ["torch"]):
        code = [sys.executable, __file__, "measure", *options]
        found = json.loads(subprocess.run(code, check=True, stdout=subprocess.PIPE, text=True).stdout)
        mode, torch = "streamed" if "streamed" in options else "table", "yes" if "torch" in options else "no"
        print(
            f"{mode:<10} {torch:<6} {found['before']:>10.0f} {found['writing']:>11.0f} {found['peak']:>8.0f} "
            f"{found['table']:>9.0f} {found['seconds']:>8.1f}"
        )
        worst = max(worst, found["peak"])
    holds = worst < MOST_MEGABYTES
    print(f"criterion: 200 000 turns below {MOST_MEGABYTES} MB at the peak: {'holds' if holds else 'FAILS'}")
    return 0 if holds else 1


if __name__ == "__main__":
    if "measure" in sys.argv:
        print(json.dumps(measure("streamed" in sys.argv, "torch" in sys.argv)))
    else:
        sys.exit(main())
