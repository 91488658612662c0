"""[83] R³ (arXiv 2601.19620): a group that failed as a whole is shown a success from the past, and the other way round.

Four tasks, 64 answers each, one of them right, a table of logits. Both arms are the recipe `answers`; one has the stage
`replay()` and the credit `r3()`, by their defaults. What reflection shows and how the ranking by entropy orders
failures is worked out by hand. Left out: language models that make something of a reflection.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import polars as pl

from palaestra import envs
from palaestra.agents import ScriptedPolicy, Team
from palaestra.algebra.signals import is_missing
from palaestra.algebra.turns import Turns
from palaestra.credit import entropy_rank_reward, inject, r3, reflections, remember
from palaestra.learning.stages import Context
from palaestra.learning.stages.reflect import reflect
from palaestra.learning.stages.replay import replay
from palaestra.play.executors import Local, Plan
from palaestra_atlas.reproductions import Outcome, exact, reproduction, train_arms

ARMS: dict[str, Any] = {"r3": {"stages": ["replay()"], "credit": "r3()"}, "grpo": {"credit": "grpo()"}}
WORLD: dict[str, Any] = {"env": {"options": {"tasks": 4, "answers": 64}}, "train": {"iterations": 100, "groups": 4}}


@exact
def ranked_failures() -> None:
    """The card's four failures: their rewards by dominance, and what the credit makes of them."""
    for ties, expected in (("average", [5 / 6, 0, 5 / 6, 1 / 3]), ("ordinal", [1, 0, 2 / 3, 1 / 3])):
        found = entropy_rank_reward(ties=ties).evaluate(failures())  # type: ignore[arg-type]
        np.testing.assert_allclose(np.asarray(found), expected, atol=1e-9)
    assert ranked_error() <= 1e-9


@exact
def half_scores() -> None:
    """Failures score up to .2; of 10 and 15 tokens the top 2 and 3 are the peak; one without a score is not ranked.

    Peaks 2, 1.5 and 3, means .72, .78 and 1.32: the first beats the second; the third, of the highest peak and mean,
    beats nobody and is beaten by nobody. Rewards 2, .5, .5.
    """
    tokens = [[0.4] * 8 + [1.2, 2.8], [0.6] * 12 + [1.5] * 3, [0.9] * 8 + [3.0] * 2, [0.1] * 9 + [50.0]]
    keys = {"group": [0] * 4, "episode": range(4), "turn": [0] * 4, "agent": ["a"] * 4, "entropies": tokens}
    turns = Turns(
        keys | {"score": [0.2, 0.0, 0.1, None], "replayed": [False, False, True, False], "truncated": [False] * 4}
    )
    found = np.asarray(r3("score", failed=0.2, top=0.2, best=2.0, off_policy=0.5).evaluate(turns))
    rank = np.array([2.0, 0.5, 0.5])
    expected = (rank - rank.mean()) / (rank.std(ddof=1) + 1e-6) * [1.0, 1.0, 0.5]
    np.testing.assert_allclose(found, [*expected, np.nan], atol=1e-9)
    ranked = np.asarray(entropy_rank_reward(top=0.2, best=2.0, among=~is_missing("score")).evaluate(turns))
    np.testing.assert_allclose(ranked, [2.0, 0.5, 0.5, np.nan], atol=1e-9)


@exact
def unscored_left_out() -> None:
    """An episode without a score makes no group mixed and is not kept; of each outcome the last ones are."""
    past = outcomes([[1, 0, 0, 1, np.nan]], ["x"])
    buffer = remember(None, past, last=1)
    assert buffer.frame.select("reward").to_series().to_list() == [0.0, 1.0]
    wholes = [inject(outcomes([[r, np.nan]], ["x"]), buffer, np.random.default_rng(0)).frame for r in (1.0, 0.0)]
    added = [whole.filter("replayed")["reward"].to_list() for whole in wholes]
    assert added == [[0.0], [1.0]]
    wrong = remember(None, outcomes([[0, 0]], ["x"]).with_column(action=["one", "other"]))
    drawn = {reflections(wrong, np.random.default_rng(seed), template="{answer}")["x"] for seed in range(20)}
    assert drawn == {"one", "other"}


@exact
def opposite_joins() -> None:
    """Through the stage: a group that failed gets a past success of its task, one that solved it a past failure."""
    stage = replay(k=1)
    stage(outcomes([[1, 0], [0, 1]], ["x", "y"]), around(1))
    mixed = stage(outcomes([[0, 0], [1, 1], [1, 0], [0, 0]], ["x", "y", "x", "z"]), around(2)).frame
    added = mixed.filter("replayed").sort("group")
    assert added.select("group", "task", "reward").rows() == [(0, "x", 1.0), (1, "y", 0.0)]


