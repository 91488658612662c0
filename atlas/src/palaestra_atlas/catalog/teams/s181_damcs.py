"""[181] DAMCS (arXiv 2502.05453): a graph of what was seen, and messages of what the others lack, make a team faster.

Scripted planners in `native/craft` that go for what is needed next: alone, in teams that tell nothing, everything, or
all but one kind of message, and with finds out of sight forgotten. Then tables that learn what to go for. Left out:
language models and the full world; the numbers of the card are of another simulation.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from palaestra.agents import ScriptedPolicy, Team
from palaestra.agents.policy import Request
from palaestra.algebra.turns import Turns
from palaestra.envs.worlds.craft import KINDS, MESSAGES, NEEDED, Craft
from palaestra.foundation.archive import Entry, GoalMemory
from palaestra.play.rollout import rollout
from palaestra_atlas.reproductions import Outcome, exact, reproduction, train_arms
from palaestra_atlas.verification.measures import Left, Measure

if TYPE_CHECKING:
    from palaestra.runs.inline import TrainingResult

GAMES = 30
ARMS: dict[str, dict[str, Any]] = {
    "solo": {"agents": 1},
    "forgetful": {"agents": 1, "remember": False},
    "silent_2": {"messages": ()},
    "told_2": {},
    "broadcast_2": {"addressed": False},
    "silent_6": {"agents": 6, "messages": ()},
    "told_6": {"agents": 6},
    **{f"no_{kind}_2": {"messages": [each for each in MESSAGES if each != kind]} for kind in MESSAGES},
}
RECIPE = {
    "name": "craft",
    "env": {"make": "native/craft", "options": {"n": 9, "horizon": 100}},
    "policies": {"planner": {"kind": "tabular", "options": {"capacity": 64}}},
    "team": {"agent-1": "planner", "agent-2": "planner"},
    "credit": 'centre(return_to_go(gamma=0.98), over="group")',
    "learn": {"lr": 0.3},
    "train": {"iterations": 20, "groups": 4, "group_size": 4},
}


def planner(request: Request) -> str:
    """What there is too little of, in order."""
    has = dict(part.split() for part in request.observation.text.split(", "))
    return next((kind for kind in KINDS[:-1] if int(has[kind]) < NEEDED[kind]), "diamond")


def played(seed: int, *, games: int = GAMES, **options: Any) -> tuple[float, float]:
    """Steps to the diamond, and messages of an agent in a step."""
    env = functools.partial(Craft, **options)
    team = Team(dict.fromkeys(env().agents, ScriptedPolicy(planner)))
    frame = rollout(env, team, groups=games, seed=seed, timeout=None).frame
    return len(frame) / games / len(env().agents), float(frame["told"].mean())  # type: ignore[arg-type]


FEW = 8
"""Games of an exact check."""


@exact
def telling_helps() -> None:
    """Two who tell each other what they found, took and aim at need at most .75 of the steps of two silent ones."""
    told, messages = played(0, games=FEW)
    silent, none = played(0, games=FEW, messages=())
    assert none == 0 < messages
    assert told <= 0.75 * silent, (told, silent)


@exact
def addressed_messages() -> None:
    """What is new to a teammate alone is less than half of everything to all, at about as many steps."""
    (steps, few), (all_steps, many) = played(0, games=FEW), played(0, games=FEW, addressed=False)
    assert few <= many / 2, (few, many)
    assert abs(steps - all_steps) <= 4, (steps, all_steps)


@exact
def out_of_sight() -> None:
    """Who forgets what is out of sight needs longer, alone on the same worlds."""
    steps, forgetful = (played(0, games=FEW, agents=1, **options)[0] for options in ({}, {"remember": False}))
    assert forgetful >= 1.15 * steps, (steps, forgetful)


@exact
def recalled_by_goal() -> None:
    """Recall goes from the long-term goal to its goals to their experiences, newest first, and to no other goal's."""
    graph = GoalMemory()
    for time, (key, goal, above) in enumerate(
        (("3,4", "wood", "diamond"), ("9,9", "stone", "diamond"), ("0,4", "wood", "diamond"), ("inn", "bed", "rest"))
    ):
        graph.add(Entry(key, key, time=time), goal=goal, long_term=above)
    assert [each.key for each in graph.recall("wood")] == ["0,4", "3,4"]
    assert [each.key for each in graph.recall("diamond")] == ["0,4", "9,9", "3,4"]
    assert [each.key for each in graph.recall("rest", k=1)] == ["inn"]


def steps_of_games(games: int = 3) -> list[float]:
    """Mean steps of the first, second … game that two planners play in the same world."""
    env = functools.partial(Craft, games=games)
    team = Team(dict.fromkeys(env().agents, ScriptedPolicy(planner)))
    frame = rollout(env, team, groups=FEW, seed=0, timeout=None).frame
    counts = frame.group_by("game").len().sort("game")["len"].to_list()
    return [count / FEW / 2 for count in counts]


