"""[204] CRAFT-GUI (arXiv 2508.11360): tasks in stages from easy to hard, and a reward in parts.

The world `taps`: a task of length L needs L right taps in a row, L from 1 to 6; screens are shared, so that a short one
teaches a long one. A linear network by the recipe `world`, credit by turn: rewards for right taps beside success,
against success alone; and tasks in stages of equal length (the stage `curriculum`), against all lengths from the start.
A negative result: stages give more groups a signal and end behind, since sampling from all has its easy tasks as well
and practises the long ones for longer. Both mechanisms are reconstructions. With GRPO's one number for an episode the
reward in parts does harm: who fails late is above the mean, and so is the tap that failed.
Left out: phones.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from palaestra.agents import Team
from palaestra.agents.scripted import random_legal
from palaestra.algebra.parse import parse
from palaestra.algebra.turns import Turns
from palaestra.envs.worlds import Taps
from palaestra.learning.stages.stage import Context
from palaestra.learning.stages.tasks import StagedCurriculum, curriculum
from palaestra.play.executors import Local
from palaestra.play.plan import Plan
from palaestra.play.rollout import rollout
from palaestra.rewards import hybrid_reward, ui_r1_reward
from palaestra_atlas.reproductions import Outcome, exact, reproduction, train_arms
from palaestra_atlas.verification.measures import Left, Measure

if TYPE_CHECKING:
    from palaestra.runs.inline import TrainingResult

LONGEST, ITERATIONS = 6, 40
EDGES = list(range(1, LONGEST))
STARTS = [ITERATIONS * edge // LONGEST + 1 for edge in EDGES]
HARD = {f"task of {length}": length for length in range(1, LONGEST + 1)}
PARTS = 'hybrid_reward("right", "success", is_last(over="episode"), weights=(0.5, 0.5))'
WORLD: dict[str, Any] = {
    "env": {"make": "native/taps"},
    "policies": {"table": {"kind": "mlp", "options": {"hidden": []}}},
    "credit": 'centre(return_to_go(gamma=1.0), over="turn")',
    "train": {"iterations": ITERATIONS, "groups": 8},
}
ARMS = {
    "uniform": WORLD,
    "staged": {**WORLD, "stages": [f"curriculum(edges={EDGES}, at_step={STARTS}, difficulty={HARD}, draws=12)"]},
    "parts": {**WORLD, "reward": PARTS},
}


@exact
def stages_get_harder() -> None:
    """Tasks that are planned need one tap in the first stage, at most two in the next, and any number in the last."""
    stage = curriculum(edges=EDGES, at_step=[2, 3, 4, 5, 6], difficulty=HARD, draws=12)
    means = []
    for iteration in range(1, 8):
        plan = stage.plan(Plan(groups=6, iteration=iteration), _context(iteration))
        lengths = []
        for seed in plan.env_seeds or ():
            env = Taps()
            env.reset(int(seed or 0))
            lengths.append(env.state.length)
        assert max(lengths) <= iteration
        means.append(np.mean(lengths))
    assert means[0] == 1
    assert means[-1] > means[2] > means[1] >= 1
    stages = StagedCurriculum({"a": 1, "b": 2}, edges=(1,), at_success=0.8)
    assert (stages.tasks(), stages.newest()) == (["a"], ["a"])
    stages.report(0.9)
    assert stages.tasks() == ["a", "b"]


@exact
def rule_and_judge() -> None:
    """A rule's points in parts; on tasks that no rule decides the judge's score, on no others."""
    turns = Turns(
        {
            "action_type": ["click", "click", "type", "type"], "gold_type": ["click", "click", "type", "type"],
            "point": [[1.0, 1.0], [9.0, 9.0], None, None], "target_box": [[0.0, 0.0, 2.0, 2.0]] * 2 + [None] * 2,
            "judged": [0.9, 0.9, 0.25, 1.0], "needs_judge": [False, False, True, True],
            "success": [True, False, False, True],
        }
    )  # fmt: skip
    rule = ui_r1_reward("action_type", "gold_type", "point", "target_box")
    paid = np.asarray(hybrid_reward(rule, "judged", "needs_judge").evaluate(turns))
    np.testing.assert_allclose(paid, [2, 1, 2.25, 3])


@exact
def taps_are_paid() -> None:
    """Play of the env of the use: half for each right tap and half at the end for all; credit is centred by turn."""
    turns = rollout(Taps, Team(user_agent=random_legal()), groups=120, seed=0)
    turns = turns.with_column(reward=parse(PARTS))
    frame = turns.frame.with_columns(last=pl.col("turn") == pl.col("turn").max().over("group", "episode"))
    right, done = frame["right"].cast(float).to_numpy(), (frame["success"] & frame["last"]).cast(float).to_numpy()
    np.testing.assert_allclose(frame["reward"], 0.5 * right + 0.5 * done)
    frame = turns.with_column(credit=parse(WORLD["credit"])).frame
    np.testing.assert_allclose(frame.group_by("turn").agg(pl.col("credit").mean())["credit"], 0, atol=1e-9)


def _context(iteration: int) -> Context:
    return Context(np.random.default_rng(iteration), iteration, Taps, Team(user_agent=random_legal()), Local())


def long_tasks() -> Measure:
    """Success of the trained policy on held-out tasks of five and six taps, per seed."""

    def measured(left: Left) -> list[float]:
        found = []
        for seed in left.seeds():
            table = pl.read_parquet(seed / "evaluation.parquet").filter(
                pl.col("system") == "after", pl.col("task").cast(pl.String).is_in(["task of 5", "task of 6"])
            )
            found.append(float(table["success"].drop_nulls().cast(float).mean()))  # type: ignore[arg-type]
        return found

    return measured


def hard(learned: TrainingResult) -> dict[str, float]:
    """Chance of the trained policy to solve tasks of 5 and 6 taps, exactly."""
    env, policy = Taps(), learned.team["user_agent"]
    env.reset(0)
    env.state.length, seen = LONGEST, []
    for env.state.done in range(LONGEST):
        seen.append(env.look()["user_agent"])
    chance = policy.choice_probabilities(seen)[0]  # type: ignore[attr-defined]
    return {"hard": float(chance[range(LONGEST), env.right].cumprod()[4:].mean())}


@reproduction(
    204,
    claim="A reward in parts leaves fewer groups without a signal than success alone, and teaches hard tasks "
    "sooner; stages from easy to hard leave fewer, too, and end behind on hard tasks.",
    baseline="success alone; tasks of all lengths from the start",
    criterion="fewer groups of constant reward with parts and with stages, in every seed; success on tasks of 5 and "
    "6 taps after 40 iterations more than twice as high with parts, lower with stages, in the mean (over three "
    "seeds at first; such tasks are only beginning to be solved then, on some seeds, and a fresh block failed)",
    seeds=tuple(range(12)),
    slow=True,
)
def measure(seeds: Sequence[int]) -> Outcome:
    """Success alone with and without stages, and parts without."""
    constant: dict[str, list[float]] = {name: [] for name in ARMS}

    def watch(arm: str, iteration: int, turns: Turns) -> None:
        paid = turns.frame.group_by("group", "episode").agg(pl.col("reward").sum().round(9))
        constant[arm].append(float((paid.group_by("group").agg(pl.col("reward").n_unique())["reward"] == 1).mean()))  # type: ignore[arg-type]

    arms = train_arms("world", ARMS, seeds, hard, on_turns=watch)
    flat = {name: np.reshape(each, (len(seeds), -1)).mean(axis=1) for name, each in constant.items()}
    measured = arms.measured() | {f"flat_{name}": float(each.mean()) for name, each in flat.items()}
    uniform, staged, parts = (arms.mean(name, "hard") for name in ARMS)
    signals = (flat["parts"] < flat["uniform"]).all() and (flat["staged"] < flat["uniform"]).all()
    return Outcome(measured, bool(signals and parts > 2 * uniform and staged < uniform))
