"""Team procedures as env transformations: a task with one answer becomes a game between roles."""

from __future__ import annotations

from palaestra.workflows.pipeline import PipelineEnv, pipeline, teacher

__all__ = ["PipelineEnv", "pipeline", "teacher"]
