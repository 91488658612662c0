"""[111] AgentDropoutV2 (arXiv 2602.23258): rectify or reject, before anybody hears it.

Five scripted agents answer at once; five indicators fire on .25 of wrong and .03 of right messages. Beside the whole
method: no audit; rejection without a second try; and an audit that fires on both alike. All is played through the
workflow `audited`. Left out: the pool of indicators, and the authors' released results, which are not here to be read.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from palaestra.agents import ScriptedPolicy, Team
from palaestra.agents.policy import Request
from palaestra.envs.tasks import Task, TaskEnv
from palaestra.play.rollout import rollout
from palaestra.teams import audited
from palaestra.teams.audit import indicators
from palaestra.teams.rules import Message
from palaestra_atlas.reproductions import Outcome, exact, reproduction

ACCURACIES, QUESTIONS, REPAIRED, DAMAGED = (0.3, 0.45, 0.6), 150, 0.35, 0.05
RIGHT, WRONG = "right", "wrong"
AUDITS: dict[str, dict[str, Any]] = {
    "none": {"audit": "indicators(right=0.0, wrong=0.0)"},
    "reject": {"audit": "indicators()", "attempts": 1},
    "rectify": {"audit": "indicators()"},
    "blind": {"audit": "indicators(right=0.14, wrong=0.14)", "attempts": 1},
}


NO_WRONG = '"palaestra_atlas.catalog.teams.s111_agent_dropout:no_wrong"'
DRAWN = 20_000


class Question(TaskEnv):
    """Right or wrong."""

    def draw(self, seed: int) -> Task:
        """Of a seed."""
        return Task(f"{seed}", "which?", lambda text: float(text == RIGHT), RIGHT)


def speaker(accuracy: float) -> Callable[[Request], str]:
    """Right so often; what failed the audit and is told so is repaired, or damaged, now and then."""

    def say(request: Request) -> str:
        _, *before = request.observation.text.split(" | ")
        if before:  # an answer that failed, and the audit's note
            turned = request.rng.random() < (DAMAGED if before[0] == RIGHT else REPAIRED)
            return {RIGHT: WRONG, WRONG: RIGHT}[before[0]] if turned else before[0]
        return RIGHT if request.rng.random() < accuracy else WRONG

    return say


def recipe(seed: int, folder: Path) -> None:
    """Writes the recipe of five weak speakers, `speakers.yaml`."""
    here = __name__
    made = {
        "name": "speakers",
        "env": {"make": f"{here}:Question"},
        "policies": {
            "speaker": {"kind": "script", "options": {"script": f"{here}:speaker", "accuracy": ACCURACIES[0]}}
        },
        "team": {"*": "speaker"},
        "credit": "return_to_go()",
        "learn": {"kind": "play"},
        "train": {"iterations": 1, "groups": 400, "group_size": 1},
        "evaluation": {"tasks": 2, "trials": 1, "look_tasks": 2, "look_trials": 1},
    }
    (folder / "speakers.yaml").write_text(json.dumps(made))


def played(accuracy: float, audit: str, seed: int) -> tuple[float, float, float]:
    """Success, turns per question, and by how much the share of right first answers is larger among those that pass."""
    env = audited(Question, 5, talk=False, **AUDITS[audit])
    team = Team(dict.fromkeys(env().agents, ScriptedPolicy(speaker(accuracy), name="talker")))
    turns = rollout(env, team, groups=QUESTIONS, seed=seed, timeout=None).frame
    first = turns.filter((pl.col("attempt") == 0) & pl.col("audit_failed").is_not_null())
    kept = float(first.filter("audit_passed")["score"].mean() - first["score"].mean())  # type: ignore[operator, arg-type]
    return float(turns.unique(["group"])["success"].mean()), len(turns) / QUESTIONS, kept  # type: ignore[arg-type]


def no_wrong(text: str) -> list[str]:
    """An audit without chance: `wrong` should change."""
    return ["say right"] if text == WRONG else []


def scripted(said: dict[str, list[str]], **options: Any) -> pl.DataFrame:
    """One question, played by agents who say these texts one after the other; the last one for ever."""
    told: dict[str, list[str]] = {}

    def say(request: Request) -> str:
        told.setdefault(request.agent, []).append(request.observation.text)
        own = said[request.agent]
        return own[min(len(told[request.agent]), len(own)) - 1]

    env = audited(Question, len(said), audit=f"checks({NO_WRONG})", **options)
    team = Team(dict.fromkeys(env().agents, ScriptedPolicy(say, name="talker")))
    frame = rollout(env, team, groups=1, seed=0, timeout=None).frame.sort("turn", "agent")
    read = {agent: iter(texts) for agent, texts in told.items()}
    return frame.with_columns(read=pl.Series([next(read[agent]) for agent in frame["agent"].cast(str)]))


@exact
def passing_shares() -> None:
    """Five indicators let (1 - .25)^5 of wrong and (1 - .03)^5 of right messages pass."""
    rng, audit = np.random.default_rng(0), indicators()
    for score, share in ((0.0, 0.75**5), (1.0, 0.97**5)):
        said = Message("agent-1", "answer", score, 0, 0)
        passed = [not any(audit(said, lambda: rng)) for _ in range(DRAWN)]
        np.testing.assert_allclose(np.mean(passed), share, atol=0.015)


@exact
def four_attempts() -> None:
    """Who fails is asked again with the suggestion, four times in all; the fourth, right at last, is what counts."""
    turns = scripted({"agent-1": [WRONG, WRONG, WRONG, RIGHT], "agent-2": [RIGHT]}, talk=False)
    own = turns.filter(pl.col("agent").cast(str) == "agent-1")
    assert own["attempt"].to_list() == [0, 1, 2, 3]
    assert own["audit_passed"].to_list() == [False, False, False, True]
    assert own["read"][1] == f"which? | {WRONG} | audit: say right"
    assert turns["success"].all()


@exact
def dropped_unheard() -> None:
    """What fails to the end reaches nobody, and the vote goes on without it."""
    turns = scripted({"agent-1": [WRONG], "agent-2": [WRONG], "agent-3": [RIGHT], "agent-4": [RIGHT]}, attempts=2)
    last = turns.filter(pl.col("agent").cast(str) == "agent-4").row(0, named=True)
    assert last["heard"] == ["agent-1", "agent-2", "agent-3"]
    assert last["heard_kept"] == [False, False, True]
    assert last["read"] == f"which? | {RIGHT}"
    assert turns["success"].all()


@exact
def once_without_audit() -> None:
    """With one survivor the whole team plays once more, and nothing is audited."""
    turns = scripted({"agent-1": [WRONG], "agent-2": [WRONG, WRONG, RIGHT], "agent-3": [RIGHT]}, talk=False, attempts=2)
    again = turns.filter(pl.col("audit_failed").is_null())
    assert again["agent"].cast(str).to_list() == ["agent-1", "agent-2", "agent-3"]
    assert again["audit_passed"].all()
    assert turns["success"].all()


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
