"""What every registered estimator of `palaestra.credit` costs at 10^4, 10^5 and 10^6 turns, and how that grows.

Two shapes of table. `groups`: groups of 8 episodes, more and more of them. `one group`: all episodes in one, in which
whatever compares pairs would be quadratic. Times are CPU time of one thread on a table without keys, the best of
several; what misses a criterion is measured once more at the end, because other processes can only add. The exponent is
the slope of log time over log turns, by least squares over the three sizes.

Three kinds. `algebra`: nothing but words of the algebra. `kernel`: has a kernel of its own for what the algebra has no
word for. `token`: reads lists (of tokens, of actions); its price is also given for one token. Criteria: algebra at most
0.5 s for a million turns; nothing grows worse than n log n, whose exponent over these sizes is 1.09. Allowance for
noise and for caches (a column of 10^4 numbers fits into one, a column of 10^6 does not): 0.15, so at most 1.24. A
quadratic one would show 2.


Run: python benchmarks/credit.py [NAME ...]
"""

# ruff: noqa: E402
from __future__ import annotations

import os

for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "POLARS_MAX_THREADS", "ARROW_NUM_THREADS"):
    os.environ[name] = "1"

import platform
import sys
from time import process_time
from typing import Any

import numpy as np
import polars as pl
from rich.console import Console
from rich.table import Table

import palaestra.credit
from palaestra.algebra.kernels import KERNELS
from palaestra.algebra.parse import parse
from palaestra.algebra.signals import REGISTRY, Signal, walk
from palaestra.algebra.turns import Ragged, Turns
from palaestra.errors import nearest

SIZES = (10_000, 100_000, 1_000_000)
EPISODE, GROUP_SIZE, TOKENS = 60, 8, 8
"""Mean turns of an episode, episodes of a group, mean tokens of a turn."""
MOST_SECONDS = 0.5
N_LOG_N = float(np.polyfit(np.log(SIZES), np.log(np.array(SIZES) * np.log(SIZES)), 1)[0])
ALLOWANCE = 0.15
LONGEST = 1.0
"""Seconds after which a measurement is not repeated."""
PER_TOKEN = ("logprobs", "entropies", "prm_logprobs", "values", "action_values", "probabilities")
CYCLE = "((0.5, 0.9, 0.2), (0.1, 0.5, 0.8), (0.8, 0.2, 0.5))"

EXAMPLES = {
    "alignment_weight": "alignment_weight('reward')",
    "along": "along('reward', 'episode', 'turn')",
    "backup": "backup('reward', 'episode', 'turn')",
    "discount": "discount('cost', where=is_first(over='episode'))",
    "dominance": "dominance('reward', 'cost')",
    "exp_weight": "exp_weight('reward')",
    "improvement": "improvement('cost')",
    "minmax": "minmax('cost')",
    "mix": "mix('weight', 'reward', 'cost')",
    "modulate": "modulate('reward', 'cost', renorm=True)",
    "ndcg": "ndcg('cost', 'reward')",
    "on_last_token": "on_last_token('reward')",
    "opponent": "opponent('reward')",
    "phase": "phase('reward', 'cost', at=1)",
    "potential_difference": "potential_difference('value')",
    "preferred": f"preferred('item', over='group', where=is_first(over='episode'), preference={CYCLE})",
    "rank_among": "rank_among('cost')",
    "rank_reward": "rank_reward('reward')",
    "redistribute": "redistribute('value', 'cost')",
    "redistributed": "redistributed(episode_return(), 'value', 'cost')",
    "signed": "signed('success')",
    "smaller_in_both": "smaller_in_both('value', 'cost', over='group', where=is_first(over='episode'))",
    "spread": "spread('logprobs', segments())",
    "upper_half": "upper_half('cost')",
    "whiten": "whiten('reward')",
    "win_rate": f"win_rate('item', preference={CYCLE})",
    "within": "within('reward')",
}
"""Those that cannot be called without arguments."""


def estimators(only: list[str]) -> dict[str, Signal]:
    """Every registered name of `palaestra.credit`, once for each function."""
    own = {name: f for name, f in REGISTRY.items() if f.__module__.startswith(palaestra.credit.__name__)}
    if unknown := sorted(set(only) - set(own)):
        raise SystemExit(f"no estimator is called {unknown[0]!r}{nearest(unknown[0], list(own))}")
    once = {id(own[name]): name for name in reversed(own)}  # of several names the first
    return {name: parse(EXAMPLES.get(name, f"{name}()")) for name in sorted(once.values()) if not only or name in only}


def kind(signal: Signal) -> str:
    """`token`, `kernel` or `algebra`."""
    if signal.needs() & set(PER_TOKEN):
        return "token"
    return "kernel" if any(node.op in KERNELS for node in walk(signal)) else "algebra"


def calls(rng: np.random.Generator, n: int) -> list[str]:
    """One tool call for each row, as JSON."""
    return [f'[{{"name": "search", "arguments": {{"query": "{word}"}}}}]' for word in rng.integers(0, 1000, n)]


