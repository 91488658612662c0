"""Selection of a million rows on one core: keep, pairs, splice and values backed up a tree, beside loops over rows.

Published code goes over trajectories in Python: sorts each task's, compares siblings two by two, and cuts and glues
lists of steps. The loops here do that on a share of the rows and are scaled. Both sides select the same.

Run: python benchmarks/selection.py
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

from palaestra.algebra.selection import conditions, selection
from palaestra.algebra.turns import Turns
from palaestra.credit import backup, improvement
from palaestra.credit.splicing import splice
from palaestra.judges.value_pairs import mine

ROWS, SIZE, STEPS, SHARE = 1_000_000, 8, 5, 50
LEAST = 1.0
"""Millions of rows a second."""


def seconds(function: Callable[[], Any], repeats: int = 3) -> float:
    times = []
    for _ in range(repeats):
        start = process_time()
        function()
        times.append(process_time() - start)
    return median(times)


def played(rows: int) -> Turns:
    """Groups of eight episodes of five turns, a score for each episode, and a verdict for each turn."""
    rng = np.random.default_rng(0)
    episode = np.repeat(np.arange(rows // STEPS), STEPS)
    turn = np.tile(np.arange(STEPS), rows // STEPS)
    place = np.arange(rows) % (SIZE * STEPS)  # a binary tree in each group
    above = pl.Series(np.arange(rows) - place + (place - 1) // 2)
    return Turns(
        {
            "group": episode // SIZE, "episode": episode, "turn": turn, "agent": ["a"] * rows,
            "observation": turn * 8 + rng.integers(0, 2, rows), "action": rng.integers(0, 3, rows),
            "reward": np.repeat(rng.random(rows // STEPS), STEPS), "bad": rng.random(rows) < 0.3,
            "node": np.arange(rows), "parent": above.set(pl.Series(place == 0), None),
        }
    )  # fmt: skip


def fresh(turns: Turns) -> Turns:
    """The same table, of which nothing is coded yet."""
    return Turns(turns.frame)


def keep_loop(rows: list[dict[str, Any]]) -> set[int]:
    """The two best episodes of each group of which the score is above 0.5, as trainers pick them."""
    groups: dict[int, dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
    for row in rows:
        groups[row["group"]][row["episode"]].append(row["reward"])
    kept = set()
    for episodes in groups.values():
        scores = {episode: sum(values) / len(values) for episode, values in episodes.items()}
        best = sorted(scores, key=lambda episode: -scores[episode])[:2]
        kept |= {episode for episode in best if scores[episode] >= 0.5}
    return kept


def pairs_loop(rows: list[dict[str, Any]]) -> set[tuple[int, int]]:
    """Every pair of a group whose scores differ by more than 0.2."""
    groups: dict[int, dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
    for row in rows:
        groups[row["group"]][row["episode"]].append(row["reward"])
    found = set()
    for episodes in groups.values():
        scores = {episode: sum(values) / len(values) for episode, values in episodes.items()}
        found |= {(a, b) for a in scores for b in scores if scores[a] - scores[b] > 0.2}
    return found


def splice_loop(rows: list[dict[str, Any]], pairs: list[tuple[int, int]]) -> list[list[dict[str, Any]]]:
    """Bad prefix, a revision, the good path from where they part."""
    paths: dict[int, list[dict[str, Any]]] = defaultdict(list)
    for row in rows:
        paths[row["episode"]].append(row)
    made = []
    for one, other in pairs:
        good, ill = paths[one], paths[other]
        cut = next((step for step, row in enumerate(ill) if row["bad"]), None)
        part = next(
            (n for n, both in enumerate(zip(good, ill)) if len({(x["observation"], x["action"]) for x in both}) > 1),
            min(len(good), len(ill)),
        )
        if cut is None or part > cut or cut + 1 >= len(ill):
            continue
        prefix = [{**row, "loss_mask": False} for row in ill[: cut + 1]]
        rest = [{**row, "loss_mask": True} for row in good[part:]]
        made.append([*prefix, {**ill[cut + 1], "action": "wait", "loss_mask": True}, *rest])
    return made


def backup_loop(rows: list[dict[str, Any]]) -> dict[int, float]:
    """Means of children, depth first from the leaves."""
    children: dict[int, list[int]] = defaultdict(list)
    value = {row["node"]: row["reward"] for row in rows}
    for row in rows:
        if row["parent"] is not None:
            children[row["parent"]].append(row["node"])
    for row in reversed(rows):
        if children[row["node"]]:
            value[row["node"]] = sum(value[child] for child in children[row["node"]]) / len(children[row["node"]])
    return value


def improvement_loop(rows: list[dict[str, Any]]) -> list[float]:
    """The next score of the episode minus this one."""
    return [
        after["reward"] - row["reward"] if after["episode"] == row["episode"] else float("nan")
        for row, after in zip(rows, [*rows[1:], rows[0]])
    ]


def main() -> int:
    turns, part = played(ROWS), played(ROWS // SHARE)
    rows = part.frame.to_dicts()
    firsts = pl.DataFrame({"chosen": np.arange(0, ROWS - STEPS, STEPS), "rejected": np.arange(STEPS, ROWS, STEPS)})
    few = [(e, e + 1) for e in range(len(part) // STEPS - 1)]
    best = conditions("reward", by="group", top=2, between=(0.5, None))
    work = {
        "keep": (lambda t: selection(t, best), lambda: keep_loop(rows)),
        "pairs": (lambda t: mine(t, "reward", "group", min_gap=0.2), lambda: pairs_loop(rows)),
        "splice": (lambda t: splice(t, firsts[: len(t) // STEPS - 1], marker="wait"), lambda: splice_loop(rows, few)),
        "backup": (lambda t: backup("reward").evaluate(t), lambda: backup_loop(rows)),
        "improvement": (lambda t: improvement("reward").evaluate(t), lambda: improvement_loop(rows)),
    }  # fmt: skip
    kept = {int(each) for each in part["episode"].to_numpy()[selection(part, best).kept]}
    assert kept == keep_loop(rows)
    found = mine(part, "reward", "group", min_gap=0.2)[0]
    assert {(c // STEPS, r // STEPS) for c, r in found.select("chosen", "rejected").rows()} == pairs_loop(rows)
    made = splice(part, firsts[: len(part) // STEPS - 1], "bad", marker="wait")[0]
    flat = [row for example in splice_loop(rows, few) for row in example]
    assert made["loss_mask"].to_list() == [row["loss_mask"] for row in flat]
    assert len(flat) > 1000
    values = backup_loop(rows)
    np.testing.assert_allclose(backup("reward", over=()).evaluate(part), [values[row["node"]] for row in rows])

    shown = Table("", "rows/s, millions", "loop", "ratio", title=f"{ROWS:,} rows, one thread, CPU time")
    slow = []
    for label, (ours, theirs) in work.items():
        cold = seconds(lambda ours=ours: ours(fresh(turns)))
        loop = seconds(theirs, 1) * SHARE
        shown.add_row(label, f"{ROWS / cold / 1e6:.1f}", f"{ROWS / loop / 1e6:.2f}", f"{loop / cold:.0f}")
        if ROWS / cold < LEAST * 1e6 and label in ("keep", "pairs", "splice"):
            slow.append(label)
    Console().print(shown)
    print(f"at least {LEAST:g} million rows a second: " + (f"FAILED by {', '.join(slow)}" if slow else "met"))
    return bool(slow)


if __name__ == "__main__":
    sys.exit(main())
