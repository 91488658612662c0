"""[109] Signals (arXiv 2604.00356): rules of failures and loops choose episodes that are worth reading.

2 000 made-up trajectories of tool calls, 55 % of them informative; a fifth of the informative ones show nothing, the
rest fail calls or loop. The detectors read the calls. Left out: people's labels, and the paper's logs.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl

from palaestra.algebra.turns import Turns
from palaestra.evaluation.triage import detect, sampling_gain, triage
from palaestra.evaluation.triage.execution import execution
from palaestra_atlas.reproductions import Outcome, reproduction

EPISODES, INFORMATIVE, SILENT, BUDGET, TOOLS = 2000, 0.55, 0.2, 300, 8
FALSE_SIGNS = 0.1
WEIGHTS = {"execution.failure": 8.0, "execution.loop": 5.0}


def play(seed: int, false_signs: float = 0.0) -> tuple[Turns, np.ndarray]:
    """Calls, and which episodes are informative. false_signs: share of the others with one failed call."""
    rng = np.random.default_rng(seed)
    informative = rng.random(EPISODES) < INFORMATIVE
    loud = informative & (rng.random(EPISODES) >= SILENT)
    length = 6 + rng.poisson(6 + 0.3 * informative)
    start = np.cumsum(length) - length
    total = int(length.sum())
    tool = np.cumsum(rng.integers(1, TOOLS, total)) % TOOLS  # never the same twice in a row
    argument = np.arange(total)
    failed = np.zeros(total, bool)
    first = start[loud]
    fails = rng.random(len(first)) < 0.7
    failed[first[fails] + rng.integers(0, length[loud][fails])] = True
    failed[first[fails] + rng.integers(0, length[loud][fails])] = True
    retries = first[~fails | (rng.random(len(first)) < 0.3)] + 1
    for step in (1, 2, 3):
        tool[retries + step], argument[retries + step] = tool[retries], argument[retries]
    plain = np.flatnonzero(~informative)
    wrong = plain[rng.random(len(plain)) < false_signs]
    failed[start[wrong] + rng.integers(0, length[wrong])] = True
    error = pl.when(pl.Series(failed)).then(pl.lit("invalid argument: date"))
    frame = pl.DataFrame({
        "episode": np.repeat(np.arange(EPISODES), length), "turn": np.arange(total) - np.repeat(start, length),
        "agent": ["agent"] * total, "tool": [f"tool_{i}" for i in tool], "arguments": argument.astype(str),
    })  # fmt: skip
    return Turns(frame.with_columns(tool_error=error)), informative


def chosen(seed: int, false_signs: float = 0.0) -> dict[str, np.ndarray]:
    """Labels of the episodes that each way chooses."""
    turns, informative = play(seed, false_signs)
    found = detect(turns, {"execution": execution})
    best = triage(turns, BUDGET, detections=found, weights=WEIGHTS, seed=seed, outcomes=False)["episode"].to_numpy()
    length = np.bincount(turns["episode"].to_numpy())
    luck = np.random.default_rng(seed + 1000).permutation(EPISODES)
    longest = luck[np.argsort(-length[luck], kind="stable")][:BUDGET]
    return {"signals": informative[best], "longest": informative[longest], "random": informative[luck[:BUDGET]]}


@reproduction(
    109,
    claim="Rules of failed calls and loops find informative episodes that length and chance do not.",
    baseline="300 of 2 000 episodes at random, and the 300 longest.",
    criterion="Share informative: signals 1.00, above the longest and the random ones in every seed; pooled intervals "
    "of signals and of each other way do not overlap; with a failed call in 10 % of the plain ones still above .85.",
    seeds=(0, 1, 2, 3, 4),
    slow=True,
)
def measure(seeds: Sequence[int]) -> Outcome:
    """All ways, pooled over seeds."""
    runs = [chosen(seed) for seed in seeds]
    pooled = {name: np.concatenate([run[name] for run in runs]) for name in runs[0]}
    pooled["signals_false_signs"] = np.concatenate([chosen(seed, FALSE_SIGNS)["signals"] for seed in seeds])
    table = {row["way"]: row for row in sampling_gain({k: v.tolist() for k, v in pooled.items()}).to_dicts()}
    measured = {f"{way}_{part}": table[way][part] for way in table for part in ("informative", "low", "high")}
    measured["gain_over_random"] = table["signals"]["gain"]
    every = all(run["signals"].mean() > max(run["longest"].mean(), run["random"].mean()) for run in runs)
    holds = (
        every
        and measured["signals_informative"] == 1.0
        and measured["signals_low"] > max(measured["longest_high"], measured["random_high"])
        and measured["signals_false_signs_informative"] > 0.85
    )
    return Outcome(measured, bool(holds))
