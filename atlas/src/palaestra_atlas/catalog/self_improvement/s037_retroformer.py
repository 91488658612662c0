"""[37] Retroformer (arXiv 2308.02151): what is learned is to say why a try failed, paid by how much better the next is.

The actor is a script that does what it is told, else anything: a black box. Tasks differ in what every try of them
scores, so the next trial's return says more about the task than about the advice; the difference does not. Left out:
language models, HotPotQA, AlfWorld, WebShop, the pull to the supervised policy in PPO.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from palaestra.agents import ScriptedPolicy, TabularPolicy, Team
from palaestra.agents.policy import Request
from palaestra.algebra.signals import Signal
from palaestra.algebra.turns import Turns
from palaestra.credit import improvement, retroformer
from palaestra.envs.worlds import Retries
from palaestra.judges.value_pairs import mine
from palaestra.learning import PolicyGradient
from palaestra.learning.stages.pair_reward import pair_reward
from palaestra.learning.stages.selection import keep
from palaestra.play.rollout import rollout
from palaestra.runs.inline import learn
from palaestra_atlas.catalog.reward_models.made import stage_context
from palaestra_atlas.reproductions import exact


def obedient() -> Any:
    """A script for the actor: the fix that it was advised, else any; nobody can train it."""

    def play(request: Request) -> str:
        choices = request.observation.legal
        told = request.observation.text.partition("advice: ")[2]
        return str(told if told in choices else request.rng.choice(choices))

    return play


RATED = "improvement(\"score\", at=is_in('agent', 'reflector'))"
NEXT = "improvement(\"score\", of='next', at=is_in('agent', 'reflector'))"
"""Ratings of reflections: by the difference of consecutive returns, and by the next return."""
PROGRESS = 0.8
"""Largest score of a failed try; it is drawn for each task."""
MODEL = f"pair_reward('reflector', {RATED!r})"
HELPED = f"keep({RATED!r}, between=(0, None), closed='right', unit='row')"


def recipe(seed: int, folder: Path) -> None:
    """Writes the recipe of an actor that is a script and a reflector that learns, `retries.yaml`."""
    (folder / "retries.yaml").write_text(json.dumps(made()))


def made() -> dict[str, Any]:
    """The recipe: reflections that helped are cloned, then PPO by a model of pairs, which both phases fit."""
    return {
        "name": "retries",
        "env": {"make": "native/retries", "options": {"tries": 2, "progress": PROGRESS}},
        "policies": {
            "actor": {"kind": "script", "options": {"script": f"{__name__}:obedient"}},
            "reflector": {"kind": "tabular", "options": {"actions": 6}},
        },
        "team": {"actor": "actor", "reflector": "reflector"},
        "credit": "retroformer()",
        "learn": {"lr": 0.1},
        "phases": [
            {"name": "clone", "until": 10, "stages": [HELPED, MODEL], "learn": {"terms": "clone(column='kept')"}},
            {"name": "ppo", "stages": [MODEL], "credit": 'centre("pair_reward", over=())'},
        ],
        "train": {"iterations": 40, "groups": 48, "group_size": 1, "evaluate_every": 40, "checkpoint_every": 40},
        "evaluation": {"tasks": 600, "trials": 1, "look_tasks": 20, "look_trials": 1},
    }


def values(signal: Signal, turns: Turns) -> np.ndarray:
    """One number per turn."""
    return np.asarray(signal.evaluate(turns), float)


def trials() -> Turns:
    """Four tries of one task with three reflections between them, and returns of [.2, .5, .5, .4]."""
    return Turns(
        {
            "episode": [0] * 7, "turn": list(range(7)), "agent": ["actor", "reflector"] * 3 + ["actor"],
            "score": [0.2, None, 0.5, None, 0.5, None, 0.4],
        }
    )  # fmt: skip


@exact
def worked_differences() -> None:
    """[.2, .5, .5, .4] pay the three reflections .3, 0 and -.1, less their mean; the actor's turns are paid nothing."""
    found = values(retroformer(), trials())
    assert np.isnan(found[::2]).all()
    np.testing.assert_allclose(found[1::2], np.array([0.3, 0.0, -0.1]) - 0.2 / 3, atol=1e-12)
    np.testing.assert_allclose(values(improvement("score"), trials())[::2], [0.3, 0, -0.1, np.nan], atol=1e-12)


def played(policy: Any, groups: int = 60) -> Turns:
    """Tasks of two tries, by the obedient actor and a reflector."""
    team = Team(actor=ScriptedPolicy(obedient(), name="actor"), reflector=policy)
    return rollout(lambda: Retries(tries=2, luck=(0.0, 0.0), skill=1.0), team, groups=groups, group_size=1, seed=3)


@exact
def advice_is_read() -> None:
    """The second try does what the first reflection said, and succeeds where that was right."""
    frame = played(TabularPolicy(6, name="reflector")).frame
    second = frame.filter(pl.col("agent") == "actor", pl.col("try") == 1).sort("group")
    advice = frame.filter(pl.col("agent") == "reflector").sort("group")
    assert len(second) > 20
    assert second["action"].to_list() == advice["action"].to_list()
    assert second["score"].to_list() == advice["advised"].to_list()
    assert 0 < float(second["score"].mean()) < 1  # type: ignore[arg-type]


