"""[165] Agent-R (arXiv 2501.11425): a bad path is cut at its first bad step and goes on, revised, as a good one.

Good paths of this world show no slip: there is no time for one. So whoever clones them does not know what to do after
a slip; spliced paths show just that. Left out: language models, WebShop, ScienceWorld, TextCraft; an actor that judges
its own steps: here the world says which step was bad.
"""

from __future__ import annotations

import functools

import numpy as np
import polars as pl
import torch

from palaestra.agents import TabularPolicy, Team
from palaestra.agents.team import load_policy
from palaestra.algebra.turns import Turns
from palaestra.credit import backup
from palaestra.credit.splicing import splice as spliced
from palaestra.envs.protocol import Observation
from palaestra.envs.worlds import Slips
from palaestra.judges.value_pairs import mine
from palaestra.learning import PolicyGradient
from palaestra.learning.stages import Context
from palaestra.learning.stages.search_paths import search_paths
from palaestra.learning.stages.splice import splice
from palaestra.play.executors import Local, Plan
from palaestra_atlas.reproductions import exact
from palaestra_atlas.verification.measures import Left, Measure


def recovery() -> Measure:
    """Share of 300 paths that begin after a slip, with time for one move back, that the trained table completes."""

    def measured(left: Left) -> list[float]:
        found = []
        for seed in left.seeds():
            team = Team(walker=load_policy(seed / "policies" / "table"))
            plan = Plan(groups=300, group_size=1, seed=7, stream="eval")
            frame = Local().play(functools.partial(Slips, slip=True), team, plan).frame
            ends = frame.sort("group", "turn").unique("group", keep="last")
            found.append(float(ends["success"].mean()))  # type: ignore[arg-type]
        return found

    return measured


def paths(policy: str = "table") -> Turns:
    """A good path of three cues, and a bad one that shares its first step, slips at the second and stays there."""
    seen = ["cue 0", "cue 1", "cue 0", "cue 0", "cue 1", "slipped", "slipped"]
    said = [0, 1, 0, 0, 0, 1, 1]
    return Turns(
        {
            "iteration": [1] * 7, "group": [0] * 7, "episode": [0] * 3 + [1] * 4, "turn": [0, 1, 2, 0, 1, 2, 3],
            "agent": ["walker"] * 7, "policy": [policy] * 7, "observation": seen,
            "state": [Observation(text).key() for text in seen], "action": [f"move {each}" for each in said],
            "action_ids": [[each] for each in said], "logprobs": [[-1.0]] * 7, "entropies": [[1.0]] * 7,
            "bad": [False] * 4 + [True] * 3, "reward": [0.0, 0.0, 1.0] + [0.0] * 4, "valid": [True] * 7,
        }
    )  # fmt: skip


def made(**options: object) -> pl.DataFrame:
    """The splice of both, by the stage."""
    told = Context(np.random.default_rng(0), 1, None, Team(walker=TabularPolicy(3, name="table")), None)  # type: ignore[arg-type]
    how = {"marker": "back", "number": 2, "min_good": 0.1} | options
    frame = splice("bad", **how)(paths(), told).frame  # type: ignore[arg-type]
    return frame.filter(pl.col("source") != "policy")


@exact
def prefix_revision_good_path() -> None:
    """One example holds the bad steps, one revision, and the good path after them."""
    assert made()["source"].to_list() == ["prefix", "prefix", "revision", "good", "good"]
    assert made()["action"].to_list() == ["move 0", "move 0", "back", "move 1", "move 0"]
    assert made()["action_ids"].to_list()[2] == [2]


@exact
def cut_after_the_first_bad_step() -> None:
    """The example leaves out the steps after the first bad one, and the revision answers the observation there."""
    example = made()
    assert example.filter(pl.col("source") == "prefix")["turn"].to_list() == [0, 1]
    assert example.filter(pl.col("source") == "revision")["observation"].to_list() == ["slipped"]
    assert len(example) == 5


