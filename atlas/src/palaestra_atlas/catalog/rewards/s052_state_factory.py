"""[52] StateFactory (arXiv 2603.09400): progress from objects and attributes instead of from one text.

Walks towards a goal in a world of three objects with two attributes each, described piece by piece and as flat text;
which of the two follows the true progress? The distance is √((1 - ρ)/2), ρ Pearson's correlation over a task's expert
and random walks together. Also the four states of the card. In training the score pays for progress turn by turn; the
rival is paid by the cosine of the same sentences as one text. Left out: extraction by a language model, text embedders.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from palaestra.agents import ScriptedPolicy
from palaestra.algebra.turns import Turns
from palaestra.envs.worlds import Kitchen
from palaestra.envs.worlds.kitchen import reader
from palaestra.learning.stages.shaping import scene
from palaestra.learning.stages.stage import Context
from palaestra.rewards import goal_score, shape
from palaestra.rewards.shaping.goals import State, goal_match, word_cosine
from palaestra_atlas.reproductions import Outcome, exact, reproduction, train_arms

if TYPE_CHECKING:
    from palaestra.runs.inline import TrainingResult

PLACES = ("on the table", "in the hand", "in the fridge", "in the sink", "on the shelf")
LOOKS = ("cold", "warm", "clean", "dirty")
THINGS, TASKS, STEPS = ("mug", "plate", "knife"), 40, 8
GOAL: State = [("mug", {"location": "in the fridge", "temperature": "cold"})]
STAGES = (("on the table", "warm"), ("in the hand", "warm"), ("in the fridge", "warm"), ("in the fridge", "cold"))


def flat(state: State) -> str:
    """The same in one text."""
    return " ".join(f"{name} " + " ".join(f"{key} {value}" for key, value in given.items()) for name, given in state)


def distance(scores: Sequence[float] | np.ndarray, truth: Sequence[float] | np.ndarray) -> float:
    """√((1 - ρ)/2); a series without variance has ρ = 0."""
    constant = np.ptp(scores) == 0 or np.ptp(truth) == 0
    rho = 0.0 if constant else float(np.corrcoef(scores, truth)[0, 1])
    return float(np.sqrt(max(1 - rho, 0) / 2))


def card() -> tuple[float, float]:
    """Distances of the worked example: factorised, flat."""
    states: list[State] = [[("mug", {"location": place, "temperature": look})] for place, look in STAGES]
    states[3] = [*states[3], ("plate", {"location": "on the table"})]
    truth = np.linspace(0, 1, len(states))
    factorised = [goal_match(state, GOAL) for state in states]
    return distance(factorised, truth), distance([word_cosine(flat(state), flat(GOAL)) for state in states], truth)


def told(*states: State) -> list[str]:
    """States as the JSON that a world tells."""
    return [json.dumps([{"description": name, "attributes": given} for name, given in state]) for state in states]


@exact
def factorised() -> None:
    """The card's scores of four states, from columns; an added plate leaves the last at 1."""
    states: list[State] = [[("mug", {"location": place, "temperature": look})] for place, look in STAGES]
    states[3] = [*states[3], ("plate", {"location": "on the table"})]
    turns = Turns({"episode": [0] * 4, "turn": range(4), "objects": told(*states), "wanted": told(GOAL) * 4})
    scores = np.asarray(goal_score("objects", "wanted").evaluate(turns))
    np.testing.assert_allclose(scores, [0.16, 0.33, 0.5, 1.0], atol=1e-9)
    ours, theirs = card()
    assert abs(ours - 0.1454) < 5e-5, ours
    assert abs(theirs - 0.1780) < 5e-5, theirs


@exact
def description_counts() -> None:
    """A cold plate in the fridge and a warm mug on the table are not a cold mug in the fridge."""
    state: State = [
        ("plate", {"location": "in the fridge", "temperature": "cold"}),
        ("mug", {"location": "on the table", "temperature": "warm"}),
    ]
    assert goal_match(state, GOAL) < 0.5, goal_match(state, GOAL)


@exact
def goals_are_averaged() -> None:
    """Of two things that are wanted one is there: half."""
    state: State = [("mug", {"location": "in the fridge", "temperature": "cold"})]
    assert goal_match(state, [*GOAL, ("plate", {"location": "on the table"})]) == 0.5


@exact
def goal_is_read_anew() -> None:
    """A goal that is revised in the middle of an episode is what the later steps are compared with."""
    state: State = [("mug", {"location": "in the fridge", "temperature": "cold"})]
    other: State = [("mug", {"location": "on the shelf", "temperature": "warm"})]
    turns = Turns({"episode": [0] * 2, "turn": [0, 1], "objects": told(state) * 2, "wanted": told(GOAL, other)})
    scores = np.asarray(goal_score("objects", "wanted").evaluate(turns))
    assert scores[0] == 1.0 > scores[1], scores


