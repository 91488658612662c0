"""[107] EEF (arXiv 2504.13145): a learner takes over in the middle of an expert's failed runs, and finds what helped.

Numbered paths instead of web shops; the expert is a script that knows half of them, and slips in the middle of the
others and for good before their end. Left out: language models, WebShop, ScienceWorld.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from palaestra.agents import ScriptedPolicy, TabularPolicy, Team
from palaestra.agents.policy import Request
from palaestra.algebra.turns import Turns
from palaestra.envs.protocol import Observation
from palaestra.envs.worlds import Slips
from palaestra.learning import PolicyGradient
from palaestra.learning.stages import Context
from palaestra.learning.stages.expert_failures import chances, expert_failures, helpful
from palaestra.play.executors import Local, Plan
from palaestra_atlas.reproductions import exact
from palaestra_atlas.verification.measures import Left, Measure

WORLD = {"paths": 20, "cells": 8, "moves": 4, "spare": 8}
"""Twenty paths; the expert fails on the last ten."""


def expert(paths: int = 20, cells: int = 8, moves: int = 4) -> Any:
    """A script that walks the first half of the paths; on the others it slips at the middle cell, and near the end."""
    world = Slips(paths=paths, cells=cells, moves=moves)

    def play(request: Request) -> str:
        words = request.observation.text.replace(",", "").split()
        path, cell, slipped = int(words[1]), int(words[3]), words[-1] == "slipped"
        right = int(world.paths[path, cell])
        if path < paths // 2:
            return "back" if slipped else f"move {right}"
        if slipped:  # half of the time it goes back from the middle, never from near the end
            return "back" if cell == cells // 2 and request.rng.random() < 0.5 else f"move {right}"
        wrong = cell == cells - 2 or (cell == cells // 2 and request.rng.random() < 0.6)
        return f"move {(right + wrong) % moves}"

    return play


def recipe(seed: int, folder: Path) -> None:
    """Writes the recipe of a table that learns paths beside an expert, `eef.yaml`."""
    (folder / "eef.yaml").write_text(json.dumps(made()))


def made() -> dict[str, Any]:
    """The recipe."""
    return {
        "name": "eef",
        "env": {"make": "native/slips", "options": WORLD},
        "policies": {
            "table": {"kind": "tabular", "options": {"actions": WORLD["moves"] + 1}},
            "expert": {"kind": "script", "options": {"script": f"{__name__}:expert"}},
        },
        "team": {"walker": "table"},
        "stages": ["expert_failures('expert')"],
        "credit": "return_to_go()",
        "learn": {"lr": 0.2, "terms": "clone(column='loss_mask')"},
        "train": {"iterations": 36, "groups": 20, "group_size": 16, "evaluate_every": 36, "checkpoint_every": 36},
        "evaluation": {"tasks": 200, "trials": 1, "look_tasks": 20, "look_trials": 1},
    }


def hard() -> Measure:
    """Success on held-out episodes of the paths that the expert fails, begun at their beginning."""

    def measured(left: Left) -> list[float]:
        found = []
        for seed in left.seeds():
            table = pl.read_parquet(seed / "evaluation.parquet").filter(pl.col("system") == "after")
            number = pl.col("task").cast(pl.String).str.split(" ").list.last().cast(pl.Int64)
            ends = table.filter(pl.col("success").is_not_null() & (number >= WORLD["paths"] // 2))
            found.append(float(ends["success"].mean()))  # type: ignore[arg-type]
        return found

    return measured


def failing() -> Any:
    """An expert of one path, which slips at cell 4, goes back, and slips for good at cell 6."""
    world, slips = Slips(paths=1, cells=8, moves=4, spare=4), {4: 1}

    def play(request: Request) -> str:
        words = request.observation.text.replace(",", "").split()
        cell, right = int(words[3]), int(world.paths[0, int(words[3])])
        if words[-1] == "slipped":
            slips[4] = 0
            return "back" if cell == 4 else f"move {right}"
        if cell == 0:
            slips[4] = 1
        return f"move {(right + (cell == 6 or (cell == 4 and slips[4]))) % 4}"

    return play


def student(knows: int, *, returns: bool = False) -> Any:
    """A learner that knows the cells from this one on, and whether to go back after a slip."""
    world = Slips(paths=1, cells=8, moves=4, spare=4)

    def play(request: Request) -> str:
        words = request.observation.text.replace(",", "").split()
        right = int(world.paths[0, int(words[3])])
        if words[-1] == "slipped":
            return "back" if returns else "move 0"
        return f"move {right if int(words[3]) >= knows else (right + 1) % 4}"

    return play


def round_of(stage: expert_failures, policy: Any, iteration: int = 1) -> tuple[pl.DataFrame, Context]:
    """The table of one round, and what its stage was told."""

    def env() -> Slips:
        return Slips(paths=1, cells=8, moves=4, spare=4)

    team = Team(walker=ScriptedPolicy(policy, name="table"))
    advisers = {"expert": ScriptedPolicy(failing(), name="expert")}
    told = Context(np.random.default_rng(iteration), iteration, env, team, Local(), advisers=advisers)
    plan = stage.plan(Plan(groups=2, group_size=40, seed=iteration, iteration=iteration), told)
    return stage(Local().play(env, team, plan), told).frame, told


@exact
def takes_over_in_the_middle() -> None:
    """Each failed run is played on from its beginning and from four drawn places, after the expert's own turns."""
    frame, told = round_of(expert_failures("expert"), student(4))
    restarts = frame.filter(pl.col("helped") | (pl.col("group") >= 2))
    places = restarts["start"].unique().sort().to_list()
    assert len(places) == 5
    assert places[0] == 0
    assert told.metrics["restarts"] == 40
    prefix = restarts.filter(pl.col("source") == "expert").unique(["turn", "action"])
    assert len(prefix) == prefix["turn"].n_unique() == max(places), "the expert's turns, the same each time"
    assert frame.filter(pl.col("start").is_null()).is_empty(), "the expert has no successful run"