@exact
def every_try_of_a_task_scores_its_part() -> None:
    """A failed try scores what was drawn for the task, up to .8, a success .2 more: a reflection is paid .2 or 0."""
    team = Team(actor=ScriptedPolicy(obedient(), name="actor"), reflector=TabularPolicy(6, name="reflector"))
    turns = rollout(lambda: Retries(progress=PROGRESS), team, groups=60, group_size=1, seed=4)
    tries = turns.frame.filter(pl.col("agent") == "actor").sort("group", "turn")
    won = pl.col("success").fill_null(False) & (pl.col("turn") == pl.col("turn").max().over("group"))
    tries = tries.with_columns(part=pl.col("score") - 0.2 * won.cast(float))
    parts = tries.group_by("group").agg(pl.col("part"))
    assert (parts["part"].list.max() - parts["part"].list.min()).max() < 1e-9  # type: ignore[operator]
    drawn = parts["part"].list.first()
    assert 0 <= drawn.min() < 0.1  # type: ignore[operator]
    assert 0.7 < drawn.max() < 0.8  # type: ignore[operator]
    rise = values(improvement("score", at=pl.col("agent") == "reflector"), turns)
    assert set(rise[~np.isnan(rise)].round(9)) == {0.0, 0.2}


@exact
def only_the_reflector_learns() -> None:
    """An actor with a table of its own is as it was after an update, bit for bit; the reflector is not."""
    actor, reflector = TabularPolicy(6, name="actor"), TabularPolicy(6, name="reflector")
    team = Team(actor=actor, reflector=reflector)
    turns = rollout(lambda: Retries(tries=2), team, groups=30, group_size=1, seed=0)
    PolicyGradient(team, lr=0.1).update(turns.with_column(advantage=retroformer()))
    assert not any(each.detach().numpy().any() for each in actor.parameters())
    assert any(each.detach().numpy().any() for each in reflector.parameters())


@exact
def fitted_on_what_helped() -> None:
    """Before rewards are trusted, the reflections that made the next try better are cloned, and no others."""
    told = stage_context()
    stage = keep(
        "improvement(\"score\", at=is_in('agent', 'reflector'))", between=(0, None), closed="right", unit="row"
    )
    found = stage(trials(), told)
    assert np.flatnonzero(found["kept"].to_numpy()).tolist() == [1]
    assert told.metrics["kept"] == 1
    assert told.metrics["dropped_between"] == 2


@exact
def pairs_of_one_prompt() -> None:
    """Better against worse reflections on the same failure, and on no other."""
    rows = {"group": [0] * 4, "episode": [0, 1, 2, 3], "state": [7, 7, 9, 9], "paid": [0.3, -0.1, 0.5, 0.5]}
    found, counts = mine(Turns(rows), "paid", "state", unit="row")
    assert found.select("chosen", "rejected").rows() == [(0, 1)]
    assert counts["dropped_gap"] == 1


def ordered(rating: str, tasks: list[Turns]) -> tuple[float, float]:
    """Share of new failures on which a model of pairs by `rating` has the right advice first; its last agreement."""
    told, stage = stage_context(), pair_reward("reflector", rating, steps=60)
    for turns in tasks[:4]:
        stage(turns, told)
    stage.steps = 0
    new = stage(tasks[4], told).frame.filter(pl.col("agent") == "reflector")
    right, wrong = (new.filter(pl.col("advised") == each).select("cause", "pair_reward") for each in (1.0, 0.0))
    both = right.join(wrong, on="cause")
    assert len(both) > 100
    return float((both["pair_reward"] > both["pair_reward_right"]).mean()), told.metrics["agreement"]  # type: ignore[arg-type, operator]


@exact
def the_model_orders_new_pairs() -> None:
    """Fitted to pairs by noisy ratings, it ranks the right advice above a wrong one on failures that come later.

    Where tasks differ in what every try of them scores, it does so less often if the next return is the rating.
    """
    team = Team(actor=ScriptedPolicy(obedient(), name="actor"), reflector=TabularPolicy(6, name="reflector"))
    tasks = [
        rollout(lambda: Retries(tries=2, progress=PROGRESS), team, groups=150, group_size=1, seed=seed)
        for seed in range(5)
    ]
    found, agreement = ordered(RATED, tasks)
    assert found > 0.95
    assert agreement > 0.55
    assert ordered(NEXT, tasks)[0] < found - 0.05


@exact
def ppo_by_the_model_goes_on_after_cloning() -> None:
    """Ten iterations of cloning, then 20 of PPO paid by the model alone: more of the advice is right than before."""
    seen: list[float] = []
    learn(
        made(), {"train": {"iterations": 30}}, seed=0, trust=True,
        on_turns=lambda _, turns: seen.append(reflected(turns)),
    )  # fmt: skip
    assert np.mean(seen[-4:]) > np.mean(seen[8:12]) + 0.15


def reflected(turns: Turns) -> float:
    """Share of the advice that is right."""
    return float(turns.frame.filter(pl.col("agent") == "reflector")["advised"].mean())  # type: ignore[arg-type]
