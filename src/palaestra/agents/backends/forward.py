"""Two ways through a causal language model: read prompts once, then extend them token by token.

`Generic` calls any Hugging Face model. `Llama` walks the weights of a small Llama by itself: the same numbers, but a
decoding step costs half, because module calls and cache concatenation outweigh the arithmetic at this size.
Both read every distinct prompt once, however many rows share it, with and without gradient (512 rows over 12 prompts
of 40 tokens: a ninth of the time). Left out: tensor parallelism, quantised caches, rolling buffers.
"""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Iterator, Sequence
from typing import Any, Protocol

import numpy as np
import torch
import torch.nn.functional as F

BLOCK = 2048
"""Tokens read at once by `Llama`: activations that stay in the cache of one core are about a quarter faster."""


class State(Protocol):
    """Rows whose past has been read."""

    def keep(self, rows: torch.Tensor) -> None:
        """Drop all other rows."""


class Forward(Protocol):
    """A model as two functions. Logits are float, [rows, tokens, vocabulary], not yet divided by a temperature.

    compute: the type in which matrices are multiplied, if not that of the weights; see `precision`.
    """

    device: torch.device
    compute: torch.dtype | None

    def read(self, prompts: Sequence[np.ndarray], rows: torch.Tensor, room: int) -> tuple[torch.Tensor, State]:
        """Read `prompts` (ascending in length); row i continues `prompts[rows[i]]` by at most `room` tokens.

        Returns the logits of each row's next token, [rows, 1, vocabulary].
        """

    def extend(self, state: State, ids: torch.Tensor) -> torch.Tensor:
        """Append `ids` [rows, tokens] and return the logits after each of them."""


def forward_of(model: torch.nn.Module, compute: torch.dtype | None = None) -> Forward:
    """The fastest way through `model`."""
    return Llama(model) if compute is None and Llama.fits(model) else Generic(model, compute)


def precision(forward: Forward) -> contextlib.AbstractContextManager[Any]:
    """Around all calls that belong together: weights are then converted once, not for every token."""
    compute = getattr(forward, "compute", None)
    return contextlib.nullcontext() if compute is None else torch.autocast(forward.device.type, compute)


def left_pad(sequences: Sequence[np.ndarray], device: torch.device | str) -> tuple[torch.Tensor, torch.Tensor]:
    """Stack ragged ids: int64[rows, longest] with zeros on the left, and how many zeros, int64[rows]."""
    lengths = np.fromiter(map(len, sequences), np.int64, len(sequences))
    width = int(lengths.max())
    padded = np.zeros((len(sequences), width), np.int64)
    padded[np.arange(width) >= (width - lengths)[:, None]] = np.concatenate(sequences)
    return torch.from_numpy(padded).to(device), torch.from_numpy(width - lengths).to(device)


class Generic:
    """Any Hugging Face causal LM whose cache can select rows (`DynamicCache` and its relatives)."""

    def __init__(self, model: Any, compute: torch.dtype | None = None) -> None:
        self.model, self.device, self.compute = model, model.device, compute
        inner = model.get_base_model() if hasattr(model, "get_base_model") else model
        self.accepted = set(inspect.signature(inner.forward).parameters)

    def read(self, prompts: Sequence[np.ndarray], rows: torch.Tensor, room: int) -> tuple[torch.Tensor, State]:
        """One forward pass over all prompts."""
        ids, pad = left_pad(prompts, self.device)
        state = _GenericState(None, pad, 0)
        logits = self._call(state, ids, keep=1)
        state.keep(rows)
        return logits[rows], state

    def extend(self, state: State, ids: torch.Tensor) -> torch.Tensor:
        """One forward pass."""
        assert isinstance(state, _GenericState)
        return self._call(state, ids, keep=ids.shape[1])

    def _call(self, state: _GenericState, ids: torch.Tensor, keep: int) -> torch.Tensor:
        end = state.length + ids.shape[1]
        arguments: dict[str, Any] = {}
        if state.padded:  # without padding a model makes its own mask, and most need none
            places = torch.arange(end, device=ids.device)
            arguments["attention_mask"] = (places >= state.pad[:, None]).long()
            if "position_ids" in self.accepted:
                arguments["position_ids"] = (places[state.length :] - state.pad[:, None]).clamp(min=0)
        if "logits_to_keep" in self.accepted:
            arguments["logits_to_keep"] = keep
        output = self.model(input_ids=ids, past_key_values=state.cache, use_cache=True, **arguments)
        state.cache, state.length = output.past_key_values, end
        return output.logits[:, -keep:].float()  # type: ignore[no-any-return]


