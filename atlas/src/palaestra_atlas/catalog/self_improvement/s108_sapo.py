"""[108] SAPO (arXiv 2509.08721): independent learners publish what they sampled, and learn from each other's groups.

Four tables with questions of their own; a right answer is rare, and whoever found one spreads it. What travels is
text: the receiver scores it as if it had said it, and rewards it by its own verifier. Left out: thousands of nodes,
language models, and how the swarm's proposer learns (what it is paid, and its levels, are here).
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import polars as pl

from palaestra.agents import TabularPolicy, Team
from palaestra.algebra.turns import Turns
from palaestra.credit import dr_mas
from palaestra.envs.worlds import Nodes
from palaestra.learning.stages import Context
from palaestra.learning.stages.share import chosen_groups, share
from palaestra.learning.task_samplers import AdaptiveLevel
from palaestra.play.rollout import rollout
from palaestra.rewards import challenge
from palaestra_atlas.reproductions import exact

VERIFY = 'same_text("action", "gold")'


def recipe(seed: int, folder: Path) -> None:
    """Writes the recipe of four nodes, `swarm.yaml`."""
    nodes = [f"node_{number}" for number in range(4)]
    made = {
        "name": "swarm",
        "env": {"make": "native/nodes"},
        "policies": {name: {"kind": "tabular", "options": {"capacity": 64}} for name in nodes},
        "team": {name: name for name in nodes},
        "stages": [f"share(4, 4, verify={VERIFY!r})"],
        "credit": "dr_mas()",
        "learn": {"lr": 0.1},
        "train": {"iterations": 60, "groups": 8, "group_size": 8, "evaluate_every": 60, "checkpoint_every": 60,
                  "save_turns": "all"},
        "evaluation": {"tasks": 20, "trials": 1, "look_tasks": 20, "look_trials": 1},
    }  # fmt: skip
    (folder / "swarm.yaml").write_text(json.dumps(made))


def swarm(paid: dict[tuple[str, int], list[float]]) -> tuple[Turns, Team]:
    """Rows of groups by agent, each with these rewards; and a team of as many tables, of which one is skewed."""
    rows, agents = [], sorted({agent for agent, _ in paid})
    for (agent, group), rewards in paid.items():
        for episode, reward in enumerate(rewards):
            right = "answer 1" if reward else "answer 0"
            rows.append(
                (
                    1,
                    group,
                    episode,
                    0,
                    agent,
                    agent,
                    "question 0",
                    right,
                    [int(right[-1])],
                    [-3.0],
                    [1.0],
                    reward,
                    "answer 1",
                )
            )
    names = ["iteration", "group", "episode", "turn", "agent", "policy", "observation", "action", "action_ids",
             "logprobs", "entropies", "reward", "gold"]  # fmt: skip
    frame = pl.DataFrame(rows, names, orient="row").with_columns(state=pl.lit(1, pl.UInt64))
    return Turns(frame), Team({agent: TabularPolicy(4, name=agent) for agent in agents})


def shared(paid: dict[tuple[str, int], list[float]], *, change: pl.Expr | None = None, **options: object) -> Turns:
    """The table after the stage."""
    turns, team = swarm(paid)
    turns = turns if change is None else Turns(turns.frame.with_columns(change))
    told = Context(np.random.default_rng(0), 1, None, team, None)  # type: ignore[arg-type]
    how = {"local": 1, "external": 1, "verify": VERIFY} | options
    return share(**how)(turns, told)  # type: ignore[arg-type]


FOUND = {("a", 0): [0.0, 0.0], ("a", 1): [0.0, 0.0], ("b", 0): [1.0, 0.0], ("b", 1): [1.0, 1.0], ("c", 0): [0.0, 0.0]}


@exact
def groups_of_others_beside_own() -> None:
    """Each node learns from its own first group and the best of the others'; what it received says from whom."""
    frame = shared(FOUND).frame
    mine = frame.filter(pl.col("agent") == "a")
    assert mine["source"].to_list() == ["policy", "policy", "b", "b"]
    assert mine["policy"].unique().to_list() == ["a"]
    assert mine.filter(pl.col("source") == "b")["reward"].to_list() == [1.0, 1.0]
    assert frame.filter(pl.col("agent") == "b").filter(pl.col("source") != "policy").is_empty(), "others found nothing"
    assert mine["group"].n_unique() == 2


