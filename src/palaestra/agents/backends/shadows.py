"""Shadows of modules: the same parameters and functions, without what `nn.Module` does around every call.

A small layer's arithmetic takes no longer than finding its parameters (`__getattr__`) and looking for hooks
(`__call__`): a decoding step of two layers, 64 wide, takes four fifths of its time without. A shadow is made for a few
passes; it reads the live parameters, and its module stays as it is. `modules.Generic` tries whether it says the same.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch.nn.functional as F
from torch import nn
from torch.nn.modules.module import _has_any_global_hook

PLAIN = nn.Module.__call__
CONTAINERS = (nn.ModuleList, nn.ModuleDict, nn.Sequential)
"""Container modules: code reads their children and does not call them."""
WRAPPERS = ("transformers.utils.generic", "transformers.utils.output_capturing")


class Direct(functools.partial):  # type: ignore[type-arg]
    """Function of a module's shadow, which is that module to everything but a call."""

    module: nn.Module

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        return type(self.module)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.module, name)


def bare(module: nn.Module) -> bool:
    """Whether a call of the module is one of its class's `forward`, unless all modules have hooks."""
    own = vars(module)
    return not (
        own["_forward_hooks"]
        or own["_forward_pre_hooks"]
        or own["_backward_hooks"]
        or own["_backward_pre_hooks"]
        or own.get("_compiled_call_impl")
        or "forward" in own
        or type(module).__call__ is not PLAIN
    )


def shadowed(module: nn.Module) -> Callable[..., Any]:
    """Function of a `shadow` of a module, below wrappers of `transformers` that look for options in a configuration."""
    function: Any = type(module).forward
    while function.__globals__["__name__"] in WRAPPERS and hasattr(function, "__wrapped__"):
        function = function.__wrapped__
    return functools.partial(function, shadow(module))


def shadow(module: nn.Module) -> nn.Module:
    """Shadow of a module and of all inside of it that are `bare`; what is not stays itself."""
    return module if _has_any_global_hook() else _shadow(module, {})


def _shadow(module: nn.Module, made: dict[nn.Module, Any]) -> nn.Module:
    kind, before = type(module), vars(module)
    found: nn.Module = object.__new__(kind)
    own = vars(found)
    own.update(before)
    own.update(before["_parameters"])
    own["_buffers"] = before["_buffers"].copy()  # some rotary embeddings put others in their place
    for name, child in before["_modules"].items():
        if child is not None:
            own[name] = made[child] if child in made else _called(child, made)
    return found


def _called(child: nn.Module, made: dict[nn.Module, Any]) -> Any:
    """Stand-in of a child module, or the child itself, that its parent's shadow calls."""
    kind = type(child)
    found: Any = child
    if not bare(child):
        pass
    elif kind is nn.Linear:
        parameters = vars(child)["_parameters"]
        found = Direct(F.linear, weight=parameters["weight"], bias=parameters["bias"])
        found.module = child
    elif kind is nn.ModuleList:
        found = [_called(each, made) for each in vars(child)["_modules"].values()]
    elif not issubclass(kind, CONTAINERS):
        inside = _shadow(child, made)
        found = Direct(inside.forward)
        found.module = inside
    made[child] = found
    return found