@exact
def no_gradient_on_the_prefix() -> None:
    """Cloning moves the table after a slip and on the good path, and no logit towards the bad step."""
    policy = TabularPolicy(3, name="table")
    told = Context(np.random.default_rng(0), 1, None, Team(walker=policy), None)  # type: ignore[arg-type]
    whole = splice("bad", marker="back", number=2, min_good=0.1)(paths(), told)
    assert not whole.frame.filter(pl.col("source") == "prefix")["loss_mask"].any()
    only = Turns(whole.frame.filter(pl.col("source") != "policy"))
    learner = PolicyGradient(Team(walker=policy), 'clone(column="loss_mask")')
    learner.forward_backward(only)
    gradient = policy.module.get_parameter("logits").grad
    states = [Observation(text) for text in ("cue 0", "cue 1", "slipped")]
    slopes = {seen.text: -gradient[policy._places[seen.key()]] for seen in states if seen.key() in policy._places}  # type: ignore[index]
    torch.testing.assert_close(slopes["cue 1"] * 3, torch.tensor([-1 / 3, 2 / 3, -1 / 3]))
    torch.testing.assert_close(slopes["slipped"] * 3, torch.tensor([-1 / 3, -1 / 3, 2 / 3]))


@exact
def the_good_path_joins_where_they_parted() -> None:
    """The step that both share is told once."""
    frame, _ = spliced(paths(), pl.DataFrame({"chosen": [0], "rejected": [3]}), "bad", marker="back")
    assert frame.filter(pl.col("source") == "good")["of_row"].to_list() == [1, 2]
    assert (frame["observation"] == "cue 0").sum() == 2


@exact
def pairs_by_gap_and_by_a_bar_that_rises() -> None:
    """Pairs differ by more than the gap, the good one is above α, and α is another one in the next round."""
    rows = {"group": [0] * 4, "episode": [0, 1, 2, 3], "reward": [0.9, 0.6, 0.5, 0.5]}
    assert mine(Turns(rows), min_gap=0.2, min_chosen=0.5)[1]["kept"] == 3
    assert mine(Turns(rows), min_gap=0.2, min_chosen=0.95)[1]["kept"] == 0
    assert mine(Turns(rows), min_gap=0.0)[1]["kept"] == 5, "equal values make no pair"
    team = Team(walker=TabularPolicy(3, name="table"))
    stage = splice("bad", marker="back", number=2, min_good=(0.1, 0.5))
    sizes = []
    for iteration in (1, 2, 3):
        told = Context(np.random.default_rng(0), iteration, None, team, None)  # type: ignore[arg-type]
        stage(paths(), told)
        sizes.append(told.metrics["kept"])
    assert sizes == [1, 0, 0], "1/3 is above .1, not above .5"


@exact
def values_are_means_of_what_came_of_a_node() -> None:
    """A node is worth the mean of its children, whatever of them was tried more often below."""
    rows = {"group": [0] * 5, "node": ["r", "a", "b", "c", "d"], "parent": [None, "r", "r", "b", "b"]}
    found = backup("reward").evaluate(Turns(rows | {"reward": [None, 1.0, None, 0.0, 0.0]}))
    np.testing.assert_array_equal(np.asarray(found), [0.5, 1, 0, 0, 0])


@exact
def good_paths_are_cloned_beside_the_spliced() -> None:
    """Played paths above α are learned from as they are, others not; a bad path is spliced with the best one alone."""
    told = Context(np.random.default_rng(0), 1, None, Team(walker=TabularPolicy(3, name="table")), None)  # type: ignore[arg-type]
    how = {"marker": "back", "number": 2}
    for least, cloned in ((0.1, [True] * 3 + [False] * 4), (0.5, [False] * 7)):
        frame = splice("bad", min_good=least, **how)(paths(), told).frame  # type: ignore[arg-type]
        assert frame.filter(pl.col("source") == "policy")["loss_mask"].to_list() == cloned
    assert made(min_gap=0.5).is_empty(), "1/3 is not .5 better than 0"
    best = (
        paths()
        .frame.head(3)
        .with_columns(episode=pl.lit(2, paths().frame.schema["episode"]), reward=pl.Series([0.0, 0.0, 2.0]))
    )
    three = Turns(pl.concat([paths().frame, best]))
    for most, examples in ((None, [1, 2, 8, 9]), (1, [8, 9])):
        frame = splice("bad", min_good=0.1, most=most, **how)(three, told).frame  # type: ignore[arg-type]
        assert sorted(frame.filter(pl.col("source") == "good")["of_row"].to_list()) == examples