@exact
def places_are_drawn_alike() -> None:
    """Each place of a failed run of twelve turns but its beginning is drawn as often: in four of eleven rounds."""
    lost = pl.DataFrame({"group": [0] * 12, "turn": range(12), "seed": [0] * 12, "action": ["move 0"] * 12})
    stage, told = expert_failures("expert"), Context(np.random.default_rng(0), 1, None, None, None)  # type: ignore[arg-type]
    stage._more = {0: 5}
    counts = np.zeros(12)
    for _ in range(330):
        places = {len(each.help) for _, each in stage._restarts(lost, 0, told)}
        counts[sorted(places)] += 1
    assert counts[0] == 330
    assert np.abs(counts[1:] - 120).max() < 40, counts


@exact
def only_what_made_success_likelier() -> None:
    """Of twelve turns two helped: the move to the first cell that the learner knows, and going back after the slip."""
    frame, _ = round_of(expert_failures("expert", starts=20), student(4))
    learned = frame.filter((pl.col("source") == "expert") & pl.col("loss_mask"))
    assert learned["turn"].unique().sort().to_list() == [3, 5]
    assert learned.filter("bad").is_empty()
    found = chances(
        frame.filter(pl.col("group") >= 2).with_columns(won=pl.col("loss_mask").any().over("group", "episode")), "won"
    )
    assert found["p"].to_list() == [0, 0, 0, 0, 1, 0, 1, 1, 1, 0, 0, 0]
    rows = pl.DataFrame({"group": [2, 2, 2], "turn": [0, 3, 4]})
    some = pl.DataFrame({"group": [2, 2, 2], "start": [0, 2, 5], "p": [0.0, 0.0, 0.5], "gain": [None, 0.0, 0.5]})
    assert helpful(rows, some).to_list() == [False, True, True]


