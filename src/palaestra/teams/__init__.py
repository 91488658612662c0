"""Team procedures as env transformations: a task with one answer becomes a game between roles, history a summary."""

from __future__ import annotations

from palaestra.algebra.registry import Registry
from palaestra.envs import ENVS
from palaestra.envs.base import EnvFactory
from palaestra.teams.pipeline import PipelineEnv, pipeline, teacher
from palaestra.teams.summary import SelfSummaryEnv, self_summary
from palaestra.teams.window import WindowEnv, window

__all__ = ["WORKFLOWS", "PipelineEnv", "SelfSummaryEnv", "WindowEnv", "pipeline", "self_summary", "teacher", "window"]

WORKFLOWS: Registry[EnvFactory] = Registry("workflow", home=("palaestra.teams",), example="pipeline(roles=['solver'])")
"""What `env.workflow` of a recipe may name: functions from the factory of an env to another one."""
WORKFLOWS.add("pipeline", pipeline)
WORKFLOWS.add("self_summary", self_summary)
WORKFLOWS.add("window", window)
ENVS.add("self_summary", SelfSummaryEnv)
ENVS.add("window", WindowEnv)
