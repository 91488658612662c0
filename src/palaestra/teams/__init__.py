"""Teams as env transformations: a task with one answer becomes a game between roles, history becomes a summary.

A team is data (`graph`: roles, who hears whom, rounds, rules); the usual ones have names (`debate`, `star`, …), and
somebody may sit in a seat from which the team is chosen (`orchestrated`).
"""

from __future__ import annotations

from palaestra.envs import ENVS
from palaestra.teams import votes, workflows
from palaestra.teams.advantage_feedback import AdvantageFeedbackEnv, advantage_feedback
from palaestra.teams.archetypes import ArchetypeEnv, archetypes
from palaestra.teams.audit import AUDITS, AuditedDeliberation, audited
from palaestra.teams.branches import Branches, branches
from palaestra.teams.conductor import ConductedEnv, conducted
from palaestra.teams.context_window import ContextWindowEnv, context_window
from palaestra.teams.coordinator import CoordinatedEnv, coordinator
from palaestra.teams.deliberation import Deliberation
from palaestra.teams.directed import DirectedDebate, directed
from palaestra.teams.graph import Graph
from palaestra.teams.handover import HandoverEnv, handover
from palaestra.teams.mean_field import MeanFieldEnv, kernel_features, mean_field
from palaestra.teams.memory_entries import MemoryEntry
from palaestra.teams.named import WORKFLOWS
from palaestra.teams.nested import Nested, nested
from palaestra.teams.omission import Omission, omission
from palaestra.teams.one_conversation import OneConversation, one_conversation
from palaestra.teams.one_model import OneModel, one_model
from palaestra.teams.options import OptionsEnv, options
from palaestra.teams.orchestrator import OrchestratedEnv, orchestrated
from palaestra.teams.personas import Personas, personas
from palaestra.teams.pipeline import PipelineEnv, pipeline, scripted_role
from palaestra.teams.program import ProgramTeam, program
from palaestra.teams.proposer import ProposerEnv, proposer
from palaestra.teams.role_tools import RoleTools, role_tools
from palaestra.teams.rules import AGGREGATES, GATES, ROUTES, STOPS, Message
from palaestra.teams.self_organized import SelfOrganized, self_organized
from palaestra.teams.shared_memory import SharedMemoryEnv, shared_memory
from palaestra.teams.stage_beam import StageBeam, stage_beam
from palaestra.teams.subgoals import Subgoals, subgoals
from palaestra.teams.summary import SelfSummaryEnv, self_summary
from palaestra.teams.supervisor import Supervised, supervisor
from palaestra.teams.switching import SwitchingEnv, switching
from palaestra.teams.thoughts import Thoughts, thoughts
from palaestra.teams.tree_search import TreeSearchEnv, tree_search
from palaestra.teams.turn_tree import TurnTree, turn_tree

__all__ = [
    "AGGREGATES",
    "AUDITS",
    "GATES",
    "ROUTES",
    "STOPS",
    "WORKFLOWS",
    "AdvantageFeedbackEnv",
    "ArchetypeEnv",
    "AuditedDeliberation",
    "Branches",
    "ConductedEnv",
    "ContextWindowEnv",
    "CoordinatedEnv",
    "Deliberation",
    "DirectedDebate",
    "Graph",
    "HandoverEnv",
    "MeanFieldEnv",
    "MemoryEntry",
    "Message",
    "Nested",
    "Omission",
    "OneConversation",
    "OneModel",
    "OptionsEnv",
    "OrchestratedEnv",
    "Personas",
    "PipelineEnv",
    "ProgramTeam",
    "ProposerEnv",
    "RoleTools",
    "SelfOrganized",
    "SelfSummaryEnv",
    "SharedMemoryEnv",
    "StageBeam",
    "Subgoals",
    "Supervised",
    "SwitchingEnv",
    "Thoughts",
    "TreeSearchEnv",
    "TurnTree",
    "advantage_feedback",
    "archetypes",
    "audited",
    "branches",
    "conducted",
    "context_window",
    "coordinator",
    "directed",
    "handover",
    "kernel_features",
    "mean_field",
    "nested",
    "omission",
    "one_conversation",
    "one_model",
    "options",
    "orchestrated",
    "personas",
    "pipeline",
    "program",
    "proposer",
    "role_tools",
    "scripted_role",
    "self_organized",
    "self_summary",
    "shared_memory",
    "stage_beam",
    "subgoals",
    "supervisor",
    "switching",
    "thoughts",
    "tree_search",
    "turn_tree",
    "votes",
    "workflows",
]

for made in (
    workflows.graph, workflows.single, workflows.self_consistency, workflows.debate, workflows.star,
    workflows.chain, workflows.tree, workflows.layered, workflows.relay, workflows.blackboard, workflows.contest,
    workflows.auction, workflows.strategy_auction, workflows.refine, workflows.plan_act_check, workflows.search,
    workflows.checked_chain, advantage_feedback, audited, conducted, directed, handover, nested, one_conversation,
    omission, one_model, orchestrated, personas, pipeline, program, proposer, self_organized, self_summary, supervisor,
    tree_search, context_window, branches, turn_tree, stage_beam, subgoals, coordinator, switching, mean_field,
    archetypes, options, thoughts,
):  # fmt: skip
    WORKFLOWS.add(made.__name__, made)
ENVS.add("self_summary", SelfSummaryEnv)
ENVS.add("context_window", ContextWindowEnv)
