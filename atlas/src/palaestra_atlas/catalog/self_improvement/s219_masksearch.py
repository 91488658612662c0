"""[219] MaskSearch (arXiv 2505.20285): to fill masked texts by searching is a task that nobody has to write.

A lexicon of generated facts with a page for each name, a network that sees what is looked for and whether a page is
open. Left out: the web, language models, a tuned planner in words: here seats choose among a few actions.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import torch

from palaestra.agents import MLPPolicy, ScriptedPolicy, Team
from palaestra.agents.policy import Request
from palaestra.algebra.turns import Turns
from palaestra.envs.masking import mask_entities
from palaestra.envs.worlds import Lexicon
from palaestra.envs.worlds.lexicon import RELATIONS
from palaestra.learning.stages import Context
from palaestra.learning.stages.evolving_teacher import evolving_teacher
from palaestra.learning.stages.stage import build
from palaestra.play.executors import Local, Plan
from palaestra.rewards import masksearch_reward
from palaestra_atlas.reproductions import exact
from palaestra_atlas.verification.measures import Left, Measure

STAGES = [
    "curriculum(edges=(1, 2, 3), at_step=(6, 11, 16), draws=8, "
    "difficulty={'1 mask:': 1, '2 masks': 2, '3 masks': 3, '4 masks': 4})",
    "evolving_teacher('teacher', after=8, keep='success')",
]
PRETRAINED, QUESTIONS = 24, 40
"""Iterations before the questions, and with them."""


def team(errs: float = 0.1) -> Any:
    """A script in all three seats, which takes a random line with this chance, and tells instead of answering."""
    world = Lexicon()

    def play(request: Request) -> str:
        legal, wrong = request.observation.legal, bool(request.rng.random() < errs)
        want = request.observation.text.rsplit("; mask ", 1)[1].split("; ")[0].split(": ", 1)[1]
        if "search" in legal:
            return ("tell" if wrong else "answer") if want == "nothing" else "search"
        if "query the name" in legal:
            return "query the relation" if wrong else "query the name"
        line = int(request.rng.integers(len(RELATIONS))) if wrong else int(world.line[RELATIONS.index(want)])
        return f"take line {line}"

    return play


def recipe(seed: int, folder: Path) -> None:
    """Writes `mask.yaml`, and `scratch.yaml`, which begins with the questions."""
    (folder / "mask.yaml").write_text(json.dumps(made()))
    (folder / "scratch.yaml").write_text(json.dumps(made(pretrained=False)))


def made(*, pretrained: bool = True) -> dict[str, Any]:
    """The recipe: masks by imitation, masks by reward, then questions."""
    questions = {"name": "questions", "env": {"options": {"task": "questions"}}}
    phases: list[dict[str, Any]] = [
        {"name": "imitate", "until": 16, "stages": STAGES, "learn": {"terms": "clone(column='loss_mask')"}},
        {"name": "reward", "until": PRETRAINED - 16, "stages": STAGES[:1], "reward": "masksearch_reward()"},
    ]
    return {
        "name": "mask",
        "env": {"make": "native/lexicon"},
        "policies": {
            "net": {"kind": "mlp", "options": {"hidden": [32]}},
            "teacher": {"kind": "script", "options": {"script": f"{__name__}:team"}},
        },
        "team": {"*": "net"},
        "credit": "grpo()",
        "learn": {"lr": 0.02},
        "phases": [*phases, questions] if pretrained else [questions],
        "train": {
            "iterations": PRETRAINED * pretrained + QUESTIONS, "groups": 8, "group_size": 8, "evaluate_every": 100,
            "checkpoint_every": 100, "save_turns": "all",
        },
        "evaluation": {"tasks": 20, "trials": 1, "look_tasks": 2, "look_trials": 1},
    }  # fmt: skip


def iterations_to(least: float = 0.8) -> Measure:
    """Iterations with questions until their mean success over three iterations is at least this; else all of them."""

    def measured(left: Left) -> list[float]:
        found = []
        for seed in left.seeds():
            lines = [json.loads(line) for line in (seed / "metrics.jsonl").read_text().splitlines()]
            success = [line["success"] for line in lines if line.get("phase") == "questions"]
            means = np.convolve(success, np.ones(3) / 3, mode="valid")
            found.append(float(np.argmax(means >= least)) if (means >= least).any() else float(len(success)))
        return found

    return measured


TEXT = "Ada Lovelace met Charles Babbage in 1833, when Babbage showed the engine to Mary Somerville of London."
NAMES = ("Ada Lovelace", "Charles Babbage", "1833", "Babbage", "Mary Somerville", "London")


@exact
def masks_by_rule() -> None:
    """Neither the title nor what stands there twice is masked, none begins the text, and filling restores it."""
    rng, seen, sizes = np.random.default_rng(0), set(), set()
    for _ in range(200):
        made = mask_entities(TEXT, "Ada Lovelace", NAMES, rng)
        assert made is not None
        assert made.filled(made.answers) == TEXT
        assert [f"[mask {place}]" in made.text for place in range(1, 6)] == [
            place <= len(made.answers) for place in range(1, 6)
        ]
        seen |= set(made.answers)
        sizes.add(len(made.answers))
    assert seen == {"Charles Babbage", "1833", "Mary Somerville", "London"}, "Babbage stands there twice"
    assert sizes == {2, 3, 4} or sizes == {1, 2, 3, 4}, "four draws with replacement"
    assert mask_entities("London is old.", "London", ["London"], rng) is None
    assert mask_entities("Rome, near London", "London", ["Rome"], rng) is None, "a mask would begin it"
    assert mask_entities("Rome is old.", "London", ["Rome"], rng) is None, "the title is not there"


@exact
def longer_names_and_numbers_are_likelier() -> None:
    """Chances are proportional to words; a number has that of the longest: 2 : 2 : 1 of three candidates."""
    rng, text = np.random.default_rng(1), "Ada met Mary Somerville in 1833 in London."
    drawn = [mask_entities(text, "Ada", ["Mary Somerville", "1833", "London"], rng, number=1) for _ in range(2000)]
    counts = Counter(each.answers[0] for each in drawn if each is not None)
    shares = [counts[name] / 2000 for name in ("Mary Somerville", "1833", "London")]
    np.testing.assert_allclose(shares, [0.4, 0.4, 0.2], atol=0.04)


def walked(script: Any, seed: int = 0, **options: Any) -> tuple[Turns, Lexicon]:
    """Episodes of a script in all three seats."""
    world = Lexicon(**options)
    return Local().play(
        lambda: Lexicon(**options), Team(dict.fromkeys(world.agents, script)), Plan(groups=30, seed=seed)
    ), world


@exact
def masks_are_filled_by_searching() -> None:
    """Who knows in which line a relation stands fills every mask with one search each, and a question with two."""
    script = ScriptedPolicy(team(0.0), name="teacher")
    for task, each in (("masks", 1), ("questions", 2)):
        turns, _ = walked(script, task=task)
        ends = turns.frame.group_by("group").agg(pl.col("success").last(), pl.sum("searched"), pl.col("masks").last())
        assert ends["success"].all()
        assert (ends["searched"] == each * ends["masks"]).all()
    blind = ScriptedPolicy(lambda request: "answer", name="teacher")
    assert not walked(blind)[0].frame["success"].any(), "without a search nothing is found"


def told(iteration: int, policy: Any, *, errs: float = 0.2) -> Context:
    """Context of a stage whose adviser errs."""
    seats = Team(dict.fromkeys(Lexicon().agents, policy))
    advisers = {"teacher": ScriptedPolicy(team(errs), name="teacher")}
    return Context(np.random.default_rng(iteration), iteration, Lexicon, seats, Local(), advisers=advisers)


def demonstrated(stage: evolving_teacher, iteration: int, policy: Any) -> pl.DataFrame:
    """Rows of a stage that another one than the learner played."""
    context = told(iteration, policy)
    plan = stage.plan(Plan(groups=6, group_size=8, seed=3, iteration=iteration), context)
    frame = stage(Local().play(Lexicon, context.team, plan), context).frame
    return frame.filter(pl.col("source") != "policy")


@exact
def only_right_fills_are_kept() -> None:
    """Of the team's episodes those are learned from whose fills are all right: its three seats, and no others."""
    net = MLPPolicy(9, 10, hidden=(4,), name="net")
    rows = demonstrated(evolving_teacher("teacher", keep="success"), 1, net)
    right = pl.col("success").fill_null(False).any().over("group", "episode")
    assert (rows["loss_mask"] == rows.select(right)["success"]).all()
    assert 0 < rows["loss_mask"].mean() < 1  # type: ignore[operator]
    assert set(rows.filter("loss_mask")["agent"].cast(pl.String)) == set(Lexicon().agents)


