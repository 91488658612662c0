"""[192] VSC-RL (arXiv 2502.07949): a long task in segments, each with a subgoal that is checked and paid by itself.

A corridor with a key at one end and the door at the other instead of phones; its own list of places instead of a
vision-language planner; a script that walks to what it is told, more often than not, as the reference policy.
"""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from palaestra.agents import ScriptedPolicy, TabularPolicy, Team
from palaestra.agents.policy import Request
from palaestra.algebra.selection import keep
from palaestra.algebra.turns import Turns
from palaestra.credit import step_filter, vsc_rl
from palaestra.envs.worlds import Corridor
from palaestra.learning import PolicyGradient
from palaestra.learning.stages import Context
from palaestra.learning.stages.advised_actions import advised_actions
from palaestra.learning.stages.outcome_critics import outcome_critics
from palaestra.play.executors import Local, Plan
from palaestra.teams import subgoals
from palaestra_atlas.reproductions import exact

SEGMENT = ("episode", "agent", "segment")
WORLD = {"cells": 12, "horizon": 36}


def guide(accuracy: float = 0.6) -> Any:
    """A script that steps towards the place of its subgoal with this chance, else anywhere; of a door it goes right."""

    def play(request: Request) -> str:
        seen, wanted = request.observation.text.split("; subgoal: ")
        to = 99 if "door" in wanted else int(wanted.split(",")[0].split()[1])
        moves = request.observation.legal
        right = "right" if to > int(seen.split()[1]) else "left"
        return right if request.rng.random() < accuracy else str(moves[int(request.rng.integers(len(moves)))])

    return play


def recipe(seed: int, folder: Path) -> None:
    """Writes the recipe of a table that learns a corridor by its subgoals, `vsc.yaml`."""
    (folder / "vsc.yaml").write_text(json.dumps(made()))


def made() -> dict[str, Any]:
    """The recipe."""
    return {
        "name": "vsc",
        "env": {"make": "native/corridor", "options": WORLD, "workflow": "subgoals(every=3)"},
        "policies": {
            "table": {"kind": "tabular", "options": {"actions": 3}},
            "guide": {"kind": "script", "options": {"script": f"{__name__}:guide"}},
        },
        "team": {"walker": "table"},
        "stages": [
            "outcome_critics('subgoal_done', unit=('episode', 'agent', 'segment'))",
            "weights('vsc_rl()')",
            "advised_actions('guide', share=0.2)",
        ],
        "credit": "return_to_go()",
        "learn": {"lr": 0.1, "terms": ["clone(column='weight')", "clone(0.1, column='advised')"]},
        "train": {"iterations": 24, "groups": 1, "group_size": 24, "evaluate_every": 24, "checkpoint_every": 24},
        "evaluation": {"tasks": 60, "trials": 1, "look_tasks": 2, "look_trials": 1},
    }


def walked(moves: str, *, cells: int = 6, **options: Any) -> pl.DataFrame:
    """One episode of these moves, l and r, in a corridor of six cells, which begins in cell 3; then it waits."""
    words, at = {"l": "left", "r": "right"}, [0]

    def play(request: Request) -> str:
        at[0] += 1
        return words.get(moves[at[0] - 1 : at[0]], "wait")

    env = subgoals(functools.partial(Corridor, cells=cells, horizon=14), **options)
    return Local().play(env, Team(walker=ScriptedPolicy(play)), Plan(groups=1)).frame


@exact
def one_subgoal_at_a_time_is_read() -> None:
    """The prompt has the current subgoal, in the order of the list, or the final goal alone."""
    frame = walked("lllrrrrr", every=2)
    assert frame["subgoal"].unique(maintain_order=True).to_list() == [
        "cell 1, holding nothing", "cell 1, holding the key", "cell 3, holding the key", "the door is open"
    ]  # fmt: skip
    read = frame.select(pl.col("observation").str.split("; subgoal: ").list.last() == pl.col("subgoal"))
    assert read.to_series().all()
    assert set(walked("lll", only_last=True)["subgoal"]) == {"the door is open"}


