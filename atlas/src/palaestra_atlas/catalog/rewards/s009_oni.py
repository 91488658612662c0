"""[9] ONI (arXiv 2410.23022): a bonus for a helpful message must fade fast, or it is farmed.

The recipe `maze` on a line of nine cells, the goal at its end; at one cell a message that is helpful and can be had
again and again. Labels come from an annotator that the stage `message_labels` asks about the newest messages between
iterations; the bonus is 0.4 · label / N^β. A policy gradient with a group's mean as the baseline does not farm the
harmonic sum of β = 1, as an optimistic Q-learner does: its whole sum, 1.4, is less than the goal. Left out: NetHack,
and the classifier's network: words are counted instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from palaestra.agents import ScriptedPolicy
from palaestra.algebra.turns import Turns
from palaestra.judges import MessageLabels
from palaestra.judges.scripted import mentions
from palaestra.rewards import count_bonus
from palaestra.rewards.novelty import oni_reward
from palaestra_atlas.reproductions import Outcome, exact, reproduction, train_arms

if TYPE_CHECKING:
    from palaestra.runs.inline import TrainingResult

BETAS, WORKED = (0.0, 1.0, 3.0), {3.0: (0.4, 0.05, 0.01481, 0.0032), 1.0: (0.4, 0.2, 0.1333, 0.08)}
ANNOTATOR = {"kind": "script", "options": {"script": "palaestra.judges.scripted:mentions", "words": ["useful"]}}
SETTINGS = {
    "env": {"options": {"map": "message", "horizon": 40, "pays": 3.0}},
    "policies": {"annotator": ANNOTATOR},
    "stages": ["message_labels('reach the goal')"],
    "credit": "centre(return_to_go(), over=('group', 'turn'))",
    "train": {"iterations": 40},
}


@exact
def bonuses() -> None:
    """The card's bonuses for the 1st, 2nd, 3rd and 5th time, with the default exponent and with others."""
    turns = Turns({"episode": [0] * 5, "turn": range(5), "m": ["x"] * 5, "label": [1] * 5, "reward": [0] * 5})
    paid = np.asarray(oni_reward("label", "m").evaluate(turns))[[0, 1, 2, 4]]
    np.testing.assert_allclose(paid, WORKED[3.0], atol=5e-5)
    assert worked_error() < 5e-5
    np.testing.assert_allclose(0.4 * np.asarray(count_bonus("m", method="inv_pow", beta=3).evaluate(turns))[1], 0.05)


@exact
def external() -> None:
    """A turn that reaches the goal with an unhelpful message earns the world's reward, weighted; a helpful one more."""
    turns = Turns({"episode": [0, 1], "turn": [0, 0], "m": ["x", "y"], "label": [0.0, 1.0], "reward": [1.0, 1.0]})
    np.testing.assert_allclose(np.asarray(oni_reward("label", "m", c_ext=10).evaluate(turns)), [10.0, 10.4])


def annotator() -> ScriptedPolicy:
    """Somebody who finds keys helpful."""
    return ScriptedPolicy(mentions(["key"]))


@exact
def grown_online() -> None:
    """An unseen message has no label; from the next answer on it has one, in later iterations too; the newest first."""
    labels = MessageLabels("find the key", batch=1)
    assert labels.get(["a wall", "a key"]) == [None, None]
    assert labels.work(annotator()) == 1
    assert labels.get(["a wall", "a key"]) == [None, 1.0], "the newest message was not asked about first"
    assert labels.work(annotator()) == 1
    assert labels.get(["a wall", "a key", "another key"]) == [0.0, 1.0, None]
    assert labels.work(annotator()) == 1, "what is met later is not asked about"
    assert labels.get(["another key"]) == [1.0]


@exact
def paraphrases() -> None:
    """A message that nobody was asked about gets the label of those that use its words."""
    labels = MessageLabels("find the key", distilled=True)
    labels.get(["a small key lies here", "a wall", "a rock lies here"])
    labels.work(annotator())
    assert labels.get(["here is a key", "a grey wall"]) == [1.0, 0.0]


def worked_error() -> float:
    """Deviation from the card's bonuses for the 1st, 2nd, 3rd and 5th time."""
    turns = Turns({"episode": [0] * 5, "turn": range(5), "m": ["x"] * 5, "label": [1] * 5, "reward": [0] * 5})
    found = {beta: np.asarray(oni_reward("label", "m", beta=beta).evaluate(turns))[[0, 1, 2, 4]] for beta in WORKED}
    return max(float(np.abs(found[beta] - WORKED[beta]).max()) for beta in WORKED)


def success(learned: TrainingResult) -> dict[str, float]:
    """Share of the last episodes that reach the goal."""
    return {"success": float(np.mean(learned.curve()[-10:]))}


@reproduction(
    9,
    claim="A message bonus divided by the cube of its count is not worth farming; a constant one is.",
    baseline="the same bonus undivided (β = 0)",
    criterion="worked bonuses to 1e-4; success of the last iterations at least 0.9 with β = 3 and at most 0.1 with "
    "β = 0, in every seed (β = 1 is reported)",
    seeds=(0, 1, 2),
    slow=True,
)
def measure(seeds: Sequence[int]) -> Outcome:
    """Worked bonuses, then the corridor."""
    rewards = {f"beta_{beta:g}": f"oni_reward('label', 'message', c_ext=1.0, beta={beta})" for beta in BETAS}
    arms = train_arms("maze", {name: SETTINGS | {"reward": text} for name, text in rewards.items()}, seeds, success)
    measured = {"worked_error": worked_error(), **arms.measured()}
    farmed, cured = (arms.values[name]["success"] for name in ("beta_0", "beta_3"))
    good = cured.min() >= 0.9 and farmed.max() <= 0.1
    return Outcome(measured, bool(good and measured["worked_error"] < 1e-4))
