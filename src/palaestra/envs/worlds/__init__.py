"""Small worlds that some systems define, with their exact references in `exact`."""

from __future__ import annotations

from collections.abc import Callable

from palaestra.envs.base import Env
from palaestra.envs.worlds.answers import Answers
from palaestra.envs.worlds.automation_grid import AutomationGrid
from palaestra.envs.worlds.bargaining import Bargaining
from palaestra.envs.worlds.bertrand import Bertrand
from palaestra.envs.worlds.corridor import Corridor
from palaestra.envs.worlds.experiment import Experiment
from palaestra.envs.worlds.forced import Forced, forced
from palaestra.envs.worlds.graph_game import GraphGame
from palaestra.envs.worlds.grid_world import ExploredGrid, GridWorld
from palaestra.envs.worlds.investigation import Investigation
from palaestra.envs.worlds.market import Market
from palaestra.envs.worlds.negotiation import Negotiation
from palaestra.envs.worlds.persuasion import Persuasion
from palaestra.envs.worlds.queue import Queue
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
    "Experiment",
    "ExploredGrid",
    "Forced",
    "GraphGame",
    "GridWorld",
    "Investigation",
    "Market",
    "Negotiation",
    "Persuasion",
    "Queue",
    "TaskTemplate",
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
    "native/experiment": Experiment,
    "native/explored_grid": ExploredGrid,
    "native/graph_game": GraphGame,
    "native/investigation": Investigation,
    "native/market": Market,
    "native/negotiation": Negotiation,
    "native/persuasion": Persuasion,
    "native/queue": Queue,
}
"""By the name that recipes use."""
