"""[3] ARCANE (arXiv 2512.06196): a rubric that is learned by what its choice is worth, and re-weighted without a judge.

The recipe `stakeholder`: outputs are twelve qualities in [0, 1], the stakeholder cares for four of them. A manager
chooses six to ask about, the best of eight outputs by the resulting rubric is handed in, and its true utility is the
reward; eight rubrics per task are compared with each other (GRPO; on-policy, so that the sequence ratio is 1). Left
out: language models, SFT, replay.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from palaestra.agents import ScriptedPolicy
from palaestra.algebra.turns import Turns
from palaestra.credit import ndcg
from palaestra.judges import Item, judge
from palaestra.rewards.judged.criteria import best_of, onto, utility
from palaestra_atlas.reproductions import Outcome, reproduction, train_arms

if TYPE_CHECKING:
    from palaestra.runs.inline import TrainingResult

ARMS = {"random": {"train": {"iterations": 0}}, "learned": {"train": {"iterations": 60}}}
TESTS = 300


def worked_error() -> float:
    """Of the card's NDCG, .9570."""
    scores = {"rubric": [0.8, 0.85, 0.4, 0.3, 0.0], "worth": [0.9, 0.7, 0.5, 0.2, 0.1]}
    turns = Turns({"group": [0] * 5, "episode": range(5), "turn": [0] * 5} | scores)
    return float(np.abs(np.asarray(ndcg("rubric", "worth").evaluate(turns)) - 0.9570).max())


def handed_in(learned: TrainingResult) -> dict[str, float]:
    """True utility of the best of eight by the chosen rubric, and NDCG of its order, on held-out outputs."""
    ends = learned.play(groups=TESTS).frame.filter(pl.col("ndcg").is_not_null())
    return {"utility": float(ends["reward"].mean() or 0.0), "ndcg": float(ends["ndcg"].mean() or 0.0)}  # type: ignore[arg-type]


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
    baseline="the manager before training, which asks at random",
    criterion="NDCG of the card to 1e-4; best-of-8 true utility at least 0.05 above the random rubric's and a higher "
    "NDCG in every seed; weights change the choice with the same 4 judge calls",
    seeds=(0, 1, 2),
    slow=True,
)
def measure(seeds: Sequence[int]) -> Outcome:
    """NDCG, the learned rubric, re-weighting."""
    arms = train_arms("stakeholder", ARMS, seeds, handed_in)
    learned, random = arms.values["learned"], arms.values["random"]
    calls, changed = reweighted_calls()
    measured = {"worked_error": worked_error(), "judge_calls": float(calls), **arms.measured()}
    good = (learned["utility"] - random["utility"]).min() >= 0.05 and (learned["ndcg"] > random["ndcg"]).all()
    return Outcome(measured, bool(good and changed and calls == 4 and measured["worked_error"] < 1e-4))
