"""Optimisers of a policy gradient: AdamW, AdamW with quantised moments, or a class of one's own."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from palaestra.errors import InputError, missing_extra, nearest
from palaestra.foundation.registry import load_object

if TYPE_CHECKING:
    import torch

QUANTISED = {"adamw_8bit": "AdamW8bit", "adamw_4bit": "AdamW4bit", "adamw_fp8": "AdamWFp8"}
"""AdamW with moments in blocks of 8 or 4 bits (arXiv 2110.02861, 2309.01507), and the class of torchao that it is."""


def check_name(name: str) -> None:
    """Raise InputError unless this names an optimiser known here or has the form `module:name`; nothing is imported."""
    if ":" not in name and name not in ("adamw", *QUANTISED):
        raise InputError(f"optimizer {name!r} is no module:name and not known{nearest(name, ('adamw', *QUANTISED))}")


def optimizer_class(name: str) -> Callable[..., torch.optim.Optimizer]:
    """Returns the optimiser class of a name, which is called with (parameters, lr, betas=, weight_decay=).

    Args:
        name: `adamw`; a key of `QUANTISED`, for which torchao is needed; or `module:name`, for instance
            `bitsandbytes.optim:PagedAdamW8bit`, whose moments wait in the main memory.

    Raises:
        InputError: There is no such optimiser, or it is called in another way.
        MissingExtraError: torchao is not installed.
    """
    import torch

    check_name(name)
    if name == "adamw":
        return functools.partial(torch.optim.AdamW, fused=True)
    if name in QUANTISED:
        try:
            import torchao.optim
        except ImportError:
            raise missing_extra("torchao", "low-bit") from None
        found: Callable[..., torch.optim.Optimizer] = getattr(torchao.optim, QUANTISED[name])
        return found
    made: Callable[..., torch.optim.Optimizer] = load_object(name, "optimizer")
    try:
        inspect.signature(made).bind([], 1e-3, betas=(0.9, 0.999), weight_decay=0.0)
    except TypeError as error:
        raise InputError(
            f"optimizer {name!r} is not called with (parameters, lr, betas=, weight_decay=): {error}"
        ) from None
    except ValueError:  # of what is written in C nothing is known
        pass
    return made


def set_rate(group: dict[str, Any], rate: float) -> None:
    """Sets the learning rate of a parameter group; in place where it is a tensor, which a compiled step reads."""
    if isinstance(group["lr"], int | float):
        group["lr"] = rate
    else:
        group["lr"].fill_(rate)
