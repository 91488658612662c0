"""What rewards cost: every algebraic reward at ten thousand, a hundred thousand and a million turns, on one thread.

CPU time, median; `cold`, on a table whose keys are not coded yet. The exponent is the slope of log time over log turns
between the two larger sizes: 1 is linear. Fails if a million turns take more than half a
second, or the audit of cycles on 100,000 distinct states more than five.

Run: python benchmarks/rewards.py
"""

# ruff: noqa: E402
from __future__ import annotations

import os

for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "POLARS_MAX_THREADS", "ARROW_NUM_THREADS"):
    os.environ[name] = "1"

import importlib.metadata
import math
import platform
import sys
from statistics import median
from time import perf_counter, process_time

import numpy as np
import polars as pl
from rich.console import Console
from rich.table import Table

from palaestra import rewards as r
from palaestra.algebra.signals import Signal, col
from palaestra.algebra.turns import Turns
from palaestra.evaluation.audits import cycle_gain

SIZES = (10_000, 100_000, 1_000_000)
MOST_MILLISECONDS = 500
MOST_AUDIT_SECONDS = 5
MEAN_LENGTH, GROUP_SIZE, AGENTS, STATES = 60, 8, ("red_0", "red_1", "blue_0", "blue_1"), 48

SIGNALS: list[tuple[str, Signal]] = [
    ("success_reward()", r.success_reward()),
    ("clip_above(score, eta=0.8)", r.clip_above("score", eta=0.8)),
    ("delta(score)", r.delta("score")),
    ("clip_and_delta()", r.clip_and_delta()),
    ("sign_scale(score, size=0.1)", r.sign_scale("score", size=0.1)),
    ("once(score)", r.once("score")),
    ("once(score, key=state)", r.once("score", key="state")),
    ("cap(score, limit=2)", r.cap("score", limit=2.0)),
    ("first_satisfied(valid, success)", r.first_satisfied("valid", "success")),
    ("weighted(a=1, b=linear(0, 1))", r.weighted(a=1.0, b=r.linear(0.0, 1.0, steps=100))),
    ("weighted(a=1, b=cosine(0, 1))", r.weighted(a=1.0, b=r.cosine(0.0, 1.0, steps=100))),
    ("gate(valid, score)", r.gate("valid", "score")),
    ("cascade(...)", r.cascade(("truncated", 0.0), ("success", 1.0), otherwise=0.3 * col("r_a"))),
    ("krc(r_a, r_b)", r.krc("r_a", "r_b")),
    ("lagrangian(score, (valid, 0.4))", r.lagrangian("score", ("valid", 0.4))),
    ("team_mix(score)", r.team_mix("score")),
    ("lexicographic(success, score)", r.lexicographic("success", "score")),
    ("shape(phi, gamma=0.99)", r.shape("phi", gamma=0.99)),
    ("robo_dopamine(phi)", r.robo_dopamine("phi")),
    ("hop_progress(hop)", r.hop_progress("hop")),
    ("fuse(consistency)", r.fuse("r_a", "phi", "r_b", method="consistency")),
    ("cum_max_gain(phi)", r.cum_max_gain("phi")),
    ("era_reward(phi)", r.era_reward("phi")),
    ("milestone_bonus()", r.milestone_bonus()),
    ("pressure(r_a, valid, success)", r.pressure("r_a", "valid", "success")),
    ("jaccard(items, gold)", r.jaccard("items", "gold")),
    ("multiset_jaccard(items, gold)", r.multiset_jaccard("items", "gold")),
    ("point_in_box(point, box)", r.point_in_box("point", "box")),
    ("ui_r1_reward(...)", r.ui_r1_reward("tool", "right_tool", "point", "box", clicks=("look",))),
    ("stepwise_point(point, aim)", r.stepwise_point("point", "aim", near=0.1, far=0.4)),
    ("length_aware(score)", r.length_aware("score", best=0.9)),
    ("hybrid_reward(...)", r.hybrid_reward("score", "phi", "valid")),
    ("vote(answer)", r.vote("answer")),
    ("co_reward(answer)", r.co_reward("answer", view="team")),
    ("judge_votes(verdicts)", r.judge_votes("verdicts")),
    ("masked(score)", r.masked("score", in_baseline="valid", in_loss="valid", least=5)),
    ("cm2(score)", r.cm2("score", judged="valid")),
    ("attribute(score, key)", r.attribute("score", "phi", method="key")),
    ("attribute(score, discount)", r.attribute("score", method="discount")),
    ("sotopia_reward(...)", r.sotopia_reward(("score", "phi"), ("score", "r_a"))),
    ("count_bonus(state)", r.count_bonus("state")),
    ("episodic_global_bonus(state)", r.episodic_global_bonus("state")),
    ("oni_reward(label, state)", r.oni_reward("valid", "state", reward="score")),
    ("elliptical(features)", r.elliptical("features")),
    ("reseek_reward(...)", r.reseek_reward("valid", "phi", answer="success")),
    ("earl_reward(...)", r.earl_reward("items", "gold")),
    ("smart_snap_reward(...)", r.smart_snap_reward("cited")),
    ("deep_travel_reward(...)", r.deep_travel_reward("success", "valid")),
    ("goal_projection(...)", r.goal_projection("features", "goal_features", "base_features")),
    ("best_of(score)", r.best_of("score")),
]
"""Name and signal of every reward that needs no model; add yours, and its columns to `play`."""


