"""Small worlds that some systems define, with their exact references in `exact`."""

from __future__ import annotations

from collections.abc import Callable

from palaestra.envs.base import Env
from palaestra.envs.worlds.answers import Answers
from palaestra.envs.worlds.arms import Arms, trade
from palaestra.envs.worlds.automation_grid import AutomationGrid
from palaestra.envs.worlds.bargaining import Bargaining
from palaestra.envs.worlds.bertrand import Bertrand
from palaestra.envs.worlds.codes import Codes
from palaestra.envs.worlds.corridor import Corridor
from palaestra.envs.worlds.experiment import Experiment
from palaestra.envs.worlds.film import Film
from palaestra.envs.worlds.forced import Forced, forced
from palaestra.envs.worlds.graph_game import GraphGame
from palaestra.envs.worlds.grid_world import ExploredGrid, GridWorld
from palaestra.envs.worlds.investigation import Investigation
from palaestra.envs.worlds.kitchen import Kitchen
from palaestra.envs.worlds.market import Market
from palaestra.envs.worlds.maze import Maze
from palaestra.envs.worlds.negotiation import Negotiation
from palaestra.envs.worlds.persuasion import Persuasion
from palaestra.envs.worlds.queue import Queue
from palaestra.envs.worlds.stakeholder import Stakeholder
from palaestra.envs.worlds.talk import Talk
from palaestra.envs.worlds.templates import Desktop, TaskTemplate, suite
from palaestra.envs.worlds.two_phase import TwoPhase, two_phase
from palaestra.envs.worlds.voxels import Voxels
from palaestra.envs.worlds.working import Working

__all__ = [
    "WORLDS",
    "Answers",
    "Arms",
    "AutomationGrid",
    "Bargaining",
    "Bertrand",
    "Codes",
    "Corridor",
    "Desktop",
    "Experiment",
    "ExploredGrid",
    "Film",
    "Forced",
    "GraphGame",
    "GridWorld",
    "Investigation",
    "Kitchen",
    "Market",
    "Maze",
    "Negotiation",
    "Persuasion",
    "Queue",
    "Stakeholder",
    "Talk",
    "TaskTemplate",
    "TwoPhase",
    "Voxels",
    "Working",
    "forced",
    "suite",
    "trade",
    "two_phase",
]

WORLDS: dict[str, Callable[..., Env]] = {
    "native/answers": Answers,
    "native/arms": Arms,
    "native/automation_grid": AutomationGrid,
    "native/bargaining": Bargaining,
    "native/bertrand": Bertrand,
    "native/codes": Codes,
    "native/corridor": Corridor,
    "native/desktop": Desktop,
    "native/experiment": Experiment,
    "native/explored_grid": ExploredGrid,
    "native/film": Film,
    "native/graph_game": GraphGame,
    "native/investigation": Investigation,
    "native/kitchen": Kitchen,
    "native/market": Market,
    "native/maze": Maze,
    "native/negotiation": Negotiation,
    "native/persuasion": Persuasion,
    "native/queue": Queue,
    "native/stakeholder": Stakeholder,
    "native/talk": Talk,
    "native/trade": trade,
    "native/voxels": Voxels,
    "native/working": Working,
}
"""By the name that recipes use."""