@exact
def what_did_harm_stays_in_context() -> None:
    """All turns of the expert before the learner's are there, unlearned, and the learner saw what came of them."""
    frame, _ = round_of(expert_failures("expert", starts=20), student(4))
    ends = frame.filter(pl.col("group") >= 2).group_by("group", "episode", "start")
    shown = ends.agg((pl.col("source") == "expert").sum().alias("n"), (pl.col("bad") & pl.col("loss_mask")).sum())
    assert (shown["n"] == shown["start"]).all()
    after = frame.filter((pl.col("source") == "policy") & (pl.col("start") == 5) & (pl.col("turn") == 5))
    assert set(after["observation"]) == {"path 0, cell 4, slipped"}
    frame, _ = round_of(expert_failures("expert", starts=20), student(0, returns=True))
    back = frame.filter((pl.col("source") == "policy") & pl.col("loss_mask") & (pl.col("action") == "back"))
    slips = {Observation(f"path 0, cell {cell}, slipped").key() for cell in (4, 6)}
    assert set(back["state"]) == slips, "going back is learned where the slip is seen"


@exact
def its_own_way_home_is_learned() -> None:
    """All turns of the learner in episodes that succeeded, wherever they began, and none of the others."""
    frame, _ = round_of(expert_failures("expert", starts=20), student(4))
    own = frame.filter((pl.col("source") == "policy") & (pl.col("group") >= 2))
    assert own.filter("loss_mask")["start"].unique().sort().to_list() == [4, 6, 7, 8]
    assert own.filter(pl.col("start").is_in([4, 6, 7, 8]))["loss_mask"].all()


@exact
def places_to_recover_from_are_tried_again() -> None:
    """Places behind a success from which none came are starts of the next round, until the learner succeeds there."""
    stage = expert_failures("expert", starts=20)
    round_of(stage, student(4))
    assert stage.recovery[0] == [5, 9, 10, 11]
    stage.starts = 1
    frame, _ = round_of(stage, student(4, returns=True), 2)
    assert frame.filter(pl.col("group") >= 2)["start"].unique().sort().to_list() == [0, 5, 9, 10, 11]
    assert stage.recovery[0] == [10, 11], "two more moves are too few for going back and two cells"
    again = expert_failures("expert", starts=20)
    again.load_state_dict(stage.state_dict())
    assert again.recovery == stage.recovery


@exact
def rounds_go_on_with_the_learner_of_now() -> None:
    """A learner that knows more succeeds from earlier places in the next round; its own successes are learned, too."""
    stage = expert_failures("expert", starts=20)
    _, first = round_of(stage, student(6))
    frame, second = round_of(stage, student(0, returns=True), 2)
    assert second.metrics["runs"] == 1, "the expert plays a task once"
    assert second.metrics["solved"] > first.metrics["solved"] > 0
    plain = frame.filter(pl.col("group") < 2)
    assert plain["loss_mask"].all()
    assert plain["start"].unique().to_list() == [0]


@exact
def successes_of_the_expert_are_cloned_in_every_round() -> None:
    """Once played, they stand in each iteration's table, as the learner would have said them today."""
    world = {"paths": 2, "cells": 3, "moves": 4}
    teacher = ScriptedPolicy(expert(**world), name="expert")
    policy, stage = TabularPolicy(5, name="table"), expert_failures("expert")

    def env() -> Slips:
        return Slips(**world, spare=2)  # type: ignore[arg-type]

    team = Team(walker=policy)
    for iteration in (1, 2):
        told = Context(np.random.default_rng(0), iteration, env, team, Local(), advisers={"expert": teacher})
        plan = stage.plan(Plan(groups=8, group_size=4, seed=iteration, iteration=iteration), told)
        frame = stage(Local().play(env, team, plan), told).frame
        shown = frame.filter((pl.col("source") == "expert") & pl.col("start").is_null())
        right = [f"move {each}" for each in env().paths[0].tolist()]
        assert shown["action"].to_list() == right
        assert shown["loss_mask"].all()
        assert set(shown["iteration"]) == {iteration}
        np.testing.assert_allclose(np.exp(shown["logprobs"].list.first().to_numpy()), 0.2, atol=1e-6)
    PolicyGradient(team, "clone(column='loss_mask')", lr=0.1).update(Turns(frame))
    after = np.exp([each.item() for each in policy.score(shown).logprobs.detach()])
    assert (after > 0.2).all()
