"""[135] DyLAN (arXiv 2310.02170): importance that flows back through messages finds the members to keep.

Seven scripted agents of different accuracy play a debate of three rounds; each goes over to what the others say most.
Importance is read from turns and messages, without knowing who was right; the three most important then play against
three drawn ones. Left out: ratings by a language model; a message weighs as
much as others agree with it.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Sequence

import numpy as np
import polars as pl
from scipy.stats import spearmanr

from palaestra.agents import ScriptedPolicy, Team
from palaestra.agents.policy import Request
from palaestra.algebra.messages import messages
from palaestra.envs.tasks import Task, TaskEnv
from palaestra.evaluation.teamwork import importance_flow
from palaestra.play.rollout import rollout
from palaestra.teams import workflows
from palaestra_atlas.reproductions import Outcome, reproduction

ACCURACY = dict(zip((f"debater-{k}" for k in range(1, 8)), np.linspace(0.75, 0.25, 7).tolist()))
OPTIONS, QUESTIONS = 4, 200


class Choice(TaskEnv):
    """One of four answers, 0 is right."""

    def draw(self, seed: int) -> Task:
        """Of a seed."""
        return Task(f"{seed}", "which?", lambda text: float(text == "0"), "0")


def say(skill: dict[str, float], request: Request) -> str:
    """An answer of its own; then, half of the time, what most others say."""
    _, *heard = request.observation.text.split(" | ")
    if heard and request.rng.random() < 0.5:
        return Counter(heard[1:]).most_common(1)[0][0]
    if heard:
        return heard[0]
    right = request.rng.random() < skill[request.agent]
    return "0" if right else str(int(request.rng.integers(1, OPTIONS)))


def importance(seed: int) -> dict[str, float]:
    """Of each member, mean over questions."""
    policy = ScriptedPolicy(functools.partial(say, ACCURACY), name="talker")
    env = workflows.debate(Choice, len(ACCURACY), 3, gate=f"top({len(ACCURACY)})")
    turns = rollout(env, Team(dict.fromkeys(ACCURACY, policy)), groups=QUESTIONS, seed=seed, timeout=None)
    flow = importance_flow(turns, messages(turns))
    return {str(agent): float(total) / QUESTIONS for agent, total in flow.group_by("agent").agg(
        pl.col("importance").sum()).iter_rows()}  # fmt: skip


def success(members: Sequence[str], seed: int) -> float:
    """Of a team of three in a debate of two rounds."""
    names = [f"debater-{k}" for k in range(1, len(members) + 1)]
    skill = {name: ACCURACY[member] for name, member in zip(names, members)}
    policy = ScriptedPolicy(functools.partial(say, skill), name="talker")
    env = workflows.debate(Choice, len(members), 2)
    turns = rollout(env, Team(dict.fromkeys(names, policy)), groups=QUESTIONS, seed=seed + 1000, timeout=None)
    return float(turns.frame.unique(["group"])["success"].mean())  # type: ignore[arg-type]


@reproduction(
    135,
    claim="Importance that flows back through who heard whom ranks members by accuracy, and a team of the most "
    "important is better than one drawn.",
    baseline="three members drawn",
    criterion="rank correlation of importance and accuracy at least 0.85 and the chosen three ahead of drawn ones by "
    "0.1 or more, in the mean over seeds (held on both fresh blocks)",
    seeds=(0, 1, 2),
    slow=True,
)
def measure(seeds: Sequence[int]) -> Outcome:
    """Importance, then teams."""
    ranks, chosen, drawn = [], [], []
    for seed in seeds:
        found = importance(seed)
        ranks.append(float(spearmanr([found[name] for name in ACCURACY], list(ACCURACY.values())).statistic))
        chosen.append(success(sorted(ACCURACY, key=lambda name: -found[name])[:3], seed))
        rng = np.random.default_rng(seed)
        drawn += [success(rng.choice(list(ACCURACY), 3, replace=False).tolist(), seed) for _ in range(3)]
    measured = {"rank_correlation": float(np.mean(ranks)), "chosen": float(np.mean(chosen)),
                "drawn": float(np.mean(drawn))}  # fmt: skip
    return Outcome(measured, measured["rank_correlation"] >= 0.85 and np.mean(chosen) >= np.mean(drawn) + 0.1)
