"""Where each system of the atlas stands among the parts of an agent, in the words of a survey [189] (arXiv 2504.01990).

The headings are the survey's; what stands below them is read off the atlas, so that it cannot be older than it. A
heading below which nothing stands has no system of the atlas here. Left out: the survey's prose, and its paper list.
"""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl

from palaestra.errors import InputError
from palaestra_atlas import systems

HEADINGS: dict[tuple[str, str], tuple[str, ...]] = {
    ("core", "cognition: learning"): ("learning", "credit", "agents", "algebra", "runs"),
    ("core", "cognition: reasoning and planning"): (
        "foundation.search", "judges.search", "judges.planning", "envs.worlds.lookup", "envs.worlds.errands",
        "envs.worlds.Errands",
    ),
    ("core", "memory"): ("foundation.archive", "learning.stages.replay", "envs.worlds.memory_team"),
    ("core", "perception"): ("envs.worlds.grounding",),
    ("core", "world model"): ("learning.auxiliary",),
    ("core", "action: tools"): ("envs.sandbox", "envs.roles.calls"),
    ("core", "reward: extrinsic"): (
        "rewards", "judges", "learning.reward_models", "learning.decomposition", "learning.stages.process_reward",
    ),
    ("core", "reward: intrinsic"): (
        "rewards.count_bonus", "rewards.elliptical", "rewards.episodic_global_bonus", "rewards.novelty_difference",
    ),
    ("core", "emotion"): ("rewards.emotion",),
    ("self-enhancement", "prompts"): ("judges.prompts", "judges.refine"),
    ("self-enhancement", "workflows"): (
        "evaluation.teamwork.guided_search", "evaluation.teamwork.propose", "evaluation.teamwork.compose",
        "evaluation.teamwork.threshold_knapsack", "teams.conducted", "envs.worlds.SubAgents",
        "envs.worlds.SkilledSubAgents", "learning.stages.recruit",
    ),
    ("self-enhancement", "tools"): (),
    ("self-enhancement", "tasks"): (
        "learning.stages.tasks", "learning.stages.difficulty", "learning.stages.tournament",
    ),
    ("self-enhancement", "scientific discovery"): (
        "envs.worlds.Experiment", "envs.worlds.Investigation", "envs.worlds.papers", "evaluation.logs.researchgym",
    ),
    ("collaboration", "topology and messages"): ("teams", "evaluation.teamwork.EdgeScores", "envs.worlds.craft"),
    ("collaboration", "ways of working together"): (
        "envs.worlds.halves", "envs.worlds.partner", "envs.worlds.Negotiation", "envs.worlds.Persuasion",
    ),
    ("collaboration", "human and AI"): ("envs.roles", "envs.worlds.Proactive", "envs.worlds.wishes"),
    ("collaboration", "collective evolution"): ("evaluation.population",),
    ("collaboration", "benchmarks of tasks"): ("envs", "evaluation"),
    ("collaboration", "benchmarks of teams"): ("evaluation.teamwork", "credit.teams", "play"),
    ("safety", "jailbreaks"): ("envs.worlds.guardians",),
    ("safety", "prompt injection"): (),
    ("safety", "hallucination"): (),
    ("safety", "misalignment"): ("evaluation.audits", "envs.worlds.exam", "learning.stages.alternate"),
    ("safety", "poisoning"): (),
    ("safety", "privacy"): (),
}  # fmt: skip
"""(part, heading): names below `palaestra`, the longest of which that begins an object's name places it."""


def place(name: str, headings: Mapping[tuple[str, str], tuple[str, ...]] = HEADINGS) -> tuple[str, str]:
    """The heading of an object.

    >>> place("palaestra.rewards.count_bonus"), place("palaestra.rewards.closeness")
    (('core', 'reward: intrinsic'), ('core', 'reward: extrinsic'))

    Raises:
        InputError: no heading names it or what it is in.
    """
    short = name.removeprefix("palaestra.")
    found = [
        (len(prefix), heading)
        for heading, prefixes in headings.items()
        for prefix in prefixes
        if short == prefix or short.startswith(prefix + ".")
    ]
    if not found:
        raise InputError(f"taxonomy: {name} has no heading; give one to it, or to what it is in, in HEADINGS")
    return max(found)[1]


def taxonomy(headings: Mapping[tuple[str, str], tuple[str, ...]] = HEADINGS) -> pl.DataFrame:
    """`part, heading, objects, ids`: a row per heading, in the survey's order; empty lists where no system is.

    A system stands below every heading below which one of its objects stands.

    Raises:
        InputError: an object of the atlas has no heading.
    """
    objects: dict[tuple[str, str], set[str]] = {heading: set() for heading in headings}
    ids: dict[tuple[str, str], set[int]] = {heading: set() for heading in headings}
    for system in systems():
        for name in system.where:
            if name != f"{__name__}.taxonomy":  # which has no part in an agent
                try:
                    heading = place(name, headings)
                except InputError as error:
                    raise InputError(f"[{system.id}] {system.name}: {error}") from error
                objects[heading].add(name)
                ids[heading].add(system.id)
    return pl.DataFrame(
        {
            "part": [part for part, _ in headings],
            "heading": [heading for _, heading in headings],
            "objects": [sorted(each) for each in objects.values()],
            "ids": [sorted(each) for each in ids.values()],
        },
        schema={"part": pl.String, "heading": pl.String, "objects": pl.List(pl.String), "ids": pl.List(pl.Int64)},
    )
