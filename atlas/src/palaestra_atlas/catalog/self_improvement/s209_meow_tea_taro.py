"""[209] A practitioner's guide to multi-turn agentic RL (arXiv 2510.01132): world, reward density, credit, SFT share.

A quest through a few rooms instead of TextWorld, a network that reads features instead of a language model, and an
erring script as the source of demonstrations. Left out: ALFWorld, SWE-Gym, the KL penalty inside the reward.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from palaestra.agents import ScriptedPolicy, Team
from palaestra.algebra.signals import standardise
from palaestra.algebra.turns import Turns
from palaestra.credit import gae, rloo
from palaestra.envs.worlds import Quest
from palaestra.play.executors import Local, Plan
from palaestra.rewards import dense_reward
from palaestra.runs.inline import TrainingResult, learn
from palaestra.runs.scripts import quest
from palaestra_atlas.reproductions import Outcome, exact, reproduction, train_arms

LARGE: dict[str, Any] = {"rooms": 4, "objects": 6, "length": 8}
"""The quest w4-o6-q8; the recipe trains on w2-o3-q4, the world's default."""
PPO = {"stages": ["critic('network')"], "credit": "standardise(gae(), over=())"}
RLOO = {"credit": "rloo(singleton='raw')"}


def recipe(seed: int, folder: Path) -> None:
    """Writes `quest.yaml`, and `scratch.yaml`: the same budget, all of it RL on the sparse reward."""
    (folder / "quest.yaml").write_text(json.dumps(made()))
    (folder / "scratch.yaml").write_text(json.dumps(made(0.0, dense=False)))


def made(
    share: float = 0.2, *, dense: bool = True, credit: dict[str, Any] | None = None, **train: Any
) -> dict[str, Any]:
    """The recipe: a share of the iterations is SFT on what an erring script played, the rest is RL."""
    sft = {
        "name": "sft", "until": f"share({share})", "stages": ["demonstrate('teacher')"], "credit": "return_to_go()",
        "learn": {"terms": "clone(column='loss_mask')", "lr": 0.02, "epochs": 10, "minibatch": 128},
    }  # fmt: skip
    rl = {"name": "rl", "reward": "dense_reward()" if dense else "success_reward()", **(credit or PPO)}
    return {
        "name": "quest",
        "env": {"make": "native/quest"},
        "policies": {
            "net": {"kind": "mlp", "options": {"hidden": [32]}},
            "teacher": {"kind": "script", "options": {"script": "quest", "errs": 0.3}},
        },
        "team": {"hero": "net"},
        "learn": {"lr": 0.003, "terms": ["surrogate(0.2)"], "epochs": 4, "minibatch": 256},
        "phases": [sft, rl] if share else [rl],
        "train": {
            "iterations": 30, "groups": 8, "group_size": 4, "evaluate_every": 100, "checkpoint_every": 100,
            "save_turns": "all", **train,
        },
        "evaluation": {"tasks": 200, "trials": 1, "look_tasks": 2, "look_trials": 1},
    }  # fmt: skip


def episode(gained: list[float], won: bool, most: int) -> Turns:
    """One episode with these intermediate rewards."""
    turns = len(gained)
    keys = {"group": [0] * turns, "episode": [0] * turns, "turn": range(turns), "agent": ["hero"] * turns}
    return Turns(keys | {"gained": gained, "most": [most] * turns, "success": [None] * (turns - 1) + [won]})


@exact
def turns_share_one() -> None:
    """Won with [1, 0, 1, 1]: thirds; lost with [1, 0, 1, 0] of 5: [.2, 0, .2, 0]; nothing gained: zeros.

    Turns with a positive reward are counted, not summed, and those of other episodes in the table are not.
    """
    won, lost = episode([1, 0, 1, 1], True, 5), episode([1, 0, 1, 0], False, 5)
    np.testing.assert_allclose(np.asarray(dense_reward().evaluate(won)), [1 / 3, 0, 1 / 3, 1 / 3])
    np.testing.assert_allclose(np.asarray(dense_reward().evaluate(lost)), [0.2, 0, 0.2, 0])
    np.testing.assert_array_equal(dense_reward().evaluate(episode([0, 0], True, 2)), [0, 0])
    np.testing.assert_allclose(np.asarray(dense_reward().evaluate(episode([2, -1, 0, 1], True, 5))), [1, -0.5, 0, 0.5])
    both = {"group": [0] * 5, "episode": [1, 0, 0, 1, 0], "turn": [0, 0, 1, 1, 2], "agent": ["hero"] * 5}
    both |= {"gained": [1, 1, 0, 1, 1], "most": [4] * 5, "success": [None, None, None, False, True]}
    np.testing.assert_allclose(np.asarray(dense_reward().evaluate(Turns(both))), [0.25, 0.5, 0, 0.25, 0.5])


REWARDS, VALUES = [0.0, 0.0, 0.0, 0.0, 1.0], [0.2, 0.3, 9.0, 9.0, 0.5]
OBSERVED = [False, False, True, True, False]


