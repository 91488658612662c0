"""`ENVS`: the envs that recipes name, `native/corridor`; libraries (`openspiel/…`) are resolved by `envs.make`."""

from __future__ import annotations

from palaestra.envs.protocol import Env
from palaestra.foundation.registry import Registry

ENVS: Registry[Env] = Registry(
    "env", home=("palaestra.envs.worlds", "palaestra.envs.roles", "palaestra.teams"), example="native/corridor"
)
"""Options of a recipe become keyword arguments."""
