"""What credit costs: one million turns here, and the loops that trainers ship beside it on sizes that they can manage.

Every time is CPU time of one thread, so that it does not depend on what else the machine does; medians. `cold` is the
first call on a loaded table, keys coded included; `warm` has the keys. Both sides of a ratio give the same numbers, to
1e-6, under the trainer's own convention; ours is taken cold.

verl's GRPO is imported if verl is installed (`make parity`). The others, and verl's where it is not, are loops of the
published structure written for this file: dictionaries of lists per key, torch scalars, a scan per row. Without torch
only the million turns are measured.

Run: python benchmarks/credit_loops.py
"""

# ruff: noqa: E402
from __future__ import annotations

import os

for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "POLARS_MAX_THREADS", "ARROW_NUM_THREADS"):
    os.environ[name] = "1"

import importlib.metadata
import importlib.util
import platform
import sys
import tempfile
import uuid
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from statistics import median
from time import process_time
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from palaestra.algebra.signals import Signal
from palaestra.algebra.turns import Turns
from palaestra.credit import dr_mas, gigpo, grpo

EPISODES, GROUP_SIZE, STATES = 16_000, 8, 48
AGENTS = ("solver", "checker", "critic")
MOST_MILLISECONDS = 150
LEAST_RATIO = 50
FROM_ROWS = 4_096
"""Below this size both sides take a few milliseconds, and the ratio is one of overheads."""
GRPO_ROWS = (512, 4_096, 32_768, 131_072)
GIGPO_TURNS = (1_024, 4_096, 16_384)
EQUAL = 1e-6
GAMMA = 0.95
HAS_TORCH = importlib.util.find_spec("torch") is not None
HAS_VERL = importlib.util.find_spec("verl") is not None


# -- tables -----------------------------------------------------------------------------------------------------------


def million_turns(rng: np.random.Generator) -> Turns:
    """About one million turns of 16 000 episodes in groups of 8, read from a Parquet file."""
    lengths = rng.integers(45, 81, EPISODES)
    turns = play(rng, lengths, AGENTS)
    with tempfile.TemporaryDirectory() as directory:
        return Turns.load(turns.save(Path(directory) / "turns.parquet"))


