"""Scripted play: whom a policy imitates before it learns, and whom it plays against.

A teacher is a function from its options to a function from a `Request` to an action. Recipes name it, or give
`module:function` for one of your own.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

from palaestra.agents.base import Request
from palaestra.envs.base import Action
from palaestra.errors import RecipeError, nearest

Play = Callable[[Request], Action]
TEACHERS: dict[str, Callable[..., Play]] = {}


def teacher(name: str) -> Callable[[Callable[..., Play]], Callable[..., Play]]:
    """Register a teacher under a name."""

    def decorate(make: Callable[..., Play]) -> Callable[..., Play]:
        TEACHERS[name] = make
        return make

    return decorate


def make(name: str, options: dict[str, Any], field: str = "teacher") -> Play:
    """The scripted play that a recipe names.

    Raises:
        RecipeError: no such teacher, or options that it does not take.
    """
    factory = TEACHERS.get(name) or (load_object(name, field) if ":" in name else None)
    if factory is None:
        raise RecipeError(f"{field}: no teacher {name!r}{nearest(name, TEACHERS)}; or give module:function")
    try:
        play: Play = factory(**options)
    except TypeError as error:
        raise RecipeError(f"{field} {name!r}: {error}") from error
    return play


def load_object(path: str, field: str) -> Any:
    """The object that `module:name` stands for."""
    module, _, name = path.partition(":")
    try:
        return getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise RecipeError(f"{field}: cannot import {path!r} ({error})") from error


@teacher("random")
def random_legal() -> Play:
    """Uniform over the legal actions."""

    def play(request: Request) -> Action:
        legal = request.observation.legal
        return legal[int(request.rng.integers(len(legal)))] if legal else ""

    return play
