"""[64] AgentRefine (arXiv 2501.01702): transcripts with errors and their corrections, in which errors are not learned.

A script plays worlds that are drawn anew, errs now and then, and corrects itself; its rows are cloned but for the wrong
turns, which stay in what later turns see. Fitted on clean transcripts, a table has never seen a slip. Left out:
personas, worlds and transcripts written by a language model, whose verifier has bad turns written again.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import torch

from palaestra.agents import ScriptedPolicy, TabularPolicy, Team
from palaestra.agents.policy import Request
from palaestra.algebra.turns import Turns
from palaestra.envs.protocol import Observation
from palaestra.envs.worlds import Slips
from palaestra.errors import InputError
from palaestra.learning import PolicyGradient
from palaestra.learning.stages import Context
from palaestra.learning.stages.demonstrate import demonstrate
from palaestra.play.executors import Local, Plan
from palaestra_atlas.reproductions import exact

RIGHT, KEEP = '~col("bad")', '(total("bad", over="episode") > 0) & (col("success") == 1)'
"""Turns that are learned from; and transcripts, those with an error that was corrected."""


def erring(errs: float = 0.3) -> Any:
    """A script that does what is right, but for a share of its moves on the path, and goes back after each."""

    def play(request: Request) -> str:
        words = request.observation.text.split()
        if words[0] == "slipped":
            return "back"
        right = int(words[1])
        moves = [each for each in request.observation.legal if each != "back"]
        wrong = bool(request.rng.random() < errs)
        return str(moves[(right + wrong) % len(moves)])

    return play


def recipe(seed: int, folder: Path) -> None:
    """Writes the recipe of a table that learns from an adviser's transcripts, `refine.yaml`."""
    made = {
        "name": "refine",
        "env": {"make": "native/slips", "options": {"spare": 6}},
        "policies": {
            "table": {"kind": "tabular", "options": {"actions": 3}},
            "teacher": {"kind": "script", "options": {"script": f"{__name__}:erring", "errs": 0.3}},
        },
        "team": {"walker": "table"},
        "stages": [f"demonstrate('teacher', verdict={RIGHT!r}, keep={KEEP!r})"],
        "credit": "return_to_go()",
        "learn": {"lr": 0.2, "terms": ['clone(column="loss_mask")']},
        "train": {"iterations": 25, "groups": 16, "group_size": 4, "evaluate_every": 25, "checkpoint_every": 25,
                  "save_turns": "all"},
        "evaluation": {"tasks": 20, "trials": 1, "look_tasks": 20, "look_trials": 1},
    }  # fmt: skip
    (folder / "refine.yaml").write_text(json.dumps(made))


def taught(
    errs: float = 0.3, *, groups: int = 12, script: Any = None, keep: str | None = KEEP
) -> tuple[Turns, Context, Any]:
    """A table's rows and an adviser's, after the stage."""
    policy = TabularPolicy(3, name="table")
    adviser = ScriptedPolicy(erring(errs) if script is None else script, name="teacher")
    team = Team(walker=policy)

    def env() -> Slips:
        return Slips(spare=6)

    told = Context(np.random.default_rng(0), 1, env, team, Local(), advisers={"teacher": adviser})
    stage = demonstrate("teacher", verdict=RIGHT, keep=keep)
    plan = stage.plan(Plan(groups=groups, group_size=4, seed=4), told)
    return stage(Local().play(env, team, plan), told), told, policy


@exact
def no_loss_on_wrong_turns() -> None:
    """The wrong move has no gradient and neither have rows of the learner; the way back after it has."""
    whole, _, policy = taught()
    rows = whole.frame.filter(pl.col("source") == "teacher")
    assert rows["bad"].sum() > 10
    assert not rows.filter("bad")["loss_mask"].any()
    assert not whole.frame.filter(pl.col("source") == "policy")["loss_mask"].any()
    learner = PolicyGradient(Team(walker=policy), 'clone(column="loss_mask")')
    learner.forward_backward(whole)
    gradient = policy.module.get_parameter("logits").grad
    for cue in (0, 1):
        slope = gradient[policy._places[Observation(f"cue {cue}").key()]]
        assert slope[cue] < 0, "towards the right move"
        torch.testing.assert_close(slope[1 - cue], slope[2])
        back = gradient[policy._places[Observation(f"slipped at cue {cue} by move {1 - cue}").key()]]
        assert back[2] < 0


@exact
def errors_stay_in_what_is_seen() -> None:
    """Turns after an error see it, and the way back is learned for who sees it, not for the cue before it."""
    whole, _, policy = taught()
    rows = whole.frame.filter(pl.col("source") == "teacher").sort("group", "episode", "turn")
    after = rows.filter(pl.col("bad").shift(1).over("group", "episode").fill_null(False))
    assert len(after) > 10
    assert after["observation"].str.starts_with("slipped").all()
    PolicyGradient(Team(walker=policy), 'clone(column="loss_mask")', lr=0.5).update(whole)
    logits, places = policy.module.get_parameter("logits").detach(), policy._places
    for cue in (0, 1):
        assert logits[places[Observation(f"cue {cue}").key()]][2] < 0, "nobody goes back from a cue"
        slipped = places[Observation(f"slipped at cue {cue} by move {1 - cue}").key()]
        assert logits[slipped][2] > 0


@exact
def kept_with_an_error_and_its_correction() -> None:
    """A transcript without an error, or that never came back from one, is not learned from."""
    whole, told, _ = taught(errs=0.15, groups=30)
    rows = whole.frame.filter(pl.col("source") == "teacher")
    learned = rows.filter("loss_mask").select("group", "episode").unique()
    kept = (
        rows.join(learned, on=["group", "episode"], how="semi")
        .group_by("group", "episode")
        .agg(pl.col("bad").sum(), pl.col("success").last())
    )
    assert kept["bad"].min() > 0  # type: ignore[operator]
    assert kept["success"].all()
    assert told.metrics["kept"] == len(learned) < told.metrics["episodes"]


@exact
def illegal_turns_are_no_demonstration() -> None:
    """An episode with a turn that the world does not allow is left out, and counted."""

    def sloppy(request: Request) -> str:
        return "jump" if request.observation.text == "cue 1" else erring(0.3)(request)

    try:
        whole, told, _ = taught(script=sloppy, keep=None)
    except InputError as refused:  # a table has no number for what is not allowed
        raise AssertionError(refused) from refused
    rows = whole.frame.filter(pl.col("source") == "teacher")
    assert rows["valid"].fill_null(True).all()
    assert told.metrics["illegal"] > 0
    assert not rows["action"].str.contains("jump").any()


@exact
def worlds_are_many() -> None:
    """Worlds are drawn anew for each task, so that both cues and both slips are met."""
    whole, _, _ = taught(groups=20)
    rows = whole.frame.filter(pl.col("source") == "teacher")
    assert rows["task"].n_unique() > 8
    assert set(rows["observation"]) >= {"cue 0", "cue 1", "slipped at cue 0 by move 1", "slipped at cue 1 by move 0"}