def sure() -> TabularPolicy:
    """A table that knows the only path but for its second cell, at which it is sure of the wrong move."""
    world = Slips(paths=1, cells=3)
    right = world.paths[0].tolist()
    policy = TabularPolicy(3, name="table")
    seen = [Observation(f"path 0, cell {cell}").key() for cell in range(3)]
    policy.write(seen, np.eye(3)[[right[0], 1 - right[1], right[2]]] * 40)
    return policy


@exact
def the_search_supplies_paths_that_part() -> None:
    """Rollouts of one start are all alike; those of a tree part at every cell, and some are good."""
    env = functools.partial(Slips, paths=1, cells=3)
    team = Team(walker=sure())
    told = Context(np.random.default_rng(0), 1, env, team, Local())
    stage = search_paths(share=0.75)
    first = Local().play(env, team, stage.plan(Plan(groups=1, group_size=16, seed=0), told))
    frame = stage(first, told).frame
    assert frame.select("group", "episode").n_unique() == 16, "as many episodes as without a search"
    lengths = frame.filter(pl.col("source") == "search").group_by("episode").len()
    assert len(lengths) == 12
    frame = frame.with_columns(pl.col("bad").cast(pl.Float64))
    pairs, counts = mine(Turns(frame), min_gap=0.0, min_chosen=0.1)
    assert counts["kept"] > 0, "no good path, no pair"
    shared = spliced(Turns(frame), pairs, "bad", marker="back")[0]
    assert shared.filter(pl.col("source") == "prefix").group_by("episode").len()["len"].max() > 1  # type: ignore[operator]
    alone = Local().play(env, team, Plan(groups=1, group_size=16, seed=0))
    assert mine(alone, min_gap=0.0, min_chosen=0.1)[1]["kept"] == 0


@exact
def rollouts_follow_mean_values_and_what_was_rarely_tried() -> None:
    """Those of 24 that begin with the right move: 1 by mean values alone, 12 with c = 1; by best values 17."""
    env, tried = functools.partial(Slips, paths=1, cells=3), {}
    for c in (0.0, 1.0):
        team, stage = Team(walker=sure()), search_paths(share=0.75, c=c)
        told = Context(np.random.default_rng(0), 1, env, team, Local())
        frame = stage(Local().play(env, team, stage.plan(Plan(groups=1, group_size=32, seed=0), told)), told).frame
        begins = frame.filter(pl.col("source") == "search", pl.col("turn") == 0)["action"].cast(pl.String)
        tried[c] = int((begins == f"move {Slips(paths=1, cells=3).paths[0][0]}").sum())
    assert tried == {0.0: 1, 1.0: 12}, tried


@exact
def a_slip_needs_its_way_back() -> None:
    """After a wrong move nothing counts but the way back; a path with a slip is too long to succeed."""
    env = Slips(cells=2)
    env.reset(0)
    cues = env.state.cues
    wrong = 1 - cues[0]
    assert env.step({"walker": wrong}).observations["walker"].text == f"slipped at cue {cues[0]} by move {wrong}"
    assert env.step({"walker": cues[0]}).info["bad"]
    assert env.step({"walker": 2}).info["success"] is False
    again = Slips(cells=2, slip=True)
    again.reset(0)
    assert not again.step({"walker": 2}).info["bad"]
    at = again.state.at
    results = [again.step({"walker": cue}) for cue in again.state.cues[at:]]
    assert results[-1].info["success"]