@exact
def experience_is_used() -> None:
    """Goals found in a game are subgoals of the next one, which takes fewer steps; so does the third."""
    first, second, third = steps_of_games()
    assert second <= 0.8 * first, (first, second)
    assert third <= 0.8 * first, (first, third)


@exact
def claims_part() -> None:
    """Two who see everything and tell where they go hardly ever chase the same find; untold they often do."""
    shared = chased()
    assert shared < 0.1, shared


def chased(**options: Any) -> float:
    """Share of steps at which both of two planners are on their way to the same cell."""
    same = []
    for seed in range(FEW):
        env = Craft(n=9, view=9, horizon=60, **options)
        seen = env.reset(seed)
        while seen:
            rng = np.random.default_rng(0)
            goals = {agent: planner(Request(each, rng=rng, agent=agent)) for agent, each in seen.items()}
            same.append(len({env.target(agent, goal) for agent, goal in goals.items()}) == 1)
            seen = env.step(goals).observations
    return float(np.mean(same))


def planning() -> Callable[[Request], str]:
    """Script of `planner`."""
    return planner


def recipe(seed: int, folder: Path) -> None:
    """Writes the recipe of planners in the crafting world, `planners.yaml`."""
    here = __name__
    made = {
        "name": "planners",
        "env": {"make": "native/craft"},
        "policies": {"planner": {"kind": "script", "options": {"script": f"{here}:planning"}}},
        "team": {"*": "planner"},
        "credit": "return_to_go()",
        "learn": {"kind": "play"},
        "train": {"iterations": 1, "groups": 20, "group_size": 1},
        "evaluation": {"tasks": 2, "trials": 1, "look_tasks": 2, "look_trials": 1},
    }
    (folder / "planners.yaml").write_text(json.dumps(made))


def steps_taken() -> Measure:
    """Steps to the diamond of the games that were played, per seed."""

    def measured(left: Left) -> list[float]:
        found = []
        for seed in left.seeds():
            table = Turns.load(seed / "turns").frame
            games = table.select("group", "episode").n_unique()
            found.append(len(table) / table["agent"].n_unique() / games)
        return found

    return measured


def learned(found: TrainingResult) -> dict[str, float]:
    """Reward of an agent in a new game."""
    return {"reward": float(found.play(groups=40, seed=3).frame["reward"].sum()) / 80}


@reproduction(
    181,
    claim="Who remembers what was seen under the goal that it serves finds the diamond sooner; teams that tell each "
    "other what was taken and found are faster than one agent, and the more the larger; telling nothing they gain "
    "little, and addressed messages do as much as telling everybody everything.",
    baseline="one agent; teams that tell nothing; finds out of sight forgotten; broadcasting everything",
    criterion="steps to the diamond, mean over seeds: two that tell at most .7 of one, six at most .4, each at most "
    ".75 of as many silent ones; silent ones and those who do not tell what was taken .8 or more; who forgets 1.15 or "
    "more; addressed messages at most half of those of broadcasting, within 2 steps; a table that learns with "
    "messages gets .05 more than without, over seeds (held on a fresh block)",
    seeds=(0, 1),
    slow=True,
)
def measure(seeds: Sequence[int]) -> Outcome:
    """Play every team on the same worlds, then learn."""
    found = {arm: np.mean([played(seed, **options) for seed in seeds], 0) for arm, options in ARMS.items()}
    steps, told = ({arm: float(each[at]) for arm, each in found.items()} for at in (0, 1))
    alone = steps["solo"]
    holds = steps["told_2"] <= 0.7 * alone and steps["told_6"] <= 0.4 * alone
    holds &= all(steps[f"told_{n}"] <= 0.75 * steps[f"silent_{n}"] for n in (2, 6))
    holds &= min(steps["silent_2"], steps["silent_6"], steps["no_inventory_2"]) >= 0.8 * alone
    holds &= steps["forgetful"] >= 1.15 * alone
    holds &= told["told_2"] <= told["broadcast_2"] / 2 and abs(steps["told_2"] - steps["broadcast_2"]) <= 2
    arms = train_arms(RECIPE, {"told": {}, "silent": {"env": {"options": {"messages": []}}}}, seeds, learned)
    holds &= arms.gain("told", "silent", "reward")[0] >= 0.05
    measured = {f"steps_{arm}": each for arm, each in steps.items()}
    measured |= {f"messages_{arm}": told[arm] for arm in ("told_2", "broadcast_2", "told_6")}
    return Outcome(measured | arms.measured(), bool(holds))