@exact
def a_met_subgoal_gives_way_and_is_the_segments_return() -> None:
    """Of eight moves 2, 4, 6 and 8 meet a subgoal; their segments return 1, one that is not met returns 0."""
    frame = walked("lllrrrrr", every=2)
    assert frame["segment"].to_list() == [0, 0, 1, 1, 2, 2, 3, 3]
    assert frame["subgoal_done"].to_list() == [False, True] * 4
    assert frame["success"][-1]
    moved = walked("lllrrrrr", every=2, shuffled=1.0)
    assert moved["subgoal"].unique(maintain_order=True).to_list()[2] == "cell 1, holding nothing"
    assert moved["subgoal_done"].to_list() == [False] * 3 + [True, False, True] + [False] * 2, (
        "only the current is asked"
    )
    lost = walked("lllrr", every=2)
    told = Context(np.random.default_rng(0), 1, None, None, None)  # type: ignore[arg-type]
    outcome_critics("subgoal_done", unit=SEGMENT)(Turns(lost), told)
    assert told.metrics["units"] == 3
    np.testing.assert_allclose(told.metrics["success"], 2 / 3)


ROWS = {"group": [0] * 4, "episode": [0] * 4, "agent": ["a"] * 4, "turn": [0, 1, 2, 3], "value": [0.3, 0.35, 0.2, 0.6]}


@exact
def worked_step_advantages() -> None:
    """V = .3, .35, .2, .6, then 1: .125, .05, .85, 2.35 with success; 0, -.2, .35, .35 without; cut to [0, 1]."""
    won, lost = (Turns(ROWS | {"reward": [0.0, 0.0, 0.0, end]}) for end in (1.0, 0.0))
    np.testing.assert_allclose(np.asarray(step_filter(end=1.0).evaluate(won)), [0.125, 0.05, 0.85, 1.0], atol=1e-9)
    np.testing.assert_allclose(np.asarray(step_filter(end=1.0).evaluate(lost)), [0.0, 0.0, 0.35, 0.35], atol=1e-9)
    partly = Turns(ROWS | {"reward": [0.0, 0.0, 0.0, 0.3]})
    np.testing.assert_allclose(np.asarray(step_filter().evaluate(partly))[3], 0.25)  # V at the end is what was earned
    parts = Turns(ROWS | {"segment": [0, 0, 1, 1], "value": [0.5] * 4, "reward": [0.0, 0.0, 0.0, 1.0]})
    np.testing.assert_allclose(np.asarray(step_filter(over=SEGMENT).evaluate(parts)), [0.0, 0.0, 0.45, 1.0], atol=1e-9)
    written = step_filter(lam=0.5, end=1.0)
    np.testing.assert_allclose(np.asarray(written.evaluate(won)), [0.16875, 0.1375, 0.7, 1.0], atol=1e-9)
    np.testing.assert_allclose(np.asarray(written.evaluate(lost)), [0.04375, -0.1125, 0.2, 0.0], atol=1e-9)


@exact
def early_good_segments_of_lost_episodes_are_cloned() -> None:
    """A lost episode met two subgoals: their turns are cloned, as segments; by its episode none would be."""
    lost = walked("lllrr", every=2).with_columns(first_value=pl.lit(0.5), value=pl.lit(0.5))
    found = vsc_rl(top=1.0).evaluate(Turns(lost))
    assert np.asarray(found).tolist() == [1.0] * 4 + [0.0] * 10
    assert not lost["success"].fill_null(False).any()


