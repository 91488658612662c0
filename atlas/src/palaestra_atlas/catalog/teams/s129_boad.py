"""[129] BOAD (arXiv 2512.23631): a bandit finds the sub-agents that help, if each is credited in hindsight.

The recipe `staff`: twenty sub-agents, four of which help with .55 of tasks and the others with .1; teams of three play
twelve tasks a round, a judge who errs on a tenth says who helped. Beside it the same bandit credited with the team's
success. The recipe `recruits`: nobody of the five first ones has the skill that most tasks need; new sub-agents come
with θ / (θ + archive), are drawn from all pairs of ten skills, tried out on four tasks, and join if they help with two.
A chat model can write them instead; what it writes counts by the skills that it names. Simulated: nobody carries out
instructions, and a sub-agent that fails is not revised but another one is tried.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
from scipy.stats import binom

from palaestra.agents.bandits import BanditPolicy, new_arm_probability
from palaestra.agents.policy import Policy, Request
from palaestra.agents.scripted import ScriptedPolicy
from palaestra.agents.team import Team
from palaestra.algebra.turns import Turns
from palaestra.envs.worlds import SkilledSubAgents, SubAgents
from palaestra.evaluation.teamwork import hindsight_credit
from palaestra.learning.alarms import alarms
from palaestra.learning.bandit import BanditLearner
from palaestra.learning.stages.recruit import recruit
from palaestra.learning.stages.stage import Context
from palaestra.play.executors import Local, Plan
from palaestra.play.rollout import rollout
from palaestra_atlas.reproductions import Outcome, exact, reproduction, train_arms
from palaestra_atlas.verification.measures import Left, Measure

if TYPE_CHECKING:
    from palaestra.runs.inline import TrainingResult

GOOD, ROUNDS = {2, 7, 11, 16}, (10, 40)
FIRST = (0, 2, 24, 35, 43)
"""Sub-agents of the recipe `recruits` that are there at first: none can repair."""
WORLD: dict[str, Any] = {"members": 5, "alone": 0.5}
GROWTH = {1: 3.0, 10: 7.6, 20: 10.7, 100: 24.1}
TEAM = {"reward": 'mean("solved", over="episode")', "learn": {"options": {"reward": "reward"}}}


def found(learned: TrainingResult) -> dict[str, float]:
    """Share of sub-agents that help among the two with the highest mean."""
    bandit = learned.team.policies["staff"]
    assert isinstance(bandit, BanditPolicy)
    return {"found": len(GOOD & set(bandit.best(2))) / 2}


def hired(rounds: int, seed: int, **options: Any) -> tuple[BanditPolicy, Turns]:
    """A seat that staffs a team once a round and learns of each member whether it helped."""
    policy = BanditPolicy(20, name="staff", clock="updates", **options)
    team = Team(staff=policy)
    learner = BanditLearner(team, reward="helped", weight="instances")
    played = []
    for number in range(rounds):
        turns = rollout(SubAgents, team, groups=1, seed=1000 * seed + number, timeout=None)
        learner.update(turns)
        played.append(turns.frame.with_columns(iteration=pl.lit(number)))
    return policy, Turns(pl.concat(played, how="diagonal"))


def recruited(
    rounds: int, seed: int, writer: Policy | None = None, **world: Any
) -> tuple[BanditPolicy, recruit, list[dict[str, float]]]:
    """The seat of the recipe `recruits`, its stage, and the stage's metrics of each round."""
    env = functools.partial(SkilledSubAgents, **WORLD | world)
    policy = BanditPolicy(len(env().space), name="staff", clock="updates", archive=FIRST)
    team, stage, told = Team(staff=policy), recruit("staff", theta=3, slots=5, writer=writer), []
    learner = BanditLearner(team, reward="helped", weight="instances")
    for number in range(rounds):
        context = Context(np.random.default_rng([seed, number]), number + 1, env, team, Local(), seed=seed)
        stage.plan(Plan(groups=1), context)
        turns = rollout(env, team, groups=1, seed=1000 * seed + number, timeout=None)
        learner.update(stage(turns, context))
        told.append(context.metrics)
    return policy, stage, told


