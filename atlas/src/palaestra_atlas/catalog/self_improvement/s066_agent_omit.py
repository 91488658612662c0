"""[66] Agent-Omit (arXiv 2602.04284): actions that leave out earlier responses and thoughts, and are paid for it.

A world of pages instead of five benchmarks, a table instead of an 8B model, lengths in characters instead of tokens.
"""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from palaestra.agents import LMPolicy, ScriptedPolicy, TabularPolicy, Team
from palaestra.agents.policy import Request
from palaestra.algebra.turns import Turns
from palaestra.envs.worlds import Dossier
from palaestra.learning import PolicyGradient
from palaestra.learning.stages import Context
from palaestra.learning.stages.demonstrate import demonstrate
from palaestra.learning.stages.omission_turns import omission_turns
from palaestra.play.executors import Local, Plan
from palaestra.rewards import omission_reward
from palaestra.teams import omission
from palaestra_atlas.reproductions import exact
from palaestra_atlas.verification.measures import Left, Measure

TAG = "<omit {number}>"
"""A short tag, as a table does not care and a small language model learns it sooner."""
FLOW = f"omission(replies=False, tag={TAG!r})"


def teacher(share: float = 0.3, thoughts: float = 0.7) -> Any:
    """Script that says the code if it reads one; `share` and `thoughts`: chances to omit the response, and to think."""

    def play(request: Request) -> int:
        seen, rng = request.observation, request.rng
        codes = [each for each in seen.legal if not each.startswith("<")]
        found = [at for at, code in enumerate(codes) if f"the code is {code}" in seen.text]
        said = found[0] if found else int(rng.integers(len(codes)))
        return said + len(codes) * int(rng.random() < thoughts) + 2 * len(codes) * int(rng.random() < share)

    return play


def made(*, cold: int = 8, iterations: int = 120, groups: int = 8, size: int = 16) -> dict[str, Any]:
    """The recipe. cold: iterations of cloning synthesised omission turns."""
    return {
        "name": "omit",
        "env": {"make": "native/dossier", "workflow": FLOW},
        "policies": {
            "table": {"kind": "tabular", "options": {"actions": 8}},
            "teacher": {"kind": "script", "options": {"script": f"{__name__}:teacher"}},
        },
        "team": {"reader": "table"},
        "reward": "omission_reward()",
        "credit": "grpo()",
        "learn": {"lr": 0.2, "terms": "surrogate()"},
        "phases": [
            {
                "name": "cold", "until": cold, "stages": ["demonstrate('teacher', keep='success')"],
                "learn": {"terms": 'clone(column="loss_mask")'},
            },
            {"name": "omit", "stages": ["omission_turns()"], "credit": "grpo() * col('sampled')"},
        ],
        "train": {
            "iterations": iterations, "groups": groups, "group_size": size, "evaluate_every": iterations,
            "checkpoint_every": iterations, "save_turns": "all",
        },
        "evaluation": {"tasks": 200, "trials": 1, "look_tasks": 5, "look_trials": 1},
    }  # fmt: skip


def recipe(seed: int, folder: Path) -> None:
    """Writes `omit.yaml`."""
    (folder / "omit.yaml").write_text(json.dumps(made()))


def left_out_at_success() -> Measure:
    """Percent of thoughts and responses that were omitted in held-out episodes; an episode that fails counts as 0."""

    def measured(left: Left) -> list[float]:
        found = []
        for seed in left.seeds():
            table = pl.read_parquet(seed / "evaluation.parquet").filter(pl.col("system") == "after")
            won = pl.col("success").fill_null(False).any().over("task", "group", "episode")
            both = (pl.col("omitted").list.len() > 0).cast(float) + (~pl.col("thought")).cast(float)
            found.append(100 * float(table.select(pl.when(won).then(both / 2).otherwise(0.0).mean()).item()))
        return found

    return measured


def pays(observation: list[float], thought: list[float], context: list[float], score: float, **options: Any) -> float:
    """Sum of an episode's rewards; its score comes with the last turn."""
    size = len(context)
    rows = {"episode": [0] * size, "agent": ["a"] * size, "reward": [0.0] * (size - 1) + [score], "context": context}
    turns = Turns(rows | {"saved_observation": observation, "saved_thought": thought})
    return float(np.asarray(omission_reward(**options).evaluate(turns), float).sum())


@exact
def saved_responses_are_paid() -> None:
    """With w = .2 a success that saved 300 of 1500 and 120 of 1600 earns .855, one without savings .8."""
    context, none = [1500.0, 1600.0], [0.0, 0.0]
    np.testing.assert_allclose(pays([300.0, 120.0], none, context, 1.0), 0.855)
    np.testing.assert_allclose(pays(none, none, context, 1.0), 0.8)


@exact
def saved_thoughts_are_paid() -> None:
    """An empty thought over ten messages of 1500 characters saves a tenth of them: .82; and both savings add up."""
    np.testing.assert_allclose(pays([0.0, 0.0], [150.0, 0.0], [1500.0, 1600.0], 1.0), 0.82)
    np.testing.assert_allclose(pays([300.0, 120.0], [150.0, 0.0], [1500.0, 1600.0], 1.0), 0.875)


