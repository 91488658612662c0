"""[152] SmartSnap (arXiv 2512.22322): an agent that submits its evidence learns to submit little, and the right rows.

Episodes of twelve rows; one shows the final state, two come near, nine are something else, and the policy selects each
row by its kind. Three verifiers see only the task and the submitted rows: they can tell success if the final row is
among them, each with 5 % error, and fail to answer at times. Three pieces are free, so that a second row does no harm
and precision stays near one half; with a price on every piece only the decisive row is left. Left out: real screens.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl

from palaestra.algebra.signals import Signal
from palaestra.algebra.turns import Ragged, Turns
from palaestra.atlas.harness import Outcome, reproduction
from palaestra.atlas.reproductions.tabular import uniform
from palaestra.rewards.match.evidence import semi_join, smart_snap_reward

KINDS = np.array([2] + [1] * 2 + [0] * 9)
ROWS, VOTES, SOLVED, ERROR, SILENT = len(KINDS), 3, 0.7, 0.05, 0.02
EPISODES, UPDATES, RATE, LATE = 32, 300, 1.0, 50
ARMS = {"published": smart_snap_reward("evidence"), "every_piece": smart_snap_reward("evidence", free=0)}


def lists(name: str, mask: np.ndarray, values: np.ndarray, last: np.ndarray) -> pl.Series:
    """A list column with the marked values on the episodes' last rows, and nothing on the others."""
    sizes = np.zeros(len(last), np.int64)
    sizes[last] = mask.sum(axis=1)
    return Ragged(values[mask], sizes).to_series(name)


def train(credited: Signal, seeds: Sequence[int]) -> dict[str, np.ndarray]:
    """Rows submitted, share that shows the final state, share of the text that is shown, reward; for each seed."""
    streams, runs = [np.random.default_rng(seed) for seed in seeds], len(seeds)
    theta, number = np.zeros((runs, 3)), runs * EPISODES
    turn = np.tile(np.arange(ROWS + 1), number)
    last = turn == ROWS
    keys: dict[str, object] = {"group": np.repeat(np.arange(number), ROWS + 1), "episode": turn * 0, "turn": turn}
    keys |= {
        "agent": ["a"] * len(turn),
        "tool": np.where(last, "submit", "look"),
        "observation": ["a screen"] * len(turn),
    }
    found: dict[str, list[np.ndarray]] = {"rows": [], "precision": [], "shown": [], "reward": []}
    for update in range(UPDATES):
        chance = 1 / (1 + np.exp(-theta[:, None, KINDS]))
        luck = uniform(streams, EPISODES, ROWS + 1 + 3 * VOTES)
        chosen = luck[..., :ROWS] < chance
        solved, seen = luck[..., ROWS] < SOLVED, chosen[..., 0]
        errors, silent = luck[..., ROWS + 1 : ROWS + 1 + 2 * VOTES] < ERROR, luck[..., -VOTES:] < SILENT
        success = ((solved & seen)[..., None] ^ errors[..., :VOTES]).astype(float)
        valid = (seen[..., None] ^ errors[..., VOTES:]).astype(float)
        flat, every = chosen.reshape(-1, ROWS), np.ones((number, VOTES), bool)
        columns = {"evidence": lists("evidence", flat, np.broadcast_to(np.arange(ROWS), flat.shape), last)}
        for name, votes in (("success_votes", success), ("valid_votes", valid)):
            columns[name] = lists(name, every, np.where(silent, np.nan, votes).reshape(-1, VOTES), last)
        turns = Turns(keys | columns)
        reward = np.asarray(credited.evaluate(turns))[last].reshape(runs, EPISODES)
        advantage = (reward - reward.mean(axis=1, keepdims=True))[..., None] * (chosen - chance)
        theta += (
            RATE * np.stack([advantage[..., kind == KINDS].sum(axis=(1, 2)) for kind in range(3)], axis=1) / EPISODES
        )
        if update >= UPDATES - LATE:
            size = flat.sum(axis=1).reshape(runs, EPISODES)
            found["rows"].append(size.mean(axis=1))
            found["precision"].append(seen.sum(axis=1) / np.maximum(size.sum(axis=1), 1))
            found["reward"].append(reward.mean(axis=1))
    cited = turns.with_column(evidence=pl.col("evidence").cast(pl.List(pl.Int32)))
    found["shown"].append(np.full(runs, len(semi_join(cited)) / len(turns)))
    return {name: np.mean(values, axis=0) for name, values in found.items()}


@reproduction(
    152,
    claim="Judged on the evidence that it submits, at a price per piece, an agent learns to submit the decisive row.",
    baseline="the whole trajectory as evidence; and a price on the first three pieces as well",
    criterion="in every seed at most 3 rows are submitted and the reward is above 0.5; the judge is shown at most a "
    "fifth of the rows; with a price on every piece the precision is at least 0.9",
    seeds=(0, 1, 2, 3, 4),
    slow=True,
)
def measure(seeds: Sequence[int]) -> Outcome:
    """What is submitted after training."""
    arms = {name: train(reward, seeds) for name, reward in ARMS.items()}
    measured = {f"{what}_{name}": float(found[what].mean()) for name, found in arms.items() for what in found}
    ours, strict = arms["published"], arms["every_piece"]
    good = (ours["rows"] <= 3).all() and (ours["reward"] > 0.5).all() and (ours["shown"] <= 0.2).all()
    return Outcome(measured, bool(good and (strict["precision"] >= 0.9).all()))
