"""[154] Reinforcement learning from human gain (arXiv 2401.16444): a helper is paid for what a person gains by it.

The person is scripted: it strolls at random between its two goals. Left out: people, and what they prefer.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from palaestra.agents import Team
from palaestra.agents.scripted import random_legal
from palaestra.algebra.turns import Turns
from palaestra.credit import assistance
from palaestra.envs.worlds import Assistance
from palaestra.learning.stages.human_gain import human_gain, positive_gain_loss, residual_gain
from palaestra.learning.stages.stage import Context
from palaestra.play.rollout import rollout
from palaestra_atlas.reproductions import Outcome, exact, reproduction, train_arms

if TYPE_CHECKING:
    from palaestra.runs.inline import TrainingResult

TASK = "assistance(alpha=0, gain=0.0)"
"""Credit of the helper's own task alone."""


def plain() -> dict[str, Any]:
    """The recipe of a helper that learns its task first, and then from the person's gain too."""
    return {
        "name": "assist",
        "env": {"make": "native/assistance"},
        "policies": {"helper": {"kind": "tabular", "options": {"capacity": 512}}, "stroller": {"kind": "random"}},
        "team": {"helper": "helper", "person": "stroller"},
        "stages": ["human_gain('person', ['picked', 'passed'])"],
        "credit": "assistance()",
        "learn": {"lr": 0.2},
        "phases": [{"name": "task", "until": 20, "stages": [], "credit": TASK}, {"name": "together"}],
        "train": {"iterations": 100, "groups": 128, "group_size": 1, "evaluate_every": 100, "checkpoint_every": 100,
                  "save_turns": "last"},
        "evaluation": {"tasks": 400, "trials": 1, "look_tasks": 20, "look_trials": 1},
    }  # fmt: skip


def recipe(seed: int, folder: Path) -> None:
    """Writes the recipe, `assist.yaml`."""
    (folder / "assist.yaml").write_text(json.dumps(plain()))


def told(iteration: int = 0) -> Context:
    """A context that nothing is asked of."""
    return Context(np.random.default_rng(0), iteration, None, None, None)  # type: ignore[arg-type]


def reached(*goals: tuple[float, float]) -> Turns:
    """An episode of one turn for each pair of what a person got of two goals, and one without a person."""
    rows = [
        {"episode": number, "turn": 0, "agent": agent, "state": 1, "one": one, "two": two}
        for number, pair in enumerate(goals)
        for agent, one, two in (("helper", None, None), ("person", *pair))
    ]
    alone = {"episode": len(goals), "turn": 0, "agent": "helper", "state": 2, "one": None, "two": None}
    return Turns(pl.DataFrame([*rows, alone], schema_overrides={"one": pl.Float64, "two": pl.Float64}))


def gains(stage: human_gain, turns: Turns) -> list[float | None]:
    """Gains that the stage writes on each row, in thousandths."""
    found = np.asarray(stage(turns, told())["gain"].to_numpy(), float)
    return [None if np.isnan(value) else round(float(value), 3) + 0.0 for value in found]


@exact
def worked_gain() -> None:
    """Returns (3, 1) over (2, 1.5) are gains (1, -.5); with (.4, .2) expected A_h = -.1, the loss .18 and A = .3."""
    gain, expected = residual_gain(np.array([3.0, 1.0]), np.array([2.0, 1.5])), np.array([0.4, 0.2])
    assert gain.tolist() == [1.0, -0.5]
    assert residual_gain(np.array([3.0, 1.0]), np.array([2.0, 1.5]), positive=True).tolist() == [1.0, 0.0]
    human = float((gain - expected).sum())
    assert abs(human + 0.1) < 1e-12
    assert abs(positive_gain_loss(gain, expected).item() - 0.18) < 1e-12
    turns = Turns({"own": [0.5, 0.5], "gain": [human, None]})
    np.testing.assert_allclose(np.asarray(assistance("own").evaluate(turns), float), [0.3, 0.5])


@exact
def fitted_before_then_frozen() -> None:
    """V is (2, 1.5), the means of the first iteration; what comes later does not move it. A_h of (3, 1) is then .5."""
    stage = human_gain("person", ["one", "two"], fits=1)
    assert gains(stage, reached((1, 1), (3, 2))) == [None] * 5
    assert gains(stage, reached((3, 1))) == [0.5, 0.5, None]
    for _ in range(3):
        found = stage(reached((9, 9)), told())
    assert found["unaided"].to_list()[:2] == [3.5, 3.5]


