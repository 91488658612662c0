"""[38] GovSim (arXiv 2404.16698) and its reproduction: a commons with harvest, revealed catches, talk and collapse.

One seat learns what to take and what limit to say, four scripted ones keep to what was said. Left out: language models,
newcomers, and the reflection at home, in which nothing changes hands.
"""

from __future__ import annotations

import json
import tempfile
from functools import partial
from pathlib import Path

import numpy as np
import polars as pl

from palaestra.agents import ScriptedPolicy, Team
from palaestra.agents.policy import Request
from palaestra.envs.worlds import Commons
from palaestra.envs.worlds.commons import keeper
from palaestra.envs.worlds.exact.commons import collapsed, ration, regrown, threshold
from palaestra.evaluation.analyses import analyze
from palaestra.evaluation.games.society import commons_meters
from palaestra.play.rollout import rollout
from palaestra_atlas.reproductions import exact


def recipe(seed: int, folder: Path) -> None:
    """Writes the recipe of one learner among four who keep agreements, `commons.yaml`."""
    made = {
        "name": "commons",
        "env": {"make": "native/commons"},
        "policies": {
            "speaker": {"kind": "ordered", "options": {"start": [0.0, 0.0, 0.0, 0.0, 0.7], "noise": 0.15}},
            "keepers": {"kind": "script", "options": {"script": "commons", "wish": 14}},
        },
        "team": {"person_0": "speaker", "*": "keepers"},
        "credit": 'standardise(episode_return(), over="iteration", unit="episode")',
        "learn": {"lr": 0.03},
        "train": {"iterations": 40, "groups": 1, "group_size": 32, "evaluate_every": 40, "checkpoint_every": 40},
        "evaluation": {"tasks": 4, "trials": 8, "look_tasks": 2, "look_trials": 1, "measure": "score"},
    }  # fmt: skip
    (folder / "commons.yaml").write_text(json.dumps(made))


def played(units: list[int], **options: object) -> pl.DataFrame:
    """One episode in which each always takes the same quantity; its turns."""
    env = Commons(talk="none", **options)  # type: ignore[arg-type]
    word = "remove" if env.inverse else "take"
    scripts = {
        agent: ScriptedPolicy(lambda request, unit=unit: f"{word} {unit}", name=agent)  # type: ignore[misc]
        for agent, unit in zip(env.agents, units, strict=True)
    }
    return rollout(lambda: Commons(talk="none", **options), Team(scripts), groups=1, seed=0).frame  # type: ignore[arg-type]


def meters(units: list[int], **options: object) -> dict[str, float]:
    """Meters of that episode."""
    return commons_meters(played(units, **options)).row(0, named=True)


@exact
def all_take_the_same() -> None:
    """All take 10, 8, 12 or 20: 12, 12, 3 and 1 rounds, gain 120, 96, 32 and 20, efficiency 1, .8, .2667 and .1667."""
    for units, survived, gain, efficiency, over in ((10, 12, 120, 1, 0), (8, 12, 96, 0.8, 0), (12, 3, 32, 0.2667, 1),
                                                    (20, 1, 20, 0.1667, 1)):  # fmt: skip
        found = meters([units] * 5)
        assert (found["survived"], round(found["gain"], 9), found["over_use"]) == (survived, gain, over)
        assert abs(found["efficiency"] - efficiency) < 1e-4
        assert found["survival"] == float(survived == 12)


@exact
def one_takes_more() -> None:
    """Four take 10, the last 18: collapse in round 3, equality .8897 in proportion; drawn, all have alike."""
    found = meters([10, 10, 10, 10, 18], rationing="proportional")
    assert found["survived"] == 3
    assert abs(found["equality"] - 0.8897) < 1e-4
    assert all(units.is_integer() for units in played([10, 10, 10, 10, 18])["collected"])
    short = played([6, 20, 20, 20, 20], pool=50.0, rationing="proportional")
    assert short["collected"][0] < short["threshold"][0] < short["wanted"][0]
    assert short["over_used"].to_list() == [1.0] * 5, "wishes count"
    rng = np.random.default_rng(0)
    drawn = np.array([ration([10, 10, 10, 10, 18], 42.0, "random", rng) for _ in range(100)])
    assert (drawn.sum(1) == 42).all()
    assert (drawn <= [10, 10, 10, 10, 18]).all()
    assert drawn[:, 4].mean() < 11, "who wants more gets hardly more: in proportion it were 13.03"