@exact
def mixed_group() -> None:
    """Three failures and a replayed success: mean 1/4 and deviation 1/2 of all four; the success by alpha."""
    table = outcomes([[0, 0, 0, 1]], ["x"]).with_column(replayed=[False] * 3 + [True])
    for alpha in (1.0, 0.3):
        found = np.asarray(r3(off_policy=alpha, ranked=False).evaluate(table))
        np.testing.assert_allclose(found, [-0.5, -0.5, -0.5, 1.5 * alpha], atol=1e-5)


@exact
def reflection_read() -> None:
    """After the first epoch who plays a failed task again reads its wrong answer; at first, and elsewhere, nobody."""
    stage, found = reflect(template="Not {answer}!"), []
    for iteration in (1, 2):
        context = around(iteration)
        plan = stage.plan(Plan(groups=6, group_size=4, iteration=iteration), context)
        found.append(stage(context.executor.play(context.env, context.team, plan), context).frame)
    prompts = [frame.filter(pl.col("observation").str.starts_with("Not answer 0!")) for frame in found]
    failed = set(found[0].filter(~pl.col("success"))["task"])
    hard = found[1].filter(pl.col("task").is_in(failed) & (pl.col("episode") >= 2))
    assert len(failed) == 1
    assert len(hard) > 0
    assert [len(each) for each in prompts] == [0, len(hard)]
    assert set(prompts[1]["task"]) == failed


def outcomes(rewards: Sequence[Sequence[float]], tasks: Sequence[str]) -> Turns:
    """Groups of one-turn episodes with these rewards, each group of one task."""
    rows = [(g, e, r, tasks[g]) for g, group in enumerate(rewards) for e, r in enumerate(group)]
    group, episode, reward, task = zip(*rows, strict=True)
    keys = {"group": group, "episode": episode, "turn": [0] * len(rows), "agent": ["a"] * len(rows)}
    scores = pl.Series(np.array(reward, float), nan_to_null=True)
    return Turns(keys | {"task": task, "reward": scores, "action": ["said"] * len(rows)})


def around(iteration: int) -> Context:
    """Two tasks of two answers, of which the player always takes the first, right in one task only."""
    env = envs.make("native/answers", tasks=2, answers=2, draw=2)
    team = Team(answerer=ScriptedPolicy(lambda request: 0, name="first"))
    return Context(np.random.default_rng(iteration), iteration, env, team, Local())


def failures() -> Turns:
    """The card's four failures with the entropies of their tokens."""
    entropies = [
        [0.1, 0.2, 0.1, 3, 0.1, 0.2, 0.1, 0.2, 0.1, 0.2],
        [0.8, 0.9] * 5,
        [0.2, 0.3, 0.2, 2, 0.2, 0.3, 0.2, 0.3, 0.2, 0.3],
        [0.5] * 3 + [1.5] + [0.5] * 6,
    ]
    keys = {"group": [0] * 4, "episode": range(4), "turn": [0] * 4, "agent": ["a"] * 4, "reward": [0.0] * 4}
    marks = {"replayed": [False] * 4, "truncated": [False] * 4}
    return Turns(keys | marks | {"entropies": entropies})


def ranked_error() -> float:
    """Four failures with the card's entropies: ranks by dominance 1, 0, 1, 1/3, ties averaged, standardised."""
    found = np.asarray(r3().evaluate(failures()))
    rank = np.array([5 / 6, 0, 5 / 6, 1 / 3])
    return float(np.abs(found - (rank - rank.mean()) / (rank.std(ddof=1) + 1e-6)).max())


@reproduction(
    83,
    claim="Replaying past episodes of the opposite outcome into groups without variance gives them a gradient and "
    "speeds learning; groups that failed as a whole are told apart by their entropies.",
    baseline="GRPO without replay, same episodes and learning rate",
    criterion="ranked credit of four failures to 1e-9; mean success over training higher in at least four fifths of "
    "the seeds, on average by 0.05",
    seeds=tuple(range(2000, 2006)),
    slow=True,
)
def measure(seeds: Sequence[int]) -> Outcome:
    """Worked ranks, then both arms."""
    arms = train_arms(
        "answers", {name: WORLD | arm for name, arm in ARMS.items()}, seeds,
        lambda learned: {"curve": float(np.mean(learned.curve()))},
    )  # fmt: skip
    gain, error = arms.gain("r3", "grpo", "curve")
    better = float(np.mean(arms.values["r3"]["curve"] > arms.values["grpo"]["curve"]))
    measured = {"ranked_error": ranked_error()} | arms.measured()
    measured |= {"gain": gain, "standard_error": error, "seeds_better": better}
    return Outcome(measured, measured["ranked_error"] <= 1e-9 and better >= 0.8 and gain >= 0.05)
