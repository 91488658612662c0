"""Makes envs by name: registered ones, and `library/name` of the adapters. No library is imported before it is used."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any, cast

from palaestra.envs.dataset import dataset
from palaestra.envs.gymnasium import gymnasium, lbforaging
from palaestra.envs.momaland import momaland
from palaestra.envs.openspiel import openspiel
from palaestra.envs.overcooked import overcooked
from palaestra.envs.pettingzoo import pettingzoo
from palaestra.envs.protocol import Env, EnvFactory
from palaestra.envs.reasoning_gym import reasoning_gym
from palaestra.envs.registry import ENVS
from palaestra.envs.textarena import textarena
from palaestra.errors import InputError, nearest

_LIBRARIES: dict[str, Callable[..., EnvFactory]] = {
    "dataset": dataset,
    "gymnasium": gymnasium,
    "lbforaging": lbforaging,
    "momaland": momaland,
    "openspiel": openspiel,
    "overcooked": overcooked,
    "pettingzoo": pettingzoo,
    "reasoning_gym": reasoning_gym,
    "textarena": textarena,
}


def register(name: str, factory: Callable[..., Env]) -> None:
    """Registers `factory`, a maker of envs, under a name for recipes; an env's options become its keyword arguments.

    Raises:
        InputError: another factory has this name, or a library of this package has.
    """
    if name.split("/")[0] in (*_LIBRARIES, "native", "roles"):
        raise InputError(f"the env name {name!r} is taken; choose another")
    ENVS.add(name, factory)


def telling(column: str) -> list[str]:
    """Sorted names of the registered envs that declare a fact called `column`, for error messages."""
    declared = {name: getattr(factory, "facts", None) for name, factory in ENVS.items()}  # an option may decide later
    return sorted(name for name, facts in declared.items() if isinstance(facts, Mapping) and column in facts)


def make(spec: str, **options: Any) -> EnvFactory:
    """Env factory (function without arguments) of a registered env or `library/name` with these options; not built yet.

    `reasoning_gym` and `dataset` may be named alone, with `datasets` or `path` among the options.

    Raises:
        InputError: the name or an option is unknown (the message gives the nearest), or the library is not installed.

    >>> make("openspiel/kuhn_poker", illegal="random")().agents
    ('player_0', 'player_1')
    """
    function, arguments = find(spec)
    signature = inspect.signature(function)
    try:
        signature.bind(*arguments, **options)
    except TypeError as error:
        named = [p.name for p in signature.parameters.values() if p.kind in (p.KEYWORD_ONLY, p.POSITIONAL_OR_KEYWORD)]
        wrong = next((option for option in options if option not in named), "")
        raise InputError(f"env {spec!r}: {error}{nearest(wrong, named)}") from error
    factory: Any = functools.partial(function, *arguments, **options)
    # a library's function returns the factory
    return cast(EnvFactory, factory() if function in _LIBRARIES.values() else factory)


def find(spec: str) -> tuple[Callable[..., Any], tuple[str, ...]]:
    """The registered maker of an env name or `library/name`, and the arguments in the name: (callable, tuple).

    Raises:
        InputError: there is no such env; the message gives the nearest.
    """
    library, _, name = spec.partition("/")
    if library in _LIBRARIES:
        return _LIBRARIES[library], (name,) if name else ()
    if spec in ENVS:
        return ENVS[spec], ()
    raise InputError(f"there is no env {spec!r}{nearest(spec, [*ENVS, *_LIBRARIES])} (library/name)")
