"""[103] MasHost (arXiv 2506.08507): a team is built by decisions; both the team and each decision are judged.

Four kinds of query, five roles; a query is solved by a team that has its two roles with an edge between them. A
decision is a role together with its edge (to a member, or to none), or to stop. The world judges decisions by what the
query needs. GRPO ends with as few members; what the judgement adds is speed. The method's formulas are a
reconstruction. Left out: what members say; they are scripted.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from palaestra.agents import ScriptedPolicy, Team
from palaestra.algebra.turns import Turns
from palaestra.credit import mas_host
from palaestra.envs.worlds.team_builder import NEEDED, ROLES, TeamBuilder
from palaestra.play.rollout import rollout
from palaestra_atlas.reproductions import Outcome, exact, reproduction, train_arms

if TYPE_CHECKING:
    from palaestra.runs.inline import TrainingResult

SETTING = {
    "env": {"make": "native/team_builder"},
    "learn": {"lr": 0.1},
    "train": {"iterations": 80, "groups": 8, "group_size": 8},
}


@exact
def worked() -> None:
    """Four teams, the third with a duplicate role: GRPO of the teams, and -.2 for that decision alone."""
    table = {"group": [0] * 4, "episode": range(4), "turn": [0] * 4, "agent": ["builder"] * 4, "reward": [1, 0, 1, 1]}
    credit = mas_host().evaluate(Turns(table | {"action_reward": [0.0, 0.0, -0.2, 0.0]}))
    np.testing.assert_allclose(np.asarray(credit), [0.5, -1.5, 0.3, 0.5], atol=5e-5)


@exact
def own_score() -> None:
    """Of another score than the reward, a weight of 2, and a decision that nobody judged: [.5, -1.5, .1, .5]."""
    table = {"group": [0] * 4, "episode": range(4), "turn": [0] * 4, "agent": ["builder"] * 4, "reward": [0.0] * 4}
    turns = Turns(table | {"score": [1, 0, 1, 1], "action_reward": [0.0, None, -0.2, 0.0]})
    np.testing.assert_allclose(
        np.asarray(mas_host("score", weight=2.0).evaluate(turns)), [0.5, -1.5, 0.1, 0.5], atol=5e-5
    )


@exact
def decisions_judged() -> None:
    """Query 1 needs code and test. Judged: a role without need, code without an edge, test, test once more, write.

    What solved the query stays solved; of five decisions one earns .2, the other four -.2 each. The horizon ends it.
    """
    env = TeamBuilder(horizon=5)
    seed = next(seed for seed in range(99) if env.reset(seed) and env.task == "query 1")
    seen = env.reset(seed)
    said = ("add plan", "add code", "add test to code", "add test to plan", "add write to test")
    texts, results = [seen["builder"].text], []
    for action in said:
        results.append(env.step({"builder": action}))
        texts += [each.text for each in results[-1].observations.values()]
    np.testing.assert_allclose([each.info["action_reward"] for each in results], [-0.2, -0.2, 0.2, -0.2, -0.2])
    assert len(texts) == len(said), "the horizon has ended it"
    assert texts[-1] == "query 1, team: plan, code, test"
    np.testing.assert_allclose(results[-1].rewards["builder"], 1 - 5 * 0.05)  # type: ignore[arg-type]


def built(decide: Callable[[int, int], str]) -> pl.DataFrame:
    """The last turns of 24 episodes of a builder who decides by the query that it reads and the number of the turn."""

    def act(request: Any) -> str:
        query = int(re.findall(r"query (\d)", request.observation.text)[0])
        return decide(query, 0 if "nobody" in request.observation.text else request.observation.text.count(","))

    team = Team(builder=ScriptedPolicy(act, name="builder"))
    return rollout(TeamBuilder, team, groups=24, group_size=1).frame.group_by("group").agg(pl.all().last())


@exact
def right_builder() -> None:
    """Who adds the first needed role, then the second with an edge to it, and stops, solves each query with two."""

    def decide(query: int, members: int) -> str:
        first, second = (ROLES[role] for role in NEEDED[query])
        return (f"add {first}", f"add {second} to {first}", "stop")[members]

    last = built(decide)
    assert last["task"].n_unique() == len(NEEDED)
    np.testing.assert_array_equal(last["success"], np.ones(24, bool))
    np.testing.assert_array_equal(last["members"], np.full(24, 2))


@exact
def own_stop() -> None:
    """A builder stops when it says so, after one member here, or two; each of them costs .05."""
    last = built(lambda query, members: f"add {ROLES[members]}" if members <= query % 2 else "stop")
    sizes = 1 + last["task"].str.extract(r"(\d)").cast(int).to_numpy() % 2
    np.testing.assert_array_equal(last["members"], sizes)
    np.testing.assert_array_equal(last["turn"], sizes)
    np.testing.assert_allclose(last["reward"], -0.05 * sizes)


def looked_at(learned: TrainingResult) -> dict[str, float]:
    """Mean of the learning curve; of the trained builder: queries solved, members."""
    last = learned.play(groups=40, group_size=4, seed=1).frame.group_by("group", "episode").agg(pl.all().last())
    found = {"solved": last["success"].mean(), "members": last["members"].mean()}
    return {"curve": float(np.mean(learned.curve())), **found}  # type: ignore[dict-item]


@reproduction(
    103,
    claim="Group credit for the finished team plus an absolute reward for each decision learns faster which teams "
    "solve a query than group credit alone.",
    baseline="the same without the reward for decisions (GRPO); its teams end no larger",
    criterion="at the end >= 0.95 solved with at most 2.5 members (2 are needed); mean "
    "of the learning curve higher by > 2 standard errors (paired by seed); should hold in 9 of 10 blocks",
    seeds=(0, 1, 2, 3),
    slow=True,
)
def measure(seeds: Sequence[int]) -> Outcome:
    """Trained as by `palaestra train world env.make=native/team_builder credit="mas_host()"`."""
    arms = train_arms(
        "world",
        {name: SETTING | {"credit": f"{name}()"} for name in ("mas_host", "grpo")},
        seeds,
        looked_at,
    )
    gain, error = arms.gain("mas_host", "grpo", "curve")
    good = arms.mean("mas_host", "solved") >= 0.95 and arms.mean("mas_host", "members") <= 2.5
    measured = {"gain": gain, "standard_error": error} | arms.measured()
    return Outcome(measured, good and gain > 2 * error)