@exact
def the_unlikely_tenth_is_cloned() -> None:
    """Of ten segments that all passed the one that the critic thought least likely is kept, and in it what raised V."""
    rows = {
        "group": [0] * 20, "episode": [row // 2 for row in range(20)], "agent": ["a"] * 20, "turn": [0, 1] * 10,
        "segment": [0] * 20, "subgoal_done": [False, True] * 10,
        "first_value": [0.9] * 18 + [0.2] * 2, "value": [0.9] * 18 + [0.2, 0.2],
    }  # fmt: skip
    assert np.asarray(vsc_rl(top=0.1).evaluate(Turns(rows))).tolist() == [0.0] * 18 + [1.0, 1.0]
    assert np.asarray(vsc_rl(top=1.0, gamma=0.0).evaluate(Turns(rows))).tolist() == [0.0, 1.0] * 10, (
        "V did not rise in turn 0"
    )
    failed = Turns(rows | {"subgoal_done": [False] * 20})
    assert np.asarray(vsc_rl(top=1.0).evaluate(failed)).sum() == 0
    rose = Turns(rows | {"value": [0.5, 0.54] * 10})
    for margin, wanted in ((0.05, 0.0), (0.03, 1.0)):
        assert np.asarray(vsc_rl(top=1.0, gamma=0.0, margin=margin).evaluate(rose))[0] == wanted, margin
    two = {"group": [0] * 2, "episode": [0] * 2, "agent": ["a"] * 2, "turn": [0, 1], "segment": [0, 1]}
    two |= {"subgoal_done": [True, True], "first_value": [0.9, 0.2], "value": [0.9, 0.2]}
    assert np.asarray(vsc_rl(top=0.5).evaluate(Turns(two))).tolist() == [0.0, 1.0], "segments of one episode compete"
    kept = keep("first_value", quantile=0.9, unit=SEGMENT).evaluate(Turns(rows))
    assert np.asarray(kept).tolist() == [True] * 18 + [False] * 2, "ties at the border stay"


def corridor() -> Any:
    """A corridor of eight cells with two places to its key."""
    return subgoals(functools.partial(Corridor, cells=8, horizon=20), every=2)()


@exact
def critics_know_first_and_every_turn() -> None:
    """After one iteration a segment begins with the share of its passes, and turns near the place are worth more."""
    policy, told = TabularPolicy(3, name="table"), Context(
        np.random.default_rng(0), 1, None, None, None  # type: ignore[arg-type]
    )  # fmt: skip
    turns = Local().play(corridor, Team(walker=policy), Plan(groups=120, group_size=1))
    stage = outcome_critics("subgoal_done", unit=SEGMENT)
    blank = stage(turns, told).frame
    assert set(blank["value"]) == {0.5}
    known = stage(turns, told).frame.filter(pl.col("segment") == 0)
    share = known.group_by("group").agg(pl.col("subgoal_done").any())["subgoal_done"].mean()
    assert abs(known["first_value"][0] - share) < 0.1  # type: ignore[operator]
    near, far = (known.filter(pl.col("observation").str.starts_with(f"cell {n} "))["value"].mean() for n in (3, 7))
    assert near > far + 0.2  # type: ignore[operator]
    heads = stage.step.predict(turns.frame["observation"])
    np.testing.assert_array_equal(stage(turns, told).frame["value"], heads.min(axis=1))
    again = outcome_critics("subgoal_done", unit=SEGMENT)
    again.load_state_dict(stage.state_dict())
    np.testing.assert_array_equal(again.step.predict(known["observation"]), stage.step.predict(known["observation"]))


@exact
def pulled_to_the_reference_where_it_goes() -> None:
    """Where the learner was, the reference's actions are rows of their own; cloning them brings the learner nearer."""
    policy = TabularPolicy(3, name="table")
    team, sure = Team(walker=policy), ScriptedPolicy(guide(1.0), name="guide")
    told = Context(np.random.default_rng(0), 1, corridor, team, Local(), advisers={"guide": sure})
    turns = Local().play(corridor, team, Plan(groups=12, group_size=1))
    both = advised_actions("guide", share=0.5)(turns, told).frame
    added = both.filter("advised")
    assert told.metrics["episodes"] == 6
    asked = turns.frame.join(added.select(pl.col("group") - 12, "turn"), on=["group", "turn"], how="semi")
    assert added["observation"].to_list() == asked["observation"].to_list(), "the states are the learner's"
    assert set(added["action"]) == {"left", "right"}
    before = np.exp([each.item() for each in policy.score(added).logprobs.detach()])
    PolicyGradient(team, "clone(column='advised')", lr=0.3).update(Turns(both.with_columns(advantage=pl.lit(0.0))))
    after = np.exp([each.item() for each in policy.score(added).logprobs.detach()])
    assert (after > before + 0.05).all()


@exact
def shuffled_lists_are_some() -> None:
    """In three of ten episodes the places stand in another order; the goal stays the last."""
    env = subgoals(functools.partial(Corridor, cells=12), every=2, shuffled=0.3)()
    plain = subgoals(functools.partial(Corridor, cells=12), every=2)()
    plain.reset(0)
    moved = 0
    for seed in range(400):
        env.reset(seed)  # type: ignore[attr-defined]
        assert sorted(env.listed) == sorted(plain.listed)  # type: ignore[attr-defined]
        assert env.listed[-1] == plain.listed[-1]  # type: ignore[attr-defined]
        moved += env.listed != plain.listed  # type: ignore[attr-defined]
    assert 0.22 < moved / 400 < 0.38