@exact
def nothing_without_a_reward_and_the_largest_first() -> None:
    """Totals [3, 0, 0, 1] and room for three: groups 0 and 3, where the released code takes 0, 1 and 3."""
    totals = pl.DataFrame({"group": [0, 1, 2, 3], "reward": [3.0, 0.0, 0.0, 1.0]})
    assert set(chosen_groups(totals, 3)["group"]) == {0, 3}
    more = pl.DataFrame({"group": [0, 1, 2], "reward": [1.0, 2.0, 5.0]})
    assert chosen_groups(more, 2)["group"].to_list() == [2, 1]
    assert chosen_groups(totals.with_columns(reward=pl.lit(0.0)), 3).is_empty()


@exact
def rewarded_by_the_receivers_own_verifier() -> None:
    """A node that publishes false rewards is not believed: the receiver looks for itself, within each group alone."""
    lie = pl.when(pl.col("agent") == "c").then(1.0).otherwise("reward").alias("reward")
    frame = shared({("a", 0): [0.0, 0.0], ("c", 0): [0.0, 0.0]}, change=lie).frame
    received = frame.filter(pl.col("source") == "c")
    assert received["reward"].to_list() == [0.0, 0.0]
    assert frame.filter(pl.col("agent") == "c", pl.col("source") == "policy")["reward"].to_list() == [1.0, 1.0]
    spread = Turns(shared(FOUND, external=2).frame).with_column(advantage=dr_mas()).frame
    own = (
        spread.filter(pl.col("agent") == "a", pl.col("source") == "b").group_by("group").agg(pl.col("advantage").sum())
    )
    np.testing.assert_allclose(own["advantage"].to_numpy(), 0, atol=1e-9)
    assert spread["advantage"].abs().max() > 0.5  # type: ignore[operator]


@exact
def as_if_it_had_said_so() -> None:
    """Received rows have the log-probabilities of the receiver of now: the ratio of the first step is 1."""
    received = shared(FOUND).frame.filter(pl.col("source") == "b")
    np.testing.assert_allclose(received["logprobs"].list.first().to_numpy(), np.log(1 / 4), atol=1e-6)


@exact
def nodes_ask_for_themselves() -> None:
    """Every node has a question of its own, and is paid for its own answer."""
    team = Team({f"node_{number}": TabularPolicy(4, name=f"node_{number}") for number in range(3)})
    frame = rollout(lambda: Nodes(nodes=3, answers=4), team, groups=20, group_size=2, seed=0).frame
    assert frame.group_by("group").agg(pl.col("observation").n_unique())["observation"].max() == 3  # type: ignore[comparison-overlap]
    assert (frame["reward"] == (frame["action"] == frame["gold"]).cast(pl.Float64)).all()


@exact
def proposals_and_levels() -> None:
    """A proposal that one of four solves is paid .75, one that all or none solve 0; the level follows the rewards."""
    rows = {"episode": [0] * 4 + [1] * 4 + [2] * 4, "score": [1.0, 0, 0, 0] + [1.0] * 4 + [0.0] * 4}
    found = np.asarray(challenge().evaluate(Turns(rows)))
    np.testing.assert_allclose(found[::4], [0.75, 0, 0])
    level = AdaptiveLevel(level=2)
    rising = [level.report(score) for score in [0.1] * 10 + [0.5] * 15]
    assert rising == [2] * 19 + [3] * 5 + [4], "every five reports, by the means of ten and of the ten before"
    falling = [level.report(score) for score in [0.1] * 10]
    assert falling == [4] * 4 + [3] * 5 + [2]
    for start, scores, end in (
        (5, [0.1] * 10 + [0.5] * 10, 5),
        (1, [0.5] * 10 + [0.1] * 10, 1),
        (2, [0.1] * 19 + [0.4], 2),
    ):
        level = AdaptiveLevel(level=start)
        assert [level.report(score) for score in scores][-1] == end, "from 1 to 5, by differences above .05"
