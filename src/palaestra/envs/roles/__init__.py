"""Roles that an environment plays: a user with feelings, tools that are replayed, a screen, actions that judge.

Small worlds with scripted offline parts, each of which can be replaced by a function that asks a model.
"""

from __future__ import annotations

from palaestra.envs.roles.calls import Calls
from palaestra.envs.roles.functions import Functions
from palaestra.envs.roles.gui import Gui
from palaestra.envs.roles.itinerary import Itinerary
from palaestra.envs.roles.multi_hop import MultiHop
from palaestra.envs.roles.rooms import Rooms
from palaestra.envs.roles.search import SearchEnv
from palaestra.envs.roles.toolbox import Toolbox
from palaestra.envs.roles.tools import CachedTool
from palaestra.envs.roles.user import ModelUser, NeedyUser, SimulatedUser

__all__ = [
    "CachedTool",
    "Calls",
    "Functions",
    "Gui",
    "Itinerary",
    "ModelUser",
    "MultiHop",
    "NeedyUser",
    "Rooms",
    "SearchEnv",
    "SimulatedUser",
    "Toolbox",
]
