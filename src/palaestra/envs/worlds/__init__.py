"""Small worlds that some systems define, with their exact references in `exact`."""

from __future__ import annotations

from collections.abc import Callable

from palaestra.envs.base import Env
from palaestra.envs.worlds.answers import Answers
from palaestra.envs.worlds.automation_grid import AutomationGrid
from palaestra.envs.worlds.bargaining import Bargaining
from palaestra.envs.worlds.bertrand import Bertrand
from palaestra.envs.worlds.corridor import Corridor
from palaestra.envs.worlds.dial import Dial
from palaestra.envs.worlds.dilemma import Dilemma
from palaestra.envs.worlds.experiment import Experiment
from palaestra.envs.worlds.forced import Forced, forced
from palaestra.envs.worlds.graph_game import GraphGame
from palaestra.envs.worlds.grid_world import ExploredGrid, GridWorld
from palaestra.envs.worlds.guardians import Guardians
from palaestra.envs.worlds.inquiry import Inquiry
from palaestra.envs.worlds.investigation import Investigation
from palaestra.envs.worlds.jobs import Jobs
from palaestra.envs.worlds.lock import Lock
from palaestra.envs.worlds.lookup import Lookup
from palaestra.envs.worlds.market import Market
from palaestra.envs.worlds.memory_team import MemoryTeam
from palaestra.envs.worlds.negotiation import Negotiation
from palaestra.envs.worlds.persuasion import Persuasion
from palaestra.envs.worlds.queue import Queue
from palaestra.envs.worlds.sites import Sites
from palaestra.envs.worlds.steps import Steps
from palaestra.envs.worlds.team_builder import TeamBuilder
from palaestra.envs.worlds.templates import Desktop, TaskTemplate, suite
from palaestra.envs.worlds.two_phase import TwoPhase, two_phase

__all__ = [
    "WORLDS",
    "Answers",
    "AutomationGrid",
    "Bargaining",
    "Bertrand",
    "Corridor",
    "Desktop",
    "Dial",
    "Dilemma",
    "Experiment",
    "ExploredGrid",
    "Forced",
    "GraphGame",
    "GridWorld",
    "Guardians",
    "Inquiry",
    "Investigation",
    "Jobs",
    "Lock",
    "Lookup",
    "Market",
    "MemoryTeam",
    "Negotiation",
    "Persuasion",
    "Queue",
    "Sites",
    "Steps",
    "TaskTemplate",
    "TeamBuilder",
    "TwoPhase",
    "forced",
    "suite",
    "two_phase",
]

WORLDS: dict[str, Callable[..., Env]] = {
    "native/answers": Answers,
    "native/automation_grid": AutomationGrid,
    "native/bargaining": Bargaining,
    "native/bertrand": Bertrand,
    "native/corridor": Corridor,
    "native/desktop": Desktop,
    "native/dial": Dial,
    "native/dilemma": Dilemma,
    "native/experiment": Experiment,
    "native/explored_grid": ExploredGrid,
    "native/graph_game": GraphGame,
    "native/guardians": Guardians,
    "native/inquiry": Inquiry,
    "native/investigation": Investigation,
    "native/jobs": Jobs,
    "native/lock": Lock,
    "native/lookup": Lookup,
    "native/market": Market,
    "native/memory_team": MemoryTeam,
    "native/negotiation": Negotiation,
    "native/persuasion": Persuasion,
    "native/queue": Queue,
    "native/sites": Sites,
    "native/steps": Steps,
    "native/team_builder": TeamBuilder,
}
"""By the name that recipes use."""
