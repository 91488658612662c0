"""[73] DigiRL (arXiv 2406.11896): critics of the task and of the step say which episodes, and which steps, are cloned.

Tasks that share their screens instead of phones: easy ones forgive wrong taps, so that their successes say little.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from palaestra.agents import Team, random_legal
from palaestra.algebra.turns import Turns
from palaestra.credit import digirl, step_filter
from palaestra.envs.worlds import Taps
from palaestra.learning.stages import Context
from palaestra.learning.stages.outcome_critics import outcome_critics
from palaestra.play.rollout import rollout
from palaestra.runs.inline import learn
from palaestra_atlas.reproductions import exact

OUTCOME = 'weights(\'where(keep(episode_return(), quantile=0.9, unit=("episode", "agent")), 1.0, 0.0)\')'
CRITICS = "outcome_critics('reward', memory=4000)"
OFFLINE = ["fixed_data(4)", CRITICS, OUTCOME]
ONLINE = ["accumulate(3)", CRITICS, "weights('digirl()')"]
WORLD = {"longest": 6, "buttons": 6, "spare": 4, "luck": 1.0, "equal": True}


def recipe(seed: int, folder: Path) -> None:
    """Writes the recipe of a table that learns screens, `digirl.yaml`, and `cloning.yaml`, which goes on by outcome."""
    (folder / "digirl.yaml").write_text(json.dumps(made()))
    (folder / "cloning.yaml").write_text(json.dumps(made() | {"stages": [*ONLINE[:2], OUTCOME]}))


def made() -> dict[str, Any]:
    """The recipe."""
    return {
        "name": "digirl",
        "env": {"make": "native/taps", "options": WORLD},
        "policies": {"net": {"kind": "mlp", "options": {"hidden": []}}},
        "team": {"user_agent": "net"},
        "stages": ONLINE,
        "credit": "return_to_go()",
        "learn": {"lr": 0.2, "terms": ["clone(column='weight')"]},
        "phases": [{"name": "offline", "until": 8, "stages": OFFLINE}, {"name": "online"}],
        "train": {"iterations": 60, "groups": 16, "group_size": 1, "evaluate_every": 60, "checkpoint_every": 60},
        "evaluation": {"tasks": 200, "trials": 1, "look_tasks": 2, "look_trials": 1},
    }


ROWS = {"group": [0] * 4, "episode": [0] * 4, "agent": ["a"] * 4, "turn": [0, 1, 2, 3], "value": [0.3, 0.35, 0.2, 0.6]}


def attempt(end: float) -> Turns:
    """Four turns of one episode that ends with this reward."""
    return Turns(ROWS | {"reward": [0.0, 0.0, 0.0, end], "first_value": [0.3] * 4})


@exact
def worked_step_advantages() -> None:
    """V = .3, .35, .2, .6, then 1: .125, .05, .85, 2.35 cut to 1 with success; 0, -.2 cut to 0, .35, .35 without."""
    won, lost = attempt(1.0), attempt(0.0)
    np.testing.assert_allclose(np.asarray(step_filter(end=1.0).evaluate(won)), [0.125, 0.05, 0.85, 1.0], atol=1e-9)
    np.testing.assert_allclose(np.asarray(step_filter(end=1.0).evaluate(lost)), [0.0, 0.0, 0.35, 0.35], atol=1e-9)
    written = step_filter(lam=0.5, end=1.0)
    np.testing.assert_allclose(np.asarray(written.evaluate(won)), [0.16875, 0.1375, 0.7, 1.0], atol=1e-9)
    np.testing.assert_allclose(np.asarray(written.evaluate(lost)), [0.04375, -0.1125, 0.2, 0.0], atol=1e-9)


@exact
def every_step_of_this_success_is_cloned() -> None:
    """Success pays for the fall of V in turn 1: .05 after the margin, so that all four turns are cloned."""
    assert np.asarray(digirl(top=1.0).evaluate(attempt(1.0))).tolist() == [1, 1, 1, 1]


@exact
def a_failure_has_one_good_step() -> None:
    """Of a lost episode that turn is cloned after which V rose by more than the margin; .05 is not more.

    The card's mask has the last turn as well, since its V at the end of a failure is 1; what is known there is 0.
    """
    lost = attempt(0.0)
    assert (np.asarray(step_filter(end=1.0).evaluate(lost)) > 0).tolist() == [False, False, True, True]
    assert np.asarray(digirl(top=1.0).evaluate(lost)).tolist() == [0, 0, 1, 0]


def finished(score: list[float], first: list[float]) -> Turns:
    """Episodes of one turn with these rewards and these chances of their tasks."""
    size = len(score)
    rows = {"group": list(range(size)), "episode": [0] * size, "agent": ["a"] * size, "turn": [0] * size}
    return Turns(rows | {"reward": score, "first_value": first, "value": first})


@exact
def success_at_a_hard_task_is_kept() -> None:
    """Of 18 successes at a task of .9 and two at one of .2 the two are cloned; by the outcome alone all twenty are."""
    turns = finished([1.0] * 20, [0.9] * 18 + [0.2] * 2)
    assert np.asarray(digirl().evaluate(turns)).tolist() == [0.0] * 18 + [1.0] * 2
    assert np.asarray(digirl(first=0.0).evaluate(turns)).tolist() == [1.0] * 20


@exact
def a_tenth_of_the_table_is_kept() -> None:
    """Of 100 successes at tasks of all chances those ten are cloned whose task was the least likely to succeed."""
    first = np.arange(100) / 100
    kept = np.asarray(digirl().evaluate(finished([1.0] * 100, first.tolist())))
    assert kept.sum() == 10
    assert kept[:10].all()


def told() -> Context:
    """Context of a stage that plays nothing."""
    return Context(np.random.default_rng(0), 1, None, None, None)  # type: ignore[arg-type]


@exact
def critics_know_more_than_the_base_rate() -> None:
    """Cross-entropy on episodes that the critics were not fitted to, below that of the share of successes, both."""
    stage = outcome_critics("reward")
    old, new = (
        rollout(lambda: Taps(**WORLD), Team(user_agent=random_legal()), groups=n, group_size=1, seed=n)  # type: ignore[arg-type]
        for n in (240, 120)
    )
    stage(old, told())
    frame = stage(new, told()).frame
    won = frame["success"].cast(pl.Float64).to_numpy()
    for column, rows in (("value", np.ones(len(frame), bool)), ("first_value", frame["turn"].to_numpy() == 0)):
        assert entropy(frame[column].to_numpy()[rows], won[rows]) < entropy(won[rows].mean(), won[rows]) - 0.1


def entropy(chance: np.ndarray | float, won: np.ndarray) -> float:
    """Mean cross-entropy in nats."""
    return float(-np.mean(won * np.log(chance) + (1 - won) * np.log(1 - chance)))


@exact
def first_by_outcome_then_by_surprise() -> None:
    """Offline all turns of successes are cloned, out of one sample; online a tenth of four iterations' episodes is."""
    seen: list[pl.DataFrame] = []
    learn(made(), {"train": {"iterations": 12}}, seed=0, on_turns=lambda _, turns: seen.append(turns.frame))
    offline, online = seen[6:8], seen[11:]
    for frame in offline:
        assert frame.filter(pl.col("weight") == 1).equals(frame.filter("success"))
        assert frame["group"].n_unique() == 4 * 16
    assert (
        offline[0]
        .drop("weight", "value", "first_value", "iteration")
        .equals(offline[1].drop("weight", "value", "first_value", "iteration"))
    )
    for frame in online:
        each = frame.group_by("group").agg(pl.col("weight", "success").max(), pl.col("first_value", "task").first())
        assert each["group"].n_unique() == 4 * 16
        assert 6 <= each["weight"].sum() < each["success"].sum()
        unlikely = each.filter(pl.col("weight") == 1)["first_value"].max()
        assert unlikely < each.filter("success")["first_value"].max()  # type: ignore[operator]
