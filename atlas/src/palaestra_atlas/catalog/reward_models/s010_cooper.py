"""[10] Cooper (arXiv 2508.05613): a reward model is hacked by the policy that it pays, unless it is refitted beside it.

A language model of 20 thousand parameters answers nine sums, by the recipe `cooper`. The model of the start is
fitted to worked solutions against bare wrong answers and so overpays whoever recites all digits. Left out: a verifier
that is a language model, and negatives written by one; copies are corrupted, and the env finds that they are wrong.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from palaestra.algebra.turns import Turns
from palaestra.envs.worlds.exam import WORDS, Exam
from palaestra.judges import verified_vs_corrupted
from palaestra.learning.stages.alternate import alternate
from palaestra.runs.inline import TrainingResult
from palaestra_atlas.catalog.reward_models.made import stage_context
from palaestra_atlas.reproductions import Outcome, exact, reproduction, train_arms

START = 'online_linear("palaestra.judges.answer_features:overlap", weights=[2.0, 0.67, 1.38], bias=-2.55)'
KINDS = ["truncate", "splice", "extend", "mutate"]
PAIRS = 'verified_vs_corrupted("rule")'
REFITTED = f"alternate({PAIRS!r}, reference='reference', model={START!r}, corrupted={KINDS}, after=True)"
SAMPLES: dict[str, Any] = {"learn": {"lr": 0.002}, "train": {"groups": 8, "group_size": 16}}
"""As many samples of a prompt as in the paper: with half of them whole groups settle on one wrong answer."""
ARMS: dict[str, Any] = {
    "cooper": {"stages": [REFITTED]} | SAMPLES,
    "frozen": {"stages": [f"alternate(every=0, reference='reference', model={START!r})"]} | SAMPLES,
    "rule": {"reward": 'col("rule")'} | SAMPLES,
}


OPTIONS: dict[str, Any] = {"pairs": PAIRS, "reference": "reference", "model": START, "corrupted": KINDS}


def last(learned: TrainingResult) -> dict[str, float]:
    """Means over the last ten iterations."""
    return {"paid": float(np.mean(learned.curve("reward")[-10:])), "true": float(np.mean(learned.curve()[-10:]))}


def said(*answers: str, group: int = 0) -> dict[str, list[Any]]:
    """Answers to the sum of the exam's seed 0."""
    exam = Exam(largest=2, free=True)
    question = exam.reset(0)["pupil"].text
    total = sum(int(word) for word in question.split() if word.isdigit())
    words = [each.format(total=total, word=WORDS[total], wrong=total + 1) for each in answers]
    size = len(words)
    right = [each in (str(total), WORDS[total]) for each in words]
    return {
        "group": [group] * size, "episode": list(range(100 * group, 100 * group + size)), "turn": [0] * size,
        "agent": ["pupil"] * size, "seed": [0] * size, "observation": [question] * size, "action": words,
        "reference": [str(total)] * size, "rule": [each == str(total) for each in words], "success": right,
    }  # fmt: skip


@exact
def pairs_of_a_group() -> None:
    """The first verified answer stands against the first corrupted one; what the rule misses is on no side."""
    rows: dict[str, Any] = {"group": [0] * 5 + [1] * 2 + [2] * 2, "episode": range(9)}
    rows |= {"rule": [False, True, True, False, False, False, False, True, True]}
    rows |= {"corrupted": [None, None, None, "splice", "mutate", None, "extend", None, None]}
    found = verified_vs_corrupted("rule")(Turns(rows))
    assert found.select("chosen", "rejected").rows() == [(1, 3)]


@exact
def refitted_after() -> None:
    """A batch is paid by the model as it was, which then learns that reciting all digits is no answer."""
    stage = alternate(**OPTIONS, after=True)
    turns = Turns(said("{total}", "{word}", "{wrong}", "0 1 2 3 4", "{total}"))
    before = np.array(stage.model.weights)  # type: ignore[attr-defined]
    paid = []
    for iteration in (1, 2, 3, 4):
        context = stage_context(iteration, env=lambda: Exam(largest=2, free=True))
        paid.append(np.asarray(stage(turns, context)["model_reward"]))
        assert context.metrics.get("pairs", 0.0) >= 1, context.metrics
    np.testing.assert_allclose(paid[0], frozen(turns), atol=1e-12)
    after = np.array(stage.model.weights)  # type: ignore[attr-defined]
    assert after[2] < before[2] - 0.05, (before, after)


@exact
def pays_by_the_reference() -> None:
    """The fitted model reads the reference: right answers are paid more than wrong ones, in words too, rule or not."""
    turns = Turns(said("{total}", "{word}", "{wrong}"))
    right, word, wrong = frozen(turns)
    assert right > wrong + 0.2, (right, wrong)
    assert 0 < wrong < right < 1, "the model's probability, not its score"
    assert word > wrong + 0.2, (word, wrong)


@exact
def nothing_verified() -> None:
    """Without a verified answer there is no pair, and the weights stay what they were."""
    stage = alternate(**OPTIONS)
    before = np.array(stage.model.weights)  # type: ignore[attr-defined]
    context = stage_context(env=lambda: Exam(largest=2, free=True))
    stage(Turns(said("{word}", "{wrong}", "0 1 2 3 4")), context)
    np.testing.assert_array_equal(before, np.array(stage.model.weights))  # type: ignore[attr-defined]
    rows = {"group": [0, 0], "episode": [0, 1], "rule": [False, False], "corrupted": [None, "splice"]}
    assert verified_vs_corrupted("rule")(Turns(rows)).height == 0


@exact
def a_copy_that_is_right_is_no_negative() -> None:
    """Corrupted copies that the env or the rule finds right are no negatives: the verified answer then has no pair."""
    for name in ("success", "rule"):

        class Lenient(Exam):
            """Whatever is said is right."""

            def step(self, actions: Any) -> Any:
                told = super().step(actions)
                return replace(told, info={**told.info, "success": False, "rule": False, name: True})  # noqa: B023

        context = stage_context(env=lambda: Lenient(largest=2, free=True))
        alternate(**OPTIONS)(Turns(said("{total}", "{wrong}")), context)
        assert context.metrics["pairs"] == 0, name


def frozen(turns: Turns) -> np.ndarray:
    """What the model of the start pays."""
    stage = alternate(every=0, reference="reference", model=START)
    return np.asarray(stage(turns, stage_context())["model_reward"])


@reproduction(
    10,
    claim="Trained against a frozen reward model, a policy earns nearly all that it pays and is right nearly never; if "
    "the model is refitted each iteration on verified answers against corrupted ones, both rise together.",
    baseline="the same reward model, frozen; and the rule alone as reward",
    criterion="of every seed, mean of the last ten iterations: frozen is paid > .8 at a true accuracy < .1; co-trained "
    "is right > .75, and not .1 less often than with the rule on average",
    seeds=(0, 1),
    slow=True,
)
def measure(seeds: Sequence[int]) -> Outcome:
    """Three arms."""
    arms = train_arms("cooper", ARMS, seeds, last)
    paid, true = ({arm: found[name] for arm, found in arms.values.items()} for name in ("paid", "true"))
    hacked = (paid["frozen"] > 0.8).all() and (true["frozen"] < 0.1).all()
    cured = (true["cooper"] > 0.75).all() and true["cooper"].mean() > true["rule"].mean() - 0.1
    return Outcome(arms.measured(), bool(hacked and cured))
