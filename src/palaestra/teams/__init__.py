"""Team procedures as env transformations: a task with one answer becomes a game between roles, history a summary."""

from __future__ import annotations

from palaestra.envs import register
from palaestra.teams.pipeline import PipelineEnv, pipeline, teacher
from palaestra.teams.summary import SelfSummaryEnv, self_summary

__all__ = ["PipelineEnv", "SelfSummaryEnv", "pipeline", "self_summary", "teacher"]

register("self_summary", SelfSummaryEnv)
