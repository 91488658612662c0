"""[1] MagicGUI-RMS (arXiv 2601.13060): a domain judge corrects actions, an arbiter decides, the agent clones the rest.

The judges are scripts with the card's rates, over tasks with one right answer of eight. Left out: screens, language
models, and the arbiter's other verdicts.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import polars as pl

from palaestra.algebra.signals import is_in
from palaestra.algebra.turns import Turns
from palaestra.envs.worlds.answers import Answers, Arbiter, corrector
from palaestra.judges import CorrectingPanel, Scorer, Verifier
from palaestra.learning.stages.corrected_actions import corrected_actions
from palaestra.runs.inline import TrainingResult
from palaestra_atlas.catalog.reward_models.made import stage_context
from palaestra_atlas.reproductions import Outcome, exact, reproduction, train_arms

AGENT, KEEPS, FLAGS, CORRECTS, SPOILS, ARBITER = 0.7, 0.9, 0.8, 0.6, 0.3, 0.85
WORLD = "palaestra.envs.worlds.answers"
SAME: dict[str, Any] = {
    "env": {"make": "native/answers", "options": {"wordings": 2}},
    "warm_start": {
        "script": f"{WORLD}:suggestible", "options": {"right": 0.65, "suggested": 0.0},
        "groups": 512, "steps": 60, "lr": 0.1,
    },
    "train": {"iterations": 1, "groups": 64, "group_size": 8},
}  # fmt: skip
ARMS = {
    name: {**SAME, "stages": stages, "learn": {"epochs": 30, "lr": 0.1, "terms": terms}}
    for name, stages, terms in (
        ("panel", [f'corrected_actions("{WORLD}:corrector()", "{WORLD}:Arbiter()")'], "clone(column='settled')"),
        ("unchecked", [f'corrected_actions("{WORLD}:corrector()")'], "clone(column='settled')"),
        ("own", [], "clone()"),
    )
}


def expected(arbiter: float | None) -> float:
    """P(final right), the arbiter right on a pair that differs with this chance; None: every correction is taken."""
    saved, taken = (0.0, 1.0) if arbiter is None else (arbiter, arbiter)
    kept = KEEPS + (1 - KEEPS) * (SPOILS + (1 - SPOILS) * saved)
    return AGENT * kept + (1 - AGENT) * FLAGS * CORRECTS * taken


def simulated(arbiter: Scorer, seed: int, rows: int = 100_000) -> float:
    """The same from an agent's answers and the panel."""
    rng, truth = np.random.default_rng([seed, 9]), Answers().right.argmax(axis=1)
    task = rng.integers(8, size=rows)
    answer = np.where(rng.random(rows) < AGENT, truth[task], (truth[task] + rng.integers(1, 8, rows)) % 8)
    frame = pl.DataFrame({"task": task, "action": answer}).select(
        task=pl.format("task {}", "task"), action=pl.format("answer {}", "action")
    )
    judge = corrector(keeps=KEEPS, flags=FLAGS, corrects=CORRECTS, spoils=SPOILS, seed=seed)
    final = CorrectingPanel(judge, arbiter)(Turns(frame))["final_action"]
    return float((final == pl.Series(np.char.add("answer ", truth[task].astype(str)))).mean())  # type: ignore[arg-type]


@exact
def final_actions() -> None:
    """Right after the panel: .815 with the arbiter, .795 with every correction taken, .748 with a coin."""
    found: dict[float | None, Any] = {
        None: Verifier("0.0"),
        ARBITER: Arbiter(ARBITER, seed=3),
        0.5: Arbiter(0.5, seed=3),
    }
    for chance, arbiter in found.items():
        right = simulated(arbiter, 3, rows=40_000)
        assert abs(right - expected(chance)) < 0.01, (chance, right, expected(chance))


