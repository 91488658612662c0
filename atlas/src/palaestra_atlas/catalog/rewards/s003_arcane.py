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
from palaestra.envs.worlds import Stakeholder
from palaestra.judges import Item, judge
from palaestra.learning.terms import MicroBatch, gspo
from palaestra.rewards.judged.criteria import Criteria, best_of, onto, utility
from palaestra_atlas.reproductions import Outcome, exact, reproduction, train_arms

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


@exact
def weighted() -> None:
    """Verdicts (1, 0) and (0, 1) with weights .8 and .2 are worth .8 and .2; the card's NDCG."""
    table = pl.DataFrame({"episode": [0, 0, 1, 1], "criterion": ["a", "b"] * 2, "value": [1.0, 0.0, 0.0, 1.0]})
    np.testing.assert_allclose(utility(Criteria(table), {"a": 0.8, "b": 0.2})["utility"].to_list(), [0.8, 0.2])
    assert worked_error() < 5e-5


@exact
def other_weights() -> None:
    """Other weights choose another output, with the verdicts that are there."""
    calls, changed = reweighted_calls()
    assert calls == 4, f"{calls} calls"
    assert changed, "other weights choose the same output"


@exact
def manager_learns() -> None:
    """Compared with each other by what their choice is worth, rubrics come to ask about what the stakeholder wants."""
    from palaestra.runs.inline import learn

    asked = []
    for iterations in (0, 15):
        learned = learn("stakeholder", {"train": {"iterations": iterations}, "learn": {"lr": 0.5}})
        turns = learned.play(groups=20).frame
        asked.append(float(turns["action"].cast(pl.String).str.contains(r"quality [0-3]$").to_numpy().mean()))
    assert asked[1] > asked[0] + 0.1, f"{asked[0]:.2f} of the questions are useful, then {asked[1]:.2f}"


@exact
def questions_cost() -> None:
    """A question costs what it costs, and the manager may stop."""
    for price, expected in ((0.0, 0.0), (0.1, 0.2)):
        env = Stakeholder(price=price)
        env.reset(0)
        for choice in ("ask about quality 0", "ask about quality 1"):
            env.step({"manager": choice})
        rubric = env.state.outputs[:, :2] @ env.weights[:2]
        true = float((env.state.outputs @ env.weights)[rubric.argmax()])
        ended = env.step({"manager": "hand in"})
        assert ended.terminated
        paid = ended.rewards["manager"]
        assert paid is not None
        np.testing.assert_allclose(paid, true - expected)
        assert ended.info["questions"] == 2


@exact
def ratio_of_the_rubric() -> None:
    """GSPO: rubrics of two and six choices have a ratio each, the root of their product, and are cut as a whole."""
    import torch

    mask = torch.arange(6) < torch.tensor([[2], [6]])
    change = torch.tensor([[0.4, -0.4, 0, 0, 0, 0], [0.1] * 6]) * mask
    old = torch.full((2, 6), -1.0)
    piece = MicroBatch.of(old + change, old=old, mask=mask, advantage=torch.ones(2, 6))
    loss = float(gspo(clip=0.05)(piece).detach())
    np.testing.assert_allclose(loss, -(1.0 + 1.05) / 2, rtol=1e-6)


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