@exact
def the_share_is_told() -> None:
    """Threshold 10 at 100 units and 4 at 47; only with universalization it is told, and rule followers keep to it."""
    assert [threshold(pool, 5) for pool in (100, 47)] == [10, 4]
    env = Commons(universal=True, pool=47.0)
    assert "takes more than 4, it shrinks" in env.reset(0)["person_0"].text
    survived = []
    for universal in (True, False):
        team = Team(dict.fromkeys(env.agents, ScriptedPolicy(keeper)))
        turns = rollout(partial(Commons, universal=universal, talk="none"), team, groups=1, seed=0)
        survived.append((turns.frame["survived"].max(), turns.frame["over_used"].mean()))
    assert survived[0] == (12.0, 0.0)
    assert survived[1][0] < 6  # type: ignore[operator]


@exact
def what_is_said_is_read() -> None:
    """After the catches a speaker says a limit, all read it at the next harvest, and listeners keep to it."""
    env = Commons(people=2, speakers=2)
    env.reset(0)
    asked = env.step({"person_0": "take 9", "person_1": "take 12"}).observations
    assert list(asked) == ["person_0"]
    assert "last round: 9 12" in asked["person_0"].text
    assert list(env.step({"person_0": "at most 6 each"}).observations) == ["person_1"]
    seen = env.step({"person_1": "at most 8 each"}).observations["person_1"]
    assert "person_0: at most 6 each | person_1: at most 8 each" in seen.text
    assert keeper(Request(seen, "person_1", np.random.default_rng(0))) == "take 7"
    np.testing.assert_allclose(seen.array, [1.0, 0.35, 0.0, 0.0], atol=1e-6)  # type: ignore[arg-type]
    again = env.step({"person_0": "take 7", "person_1": "take 7"}).observations["person_0"]
    assert "each" not in again.text, "an agreement is of one round"
    assert again.array[1] == 0.0  # type: ignore[index]
    free = Commons(people=2, talk="free")
    free.reset(0)
    free.step({"person_0": "take 9", "person_1": "take 12"})
    assert "person_0: let us take less" in free.step({"person_0": "let us\ntake less"}).observations["person_1"].text


@exact
def collapse_is_the_end() -> None:
    """The pool of each round if all take 12: 100, 80, 40; 40 left become 80, 60 become 100, less than 5 are the end."""
    pools = played([12] * 5)["pool"].unique().sort(descending=True).to_list()
    assert pools == [100.0, 80.0, 40.0]
    assert (regrown(40.0), regrown(60.0)) == (80.0, 100.0)
    assert [collapsed(4.9), collapsed(5.0)] == [True, False]


@exact
def trash() -> None:
    """Inverse scenario: who removes nothing is lost in the first round, all who remove 20 last for 12."""
    assert meters([0] * 5, inverse=True)["survived"] == 1
    found = meters([20] * 5, inverse=True)
    assert (found["survived"], found["over_use"]) == (12, 0.0)
    assert meters([9] * 5, inverse=True)["over_use"] == 1.0
    assert (threshold(100, 5, inverse=True), regrown(30.0, inverse=True)) == (10, 80.0)
    assert [collapsed(95.0, inverse=True), collapsed(95.1, inverse=True)] == [False, True]
    assert played([20, 5, 5, 5, 5], inverse=True)["reward"].head(2).to_list() == [0.0, 15.0], "who removes earns less"


@exact
def the_command_reports() -> None:
    """`analyze commons` of two systems, a row each, with survival curves."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "turns.parquet"
        parts = [played([units] * 5).with_columns(system=pl.lit(name)) for name, units in (("ten", 10), ("twelve", 12))]
        pl.concat(parts).write_parquet(file)
        found = analyze("commons", file)
    assert found["system"].to_list() == ["ten", "twelve"]
    assert found["curve"].to_list() == [[[12.0, 1.0]], [[3.0, 0.0]]]