def play(rng: np.random.Generator, lengths: np.ndarray, agents: tuple[str, ...]) -> Turns:
    """Episodes of these lengths, the agents in turns, one reward in ten turns, some 40 states in each group."""
    episode = np.repeat(np.arange(len(lengths)), lengths)
    turn = np.arange(len(episode)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    group = episode // GROUP_SIZE
    seen = group * STATES + rng.integers(0, STATES, len(episode))
    return Turns(
        {
            "iteration": np.zeros(len(episode), np.int32),
            "group": group.astype(np.int32),
            "episode": (episode % GROUP_SIZE).astype(np.int32),
            "turn": turn.astype(np.int32),
            "agent": np.array(agents)[turn % len(agents)],
            "state": (seen.astype(np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15),
            "reward": np.where(rng.random(len(episode)) < 0.1, rng.random(len(episode)), 0.0),
        }
    )


def keys_of_strings(numbers: np.ndarray) -> np.ndarray:
    """What trainers group by: an object array of UUIDs."""
    names = np.array([str(uuid.UUID(int=number)) for number in range(int(numbers.max()) + 1)], dtype=object)
    return names[numbers]


# -- the loops --------------------------------------------------------------------------------------------------------


def group_loop(scores: Any, keys: np.ndarray, lone: str = "raw", counted: np.ndarray | None = None) -> Any:
    """(score - mean) / (std + 1e-6) by key, a torch scalar at a time; `counted`: one sample for each of these."""
    import torch

    samples: dict[Any, list[Any]] = defaultdict(list)
    seen = set()
    for row, key in enumerate(keys):
        if counted is not None and (key, counted[row]) in seen:
            continue
        samples[key].append(scores[row])
        if counted is not None:
            seen.add((key, counted[row]))
    mean, std = {}, {}
    for key, values in samples.items():
        stacked = torch.stack(values)
        alone = len(values) == 1
        mean[key] = torch.tensor(0.0) if alone and lone == "raw" else torch.mean(stacked)
        std[key] = torch.tensor(1.0) if alone else torch.std(stacked)
    result = scores.clone()
    for row, key in enumerate(keys):
        result[row] = (scores[row] - mean[key]) / (std[key] + 1e-6)
    return result


def verl_grpo(rewards: np.ndarray, keys: np.ndarray) -> np.ndarray:
    """verl's own function if it is there, else its loop; one response token a row."""
    import torch

    scores = torch.from_numpy(rewards.copy())
    if HAS_VERL:
        from verl.trainer.ppo.core_algos import compute_grpo_outcome_advantage

        advantages, _ = compute_grpo_outcome_advantage(scores[:, None], torch.ones(len(scores), 1), keys)
        return advantages[:, 0].numpy()
    return group_loop(scores, keys).numpy()


def verl_vectorised(rewards: np.ndarray, keys: np.ndarray) -> np.ndarray:
    """verl's vectorised GRPO. keys: texts, as its trainer makes them, or integers."""
    import torch
    from verl.trainer.ppo.core_algos import compute_grpo_vectorized_outcome_advantage

    scores = torch.from_numpy(rewards.copy())
    advantages, _ = compute_grpo_vectorized_outcome_advantage(scores[:, None], torch.ones(len(scores), 1), keys)
    return advantages[:, 0].numpy()


def discounted_returns_loop(rewards: np.ndarray, trajectory: np.ndarray) -> np.ndarray:
    """Returns of each trajectory, then put in place by scanning all trajectory ids for every row: quadratic."""
    by_trajectory = {}
    for key in np.unique(trajectory):
        own = rewards[np.where(trajectory == key)[0]]
        returns, running = np.zeros_like(own), 0.0
        for step in reversed(range(len(own))):
            running = own[step] + GAMMA * running
            returns[step] = running
        by_trajectory[key] = returns
    result = np.zeros_like(rewards)
    for row, key in enumerate(trajectory):
        rows = np.where(trajectory == key)[0]
        result[row] = by_trajectory[key][np.where(rows == row)[0][0]]
    return result


def step_groups_loop(observations: np.ndarray, keys: np.ndarray) -> np.ndarray:
    """A fresh id for every distinct observation of a group."""
    ids = np.empty(len(keys), dtype=object)
    for key in np.unique(keys):
        clusters: dict[Any, list[int]] = defaultdict(list)
        for row in np.where(keys == key)[0]:
            clusters[observations[row]].append(row)
        for rows in clusters.values():
            fresh = str(uuid.uuid4())
            for row in rows:
                ids[row] = fresh
    return ids


def gigpo_loop(turns: Turns, keys: np.ndarray, trajectory: np.ndarray, observations: np.ndarray) -> np.ndarray:
    """verl-agent's structure: discounted returns, step groups, then the two normalisations."""
    import torch

    rewards = turns["reward"].to_numpy()
    returns = torch.from_numpy(discounted_returns_loop(rewards, trajectory))
    total: dict[Any, float] = defaultdict(float)
    for row, key in enumerate(trajectory):
        total[key] += rewards[row]
    scores = torch.tensor([total[key] for key in trajectory], dtype=torch.float64)
    episode = group_loop(scores, keys)  # every step a sample, its default
    step = group_loop(returns, step_groups_loop(observations, keys), lone="zero")
    return (episode + step).numpy()


# -- measuring --------------------------------------------------------------------------------------------------------


def milliseconds(function: Callable[[], Any], repeats: int = 5, seconds: float = 4.0) -> float:
    """Median CPU time; fewer repeats if they take long."""
    times: list[float] = []
    while len(times) < repeats and sum(times) < 1e3 * seconds:
        start = process_time()
        function()
        times.append(1e3 * (process_time() - start))
    return median(times)


def cold(signal: Signal, turns: Turns) -> Callable[[], Any]:
    """Evaluates on a table that has no keys yet."""
    return lambda: signal.evaluate(Turns(turns.frame))


def value(signal: Signal, turns: Turns) -> np.ndarray:
    return np.asarray(signal.evaluate(turns))


def one_million(console: Console, rng: np.random.Generator) -> list[tuple[str, bool]]:
    turns = million_turns(rng)
    table = Table(title=f"{len(turns):,} turns, {EPISODES:,} episodes, groups of {GROUP_SIZE}, {len(AGENTS)} agents")
    table.add_column("credit")
    for heading in ("cold, ms", "warm, ms"):
        table.add_column(heading, justify="right")
    verdicts = []
    for label, signal in {"GRPO": grpo(), "Dr. MAS": dr_mas(), "GiGPO": gigpo(gamma=GAMMA)}.items():
        first, again = milliseconds(cold(signal, turns)), milliseconds(lambda s=signal: s.evaluate(turns))  # type: ignore[misc]
        table.add_row(label, f"{first:.0f}", f"{again:.0f}")
        verdicts.append((f"{label}: {first:.0f} ms cold, at most {MOST_MILLISECONDS} ms", first <= MOST_MILLISECONDS))
    console.print(table)
    return verdicts


def side_by_side(console: Console, rng: np.random.Generator) -> list[tuple[str, bool]]:
    theirs = f"verl {importlib.metadata.version('verl')}" if HAS_VERL else "verl's loop, re-expressed"
    table = Table(title="The same numbers, ours and the loops that trainers ship")
    table.add_column("credit")
    table.add_column("the loop")
    for heading in ("rows", "loop, ms", "ours, ms", "ratio", "largest difference"):
        table.add_column(heading, justify="right")
    ratios: dict[str, float] = {}
    largest = 0.0

    def row(credit: str, loop: str, size: int, signal: Signal, turns: Turns, run: Callable[[], np.ndarray]) -> None:
        nonlocal largest
        difference = float(np.abs(value(signal, turns) - run()).max())
        slow, fast = milliseconds(run, 3), milliseconds(cold(signal, turns), 15)
        table.add_row(
            credit, loop, f"{size:,}", f"{slow:,.1f}", f"{fast:.2f}", f"{slow / fast:,.0f}×", f"{difference:.0e}"
        )
        largest = max(largest, difference)
        if size >= FROM_ROWS:
            ratios[credit] = min(ratios.get(credit, np.inf), slow / fast)

    for rows in GRPO_ROWS:
        turns = play(rng, np.ones(rows, np.int64), ("solo",))
        turns = turns.with_column(reward=np.round(rng.normal(size=rows), 2))
        rewards, keys = turns["reward"].to_numpy(), keys_of_strings(turns["group"].to_numpy())
        run = lambda r=rewards, k=keys: verl_grpo(r, k)  # noqa: E731
        row("GRPO", theirs, rows, grpo(flavour="verl"), turns, run)
    table.add_section()

    turns = play(rng, np.full(FROM_ROWS // 8, 8), AGENTS)
    pair = keys_of_strings(turns.codes("group", "agent").ids)
    scores = turns["reward"].to_numpy()
    run = lambda: verl_grpo(scores, pair)  # noqa: E731
    row("Dr. MAS", theirs + ", key uid_agent", len(turns), dr_mas("reward"), turns, run)
    table.add_section()

    for size in GIGPO_TURNS:
        turns = play(rng, np.full(size // 16, 16), ("solo",))
        keys = keys_of_strings(turns["group"].to_numpy())
        trajectory = keys_of_strings(turns.codes("episode").ids)
        observations = np.array([f"{state:020d} " * 10 for state in turns["state"].to_list()], dtype=object)
        run = lambda t=turns, k=keys, j=trajectory, o=observations: gigpo_loop(t, k, j, o)  # noqa: E731
        row("GiGPO", "verl-agent's loops, re-expressed", size, gigpo(gamma=GAMMA, flavour="verl-agent"), turns, run)
    console.print(table)
    verdicts = [
        (f"{credit}: {ratio:,.0f}× from {FROM_ROWS:,} rows on, at least {LEAST_RATIO}×", ratio >= LEAST_RATIO)
        for credit, ratio in ratios.items()
    ]
    return [*verdicts, (f"largest difference {largest:.0e}, at most {EQUAL:.0e}", largest <= EQUAL)]


def vectorised(console: Console, rng: np.random.Generator) -> list[tuple[str, bool]]:
    """Both vectorised: ours, cold and warm, and verl's, with keys of text and of integers."""
    if not HAS_VERL:
        console.print("verl's vectorised GRPO is not measured: verl is not installed.")
        return []
    table = Table(title="Vectorised GRPO, ms")
    for heading in ("rows", "verl, keys of text", "verl, integer keys", "ours, cold", "ours, warm"):
        table.add_column(heading, justify="right")
    verdicts = []
    for rows in GRPO_ROWS:
        turns = play(rng, np.ones(rows, np.int64), ("solo",))
        turns = turns.with_column(reward=np.round(rng.normal(size=rows), 2))
        rewards, group, signal = turns["reward"].to_numpy(), turns["group"].to_numpy(), grpo(flavour="verl")
        names = keys_of_strings(group)
        text = milliseconds(lambda r=rewards, k=names: verl_vectorised(r, k), 31)  # type: ignore[misc]
        number = milliseconds(lambda r=rewards, k=group: verl_vectorised(r, k), 31)  # type: ignore[misc]
        first = milliseconds(cold(signal, turns), 31)
        again = milliseconds(lambda s=signal, t=turns: s.evaluate(t), 31)  # type: ignore[misc]
        table.add_row(f"{rows:,}", *(f"{each:.2f}" for each in (text, number, first, again)))
        if rows >= FROM_ROWS:
            share = f"GRPO of {rows:,} rows, keys of text: {first / text:.2f} of the time of verl's vectorised"
            verdicts.append((share, first < text))
    console.print(table)
    return verdicts


def main() -> int:
    """Measure, print, and say whether the criteria hold: 0 if they all do."""
    console = Console(width=120)
    versions = " · ".join(f"{name} {importlib.metadata.version(name)}" for name in ("numpy", "polars", "pyarrow"))
    console.print(f"Python {platform.python_version()} · {versions} · CPU time of one thread")
    rng = np.random.default_rng(0)
    verdicts = one_million(console, rng)
    if HAS_TORCH:
        import torch

        torch.set_num_threads(1)
        verdicts += side_by_side(console, rng)
        verdicts += vectorised(console, rng)
    else:
        console.print("The loops of trainers are not measured: torch is not installed.")
    for text, holds in verdicts:
        console.print(f"{'PASS' if holds else 'FAIL'}  {text}")
    return 0 if all(holds for _, holds in verdicts) else 1


if __name__ == "__main__":
    sys.exit(main())
