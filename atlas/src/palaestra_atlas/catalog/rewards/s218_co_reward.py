"""[218] Co-Reward: the majority of one view labels the other.

The world `answers` with two wordings of eight tasks; a network shares what it learns between them. It begins with
habits: each wording suggests a wrong answer of its own more often than the right one is given. Self-vote locks the
suggestion in, the other wording corrects it. Left out: language models, and how a question is rephrased.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from palaestra.agents import Team
from palaestra.agents.scripted import ScriptedPolicy
from palaestra.algebra.turns import Turns
from palaestra.envs.worlds.answers import Answers, suggestible
from palaestra.play.rollout import rollout
from palaestra.rewards import co_reward, cross_label, vote
from palaestra_atlas.reproductions import Outcome, exact, reproduction, train_arms

if TYPE_CHECKING:
    from palaestra.runs.inline import TrainingResult

SIZE: dict[str, Any] = {"tasks": 8, "answers": 5, "wordings": 2}
WORLD: dict[str, Any] = {
    "name": "wordings",
    "env": {"make": "native/answers", "options": {**SIZE, "features": True}},
    "policies": {"network": {"kind": "mlp", "options": {"hidden": []}}},
    "team": {"answerer": "network"},
    "warm_start": {"script": "palaestra.envs.worlds.answers:suggestible", "options": SIZE, "groups": 2000, "lr": 0.05},
    "learn": {"lr": 0.05},
    "train": {"iterations": 60, "groups": 16},
}
SELF = 'standardise(vote("answer", over=("task", "wording")), over=("task", "wording"), unit="episode")'
ARMS: dict[str, dict[str, Any]] = {
    "co": {"credit": 'co_reward("answer", pair="task", view="wording")'},
    "self": {"credit": SELF},
}


def views(*answers: str) -> Turns:
    """A question in two wordings, an episode for each answer; a dot is none."""
    said = [None if letter == "." else letter for view in answers for letter in view]
    view = [number for number, each in enumerate(answers) for _ in each]
    rows = len(said)
    keys = {"group": [0] * rows, "episode": range(rows), "turn": [0] * rows, "agent": ["a"] * rows}
    return Turns({**keys, "view": view, "answer": pl.Series(said, dtype=pl.String)})


def rewarded(turns: Turns) -> str:
    """Who is above the mean of the own wording, as ones and zeros."""
    return "".join(str(int(credit > 0)) for credit in np.asarray(co_reward("answer").evaluate(turns)))


@exact
def the_other_labels() -> None:
    """The card's sixteen answers: each wording is paid for what the other one's majority says."""
    turns = views("AAAABBCC", "BBBBBAAC")
    assert rewarded(turns) == "0000110000000110"
    np.testing.assert_array_equal(
        np.asarray(vote("answer", over=("group", "view")).evaluate(turns))[:8], [1] * 4 + [0] * 4
    )


@exact
def majority_labels() -> None:
    """The label is what most say, not what was said first."""
    assert rewarded(views("ABBBAAAB", "BAAAAABC")) == "1000111001111100"


@exact
def empty_answers() -> None:
    """Five empty answers and three A: the label is A; an empty answer earns nothing, whatever the votes."""
    label = cross_label("answer")
    np.testing.assert_array_equal(
        np.asarray(label.evaluate(views("AAB..", ".....AAA"))), [1, 1, 0, 0, 0] + [0] * 5 + [1] * 3
    )
    assert np.isnan(np.asarray(label.evaluate(views("..", "..")))).all()
    np.testing.assert_array_equal(np.asarray(co_reward("answer").evaluate(views("..", ".."))), 0)


@exact
def each_wording_alone() -> None:
    """Six of eight are right in one wording, one of eight in the other: the credit of each adds up to 0."""
    turns = views("AAAAAABC", "BCDEAAAF")
    credit = np.asarray(co_reward("answer").evaluate(turns)).reshape(2, 8)
    np.testing.assert_allclose(credit.sum(axis=1), 0, atol=1e-9)
    assert (credit > 0).sum(axis=1).tolist() == [6, 3]


@exact
def wordings_suggest() -> None:
    """The two wordings of a question suggest different wrong answers: their majorities differ in most questions."""
    team = Team(answerer=ScriptedPolicy(suggestible(**SIZE)))
    turns = rollout(functools.partial(Answers, **SIZE), team, groups=64, group_size=16, seed=0)
    own = np.asarray(vote("answer", over=("task", "wording")).evaluate(turns))
    other = np.asarray(cross_label("answer", pair="task", view="wording").evaluate(turns))
    assert (own != other).mean() > 0.3


def accuracy(learned: TrainingResult) -> dict[str, float]:
    """In the first three iterations and in the last ten."""
    curve = learned.curve()
    return {"start": float(np.mean(curve[:3])), "end": float(np.mean(curve[-10:]))}


@reproduction(
    218,
    claim="Labels from the other wording of a question let answers improve further than labels from the own wording.",
    baseline="majority vote within each view",
    criterion="accuracy in the end higher than with self-vote in every seed, by at least 0.1 in "
    "the mean (held on the one fresh block of two seeds tried)",
    seeds=(0, 1, 2),
    slow=True,
)
def measure(seeds: Sequence[int]) -> Outcome:
    """Both kinds of label."""
    arms = train_arms({**WORLD, "credit": SELF}, ARMS, seeds, accuracy)
    gain, error = arms.gain("co", "self", "end")
    measured = arms.measured() | {"gain": gain, "standard_error": error}
    ahead = (arms.values["co"]["end"] > arms.values["self"]["end"]).all()
    return Outcome(measured, bool(ahead and gain >= 0.1))