def play(rows: int, rng: np.random.Generator) -> Turns:
    """Episodes of about 60 turns in groups of 8, four agents in turns, and every column that the rewards need."""
    lengths = rng.integers(MEAN_LENGTH - 15, MEAN_LENGTH + 16, rows // MEAN_LENGTH)
    episode = np.repeat(np.arange(len(lengths)), lengths)
    turn = np.arange(len(episode)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    size = len(episode)
    submits = rng.random(size) < 0.02
    return Turns(
        {
            "iteration": np.zeros(size, np.int32),
            "group": (episode // GROUP_SIZE).astype(np.int32),
            "episode": (episode % GROUP_SIZE).astype(np.int32),
            "turn": turn.astype(np.int32),
            "agent": np.array(AGENTS)[turn % len(AGENTS)],
            "team": turn % 2,
            "state": rng.integers(0, STATES, size).astype(np.uint64),
            "success": (rng.random(len(lengths)) < 0.5)[episode],
            "truncated": (rng.random(len(lengths)) < 0.1)[episode],
            "valid": rng.random(size) < 0.9,
            "score": np.where(rng.random(size) < 0.3, rng.random(size), 0.0),
            "phi": rng.random(size),
            "hop": rng.uniform(-1, 1, size),
            "milestone": rng.integers(0, 20, size),
            "count_before": rng.integers(0, 50, size),
            "r_a": rng.random(size),
            "r_b": rng.random(size),
            "tokens_out": rng.integers(1, 100, size),
            "tool": np.where(submits, "submit", "look"),
            "right_tool": np.full(size, "look"),
            "answer": rng.integers(0, 5, size),
            **{name: lists(rng.integers(0, 20, (size, 3))) for name in ("items", "gold")},
            **{name: lists(rng.random((size, 2))) for name in ("point", "aim")},
            **{name: lists(rng.normal(size=(size, 4))) for name in ("features", "goal_features", "base_features")},
            "box": lists(np.sort(rng.random((size, 4)))),
            "verdicts": lists(rng.random((size, 3)) < 0.6),
            "cited": submitted(rng.integers(0, 40, (size, 3)), submits),
            **{name: submitted(rng.random((size, 3)) < 0.6, submits) for name in ("success_votes", "valid_votes")},
        }
    )


def lists(values: np.ndarray) -> pl.Series:
    """A list column of the rows of a matrix."""
    return pl.Series(values).cast(pl.List(pl.Series(values[:0].ravel()).dtype))


def submitted(values: np.ndarray, rows: np.ndarray) -> pl.Series:
    """The same, on these rows only."""
    return pl.select(pl.when(pl.Series(rows)).then(lists(values)).alias("x"))["x"]


def milliseconds(signal: Signal, turns: Turns, repeats: int = 3) -> float:
    """Median CPU time of evaluating it on a table without keys."""
    times = []
    for _ in range(repeats):
        fresh = Turns(turns.frame)
        start = process_time()
        signal.evaluate(fresh)
        times.append(1e3 * (process_time() - start))
    return median(times)


def wandering(side: int, rng: np.random.Generator) -> Turns:
    """A walk on a grid of side² states that visits nearly all of them, paid by noise, in episodes of 500 turns."""
    number = 4 * side * side
    states = np.empty(number, np.int64)
    for begin in range(0, number, 500):  # each episode sweeps a stretch of the grid, with steps to the side
        offset = rng.integers(side * side) + np.cumsum(rng.choice([-side, -1, 1, side, 1, 1], 500))
        states[begin : begin + 500] = offset % (side * side)
    turn = np.arange(number)
    columns = {
        "episode": turn // 500,
        "turn": turn % 500,
        "state": states.astype(np.uint64),
        "score": rng.normal(size=number),
    }
    return Turns(pl.DataFrame(columns).with_columns(agent=pl.lit("a")))


def audited(console: Console) -> bool:
    """The audit of cycles on more than 100,000 distinct states, for noise and for shaping: wall seconds."""
    turns = wandering(350, np.random.default_rng(0))
    distinct, good = turns["state"].n_unique(), True
    for label, signal in (("noise", col("score")), ("shaping", r.shape(col("state") / 1e5, truncated=0.0))):
        table = turns.with_column(truncated=np.zeros(len(turns), bool))
        start = perf_counter()
        finding = cycle_gain(table, signal)
        seconds = perf_counter() - start
        good &= seconds <= MOST_AUDIT_SECONDS
        console.print(
            f"cycle audit, {label}: {distinct:,} states, {len(turns):,} turns, {seconds:.1f} s: {finding.verdict}"
        )
    console.print(f"{'PASS' if good else 'FAIL'}  at most {MOST_AUDIT_SECONDS} s for the audit of cycles")
    return good


def main() -> int:
    """Measure, print, and say whether each stays within the limit: 0 if all do."""
    console = Console(width=120)
    versions = " · ".join(f"{name} {importlib.metadata.version(name)}" for name in ("numpy", "polars", "pyarrow"))
    console.print(f"Python {platform.python_version()} · {versions} · CPU time of one thread, cold")
    tables = [play(rows, np.random.default_rng(0)) for rows in SIZES]
    table = Table()
    table.add_column("reward")
    for turns in tables:
        table.add_column(f"{len(turns):,} turns, ms", justify="right")
    table.add_column("exponent", justify="right")
    slow = []
    for label, signal in SIGNALS:
        times = [milliseconds(signal, turns) for turns in tables]
        slope = math.log(times[2] / times[1]) / math.log(len(tables[2]) / len(tables[1]))
        table.add_row(label, *(f"{time:.1f}" for time in times), f"{slope:.2f}")
        if times[2] > MOST_MILLISECONDS:
            slow.append(label)
    console.print(table)
    verdict = f"at most {MOST_MILLISECONDS} ms for a million turns"
    console.print(f"{'FAIL' if slow else 'PASS'}  {verdict}{': ' + ', '.join(slow) if slow else ''}")
    return 0 if audited(console) and not slow else 1


if __name__ == "__main__":
    sys.exit(main())
