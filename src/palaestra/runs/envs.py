"""The env of a recipe, with pipeline, workflow, tools and shared memory around it, and whether it can be played."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Iterable

from palaestra.envs import find, make
from palaestra.envs.protocol import EnvFactory
from palaestra.errors import PalaestraError, RecipeError
from palaestra.foundation.registry import load_object, read_call
from palaestra.runs.config import EnvPart
from palaestra.runs.scripts import call, naming
from palaestra.teams import WORKFLOWS, SharedMemoryEnv, pipeline, role_tools, shared_memory


def env(part: EnvPart, split: str) -> EnvFactory:
    """Makes the env factory of a recipe's `env` section for "train" or "test"; envs without splits ignore the split.

    Raises:
        RecipeError: there is no such env, or it does not take these options.
        MissingExtraError: its library is not installed.
    """
    options = dict(part.options)
    if ":" in part.make:
        with naming("env.make"):
            factory: EnvFactory = functools.partial(load_object(part.make, "module:name"), **options)
    else:
        with naming("env"):
            if "split" in inspect.signature(find(part.make)[0]).parameters:
                options["split"] = split
            factory = make(part.make, **options)
    if part.roles is not None:
        factory = call(pipeline, part.pipeline, "env.pipeline", factory, roles=part.roles)
    if part.workflow is not None:
        if isinstance(part.workflow, str):
            name, values, options = read_call(part.workflow)
        else:
            name, values, options = "graph", [], part.workflow
        with naming("env.workflow"):
            transform = WORKFLOWS.find(name)
        factory = call(transform, options, f"env.workflow {name!r}", factory, *values)
    if part.shared_memory is not None:
        options = part.shared_memory
        given = {"tools": part.tools, "turns": part.tool_turns}
        factory = call(shared_memory, options, "env.shared_memory", factory, accepts=[SharedMemoryEnv], **given)
    elif part.tools:
        with naming("env.tools"):
            factory = role_tools(factory, part.tools, turns=part.tool_turns)
    return factory


def try_env(factory: EnvFactory, name: str) -> None:
    """Make and reset one env of a factory, to find errors in it early; raises RecipeError.

    Raises:
        RecipeError: it cannot be made, or what was made is no env.
    """
    try:
        made = factory()
        missing = [each for each in ("agents", "reset", "step") if not hasattr(made, each)]
        if missing:
            raise RecipeError(f"env.make: {name!r} made {type(made).__name__}, which is no env: it lacks {missing[0]}")
        if not isinstance(made.agents, Iterable) or isinstance(made.agents, str):
            raise RecipeError(
                f"env.make: {name!r} made {type(made).__name__}, whose agents are {made.agents!r}; "
                "expected a tuple of their names"
            )
        made.reset(0)
    except PalaestraError:
        raise
    except Exception as error:
        raise RecipeError(f"env: {name!r} cannot be played ({type(error).__name__}: {error})") from error


def agents_of(factory: EnvFactory) -> tuple[str, ...]:
    """Tuple of the names of all agents of an env; makes one env from the factory to read them."""
    return tuple(factory().agents)