@exact
def hindsight_table() -> None:
    """Four episodes, three solved: who helped in all of its two has .5, who helped in one of four .25, unasked 0."""
    rows = [
        (0, "mender", 1, True), (0, "idle", 0, True), (1, "mender", 1, True), (1, "idle", 0, True),
        (1, "idle", 0, True), (2, "idle", 1, False), (3, "idle", 0, True),
    ]  # fmt: skip
    frame = pl.DataFrame(rows, schema=["episode", "agent", "helped", "success"], orient="row")
    frame = frame.with_columns(turn=pl.int_range(pl.len()).over("episode"), group=pl.lit(0))
    found = hindsight_credit(Turns(frame), "helped", members=["mender", "idle", "unasked"])
    expected = [("mender", 2, 0.5), ("idle", 4, 0.25), ("unasked", 0, 0.0)]
    assert found.select("agent", "invoked", "helpful").rows() == expected
    assert found["episodes"].to_list() == [4, 4, 4]


@exact
def judged_members() -> None:
    """The seat's arms hold the share in which the judge says that a member helped, whatever became of the team."""
    policy, turns = hired(12, 0)
    rows = turns.frame.with_columns(part=pl.col("helped") * pl.col("instances"))
    expected = rows.group_by("member").agg(pl.col("part").sum() / pl.col("instances").sum()).sort("member")
    table = policy.table().filter(pl.col("plays") > 0)
    assert table["arm"].to_list() == expected["member"].to_list()
    np.testing.assert_allclose(table["reward"].to_numpy(), expected["part"].to_numpy(), atol=1e-9)
    judged = dict(zip(table["arm"], table["reward"]))
    assert (
        np.mean([judged[arm] for arm in GOOD & judged.keys()])
        > 0.3
        > 0.25
        > np.mean([rate for arm, rate in judged.items() if arm not in GOOD])
    )


@exact
def upper_bound_staffs() -> None:
    """R + √(2 ln rounds / n): of five rounds, .5 + .30 of 36 instances is ahead of .3 + .37 and .52 + .13."""
    policy = BanditPolicy(3, index="ucb1", clock="updates")
    for _ in range(5):
        policy.update(np.arange(3), np.array([0.5, 0.3, 0.52]), weights=np.array([36, 24, 200]) / 5)
    bounds = np.array([0.5, 0.3, 0.52]) + np.sqrt(2 * np.log(5) / np.array([36, 24, 200]))
    np.testing.assert_allclose(bounds, [0.799, 0.6662, 0.6469], atol=5e-4)
    assert policy.chances().tolist() == [1.0, 0.0, 0.0]


@exact
def growth() -> None:
    """The archive has 3.0, 7.6 and 10.7 sub-agents after 1, 10 and 20 rounds; a seat adds new ones so."""
    for rounds in (1, 10, 20):
        np.testing.assert_allclose(archive(rounds), GROWTH[rounds], atol=0.1)
    policy = BanditPolicy(4, index="ucb1", theta=1.0)
    np.testing.assert_allclose(policy.chances(), [1, 0, 0, 0])
    policy.update(np.array([0]), np.array([1.0]))
    np.testing.assert_allclose(policy.chances(), [0.5, 0.5, 0, 0])


@exact
def final_pair() -> None:
    """The final two have the best helpful rates; one that was never tried has rate 0 and is not among them."""
    policy = BanditPolicy(4, index="ucb1", clock="updates")
    for _ in range(30):
        policy.update(np.array([1, 3]), np.array([0.4, 0.6]), weights=np.array([30.0, 3.0]))
    policy.update(np.array([0]), np.array([0.2]), weights=np.array([1.0]))  # little known: its index is the highest
    assert policy.best(2) == [3, 1]


@exact
def newcomers() -> None:
    """After 40 rounds the archive has every skill of the space, two of which are new, and a far better first pair."""
    world = SkilledSubAgents(**WORLD)
    policy, _, _ = recruited(40, 0)
    skills = [{skill for arm in arms for skill in world.space[arm]} for arms in (FIRST, policy.joined())]
    assert skills[1] - skills[0] == {"repair", "migrate"}
    assert world.rates[policy.best(2)].min() > 2 * world.rates[list(FIRST)].max()


@exact
def tried_out() -> None:
    """Sub-agents that help with less than half of their try-out join no team; those that join help more often."""
    world = SkilledSubAgents(**WORLD)
    policy, stage, _ = recruited(20, 1)
    drawn, joined = [row["arm"] for row in stage.record], [row["arm"] for row in stage.record if row["joined"]]
    assert {*joined, *FIRST} == {*policy.joined()}
    assert all(row["joined"] == (row["helped"] >= 0.5) for row in stage.record)
    assert policy.table().filter(pl.col("plays") > 0)["arm"].is_in([*joined, *FIRST]).all()
    assert np.mean(world.rates[joined] > 0.5) > 1.5 * np.mean(world.rates[drawn] > 0.5) > 0


