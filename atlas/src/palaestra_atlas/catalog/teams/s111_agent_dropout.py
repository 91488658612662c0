"""[111] AgentDropoutV2 (arXiv 2602.23258): rectify or reject, before anybody hears it.

Five scripted agents answer at once; five indicators fire on .25 of wrong and .03 of right messages. Beside the whole
method: no audit; rejection without a second try; and an audit that fires on both alike. All is played through the
workflow `audited`. Left out: the pool of indicators, and the authors' released results, which are not here to be read.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import polars as pl

from palaestra.agents import ScriptedPolicy, Team
from palaestra.agents.policy import Request
from palaestra.envs.tasks import Task, TaskEnv
from palaestra.play.rollout import rollout
from palaestra.teams import audited
from palaestra_atlas.reproductions import Outcome, reproduction

ACCURACIES, QUESTIONS, REPAIRED, DAMAGED = (0.3, 0.45, 0.6), 150, 0.35, 0.05
RIGHT, WRONG = "right", "wrong"
AUDITS: dict[str, dict[str, Any]] = {
    "none": {"audit": "indicators(right=0.0, wrong=0.0)"},
    "reject": {"audit": "indicators()", "attempts": 1},
    "rectify": {"audit": "indicators()"},
    "blind": {"audit": "indicators(right=0.14, wrong=0.14)", "attempts": 1},
}


class Question(TaskEnv):
    """Right or wrong."""

    def draw(self, seed: int) -> Task:
        """Of a seed."""
        return Task(f"{seed}", "which?", lambda text: float(text == RIGHT), RIGHT)


def played(accuracy: float, audit: str, seed: int) -> tuple[float, float, float]:
    """Success, turns per question, and by how much the share of right first answers is larger among those that pass."""

    def say(request: Request) -> str:
        _, *before = request.observation.text.split(" | ")
        if before:  # an answer that failed, and the audit's note
            turned = request.rng.random() < (DAMAGED if before[0] == RIGHT else REPAIRED)
            return {RIGHT: WRONG, WRONG: RIGHT}[before[0]] if turned else before[0]
        return RIGHT if request.rng.random() < accuracy else WRONG

    env = audited(Question, 5, talk=False, **AUDITS[audit])
    team = Team(dict.fromkeys(env().agents, ScriptedPolicy(say, name="talker")))
    turns = rollout(env, team, groups=QUESTIONS, seed=seed, timeout=None).frame
    first = turns.filter((pl.col("attempt") == 0) & pl.col("audit_failed").is_not_null())
    kept = float(first.filter("audit_passed")["score"].mean() - first["score"].mean())  # type: ignore[operator, arg-type]
    return float(turns.unique(["group"])["success"].mean()), len(turns) / QUESTIONS, kept  # type: ignore[arg-type]


@reproduction(
    111,
    claim="To repair what an audit finds beats rejecting it, and rejecting beats no audit; the better the team, the "
    "fewer further calls; an audit that fires on right and wrong alike gains nothing.",
    baseline="the same team without audits; rejection alone; an uninformative audit",
    criterion="in the mean over seeds: reject 0.1 ahead of none at every accuracy, rectify 0.05 ahead of reject at .3 "
    "and .45 and at most 0.03 behind at .6; turns fall from .3 to .6; among what the blind audit passes right answers "
    "are as frequent as before to 0.05, and its teams are in the mean not 0.05 ahead of those without",
    seeds=(0, 1),
    slow=True,
)
def measure(seeds: Sequence[int]) -> Outcome:
    """Four audits of three teams."""
    found = {
        (audit, accuracy): np.mean([played(accuracy, audit, seed) for seed in seeds], axis=0)
        for audit in AUDITS for accuracy in ACCURACIES
    }  # fmt: skip
    measured = {f"{audit}_{accuracy}": float(each[0]) for (audit, accuracy), each in found.items()}
    measured |= {f"turns_{accuracy}": float(found["rectify", accuracy][1]) for accuracy in ACCURACIES}
    none, reject, rectify, blind = (np.array([found[audit, p][0] for p in ACCURACIES]) for audit in AUDITS)
    enriched = max(abs(found["blind", p][2]) for p in ACCURACIES)
    holds = (
        (reject >= none + 0.1).all() and (rectify >= reject + np.array([0.05, 0.05, -0.03])).all()
        and measured["turns_0.3"] > measured["turns_0.6"] and enriched <= 0.05 and blind.mean() < none.mean() + 0.05
    )  # fmt: skip
    return Outcome(measured | {"blind_enriches": float(enriched)}, bool(holds))