@exact
def extracted() -> None:
    """From the kitchen's sentences alone a reader's objects give the score that the world's own objects give."""
    env = Kitchen()
    texts, own, wanted = [env.reset(0)["cook"].text], [], []
    for choice in (1, 4, 2):
        step = env.step({"cook": choice})
        own.append(step.info["objects"])
        wanted.append(step.info["wanted"])
        texts.append(step.observations["cook"].text)
    turns = Turns({"episode": [0] * 3, "turn": range(3), "observation": texts[:3], "objects": own, "wanted": wanted})
    here = Context(np.random.default_rng(0), 1, None, None, None)  # type: ignore[arg-type]
    found = scene(policy=ScriptedPolicy(reader()))(turns, here)
    scores = [
        np.asarray(goal_score(*names).evaluate(found)) for names in (("scene", "scene.wanted"), ("objects", "wanted"))
    ]
    np.testing.assert_allclose(scores[0], scores[1])
    whole = scene(policy=ScriptedPolicy(reader(whole=True)))(turns, here)
    pairs = [text.replace(",", "").split("; wanted: ") for text in texts[:3]]
    similar = np.asarray(goal_score("scene", "scene.wanted").evaluate(whole))
    np.testing.assert_allclose(similar, [word_cosine(*pair) for pair in pairs], atol=0.01)
    found = found.with_column(agent=["cook"] * 3, truncated=[False] * 3)
    progress = np.asarray(shape(goal_score("scene", "scene.wanted"), gamma=1.0).evaluate(found))
    np.testing.assert_allclose(progress.sum(), -scores[0][0])


def walk(rng: np.random.Generator) -> tuple[float, float]:
    """Distances on one task: an expert that sets goal attributes one by one, and a walk that sets random ones."""

    def draw() -> dict[str, str]:
        return {"location": str(rng.choice(PLACES)), "condition": str(rng.choice(LOOKS))}

    start, goal = {name: draw() for name in THINGS}, {name: draw() for name in THINGS[: rng.integers(1, 4)]}
    wanted = [(name, key) for name, given in goal.items() for key in given]
    factorised, whole, truth = [], [], []
    for expert in (True, False):
        state = {name: dict(given) for name, given in start.items()}
        for step in range(STEPS):
            if step and expert:
                name, key = wanted[(step - 1) % len(wanted)]
                state[name][key] = goal[name][key]
            elif step:
                state[str(rng.choice(THINGS))] |= draw()
            objects, target = list(state.items()), list(goal.items())
            factorised.append(goal_match(objects, target))
            whole.append(word_cosine(flat(objects), flat(target)))
            truth.append(float(np.mean([state[name][key] == goal[name][key] for name, key in wanted])))
    return distance(factorised, truth), distance(whole, truth)


READER = "palaestra.envs.worlds.kitchen:reader"


def reading(*, whole: bool) -> dict[str, Any]:
    """Policy that restates what is seen as objects, or as one text."""
    return {"kind": "script", "options": {"script": READER, "whole": whole}}


PAID = {
    "stages": ["scene()"],
    "reward": "'reward' + shape(goal_score('scene', 'scene.wanted'))",
    "credit": "centre(return_to_go(gamma=0.5), over=('group', 'turn'))",
}
ARMS: dict[str, dict[str, Any]] = {
    "sparse": {"train": {"iterations": 40}},
    "flat": {"train": {"iterations": 40}, "policies": {"reader": reading(whole=True)}, **PAID},
    "objects": {"train": {"iterations": 40}, "policies": {"reader": reading(whole=False)}, **PAID},
}


def success(learned: TrainingResult) -> dict[str, float]:
    """Mean over all of training."""
    return {"success": float(np.nanmean(learned.curve()))}


@reproduction(
    52,
    claim="Similarity to the goal by objects and attributes follows progress more closely than similarity of texts.",
    baseline="the cosine of the flat texts; in training also the sparse reward",
    criterion="card: distances 0.1454 and 0.1780 to 1e-4; random tasks: a smaller mean distance, each seed; "
    "as a reward for progress in the recipe `kitchen`, mean success over training higher than with the flat texts' "
    "cosine and than with the sparse reward, by two standard errors",
    seeds=tuple(range(2000, 2005)),
    slow=True,
)
def measure(seeds: Sequence[int]) -> Outcome:
    """The card's states, random tasks, training."""
    ours, theirs = card()
    found = np.array([[walk(rng) for _ in range(TASKS)] for rng in map(np.random.default_rng, seeds)]).mean(axis=1)
    measured = {"card_factorised": ours, "card_flat": theirs}
    measured |= {"tasks_factorised": float(found[:, 0].mean()), "tasks_flat": float(found[:, 1].mean())}
    exact = abs(ours - 0.1454) < 1e-4 and abs(theirs - 0.1780) < 1e-4
    arms = train_arms("kitchen", ARMS, seeds, success)
    learned = True
    for name in ("flat", "sparse"):
        gain, error = arms.gain("objects", name, "success")
        measured |= {f"gain_over_{name}": gain, f"gain_over_{name}_error": error}
        learned &= gain > 2 * error
    measured |= arms.measured()
    return Outcome(measured, bool(exact and (found[:, 0] < found[:, 1]).all() and learned))