@exact
def observations_are_passed_over() -> None:
    """Advantages .7412, .675, -, -, .5 (λ = .95), on tokens of one response as on rows; whitened over actions alone."""
    nan = float("nan")
    wanted = [0.74125, 0.675, nan, nan, 0.5]
    signal = gae(reward="rewards", skip="observed", bootstrap=0.0)
    one = {"episode": [0], "agent": ["hero"], "rewards": [REWARDS], "value": [VALUES], "observed": [OBSERVED]}
    np.testing.assert_allclose(signal.evaluate(Turns(one)).values, wanted)  # type: ignore[union-attr]
    rows = {"episode": [0] * 5, "turn": range(5), "agent": ["hero"] * 5}
    table = Turns(rows | {"rewards": REWARDS, "value": VALUES, "observed": OBSERVED})
    np.testing.assert_allclose(np.asarray(signal.evaluate(table)), wanted)
    kept = np.array([0.74125, 0.675, 0.5])
    white = np.asarray(standardise(signal, over=(), eps=0.0).evaluate(table))
    np.testing.assert_allclose(white[[0, 1, 4]], (kept - kept.mean()) / kept.std(ddof=1))
    assert np.isnan(white[[2, 3]]).all()


@exact
def own_score_is_left_out() -> None:
    """Scores [1, 0] give [1, -1]; a group of one keeps its raw score; of three each is n/(n-1) = 1.5 times its rise.

    Episodes of unlike length weigh the same: scores 1, 0 and .2 with a mean of .4, of two turns, one and three.
    """
    table = Turns({"group": [0, 0, 1], "episode": [0, 1, 0], "agent": ["hero"] * 3, "reward": [1.0, 0.0, 0.7]})
    np.testing.assert_allclose(np.asarray(rloo(singleton="raw").evaluate(table)), [1, -1, 0.7])
    three = {"group": [0] * 6, "episode": [2, 0, 1, 2, 0, 2], "turn": [0, 0, 0, 1, 1, 2], "agent": ["hero"] * 6}
    unlike = Turns(three | {"reward": [0.1, 0.25, 0.0, 0.0, 0.75, 0.1]})
    np.testing.assert_allclose(np.asarray(rloo().evaluate(unlike)), [-0.3, 0.9, -0.6, -0.3, 0.9, -0.3])


@exact
def budget_is_shared() -> None:
    """Shares .2, .5 and .8 of ten iterations are SFT, none of share 0; every arm plays the same number of episodes."""
    for share, wanted in ((0.0, 0), (0.2, 2), (0.5, 5), (0.8, 8)):
        lines = learn(made(share, iterations=10, groups=2, group_size=2)).lines
        assert sum(line.get("phase") == "sft" for line in lines) == wanted
        assert [line["episodes"] for line in lines] == [4] * 10


def walked(**size: Any) -> pl.DataFrame:
    """Rows of 40 episodes of the script that takes the shortest way."""
    team = Team(hero=ScriptedPolicy(quest(), name="teacher"))
    return Local().play(functools.partial(Quest, **size), team, Plan(groups=40, seed=1)).frame


@exact
def size_is_three_numbers() -> None:
    """Rooms, things and steps are as many as was asked for; every quest can be done; features are as many for all."""
    small: dict[str, Any] = {"rooms": 2, "objects": 3, "length": 4}
    for size in (small, LARGE):
        frame = walked(**size)
        assert (frame["most"] == size["length"]).all()
        ends = frame.group_by("group").agg(pl.col("success").last(), pl.sum("gained"))
        assert ends["success"].all()
        assert (ends["gained"] == size["length"]).all()
        seen = Quest(**size).reset(0)["hero"]
        assert seen.text.count("(") == size["rooms"]
        assert (
            sum(seen.text.split(". ")[0].count(name) for name in ("lamp", "coin", "rope", "book", "cup", "key"))
            == (size["objects"])
        )
        assert seen.array is not None
        assert seen.array.shape == (23,)
    assert Quest(larger=(4, 6, 8), split="test").rooms == 4
    assert Quest(larger=(4, 6, 8)).rooms == 2


def measured(done: TrainingResult) -> dict[str, float]:
    """Success on held-out quests of the size that was trained, and on larger ones."""
    large = done.executor.play(
        functools.partial(Quest, **LARGE), done.team, Plan(groups=100, group_size=1, seed=0, stream="eval")
    )
    return {"success": _success(done.play(groups=200)), "large": _success(large)}


def _success(turns: Turns) -> float:
    ends = turns.frame.group_by("group", "episode").agg(pl.col("success").drop_nulls().last())
    return float(ends["success"].cast(pl.Float64).mean())  # type: ignore[arg-type]


ARMS: dict[str, dict[str, Any]] = {
    "untrained": made(0.0, iterations=0),
    "none": made(0.0),
    "small": made(0.2),
    "most": made(0.8),
    "sparse": made(0.2, dense=False),
    "rloo": made(0.2, credit=RLOO),
}


@reproduction(
    209,
    claim="at one budget of episodes a fifth of SFT is better than none, and what small quests teach transfers",
    baseline="the same number of episodes, all of them RL on the dense reward; an untrained network on large quests",
    criterion="share 0.2 is at least 0.1 above share 0, and on w4-o6-q8 at least 0.5 above the untrained network",
    seeds=(1, 2),
    slow=True,
)
def experiment(seeds: Sequence[int]) -> Outcome:
    """Held-out success of each share, density and algorithm after 30 iterations of 32 episodes."""
    found = train_arms(made(), ARMS, seeds, measured)
    share, _ = found.gain("small", "none", "success")
    transfer, _ = found.gain("small", "untrained", "large")
    return Outcome(found.measured() | {"share_gain": share, "transfer": transfer}, share >= 0.1 and transfer >= 0.5)
