"""Small worlds that some systems define, with their exact references in `exact`."""

from __future__ import annotations

import importlib
import pkgutil

from palaestra.envs.worlds.answers import Answers
from palaestra.envs.worlds.arms import Arms, trade
from palaestra.envs.worlds.assistance import Assistance
from palaestra.envs.worlds.automation_grid import AutomationGrid
from palaestra.envs.worlds.bargaining import Bargaining
from palaestra.envs.worlds.beach import Beach
from palaestra.envs.worlds.bertrand import Bertrand
from palaestra.envs.worlds.brink import Brink
from palaestra.envs.worlds.candidates import Candidates
from palaestra.envs.worlds.codes import CodesEnv
from palaestra.envs.worlds.commons import Commons
from palaestra.envs.worlds.corridor import Corridor
from palaestra.envs.worlds.craft import Craft
from palaestra.envs.worlds.cups import Cups
from palaestra.envs.worlds.denoise import Denoise
from palaestra.envs.worlds.dial import Dial
from palaestra.envs.worlds.dilemma import Dilemma
from palaestra.envs.worlds.discs import Discs
from palaestra.envs.worlds.discussion import Discussion
from palaestra.envs.worlds.donor_game import DonorGame
from palaestra.envs.worlds.dossier import Dossier
from palaestra.envs.worlds.epidemic import Epidemic
from palaestra.envs.worlds.errand_grid import ErrandGrid
from palaestra.envs.worlds.errands import Errands
from palaestra.envs.worlds.evidence import Cases, EvidenceDebate
from palaestra.envs.worlds.exam import Exam
from palaestra.envs.worlds.exchange import Exchange
from palaestra.envs.worlds.experiment import Experiment
from palaestra.envs.worlds.fetch import Fetch
from palaestra.envs.worlds.film import Film
from palaestra.envs.worlds.forced import Forced, forced
from palaestra.envs.worlds.gems import Gems
from palaestra.envs.worlds.goal_grid import GoalGrid
from palaestra.envs.worlds.graded_taps import GradedTaps
from palaestra.envs.worlds.graph_game import GraphGame
from palaestra.envs.worlds.grid_world import ExploredGrid, GridWorld
from palaestra.envs.worlds.grounding import Grounding
from palaestra.envs.worlds.guardians import Guardians
from palaestra.envs.worlds.halves import Halves
from palaestra.envs.worlds.hidden_roles import HiddenRoles
from palaestra.envs.worlds.inquiry import Inquiry
from palaestra.envs.worlds.investigation import Investigation
from palaestra.envs.worlds.jobs import Jobs
from palaestra.envs.worlds.judging import Judging
from palaestra.envs.worlds.kitchen import Kitchen
from palaestra.envs.worlds.kuramoto import Kuramoto
from palaestra.envs.worlds.landmarks import Landmarks
from palaestra.envs.worlds.lattice import Lattice
from palaestra.envs.worlds.layers import LayersEnv
from palaestra.envs.worlds.levels import Levels
from palaestra.envs.worlds.lexicon import Lexicon
from palaestra.envs.worlds.lock import Lock
from palaestra.envs.worlds.lookup import Lookup
from palaestra.envs.worlds.market import Market
from palaestra.envs.worlds.maze import Maze
from palaestra.envs.worlds.memory_team import MemoryTeam
from palaestra.envs.worlds.negotiation import Negotiation
from palaestra.envs.worlds.nodes import Nodes
from palaestra.envs.worlds.off_switch import OffSwitch
from palaestra.envs.worlds.opponents import Opponents
from palaestra.envs.worlds.papers import Papers
from palaestra.envs.worlds.partner import Belief, Partner
from palaestra.envs.worlds.parts import Hops, PickCall, PlanDetails, Pointing
from palaestra.envs.worlds.persuasion import Persuasion
from palaestra.envs.worlds.phrases import Phrases
from palaestra.envs.worlds.places_grid import PlacesGrid
from palaestra.envs.worlds.proactive import Proactive
from palaestra.envs.worlds.procedure import Procedure
from palaestra.envs.worlds.profiled_routing import ProfiledRouting
from palaestra.envs.worlds.pulls import Pulls
from palaestra.envs.worlds.quest import Quest
from palaestra.envs.worlds.queue import Queue
from palaestra.envs.worlds.rag import Rag
from palaestra.envs.worlds.referential import Referential
from palaestra.envs.worlds.refusals import Refusals
from palaestra.envs.worlds.rendezvous import Rendezvous
from palaestra.envs.worlds.repair import Repair
from palaestra.envs.worlds.repository import Repository
from palaestra.envs.worlds.reputation import Reputation
from palaestra.envs.worlds.retries import Retries
from palaestra.envs.worlds.review import Review
from palaestra.envs.worlds.ring_walkers import RingWalkers
from palaestra.envs.worlds.routing import Routing
from palaestra.envs.worlds.second_look import SecondLook
from palaestra.envs.worlds.shelf import Shelf
from palaestra.envs.worlds.sieve import Sieve
from palaestra.envs.worlds.sites import Sites
from palaestra.envs.worlds.skilled_subagents import SkilledSubAgents
from palaestra.envs.worlds.slips import Slips
from palaestra.envs.worlds.stage_games import StageGames
from palaestra.envs.worlds.stakeholder import Stakeholder
from palaestra.envs.worlds.steps import Steps
from palaestra.envs.worlds.stories import Stories
from palaestra.envs.worlds.subagents import SubAgents
from palaestra.envs.worlds.supervised_choice import SupervisedChoice
from palaestra.envs.worlds.talk import Talk
from palaestra.envs.worlds.taps import Taps
from palaestra.envs.worlds.tax_economy import TaxEconomy
from palaestra.envs.worlds.team_builder import TeamBuilder
from palaestra.envs.worlds.templates import Desktop, TaskTemplate, suite
from palaestra.envs.worlds.threshold_game import ThresholdGame
from palaestra.envs.worlds.tool_steps import ToolSteps
from palaestra.envs.worlds.traffic import Traffic
from palaestra.envs.worlds.trail import Trail
from palaestra.envs.worlds.two_phase import TwoPhase, two_phase
from palaestra.envs.worlds.verdict import VerdictEnv
from palaestra.envs.worlds.voxels import Voxels
from palaestra.envs.worlds.walk import Walk
from palaestra.envs.worlds.widgets import Widgets
from palaestra.envs.worlds.wishes import Wishes
from palaestra.envs.worlds.working import Working
from palaestra.envs.worlds.workshop import Workshop