def table(size: int, signals: list[Signal], *, one_group: bool) -> Turns:
    """About so many turns of two agents in turns, with every column that one of the signals reads."""
    rng = np.random.default_rng(size)
    episodes = max(size // EPISODE, 1)
    lengths = rng.integers(EPISODE - 20, EPISODE + 21, episodes)
    episode = np.repeat(np.arange(episodes), lengths)
    n = len(episode)
    turn = np.arange(n) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    group = np.zeros(n, np.int64) if one_group else episode // GROUP_SIZE
    seen = group * 48 + rng.integers(0, 48, n)
    tokens = rng.integers(TOKENS // 2, TOKENS * 3 // 2 + 1, n)
    needed = {name for signal in signals for name in signal.needs()}
    columns: dict[str, Any] = {
        "iteration": np.zeros(n, np.int32),
        "group": group.astype(np.int32),
        "episode": (episode if one_group else episode % GROUP_SIZE).astype(np.int32),
        "turn": turn.astype(np.int32),
        "agent": np.array(["solver", "checker"])[turn % 2],
        "state": (seen.astype(np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15),
        "action": np.array(["search", "answer", "wait"])[rng.integers(0, 3, n)],
        "valid": rng.random(n) < 0.9,
        "success": (rng.random(episodes) < 0.3)[episode],
        "truncated": (rng.random(episodes) < 0.1)[episode],
        "reward": np.where(rng.random(n) < 0.1, rng.random(n), 0.0),
        "item": rng.integers(0, 3, episodes)[episode],
        "parent": turn // 4,
        **{name: calls(rng, n) for name in ("calls", "gold") if name in needed},
        "tokens_out": tokens,
        "player": turn % 3,
        **{name: (rng.random(episodes) < 0.5)[episode] for name in ("hinted", "replayed")},
    }
    if "coalition_values" in needed:
        columns["coalition_values"] = Ragged(rng.random(8 * n), np.full(n, 8)).to_series("coalition_values")
    for name in needed & set(PER_TOKEN):
        columns[name] = Ragged((name == "entropies" or -1.0) * rng.random(int(tokens.sum())), tokens).to_series(name)
    columns |= {name: rng.random(n) for name in needed - set(columns)}
    return Turns({name: column for name, column in columns.items() if name in needed | {"turn", "reward"}})


def seconds(signal: Signal, turns: Turns) -> float:
    """Least CPU time of a few calls, each on a table without keys."""
    times: list[float] = []
    while not times or (len(times) < 7 and sum(times) < LONGEST):
        fresh = Turns(turns.frame)
        start = process_time()
        signal.evaluate(fresh)
        times.append(process_time() - start)
    return min(times)


def growth(times: np.ndarray) -> np.ndarray:
    """The exponent for each shape."""
    return np.asarray(np.polyfit(np.log(SIZES), np.log(times).T, 1)[0])


def misses(name: str, kind: str, times: np.ndarray) -> list[str]:
    """Sentences about the criteria that do not hold."""
    failures, slowest, steepest = [], times[:, -1].max(), growth(times).max()
    if kind == "algebra" and slowest > MOST_SECONDS:
        failures.append(f"{name}: {slowest:.2f} s for {SIZES[-1]:,} turns, at most {MOST_SECONDS} s")
    if steepest > N_LOG_N + ALLOWANCE:
        failures.append(f"{name}: grows as n^{steepest:.2f}, at most n^{N_LOG_N + ALLOWANCE:.2f}")
    return failures


def report(console: Console, kinds: dict[str, str], measured: dict[str, np.ndarray]) -> None:
    """The table: by kind, then by name."""
    shown = Table(title="CPU time of one thread, keys coded anew; ms in groups of 8 episodes, and in one group")
    shown.add_column("estimator")
    shown.add_column("kind")
    for heading in (*(f"{size:,}" for size in SIZES), "exponent", f"one group, {SIZES[-1]:,}", "exponent", "ns/token"):
        shown.add_column(heading, justify="right")
    for name in sorted(measured, key=lambda name: (("algebra", "kernel", "token").index(kinds[name]), name)):
        (groups, one), exponents = measured[name], growth(measured[name])
        token = f"{1e9 * groups[-1] / (SIZES[-1] * TOKENS):.1f}" if kinds[name] == "token" else ""
        first = [*(f"{1e3 * each:.1f}" for each in groups), f"{exponents[0]:.2f}"]
        shown.add_row(name, kinds[name], *first, f"{1e3 * one[-1]:.1f}", f"{exponents[1]:.2f}", token)
    console.print(shown)


def measure(signals: dict[str, Signal], best: dict[str, np.ndarray]) -> None:
    """Lower the best times so far, seconds [shape, size] of each name."""
    for shape in range(2):
        for place, size in enumerate(SIZES):
            turns = table(size, list(signals.values()), one_group=bool(shape))
            for name, signal in signals.items():
                best[name][shape, place] = min(best[name][shape, place], seconds(signal, turns))


def main() -> int:
    """Measure, print, and say whether the criteria hold: 0 if they all do."""
    console = Console(width=120)
    console.print(f"Python {platform.python_version()} · numpy {np.__version__} · polars {pl.__version__}")
    signals = estimators(sys.argv[1:])
    kinds = {name: kind(signal) for name, signal in signals.items()}
    measured = {name: np.full((2, len(SIZES)), np.inf) for name in signals}
    measure(signals, measured)
    if again := {name: signals[name] for name in signals if misses(name, kinds[name], measured[name])}:
        measure(again, measured)
    report(console, kinds, measured)
    failures = [failure for name in signals for failure in misses(name, kinds[name], measured[name])]
    for failure in failures:
        console.print(f"FAIL  {failure}")
    if not failures:
        number = sum(each == "algebra" for each in kinds.values())
        console.print(f"PASS  {number} algebraic ones take at most {MOST_SECONDS} s for {SIZES[-1]:,} turns")
        console.print(f"PASS  all {len(kinds)} grow at most as n^{N_LOG_N + ALLOWANCE:.2f}, n log n and {ALLOWANCE}")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
