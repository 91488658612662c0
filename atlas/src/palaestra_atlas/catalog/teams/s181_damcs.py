"""[181] DAMCS (arXiv 2502.05453): a graph of what was seen, and messages of what the others lack, make a team faster.

Scripted planners in `native/craft` that go for what is needed next: alone, in teams that tell nothing, everything, or
all but one kind of message, and with finds out of sight forgotten. Then tables that learn what to go for. Left out:
language models and the full world; the numbers of the card are of another simulation.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from palaestra.agents import ScriptedPolicy, Team
from palaestra.agents.policy import Request
from palaestra.envs.worlds.craft import KINDS, MESSAGES, NEEDED, Craft
from palaestra.play.rollout import rollout
from palaestra_atlas.reproductions import Outcome, reproduction, train_arms

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


def played(seed: int, **options: Any) -> tuple[float, float]:
    """Steps to the diamond, and messages of an agent in a step."""
    env = functools.partial(Craft, **options)
    team = Team(dict.fromkeys(env().agents, ScriptedPolicy(planner)))
    frame = rollout(env, team, groups=GAMES, seed=seed, timeout=None).frame
    return len(frame) / GAMES / len(env().agents), float(frame["told"].mean())  # type: ignore[arg-type]


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
