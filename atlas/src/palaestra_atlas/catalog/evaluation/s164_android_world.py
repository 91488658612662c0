"""[164] AndroidWorld: one parameter per task is a task learned by heart.

Eight templates with a slot of three values, the world `desktop`. A table that is trained on one instance of each knows
these and nothing else; one that reads the slot and is trained on sampled instances knows all. Left out: phones, M3A.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import polars as pl

from palaestra.agents import ScriptedPolicy, Team
from palaestra.envs import make
from palaestra.envs.worlds import Desktop, suite
from palaestra.envs.worlds.exact.templates import macro_mean, seed_of
from palaestra.envs.worlds.templates import SETTINGS
from palaestra.play.rollout import rollout
from palaestra_atlas.reproductions import Outcome, exact, reproduction, train_arms

if TYPE_CHECKING:
    from palaestra.runs.inline import TrainingResult

SAMPLED, FRESH, VALUES = 100, 1000, 3
"""Instances of each template; the seed of the suite that nobody is trained on; values of a slot."""
INSTANCES = {"fixed": 1, "sampled": SAMPLED}
ARMS: dict[str, dict[str, Any]] = {
    name: {
        "env": {
            "make": "native/desktop",
            "options": {"instances": instances, "values": VALUES, "show_goal": name == "sampled"},
        },
        "train": {"iterations": 80, "groups": 8},
    }
    for name, instances in INSTANCES.items()
}


def ended(*moves: str, seed: int = 0) -> dict[str, Any]:
    """What is told at the end of these moves; `right` and `wrong` stand for values of the task's setting."""
    env = Desktop(instances=3)
    env.reset(seed)
    right = env.state.params["value"]
    words = {"right": f"set {right}", "wrong": f"set {(right + 1) % 10}"}
    info: dict[str, Any] = {}
    for move in moves:
        result = env.step({"user_agent": words.get(move, move)})
        info = dict(result.info) | {"reward": result.rewards.get("user_agent")}
    return info


@exact
def slots_are_drawn() -> None:
    """Instances of a template have goals with values of their own, the same in every process."""
    made = suite(SETTINGS, 12)
    for setting in SETTINGS:
        values = [each.params()["value"] for each in made if each.template.name == setting.name]
        assert len(set(values)) > 3, (setting.name, values)
        assert [setting.goal({"value": value}) for value in values[:2]] == [
            f"set {setting.name} to {value}" for value in values[:2]
        ]


@exact
def read_from_the_state() -> None:
    """Done after the right value is success; done at once, or after a wrong value, is not."""
    assert ended("right", "done")["success"] is True
    assert ended("done")["success"] is False
    assert ended("wrong", "done")["success"] is False


@exact
def must_declare() -> None:
    """The right state without a word of it is no success, nor if it was left again before."""
    assert ended("right", "right", "right")["success"] is False
    assert ended("right", "wrong", "done")["success"] is False
    assert ended("right", "infeasible")["success"] is False


@exact
def seeds_by_name() -> None:
    """`30_ContactsAdd_0` is 1661844299; other templates in the suite change no instance."""
    assert seed_of(30, "ContactsAdd", 0) == 1661844299
    few, all_of_them = suite(SETTINGS[3:5], 4), suite(SETTINGS, 4)
    seeds = {(each.template.name, each.number): each.seed for each in all_of_them}
    assert all(seeds[each.template.name, each.number] == each.seed for each in few)


@exact
def templates_first() -> None:
    """One instance of a template at 1 and nine of another at 0 make a half."""
    trials = pl.DataFrame({"template": ["a"] + ["b"] * 9, "success": [1.0] + [0.0] * 9})
    assert macro_mean(trials) == 0.5
    policy = ScriptedPolicy(lambda request: "done", name="p")
    turns = rollout(Desktop, Team(user_agent=policy), groups=8, timeout=None).frame
    assert macro_mean(turns.drop_nulls("template")) == 0.0


def success(learned: TrainingResult) -> dict[str, float]:
    """On the suite that it was trained on, and on a fresh one."""
    from palaestra.play.executors import Plan  # brings torch

    reads = learned.setup.test().show_goal  # type: ignore[attr-defined]
    fresh = make("native/desktop", instances=SAMPLED, seed=FRESH, values=VALUES, show_goal=reads)
    there = learned.executor.play(fresh, learned.team, Plan(groups=200, stream="eval"))
    return {
        "trained": float(learned.play(groups=100)["success"].mean()),  # type: ignore[arg-type]
        "fresh": float(there["success"].mean()),  # type: ignore[arg-type]
    }


@reproduction(
    164,
    claim="A learner trained on one parameter per template fails on fresh parameters; one that reads the slot and is "
    "trained on sampled parameters does not.",
    baseline="one fixed parameter per template",
    criterion="the published seed of an instance; success falls by > 0.3 from training to fresh parameters for the "
    "fixed suite, by < 0.05 for the sampled one, which solves > 0.9 of the fresh ones (means; held on the one fresh "
    "seed tried)",
    seeds=(0, 1),
    slow=True,
)
def measure(seeds: Sequence[int]) -> Outcome:
    """Both learners on their own suite and on a fresh one."""
    arms = train_arms("world", ARMS, seeds, success)
    drops = {name: arms.mean(name, "trained") - arms.mean(name, "fresh") for name in ARMS}
    holds = seed_of(30, "ContactsAdd", 0) == 1661844299 and drops["fixed"] > 0.3 and drops["sampled"] < 0.05
    measured = arms.measured() | {f"drop_{name}": drop for name, drop in drops.items()}
    return Outcome(measured, holds and arms.mean("sampled", "fresh") > 0.9)
