"""Synthetic run directories that follow the contract of `palaestra train`, written without the trainer."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

POLICIES = ("solver", "checker")
HOSTILE = "<script>alert('observation')</script> & \"quotes\""
RECIPE = """\
name: solver-checker
env:
  kind: workflow
  workflow: solver_checker
  tasks: {datasets: [chain_sum, basic_arithmetic, letter_counting], held_out: 120}
team:
  solver: {policy: lm, parameters: 190000}
  checker: {policy: lm, parameters: 190000}
credit: 0.7 * standardise(episode_return(), over="group") + 0.3 * centre(return_to_go(gamma=0.95), over="state")
training: {iterations: 100, groups: 16, group_size: 8, learning_rate: 0.0003}
evaluation: {tasks: 120, trials: 4, every: 10}
"""


def interval(mean: float, half: float) -> dict[str, float]:
    return {"mean": mean, "low": mean - half, "high": mean + half}


def metric_row(rng: np.random.Generator, i: int, iterations: int, lift: float) -> dict[str, Any]:
    t = i / max(iterations - 1, 1)
    success = 0.31 + (0.24 + lift) * (1 - np.exp(-3 * t)) + rng.normal(0, 0.025)
    look = None
    if i % 10 == 0 or i == iterations - 1:
        held = 0.30 + (0.22 + lift) * (1 - np.exp(-3 * t)) + rng.normal(0, 0.015)
        look = {"success": held, "low": held - 0.04, "high": held + 0.04, "score": held + 0.05, "n": 480}
    policies = {
        name: {
            "loss": rng.normal(0, 0.02),
            "kl": 0.08 * t * (1 + k) + rng.random() * 0.004,
            "grad_norm": 0.5 + rng.random() * 0.3,
            "entropy": 1.1 - (0.5 + 0.2 * k) * t + rng.normal(0, 0.02),
            "clip_fraction": 0.05 + rng.random() * 0.03,
            "zero_credit": float(np.clip(0.28 + 0.25 * t * k + rng.normal(0, 0.02), 0, 1)),
            "illegal": 0.06 * np.exp(-4 * t),
            "distinct_actions": 0.35 - 0.12 * t + rng.normal(0, 0.01),
            "rows": 128,
        }
        for k, name in enumerate(POLICIES)
    }
    return {
        "iteration": i,
        "wall_seconds": 0.9 * (i + 1),
        "cpu_seconds": 1.4 * (i + 1),
        "episodes": 128,
        "turns": 256,
        "errors": {"env": 1} if i % 25 == 3 else {},
        "reward": success + 0.08,
        "success": success,
        "policies": policies,
        "evaluation": look,
        "metrics": {"exploitability": 0.35 * np.exp(-2 * t) + 0.04} if look else {},
        "alarms": [f"entropy of checker fell to {0.41 - i / 1000:.3f} nats"]
        if i > 0.9 * iterations and lift < 0
        else [],
    }


def episode_rows(
    rng: np.random.Generator, group: int, episode: int, win: bool, *, kind: int, advantage: bool, error: str | None
) -> list[dict[str, Any]]:
    a, b, c = (int(x) for x in rng.integers(11, 99, 3))
    task = ("chain_sum", "basic_arithmetic", "letter_counting")[kind % 3] + f"-{group}"
    question = f"State the final answer to the following arithmetic problem: {a} + {b} - {c} ="
    if group % 4 == 1:
        question += (
            "\n"
            + "Think about carrying digits and check every step of the sum before you answer. " * 9
            + f"\n{HOSTILE}"
        )
    answer = a + b - c if win else a + b - c + int(rng.integers(1, 30))
    facts = {
        "group": group,
        "episode": episode,
        "task": task,
        "terminated": not error,
        "truncated": False,
        "error": error,
    }
    if error and episode % 2:  # failed before anyone acted
        return [{**facts, "turn": 0, "success": None}]
    turns = [
        ("solver", question, str(answer - (3 if win else 0)), 0.0),
        ("checker", f"{question}\nThe solver says: {answer - 3}. Accept or replace?", f"replace {answer}", float(win)),
    ]
    rows = []
    for turn, (agent, seen, did, reward) in enumerate(turns):
        row = {
            **facts,
            "turn": turn,
            "agent": agent,
            "policy": agent,
            "observation": seen,
            "action": did,
            "valid": bool(rng.random() > 0.05),
            "reward": None if error else reward,
            "success": None if error else win,
        }
        if advantage:
            row["advantage"] = float(rng.normal(0.8 if win else -0.6, 0.5)) * (turn + 0.5)
        rows.append(row)
    return rows


def turns_frame(rows: list[dict[str, Any]]) -> pl.DataFrame:
    types = {
        "iteration": pl.Int32,
        "group": pl.Int32,
        "episode": pl.Int32,
        "turn": pl.Int32,
        "agent": pl.Categorical,
        "policy": pl.Categorical,
        "observation": pl.String,
        "action": pl.String,
        "valid": pl.Boolean,
        "reward": pl.Float64,
        "terminated": pl.Boolean,
        "truncated": pl.Boolean,
        "error": pl.String,
        "success": pl.Boolean,
        "task": pl.String,
        "advantage": pl.Float64,
        "system": pl.String,
    }
    frame = pl.DataFrame(rows, infer_schema_length=None)
    return frame.cast({name: dtype for name, dtype in types.items() if name in frame.columns})


def write_seed(folder: Path, seed: int, iterations: int, tasks: int, trials: int) -> None:
    rng = np.random.default_rng(seed)
    (folder / "turns").mkdir(parents=True)
    lift = (0.02, -0.03, 0.05, 0.0, 0.03)[seed % 5]
    lines = [json.dumps(metric_row(rng, i, iterations, lift)) for i in range(iterations)]
    (folder / "metrics.jsonl").write_text("\n".join(lines) + "\n")
    training = []
    for group in range(8):
        for episode in range(8):
            error = "env: ZeroDivisionError: float division by zero" if (group, episode) == (5, 1) else None
            training += episode_rows(rng, group, episode, rng.random() < 0.5, kind=group, advantage=True, error=error)
    frame = turns_frame(training).with_columns(iteration=pl.lit(iterations - 1, pl.Int32))
    frame.write_parquet(folder / "turns" / f"iteration-{iterations - 1:06d}.parquet")
    chance = {"before": 0.31, "after": 0.53 + lift, "random": 0.02, "scripted": 0.42, "single": 0.44}
    held = []
    for system, p in chance.items():
        for group in range(tasks):
            for trial in range(trials):
                error = "policy: TimeoutError: no answer within 30 s" if rng.random() < 0.002 else None
                rows = episode_rows(rng, group, trial, rng.random() < p, kind=group, advantage=False, error=error)
                held += [{**row, "system": system} for row in rows]
    turns_frame(held).write_parquet(folder / "evaluation.parquet")
    terms = {
        '0.7 * standardise(episode_return(), over="group")': 0.62 + lift,
        '0.3 * centre(return_to_go(gamma=0.95), over="state")': 0.38 - lift,
    }
    (folder / "contributions.json").write_text(json.dumps(terms))


def table_row(system: str, mean: float, tasks: int, trials: int) -> dict[str, Any]:
    gain = mean - 0.312
    return {
        "system": system,
        "n_tasks": tasks,
        "trials": trials,
        "success": interval(mean, 0.022),
        "score": interval(mean + 0.05, 0.02),
        "pass_at_k": {str(k): min(1.0, mean * k**0.4) for k in (1, 2, 4)},
        "pass_hat_k": {str(k): mean**k for k in (1, 2, 4)},
        "difference": None if system == "before" else interval(gain, 0.034),
        "p": None if system == "before" else 0.0001,
        "detectable": 0.041,
        "errors": 3 if system == "after" else 0,
        "verdict": ""
        if system == "before"
        else f"{'better' if gain > 0 else 'worse'} than before by {100 * abs(gain):.1f} points (interval excludes 0).",
    }


def make_run(
    path: Path,
    *,
    seeds: int = 3,
    iterations: int = 30,
    tasks: int = 12,
    trials: int = 4,
    gain: float = 0.228,
    first: int = 0,
) -> Path:
    path.mkdir(parents=True, exist_ok=True)
    (path / "recipe.yaml").write_text(RECIPE)
    (path / "environment.json").write_text(
        json.dumps(
            {
                "versions": {"palaestra": "0.1.0", "polars": "2.1.0", "torch": "2.13.0"},
                "platform": "Linux, x86_64, 2 cores",
                "python": "3.11.9",
            }
        )
    )
    for seed in range(seeds):
        write_seed(path / f"seed-{seed}", first + seed, iterations, tasks, trials)
    after = 0.312 + gain
    summary = {
        "recipe": "solver-checker",
        "description": "two roles on three reasoning-gym datasets",
        "seeds": list(range(seeds)),
        "n_tasks": tasks,
        "trials": trials,
        "before": interval(0.312, 0.021),
        "after": interval(after, 0.024),
        "difference": interval(gain, 0.034),
        "controls": {
            "single": {
                **interval(0.44, 0.022),
                "difference": interval(0.128, 0.03),
                "verdict": "better by +10.0 points",
                "note": "One agent with the token budget of both roles.",
            },
            "random": {
                **interval(0.02, 0.006),
                "difference": interval(-0.292, 0.02),
                "verdict": "better by +52.0 points",
                "note": "Random digits.",
            },
        },
        "table": [
            table_row(s, m, tasks, trials)
            for s, m in (("before", 0.312), ("after", after), ("random", 0.02), ("scripted", 0.42), ("single", 0.44))
        ],
        "per_seed": [
            {
                "seed": s,
                "before": 0.3 + s / 100,
                "after": after - 0.03 + s / 80,
                "difference": interval(gain - 0.02, 0.06),
            }
            for s in range(seeds)
        ],
        "verdict": f"The trained team solves {100 * gain:.1f} points more of the held-out tasks than before training.",
        "metrics": {
            "exploitability": [{"seed": s, "before": 0.39 - s / 100, "after": 0.08 + s / 200} for s in range(seeds)]
        },
        "wall_seconds": 412.3,
        "cpu_seconds": 731.0,
        "seconds_to_significance": {str(s): 40.0 + 7 * s for s in range(seeds)},
        "versions": {"palaestra": "0.1.0"},
    }
    (path / "summary.json").write_text(json.dumps(summary))
    return path


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    """Three seeds, thirty iterations, everything there."""
    return make_run(tmp_path / "run")


@pytest.fixture(scope="session")
def build() -> Callable[..., Path]:
    """`build(path, seeds=…, iterations=…)` writes a run directory."""
    return make_run


@pytest.fixture
def dom(tmp_path: Path) -> Callable[[Path], str]:
    """What headless Chromium makes of a page: its document after everything in it that runs has run."""
    import shutil
    import subprocess

    binary = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if binary is None:
        pytest.skip("no Chromium here")

    def load(page: Path) -> str:
        quiet = ("--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync")
        command = [binary, "--headless", "--no-sandbox", "--disable-gpu", *quiet, "--virtual-time-budget=2000",
                   f"--user-data-dir={tmp_path / 'browser'}", "--dump-dom", page.as_uri()]  # fmt: skip
        return subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout

    return load