@exact
def the_tuned_model_teaches_next() -> None:
    """From iteration 3 on rows say that a copy of the learner played them, which stays as it was when it was made."""
    net = MLPPolicy(9, 10, hidden=(4,), name="net")
    stage = evolving_teacher("teacher", after=2, every=2)
    sources = []
    for iteration in range(1, 7):
        rows = demonstrated(stage, iteration, net)
        sources.append((rows["source"].unique().to_list(), stage.since))
    assert sources == [(["teacher"], 0)] * 2 + [(["tuned"], 3)] * 2 + [(["tuned"], 5)] * 2
    with torch.no_grad():
        for each in net.parameters():
            each += 1.0  # type: ignore[misc]
    again = evolving_teacher("teacher", after=2, every=2)
    again.load_state_dict(stage.state_dict())
    a, b = (demonstrated(each, 6, net)["action"].to_list() for each in (stage, again))
    assert a == b
    assert stage.copied is not None
    copied: Any = stage.copied.policies["net"]
    pairs = zip(copied.module.parameters(), net.module.parameters(), strict=True)
    assert all(float((one - other).detach().abs().max()) > 0.5 for one, other in pairs)


@exact
def answer_and_form_are_paid() -> None:
    """A right answer in form 1.1, a wrong one in form .1, none that can be read 0; only on the last row."""
    rows = {"group": [0] * 4, "episode": [0, 0, 1, 2], "turn": [0, 1, 0, 0], "agent": ["planner"] * 4}
    facts = {"success": [None, True, False, False], "parsed": [None, True, True, False]}
    np.testing.assert_allclose(np.asarray(masksearch_reward().evaluate(Turns(rows | facts)), float), [0, 1.1, 0.1, 0])
    turns, _ = walked(ScriptedPolicy(team(0.3), name="teacher"))
    paid = np.asarray(masksearch_reward().evaluate(turns), float)
    ends = turns.frame.with_columns(paid=pl.Series(paid)).filter(pl.col("parsed").is_not_null())
    assert set(ends["paid"].round(6)) == {0.0, 0.1, 1.1}


@exact
def one_mask_first_and_four_last() -> None:
    """The number of masks that is played: one, up to two, up to three, up to four, as the stages begin."""
    (stage,) = build(STAGES[:1])
    script = ScriptedPolicy(team(0.0), name="teacher")
    most = []
    for iteration in (1, 5, 6, 10, 11, 15, 16, 20):
        plan = stage.plan(Plan(groups=16, group_size=1, seed=5, iteration=iteration), told(iteration, script))
        played = Local().play(Lexicon, Team(dict.fromkeys(Lexicon().agents, script)), plan)
        most.append(int(played.frame["masks"].max()))  # type: ignore[arg-type]
    assert most == [1, 1, 2, 2, 3, 3, 4, 4]