@exact
def written() -> None:
    """A writer that names the first pair that it was not told of has it tried out; a reply without skills is none."""
    world, asked = SkilledSubAgents(**WORLD), []

    def write(request: Request) -> str:
        asked.append(request.observation.text)
        pair = next((each for each in world.choices if "repair" in each and each not in asked[-1]), "nothing")
        return f"Name: mender\nInstructions: {pair}!\nSkills: {pair}" if len(asked) % 5 else "I cannot say."

    policy, stage, _ = recruited(4, 4, writer=ScriptedPolicy(write, name="writer"))
    tried = [row for row in stage.record if row["helped"] is not None]
    assert len(tried) > 2
    assert all(row["instructions"] == f"{world.choices[row['arm']]}!" for row in tried)
    assert all("repair" in world.space[arm] for arm in {*policy.joined()} - {*FIRST})
    assert {"locate+repair"} < {world.choices[row["arm"]] for row in tried}
    assert "of 12 tasks" in asked[-1]
    assert "helped with 0." in asked[-1]


@exact
def inverted_verdicts() -> None:
    """A judge whose verdicts are inverted says of unsolved tasks that members helped, which raises an alarm."""
    line = {"policies": {}, "errors": {}, "incomplete_groups": 0, "groups": 1, "reward": 1.0}
    for noise, heard in ((0.1, False), (0.9, True)):
        _, _, told = recruited(6, 2, alone=0.0, noise=noise)
        rung = [any("inverted" in each for each in alarms(line | {"stages": {"recruit": now}}, [])) for now in told]
        assert set(rung) == {heard}


def good_pair() -> Measure:
    """Share of those that can repair in the two members that the trained seat puts first, per seed."""

    def measured(left: Left) -> list[float]:
        world, found = SkilledSubAgents(), []
        for seed in left.seeds():
            bandit = Team.load(seed / "policies").policies["staff"]
            assert isinstance(bandit, BanditPolicy)
            found.append(float(np.mean(["repair" in world.space[arm] for arm in bandit.best(2)])))
        return found

    return measured


def archive(rounds: int, *, slots: int = 3, theta: float = 1.0) -> float:
    """Expected size of an archive: each slot of a round is new with a probability that is computed once a round."""
    sizes = np.zeros(slots * rounds + 1)
    sizes[0] = 1.0
    for _ in range(rounds):
        after = np.zeros_like(sizes)
        for size in np.flatnonzero(sizes[: len(sizes) - slots]):
            new = new_arm_probability(theta, int(size))
            after[size : size + slots + 1] += sizes[size] * binom.pmf(np.arange(slots + 1), slots, new)
        sizes = after
    return float(sizes @ np.arange(len(sizes)))


@reproduction(
    129,
    claim="Credit by hindsight finds the sub-agents that help in a quarter of the rounds that credit by success needs.",
    baseline="the same bandit, credited with the team's success",
    criterion="after ten rounds at least 0.9 of the best two help, ten rounds of hindsight are not behind forty of "
    "success by more than 0.05, and 0.15 ahead of ten, in the mean over seeds; the archive grows as worked out to "
    "0.1 (settings are the card's)",
    seeds=tuple(range(6)),
    slow=True,
)
def measure(seeds: Sequence[int]) -> Outcome:
    """Two credits, at ten rounds and at forty."""
    arms: dict[str, Any] = {"hindsight_10": {"train": {"iterations": ROUNDS[0]}}}
    arms |= {f"success_{rounds}": TEAM | {"train": {"iterations": rounds}} for rounds in ROUNDS}
    measured = train_arms("staff", arms, seeds, found).measured()
    growth = {rounds: archive(rounds) for rounds in GROWTH}
    measured |= {f"archive_{rounds}": size for rounds, size in growth.items()}
    early, late = measured["found_success_10"], measured["found_success_40"]
    hindsight = measured["found_hindsight_10"]
    exact = all(abs(growth[rounds] - size) <= 0.1 for rounds, size in GROWTH.items())
    return Outcome(measured, hindsight >= 0.9 and hindsight >= late - 0.05 and hindsight >= early + 0.15 and exact)