@exact
def failures_earn_nothing() -> None:
    """A failed episode earns 0 whatever it left out; the gate of the code counts rewarded turns alone."""
    saved = [300.0, 120.0], [150.0, 0.0], [1500.0, 1600.0]
    assert pays(*saved, 0.0) == 0.0
    np.testing.assert_allclose(pays(*saved, 0.0, gate=None), 0.075)
    np.testing.assert_allclose(pays(*saved, 1.0, gate="step"), 0.815)


def world(**options: Any) -> Any:
    """A dossier that is read again and again."""
    return omission(functools.partial(Dossier, **options), replies=False, tag=TAG)()


def episode(choose: Any, **options: Any) -> pl.DataFrame:
    """Rows of one episode in which `choose` says the action from the number of the page."""
    page = lambda request: int(request.observation.text.rsplit("page ", 1)[1].split(":")[0])  # noqa: E731
    play = ScriptedPolicy(lambda request: choose(page(request)))
    return Local().play(functools.partial(world, **options), Team(reader=play), Plan(groups=1)).frame


@exact
def what_was_left_out_is_read_no_more() -> None:
    """Page 3 with the code is left out in turn 3: until then it is read, from then on it is a placeholder."""
    kept, cut = episode(lambda page: 2), episode(lambda page: 2 + 4 * (page == 3))
    has = lambda frame: frame["observation"].str.contains("the code is").to_list()  # noqa: E731
    assert has(kept) == [False] * 2 + [True] * 6
    assert has(cut) == [False] * 2 + [True] + [False] * 5
    assert cut["omitted"].list.len().to_list() == [0, 0, 1, 0, 0, 0, 0, 0]
    assert cut["context"].to_list()[:3] == kept["context"].to_list()[:3]
    page = cut["saved_observation"][2]
    marker = len("<omitted_tool_response_3></omitted_tool_response_3>")
    assert [a - b for a, b in zip(kept["context"], cut["context"], strict=True)][3:] == [page - marker] * 5


@exact
def an_empty_thought_saves_a_message() -> None:
    """In turn t, from 1, a message has the mean length of t messages; a turn with a thought saves nothing."""
    frame = episode(lambda page: 2 if page == 4 else 0)
    share = (frame["saved_thought"] / frame["context"]).to_numpy()
    np.testing.assert_allclose(share, [1, 1 / 2, 1 / 3, 0, 1 / 5, 1 / 6, 1 / 7, 1 / 8])


def sampled() -> tuple[pl.DataFrame, Context]:
    """Play of a table after the stage: eight groups of twelve episodes."""
    team = Team(reader=TabularPolicy(8, name="table"))
    told = Context(np.random.default_rng(0), 1, world, team, Local())
    stage = omission_turns(share=0.5)
    plan = stage.plan(Plan(groups=8, group_size=12, seed=1), told)
    return stage(Local().play(world, team, plan), told).frame, told


@exact
def omission_turns_are_sampled_in_both_contexts() -> None:
    """Of 96 episodes 48 are full and 48 have one learned turn, before an omission or after it, in its own context."""
    frame, told = sampled()
    assert frame.select("group", "episode").n_unique() == 96
    rows = frame.filter(pl.col("sampled") & (pl.col("view") != "full"))
    counts = dict(rows.group_by("view").len().iter_rows())
    before, after = counts.get("before", 0), counts.get("after", 0)
    assert before + after == 48, counts
    assert before >= 24, counts
    assert after >= 12, counts
    for (group,), part in frame.filter(pl.col("view") != "full").group_by("group", maintain_order=True):
        own = part.filter("sampled")
        assert own["observation"].n_unique() == 1, group
        start = own["turn"][0]
        number, view = start + (own["view"][0] == "before"), own["view"][0]
        gone = own["observation"][0].count(f"<omitted_tool_response_{number}>")
        assert gone == (view == "after"), (view, own["observation"][0])
    assert told.metrics["before"] == before


@exact
def a_language_model_learns_to_omit_from_examples() -> None:
    """An untrained language model leaves nothing out; after the cold start some of its first replies do."""
    small = functools.partial(world, pages=3, clue=0, words=0)
    choices = Dossier(pages=3).choices
    texts = [f"{tag}{each}" for tag in ("", *(TAG.format(number=at) for at in (1, 2, 3))) for each in choices]
    policy = LMPolicy.tiny([*texts, "page 1: the code is red", "page 2:", "page 3:"], seed=0, max_new_tokens=16)
    team = Team(reader=policy)
    adviser = ScriptedPolicy(teacher(0.7), name="teacher")
    told = Context(np.random.default_rng(0), 1, small, team, Local(), advisers={"teacher": adviser})

    def omitted() -> int:
        return int((Local().play(small, team, Plan(8, 2)).frame["omitted"].list.len() > 0).sum())

    assert omitted() == 0
    stage, learner = demonstrate("teacher", keep="success"), PolicyGradient(team, 'clone(column="loss_mask")', lr=0.003)
    for seed in range(45):
        plan = stage.plan(Plan(8, 4, seed), told)
        shown = stage(Local().play(small, team, plan), told)
        learner.update(Turns(shown.frame.with_columns(advantage=pl.lit(0.0))))
    assert omitted() >= 3, omitted()