@exact
def a_loss_is_not_expected() -> None:
    """Gains (1, -.5) and (0, .1): Ĝ becomes (1, .1), and the next (1, -.5) is worth 1 - 1 - .5 - .1 = -.6."""
    stage = human_gain("person", ["one", "two"], fits=1, rate=0.0)
    stage(reached((2, 1.5)), told())
    assert gains(stage, reached((3, 1), (2, 1.6)))[1] == 0.5
    assert gains(stage, reached((3, 1)))[1] == -0.6


@exact
def both_modes_are_played() -> None:
    """Half of the episodes have a person; in the others nothing is gained, and the advantage is the task's."""
    anything = random_legal()
    scripts = Team({"helper": anything, "person": anything})
    turns = rollout(Assistance, scripts, groups=400, seed=0)
    alone = (turns["present"] == 0).to_numpy()
    assert 0.4 < turns.frame.group_by("group").agg(pl.col("present").first())["present"].mean() < 0.6  # type: ignore[operator]
    stage = human_gain("person", ["picked", "passed"], fits=1)
    stage(turns, told())
    found = stage(turns, told())
    assert np.isnan(found["gain"].to_numpy()[alone]).all()
    assert not np.isnan(found["gain"].to_numpy()[~alone]).any()
    difference = np.asarray((assistance() - assistance(gain=0.0)).evaluate(found), float)
    assert not difference[alone].any()
    assert difference[~alone].any()


@exact
def the_person_is_seen() -> None:
    """The helper's observation tells a person who wants red from one who wants blue, and both from nobody."""
    world, seen = Assistance(), {}
    for seed in range(30):
        first = world.reset(seed)["helper"].text
        seen[world.state.wants] = first
    assert len(set(seen.values())) == 3
    hidden = Assistance(shown=False)
    assert len({hidden.reset(seed)["helper"].text for seed in range(30)}) == 1


@exact
def gates() -> None:
    """A person passes an open gate surely, a closed one with the chance `alone`; opening it costs .05."""
    for alone, passed in ((0.0, 0.0), (1.0, 1.0)):
        world = Assistance(human=1.0, alone=alone)
        world.reset(0)
        assert world.step({"helper": "wait", "person": "go"}).info["passed"]["person"] == passed
    world = Assistance(human=1.0, alone=0.0)
    world.reset(0)
    opened = world.step({"helper": f"open {('red', 'blue')[world.state.wants]}", "person": "go"})
    assert opened.rewards["helper"] == -0.05
    assert (opened.info["opened"], opened.info["passed"]["person"]) == (1.0, 0.0)
    assert world.step({"helper": "work", "person": "go"}).info["passed"]["person"] == 1.0


@reproduction(
    154,
    claim="A helper that is paid for a person's gain lets it reach more of its goals, and still does its own work.",
    baseline="the same recipe with the task's advantage alone, and with the person's raw return instead of its gain",
    criterion="goals reached at least .2 above the task alone, work done within .05 of it",
    seeds=(40, 41),
    slow=True,
)
def experiment(seeds: Sequence[int]) -> Outcome:
    """Share of the person's goals, share of episodes whose work is done, in the last 5 iterations."""
    raw = "total(return_to_go(col('picked') + col('passed'), over=('episode', 'agent')), over=('episode', 'turn'))"
    arms = {
        "gain": {},
        "task": {"credit": "assistance(alpha=0)"},
        "raw": {"credit": f"assistance(gain={raw})"},
    }
    done: dict[str, list[float]] = {arm: [] for arm in arms}

    def watch(arm: str, iteration: int, turns: Turns) -> None:
        done[arm].append(float(turns["person_done"].mean()))  # type: ignore[arg-type]

    def work(result: TrainingResult) -> dict[str, float]:
        return {"work": float(np.mean(result.curve("success")[-5:]))}

    found = train_arms(plain(), arms, seeds, work, on_turns=watch)
    goals = {arm: float(np.mean(np.reshape(done[arm], (len(seeds), -1))[:, -5:])) for arm in arms}
    measured = {f"goals_{arm}": value for arm, value in goals.items()} | found.measured()
    fine = measured["work_gain"] >= measured["work_task"] - 0.05
    return Outcome(measured, fine and goals["gain"] >= goals["task"] + 0.2)
