"""[82] AgentEvolver (arXiv 2511.10395): tasks of its own beside the given ones, and step flags beside the outcome.

Sums instead of apps: a script proposes them, noise and repetitions among them, and code answers them. Flags are those
of a lock that knows its numbers. Left out: exploration and experience that a model summarises, judges of own tasks,
and a weight of the flags that shrinks.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence

import numpy as np
import polars as pl
import torch

from palaestra.agents import ScriptedPolicy, TabularPolicy, Team
from palaestra.agents.policy import Request
from palaestra.algebra.parse import parse
from palaestra.algebra.turns import Turns
from palaestra.credit import agent_evolver
from palaestra.envs.questions import solve
from palaestra.envs.tasks import Task, TaskEnv
from palaestra.envs.worlds import Lock
from palaestra.learning import PolicyGradient, Trainer
from palaestra.learning.play import PlayOnly
from palaestra.learning.stages import Context
from palaestra.learning.stages.experience import experience
from palaestra.learning.stages.task_table import task_table
from palaestra.learning.terms import MicroBatch, boosted
from palaestra.play.executors import Local, Plan
from palaestra.play.rollout import rollout
from palaestra.teams import proposer
from palaestra_atlas.reproductions import Outcome, exact, reproduction

PROPOSALS = ("12 - 5 =", "what?", "12 + 5 =", "8 + 8 =", "8 + 8 =", "gcd", "7 + 1 + 2 =", "7 + 2 + 1 =")


class Given(TaskEnv):
    """Sums with one, for numbers below five."""

    def draw(self, seed: int) -> Task:
        """The sum of this seed."""
        number = seed % 5
        return Task(f"given:{number}", f"{number} + 1 =", lambda said: float(int(said) == number + 1), str(number + 1))


def played(given: float = 0.5, groups: int = 40) -> tuple[pl.DataFrame, pl.DataFrame]:
    """The table of tasks and the turns of one iteration of play."""
    turn, turns = iter(PROPOSALS * groups), []

    def play(request: Request) -> str:
        if request.agent == "proposer":
            return next(turn)
        answer = solve(request.observation.text)
        return "none" if answer is None else answer

    env, stage = proposer(Given, 2, given=given), task_table(alike=0.8)
    team = Team(dict.fromkeys(env().agents, ScriptedPolicy(play)))
    Trainer(
        env, team, credit=parse("reward"), learner=PlayOnly(team), stages=[stage], iterations=1, groups=groups,
        group_size=2, reward=parse("proposer_reward('learnability', repeated=-2.0)"),
        on_turns=lambda iteration, made: turns.append(made.frame),
    ).run()  # fmt: skip
    return stage.table, turns[0]


@exact
def own_tasks_are_mixed_with_the_given() -> None:
    """About half of the episodes answer given tasks, the others proposals, each of which has a given task as parent."""
    tasks, turns = played(given=0.5)
    episodes = turns.group_by("group", "episode").agg(pl.col("agent").cast(pl.String).is_in(["proposer"]).any())
    share = float(episodes["agent"].cast(pl.Float64).mean())  # type: ignore[arg-type]
    assert 0.25 < share < 0.75, share
    accepted = tasks.filter(source="proposer", status="accepted")
    assert len(accepted) >= 3
    assert set(accepted["parent"]) <= set(tasks.filter(source="env")["id"])
    assert tasks.filter(source="env")["n"].sum() > 0


@exact
def infeasible_proposals_are_refused() -> None:
    """Proposals without an answer are refused with the reason, and every accepted one is solvable."""
    tasks, turns = played(given=0.0)
    status = dict(tasks.filter(source="proposer").select("text", "status").rows())
    assert {status.get("what?"), status.get("gcd")} == {"refused"}
    assert tasks.filter(status="refused")["why"].null_count() == 0
    accepted = tasks.filter(source="proposer", status="accepted")
    assert float((accepted["difficulty"] == 1.0).mean() or 0.0) == 0.0  # type: ignore[arg-type]
    assert turns.filter(pl.col("proposal") == "what?")["reward"].unique().to_list() == [-1.0]


@exact
def repeated_proposals_are_not_paid() -> None:
    """A proposal with at least .8 of its words in common with an earlier one counts as repeated."""
    _, turns = played(given=0.0, groups=4)
    said = turns.filter(pl.col("proposal").is_not_null()).select("proposal", "repeats", "reward")
    first = {"12 - 5 =": 0.0, "12 + 5 =": 0.0, "7 + 1 + 2 =": 0.0, "7 + 2 + 1 =": 1.0}
    assert {text: count for text, count in said.select("proposal", "repeats").rows() if text in first} == first
    assert sorted(said.filter(proposal="8 + 8 =")["repeats"]) == [0.0, 1.0]
    assert sorted(said.filter(proposal="8 + 8 =")["reward"]) == [-2.0, 0.0]


def reader(request: Request) -> str:
    """Does what an experience of the same task says, else guesses."""
    seen = request.observation.text
    task = seen.rpartition("\n\n")[2]
    known = re.search(rf"^experience: {re.escape(task)}: (.*)$", seen, re.MULTILINE)
    return known[1] if known else str(request.rng.integers(1, 6))


def with_experience() -> tuple[pl.DataFrame, pl.DataFrame]:
    """Turns of two iterations of play with experience in half of each group."""
    stage, team, tables = experience(k=1), Team(solver=ScriptedPolicy(reader, name="solver")), []
    for iteration in (1, 2):
        told = Context(np.random.default_rng(iteration), iteration, Given, team, Local())
        plan = stage.plan(Plan(groups=8, group_size=8, seed=3, iteration=iteration, env_seeds=list(range(8))), told)
        tables.append(stage(told.executor.play(Given, team, plan), told).frame)
    return tables[0], tables[1]


@exact
def part_of_a_group_has_experience() -> None:
    """Half of each group plays with what succeeded before, and solves what guessing hardly ever does; half without."""
    _, second = with_experience()
    by = second.group_by("group", "source").agg(pl.len(), pl.col("success").cast(pl.Float64).mean())
    shares = by.group_by("source").agg(pl.col("len").sum(), pl.col("success").mean())
    found = {source: (n, success) for source, n, success in shares.iter_rows()}
    assert found.get("experience", (0, 0.0))[0] == found["policy"][0] == 32, found
    assert found["experience"][1] > 0.9 > 0.5 > found["policy"][1], found


@exact
def experience_is_stripped() -> None:
    """No row that is learned from shows an experience, though the players of half of them read one."""
    _, second = with_experience()
    assert second["help"].is_not_null().sum() == 32
    assert not second["observation"].str.contains("experience").any()
    assert second.filter(helped=True)["rescored"].all()


@exact
def helped_rows_have_a_wider_clip() -> None:
    """At ratios of 1.5, 1.7 and .7 a helped row of advantage 1 grows up to 1.6, others to 1.28; -1 is cut at .8."""
    ratio = torch.tensor([[1.5], [1.7], [0.7], [1.5], [1.2], [1.5], [0.7]])
    credit = torch.tensor([[1.0], [1], [-1], [1], [1], [1], [-1]])
    told = {"helped": [True, True, True, False, False, None, False]}
    new = ratio.log().requires_grad_()
    piece = MicroBatch.of(new, old=torch.zeros(7, 1), advantage=credit, columns=told)
    (boosted()(piece) * 7).backward()
    grown = [round(each, 4) for each in (-new.grad).flatten().tolist()]  # type: ignore[operator, union-attr]
    assert grown == [1.5, 0, 0, 0, 1.2, 0, 0], "the ratio times the advantage, and nothing where it is cut"
    value = float(boosted()(piece).detach()) * 7
    assert abs(value + (1.5 + 1.6 - 0.8 + 1.28 + 1.2 + 1.28 - 0.8)) < 1e-5, value


@exact
def worked_advantages() -> None:
    """The numbers of both forms, worked out by hand: flags [[1, 1, 0], [0, 1]], outcomes [1, 0], α = .1."""
    turns = Turns(
        {
            "group": [0] * 5,
            "episode": [0, 0, 0, 1, 1],
            "turn": [0, 1, 2, 0, 1],
            "agent": ["a"] * 5,
            "flag": [True, True, False, False, True],
            "reward": [0.0, 0.0, 1.0, 0.0, 0.0],
        }
    )
    decoupled = np.asarray(agent_evolver(alpha=0.1).evaluate(turns))
    assert np.allclose(decoupled, [1.0507, 0.9662, 0.8817, -1.0338, -0.9155], atol=6e-5), decoupled
    other = turns.frame.with_columns(
        group=pl.lit(1), flag=pl.Series([None, None, True, None, True]), reward=3 * pl.col("reward")
    )
    both = np.asarray(agent_evolver(alpha=0.1).evaluate(Turns(pl.concat([other, turns.frame]))))
    assert np.allclose(both[5:], decoupled), "a group by itself"
    alike = other.with_columns(flag=pl.Series([True, True, True, False, True]))
    assert np.allclose(both[:5], np.asarray(agent_evolver(alpha=0.1).evaluate(Turns(alike)))), "as the outcome says"
    allocated = np.asarray(agent_evolver(method="allocation").evaluate(turns))
    assert np.allclose(allocated, [2.5313, 1.4421, 0.3528, -1.6875, -0.1688], atol=6e-5), allocated


def opened(alpha: float, seed: int, iterations: int = 30) -> float:
    """Share of a lock's openings in the last third of a training with this weight of the flags."""
    team, found = Team(opener=TabularPolicy(4, name="opener")), []
    learner = PolicyGradient(team, lr=0.2)
    for iteration in range(iterations):
        make = functools.partial(Lock, locks=4, steps=6)
        turns = rollout(make, team, groups=4, group_size=16, seed=seed, iteration=iteration)
        found.append(float(np.mean(turns.frame.unique(["group", "episode"])["success"].to_numpy())))
        learner.update(turns.with_column(advantage=agent_evolver("right", "success", alpha=alpha)))
    return float(np.mean(found[-iterations // 3 :]))


@reproduction(
    82,
    claim="Step flags beside the outcome find what outcomes alone hardly ever show.",
    baseline="the same credit with alpha 0, equal rollouts",
    criterion="locks of six numbers are opened in a share of episodes higher by .4",
    seeds=(0, 1, 2),
)
def measure(seeds: Sequence[int]) -> Outcome:
    """A tabular policy before locks that chance opens once in 4,096 tries."""
    shares = {name: float(np.mean([opened(alpha, seed) for seed in seeds]))
              for name, alpha in (("flags", 0.1), ("outcome", 0.0))}  # fmt: skip
    return Outcome(shares, shares["flags"] - shares["outcome"] >= 0.4)
