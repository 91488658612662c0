"""A million messages of teams, attributed: likeness to the others, importance that flows back, hindsight.

Beside each the loop that one writes first: over the messages of the table, as papers' code does (on a hundredth of
them). Times are CPU times of one thread.

Run: python benchmarks/messages.py
"""

# ruff: noqa: E402
from __future__ import annotations

import os

for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "POLARS_MAX_THREADS"):
    os.environ[name] = "1"

import sys
from collections import defaultdict
from collections.abc import Callable
from statistics import median
from time import process_time
from typing import Any

import numpy as np
import polars as pl
from rich.console import Console
from rich.table import Table

from palaestra.algebra.messages import messages
from palaestra.algebra.turns import Turns
from palaestra.evaluation.teamwork import cosine_contribution, hindsight_credit, importance_flow

AGENTS, ROUNDS, WIDTH, MESSAGES, SHARE = 6, 4, 16, 1_000_000, 100
MOST = 1.0


def seconds(function: Callable[[], Any], repeats: int = 3) -> float:
    times = []
    for _ in range(repeats):
        start = process_time()
        function()
        times.append(process_time() - start)
    return median(times)


def debates(episodes: int) -> Turns:
    """Everybody hears everybody else, round after round."""
    rng = np.random.default_rng(0)
    rows = episodes * ROUNDS * AGENTS
    episode, turn, agent = (axis.ravel() for axis in np.indices((episodes, ROUNDS, AGENTS)))
    names = np.array([f"agent-{number}" for number in range(AGENTS)])
    others = [[names[j] for j in range(AGENTS) if j != i] for i in range(AGENTS)]
    heard = [others[a] if t else [] for a, t in zip(agent.tolist(), turn.tolist())]
    then = [[t - 1] * (AGENTS - 1) if t else [] for t in turn.tolist()]
    weight = rng.random(rows * (AGENTS - 1)).reshape(rows, -1).tolist()
    return Turns({
        "episode": episode, "group": episode, "turn": turn, "round": turn, "agent": names[agent],
        "answer": rng.choice(["1", "2", "3"], rows), "helped": rng.random(rows) < 0.3,
        "heard": pl.Series(heard, dtype=pl.List(pl.String)), "heard_turn": pl.Series(then, dtype=pl.List(pl.Int64)),
        "heard_weight": pl.Series([w if t else [] for w, t in zip(weight, turn.tolist())], dtype=pl.List(pl.Float64)),
        "embedding": pl.Series(rng.normal(size=(rows, WIDTH)).tolist(), dtype=pl.List(pl.Float64)),
    })  # fmt: skip


def flow_loop(rows: list[dict[str, Any]], sent: list[dict[str, Any]]) -> dict[Any, float]:
    """Importance, message by message."""
    importance: dict[Any, float] = defaultdict(float)
    last: dict[Any, list[dict[str, Any]]] = defaultdict(list)
    for row in rows:
        if row["turn"] == ROUNDS - 1:
            last[row["episode"]].append(row)
    for said in last.values():
        votes: dict[str, int] = defaultdict(int)
        for row in said:
            votes[row["answer"]] += 1
        best = max(votes, key=lambda answer: votes[answer])
        for row in said:
            importance[row["episode"], row["turn"], row["agent"]] = (row["answer"] == best) / votes[best]
    into: dict[Any, float] = defaultdict(float)
    for each in sent:
        into[each["episode"], each["receiver_turn"], each["receiver"]] += each["weight"]
    for each in sorted(sent, key=lambda message: -message["receiver_turn"]):
        to = each["episode"], each["receiver_turn"], each["receiver"]
        share = each["weight"] / into[to]
        importance[each["episode"], each["sender_turn"], each["sender"]] += share * importance[to]
    return importance


def cosine_loop(rows: list[dict[str, Any]]) -> list[float]:
    """Likeness, episode by episode and turn by turn."""
    groups: dict[Any, list[np.ndarray]] = defaultdict(list)
    for row in rows:
        vector = np.array(row["embedding"])
        groups[row["episode"], row["turn"]].append(vector / np.linalg.norm(vector))
    found = []
    for vectors in groups.values():
        mean = np.mean(vectors, axis=0)
        found += [float(vector @ mean / np.linalg.norm(mean)) for vector in vectors]
    return found


def hindsight_loop(rows: list[dict[str, Any]]) -> dict[str, float]:
    """Share of episodes in which a member helped."""
    helped: dict[str, set[int]] = defaultdict(set)
    for row in rows:
        if row["helped"]:
            helped[row["agent"]].add(row["episode"])
    return {agent: len(each) for agent, each in helped.items()}


def main() -> int:
    """Measure, print, and say whether the criteria hold: 0 if they all do."""
    console = Console(width=110)
    episodes = MESSAGES // ((ROUNDS - 1) * AGENTS * (AGENTS - 1)) + 1
    turns = debates(episodes)
    made = seconds(lambda: messages(turns), 1)
    sent = messages(turns)
    small = Turns(turns.frame.head(len(turns) // SHARE // (ROUNDS * AGENTS) * ROUNDS * AGENTS))
    rows, some = small.frame.to_dicts(), messages(small)
    listed, factor = some.to_dicts(), len(sent) / len(some)
    cases: dict[str, tuple[Callable[[], Any], Callable[[], Any]]] = {
        "importance flow": (lambda: importance_flow(turns, sent), lambda: flow_loop(rows, listed)),
        "cosine": (lambda: cosine_contribution(turns, over=("group", "turn")), lambda: cosine_loop(rows)),
        "hindsight": (lambda: hindsight_credit(turns, "helped"), lambda: hindsight_loop(rows)),
    }
    table = Table(f"{len(sent):,} messages of {len(turns):,} turns", "a loop, s", "ours, s", "ratio")
    total = 0.0
    for name, (ours, loop) in cases.items():
        fast, slow = seconds(ours), seconds(loop, 1) * factor
        total += fast
        table.add_row(name, f"{slow:.2f}", f"{fast:.3f}", f"{slow / fast:.0f}×")
    table.add_row("(the table of messages itself)", "", f"{made:.3f}", "")
    console.print(table)
    flow = importance_flow(small, some)
    looped = flow_loop(rows, listed)
    keys = zip(*(flow[name].to_list() for name in ("episode", "turn", "agent")), strict=True)
    gap = max(abs(looped[key] - value) for key, value in zip(keys, flow["importance"].to_list()))
    gap = max(gap, float(np.abs(cosine_contribution(small, over=("group", "turn")) - cosine_loop(rows)).max()))
    verdicts = [(f"all three: {total:.2f} s, at most {MOST} s", total <= MOST),
                (f"the same numbers as the loops, to {gap:.0e}", gap < 1e-9)]  # fmt: skip
    for text, holds in verdicts:
        console.print(f"{'PASS' if holds else 'FAIL'}  {text}")
    return 0 if all(holds for _, holds in verdicts) else 1


if __name__ == "__main__":
    sys.exit(main())
