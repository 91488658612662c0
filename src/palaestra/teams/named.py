"""Registry of team procedures."""

from __future__ import annotations

from palaestra.envs.protocol import EnvFactory
from palaestra.foundation.registry import Registry

WORKFLOWS: Registry[EnvFactory] = Registry("workflow", home=("palaestra.teams",), example="debate(3, rounds=2)")
"""What `env.workflow` of a recipe may name: functions from the factory of an env to another one."""
