"""Teams as env transformations: a task with one answer becomes a game between roles, history becomes a summary.

A team is data (`graph`: roles, who hears whom, rounds, rules); the usual ones have names (`debate`, `star`, …), and
somebody may sit in a seat from which the team is chosen (`orchestrated`).
"""

from __future__ import annotations

from palaestra.algebra.registry import Registry
from palaestra.envs import ENVS
from palaestra.envs.base import EnvFactory
from palaestra.teams import shapes
from palaestra.teams.audit import AUDITS, AuditedDeliberation, audited
from palaestra.teams.conductor import ConductedEnv, conducted
from palaestra.teams.deliberation import Deliberation
from palaestra.teams.graph import Graph
from palaestra.teams.handover import HandoverEnv, handover
from palaestra.teams.orchestrator import OrchestratedEnv, orchestrated
from palaestra.teams.partial import TreeSearchEnv, tree_search
from palaestra.teams.pipeline import PipelineEnv, pipeline, teacher
from palaestra.teams.rules import AGGREGATES, GATES, ROUTES, STOPS, Said
from palaestra.teams.summary import SelfSummaryEnv, self_summary
from palaestra.teams.window import WindowEnv, window

__all__ = [
    "AGGREGATES",
    "AUDITS",
    "GATES",
    "ROUTES",
    "STOPS",
    "WORKFLOWS",
    "AuditedDeliberation",
    "ConductedEnv",
    "Deliberation",
    "Graph",
    "HandoverEnv",
    "OrchestratedEnv",
    "PipelineEnv",
    "Said",
    "SelfSummaryEnv",
    "TreeSearchEnv",
    "WindowEnv",
    "audited",
    "conducted",
    "handover",
    "orchestrated",
    "pipeline",
    "self_summary",
    "shapes",
    "teacher",
    "tree_search",
    "window",
]

WORKFLOWS: Registry[EnvFactory] = Registry("workflow", home=("palaestra.teams",), example="debate(3, rounds=2)")
"""What `env.workflow` of a recipe may name: functions from the factory of an env to another one."""
for made in (
    shapes.graph, shapes.single, shapes.self_consistency, shapes.debate, shapes.star, shapes.chain, shapes.tree,
    shapes.layered, shapes.relay, shapes.blackboard, shapes.contest, shapes.auction, shapes.strategy_auction,
    shapes.refine, shapes.plan_act_check, shapes.search, shapes.checked_chain, audited, conducted, handover,
    orchestrated, pipeline, self_summary, tree_search, window,
):  # fmt: skip
    WORKFLOWS.add(made.__name__, made)
ENVS.add("self_summary", SelfSummaryEnv)
ENVS.add("window", WindowEnv)
