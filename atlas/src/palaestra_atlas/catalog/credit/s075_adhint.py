"""[75] ADHint (arXiv 2512.13095): a task that is never solved by chance is learned from prefixes of its solution.

A lock of 8 steps with 4 numbers each opens for one combination: by chance once in 65,536 episodes. The stage `hints`
plays half of each group after a forced prefix of the solution, as long as the task is hard. Left out: language models.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl

from palaestra.agents import TabularPolicy, Team
from palaestra.algebra.turns import Turns
from palaestra.credit import adhint, hint_ratio
from palaestra.envs import make
from palaestra.learning.stages.hints import hints
from palaestra.learning.stages.stage import Context
from palaestra.play.executors import Local, Plan
from palaestra_atlas.reproductions import Outcome, exact, reproduction, train_arms

SETTING = {
    "env": {"make": "native/lock"},
    "learn": {"lr": 0.2},
    "train": {"iterations": 60, "groups": 1, "group_size": 16},
}


def table(naive: Sequence[float], hinted: Sequence[float], entropy: tuple[float, float] = (0.7, 0.7)) -> Turns:
    """Episodes of two turns, of which hinted ones are forced in the first; entropies of the first and second turn."""
    score = np.array([*naive, *hinted])
    episode, turn = (axis.ravel() for axis in np.indices((len(score), 2)))
    shown = episode >= len(naive)
    keys = {"group": episode * 0, "episode": episode, "turn": turn, "agent": ["a"] * len(turn)}
    facts = {"hinted": shown, "hint": shown & (turn == 0), "entropy": np.array(entropy)[turn]}
    return Turns(keys | facts | {"reward": np.where(turn == 1, score[episode], 0.0), "score": score[episode]})


@exact
def forced_turns() -> None:
    """The forced turn of a failure has no credit, that of a success exp(-|.2 - .7|) of it; the others are unchanged."""
    turns = table([1.0, 0.0], [1.0, 0.0], entropy=(0.2, 0.7))
    half = np.sqrt(0.5)
    expected = np.array([half, half, -half, -half, half * np.exp(-0.5), half, 0.0, -half])
    np.testing.assert_allclose(np.asarray(adhint(entropy="entropy").evaluate(turns)), expected, atol=1e-4)


@exact
def branches() -> None:
    """Each branch is normalised by its own mean and deviation: one success of four without a hint, three with one.

    What succeeds without a hint and what fails despite one counts 1 + (.75 - .25) times, once where hints do not help.
    """
    credit = np.asarray(adhint(entropy="entropy").evaluate(table([1.0, 0, 0, 0], [1.0, 1, 1, 0])))[1::2]
    np.testing.assert_allclose(credit, [2.25, -0.5, -0.5, -0.5, 0.5, 0.5, 0.5, -2.25], atol=1e-4)
    capped = adhint(entropy="entropy", cap=0.2).evaluate(table([1.0, 0, 0, 0], [1.0, 1, 1, 0]))
    np.testing.assert_allclose(np.asarray(capped)[[1, -1]], [1.8, -1.8], atol=1e-4)
    useless = np.asarray(adhint(entropy="entropy").evaluate(table([1.0, 1, 1, 0], [1.0, 0, 0, 0])))[1::2]
    np.testing.assert_allclose(useless, [0.5, 0.5, 0.5, -1.5, 1.5, -0.5, -0.5, -0.5], atol=1e-4)


@exact
def ratio() -> None:
    """A task solved in a quarter of the naive episodes is shown to .55, with .1 to .7; one never solved to .7."""
    found = np.asarray(hint_ratio("score").evaluate(table([1.0, 0, 0, 0], [1.0, 1, 1, 1])))
    np.testing.assert_allclose(found, 0.55, atol=1e-9)
    np.testing.assert_allclose(np.asarray(hint_ratio("score").evaluate(table([0.0, 0.0], [1.0, 1.0]))), 0.7, atol=1e-9)


def hinted(stage: hints, *, solved: bool = False, groups: int = 1) -> pl.DataFrame:
    """Turns of a lock after the stage; what was played without a hint counts as solved or not."""
    env, team = make("native/lock"), Team(opener=TabularPolicy(4))
    context = Context(np.random.default_rng(0), 1, env, team, Local())
    turns = Local().play(env, team, stage.plan(Plan(groups=groups, group_size=8, iteration=1), context))
    return stage(turns.with_column(success=np.full(len(turns), solved)), context).frame


@exact
def first_part() -> None:
    """The stage plays half of a group after the first six of eight steps of a lock that nobody opens."""
    turns = hinted(hints())
    per_episode = turns.group_by("episode", maintain_order=True).agg(pl.col("hinted").first(), pl.col("hint").sum())
    assert per_episode.sort("episode")["hint"].to_list() == [0] * 4 + [6] * 4
    forced = turns.filter("hint")
    assert forced["action"].to_list() == forced["reference"].list.get(forced["turn"]).to_list()


@exact
def bounds_and_noise() -> None:
    """The forced part is the smallest, two steps of eight, where all succeed; with noise it differs between groups."""
    assert hinted(hints(low=0.25), solved=True)["hint"].sum() == 4 * 2
    parts = hinted(hints(low=0.5, high=0.5, noise=0.4), groups=4).group_by("group").agg(pl.col("hint").sum() // 4)
    assert parts["hint"].n_unique() > 1
    assert parts["hint"].is_between(1, 7).all()


@reproduction(
    75,
    claim="Hints as long as the task is hard, with right prefixes never unlearned, solve a task that is out of reach.",
    baseline="GRPO without hints",
    criterion="success without a hint at the end >= 0.9 with adaptive hints, <= 0.05 without any, means over the seeds",
    seeds=(0, 1, 2),
    slow=True,
)
def measure(seeds: Sequence[int]) -> Outcome:
    """Trained as by `palaestra train world env.make=native/lock stages="hints()" ...`."""
    arms = train_arms(
        "world",
        {
            "adaptive": SETTING | {"stages": ["hints()"], "credit": "adhint()"},
            "none": SETTING | {"credit": "grpo()"},
        },
        seeds,
        lambda learned: {"solved": learned.play(groups=1, group_size=200, seed=1)["success"].mean()},
    )
    return Outcome(arms.measured(), arms.mean("adaptive", "solved") >= 0.9 and arms.mean("none", "solved") <= 0.05)