class _GenericState:
    def __init__(self, cache: Any, pad: torch.Tensor, length: int) -> None:
        self.cache, self.pad, self.length = cache, pad, length
        self.padded = bool(pad.any())

    def keep(self, rows: torch.Tensor) -> None:
        self.cache.batch_select_indices(rows)
        self.pad = self.pad[rows]


class Llama:
    """A Hugging Face `LlamaForCausalLM` without its modules; reads the live weights, so training needs no copy."""

    compute: torch.dtype | None = None

    @staticmethod
    def fits(model: Any) -> bool:
        """A plain, small Llama: default rotary positions, no biases, no grouped heads, no adapters."""
        c: Any = getattr(model, "config", None)
        return (
            type(model).__name__ == "LlamaForCausalLM"
            and c.hidden_size <= 512
            and c.hidden_act == "silu"
            and c.num_key_value_heads == c.num_attention_heads
            and not (c.attention_bias or c.mlp_bias)
            and c.rope_parameters["rope_type"] == "default"
            and model.dtype == torch.float32
        )

    def __init__(self, model: Any) -> None:
        self.model, self.device = model, model.device
        self.heads, self.size = model.config.num_attention_heads, model.config.head_dim
        self.eps = model.config.rms_norm_eps
        frequencies = model.model.rotary_emb.inv_freq.float()
        angles = torch.arange(model.config.max_position_embeddings, device=model.device)[:, None] * frequencies
        self.cos = torch.cat([angles.cos(), angles.cos()], -1)[:, None]
        self.sin = torch.cat([-angles.sin(), angles.sin()], -1)[:, None]

    def read(self, prompts: Sequence[np.ndarray], rows: torch.Tensor, room: int) -> tuple[torch.Tensor, State]:
        """Block by block; keys and values are then lined up on the right and handed out to the rows."""
        width, hidden, parts = len(prompts[-1]), [], []
        for block in _blocks(prompts):
            ids, pad = left_pad(block, self.device)
            part = _LlamaState(pad, ids.shape[1])
            hidden.append(self._walk(part, ids, keep=1))
            parts.append(part)
        state = _LlamaState(torch.cat([part.pad + width - part.length for part in parts]), width + room)
        for layer in range(len(self.model.model.layers)):
            gaps = [(0, 0, width - part.length, 0) for part in parts]
            state.keys.append(torch.cat([F.pad(p.keys[layer], gap) for p, gap in zip(parts, gaps, strict=True)]))
            state.values.append(torch.cat([F.pad(p.values[layer], gap) for p, gap in zip(parts, gaps, strict=True)]))
        state.length = width
        state.keep(rows)
        if not torch.is_grad_enabled():
            state.keys = [F.pad(k, (0, 0, 0, room)) for k in state.keys]
            state.values = [F.pad(v, (0, 0, 0, room)) for v in state.values]
        return self.model.lm_head(torch.cat(hidden))[rows], state

    def extend(self, state: State, ids: torch.Tensor) -> torch.Tensor:
        """In place, unless a gradient is wanted."""
        assert isinstance(state, _LlamaState)
        return self.model.lm_head(self._walk(state, ids, keep=ids.shape[1]))  # type: ignore[no-any-return]

    def _walk(self, state: _LlamaState, ids: torch.Tensor, keep: int) -> torch.Tensor:
        """Hidden states of the last `keep` tokens; the last layer computes queries for those only."""
        rows, tokens = ids.shape
        layers = self.model.model.layers
        at: Any = slice(state.length, state.length + tokens)
        if state.blind is not None:
            at = (torch.arange(at.start, at.stop, device=ids.device) - state.pad[:, None]).clamp(min=0)
        cos, sin = self.cos[at], self.sin[at]
        bias = state.bias(tokens)
        x = F.embedding(ids, self.model.model.embed_tokens.weight)
        for i, layer in enumerate(layers):
            attention, mlp = layer.self_attn, layer.mlp
            h = self._norm(x, layer.input_layernorm)
            k = self._rotate(self._split(h, attention.k_proj), cos, sin).transpose(1, 2)
            v = self._split(h, attention.v_proj).transpose(1, 2)
            k, v = state.append(i, k, v)
            if i == len(layers) - 1 and keep < tokens:
                h, x, cos, sin = h[:, -keep:], x[:, -keep:], cos[..., -keep:, :, :], sin[..., -keep:, :, :]
                bias = None if bias is None else bias[..., -keep:, :]
            q = self._rotate(self._split(h, attention.q_proj), cos, sin).transpose(1, 2)
            scores = (q * self.size**-0.5) @ k.transpose(-1, -2)
            mixed = (scores if bias is None else scores + bias).softmax(-1) @ v
            x = x + F.linear(mixed.transpose(1, 2).reshape(rows, h.shape[1], -1), attention.o_proj.weight)
            h = self._norm(x, layer.post_attention_layernorm)
            gate = F.silu(F.linear(h, mlp.gate_proj.weight))
            x = x + F.linear(gate * F.linear(h, mlp.up_proj.weight), mlp.down_proj.weight)
        state.length += tokens
        return self._norm(x, self.model.model.norm)

    def _norm(self, x: torch.Tensor, norm: torch.nn.Module) -> torch.Tensor:
        return F.rms_norm(x, (x.shape[-1],), norm.weight, self.eps)  # type: ignore[arg-type]

    def _split(self, h: torch.Tensor, projection: torch.nn.Module) -> torch.Tensor:
        return F.linear(h, projection.weight).view(*h.shape[:2], self.heads, self.size)  # type: ignore[arg-type]

    def _rotate(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        return x * cos + x.roll(self.size // 2, -1) * sin


class _LlamaState:
    """keys, values: per layer [rows, heads, places, head size]; without gradient, free places follow the `length`.

    pad: int64[rows], how many places of padding come first. blind: added to the scores of those places,
    [rows, 1, 1, places]; None if there are none. Finite, so that padding may look at padding and stays a number.
    """

    def __init__(self, pad: torch.Tensor, places: int) -> None:
        self.keys: list[torch.Tensor] = []
        self.values: list[torch.Tensor] = []
        self.pad, self.length = pad, 0
        self.blind: torch.Tensor | None = None
        if bool(pad.any()):
            padding = torch.arange(places, device=pad.device) < pad[:, None]
            self.blind = torch.where(padding, -1e30, 0.0)[:, None, None]

    def keep(self, rows: torch.Tensor) -> None:
        self.keys = [k.index_select(0, rows) for k in self.keys]
        self.values = [v.index_select(0, rows) for v in self.values]
        self.pad = self.pad[rows]
        self.blind = None if self.blind is None else self.blind[rows]

    def append(self, layer: int, k: torch.Tensor, v: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """All keys and values so far, in place if no gradient needs the old ones."""
        if layer == len(self.keys):
            self.keys.append(k)
            self.values.append(v)
        elif torch.is_grad_enabled():
            self.keys[layer] = torch.cat([self.keys[layer], k], 2)
            self.values[layer] = torch.cat([self.values[layer], v], 2)
        else:
            end = self.length + k.shape[2]
            self.keys[layer][:, :, self.length : end] = k
            self.values[layer][:, :, self.length : end] = v
            return self.keys[layer][:, :, :end], self.values[layer][:, :, :end]
        return self.keys[layer], self.values[layer]

    def bias(self, tokens: int) -> torch.Tensor | None:
        """What is added to the scores of the next `tokens`, broadcastable to [rows, heads, tokens, places]."""
        end = self.length + tokens
        blind = None if self.blind is None else self.blind[..., :end]
        if tokens == 1:
            return blind
        future = torch.full((tokens, end), -torch.inf, device=self.pad.device).triu(self.length + 1)
        return future if blind is None else future + blind


def _blocks(prompts: Sequence[np.ndarray]) -> Iterator[Sequence[np.ndarray]]:
    """Cut prompts of ascending length into runs of at most `BLOCK` padded tokens (at least one prompt each)."""
    start = 0
    for stop in range(1, len(prompts) + 1):
        if stop == len(prompts) or (stop + 1 - start) * len(prompts[stop]) > BLOCK:
            yield prompts[start:stop]
            start = stop