__all__ = [
    "Answers",
    "Arms",
    "Assistance",
    "AutomationGrid",
    "Bargaining",
    "Beach",
    "Belief",
    "Bertrand",
    "Brink",
    "Candidates",
    "Cases",
    "CodesEnv",
    "Commons",
    "Corridor",
    "Craft",
    "Cups",
    "Denoise",
    "Desktop",
    "Dial",
    "Dilemma",
    "Discs",
    "Discussion",
    "DonorGame",
    "Dossier",
    "Epidemic",
    "ErrandGrid",
    "Errands",
    "EvidenceDebate",
    "Exam",
    "Exchange",
    "Experiment",
    "ExploredGrid",
    "Fetch",
    "Film",
    "Forced",
    "Gems",
    "GoalGrid",
    "GradedTaps",
    "GraphGame",
    "GridWorld",
    "Grounding",
    "Guardians",
    "Halves",
    "HiddenRoles",
    "Hops",
    "Inquiry",
    "Investigation",
    "Jobs",
    "Judging",
    "Kitchen",
    "Kuramoto",
    "Landmarks",
    "Lattice",
    "LayersEnv",
    "Levels",
    "Lexicon",
    "Lock",
    "Lookup",
    "Market",
    "Maze",
    "MemoryTeam",
    "Negotiation",
    "Nodes",
    "OffSwitch",
    "Opponents",
    "Papers",
    "Partner",
    "Persuasion",
    "Phrases",
    "PickCall",
    "PlacesGrid",
    "PlanDetails",
    "Pointing",
    "Proactive",
    "Procedure",
    "ProfiledRouting",
    "Pulls",
    "Quest",
    "Queue",
    "Rag",
    "Referential",
    "Refusals",
    "Rendezvous",
    "Repair",
    "Repository",
    "Reputation",
    "Retries",
    "Review",
    "RingWalkers",
    "Routing",
    "SecondLook",
    "Shelf",
    "Sieve",
    "Sites",
    "SkilledSubAgents",
    "Slips",
    "StageGames",
    "Stakeholder",
    "Steps",
    "Stories",
    "SubAgents",
    "SupervisedChoice",
    "Talk",
    "Taps",
    "TaskTemplate",
    "TaxEconomy",
    "TeamBuilder",
    "ThresholdGame",
    "ToolSteps",
    "Traffic",
    "Trail",
    "TwoPhase",
    "VerdictEnv",
    "Voxels",
    "Walk",
    "Widgets",
    "Wishes",
    "Working",
    "Workshop",
    "forced",
    "suite",
    "trade",
    "two_phase",
]

for _module in sorted(each.name for each in pkgutil.iter_modules(__path__)):  # one that is not named above, too
    importlib.import_module(f"{__name__}.{_module}")
