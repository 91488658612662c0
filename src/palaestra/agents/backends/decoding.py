"""Decoding steps through the layers of a body: one token per row, without what `forward` does around the layers.

Before its layers a body makes a mask, positions and their rotary embeddings, after them an output object: a fifth of a
step of two layers, 64 wide. Here the layers get what the body would give them; the rotary embeddings of all positions
are made once. `modules.Generic` tries whether that says the same.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from palaestra.agents.backends.shadows import shadow, shadowed

ROTARY = ("default", "linear", "llama3", "yarn")
"""Rotary embeddings of a position that do not depend on how long the sequence is."""
PARTS = ("embed_tokens", "rotary_emb", "layers", "norm")


def steps_through(body: nn.Module) -> bool:
    """Whether a body has the parts that `Steps` calls, and rotary embeddings of `ROTARY`, a position by itself."""
    angles: Any = getattr(body, "rotary_emb", None)
    if not all(hasattr(body, part) for part in PARTS) or getattr(angles, "rope_type", None) not in ROTARY:
        return False
    try:
        hidden, rotary = next(body.parameters()).new_zeros((1, 1, 1)), shadow(angles).forward
        far = 4 * int(getattr(body.config, "max_position_embeddings", None) or 2**17)
        places = torch.tensor([[1, far]], device=hidden.device)
        with torch.no_grad():
            alone, beside = rotary(hidden, position_ids=places[:, :1]), rotary(hidden, position_ids=places)
        return all(torch.equal(one, both[:, :1]) for one, both in zip(alone, beside, strict=True))
    except Exception:  # modules may do anything
        return False


class Steps:
    """Shadow of a body; a call is one of its `forward`, `step` appends one token per row."""

    def __init__(self, body: nn.Module) -> None:
        self.forward: Callable[..., Any] = shadowed(body)
        assert isinstance(self.forward, functools.partial)
        self.body: Any = self.forward.args[0]
        self.positions = torch.empty((1, 0), dtype=torch.long)
        self.rotary: tuple[Tensor, ...] = ()

    def __call__(self, **arguments: Any) -> Any:
        """Output of the body, whatever its `forward` returns."""
        return self.forward(**arguments)

    def step(self, ids: Tensor, cache: Any, at: slice | Tensor, mask: Tensor | None, end: int) -> Tensor:
        """Last hidden state [rows, 1, width] after `ids` [rows, 1], whose keys and values the cache takes.

        Args:
            ids: The next token of each row.
            cache: The model's cache of keys and values.
            at: Positions of the tokens: a slice that all rows share, or int64[rows, 1].
            mask: Added to the scores of attention, [rows, 1, 1, places]; None if all places are seen.
            end: A number above all positions.
        """
        body, hidden = self.body, self.body.embed_tokens(ids)
        if end > self.positions.shape[1]:
            self.positions = torch.arange(2 * end, device=ids.device)[None]
            self.rotary = body.rotary_emb(hidden, position_ids=self.positions)
        if isinstance(at, slice):
            positions, rotary = self.positions[:, at], tuple(each[:, at] for each in self.rotary)
        else:
            positions, rotary = at, tuple(each[0, at] for each in self.rotary)
        for layer in body.layers:
            hidden = layer(
                hidden,
                attention_mask=mask,
                position_embeddings=rotary,
                position_ids=positions,
                past_key_values=cache,
                use_cache=True,
            )
        last: Tensor = body.norm(hidden)
        return last