@exact
def what_is_cloned() -> None:
    """By the stage an action becomes the settled one, where it was replaced; one that was overruled is not learned."""
    keys = {"episode": range(3), "turn": [0] * 3, "agent": ["a"] * 3, "policy": ["a"] * 3, "observation": ["?"] * 3}
    turns = Turns({**keys, "action": ["good", "bad", "odd"], "logprobs": [[-1.0]] * 3, "action_ids": [[0], [1], [2]]})
    judged = pl.DataFrame({"verdict": [True, False, False], "corrected_action": [None, "good", "bad"]})
    arbiter = Verifier(is_in("action", "odd"))
    stage = corrected_actions(lambda rows: judged, arbiter)
    team = SimpleNamespace(policies={"a": SimpleNamespace(name="a")})
    found = stage(turns, dataclasses.replace(stage_context(), team=team)).frame  # type: ignore[arg-type]
    assert found["action"].to_list() == ["good", "good", "odd"]
    assert found["played"].to_list() == ["good", "bad", "odd"]
    assert found["settled"].to_list() == [True, True, False]
    assert found["overruled"].to_list() == [False, False, True]


class Distrusts:
    """A domain judge that calls wrong what it does not know, and learns from what an arbiter kept."""

    def __init__(self) -> None:
        self.known: set[str] = set()

    def __call__(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Verdicts, and always the same other action."""
        verdict = [action in self.known for action in rows["action"]]
        return pl.DataFrame({"verdict": verdict, "corrected_action": ["wrong"] * len(rows)})

    def fit(self, rows: pl.DataFrame) -> None:
        """Know these actions."""
        self.known |= set(rows["action"])


@exact
def domain_judge_learns() -> None:
    """Right actions that it flagged and the arbiter kept come to be kept by the domain judge itself."""
    keys = {"episode": range(2), "turn": [0] * 2, "agent": ["a"] * 2, "policy": ["a"] * 2, "observation": ["?"] * 2}
    turns = Turns({**keys, "action": ["good", "odd"], "logprobs": [[-1.0]] * 2, "action_ids": [[0], [1]]})
    stage = corrected_actions(Distrusts(), Verifier(is_in("action", "good")))
    team: Any = SimpleNamespace(policies={"a": SimpleNamespace(name="a")})
    kept = [stage(turns, dataclasses.replace(stage_context(), team=team))["verdict"].to_list() for _ in range(2)]
    assert kept == [[False, False], [True, False]], kept


def accuracy(learned: TrainingResult) -> dict[str, float]:
    """Before the round, and after it on held-out play."""
    played = learned.play(groups=400, group_size=2, seed=1)
    return {"before": learned.curve()[0], "right": float(played["success"].mean())}  # type: ignore[arg-type]


@reproduction(
    1,
    claim="An arbiter between the agent's action and the domain judge's correction makes final actions better than "
    "either, if it is good enough; an agent that clones them is more often right after one round.",
    baseline="every correction taken; a coin for an arbiter; the agent clones its own actions",
    criterion="final actions right .815, .795 without an arbiter, .748 with a coin, each within .005 in every seed; "
    "after one round the agent is right .1 more often, on average over the seeds, than before and than one that "
    "clones itself, and in every seed more often than one whose corrections are all taken",
    seeds=(0, 1, 2),
    slow=True,
)
def measure(seeds: Sequence[int]) -> Outcome:
    """The closed form, then one round of reflux."""
    arbiters: dict[str, tuple[float | None, Any]] = {
        "arbiter": (ARBITER, lambda seed: Arbiter(ARBITER, seed=seed)),
        "none": (None, lambda seed: Verifier("0.0")),
        "coin": (0.5, lambda seed: Arbiter(0.5, seed=seed)),
    }
    measured, holds = {}, True
    for name, (chance, make) in arbiters.items():
        found = [simulated(make(seed), seed) for seed in seeds]
        measured[f"final_{name}"] = float(np.mean(found))
        holds &= bool(np.allclose(found, expected(chance), rtol=0, atol=0.005))
    holds &= AGENT < measured["final_coin"] < measured["final_none"] < measured["final_arbiter"]
    arms = train_arms("answers", ARMS, seeds, accuracy)
    panel, unchecked = arms.values["panel"]["right"], arms.values["unchecked"]["right"]
    holds &= panel.mean() > max(arms.mean("panel", "before"), arms.mean("own", "right")) + 0.1
    holds &= bool((panel > unchecked).all())
    return Outcome(measured | arms.measured(), bool(holds))
