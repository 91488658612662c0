"""[3] ARCANE (arXiv 2512.06196): a rubric that is learned by what its choice is worth, and re-weighted without a judge.

Outputs are twelve qualities in [0, 1]; the stakeholder cares for four of them. A manager chooses six to ask about, the
best of eight outputs by the resulting rubric is handed in, and its true utility is the reward; eight rubrics per task
are compared with each other (GRPO; on-policy, so that the sequence ratio is 1). Left out: language models, SFT, replay.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl

from palaestra.agents import ScriptedPolicy
from palaestra.algebra.turns import Turns
from palaestra.atlas.harness import Outcome, reproduction
from palaestra.atlas.reproductions.tabular import uniform
from palaestra.credit import grpo, ndcg
from palaestra.judges import Item, judge
from palaestra.rewards.judged.criteria import best_of, onto, utility

QUALITIES, ASKED, OUTPUTS, RUBRICS, TASKS, UPDATES, RATE = 12, 6, 8, 8, 8, 150, 1.0
WEIGHTS = np.array([0.4, 0.3, 0.2, 0.1] + [0.0] * (QUALITIES - 4))
TESTS, RANDOM = 200, 80


def worked_error() -> float:
    """Of the card's NDCG, .9570."""
    scores = {"rubric": [0.8, 0.85, 0.4, 0.3, 0.0], "worth": [0.9, 0.7, 0.5, 0.2, 0.1]}
    turns = Turns({"group": [0] * 5, "episode": range(5), "turn": [0] * 5} | scores)
    return float(np.abs(np.asarray(ndcg("rubric", "worth").evaluate(turns)) - 0.9570).max())


def choose(theta: np.ndarray, luck: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Six qualities drawn one after the other without replacement (Plackett and Luce), and ∇ log p of the draw."""
    noise = theta - np.log(-np.log(luck))
    order = np.argsort(-noise, axis=-1)[..., :ASKED]
    gradient, left = np.zeros(noise.shape), np.broadcast_to(np.exp(theta), noise.shape).copy()
    for position in range(ASKED):
        picked = order[..., position, None]
        gradient -= left / left.sum(axis=-1, keepdims=True)
        np.put_along_axis(gradient, picked, np.take_along_axis(gradient, picked, -1) + 1, -1)
        np.put_along_axis(left, picked, 0.0, -1)
    mask = np.zeros(noise.shape)
    np.put_along_axis(mask, order, 1.0, -1)
    return mask, gradient


def train(seeds: Sequence[int]) -> np.ndarray:
    """Preferences of the manager after training, float64[seeds, qualities]."""
    streams, runs, credit = [np.random.default_rng(seed) for seed in seeds], len(seeds), grpo()
    theta = np.zeros((runs, QUALITIES))
    run, task, rubric = (axis.ravel() for axis in np.indices((runs, TASKS, RUBRICS)))
    keys = {"run": run.astype(str), "group": task, "episode": rubric, "turn": task * 0, "agent": ["m"] * len(run)}
    for _ in range(UPDATES):
        outputs = uniform(streams, TASKS, 1, OUTPUTS, QUALITIES)
        mask, gradient = choose(theta[:, None, None], uniform(streams, TASKS, RUBRICS, QUALITIES))
        best = (outputs * (mask * WEIGHTS)[..., None, :]).sum(axis=-1).argmax(axis=-1)
        worth = np.take_along_axis((outputs @ WEIGHTS).repeat(RUBRICS, axis=2), best[..., None], -1)
        advantage = np.asarray(credit.evaluate(Turns(keys | {"reward": worth.ravel()}))).reshape(mask.shape[:3])
        theta += RATE * (advantage[..., None] * gradient).mean(axis=(1, 2))
    return theta


def evaluate(mask: np.ndarray, seed: int) -> tuple[float, float]:
    """True utility of the best of eight by the rubric, and NDCG of its order."""
    outputs = np.random.default_rng(10_000 + seed).random((TESTS, OUTPUTS, QUALITIES))
    group, episode = (axis.ravel() for axis in np.indices((TESTS, OUTPUTS)))
    columns = {"rubric": (outputs @ (mask * WEIGHTS)).ravel(), "worth": (outputs @ WEIGHTS).ravel()}
    turns = Turns({"group": group, "episode": episode, "turn": group * 0} | columns)
    chosen = np.asarray(best_of("rubric").evaluate(turns)) == 1
    return float(columns["worth"][chosen].mean()), float(np.asarray(ndcg("rubric", "worth").evaluate(turns)).mean())


def reweighted_calls() -> tuple[int, bool]:
    """Judge calls for a table of criteria that is weighted twice, and whether the choice changed."""
    calls = 0

    def verdict(request: object) -> str:
        nonlocal calls
        calls += 1
        text = request.observation.text  # type: ignore[attr-defined]
        return f"VERDICT: {0.9 if ('short' in text) == ('Is it brief' in text) else 0.1}"

    turns = Turns({"group": [0, 0], "episode": [0, 1], "turn": [0, 0], "action": ["short", "detailed"]})
    items = (Item("brief", "Is it brief?"), Item("thorough", "Is it thorough?"))
    table = judge(turns, items, ScriptedPolicy(verdict))
    picks = []
    for weights in ({"brief": 0.8, "thorough": 0.2}, {"brief": 0.2, "thorough": 0.8}):
        scored = onto(turns, utility(table, weights))
        picks.append(int(np.argmax(np.asarray(best_of(pl.col("utility")).evaluate(scored)))))
    return calls, picks[0] != picks[1]


@reproduction(
    3,
    claim="A manager that learns what to ask about hands in better outputs; other weights need no new judging.",
    baseline="six criteria at random",
    criterion="NDCG of the card to 1e-4; best-of-8 true utility at least 0.05 above the random rubric's and a higher "
    "NDCG in every seed; weights change the choice with the same 4 judge calls",
    seeds=(0, 1, 2, 3, 4),
)
def measure(seeds: Sequence[int]) -> Outcome:
    """NDCG, the learned rubric, re-weighting."""
    learned = train(seeds)
    ours, random = [], []
    draws = np.random.default_rng(0).permuted(np.tile(np.arange(QUALITIES), (RANDOM, 1)), axis=1)[:, :ASKED]
    for seed, theta in zip(seeds, learned, strict=True):
        ours.append(evaluate(np.isin(np.arange(QUALITIES), np.argsort(-theta)[:ASKED]).astype(float), seed))
        found = [evaluate(np.isin(np.arange(QUALITIES), draw).astype(float), seed) for draw in draws]
        random.append(np.mean(found, axis=0))
    calls, changed = reweighted_calls()
    gain = np.array(ours) - np.array(random)
    measured = {"worked_error": worked_error(), "judge_calls": float(calls)}
    for at, what in enumerate(("utility", "ndcg")):
        measured |= {
            f"{what}_learned": float(np.mean(ours, axis=0)[at]),
            f"{what}_random": float(np.mean(random, axis=0)[at]),
        }
    good = (gain[:, 0] >= 0.05).all() and (gain[:, 1] > 0).all()
    return Outcome(measured, bool(good and changed and calls == 4 and measured["worked_error"] < 1e-4))
